//! What can go wrong with the state on disk, told apart by what can be done about it.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, ffi};

/// Why the state could not be read or written. Reads after "failed to"; says what to do where something can be done.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No space, no quota or no inodes left (`ENOSPC`, `EDQUOT`, `SQLITE_FULL`). Nothing was written.
    #[error("write {}: no space, quota or inodes left ({detail}); free some there and the session goes on", path.display())]
    Full {
        /// What could not be written.
        path: PathBuf,
        /// The system's words.
        detail: String,
    },
    /// Another connection held the database for longer than the busy timeout. Nothing was written; try again.
    #[error("use {}: it is busy ({detail}); find what holds it open with `fuser`, or try again", path.display())]
    Busy {
        /// The database.
        path: PathBuf,
        /// SQLite's words.
        detail: String,
    },
    /// What is stored cannot be trusted.
    #[error("trust {}: {why}; `longhaul run` keeps it aside and rebuilds the state from the journal", path.display())]
    Corrupt {
        /// The database.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Not allowed, or the file system is read-only.
    #[error("write {}: {detail}; make the folder and its files writable for this user", path.display())]
    ReadOnly {
        /// What could not be written.
        path: PathBuf,
        /// The system's words.
        detail: String,
    },
    /// Written by a later version of Longhaul.
    #[error("read {}: it has schema {found} and this version knows up to {supported}; use the newer longhaul that wrote it", path.display())]
    Newer {
        /// The database.
        path: PathBuf,
        /// Its schema.
        found: u32,
        /// The newest schema that this version knows.
        supported: u32,
    },
    /// The database cannot be trusted and nothing is left to rebuild the state from. Nothing was changed.
    #[error("recover {}: {why}, and there is no journal to rebuild the state from; `longhaul run --fresh` keeps the file aside and starts anew", path.display())]
    Unrecoverable {
        /// The database.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Anything else.
    #[error("use {}: {detail}", path.display())]
    Other {
        /// What it was about.
        path: PathBuf,
        /// The system's or SQLite's words.
        detail: String,
    },
}

// === impl StoreError ===

impl StoreError {
    /// From an error of the system about `path`.
    pub fn io(path: &Path, error: &io::Error) -> Self {
        let (path, detail) = (path.to_owned(), error.to_string());
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::Full { path, detail },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                StoreError::ReadOnly { path, detail }
            }
            _ => StoreError::Other { path, detail },
        }
    }

    /// From an error of SQLite on `conn`, whose database is `path`.
    pub fn sqlite(path: &Path, conn: &Connection, error: &rusqlite::Error) -> Self {
        StoreError::classify(path, system_errno(conn), error)
    }

    /// From an error of SQLite when opening `path`, before there is a connection to ask.
    pub fn sqlite_open(path: &Path, error: &rusqlite::Error) -> Self {
        StoreError::classify(path, io::Error::last_os_error().raw_os_error(), error)
    }

    fn classify(path: &Path, errno: Option<i32>, error: &rusqlite::Error) -> Self {
        let detail = error.to_string();
        let path = path.to_owned();
        let rusqlite::Error::SqliteFailure(failure, _) = error else {
            return StoreError::Corrupt { path, why: detail };
        };
        match failure.code {
            ErrorCode::DiskFull => StoreError::Full { path, detail },
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => StoreError::Busy { path, detail },
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => StoreError::Corrupt { path, why: detail },
            ErrorCode::ReadOnly | ErrorCode::PermissionDenied => StoreError::ReadOnly { path, detail },
            ErrorCode::CannotOpen | ErrorCode::SystemIoFailure => {
                if failure.extended_code == ffi::SQLITE_IOERR_SHORT_READ {
                    return StoreError::Corrupt { path, why: detail };
                }
                // Quotas and inodes reach us only through the errno of the failed call, when it is kept at all.
                let cause = errno.filter(|&errno| errno != 0).map(io::Error::from_raw_os_error);
                match cause.as_ref().map(|cause| StoreError::io(&path, cause)) {
                    Some(told @ (StoreError::Full { .. } | StoreError::ReadOnly { .. })) => told,
                    _ if nothing_left(&path) => StoreError::Full { path, detail },
                    _ => match cause {
                        Some(cause) => StoreError::Other { path, detail: format!("{detail} ({cause})") },
                        None => StoreError::Other { path, detail },
                    },
                }
            }
            _ => StoreError::Other { path, detail },
        }
    }

    /// The disk is full: with the ballast released the same commit may go through.
    pub fn is_full(&self) -> bool {
        matches!(self, StoreError::Full { .. })
    }
}

/// The file system of `path` has no free block or no free inode for us. One that does not count inodes says 0 of 0.
fn nothing_left(path: &Path) -> bool {
    let Some(stat) = path.parent().and_then(|dir| rustix::fs::statvfs(dir).ok()) else { return false };
    stat.f_bavail == 0 || (stat.f_files > 0 && stat.f_favail == 0)
}

/// The errno of the last failed system call of `conn`; SQLite folds quotas and inodes into one I/O error.
fn system_errno(conn: &Connection) -> Option<i32> {
    // SAFETY: the handle is valid for as long as `conn` is borrowed, and `sqlite3_system_errno` only reads a field
    // of it (https://sqlite.org/c3ref/system_errno.html).
    Some(unsafe { ffi::sqlite3_system_errno(conn.handle()) })
}
