//! The writer of the state database.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::Durability;
use super::check::stored_state;
use super::codec::{EventLine, decode, encode, event_crc, state_crc};
use super::error::StoreError;
use super::link::Links;
use super::paths::StorePaths;
use super::reader::{EventSource, Reader, read_events};
use super::schema::Seq;
use crate::domain::event::{Draft, Event};
use crate::domain::ids::EventId;
use crate::domain::state::State;

/// Events that stay in the database; older ones are in the journal only.
pub(crate) const KEEP: u64 = 2_000;

/// How far beyond [`KEEP`] it may grow before [`Db::maintain`] prunes.
const SLACK: u64 = 256;

/// How far beyond [`KEEP`] it may grow before a commit prunes, when nobody calls [`Db::maintain`].
const HARD_SLACK: u64 = 2_000;

/// Commits after which [`Db::maintain`] moves the write-ahead log into the database: at some six pages a commit well
/// before a commit would have to.
const CHECKPOINT: u32 = 64;

/// Events that one pruning step removes: about as many pages as one commit of a busy iteration.
const PRUNE_STEP: u64 = 500;

/// The open state database of a session. Made by [`Db::open`](super::open). One writer a project: whoever has it
/// holds the [`ProjectLock`](super::ProjectLock).
#[derive(Debug)]
pub struct Db {
    pub(super) conn: Connection,
    pub(super) paths: StorePaths,
    pub(super) durability: Durability,
    pub(super) links: Links,
    /// The state as of the last commit that this connection knows.
    pub(super) state: Arc<State>,
    /// The oldest event kept; see [`check::Loaded`](super::check::Loaded).
    pub(super) first: u64,
    /// Commits since the write-ahead log was last moved into the database.
    pub(super) logged: u32,
    /// Scratch space for the lines of a batch and for the state, kept so that a commit allocates little.
    pub(super) buffer: Vec<u8>,
}

/// What a commit came to.
#[derive(Debug, Clone)]
pub struct Committed {
    /// The events in their places.
    pub events: Arc<[Event]>,
    /// The same as JSON lines, each with its line end: what goes to the journal and to `--json`.
    pub lines: Arc<str>,
    /// The state now. Later than the last of `events` when the batch had been committed before.
    pub state: Arc<State>,
}

// === impl Db ===

impl Db {
    /// The state as of the last commit.
    pub fn state(&self) -> Arc<State> {
        Arc::clone(&self.state)
    }

    /// A connection of its own for reading, for as long as this database is open.
    pub fn reader(&self) -> Reader {
        Reader::live(self.paths.clone())
    }

    /// Writes a batch: all of it or nothing. When this returns, the events and the state outlive what
    /// [`Durability`] says.
    ///
    /// A batch whose first draft is already stored is not written again: the stored events and the present state
    /// come back. So a caller that does not know whether its commit went through just repeats it.
    pub fn commit(&mut self, drafts: Vec<Draft>) -> Result<Committed, StoreError> {
        let Some(first_id) = drafts.first().map(|draft| draft.id) else {
            return Ok(Committed { events: Arc::new([]), lines: "".into(), state: self.state() });
        };
        let (state, first, committed) = {
            let Db { conn, state, buffer, .. } = self;
            match (Attempt { state, buffer }).run(conn, first_id, drafts) {
                Ok(done) => done,
                Err(error) => return Err(self.told(error)),
            }
        };
        self.state = state;
        self.first = first;
        self.logged = self.logged.saturating_add(1);
        self.links.seen_log(&self.paths);
        if self.kept() > KEEP + HARD_SLACK {
            // The commit went through; pruning is tried again at the next one.
            let _ = self.prune();
        }
        Ok(committed)
    }

    /// Housekeeping while nothing waits for a commit: prunes old events, one step at a time, and moves the write-ahead
    /// log into the database. Returns at once when there is nothing to do; else it takes some milliseconds.
    pub fn maintain(&mut self) -> Result<(), StoreError> {
        if self.kept() > KEEP + SLACK {
            self.prune()?;
        } else if self.logged < CHECKPOINT {
            return Ok(());
        }
        self.logged = 0;
        self.conn
            .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
            .map_err(|error| self.sqlite(&error))
    }

    /// Closes the database; everything is then in `state.db` itself, unless somebody is reading at this moment.
    pub fn close(self) -> Result<(), StoreError> {
        self.conn
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
            .map_err(|error| self.sqlite(&error))?;
        let path = self.paths.state_db;
        self.conn.close().map_err(|(conn, error)| StoreError::sqlite(&path, &conn, &error))
    }

    /// How many events are kept.
    fn kept(&self) -> u64 {
        (self.state.seq + 1).saturating_sub(self.first)
    }

    /// Removes the oldest events beyond [`KEEP`], at most [`PRUNE_STEP`] of them.
    fn prune(&mut self) -> Result<(), StoreError> {
        let target = (self.state.seq + 1).saturating_sub(KEEP).min(self.first + PRUNE_STEP);
        match prune_below(&mut self.conn, target) {
            Ok(first) => {
                self.first = first;
                Ok(())
            }
            Err(error) => Err(self.told(error)),
        }
    }

    pub(super) fn sqlite(&self, error: &rusqlite::Error) -> StoreError {
        StoreError::sqlite(&self.paths.state_db, &self.conn, error)
    }

    fn told(&self, failure: Failure) -> StoreError {
        let path = self.paths.state_db.clone();
        match failure {
            Failure::Sqlite(error) => self.sqlite(&error),
            Failure::Corrupt(why) => StoreError::Corrupt { path, why: why.into() },
            Failure::Differs | Failure::Encode(_) => StoreError::Other { path, detail: failure.to_string() },
        }
    }
}

