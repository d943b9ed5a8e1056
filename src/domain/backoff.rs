//! How long to wait before the next try, and how often an actor may be restarted.
//!
//! Waiting is exponential with full jitter (AWS Architecture Blog, "Exponential Backoff And Jitter"): many
//! sessions that failed together must not come back together. Restarting follows OTP's restart intensity
//! (OTP Design Principles, "Maximum Restart Intensity").

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// An exponential back-off with full jitter: a random wait from `floor` to `base * 2^failures`, at most `cap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    /// Upper end of the first wait.
    pub base: Duration,
    /// No drawn wait is longer; a stated minimum may be.
    pub cap: Duration,
    /// No wait is shorter: a draw near zero must not become a hot loop.
    pub floor: Duration,
}

/// OTP's restart intensity: more than `max` restarts `within` the window are one too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intensity {
    /// Restarts that are allowed in one window.
    pub max: u32,
    /// Length of the sliding window.
    pub within: Duration,
}

/// The restarts of one child (or of one group that restarts together), newest last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartLog {
    intensity: Intensity,
    backoff: Backoff,
    /// Moments of the restarts within the window; at most `intensity.max` of them.
    recent: VecDeque<Duration>,
}

/// Whether a child may be restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Restart {
    /// Yes, after this wait.
    Allowed {
        /// Wait before the child is started again.
        delay: Duration,
    },
    /// The intensity is used up: the failure goes to the parent.
    Exhausted,
}

// === impl Backoff ===

impl Backoff {
    /// A back-off without a floor.
    pub const fn new(base: Duration, cap: Duration) -> Self {
        Backoff { base, cap, floor: Duration::ZERO }
    }

    /// Upper end of the wait after `failures` earlier failures: `min(cap, base * 2^failures)`, for any count.
    pub fn ceiling(&self, failures: u32) -> Duration {
        let factor = 1_u32.checked_shl(failures);
        factor.and_then(|f| self.base.checked_mul(f)).map_or(self.cap, |d| d.min(self.cap))
    }

    /// The wait after `failures` earlier failures (0 for the first wait).
    ///
    /// `at_least` is a stated minimum, such as `Retry-After`: the wait is never shorter, even beyond `cap`, and up
    /// to `base` is added to it, so that all who were told the same moment do not come at the same moment.
    pub fn delay(&self, failures: u32, at_least: Option<Duration>, rng: &mut fastrand::Rng) -> Duration {
        let drawn = between(Duration::ZERO, self.ceiling(failures), rng).max(self.floor);
        let Some(stated) = at_least else { return drawn };
        let spread = between(Duration::ZERO, self.base.min(self.cap), rng);
        drawn.max(stated.saturating_add(spread))
    }
}

/// A uniform duration from `low` to `high`, both included.
fn between(low: Duration, high: Duration, rng: &mut fastrand::Rng) -> Duration {
    let nanos = rng.u128(low.as_nanos()..=high.as_nanos().max(low.as_nanos()));
    let seconds = u64::try_from(nanos / 1_000_000_000).unwrap_or(u64::MAX);
    let rest = u32::try_from(nanos % 1_000_000_000).unwrap_or(0);
    Duration::new(seconds, rest)
}

// === impl RestartLog ===

impl RestartLog {
    /// An empty log. With `intensity.max` 0 no restart is allowed at all.
    pub fn new(intensity: Intensity, backoff: Backoff) -> Self {
        RestartLog { intensity, backoff, recent: VecDeque::new() }
    }

    /// Records that the child failed at `now` and says whether it may be restarted.
    ///
    /// `now` is the time since any fixed moment; a clock that steps back counts as standing still. The wait grows
    /// with the restarts that the window still holds, so a child that has been well for a window starts anew.
    pub fn record(&mut self, now: Duration, rng: &mut fastrand::Rng) -> Restart {
        let now = self.recent.back().map_or(now, |last| now.max(*last));
        while self.recent.front().is_some_and(|first| now.saturating_sub(*first) > self.intensity.within) {
            self.recent.pop_front();
        }
        let earlier = u32::try_from(self.recent.len()).unwrap_or(u32::MAX);
        if earlier >= self.intensity.max {
            return Restart::Exhausted;
        }
        self.recent.push_back(now);
        Restart::Allowed { delay: self.backoff.delay(earlier, None, rng) }
    }

