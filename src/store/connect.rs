//! Opening SQLite: one way to write, three ways to read.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, config::DbConfig};

use super::Durability;
use super::paths::StorePaths;

/// How long a connection waits for another one. Writers hold the database for less than a millisecond; a reader
/// that opens while a crashed session's log is replayed may wait for all of it.
const BUSY: Duration = Duration::from_secs(5);

/// Opens of one WAL database at the same moment can fail in `journal_mode` in spite of the busy timeout.
const TRIES: u32 = 50;

/// Pages of the write-ahead log after which a commit moves them into the database itself (4 MiB). The store's
/// [`maintain`](super::Db::maintain) does that earlier, off the path of a commit.
const AUTO_CHECKPOINT: u32 = 1000;

/// Page cache, KiB. The whole database is smaller than this most of the time.
const CACHE_KIB: i64 = 512;

/// How a reader looks at the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Beside a session that writes.
    Live,
    /// Nobody writes, and everything is in the database file: no locks, no other file.
    Settled,
    /// Nobody writes, and a write-ahead log is left (a crash): both are read without any lock or index file, so
    /// that looking changes nothing.
    Left,
}

/// Opens an existing database for the session's writer.
pub(crate) fn writer(path: &Path, durability: Durability) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(BUSY)?;
    set_wal(&conn)?;
    let synchronous = match durability {
        Durability::Power => "FULL",
        Durability::Process => "NORMAL",
    };
    conn.execute_batch(&format!(
        "PRAGMA synchronous={synchronous}; PRAGMA wal_autocheckpoint={AUTO_CHECKPOINT}; \
         PRAGMA cache_size=-{CACHE_KIB}; PRAGMA temp_store=MEMORY; PRAGMA trusted_schema=OFF;"
    ))?;
    Ok(conn)
}

/// Switches to WAL. Where a file system cannot share memory SQLite stays with its rollback journal, which is slower
/// and as safe.
fn set_wal(conn: &Connection) -> rusqlite::Result<()> {
    let mut tries = 0;
    loop {
        match conn.query_row("PRAGMA journal_mode=WAL", [], |row| row.get::<_, String>(0)) {
            Err(rusqlite::Error::SqliteFailure(failure, _))
                if matches!(failure.code, ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
                    && tries < TRIES =>
            {
                tries += 1;
                std::thread::sleep(Duration::from_millis(2));
            }
            other => return other.map(drop),
        }
    }
}

/// Creates a database at `path`, which must not exist, for the first transaction. Nobody else knows
/// it yet, so it has no log and no locks.
pub(crate) fn scratch(path: &Path) -> rusqlite::Result<Connection> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(BUSY)?;
    conn.execute_batch("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA locking_mode=EXCLUSIVE;")?;
    Ok(conn)
}

/// How to look at the database now; `held`: a session holds the project's lock.
pub(crate) fn access(paths: &StorePaths, held: bool) -> Access {
    if held {
        return Access::Live;
    }
    match fs::metadata(paths.wal()) {
        Ok(wal) if wal.len() > 0 => Access::Left,
        _ => Access::Settled,
    }
}

/// Opens the database at `path` for reading only.
pub(crate) fn reader(path: &Path, access: Access) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = match access {
        Access::Live => Connection::open_with_flags(path, flags)?,
        Access::Settled => {
            Connection::open_with_flags(immutable_uri(path), flags | OpenFlags::SQLITE_OPEN_URI)?
        }
        // Without locks and in exclusive mode the log's index is built on the heap.
        Access::Left => Connection::open_with_flags_and_vfs(path, flags, c"unix-none")?,
    };
    conn.busy_timeout(BUSY)?;
    if access == Access::Left {
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        conn.query_row("PRAGMA locking_mode=EXCLUSIVE", [], |_| Ok(()))?;
    }
    conn.execute_batch(&format!(
        "PRAGMA query_only=ON; PRAGMA cache_size=-{CACHE_KIB}; PRAGMA temp_store=MEMORY; PRAGMA trusted_schema=OFF;"
    ))?;
    Ok(conn)
}

/// `path` as a `file:` URI with `immutable=1`.
fn immutable_uri(path: &Path) -> PathBuf {
    let mut uri = if path.is_absolute() { b"file://".to_vec() } else { b"file:".to_vec() };
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b'%' | b'?' | b'#' => uri.extend(format!("%{byte:02x}").bytes()),
            _ => uri.push(byte),
        }
    }
    uri.extend(b"?immutable=1");
    PathBuf::from(OsString::from_vec(uri))
}
