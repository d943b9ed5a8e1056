//! Whether a database can be trusted, and what it says.

use std::path::Path;

use rusqlite::{Connection, ErrorCode, Row};

use super::codec::{event_crc, state_crc};
use super::error::StoreError;
use super::schema::{self, Seq, Version};
use crate::domain::state::State;

/// What a sound database holds beside its events.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The fold of all events.
    pub(crate) state: State,
    /// The oldest event that is kept; `state.seq + 1` when none is.
    pub(crate) first: u64,
}

/// Reads the state, after checking every page, every row and every checksum. [`StoreError::Corrupt`] says what does
/// not fit; nothing is repaired.
pub(crate) fn load(conn: &Connection, path: &Path) -> Result<Loaded, StoreError> {
    let corrupt = |why: String| StoreError::Corrupt { path: path.to_owned(), why };
    let sqlite = |error: rusqlite::Error| distrust(path, conn, &error);

    // One moment for all of it: the job of an actor that died, or a session beside a reader, may still commit.
    let _snapshot = conn.unchecked_transaction().map_err(sqlite)?;
    match schema::version(conn).map_err(sqlite)? {
        Version::Known(_) => {}
        Version::Newer(found) => {
            return Err(StoreError::Newer { path: path.to_owned(), found, supported: schema::CURRENT });
        }
        Version::Empty => return Err(corrupt("it is empty".into())),
        Version::Contradiction => {
            return Err(corrupt("its header and its tables contradict each other".into()));
        }
    }
    let verdict: String =
        conn.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).map_err(sqlite)?;
    if verdict != "ok" {
        return Err(corrupt(verdict));
    }
    let stored = conn.query_row("SELECT seq, first, doc, crc FROM state", [], stored_state);
    let (state, first) = match stored {
        Ok(found) => found.map_err(|why| corrupt(why.into()))?,
        Err(rusqlite::Error::QueryReturnedNoRows) => return Err(corrupt("the state is missing".into())),
        Err(error) => return Err(sqlite(error)),
    };
    check_events(conn, first, state.seq).map_err(sqlite)?.map_err(corrupt)?;
    Ok(Loaded { state, first })
}

/// The row of `state` and the oldest event kept.
pub(crate) fn stored_state(row: &Row<'_>) -> rusqlite::Result<Result<(State, u64), &'static str>> {
    let (Seq(seq), Seq(first)) = (row.get(0)?, row.get(1)?);
    let doc = row.get_ref(2)?.as_bytes()?;
    if state_crc(seq, first, doc) != row.get::<_, u32>(3)? {
        return Ok(Err("the state does not match its checksum"));
    }
    Ok(match serde_json::from_slice::<State>(doc) {
        Ok(state) if state.seq == seq => Ok((state, first)),
        Ok(_) => Err("the state is of another event than it says"),
        Err(_) => Err("the state cannot be parsed"),
    })
}

/// The events are exactly `first..=last`, and each matches its checksum.
fn check_events(conn: &Connection, first: u64, last: u64) -> rusqlite::Result<Result<(), String>> {
    let mut statement = conn.prepare("SELECT seq, id, line, crc FROM events ORDER BY seq")?;
    let mut rows = statement.query([])?;
    let mut expected = first;
    while let Some(row) = rows.next()? {
        let Seq(seq) = row.get(0)?;
        if seq != expected {
            return Ok(Err(format!("event {seq} is where event {expected} should be")));
        }
        let (id, line) = (row.get_ref(1)?.as_blob()?, row.get_ref(2)?.as_bytes()?);
        if event_crc(seq, id, line) != row.get::<_, u32>(3)? {
            return Ok(Err(format!("event {seq} does not match its checksum")));
        }
        expected += 1;
    }
    if expected != last.saturating_add(1) {
        return Ok(Err(format!("events {expected} to {last} are missing")));
    }
    Ok(Ok(()))
}

/// While a database is being checked, tables that are not there or have another shape are damage too; what the
/// system refuses is not.
pub(crate) fn distrust(path: &Path, conn: &Connection, error: &rusqlite::Error) -> StoreError {
    let refused = matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::DiskFull
                | ErrorCode::ReadOnly
                | ErrorCode::PermissionDenied
                | ErrorCode::CannotOpen
                | ErrorCode::SystemIoFailure
                | ErrorCode::OutOfMemory
        )
    );
    if refused {
        StoreError::sqlite(path, conn, error)
    } else {
        StoreError::Corrupt { path: path.to_owned(), why: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::store::connect::{self, Access};
    use crate::store::testing::{Author, Project};

    #[test]
    fn a_check_beside_commits_is_of_one_moment() {
        let project = Project::new();
        let (mut db, _) = project.start();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let checker = scope.spawn(|| {
                let conn = connect::reader(&project.paths.state_db, Access::Live).unwrap();
                let mut last = 0;
                for _ in 0..160 {
                    let loaded = load(&conn, &project.paths.state_db).unwrap();
                    assert!(loaded.state.seq >= last);
                    last = loaded.state.seq;
                }
                done.store(true, Ordering::Relaxed);
            });
            let mut author = Author::new();
            while !done.load(Ordering::Relaxed) && !checker.is_finished() {
                db.commit(author.notices(1)).unwrap();
            }
            checker.join().unwrap();
        });
    }
}
