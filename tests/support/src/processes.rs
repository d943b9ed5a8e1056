//! Processes as `/proc` shows them.

use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};

/// A living process (zombies do not count).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its process id.
    pub pid: i32,
    /// The id of its parent.
    pub parent: i32,
    /// The program that it runs; empty when that cannot be seen.
    pub program: PathBuf,
    /// Its command line, words joined by blanks.
    pub command: String,
}

impl Process {
    /// Sends KILL; a process that is gone already is fine.
    pub fn kill(&self) {
        if let Some(pid) = Pid::from_raw(self.pid) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Every living process, except this one, whose environment holds `NAME=value`, or that runs `program` and has a
/// file open below `folder`. (The program's own helpers have an empty environment, but hold its locks.)
pub(crate) fn belonging(mark: (&str, &str), program: &Path, folder: &Path) -> Vec<Process> {
    let want = format!("{}={}", mark.0, mark.1).into_bytes();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("/proc can be read").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
        let proc = entry.path();
        let environment = std::fs::read(proc.join("environ")).unwrap_or_default();
        let runs = std::fs::read_link(proc.join("exe")).unwrap_or_default();
        let ours =
            environment.split(|b| *b == 0).any(|v| v == want) || runs == program && has_open(&proc, folder);
        if !ours || pid.unsigned_abs() == std::process::id() {
            continue;
        }
        if let Some((state, parent)) = state_and_parent(&proc)
            && state != 'Z'
            && state != 'X'
        {
            let words = std::fs::read(proc.join("cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&words).replace('\0', " ").trim().to_owned();
            found.push(Process { pid, parent, program: runs, command });
        }
    }
    found
}

/// Whether the process has a file below `folder` open.
fn has_open(proc: &Path, folder: &Path) -> bool {
    let descriptors = std::fs::read_dir(proc.join("fd")).into_iter().flatten().flatten();
    descriptors.filter_map(|d| std::fs::read_link(d.path()).ok()).any(|path| path.starts_with(folder))
}

fn state_and_parent(folder: &Path) -> Option<(char, i32)> {
    let mut fields = after_name(folder)?;
    let mut fields = fields.drain(..);
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// The fields of `/proc/PID/stat` after the name, which may itself hold blanks and parentheses.
fn after_name(folder: &Path) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(folder.join("stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

/// When a process started, in clock ticks since boot; with its pid it names one process for ever.
pub fn start_time(pid: i32) -> Option<u64> {
    after_name(Path::new(&format!("/proc/{pid}")))?.get(19)?.parse().ok()
}

/// A figure of `/proc/PID/status` in KiB, such as `VmRSS` or `VmHWM`.
pub fn status_kb(pid: i32, field: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|l| l.split(':').next() == Some(field))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
