//! New database files. Each is made whole under a temporary name and then renamed, so that `state.db` is never
//! half there: an empty or short one is damage, not a start that was cut.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rusqlite::{Connection, params};
use tempfile::TempPath;

use super::Durability;
use super::codec::{EventLine, event_crc, state_crc};
use super::connect;
use super::error::StoreError;
use super::paths::StorePaths;
use super::schema::{self, Seq};
use super::status_file;
use crate::domain::state::State;

/// A database file that has no name of its own yet. Dropped, it is deleted.
pub(crate) struct Scratch {
    path: TempPath,
}

// === impl Scratch ===

impl Scratch {
    /// An empty file in the project's folder.
    pub(crate) fn new(paths: &StorePaths) -> Result<Self, StoreError> {
        let file = status_file::temporary(&paths.dir).map_err(|error| StoreError::io(&paths.dir, &error))?;
        Ok(Scratch { path: file.into_temp_path() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// A whole database of `state` and the `events` that lead up to it.
pub(crate) fn database(
    paths: &StorePaths,
    state: &State,
    events: &[EventLine],
) -> Result<Scratch, StoreError> {
    let scratch = Scratch::new(paths)?;
    fill(scratch.path(), state, events).map_err(|error| StoreError::sqlite_open(&paths.state_db, &error))?;
    Ok(scratch)
}

fn fill(path: &Path, state: &State, events: &[EventLine]) -> rusqlite::Result<()> {
    let mut conn = connect::scratch(path)?;
    schema::migrate(&mut conn, 0)?;
    let first = events.first().map_or(state.seq + 1, |event| event.seq);
    insert(&mut conn, state, first, events)?;
    connect::finish(conn)
}

fn insert(conn: &mut Connection, state: &State, first: u64, events: &[EventLine]) -> rusqlite::Result<()> {
    let doc = serde_json::to_string(state)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    let tx = conn.transaction()?;
    {
        let mut insert = tx.prepare("INSERT INTO events (seq, id, line, crc) VALUES (?1, ?2, ?3, ?4)")?;
        for event in events {
            let id = event.id.0.to_bytes();
            insert.execute(params![
                Seq(event.seq),
                id,
                event.text,
                event_crc(event.seq, &id, event.text.as_bytes())
            ])?;
        }
    }
    tx.execute(
        "INSERT INTO state (one, seq, first, doc, crc) VALUES (1, ?1, ?2, ?3, ?4)",
        params![Seq(state.seq), Seq(first), doc, state_crc(state.seq, first, doc.as_bytes())],
    )?;
    tx.commit()
}

/// Gives `scratch` the name of the state database. A log that belongs to another file goes first: SQLite would
/// replay it into this one.
pub(crate) fn install(
    scratch: Scratch,
    paths: &StorePaths,
    durability: Durability,
) -> Result<(), StoreError> {
    let at = |path: &Path, error: io::Error| StoreError::io(path, &error);
    if durability == Durability::Power {
        File::open(&scratch.path).and_then(|file| file.sync_all()).map_err(|e| at(&paths.state_db, e))?;
    }
    for path in [paths.wal(), paths.shm()] {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(&path, error)),
            _ => {}
        }
    }
    scratch.path.persist(&paths.state_db).map_err(|error| at(&paths.state_db, error.error))?;
    if durability == Durability::Power {
        File::open(&paths.dir).and_then(|dir| dir.sync_all()).map_err(|e| at(&paths.dir, e))?;
    }
    Ok(())
}
