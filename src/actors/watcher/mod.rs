//! Watcher: one inotify instance per process, for all projects. Folders, never files, never what is below them.
//!
//! An event is only a hint to look again, so it may be lost, doubled or wrong: an overflow or an error hints
//! everybody, and every 2 s the folders are compared with those that are watched. A project is told that notices
//! come only after a probe file has shown it; until then, and where none come, its Signals polls.

mod arrange;
mod board;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::RecommendedWatcher;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::time::Instant;

use self::arrange::{Arranger, Done, Plan, Proof};
use self::board::{Board, Changes, Pen};
use super::blocking::away;
use crate::messages::Slot;
use crate::messages::signals::{Notices, SignalsMsg};
use crate::messages::watcher::{WatchedFolder, WatcherMsg};

/// Between two comparisons of folders with watches.
const CHECK: Duration = Duration::from_secs(2);

/// A project without notices is tried again after this: an instance or a watch may have become free.
const RETRY: Duration = Duration::from_secs(30);

/// A project whose Signals has been gone for this long has ended.
const FORGET: Duration = Duration::from_secs(60);

/// What gives the notices.
type Backend = Box<dyn notify::Watcher + Send>;

/// The actor.
pub struct WatcherActor;

/// What it starts from.
pub struct WatcherArgs {
    make: fn(Pen) -> notify::Result<Backend>,
}

/// What it works with.
pub struct WatcherState {
    board: Arc<Board>,
    /// With us, or away with a job.
    arranger: Option<Arranger>,
    /// The watches are to be looked at once more.
    again: bool,
    /// Folders whose watches are dead.
    moved: BTreeSet<PathBuf>,
    /// The instance has failed.
    failed: bool,
    projects: Vec<Project>,
    /// The timer for comparisons runs: only while there is something to compare.
    checking: bool,
    last_id: u64,
}

struct Project {
    id: u64,
    folders: Vec<WatchedFolder>,
    tell: Slot<SignalsMsg>,
    /// What it was told.
    told: Option<Notices>,
    /// When it was found without notices.
    failed_at: Option<Instant>,
    /// Since when nobody is there to be told.
    gone_since: Option<Instant>,
}

/// The watches are what they should be, or why not.
pub struct Arranged {
    arranger: Arranger,
    done: Vec<Done>,
}

// === impl WatcherArgs ===

impl Default for WatcherArgs {
    /// With inotify.
    fn default() -> Self {
        WatcherArgs { make: inotify }
    }
}

fn inotify(pen: Pen) -> notify::Result<Backend> {
    Ok(Box::new(<RecommendedWatcher as notify::Watcher>::new(pen, notify::Config::default())?))
}

// === impl WatcherActor ===

impl Actor for WatcherActor {
    type Msg = WatcherMsg;
    type State = WatcherState;
    type Arguments = WatcherArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<WatcherMsg>,
        args: WatcherArgs,
    ) -> Result<WatcherState, ActorProcessingErr> {
        let board = Arc::new(Board::default());
        let arranger = Arranger::new(args.make, myself, board.clone());
        Ok(WatcherState {
            board,
            checking: false,
            arranger: Some(arranger),
            again: false,
            moved: BTreeSet::new(),
            failed: false,
            projects: Vec::new(),
            last_id: 0,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<WatcherMsg>,
        message: WatcherMsg,
        state: &mut WatcherState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            WatcherMsg::Watch { folders, tell } => {
                state.watch(folders, tell);
                state.arrange(&myself);
                state.check_later(&myself);
            }
            WatcherMsg::Changed => {
                let changes = state.board.read();
                if state.changed(changes) {
                    state.arrange(&myself);
                }
            }
            WatcherMsg::Arranged(arranged) => {
                state.arranged(*arranged);
                if std::mem::take(&mut state.again) {
                    state.arrange(&myself);
                }
            }
            WatcherMsg::Check => {
                state.checking = false;
                state.forget();
                state.arrange(&myself);
                state.check_later(&myself);
            }
            #[cfg(debug_assertions)]
            WatcherMsg::Crash => panic!("asked to crash"),
        }
        Ok(())
    }
}

