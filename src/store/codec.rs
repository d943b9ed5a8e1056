//! How events and the state look in the database and in the journal: one JSON line each, with checksums beside.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::{self, value::MapDeserializer};
use ulid::Ulid;

use crate::domain::event::{Body, Event, Level};
use crate::domain::ids::{EventId, LaneId, SessionId};
use crate::domain::state::State;

/// An event as it is stored: the JSON line without its line end, and what is needed to find it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventLine {
    /// Position in the journal.
    pub seq: u64,
    /// Identity.
    pub id: EventId,
    /// It is the first line of a segment, not an event of its own. See [`snapshot_line`].
    pub snapshot: bool,
    /// The JSON text.
    pub text: String,
}

/// What of a line is needed to put it in its place. Reading only this is several times cheaper than the whole.
#[derive(Debug, Deserialize)]
pub(crate) struct Head<'a> {
    pub(crate) id: EventId,
    pub(crate) seq: u64,
    pub(crate) time: Timestamp,
    #[serde(rename = "type", borrow)]
    pub(crate) kind: Cow<'a, str>,
}

/// All of an event but what happened, for types that this version does not know.
#[derive(Deserialize)]
struct Envelope {
    id: EventId,
    seq: u64,
    time: Timestamp,
    level: Level,
    session: Option<SessionId>,
    lane: Option<LaneId>,
    iteration: Option<u64>,
    attempt: Option<u32>,
    provider: Option<String>,
    #[serde(rename = "type")]
    kind: String,
}

// === impl EventLine, Head ===

impl EventLine {
    /// Puts `text` in its place; `None` when it is not a line of the journal.
    pub(crate) fn parse(text: String) -> Option<Self> {
        let head = Head::parse(text.as_bytes())?;
        let (seq, id, snapshot) = (head.seq, head.id, head.is_snapshot());
        Some(EventLine { seq, id, snapshot, text })
    }

    /// The event itself; `None` when its data is damaged. Types of later versions come as [`Body::Unknown`].
    pub fn event(&self) -> Option<Event> {
        decode(self.text.as_bytes())
    }
}

impl<'a> Head<'a> {
    pub(crate) fn parse(line: &'a [u8]) -> Option<Self> {
        // A place that no database can hold is damage.
        serde_json::from_slice(line).ok().filter(|head: &Head<'_>| head.seq < i64::MAX as u64)
    }

    pub(crate) fn is_snapshot(&self) -> bool {
        self.kind == "snapshot"
    }
}

/// The event in `line`; `None` when the line is damaged.
pub fn decode(line: &[u8]) -> Option<Event> {
    if let Ok(event) = serde_json::from_slice(line) {
        return Some(event);
    }
    let it: Envelope = serde_json::from_slice(line).ok()?;
    if !is_later_type(&it.kind) {
        return None;
    }
    let Envelope { id, seq, time, level, session, lane, iteration, attempt, provider, kind: _ } = it;
    Some(Event { id, seq, time, level, session, lane, iteration, attempt, provider, body: Body::Unknown })
}

/// Appends the line of `event`, with its line end, to `out`.
pub(crate) fn encode(event: &Event, out: &mut Vec<u8>) -> serde_json::Result<()> {
    serde_json::to_writer(&mut *out, event)?;
    out.push(b'\n');
    Ok(())
}

/// The first line of a segment that is begun at `time`: the whole state, as an event of type `snapshot`.
///
/// It carries the `seq` of the last event in the state and takes no place of its own; the events after it go on
/// from there. Its id is made from that `seq` and the time, so the same rotation gives the same bytes.
pub(crate) fn snapshot_line(state: &State, time: Timestamp, out: &mut Vec<u8>) -> serde_json::Result<()> {
    let millis = u64::try_from(time.as_millisecond()).unwrap_or(0);
    let body = Body::Snapshot(Box::new(state.clone()));
    let event = Event {
        id: EventId(Ulid::from_parts(millis, u128::from(state.seq))),
        seq: state.seq,
        time,
        level: body.level(),
        session: state.session.as_ref().map(|session| session.id),
        lane: None,
        iteration: None,
        attempt: None,
        provider: None,
        body,
    };
    encode(&event, out)
}

/// Checksum of a stored event: its place, its identity and its text.
pub(crate) fn event_crc(seq: u64, id: &[u8], line: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&seq.to_le_bytes());
    crc.update(id);
    crc.update(line);
    crc.finalize()
}

