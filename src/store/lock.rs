//! At most one session runs in a project: an advisory lock of the system on `.longhaul/lock`, and one on the project
//! folder itself, which holds when an agent has deleted `.longhaul/`.
//!
//! The file's content is only for messages; nothing is decided by it, so a dead holder's never blocks.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::link::FileId;
use super::paths::StorePaths;
use crate::process::ProcessId;

/// How often the lock is tried before it counts as held: who [looks](is_held) has it for some microseconds, and a
/// session that has just taken it gets the time to write who it is.
const TRIES: u32 = 50;

/// How long the lock of a process is waited for that is dead: one that it was just starting has it until it becomes
/// another program.
const DYING: Duration = Duration::from_secs(2);

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(1);

/// Longest content that is read.
const MAX_CONTENT: u64 = 4096;

/// The lock of a running session. Dropped, it is free; the file stays.
#[derive(Debug)]
pub struct ProjectLock {
    paths: StorePaths,
    file: File,
    holder: Holder,
    /// None where the file system cannot lock folders.
    _folder: Option<File>,
}

/// Who holds a lock, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its process.
    pub pid: u32,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Its command line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
    /// Its version of Longhaul.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
}

/// Another session runs here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Who it is, where that can be found out.
    pub holder: Option<Holder>,
}

/// Why the lock could not be had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another session runs here.
    #[error("lock the project: another session already runs here{0}")]
    Held(Held),
    /// The lock file cannot be made or locked.
    #[error("lock {}: {error}", path.display())]
    Io {
        /// The lock file.
        path: PathBuf,
        /// The system's words.
        error: io::Error,
    },
}

// === impl ProjectLock ===

impl ProjectLock {
    /// Takes the lock for `holder`, or says who has it. Blocks for two seconds at most, where a dead process's is in
    /// the way.
    pub fn acquire(paths: &StorePaths, holder: &Holder) -> Result<Self, LockError> {
        let deadline = Instant::now() + DYING;
        loop {
            match Self::try_acquire(paths, holder) {
                Err(LockError::Held(held)) if held.by_the_dead() && Instant::now() < deadline => {
                    std::thread::sleep(PAUSE);
                }
                done => return done,
            }
        }
    }

    fn try_acquire(paths: &StorePaths, holder: &Holder) -> Result<Self, LockError> {
        let io = |error| LockError::Io { path: paths.lock.clone(), error };
        fs::create_dir_all(&paths.dir).map_err(io)?;
        let mut file = match lock_file(paths) {
            Ok(file) => file,
            Err(TryLockError::WouldBlock) => {
                return Err(LockError::Held(Held { holder: read_holder(paths) }));
            }
            Err(TryLockError::Error(error)) => return Err(io(error)),
        };
        let folder = match File::open(&paths.project) {
            Ok(folder) => lock_folder(folder)?,
            // A folder that may be entered and not listed.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
            Err(error) => return Err(io(error)),
        };
        write_holder(&mut file, holder).map_err(io)?;
        Ok(ProjectLock { paths: paths.clone(), file, holder: holder.clone(), _folder: folder })
    }

    /// Checks that the lock file is still to be found under its name (one `stat`), and makes it anew if it is not.
    /// What was restored; `None` when all was well. While it is gone the lock on the project folder holds.
    pub fn ensure_linked(&mut self) -> io::Result<Option<&'static str>> {
        if same_file(&self.file, &self.paths)? {
            return Ok(None);
        }
        fs::create_dir_all(&self.paths.dir)?;
        let mut file = lock_file(&self.paths).map_err(io::Error::from)?;
        write_holder(&mut file, &self.holder)?;
        self.file = file;
        Ok(Some("lock"))
    }
}

/// Who holds the project's lock now; `None` when nobody does, or when it cannot be told who. Changes nothing.
pub fn holder(paths: &StorePaths) -> Option<Holder> {
    if is_held(paths) { read_holder(paths) } else { None }
}

