//! Claiming, reading and putting away messages.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;
use ulid::Ulid;

use super::order::{Arrival, identities};
use super::steady::Steady;
use super::{InboxPaths, ignored, leading_id, said, text};
use crate::config::ProjectPaths;
use crate::domain::ids::MessageId;
use crate::intake::lease::{Writers, lasting_writers};
use crate::intake::stamp::Stamp;

/// Files taken in one round, so that one commit stays small.
const BATCH: usize = 64;

/// Text taken in one round, in bytes, give or take one message.
const BATCH_TEXT: usize = 4 * 1024 * 1024;

/// Where it cannot be asked who writes, a file is whole when it has not changed for this long.
const STEADY: Duration = Duration::from_millis(200);

/// An empty file in the inbox is put away when it has not changed for this long: it may have been made first, to be
/// written next.
const STEADY_EMPTY: Duration = Duration::from_secs(5);

/// Files kept in `done/`.
const KEPT: usize = 1000;

/// Longest part of a file's own name that is kept, in bytes: with an identity before it, 255 are allowed.
const NAME: usize = 200;

/// Name of the drop-in file among the claimed ones.
const DROPPED_IN: &[u8] = b"HUMAN_INPUT.md";

/// Takes messages. What it remembers is a convenience: a new one finds everything on disk.
#[derive(Debug)]
pub struct Inbox {
    paths: InboxPaths,
    /// It can be asked who writes.
    leases: bool,
    /// Files that are not taken yet because they may still be written.
    steady: Steady,
    /// Committed, and could not be put away.
    committed: HashSet<MessageId>,
}

/// A file that has an identity.
#[derive(Debug)]
pub struct Claimed {
    /// The identity.
    pub id: MessageId,
    /// `file`, `inbox` or `say`.
    pub source: &'static str,
    /// Its words; none: there is nothing to commit, it is only to be put away.
    pub text: Option<String>,
    /// Its name in `taken/`, and then in `done/`.
    name: OsString,
    /// The file as it was read.
    stamp: Option<Stamp>,
}

/// What a round of taking gave.
#[derive(Debug, Default)]
pub struct Round {
    /// In order of arrival.
    pub claimed: Vec<Claimed>,
    /// There is more to take at once.
    pub more: bool,
    /// Some may still be written: look again after this.
    pub again: Option<Duration>,
    /// What went wrong with single files.
    pub problems: Vec<Problem>,
}

/// Something that went wrong with one file; it stays where it is.
#[derive(Debug, thiserror::Error)]
#[error("take the message {}: {error}", path.display())]
pub struct Problem {
    /// The file.
    pub path: PathBuf,
    /// What the system said.
    pub error: io::Error,
}

/// A file that has none yet.
struct Candidate {
    path: PathBuf,
    /// What it is called when it is claimed.
    name: Vec<u8>,
    /// `say` has given it one.
    id: Option<MessageId>,
    /// When it came, milliseconds since the epoch.
    arrived: u64,
}

// === impl Inbox ===

impl Inbox {
    /// The inbox of a project. `leases`: its file system is a local one.
    pub fn new(paths: &ProjectPaths, leases: bool) -> Self {
        Inbox { paths: InboxPaths::new(paths), leases, steady: Steady::default(), committed: HashSet::new() }
    }

    /// Claims and reads what is ready. `at` is a monotonic time, `known` says whether the journal has a message,
    /// `mint` makes fresh ids.
    pub fn collect(
        &mut self,
        at: Duration,
        known: &dyn Fn(MessageId) -> bool,
        mint: &mut dyn FnMut() -> Ulid,
    ) -> Round {
        let mut round = Round::default();
        self.steady.begin(at);
        let ready = self.ready(&mut round);
        if !ready.is_empty() {
            self.claim(ready, known, mint, &mut round);
        }
        let written = self.read_claimed(known, &mut round);
        round.again = self.steady.end().or(written.then_some(STEADY));
        // Without progress there is no hurry.
        round.more &= !round.claimed.is_empty();
        round
    }

