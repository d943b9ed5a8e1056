//! The tables, and how an older database becomes a newer one.

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension};

/// What takes a database of schema n to schema n + 1, in order. Never edit one that was released: append.
const MIGRATIONS: &[&str] = &[
    // 1. `events.line` is the JSON text as in events.jsonl. `state` has one row: the fold of all events up to `seq`,
    // of which those from `first` on are kept in `events`. `meta` says the schema once more, because a damaged
    // header must not pass for another version.
    "CREATE TABLE events (seq INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, line TEXT NOT NULL, crc INTEGER NOT NULL) STRICT;
     CREATE TABLE state (one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL, first INTEGER NOT NULL, doc TEXT NOT NULL, crc INTEGER NOT NULL) STRICT;
     CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;",
];

/// The schema that this version writes.
pub(crate) const CURRENT: u32 = MIGRATIONS.len() as u32;

/// An event's place as a column value: SQLite's integers are signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seq(pub(crate) u64);

impl ToSql for Seq {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let value =
            i64::try_from(self.0).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
        Ok(value.into())
    }
}

impl FromSql for Seq {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let value = value.as_i64()?;
        u64::try_from(value).map(Seq).map_err(|_| FromSqlError::OutOfRange(value))
    }
}

/// Where a database stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    /// Nothing is in it.
    Empty,
    /// A schema that this version knows.
    Known(u32),
    /// A later one.
    Newer(u32),
    /// The header and the tables contradict each other.
    Contradiction,
}

/// Looks where `conn` stands, without changing it.
pub(crate) fn version(conn: &Connection) -> rusqlite::Result<Version> {
    let header: u32 = conn.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let tables: u32 = conn.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))?;
    if tables == 0 {
        return Ok(if header == 0 { Version::Empty } else { Version::Contradiction });
    }
    let said: Option<String> =
        conn.query_row("SELECT value FROM meta WHERE key = 'schema'", [], |row| row.get(0)).optional()?;
    let said = said.and_then(|text| text.parse::<u32>().ok());
    Ok(match said {
        Some(version) if version != header || version == 0 => Version::Contradiction,
        Some(version) if version <= CURRENT => Version::Known(version),
        Some(version) => Version::Newer(version),
        None => Version::Contradiction,
    })
}

/// Brings `conn` from schema `from` to [`CURRENT`], in one transaction.
pub(crate) fn migrate(conn: &mut Connection, from: u32) -> rusqlite::Result<()> {
    if from >= CURRENT {
        return Ok(());
    }
    let tx = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    for step in &MIGRATIONS[from as usize..] {
        tx.execute_batch(step)?;
    }
    tx.execute(
        "INSERT INTO meta VALUES ('schema', ?1) ON CONFLICT (key) DO UPDATE SET value = ?1",
        [CURRENT.to_string()],
    )?;
    tx.pragma_update(None, "user_version", CURRENT)?;
    tx.commit()
}
