//! Where the notification thread notes what changed, for the actor to read. It holds a set, not a queue: however many
//! events come, there is one message about them.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{Event, EventHandler, EventKind};
use ractor::ActorRef;

use crate::messages::watcher::WatcherMsg;

/// How the names of probe files begin.
pub(super) const PROBE: &str = ".tmp-probe-";

/// The thread rests for so long after a notice that matters to nobody. What we write and read ourselves gives a dozen of
/// those an iteration: at rest they pile up, and are read at once. Whatever matters waits this long at most.
const REST: Duration = Duration::from_millis(5);

/// Which entries of a folder matter; none: all.
pub(super) type Names = Option<Vec<OsString>>;

/// Shared by the actor, its blocking jobs and the notification thread.
#[derive(Debug, Default)]
pub(super) struct Board {
    noted: Mutex<Noted>,
    probed: Condvar,
}

#[derive(Debug, Default)]
struct Noted {
    wanted: HashMap<PathBuf, Names>,
    changed: Changes,
    /// The probe file that is waited for, and whether a notice of it came.
    probe: Option<(PathBuf, bool)>,
    /// The actor has been told and has not read yet.
    told: bool,
}

/// What changed since it was read last.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// Folders that matter, with an entry that matters.
    pub(super) folders: BTreeSet<PathBuf>,
    /// Folders that are watched, or should be, and came, went or moved: their watches may be dead.
    pub(super) moved: BTreeSet<PathBuf>,
    /// Events were lost: anything may have changed.
    pub(super) anything: bool,
    /// The instance itself failed.
    pub(super) failed: bool,
}

/// The notification thread's end.
pub(super) struct Pen {
    board: Arc<Board>,
    actor: ActorRef<WatcherMsg>,
    rested: Instant,
}

// === impl Board ===

impl Board {
    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What matters from now on.
    pub(super) fn want(&self, wanted: HashMap<PathBuf, Names>) {
        self.lock().wanted = wanted;
    }

    /// Reads, and clears.
    pub(super) fn read(&self) -> Changes {
        let mut noted = self.lock();
        noted.told = false;
        std::mem::take(&mut noted.changed)
    }

    /// A probe file is about to be made.
    pub(super) fn expect_probe(&self, probe: PathBuf) {
        self.lock().probe = Some((probe, false));
    }

    /// Waits for the notice of the probe file; false: none came in time.
    pub(super) fn probe_came(&self, limit: Duration) -> bool {
        let waits = |noted: &mut Noted| noted.probe.as_ref().is_some_and(|(_, came)| !came);
        let waited = self.probed.wait_timeout_while(self.lock(), limit, waits);
        let (mut noted, _) = waited.unwrap_or_else(PoisonError::into_inner);
        noted.probe.take().is_some_and(|(_, came)| came)
    }
}

// === impl Noted ===

impl Noted {
    /// True: there is something to tell.
    fn note(&mut self, event: &notify::Result<Event>) -> bool {
        match event {
            Err(_) => {
                self.changed.failed = true;
                true
            }
            Ok(event) if event.need_rescan() => {
                self.changed.anything = true;
                true
            }
            // Looking makes such events itself.
            Ok(Event { kind: EventKind::Access(access), .. })
                if *access != AccessKind::Close(AccessMode::Write) =>
            {
                false
            }
            Ok(event) => {
                let moves = matches!(
                    event.kind,
                    EventKind::Create(_) | EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_))
                );
                // All of them are noted.
                event.paths.iter().filter(|path| self.note_path(path, moves)).count() > 0
            }
        }
    }

    fn note_path(&mut self, path: &Path, moves: bool) -> bool {
        if let Some((_, came)) = self.probe.as_mut().filter(|(probe, _)| probe == path) {
            *came = true;
            return false;
        }
        let moved = moves && self.wanted.contains_key(path);
        if moved {
            insert(&mut self.changed.moved, path);
        }
        let Some((folder, name)) = path.parent().zip(path.file_name()) else { return moved };
        let matters = match self.wanted.get(folder) {
            Some(Some(names)) => names.iter().any(|wanted| wanted == name),
            Some(None) => !name.as_encoded_bytes().starts_with(PROBE.as_bytes()),
            None => false,
        };
        if matters {
            insert(&mut self.changed.folders, folder);
        }
        moved || matters
    }
}

fn insert(set: &mut BTreeSet<PathBuf>, path: &Path) {
    if !set.contains(path) {
        set.insert(path.to_owned());
    }
}

