//! The one place that reads the clock.
//!
//! Everything else gets the time as a value. In simulations the wall clock follows tokio's (paused) clock, so
//! a night of waiting takes milliseconds and every time stamp is reproducible.

use std::sync::LazyLock;
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// How far ahead a timer is set at most that is about wall-clock time.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Where wall-clock time comes from.
#[derive(Debug, Clone, Copy)]
pub enum Clock {
    /// The host's real-time clock.
    System,
    /// `wall` at the moment `at` of tokio's clock, moving with it.
    Simulated {
        /// Wall time at `at`.
        wall: Timestamp,
        /// The tokio instant that `wall` belongs to.
        at: Instant,
    },
}

impl Clock {
    /// A simulated clock that reads `wall` now. Call it inside a tokio runtime.
    pub fn simulated(wall: Timestamp) -> Self {
        Clock::Simulated { wall, at: Instant::now() }
    }

    /// Wall-clock time.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that may")]
    pub fn now(&self) -> Timestamp {
        match self {
            Clock::System => Timestamp::now(),
            Clock::Simulated { wall, at } => {
                let passed = SignedDuration::try_from(at.elapsed()).unwrap_or(SignedDuration::MAX);
                wall.saturating_add(passed).unwrap_or(Timestamp::MAX)
            }
        }
    }

    /// How long to sleep before `until` may have come; zero when it has passed. Timers stand still while the host is
    /// suspended, and a wall clock can be set: whoever sleeps this long looks again, and oversleeps by seconds.
    pub fn nap(&self, until: Timestamp) -> Duration {
        let left = Duration::try_from(until.duration_since(self.now())).unwrap_or(Duration::ZERO);
        match self {
            Clock::System => left.min(LOOK_AGAIN),
            // Nothing of that can happen to it.
            Clock::Simulated { .. } => left,
        }
    }
}

/// The host's time zone: `TZ`, else `/etc/localtime`, else UTC.
///
/// jiff's own look-up first lists the whole zone database to find a name, which takes longer than the rest of a
/// start; the rules are in the file.
pub fn local_zone() -> TimeZone {
    static ZONE: LazyLock<TimeZone> = LazyLock::new(|| {
        if std::env::var_os("TZ").is_some() {
            return TimeZone::system();
        }
        let rules = std::fs::read("/etc/localtime").ok();
        rules.and_then(|rules| TimeZone::tzif("local", &rules).ok()).unwrap_or(TimeZone::UTC)
    });
    ZONE.clone()
}