// === impl WatcherState ===

impl WatcherState {
    fn watch(&mut self, folders: Vec<WatchedFolder>, tell: Slot<SignalsMsg>) {
        let known = self.projects.iter_mut().find(|project| project.folders == folders);
        if let Some(project) = known {
            // A new Signals, which knows nothing.
            project.tell = tell;
            project.told = None;
            project.failed_at = None;
            return;
        }
        self.last_id += 1;
        self.projects.push(Project {
            id: self.last_id,
            folders,
            tell,
            told: None,
            failed_at: None,
            gone_since: None,
        });
    }

    fn check_later(&mut self, myself: &ActorRef<WatcherMsg>) {
        if !self.projects.is_empty() && !std::mem::replace(&mut self.checking, true) {
            myself.send_after(CHECK, || WatcherMsg::Check);
        }
    }

    /// Hints whom it concerns. True: watches may be dead.
    fn changed(&mut self, changes: Changes) -> bool {
        let Changes { folders, mut moved, anything, failed } = changes;
        let everybody = anything || failed;
        for project in &self.projects {
            if everybody || project.paths().any(|path| folders.contains(path) || moved.contains(path)) {
                project.tell.cast(SignalsMsg::Hint);
            }
        }
        self.failed |= failed;
        let dead = failed || !moved.is_empty();
        self.moved.append(&mut moved);
        dead
    }

    /// Brings the watches to what they should be, now or after what is under way.
    fn arrange(&mut self, myself: &ActorRef<WatcherMsg>) {
        let Some(mut arranger) = self.arranger.take() else {
            self.again = true;
            return;
        };
        let now = Instant::now();
        let plans: Vec<Plan> = self
            .projects
            .iter()
            .map(|project| Plan {
                id: project.id,
                folders: project.folders.clone(),
                skip: project.failed_at.is_some_and(|at| now < at + RETRY),
            })
            .collect();
        let (moved, failed) = (std::mem::take(&mut self.moved), std::mem::take(&mut self.failed));
        away(myself, move || {
            if failed {
                arranger.reset();
            }
            let done = arranger.arrange(&plans, &moved);
            WatcherMsg::Arranged(Box::new(Arranged { arranger, done }))
        });
    }

    fn arranged(&mut self, arranged: Arranged) {
        self.arranger = Some(arranged.arranger);
        for done in arranged.done {
            let Some(project) = self.projects.iter_mut().find(|project| project.id == done.id) else {
                continue;
            };
            project.failed_at = matches!(done.notices, Proof::None(_)).then(Instant::now);
            let notices = match done.notices {
                Proof::Come => Some(Notices::Come),
                Proof::None(why) => Some(Notices::None(why)),
                Proof::Unknown => None,
            };
            if notices.is_some() && notices != project.told {
                project.told.clone_from(&notices);
                notices.into_iter().for_each(|notices| project.tell.cast(SignalsMsg::Notices(notices)));
            } else if done.armed {
                project.tell.cast(SignalsMsg::Hint);
            }
        }
    }

    /// Drops projects whose Signals does not come back.
    fn forget(&mut self) {
        let now = Instant::now();
        self.projects.retain_mut(|project| {
            if project.tell.is_live() {
                project.gone_since = None;
                return true;
            }
            now < *project.gone_since.get_or_insert(now) + FORGET
        });
    }
}

// === impl Project ===

impl Project {
    /// Its folders, and the folders around them.
    fn paths(&self) -> impl Iterator<Item = &Path> {
        self.folders.iter().flat_map(|folder| folder.path.parent().into_iter().chain([folder.path.as_path()]))
    }
}

impl Drop for Project {
    /// Also when the actor dies: until its successor has taken over, Signals must look for itself.
    fn drop(&mut self) {
        self.tell.cast(SignalsMsg::Notices(Notices::Paused));
    }
}

// === impl Arranged ===

impl std::fmt::Debug for Arranged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arranged").field("done", &self.done).finish_non_exhaustive()
    }
}
