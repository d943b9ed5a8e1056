//! Processes and their descendants as `/proc` shows them.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// A process that cannot be mistaken for a later one with the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its pid.
    pub pid: u32,
    /// When it started, in clock ticks since boot: field 22 of `/proc/<pid>/stat`, proc(5).
    pub start_time: u64,
}

/// What a tree of processes uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TreeUsage {
    /// User and system time of all, with that of children already waited for. Never goes down while the call lives.
    pub cpu: Duration,
    /// Resident memory of all; pages that are shared count once for each process.
    pub rss_bytes: u64,
    /// Processes alive.
    pub processes: u32,
}

/// The fields of `/proc/<pid>/stat` that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    /// `R`, `S`, `D`, `Z`, ...
    pub(super) state: u8,
    pub(super) parent: u32,
    pub(super) start_time: u64,
    /// utime and stime, in ticks.
    own_ticks: u64,
    /// cutime and cstime, in ticks.
    children_ticks: u64,
    rss_pages: u64,
}

// === impl ProcessId ===

impl ProcessId {
    /// The process that has this pid now.
    pub fn of(pid: u32) -> Option<Self> {
        Some(ProcessId { pid, start_time: Stat::read(pid)?.start_time })
    }

    /// This process.
    pub fn own() -> Option<Self> {
        ProcessId::of(std::process::id())
    }

    /// It still exists and is not a zombie.
    pub fn is_alive(self) -> bool {
        Stat::read(self.pid)
            .is_some_and(|s| s.start_time == self.start_time && s.state != b'Z' && s.state != b'X')
    }

    /// A handle to exactly this process; `None` when it is gone or only a later one has the pid.
    pub(super) fn open(self) -> Option<OwnedFd> {
        let fd = pidfd_open(raw_pid(self.pid)?, PidfdFlags::empty()).ok()?;
        // Looked at after opening: if the pid is this process's now, the handle cannot be of a later one.
        (Stat::read(self.pid)?.start_time == self.start_time).then_some(fd)
    }
}

// === impl Stat ===

impl Stat {
    pub(super) fn read(pid: u32) -> Option<Stat> {
        Stat::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The name of the program stands in brackets and may itself hold brackets, blanks and line ends.
    fn parse(text: &[u8]) -> Option<Stat> {
        let after_name = memchr::memrchr(b')', text)? + 1;
        let fields = std::str::from_utf8(text.get(after_name..)?).ok()?;
        let mut fields = fields.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let parent = fields.next()?.parse().ok()?;
        // Field 3 was the state. From here: field 5 is 0.
        let rest: Vec<&str> = fields.take(20).collect();
        let number = |field: usize| rest.get(field - 5)?.parse::<u64>().ok();
        // cutime and cstime are signed in the kernel's format.
        let children = number(16).unwrap_or(0) + number(17).unwrap_or(0);
        Some(Stat {
            state,
            parent,
            start_time: number(22)?,
            own_ticks: number(14)? + number(15)?,
            children_ticks: children,
            rss_pages: number(24).unwrap_or(0),
        })
    }
}

// === the tree ===

/// A process found below another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) pid: u32,
    /// Whose list of children it stood in.
    pub(super) parent: u32,
}

/// Every process below `root`, parents before children, zombies included. A snapshot taken while they run: whoever
/// must miss nobody looks again until there is nothing left to find.
pub(super) fn descendants(root: u32) -> Vec<Member> {
    let mut found = Vec::new();
    let mut next = 0;
    let mut parent = root;
    loop {
        let Ok(children) = children(parent) else { return descendants_by_scan(root) };
        found.extend(children.into_iter().map(|pid| Member { pid, parent }));
        let Some(member) = found.get(next) else { return found };
        parent = member.pid;
        next += 1;
    }
}

/// The children of `pid`, zombies included.
pub(super) fn children_of(pid: u32) -> Vec<Member> {
    match children(pid) {
        Ok(pids) => pids.into_iter().map(|child| Member { pid: child, parent: pid }).collect(),
        Err(_) => descendants_by_scan(pid).into_iter().filter(|m| m.parent == pid).collect(),
    }
}

