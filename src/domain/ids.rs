//! Identifiers. All are ULIDs, so they sort by time and one `grep` finds a whole story.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use ulid::Ulid;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Ulid);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }

        impl std::str::FromStr for $name {
            type Err = ulid::DecodeError;
            fn from_str(s: &str) -> Result<Self, Self::Err> {
                Ulid::from_string(s).map($name)
            }
        }
    };
}

id!(
    /// One supervised run of a project.
    SessionId
);
id!(
    /// One event of the journal.
    EventId
);
id!(
    /// One message from a person.
    MessageId
);
id!(
    /// Fencing token of one attempt: what an older attempt says late is dropped by it.
    Token
);

/// One worker of a session, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LaneId(pub u16);

impl std::fmt::Display for LaneId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Makes identifiers from the time and a seedable generator, so that a simulation with the same seed gives the
/// same bytes. Within one millisecond ids still ascend.
#[derive(Debug)]
pub struct IdSource {
    rng: fastrand::Rng,
    last: Ulid,
}

impl IdSource {
    /// `None` seeds from the host's entropy.
    pub fn new(seed: Option<u64>) -> Self {
        let rng = seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        IdSource { rng, last: Ulid::nil() }
    }

    /// The next id at `now`; always larger than the one before, also when the wall clock steps back.
    pub fn next(&mut self, now: Timestamp) -> Ulid {
        let ms = u64::try_from(now.as_millisecond()).unwrap_or(0).max(self.last.timestamp_ms());
        let fresh = Ulid::from_parts(ms, self.rng.u128(..));
        self.last = if fresh > self.last { fresh } else { self.last.increment().unwrap_or(fresh) };
        self.last
    }

    /// The generator, for jitter that a simulation can repeat.
    pub fn rng(&mut self) -> &mut fastrand::Rng {
        &mut self.rng
    }
}
