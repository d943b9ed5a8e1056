//! Opening SQLite: one way to write, three ways to read.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, config::DbConfig};

use super::Durability;
use super::check::distrust;
use super::error::StoreError;
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

/// Opens an existing database for the session's writer. Until [`leave_as_it_is`] is
/// turned off, closing it does not tidy it up: it may turn out to be damaged.
pub(crate) fn writer(path: &Path, durability: Durability) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).map_err(|e| StoreError::sqlite_open(path, &e))?;
    set_up_writer(&conn, durability).map_err(|error| distrust(path, &conn, &error))?;
    Ok(conn)
}

fn set_up_writer(conn: &Connection, durability: Durability) -> rusqlite::Result<()> {
    conn.busy_timeout(BUSY)?;
    leave_as_it_is(conn, true)?;
    set_wal(conn)?;
    let synchronous = match durability {
        Durability::Power => "FULL",
        Durability::Process => "NORMAL",
    };
    conn.execute_batch(&format!(
        "PRAGMA synchronous={synchronous}; PRAGMA wal_autocheckpoint={AUTO_CHECKPOINT}; \
         PRAGMA cache_size=-{CACHE_KIB}; PRAGMA temp_store=MEMORY; PRAGMA trusted_schema=OFF;"
    ))
}

/// With `on`, closing `conn` neither moves the log into the database nor deletes any file.
pub(crate) fn leave_as_it_is(conn: &Connection, on: bool) -> rusqlite::Result<()> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, on).map(drop)
}

/// Switches to WAL. Where a file system cannot share memory SQLite stays with its rollback journal, which is slower
/// and as safe.
pub(crate) fn set_wal(conn: &Connection) -> rusqlite::Result<()> {
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

/// Opens the empty file at `path` as a new database. Nobody else knows it yet, so it needs no journal and no syncs.
pub(crate) fn scratch(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.execute_batch("PRAGMA locking_mode=EXCLUSIVE; PRAGMA synchronous=OFF; PRAGMA journal_mode=OFF;")?;
    Ok(conn)
}

/// Closes a database made by [`scratch`]. The switch to WAL is made here, where it costs no sync.
pub(crate) fn finish(conn: Connection) -> rusqlite::Result<()> {
    set_wal(&conn)?;
    conn.close().map_err(|(_, error)| error)
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
pub(crate) fn reader(path: &Path, access: Access) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = match access {
        Access::Live => Connection::open_with_flags(path, flags),
        Access::Settled => {
            Connection::open_with_flags(immutable_uri(path), flags | OpenFlags::SQLITE_OPEN_URI)
        }
        // Without locks and in exclusive mode the log's index is built on the heap.
        Access::Left => Connection::open_with_flags_and_vfs(path, flags, c"unix-none"),
    };
    let conn = conn.map_err(|error| StoreError::sqlite_open(path, &error))?;
    set_up_reader(&conn, access).map_err(|error| distrust(path, &conn, &error))?;
    Ok(conn)
}

fn set_up_reader(conn: &Connection, access: Access) -> rusqlite::Result<()> {
    conn.busy_timeout(BUSY)?;
    if access == Access::Left {
        leave_as_it_is(conn, true)?;
        conn.query_row("PRAGMA locking_mode=EXCLUSIVE", [], |_| Ok(()))?;
    }
    conn.execute_batch(&format!(
        "PRAGMA query_only=ON; PRAGMA cache_size=-{CACHE_KIB}; PRAGMA temp_store=MEMORY; PRAGMA trusted_schema=OFF;"
    ))
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
