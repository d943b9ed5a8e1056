//! Where things are in a project's `.longhaul/`. See "Files of a project" in the design.

use std::path::{Path, PathBuf};

use jiff::Timestamp;

/// The folder in the project that belongs to the supervisor.
pub const FOLDER: &str = ".longhaul";

/// Paths of one project. Cheap to make, holds no open file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorePaths {
    /// The project's folder.
    pub project: PathBuf,
    /// `.longhaul`.
    pub dir: PathBuf,
    /// The truth: SQLite.
    pub state_db: PathBuf,
    /// The segment of the journal that is being written.
    pub events: PathBuf,
    /// Finished segments of the journal, beside other logs.
    pub logs: PathBuf,
    /// Lock of the running session.
    pub lock: PathBuf,
    /// Space that is kept for the last commits on a full disk.
    pub ballast: PathBuf,
    /// Small projection for scripts.
    pub status: PathBuf,
    /// What the supervisor says to scripts.
    pub signals: PathBuf,
}

// === impl StorePaths ===

impl StorePaths {
    /// The paths of the project in `project`.
    pub fn new(project: &Path) -> Self {
        let dir = project.join(FOLDER);
        StorePaths {
            project: project.to_owned(),
            state_db: dir.join("state.db"),
            events: dir.join("events.jsonl"),
            logs: dir.join("logs"),
            lock: dir.join("lock"),
            ballast: dir.join("ballast"),
            status: dir.join("status.json"),
            signals: dir.join("signals"),
            dir,
        }
    }

    /// SQLite's write-ahead log of `state.db`.
    pub fn wal(&self) -> PathBuf {
        beside(&self.state_db, "-wal")
    }

    /// SQLite's shared memory of `state.db`.
    pub fn shm(&self) -> PathBuf {
        beside(&self.state_db, "-shm")
    }

    /// The next segment of the journal while the old one is being moved away.
    pub fn next_events(&self) -> PathBuf {
        beside(&self.events, ".next")
    }
}

/// `path` with `suffix` at the end of its name.
pub fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// A name beside `path` that is not in use: `path.label-<UTC time>`, with a number when that is taken.
pub fn aside(path: &Path, label: &str, now: Timestamp) -> PathBuf {
    let stamp = now.strftime("%Y%m%dT%H%M%SZ");
    let base = beside(path, &format!(".{label}-{stamp}"));
    let mut free = base.clone();
    let mut n = 1;
    while free.symlink_metadata().is_ok() {
        n += 1;
        free = beside(&base, &format!("-{n}"));
    }
    free
}
