//! Looking at the state and the events beside a session that writes, or without one. Changes nothing.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension};

use super::check::stored_state;
use super::codec::EventLine;
use super::connect::{self, Access};
use super::error::StoreError;
use super::link::FileId;
use super::lock;
use super::paths::StorePaths;
use super::schema::Seq;
use super::segments;
use crate::domain::ids::EventId;
use crate::domain::state::State;

/// The last place that a database can hold.
const LAST: u64 = i64::MAX as u64;

/// Where events can be read from by their place.
pub trait EventSource {
    /// The events from `seq` on that are kept there, in order, at most `limit`.
    fn events_from(&mut self, seq: u64, limit: usize) -> Result<Vec<EventLine>, StoreError>;
}

/// A read-only look at a project. Every answer is of one moment, and keeps nobody from writing. It opens the database
/// when it is first asked, and again when the file has been replaced.
#[derive(Debug)]
pub struct Reader {
    paths: StorePaths,
    /// The session runs in this process, so the database is live whatever the lock says.
    own: bool,
    open: Option<OpenReader>,
}

#[derive(Debug)]
struct OpenReader {
    conn: Connection,
    access: Access,
    file: FileId,
}

// === impl Reader ===

impl Reader {
    /// A reader of the project, whether a session runs there or not.
    pub fn new(paths: StorePaths) -> Self {
        Reader { paths, own: false, open: None }
    }

    /// A reader beside the writer of this process.
    pub fn live(paths: StorePaths) -> Self {
        Reader { paths, own: true, open: None }
    }

    /// The state now; `None` where there is no database.
    pub fn state(&mut self) -> Result<Option<Arc<State>>, StoreError> {
        let found = self.query(|conn| {
            conn.prepare_cached("SELECT seq, first, doc, crc FROM state")?.query_row([], stored_state)
        })?;
        match found {
            None => Ok(None),
            Some(Ok((state, _))) => Ok(Some(Arc::new(state))),
            Some(Err(why)) => Err(StoreError::Corrupt { path: self.paths.state_db.clone(), why: why.into() }),
        }
    }

    /// The latest `limit` events, oldest first.
    pub fn tail(&mut self, limit: usize) -> Result<Vec<EventLine>, StoreError> {
        let last = self
            .query(|conn| conn.prepare_cached("SELECT seq FROM state")?.query_row([], |row| row.get(0)))?
            .map_or(0, |Seq(last)| last);
        let after = last.saturating_sub(u64::try_from(limit).unwrap_or(u64::MAX));
        self.after(after, limit)
    }

    /// The events after the one with `id`, at most `limit`, oldest first; `None` when there is no such event.
    /// Those that the database no longer keeps come from the journal.
    pub fn events_since(&mut self, id: EventId, limit: usize) -> Result<Option<Vec<EventLine>>, StoreError> {
        let stored = self.query(|conn| {
            conn.prepare_cached("SELECT seq FROM events WHERE id = ?1")?
                .query_row([id.0.to_bytes()], |row| row.get(0).map(|Seq(seq)| seq))
                .optional()
        })?;
        let place = match stored.flatten() {
            Some(seq) => Some(seq),
            None => segments::find(&self.paths, id).map_err(|e| StoreError::io(&self.paths.events, &e))?,
        };
        place.map(|seq| self.after(seq, limit)).transpose()
    }

    /// The events after place `seq`, at most `limit`, oldest first, from the database and from the journal.
    pub fn after(&mut self, seq: u64, limit: usize) -> Result<Vec<EventLine>, StoreError> {
        let next = seq.saturating_add(1);
        let stored = self.events_from(next, limit)?;
        if stored.first().is_some_and(|line| line.seq == next) {
            return Ok(stored);
        }
        let mut found = segments::read_after(&self.paths, seq, limit)
            .map_err(|error| StoreError::io(&self.paths.events, &error))?;
        let last = found.last().map_or(seq, |line| line.seq);
        let room = limit - found.len();
        found.extend(stored.into_iter().filter(|line| line.seq > last).take(room));
        Ok(found)
    }

    /// Runs `query` on an open database; `None` where there is none.
    fn query<T>(
        &mut self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        let path = self.paths.state_db.clone();
        let Some(conn) = self.connection()? else { return Ok(None) };
        query(conn).map(Some).map_err(|error| StoreError::sqlite(&path, conn, &error))
    }

    fn connection(&mut self) -> Result<Option<&Connection>, StoreError> {
        let path = &self.paths.state_db;
        let Some(file) = FileId::of(path).map_err(|error| StoreError::io(path, &error))? else {
            self.open = None;
            return Ok(None);
        };
        let held = self.own || lock::is_held(&self.paths);
        let access = connect::access(&self.paths, held);
        let open = match self.open.take() {
            Some(open) if open.file == file && open.access == access => open,
            _ => {
                let conn = connect::reader(path, access)?;
                OpenReader { conn, access, file }
            }
        };
        Ok(Some(&self.open.insert(open).conn))
    }
}

impl EventSource for Reader {
    fn events_from(&mut self, seq: u64, limit: usize) -> Result<Vec<EventLine>, StoreError> {
        Ok(self.query(|conn| read_events(conn, seq, limit))?.unwrap_or_default())
    }
}

/// The events of a database from `seq` on, at most `limit`.
pub(super) fn read_events(conn: &Connection, seq: u64, limit: usize) -> rusqlite::Result<Vec<EventLine>> {
    let mut statement =
        conn.prepare_cached("SELECT seq, id, line FROM events WHERE seq >= ?1 ORDER BY seq LIMIT ?2")?;
    let rows =
        statement.query_map((Seq(seq.min(LAST)), i64::try_from(limit).unwrap_or(i64::MAX)), |row| {
            let Seq(seq) = row.get(0)?;
            let id = ulid::Ulid::from_bytes(row.get(1)?);
            Ok(EventLine { seq, id: EventId(id), snapshot: false, text: row.get(2)? })
        })?;
    rows.collect()
}
