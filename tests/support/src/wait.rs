//! Waiting for conditions, never for time to pass.

use std::time::{Duration, Instant, SystemTime};

/// How long a condition may take before the test fails: generous, for a loaded machine with two cores.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Looks every 2 ms until `look` finds something; panics with `what` after [`PATIENCE`].
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "gave up waiting: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Wall-clock time in nanoseconds since 1970, as the fake agent logs it.
pub fn wall_ns() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_nanos())
}

/// Lets time pass, for storms and benches, whose instants are random or measured. Tests wait for conditions.
pub fn pass(time: Duration) {
    std::thread::sleep(time);
}
