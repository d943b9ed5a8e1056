//! The state from what is left: the newest snapshot of the journal and the events after it, and whatever a damaged
//! database still says with a sound checksum.

use std::collections::BTreeMap;
use std::io;

use rusqlite::Connection;

use super::check::stored_state;
use super::codec::{EventLine, decode, event_crc};
use super::connect::{self, Access};
use super::db::KEEP;
use super::paths::StorePaths;
use super::schema::Seq;
use super::segments::{self, Lines, Segment};
use crate::domain::event::{Body, Event};
use crate::domain::state::State;

/// A state that was put together again.
#[derive(Debug)]
pub(crate) struct Rebuilt {
    pub(crate) state: State,
    /// The latest events up to `state.seq`, without gaps.
    pub(crate) events: Vec<EventLine>,
    /// From what, for people.
    pub(crate) from: String,
    /// How far it may lag behind what had happened, for people.
    pub(crate) lag: String,
}

/// What a damaged database still says.
#[derive(Debug, Default)]
pub(crate) struct Salvage {
    state: Option<State>,
    /// By place. Each is whole.
    events: BTreeMap<u64, EventLine>,
}

/// The fold while it is being made.
struct Fold {
    state: State,
    recent: BTreeMap<u64, EventLine>,
    /// Events of the journal that were applied.
    applied: u64,
    /// Lines that could not be read.
    damaged: u64,
    /// Events that are in neither place.
    missing: u64,
}

/// Reads all that has a sound checksum. The file is not changed, and nothing is believed without its checksum, so
/// every error just ends the reading.
pub(crate) fn salvage(paths: &StorePaths) -> Salvage {
    let mut salvage = Salvage::default();
    if let Ok(conn) = connect::reader(&paths.state_db, Access::Left) {
        let state = conn.query_row("SELECT seq, first, doc, crc FROM state", [], stored_state);
        salvage.state = state.ok().and_then(Result::ok).map(|(state, _)| state);
        // What was read before an error stays.
        let _ = salvage_events(&conn, &mut salvage.events);
    }
    salvage
}

fn salvage_events(conn: &Connection, found: &mut BTreeMap<u64, EventLine>) -> rusqlite::Result<()> {
    let mut statement = conn.prepare("SELECT seq, id, line, crc FROM events ORDER BY seq DESC")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let Ok(Seq(seq)) = row.get(0) else { continue };
        let (Ok(id), Ok(line)) = (row.get_ref(1)?.as_blob(), row.get_ref(2)?.as_bytes()) else { continue };
        if row.get::<_, u32>(3).ok() == Some(event_crc(seq, id, line))
            && let Some(line) = EventLine::parse(String::from_utf8_lossy(line).into_owned())
            && line.seq == seq
        {
            found.insert(seq, line);
        }
    }
    Ok(())
}

/// The best state that can be had; `None` when there is nothing to start from.
pub(crate) fn rebuild(paths: &StorePaths, salvage: Salvage) -> io::Result<Option<Rebuilt>> {
    let mut segments = segments::all(paths)?;
    let base = base(&segments)?;
    let (start, snapshot) = match base {
        Some((at, state)) => (at, Some(state)),
        None => (0, None),
    };
    let stored = salvage.state.filter(|stored| snapshot.as_ref().is_none_or(|s| stored.seq >= s.seq));
    let (state, from) = match (stored, snapshot) {
        (Some(stored), _) => {
            let from = format!("the state stored at event {}", stored.seq);
            (stored, from)
        }
        (None, Some(snapshot)) => {
            let from = format!("the journal's snapshot at event {}", snapshot.seq);
            (snapshot, from)
        }
        (None, None) if begins_at_one(&segments, &salvage.events) => {
            (State::default(), "the first event on".to_owned())
        }
        (None, None) => return Ok(None),
    };
    let mut fold = Fold { state, recent: salvage.events, applied: 0, damaged: 0, missing: 0 };
    let stored: Vec<u64> = fold.recent.keys().copied().collect();
    for segment in segments.drain(..).skip(start) {
        fold.segment(&segment)?;
    }
    for seq in stored {
        fold.stored(seq);
    }
    Ok(Some(fold.end(from)))
}

/// The newest segment that begins with a readable snapshot, and that snapshot.
fn base(segments: &[Segment]) -> io::Result<Option<(usize, State)>> {
    for (at, segment) in segments.iter().enumerate().rev() {
        let mut lines = Lines::open(&segment.path)?;
        if let Some(line) = lines.next()?
            && let Some(Event { body: Body::Snapshot(state), .. }) = decode(line.bytes)
        {
            return Ok(Some((at, *state)));
        }
    }
    Ok(None)
}

/// Nothing is missing before the oldest event that is left.
fn begins_at_one(segments: &[Segment], stored: &BTreeMap<u64, EventLine>) -> bool {
    segments.first().is_some_and(|segment| segment.first == 1) || stored.contains_key(&1)
}

// === impl Fold ===

impl Fold {
    fn segment(&mut self, segment: &Segment) -> io::Result<()> {
        let mut lines = Lines::open(&segment.path)?;
        while let Some(line) = lines.next()? {
            let Some(head) = line.event_line() else {
                // The line that was being written when the power went is not damage.
                self.damaged += u64::from(line.ended);
                continue;
            };
            if head.snapshot {
                self.snapshot(&head);
            } else if head.seq > self.state.seq {
                self.bridge(head.seq);
                match head.event() {
                    Some(event) => {
                        self.applied += 1;
                        self.state.apply(&event);
                        self.keep(head);
                    }
                    // Its place is taken all the same.
                    None => {
                        self.damaged += 1;
                        self.state.seq = head.seq;
                    }
                }
            } else {
                self.keep(head);
            }
        }
        Ok(())
    }

    /// A snapshot further on than the events before it: those between were never in the journal.
    fn snapshot(&mut self, line: &EventLine) {
        if line.seq > self.state.seq {
            match line.event() {
                Some(event) => self.state.apply(&event),
                None => self.damaged += 1,
            }
        }
    }

    /// Applies a stored event that the journal does not have.
    fn stored(&mut self, seq: u64) {
        if seq > self.state.seq
            && let Some(event) = self.recent.get(&seq).and_then(EventLine::event)
        {
            self.missing += seq - self.state.seq - 1;
            self.state.apply(&event);
        }
    }

    /// Fills the gap before `seq` with what the database had.
    fn bridge(&mut self, seq: u64) {
        let Fold { state, recent, missing, .. } = self;
        *missing += seq - state.seq - 1;
        for event in recent.range(state.seq + 1..seq).filter_map(|(_, line)| line.event()) {
            *missing -= 1;
            state.apply(&event);
        }
    }

    fn keep(&mut self, line: EventLine) {
        self.recent.insert(line.seq, line);
        if self.recent.len() as u64 > 2 * KEEP {
            self.recent.pop_first();
        }
    }

    fn end(mut self, from: String) -> Rebuilt {
        let mut events = Vec::new();
        let mut seq = self.state.seq;
        while let Some(line) = self.recent.remove(&seq)
            && (events.len() as u64) < KEEP
        {
            events.push(line);
            seq -= 1;
        }
        events.reverse();
        let from = match self.applied {
            0 => from,
            n => format!("{from} and {n} later events of the journal"),
        };
        let lag = match (self.damaged, self.missing) {
            (0, 0) => "at most what was committed in the last moment before the damage".to_owned(),
            (damaged, missing) => {
                format!("{damaged} damaged lines of the journal were skipped, {missing} events are missing")
            }
        };
        Rebuilt { state: self.state, events, from, lag }
    }
}