/// Somebody holds the project's lock now. Changes nothing.
pub fn is_held(paths: &StorePaths) -> bool {
    let Ok(file) = File::open(&paths.lock) else { return false };
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

// === impl Held, Holder ===

impl Holder {
    /// A process of which nothing else is known.
    fn unknown(pid: u32) -> Self {
        Holder { pid, since: None, command: String::new(), version: String::new() }
    }
}

impl Held {
    /// Who took it is no more, as far as can be seen from here.
    fn by_the_dead(&self) -> bool {
        let alive = |holder: &Holder| ProcessId::of(holder.pid).is_some_and(ProcessId::is_alive);
        self.holder.as_ref().is_some_and(|holder| !alive(holder))
    }
}

impl std::fmt::Display for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Some(holder) = &self.holder else { return Ok(()) };
        write!(f, " (process {}", holder.pid)?;
        if let Some(since) = holder.since {
            write!(f, ", since {since}")?;
        }
        if !holder.command.is_empty() {
            write!(f, ", `{}`", holder.command)?;
        }
        f.write_str(")")
    }
}

// === taking it ===

/// Locks the file that is to be found under the name of the lock when this returns.
fn lock_file(paths: &StorePaths) -> Result<File, TryLockError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    for _ in 0..TRIES {
        let file = options.open(&paths.lock).map_err(TryLockError::Error)?;
        match file.try_lock() {
            // Between opening and locking it may have been deleted, and made anew by another session.
            Ok(()) => match same_file(&file, paths) {
                Ok(true) => return Ok(file),
                Ok(false) => {}
                Err(error) => return Err(TryLockError::Error(error)),
            },
            Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            Err(error) => return Err(error),
        }
    }
    Err(TryLockError::WouldBlock)
}

/// Locks the project folder; `None` where the file system does not lock folders (NFS).
fn lock_folder(folder: File) -> Result<Option<File>, LockError> {
    match folder.try_lock() {
        Ok(()) => Ok(Some(folder)),
        // A session whose `.longhaul/` was deleted under it: what it wrote is gone too.
        Err(TryLockError::WouldBlock) => {
            Err(LockError::Held(Held { holder: locker(&folder).map(Holder::unknown) }))
        }
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

/// `file` is what the name of the lock leads to.
fn same_file(file: &File, paths: &StorePaths) -> io::Result<bool> {
    Ok(FileId::of(&paths.lock)? == Some(FileId::from(&file.metadata()?)))
}

// === who has it ===

/// Who the file says it is; where that cannot be read, the process that the system says.
fn read_holder(paths: &StorePaths) -> Option<Holder> {
    let mut file = File::open(&paths.lock).ok()?;
    let mut content = Vec::new();
    // Anything may be in there; what cannot be read says nothing.
    let _ = (&mut file).take(MAX_CONTENT).read_to_end(&mut content);
    let line = content.split(|&byte| byte == b'\n').next().unwrap_or_default();
    serde_json::from_slice(line).ok().or_else(|| locker(&file).map(Holder::unknown))
}

/// The process that holds `file` exclusively, from `/proc/locks`: `1: FLOCK ADVISORY WRITE 1234 08:02:5678 0 EOF`.
/// The kernel stops all lockers to list them, which takes some 20 ms.
fn locker(file: &File) -> Option<u32> {
    let meta = file.metadata().ok()?;
    let (major, minor) = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
    let place = format!("{major:02x}:{minor:02x}:{}", meta.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let words: [&str; 5] = std::array::from_fn(|_| words.next().unwrap_or(""));
        match words {
            ["FLOCK", _, "WRITE", pid, at] if at == place => pid.parse().ok().filter(|&pid| pid != 0),
            _ => None,
        }
    })
}

/// Writes who holds it. The old content is overwritten and then cut, so that it is never empty in between.
fn write_holder(file: &mut File, holder: &Holder) -> io::Result<()> {
    let mut content = serde_json::to_vec(holder)?;
    content.push(b'\n');
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&content)?;
    file.set_len(content.len() as u64)
}

#[cfg(test)]
mod tests;
