//! `host.db`: what all sessions of the host know about accounts, what their calls cost, and what people were told.
//!
//! It lives in the home of Longhaul, not in a project, and may be used by any number of processes at once. What is in
//! it is learned again when it is lost: a damaged file is kept aside and begun anew. Made at the first write.

mod bookings;
mod ledger;
mod notifications;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, OpenFlags, Row, TransactionBehavior, params};
use rustix::fs::{FlockOperation, flock};

use super::connect;
use super::error::StoreError;
use super::paths::{aside, beside};
use crate::domain::host_accounts::{Change, Holder, HostAccounts, Lease, Record};
use crate::domain::state::Account;
use crate::process::ProcessId;

pub use bookings::{Found, Mark};
pub use ledger::{Caller, Known, Line};
pub use notifications::{Delivery, Entry, Letter, Post};

/// Its name.
pub const HOST_DB: &str = "host.db";

/// How long one process waits for another: each holds it for less than a millisecond, and a session that asks waits
/// for the answer.
const BUSY: Duration = Duration::from_secs(2);

/// What takes it from schema n to schema n + 1, in order. Never edit one that was released: append. Times are
/// RFC 3339, to the nanosecond: projects compare them with their own.
const MIGRATIONS: &[&str] = &[
    // 1. An account is out while `out` is 1: until `until`, or for a person when that is null. The one that may call
    // it after `until` has its lease.
    "CREATE TABLE accounts (id TEXT PRIMARY KEY, out INTEGER NOT NULL, until TEXT, why TEXT NOT NULL, times INTEGER NOT NULL,
       stated INTEGER NOT NULL, since TEXT NOT NULL) STRICT;
     CREATE TABLE leases (account TEXT PRIMARY KEY, pid INTEGER NOT NULL, start_time INTEGER NOT NULL, space TEXT NOT NULL,
       expiry TEXT NOT NULL, project TEXT NOT NULL) STRICT;",
    // 2. A notification for one channel. `target` is a digest of where it goes; `pid`, `start_time` and `space` are
    // of the process that is sending it.
    "CREATE TABLE notifications (id TEXT NOT NULL, channel TEXT NOT NULL, target TEXT NOT NULL, body TEXT NOT NULL,
       created TEXT NOT NULL, state TEXT NOT NULL, tries INTEGER NOT NULL, next TEXT, error TEXT, pid INTEGER NOT NULL,
       start_time INTEGER NOT NULL, space TEXT NOT NULL, PRIMARY KEY (id, channel)) STRICT;",
    // 3. What calls cost.
    ledger::SCHEMA,
];

/// The schema that this version writes.
const CURRENT: u32 = MIGRATIONS.len() as u32;

/// The open database.
#[derive(Debug)]
pub struct HostDb {
    path: PathBuf,
    conn: Connection,
    /// Device and inode of the file that is open: another one may have taken its name.
    file: (u64, u64),
    /// Where our pids mean what they mean.
    space: String,
    /// What the last look found, and the version of the data that it looked at.
    seen: Option<(i64, HostAccounts)>,
}

/// A damaged database that was replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replaced {
    /// Where it is now.
    pub kept_as: PathBuf,
    /// What was wrong.
    pub why: String,
}

// === impl HostDb ===

impl HostDb {
    /// Opens the database in `home`. None: there is none, and it is not to be made.
    ///
    /// One that is damaged is kept aside as `host.db.corrupt-<UTC time>`; the next one is empty.
    ///
    /// # Errors
    /// It cannot be made, read or written, or a newer version has written it.
    pub fn open(
        home: &Path,
        make: bool,
        now: Timestamp,
    ) -> Result<(Option<HostDb>, Option<Replaced>), StoreError> {
        let path = home.join(HOST_DB);
        if !make && !there(&path)? {
            return Ok((None, None));
        }
        match HostDb::open_at(&path, now) {
            Err(StoreError::Corrupt { .. }) => {}
            opened => return Ok((Some(opened?), None)),
        }
        // Others may be about to do the same: who comes second must not put away what the first has made.
        let lock = beside(&path, ".lock");
        let file = open_private(&lock).map_err(|error| StoreError::io(&lock, &error))?;
        flock(&file, FlockOperation::LockExclusive).map_err(|error| StoreError::io(&lock, &error.into()))?;
        let why = match HostDb::open_at(&path, now) {
            Err(StoreError::Corrupt { why, .. }) => why,
            opened => return Ok((Some(opened?), None)),
        };
        let kept_as = put_away(&path, now).map_err(|error| StoreError::io(&path, &error))?;
        let replaced = Some(Replaced { kept_as, why });
        let db = if make { Some(HostDb::open_at(&path, now)?) } else { None };
        Ok((db, replaced))
    }

