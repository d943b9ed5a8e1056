//! Finding and ending what a dead run left behind: by record or by environment, never by name.

use std::ffi::OsString;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Signal, pidfd_send_signal};

use super::tree::{self, ProcessId, Stat};

/// How long to wait after KILL for what the kernel may hold.
const AFTER_KILL: Duration = Duration::from_secs(2);

/// How often to look for processes that have been started meanwhile.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Whom to end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Targets {
    /// Recorded processes. A later process with the same pid is never touched.
    pub processes: Vec<ProcessId>,
    /// `KEY=VALUE` entries. A process is a target when its environment has **all** of them; with none, nobody is.
    /// Name the dead session among them: the project alone may also stand in a person's own shell.
    pub markers: Vec<OsString>,
}

/// A process that was found and ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swept {
    /// Which one.
    pub id: ProcessId,
    /// How it was found.
    pub found_by: FoundBy,
    /// Its command line, for the journal; at most 200 characters.
    pub command: String,
    /// It is gone. `false`: not even KILL has ended it yet.
    pub gone: bool,
}

/// How a left-over process was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoundBy {
    /// Its pid and start time had been recorded.
    Record,
    /// Its environment has our markers.
    Marker,
    /// It descends from one of those.
    Descent,
}

/// A target that is held by its handle, so that its pid cannot come to mean another process.
struct Held {
    handle: OwnedFd,
    swept: Swept,
}

/// Ends every target with its descendants: TERM to all, KILL to those left after `grace`. Returns whom it found.
///
/// Never this process or one of its ancestors (an agent may run us); keepers have no environment and so no markers.
/// Blocks up to `grace` and two seconds: for a blocking thread.
pub fn sweep(targets: &Targets, grace: Duration) -> Vec<Swept> {
    let mut hunt = Hunt { targets, protected: own_line(), held: Vec::new() };
    if !grace.is_zero() {
        hunt.round(Signal::TERM, grace);
    }
    hunt.round(Signal::KILL, AFTER_KILL);
    hunt.held.into_iter().map(|h| h.swept).collect()
}

/// A sweep under way.
struct Hunt<'a> {
    targets: &'a Targets,
    /// Never to be touched.
    protected: Vec<u32>,
    /// Found so far.
    held: Vec<Held>,
}

// === impl Hunt ===

impl Hunt<'_> {
    /// Signals everybody, also who turns up meanwhile, until all are gone or the time is over.
    fn round(&mut self, signal: Signal, limit: Duration) {
        let deadline = Instant::now() + limit;
        for held in self.held.iter().filter(|h| !h.swept.gone) {
            held.signal(signal);
        }
        loop {
            let new = self.find_new();
            let none_new = new.is_empty();
            for held in &new {
                held.signal(signal);
            }
            self.held.extend(new);
            let now = Instant::now();
            if (none_new && self.held.iter().all(|h| h.swept.gone)) || now >= deadline {
                return;
            }
            self.wait(deadline.min(now + LOOK_AGAIN));
        }
    }

    /// Targets and their descendants that are not held yet.
    fn find_new(&self) -> Vec<Held> {
        let mut new: Vec<Held> = Vec::new();
        let records = self.targets.processes.iter().map(|id| (*id, FoundBy::Record));
        let marked = self.marked().into_iter().map(|id| (id, FoundBy::Marker));
        for (id, found_by) in records.chain(marked) {
            self.hold(&mut new, id, found_by);
        }
        let parents: Vec<u32> =
            self.held.iter().chain(&new).filter(|h| !h.swept.gone).map(|h| h.swept.id.pid).collect();
        for member in parents.into_iter().flat_map(tree::descendants) {
            if let Some(id) = ProcessId::of(member.pid) {
                self.hold(&mut new, id, FoundBy::Descent);
            }
        }
        new
    }

    fn hold(&self, new: &mut Vec<Held>, id: ProcessId, found_by: FoundBy) {
        let known = self.held.iter().chain(new.iter()).any(|h| h.swept.id == id);
        if known || self.protected.contains(&id.pid) || !id.is_alive() {
            return;
        }
        if let Some(handle) = id.open() {
            new.push(Held { handle, swept: Swept { id, found_by, command: command(id.pid), gone: false } });
        }
    }

    /// Processes whose environment has all markers. Those of other users cannot be read and are not ours.
    fn marked(&self) -> Vec<ProcessId> {
        let markers = &self.targets.markers;
        if markers.is_empty() {
            return Vec::new();
        }
        let has_all = |pid: &u32| {
            let Ok(environ) = fs::read(format!("/proc/{pid}/environ")) else { return false };
            markers.iter().all(|m| environ.split(|b| *b == 0).any(|entry| entry == m.as_bytes()))
        };
        tree::all_pids().filter(has_all).filter_map(ProcessId::of).collect()
    }

    /// Waits until all are gone or it is time to look again.
    fn wait(&mut self, until: Instant) {
        loop {
            let mut alive: Vec<&mut Held> = self.held.iter_mut().filter(|h| !h.swept.gone).collect();
            let left = until.saturating_duration_since(Instant::now());
            let Ok(limit) = left.try_into() else { return };
            if alive.is_empty() || left.is_zero() {
                return;
            }
            let mut fds: Vec<PollFd<'_>> =
                alive.iter().map(|h| PollFd::new(&h.handle, PollFlags::IN)).collect();
            // Interrupted: the round goes on.
            let _ = rustix::event::poll(&mut fds, Some(&limit));
            // A handle is readable once its process has ended.
            let ended: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            for (held, ended) in alive.iter_mut().zip(ended) {
                held.swept.gone = ended;
            }
        }
    }
}

// === impl Held ===

impl Held {
    fn signal(&self, signal: Signal) {
        // Fails only when it has ended meanwhile.
        let _ = pidfd_send_signal(&self.handle, signal);
    }
}

/// This process and its ancestors.
fn own_line() -> Vec<u32> {
    let mut line = vec![std::process::id()];
    let mut pid = std::process::id();
    while let Some(stat) = Stat::read(pid) {
        pid = stat.parent;
        if pid == 0 || line.contains(&pid) {
            break;
        }
        line.push(pid);
    }
    line
}

fn command(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line).replace('\0', " ");
    line.trim_end().chars().take(200).collect()
}