/// The children of all threads of `pid`, from `/proc/<pid>/task/*/children`. Gone: none.
/// An error means that this kernel has no such file.
fn children(pid: u32) -> io::Result<Vec<u32>> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Ok(Vec::new()) };
    let mut pids = Vec::new();
    for task in tasks.flatten() {
        let path = task.path();
        match fs::read_to_string(path.join("children")) {
            Ok(list) => pids.extend(list.split_ascii_whitespace().filter_map(|p| p.parse::<u32>().ok())),
            Err(e) if e.kind() == io::ErrorKind::NotFound && path.exists() => return Err(e),
            // The thread has ended meanwhile.
            Err(_) => {}
        }
    }
    Ok(pids)
}

/// The same from the parents of all processes, for kernels without CONFIG_PROC_CHILDREN.
fn descendants_by_scan(root: u32) -> Vec<Member> {
    let all: Vec<Member> =
        all_pids().filter_map(|pid| Some(Member { pid, parent: Stat::read(pid)?.parent })).collect();
    let mut found: Vec<Member> = all.iter().filter(|m| m.parent == root).copied().collect();
    let mut next = 0;
    while let Some(parent) = found.get(next).map(|m| m.pid) {
        found.extend(all.iter().filter(|m| m.parent == parent).copied());
        next += 1;
    }
    found
}

/// Every pid in `/proc`.
pub(super) fn all_pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok())
}

/// Signals a member of the tree below `root`, which must be a subreaper, and nobody else: the handle is taken first
/// and used only if the pid is in that tree afterwards.
pub(super) fn signal_member(root: u32, member: Member, signal: Signal) -> bool {
    let Some(pid) = raw_pid(member.pid) else { return false };
    let handle = pidfd_open(pid, PidfdFlags::empty());
    if !Stat::read(member.pid).is_some_and(|s| s.parent == member.parent || s.parent == root) {
        return false;
    }
    match handle {
        Ok(handle) => pidfd_send_signal(handle, signal).is_ok(),
        // A sandbox that does not let us: between the look and the signal the pid would have to be reused.
        Err(Errno::NOSYS | Errno::PERM) => kill_process(pid, signal).is_ok(),
        Err(_) => false,
    }
}

pub(super) fn raw_pid(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

impl TreeUsage {
    /// Of everything below `root`; `root` itself only with what its ended children used. Reads a few files of
    /// `/proc` for each process: some 50 µs apiece.
    pub(super) fn below(root: u32) -> TreeUsage {
        let mut ticks = Stat::read(root).map_or(0, |s| s.children_ticks);
        let mut pages = 0;
        let mut processes = 0;
        for stat in descendants(root).into_iter().filter_map(|m| Stat::read(m.pid)) {
            ticks += stat.own_ticks + stat.children_ticks;
            pages += stat.rss_pages;
            processes += u32::from(stat.state != b'Z');
        }
        let per_second = rustix::param::clock_ticks_per_second().max(1);
        TreeUsage {
            cpu: Duration::from_micros(ticks.saturating_mul(1_000_000) / per_second),
            rss_bytes: pages * rustix::param::page_size() as u64,
            processes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_read_past_any_program_name() {
        let line = b"42 (a) b (c\n)) S 7 42 42 0 -1 4194304 1 2 3 4 10 20 30 40 20 0 1 0 9999 5000 17 0";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.state, stat.parent, stat.start_time), (b'S', 7, 9999));
        assert_eq!((stat.own_ticks, stat.children_ticks, stat.rss_pages), (30, 70, 17));
        assert_eq!(Stat::parse(b"42 (x"), None);
        assert_eq!(Stat::parse(b""), None);
    }

    #[test]
    fn a_reused_pid_is_another_process() {
        let own = ProcessId::own().unwrap();
        assert!(own.is_alive());
        let earlier = ProcessId { start_time: own.start_time - 1, ..own };
        assert!(!earlier.is_alive());
        assert!(earlier.open().is_none());
    }
}