    /// Puts away what has been committed. What was written to after it had been read is another message, and stays:
    /// true when there is one.
    pub fn archive(
        &mut self,
        claimed: &[Claimed],
        mint: &mut dyn FnMut() -> Ulid,
        problems: &mut Vec<Problem>,
    ) -> bool {
        let mut stays = false;
        self.committed.extend(claimed.iter().map(|c| c.id));
        for Claimed { id, name, stamp, .. } in claimed {
            let from = self.paths.taken.join(name);
            let now = Stamp::of_path(&from);
            let rewritten = stamp.is_some() && now.is_some() && now != *stamp;
            stays |= rewritten;
            let to = if rewritten {
                self.paths.taken.join(named(mint(), own_name(name)))
            } else {
                self.paths.done.join(name)
            };
            match fs::rename(&from, to) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    problems.push(Problem { path: from, error });
                }
                _ => {
                    self.committed.remove(id);
                }
            }
        }
        self.prune();
        stays
    }

    /// Files that may be claimed, in order of arrival.
    fn ready(&mut self, round: &mut Round) -> Vec<Candidate> {
        let mut names: Vec<OsString> = entries(&self.paths.inbox).filter(|name| !ignored(name)).collect();
        names.sort_unstable();
        let mut ready = Vec::new();
        for name in &names {
            if ready.len() >= BATCH {
                round.more = true;
                break;
            }
            ready.extend(self.candidate(self.paths.inbox.join(name), name.as_bytes(), round));
        }
        if let Some(dropped) = self.candidate(self.paths.human_input.clone(), DROPPED_IN, round) {
            let place = ready.iter().position(|other| other.arrived > dropped.arrived);
            ready.insert(place.unwrap_or(ready.len()), dropped);
        }
        ready
    }

    fn candidate(&mut self, path: PathBuf, name: &[u8], round: &mut Round) -> Option<Candidate> {
        let metadata = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
        let stamp = Stamp::of(&metadata);
        let whole = if stamp.size == 0 {
            path != self.paths.human_input && self.steady.holds(&path, stamp, STEADY_EMPTY)
        } else {
            match self.open(&path) {
                Ok((_, writers)) => self.is_whole(&path, stamp, writers),
                Err(error) => {
                    round.problems.push(Problem { path, error });
                    return None;
                }
            }
        };
        let id = path.file_name().and_then(said);
        let arrived = id.map_or_else(|| stamp.milliseconds(), |id| id.0.timestamp_ms());
        whole.then(|| Candidate { path, name: name.to_owned(), id, arrived })
    }

    fn is_whole(&mut self, path: &Path, stamp: Stamp, writers: Writers) -> bool {
        match writers {
            Writers::None => true,
            Writers::Some => false,
            Writers::Unknown => self.steady.holds(path, stamp, STEADY),
        }
    }

    /// Gives identities, and makes that durable: after a power cut a file must not come back without the one under
    /// which it was committed.
    fn claim(
        &mut self,
        ready: Vec<Candidate>,
        known: &dyn Fn(MessageId) -> bool,
        mint: &mut dyn FnMut() -> Ulid,
        round: &mut Round,
    ) {
        let arrivals: Vec<Arrival> = ready
            .iter()
            .map(|file| Arrival {
                id: file.id.filter(|id| !known(*id) && !self.is_used(*id)).map(|id| id.0),
                at: file.arrived,
            })
            .collect();
        let ids = identities(&arrivals, mint);
        for ((file, arrival), id) in ready.into_iter().zip(arrivals).zip(ids) {
            let name = match arrival.id {
                Some(own) => OsString::from(format!("{own}.md")),
                None => named(id, &file.name),
            };
            let to = self.paths.taken.join(name);
            match fs::rename(&file.path, &to) {
                Ok(()) => self.steady.renamed(&file.path, to),
                // Somebody took it back, or another taker was faster.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => round.problems.push(Problem { path: file.path, error }),
            }
        }
        for folder in [&self.paths.taken, &self.paths.inbox, &self.paths.dot] {
            // Where a folder cannot be synced, a power cut can double a message. It loses none.
            drop(File::open(folder).and_then(|folder| folder.sync_all()));
        }
    }

    /// Somebody put a file that was delivered before into the inbox again: it is a new message.
    fn is_used(&self, id: MessageId) -> bool {
        let name = format!("{id}.md");
        [&self.paths.taken, &self.paths.done].iter().any(|folder| folder.join(&name).exists())
    }

    /// Reads claimed files, in the order of their identities. True: one of them is still being written.
    fn read_claimed(&mut self, known: &dyn Fn(MessageId) -> bool, round: &mut Round) -> bool {
        let mut names: Vec<OsString> =
            entries(&self.paths.taken).filter(|name| leading_id(name).is_some()).collect();
        names.sort_unstable();
        let (mut size, mut written) = (0, false);
        for name in names {
            if round.claimed.len() >= BATCH || size >= BATCH_TEXT {
                round.more = true;
                break;
            }
            let Some(id) = leading_id(&name) else { continue };
            let source = source(&name);
            if known(id) || self.committed.contains(&id) {
                round.claimed.push(Claimed { id, source, text: None, name, stamp: None });
                continue;
            }
            let path = self.paths.taken.join(&name);
            match self.read(&path, &name) {
                Ok(Some((text, stamp))) => {
                    size += text.as_ref().map_or(0, String::len);
                    round.claimed.push(Claimed { id, source, text, name, stamp: Some(stamp) });
                }
                Ok(None) => written = true,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => round.problems.push(Problem { path, error }),
            }
        }
        written
    }

    /// None: a writer that had opened the file before it was claimed is not through.
    fn read(&mut self, path: &Path, name: &OsStr) -> io::Result<Option<(Option<String>, Stamp)>> {
        let (file, writers) = self.open(path)?;
        let stamp = Stamp::of(&file.metadata()?);
        if !self.is_whole(path, stamp, writers) {
            return Ok(None);
        }
        let text = text::read(&file, &self.paths.done.join(name))?;
        Ok(Some((text, stamp)))
    }

    fn open(&self, path: &Path) -> io::Result<(File, Writers)> {
        let file =
            File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
        let writers = if self.leases { lasting_writers(&file) } else { Writers::Unknown };
        Ok((file, writers))
    }

    fn prune(&self) {
        let mut names: Vec<OsString> =
            entries(&self.paths.done).filter(|name| leading_id(name).is_some()).collect();
        if let Some(surplus) = names.len().checked_sub(KEPT).filter(|surplus| *surplus > 0) {
            names.sort_unstable();
            for name in names.iter().take(surplus) {
                // One that cannot be removed is tried again after the next message.
                let _ = fs::remove_file(self.paths.done.join(name));
            }
        }
    }
}

fn entries(folder: &Path) -> impl Iterator<Item = OsString> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| entry.ok().map(|entry| entry.file_name()))
}

fn named(id: Ulid, name: &[u8]) -> OsString {
    let mut full = id.to_string().into_bytes();
    full.push(b'-');
    full.extend(name.iter().take(NAME));
    OsString::from_vec(full)
}

/// The name without its identity.
fn own_name(name: &OsStr) -> &[u8] {
    let rest = name.as_bytes().get(ulid::ULID_LEN..).unwrap_or_default();
    rest.strip_prefix(b"-").unwrap_or(b"say.md")
}

fn source(name: &OsStr) -> &'static str {
    match name.as_bytes().get(ulid::ULID_LEN..) {
        Some(b".md") => "say",
        Some(rest) if rest.strip_prefix(b"-") == Some(DROPPED_IN) => "file",
        _ => "inbox",
    }
}