    /// Restarts that the window held when the log was last used.
    pub fn recent(&self) -> usize {
        self.recent.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn secs(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    fn duration() -> impl Strategy<Value = Duration> {
        prop_oneof![
            (0_u64..100_000_000).prop_map(Duration::from_micros),
            (any::<u64>(), 0_u32..1_000_000_000).prop_map(|(s, n)| Duration::new(s, n)),
        ]
    }

    fn count() -> impl Strategy<Value = u32> {
        prop_oneof![0_u32..70, any::<u32>(), Just(u32::MAX)]
    }

    #[test]
    fn ceiling_doubles_up_to_the_cap() {
        let b = Backoff::new(secs(2), secs(300));
        let seen: Vec<u64> = (0..9).map(|n| b.ceiling(n).as_secs()).collect();
        assert_eq!(seen, [2, 4, 8, 16, 32, 64, 128, 256, 300]);
        assert_eq!(b.ceiling(31), secs(300));
        assert_eq!(b.ceiling(32), secs(300));
        assert_eq!(b.ceiling(u32::MAX), secs(300));
        assert_eq!(Backoff::new(secs(10), secs(3)).ceiling(0), secs(3), "a cap below the base wins");
    }

    #[test]
    fn jitter_covers_the_whole_range() {
        let b = Backoff::new(secs(8), secs(8));
        let mut rng = fastrand::Rng::with_seed(7);
        let draws: Vec<Duration> = (0..1000).map(|_| b.delay(0, None, &mut rng)).collect();
        assert!(draws.iter().any(|d| *d < secs(1)) && draws.iter().any(|d| *d > secs(7)));
    }

    #[test]
    fn restarts_stop_at_the_intensity_and_recover_after_the_window() {
        let mut log = RestartLog::new(Intensity { max: 3, within: secs(10) }, Backoff::new(secs(1), secs(5)));
        let mut rng = fastrand::Rng::with_seed(1);
        let mut allowed = |log: &mut RestartLog, at| log.record(secs(at), &mut rng) != Restart::Exhausted;
        assert!(allowed(&mut log, 0) && allowed(&mut log, 1) && allowed(&mut log, 10));
        assert!(!allowed(&mut log, 10), "the restart at 0 is still within the window");
        assert!(allowed(&mut log, 11), "the restart at 0 has left the window");
        assert!(!allowed(&mut log, 3), "a clock that steps back does not empty the window");
        assert!(allowed(&mut log, 1000));
        assert_eq!(log.recent(), 1);
    }

    #[test]
    fn no_restart_is_allowed_with_a_maximum_of_zero() {
        let mut log = RestartLog::new(Intensity { max: 0, within: secs(10) }, Backoff::new(secs(1), secs(5)));
        assert_eq!(log.record(secs(0), &mut fastrand::Rng::with_seed(1)), Restart::Exhausted);
    }

    proptest! {
        #[test]
        fn a_wait_stays_within_its_bounds_at_any_count(
            base in duration(), cap in duration(), floor in duration(), n in count(), seed: u64,
        ) {
            let b = Backoff { base, cap, floor };
            let wait = b.delay(n, None, &mut fastrand::Rng::with_seed(seed));
            prop_assert!(wait >= floor && wait <= cap.max(floor));
            prop_assert!(b.ceiling(n) <= cap);
            prop_assert!(b.ceiling(n.saturating_add(1)) >= b.ceiling(n));
        }

        #[test]
        fn a_stated_minimum_is_never_undercut(
            base in duration(), cap in duration(), stated in duration(), n in count(), seed: u64,
        ) {
            let b = Backoff::new(base, cap);
            let wait = b.delay(n, Some(stated), &mut fastrand::Rng::with_seed(seed));
            prop_assert!(wait >= stated);
            prop_assert!(wait <= cap.max(stated.saturating_add(base)));
        }

        #[test]
        fn never_more_than_the_maximum_in_any_window(
            max in 0_u32..6, within in 1_u64..50, steps in prop::collection::vec(0_u64..20, 1..60), seed: u64,
        ) {
            let mut log = RestartLog::new(Intensity { max, within: secs(within) }, Backoff::new(secs(1), secs(60)));
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut now = 0;
            let mut granted = Vec::new();
            for step in steps {
                now += step;
                if log.record(secs(now), &mut rng) != Restart::Exhausted {
                    granted.push(now);
                }
                prop_assert!(log.recent() <= max as usize);
            }
            for start in &granted {
                let inside = granted.iter().filter(|t| **t >= *start && **t - *start <= within).count();
                prop_assert!(inside <= max as usize);
            }
        }
    }
}