/// Checksum of the stored state: its last event, the oldest event kept beside it, and its text.
pub(crate) fn state_crc(seq: u64, first: u64, doc: &[u8]) -> u32 {
    event_crc(seq, &first.to_le_bytes(), doc)
}

// === the types that this version knows ===

/// `kind` is not among the event types of this version.
fn is_later_type(kind: &str) -> bool {
    let tag_only = MapDeserializer::<_, TagError>::new(std::iter::once(("type", kind)));
    matches!(Body::deserialize(tag_only), Err(TagError::UnknownType))
}

/// All that [`is_later_type`] wants to know of a failure.
#[derive(Debug)]
enum TagError {
    UnknownType,
    Other,
}

impl std::fmt::Display for TagError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self, f)
    }
}

impl std::error::Error for TagError {}

impl de::Error for TagError {
    fn custom<T: std::fmt::Display>(_: T) -> Self {
        TagError::Other
    }

    fn unknown_variant(_: &str, _: &'static [&'static str]) -> Self {
        TagError::UnknownType
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::store::testing::{Author, body, fold, noon, notice};

    proptest! {
        #[test]
        fn a_line_says_all_of_its_event(body in body(), seq in 1..1_000_000u64) {
            let event = Author::new().draft(body).at(seq);
            let mut line = Vec::new();
            encode(&event, &mut line).unwrap();
            prop_assert_eq!(line.iter().filter(|&&byte| byte == b'\n').count(), 1);
            let text = String::from_utf8(line).unwrap();
            let parsed = EventLine::parse(text.trim_end().to_owned()).unwrap();
            prop_assert_eq!((parsed.seq, parsed.id, parsed.snapshot), (seq, event.id, false));
            prop_assert_eq!(parsed.event(), Some(event));
        }

        #[test]
        fn a_snapshot_says_all_of_the_state(bodies in proptest::collection::vec(body(), 0..20)) {
            let mut author = Author::new();
            let drafts = author.batch(bodies);
            let events: Vec<Event> = drafts.into_iter().zip(1..).map(|(draft, seq)| draft.at(seq)).collect();
            let state = fold(&events);
            let mut line = Vec::new();
            snapshot_line(&state, noon(), &mut line).unwrap();
            let event = decode(&line[..line.len() - 1]).unwrap();
            prop_assert_eq!(event.seq, state.seq);
            let mut again = State::default();
            again.apply(&event);
            prop_assert_eq!(again, state);
        }
    }

    fn line_of(body: Body) -> String {
        let mut line = Vec::new();
        encode(&Author::new().draft(body).at(1), &mut line).unwrap();
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn a_type_of_a_later_version_is_kept_without_its_data() {
        let line = line_of(notice(1)).replace("\"notice\"", "\"quantum_leap\"");
        let event = decode(line.as_bytes()).unwrap();
        assert_eq!((event.seq, event.body), (1, Body::Unknown));
    }

    #[test]
    fn a_known_type_with_damaged_data_is_no_event() {
        let line = line_of(notice(1)).replace("\"message\"", "\"massage\"");
        assert_eq!(decode(line.as_bytes()), None);
        assert_eq!(decode(b"{\"id\":\"01"), None);
        assert_eq!(decode(b""), None);
    }

    #[test]
    fn fields_of_a_later_version_are_passed_over() {
        let line = line_of(notice(1)).replace("\"level\"", "\"colour\":\"blue\",\"level\"");
        assert_eq!(decode(line.as_bytes()).unwrap().body, notice(1));
    }

    #[test]
    fn a_place_that_no_database_can_hold_is_damage() {
        let line = line_of(notice(1)).replace("\"seq\":1", "\"seq\":18446744073709551615");
        assert!(EventLine::parse(line).is_none());
    }

    #[test]
    fn checksums_cover_place_identity_and_text() {
        let sum = event_crc(1, b"id", b"line");
        for other in
            [event_crc(2, b"id", b"line"), event_crc(1, b"ie", b"line"), event_crc(1, b"id", b"lime")]
        {
            assert_ne!(other, sum);
        }
    }
}