impl EventSource for Db {
    fn events_from(&mut self, seq: u64, limit: usize) -> Result<Vec<EventLine>, StoreError> {
        read_events(&self.conn, seq, limit).map_err(|error| self.sqlite(&error))
    }
}

// === one commit ===

/// What a transaction failed of; told as a [`StoreError`] once the connection is free again.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error("{0}")]
    Corrupt(&'static str),
    #[error("a batch is repeated with other events than are stored")]
    Differs,
    #[error(transparent)]
    Encode(#[from] serde_json::Error),
}

/// One commit: what it starts from.
struct Attempt<'a> {
    state: &'a Arc<State>,
    buffer: &'a mut Vec<u8>,
}

impl Attempt<'_> {
    fn run(
        self,
        conn: &mut Connection,
        first_id: EventId,
        drafts: Vec<Draft>,
    ) -> Result<(Arc<State>, u64, Committed), Failure> {
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let (base, first) = self.base(&tx)?;
        if let Some(at) = stored_place(&tx, first_id)? {
            let committed = stored_batch(&tx, at, &drafts, Arc::clone(&base))?;
            return Ok((base, first, committed));
        }
        let buffer = self.buffer;
        buffer.clear();
        let mut state = State::clone(&base);
        let mut events = Vec::with_capacity(drafts.len());
        {
            let mut insert =
                tx.prepare_cached("INSERT INTO events (seq, id, line, crc) VALUES (?1, ?2, ?3, ?4)")?;
            for draft in drafts {
                let event = draft.at(state.seq + 1);
                let start = buffer.len();
                encode(&event, buffer)?;
                let line = text(&buffer[start..buffer.len() - 1])?;
                debug_assert_eq!(
                    decode(line.as_bytes()).as_ref(),
                    Some(&event),
                    "an event that does not read back"
                );
                let id = event.id.0.to_bytes();
                insert.execute(params![
                    Seq(event.seq),
                    id,
                    line,
                    event_crc(event.seq, &id, line.as_bytes())
                ])?;
                state.apply(&event);
                events.push(event);
            }
        }
        let lines: Arc<str> = text(buffer)?.into();
        buffer.clear();
        serde_json::to_writer(&mut *buffer, &state)?;
        put_state(&tx, state.seq, first, buffer)?;
        tx.commit()?;
        let state = Arc::new(state);
        let committed = Committed { events: events.into(), lines, state: Arc::clone(&state) };
        Ok((state, first, committed))
    }

    /// The state that the batch builds on: the one in memory, unless another connection has committed since (the
    /// job of an actor that died goes on beside the one that replaced it).
    fn base(&self, tx: &Transaction<'_>) -> Result<(Arc<State>, u64), Failure> {
        let (Seq(seq), Seq(first)) = tx
            .prepare_cached("SELECT seq, first FROM state")?
            .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        if seq == self.state.seq {
            return Ok((Arc::clone(self.state), first));
        }
        let (state, first) = tx
            .query_row("SELECT seq, first, doc, crc FROM state", [], stored_state)?
            .map_err(Failure::Corrupt)?;
        Ok((Arc::new(state), first))
    }
}

fn text(bytes: &[u8]) -> Result<&str, Failure> {
    std::str::from_utf8(bytes).map_err(|error| Failure::Encode(serde::ser::Error::custom(error)))
}

/// Where the event `id` is stored.
fn stored_place(tx: &Transaction<'_>, id: EventId) -> rusqlite::Result<Option<u64>> {
    tx.prepare_cached("SELECT seq FROM events WHERE id = ?1")?
        .query_row([id.0.to_bytes()], |row| row.get(0).map(|Seq(seq)| seq))
        .optional()
}

/// The batch `drafts`, whose first event is stored at `at`.
fn stored_batch(
    tx: &Transaction<'_>,
    at: u64,
    drafts: &[Draft],
    state: Arc<State>,
) -> Result<Committed, Failure> {
    let stored = read_events(tx, at, drafts.len())?;
    let mut events = Vec::with_capacity(stored.len());
    let mut lines = String::new();
    for (draft, line) in drafts.iter().zip(&stored) {
        let event = line.event().filter(|event| event.id == draft.id);
        events.push(event.ok_or(Failure::Differs)?);
        lines.push_str(&line.text);
        lines.push('\n');
    }
    if events.len() != drafts.len() {
        return Err(Failure::Differs);
    }
    Ok(Committed { events: events.into(), lines: lines.into(), state })
}

/// Writes the row of `state`.
pub(super) fn put_state(conn: &Connection, seq: u64, first: u64, doc: &[u8]) -> Result<(), rusqlite::Error> {
    let crc = state_crc(seq, first, doc);
    let doc = std::str::from_utf8(doc).map_err(|error| rusqlite::Error::Utf8Error(2, error))?;
    conn.prepare_cached("UPDATE state SET seq = ?1, first = ?2, doc = ?3, crc = ?4 WHERE one = 1")?
        .execute(params![Seq(seq), Seq(first), doc, crc])
        .map(drop)
}

/// Removes the events below `target`; what is then the oldest one.
fn prune_below(conn: &mut Connection, target: u64) -> Result<u64, Failure> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let (state, first) = tx
        .query_row("SELECT seq, first, doc, crc FROM state", [], stored_state)?
        .map_err(Failure::Corrupt)?;
    if target <= first {
        return Ok(first);
    }
    tx.prepare_cached("DELETE FROM events WHERE seq < ?1")?.execute([Seq(target)])?;
    put_state(&tx, state.seq, target, &serde_json::to_vec(&state)?)?;
    tx.commit()?;
    Ok(target)
}

#[cfg(test)]
mod tests;