    /// Opens the database in `home` if there is one, and replaces none.
    ///
    /// # Errors
    /// It cannot be read, or what is in it cannot be trusted.
    pub fn open_sound(home: &Path, now: Timestamp) -> Result<Option<HostDb>, StoreError> {
        let path = home.join(HOST_DB);
        if there(&path)? { HostDb::open_at(&path, now).map(Some) } else { Ok(None) }
    }

    fn open_at(path: &Path, now: Timestamp) -> Result<Self, StoreError> {
        let at = |error: &io::Error| StoreError::io(path, error);
        if let Some(folder) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| at(&error))?;
        }
        // SQLite gives its other files the mode of this one.
        let file = open_private(path).and_then(|file| file.metadata()).map_err(|error| at(&error))?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(path, flags)
            .map_err(|error| StoreError::sqlite_open(path, &error))?;
        let mut db = HostDb {
            path: path.to_owned(),
            conn,
            file: (file.dev(), file.ino()),
            space: space(),
            seen: None,
        };
        db.set_up().map_err(|error| db.error(&error))?;
        let version: u32 = db.number("user_version").map_err(|error| db.error(&error))?;
        if version > CURRENT {
            return Err(StoreError::Newer { path: path.to_owned(), found: version, supported: CURRENT });
        }
        db.look(now)?;
        Ok(db)
    }

    fn set_up(&mut self) -> rusqlite::Result<()> {
        self.conn.busy_timeout(BUSY)?;
        connect::set_wal(&self.conn)?;
        // A killed process loses nothing, and after a power cut limits are learned again.
        self.conn
            .execute_batch("PRAGMA synchronous=NORMAL; PRAGMA cache_size=-64; PRAGMA trusted_schema=OFF;")?;
        if self.number::<u32>("user_version")? < CURRENT {
            let tx = self.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let from: u32 = tx.query_row("PRAGMA user_version", [], |row| row.get(0))?;
            for step in MIGRATIONS.iter().skip(from as usize) {
                tx.execute_batch(step)?;
            }
            tx.pragma_update(None, "user_version", CURRENT.max(from))?;
            tx.commit()?;
        }
        Ok(())
    }

    /// The name of the database still means the file that is open.
    pub fn is_linked(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|now| (now.dev(), now.ino()) == self.file)
    }

    /// This process as others see it; none where `/proc` does not tell.
    pub fn holder(&self, project: &Path) -> Option<Holder> {
        let ProcessId { pid, start_time } = ProcessId::own()?;
        Some(Holder { pid, start_time, space: self.space.clone(), project: project.display().to_string() })
    }

    /// What is known now. Costs some microseconds while nothing changes and nobody has a lease.
    ///
    /// # Errors
    /// It cannot be read, or what is in it cannot be trusted.
    pub fn look(&mut self, now: Timestamp) -> Result<&HostAccounts, StoreError> {
        let version = self.number("data_version").map_err(|error| self.error(&error))?;
        // Leases end with their process or their time, which changes no data.
        let fresh =
            self.seen.take().filter(|(seen, accounts)| *seen == version && accounts.leases.is_empty());
        let accounts = match fresh {
            Some((_, accounts)) => accounts,
            None => read(&self.conn, &self.space, now).map_err(|error| self.error(&error))?,
        };
        Ok(&self.seen.insert((version, accounts)).1)
    }

    /// Changes it: `decide` is told what is known, and nobody changes that before what it asks for is written.
    ///
    /// # Errors
    /// It cannot be read or written; nothing is written then.
    pub fn change<T>(
        &mut self,
        now: Timestamp,
        decide: impl FnOnce(&HostAccounts) -> (T, Vec<Change>),
    ) -> Result<T, StoreError> {
        self.seen = None;
        let done = change(&mut self.conn, &self.space, now, decide);
        done.map_err(|error| self.error(&error))
    }

    /// Writes in one transaction, which nobody's reading or writing can get between.
    fn write<T>(
        &mut self,
        work: impl FnOnce(&rusqlite::Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let done = self.conn.transaction_with_behavior(TransactionBehavior::Immediate).and_then(|tx| {
            let done = work(&tx)?;
            tx.commit()?;
            Ok(done)
        });
        done.map_err(|error| self.error(&error))
    }

    fn number<T: rusqlite::types::FromSql>(&self, pragma: &str) -> rusqlite::Result<T> {
        self.conn.prepare_cached(&format!("PRAGMA {pragma}"))?.query_row([], |row| row.get(0))
    }

    fn error(&self, error: &rusqlite::Error) -> StoreError {
        match error {
            // A table or a column that is not there: this is no database of ours.
            rusqlite::Error::SqliteFailure(failure, Some(why)) if failure.extended_code == 1 => {
                StoreError::Corrupt { path: self.path.clone(), why: why.clone() }
            }
            _ => StoreError::sqlite(&self.path, &self.conn, error),
        }
    }
}

