//! Calls that have ended, as the journal of their project tells them: what the ledger is made from.

use jiff::SignedDuration;

use crate::domain::event::{Body, Event};
use crate::domain::ids::{EventId, LaneId};
use crate::domain::ledger::{Booking, Call};
use crate::store::codec::{EventLine, decode};
use crate::store::error::StoreError;
use crate::store::reader::{EventSource, Reader};

/// Events that are read at once.
const BATCH: usize = 200;

/// Up to where a journal is booked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The place of its last event.
    pub seq: u64,
    /// Which event that is: a project may have been made anew.
    pub id: EventId,
}

/// What is in a journal after a mark.
#[derive(Debug, Default)]
pub struct Found {
    /// Calls that have ended, in order.
    pub bookings: Vec<Booking>,
    /// The new mark; none: nothing has happened since.
    pub mark: Option<Mark>,
}

// === impl Found ===

impl Found {
    /// Reads on from `mark`; all that there is where that is of another journal.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn since(mark: Option<Mark>, source: &mut Reader) -> Result<Self, StoreError> {
        let mut found = Found::default();
        let mut last = mark.map_or(0, |mark| mark.seq);
        if let Some(mark) = mark {
            match source.events_from(mark.seq, 1)?.first() {
                Some(line) if line.seq == mark.seq && line.id == mark.id => {}
                // It is so long ago that the database does not have it any more: the files do.
                Some(line) if line.seq > mark.seq && line.id > mark.id => {}
                // Nothing is left of it, or it is another one.
                _ => last = 0,
            }
        }
        loop {
            let lines = if last == 0 { source.events_from(1, BATCH)? } else { source.after(last, BATCH)? };
            let Some(newest) = lines.last() else { return Ok(found) };
            last = newest.seq;
            found.mark = Some(Mark { seq: newest.seq, id: newest.id });
            found.bookings.extend(lines.iter().filter_map(booking));
        }
    }
}

fn booking(line: &EventLine) -> Option<Booking> {
    if !line.text.contains("\"attempt_finished\"") {
        return None;
    }
    let event = decode(line.text.as_bytes())?;
    let Event { time: ended, session: Some(session), iteration: Some(iteration), attempt, provider, .. } =
        &event
    else {
        return None;
    };
    let Body::AttemptFinished(finished) = &event.body else { return None };
    let (cost, unknown) = finished.booked();
    let lasted = SignedDuration::from_millis(i64::try_from(finished.duration_ms).unwrap_or(i64::MAX));
    Some(Booking {
        call: Call {
            token: finished.token,
            session: *session,
            lane: event.lane.unwrap_or(LaneId(1)),
            iteration: *iteration,
            attempt: attempt.unwrap_or(1),
        },
        provider: provider.clone().unwrap_or_default(),
        began: ended.saturating_sub(lasted).unwrap_or(*ended),
        ended: *ended,
        cost,
        unknown,
    })
}