// === impl Pen ===

impl Pen {
    pub(super) fn new(board: Arc<Board>, actor: ActorRef<WatcherMsg>) -> Self {
        Pen { board, actor, rested: Instant::now() }
    }
}

impl EventHandler for Pen {
    fn handle_event(&mut self, event: notify::Result<Event>) {
        let mut noted = self.board.lock();
        let matters = noted.note(&event);
        if noted.probe.as_ref().is_some_and(|(_, came)| *came) {
            self.board.probed.notify_all();
        }
        let tell = matters && !std::mem::replace(&mut noted.told, true);
        drop(noted);
        if tell {
            // An actor that died has a successor with an instance of its own.
            drop(self.actor.cast(WatcherMsg::Changed));
        }
        // Once for all that is read together.
        if !matters && self.rested.elapsed() > REST / 2 {
            std::thread::sleep(REST);
            self.rested = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use notify::event::{CreateKind, Flag, RemoveKind, RenameMode};

    fn noted() -> Noted {
        let names = Some(vec!["STOP".into()]);
        let wanted =
            [("/p/.longhaul", names), ("/p/.longhaul/inbox", None), ("/p", Some(vec![".longhaul".into()]))];
        let wanted = wanted.map(|(path, names)| (PathBuf::from(path), names));
        Noted { wanted: wanted.into(), ..Noted::default() }
    }

    fn event(kind: EventKind, path: &str) -> notify::Result<Event> {
        Ok(Event::new(kind).add_path(path.into()))
    }

    #[test]
    fn only_what_matters() {
        let create = EventKind::Create(CreateKind::File);
        let renamed = EventKind::Modify(ModifyKind::Name(RenameMode::To));
        let written = EventKind::Access(AccessKind::Close(AccessMode::Write));
        let opened = EventKind::Access(AccessKind::Open(AccessMode::Any));
        let read = EventKind::Access(AccessKind::Close(AccessMode::Read));
        for (kind, path, matters) in [
            (create, "/p/.longhaul/STOP", true),
            (renamed, "/p/.longhaul/STOP", true),
            (written, "/p/.longhaul/STOP", true),
            (opened, "/p/.longhaul/STOP", false),
            (read, "/p/.longhaul/STOP", false),
            (create, "/p/.longhaul/state.db-wal", false),
            (create, "/p/.longhaul/inbox/anything", true),
            (create, "/p/Cargo.toml", false),
            (create, "/p/.longhaul", true),
            (create, "/elsewhere/STOP", false),
        ] {
            assert_eq!(noted().note(&event(kind, path)), matters, "{kind:?} {path}");
        }
    }

    #[test]
    fn a_folder_that_goes_or_comes_is_told_apart_from_a_change_in_it() {
        let mut noted = noted();
        noted.note(&event(EventKind::Remove(RemoveKind::Folder), "/p/.longhaul/inbox"));
        assert!(noted.changed.moved.contains(Path::new("/p/.longhaul/inbox")));
        noted.note(&event(EventKind::Create(CreateKind::Folder), "/p/.longhaul"));
        assert!(noted.changed.moved.contains(Path::new("/p/.longhaul")));
        assert!(noted.changed.folders.contains(Path::new("/p")));
    }

    #[test]
    fn an_overflow_has_no_paths_and_an_error_no_event() {
        let mut noted = noted();
        assert!(noted.note(&Ok(Event::new(EventKind::Other).set_flag(Flag::Rescan))));
        assert!(noted.changed.anything && !noted.changed.failed);
        assert!(noted.note(&Err(notify::Error::generic("gone"))));
        assert!(noted.changed.failed);
    }

    #[test]
    fn a_probe_is_noted_and_told_to_nobody() {
        let board = Board::default();
        board.want(noted().wanted);
        let probe = PathBuf::from("/p/.longhaul/inbox/.tmp-probe-1");
        let notice = event(EventKind::Create(CreateKind::File), "/p/.longhaul/inbox/.tmp-probe-1");
        board.expect_probe(probe.clone());
        assert!(!board.probe_came(Duration::ZERO));
        board.expect_probe(probe);
        assert!(!board.lock().note(&notice));
        assert!(board.probe_came(Duration::ZERO));
        assert!(!board.lock().note(&notice), "its later notices are nobody's business either");
        assert_eq!(board.read(), Changes::default());
    }
}