fn change<T>(
    conn: &mut Connection,
    space: &str,
    now: Timestamp,
    decide: impl FnOnce(&HostAccounts) -> (T, Vec<Change>),
) -> rusqlite::Result<T> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let accounts = read(&tx, space, now)?;
    let (told, changes) = decide(&accounts);
    for change in changes {
        match change {
            Change::Put(id, Record { account, stated, since }) => {
                let Account { until, out, why, times, .. } = account;
                tx.prepare_cached("INSERT OR REPLACE INTO accounts VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?
                    .execute(params![
                        id,
                        out,
                        until.map(|until| until.to_string()),
                        why,
                        times,
                        stated,
                        since.to_string()
                    ])?;
            }
            Change::Lease(id, Lease { holder, expiry }) => {
                tx.prepare_cached("INSERT OR REPLACE INTO leases VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?.execute(
                    params![
                        id,
                        holder.pid,
                        holder.start_time.cast_signed(),
                        holder.space,
                        expiry.to_string(),
                        holder.project
                    ],
                )?;
            }
            Change::Release(id) => {
                tx.prepare_cached("DELETE FROM leases WHERE account = ?1")?.execute([id])?;
            }
        }
    }
    tx.commit()?;
    Ok(told)
}

fn read(conn: &Connection, space: &str, now: Timestamp) -> rusqlite::Result<HostAccounts> {
    let records = rows(conn, "SELECT id, out, until, why, times, stated, since FROM accounts", record)?;
    let mut leases =
        rows(conn, "SELECT account, pid, start_time, space, expiry, project FROM leases", lease)?;
    leases.retain(|_, lease: &mut Lease| lease.expiry > now && lives(&lease.holder, space));
    Ok(HostAccounts { records, leases })
}

fn rows<T>(
    conn: &Connection,
    sql: &str,
    read: fn(&Row<'_>) -> rusqlite::Result<(String, T)>,
) -> rusqlite::Result<BTreeMap<String, T>> {
    conn.prepare_cached(sql)?.query_map([], read)?.collect()
}

fn record(row: &Row<'_>) -> rusqlite::Result<(String, Record)> {
    let since = time(row, 6)?;
    let until = row.get::<_, Option<String>>(2)?.map(|_| time(row, 2)).transpose()?;
    let account =
        Account { until, out: row.get(1)?, why: row.get(3)?, times: row.get(4)?, since: Some(since) };
    Ok((row.get(0)?, Record { account, stated: row.get(5)?, since }))
}

fn lease(row: &Row<'_>) -> rusqlite::Result<(String, Lease)> {
    let start_time: i64 = row.get(2)?;
    let holder = Holder {
        pid: row.get(1)?,
        start_time: start_time.cast_unsigned(),
        space: row.get(3)?,
        project: row.get(5)?,
    };
    Ok((row.get(0)?, Lease { holder, expiry: time(row, 4)? }))
}

fn time(row: &Row<'_>, column: usize) -> rusqlite::Result<Timestamp> {
    let text: String = row.get(column)?;
    text.parse().map_err(|error: jiff::Error| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, error.into())
    })
}

/// Who cannot be seen from here is believed to live, as long as the lease lasts.
fn lives(holder: &Holder, space: &str) -> bool {
    let process = ProcessId { pid: holder.pid, start_time: holder.start_time };
    holder.space != space || process.is_alive()
}

/// This boot and this pid namespace.
fn space() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let pids = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{} {}", boot.trim(), pids.display())
}

fn there(path: &Path) -> Result<bool, StoreError> {
    path.try_exists().map_err(|error| StoreError::io(path, &error))
}

fn open_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Renames it, and removes the log that belongs to it: SQLite would replay it into the next one.
fn put_away(path: &Path, now: Timestamp) -> io::Result<PathBuf> {
    let kept_as = aside(path, "corrupt", now);
    fs::rename(path, &kept_as)?;
    for suffix in ["-wal", "-shm"] {
        match fs::remove_file(beside(path, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(kept_as)
}

#[cfg(test)]
mod tests;
