//! Files that have not changed for a while, for where it cannot be asked who writes them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::intake::stamp::Stamp;

/// What was seen of files, from one round to the next.
#[derive(Debug, Default)]
pub(super) struct Steady {
    seen: HashMap<PathBuf, Seen>,
    /// The time of this round.
    at: Duration,
    /// When the first of those that are not steady yet will be, from now.
    wait: Option<Duration>,
}

#[derive(Debug)]
struct Seen {
    stamp: Stamp,
    since: Duration,
    last: Duration,
}

// === impl Steady ===

impl Steady {
    /// A round begins, at a monotonic time that is later than that of the last one.
    pub(super) fn begin(&mut self, at: Duration) {
        self.at = at;
        self.wait = None;
    }

    /// A round is over; says after what time another one would find more. Files that were not asked about are
    /// forgotten.
    pub(super) fn end(&mut self) -> Option<Duration> {
        self.seen.retain(|_, seen| seen.last == self.at);
        self.wait
    }

    /// Whether a file has looked like this for `limit`.
    pub(super) fn holds(&mut self, path: &Path, stamp: Stamp, limit: Duration) -> bool {
        let since = self.seen.get(path).filter(|seen| seen.stamp == stamp).map_or(self.at, |seen| seen.since);
        self.seen.insert(path.to_owned(), Seen { stamp, since, last: self.at });
        let left = limit.saturating_sub(self.at.saturating_sub(since));
        if left.is_zero() {
            return true;
        }
        self.wait = Some(self.wait.map_or(left, |wait| wait.min(left)));
        false
    }

    /// What is known of a file goes with it to its new path.
    pub(super) fn renamed(&mut self, from: &Path, to: PathBuf) {
        if let Some(seen) = self.seen.remove(from) {
            self.seen.insert(to, seen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(200);

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn a_file_that_grows_is_waited_for() {
        let (mut steady, path) = (Steady::default(), Path::new("/a"));
        for (at, size, holds, wait) in [
            (0, 5, false, Some(ms(200))),
            (150, 5, false, Some(ms(50))),
            (190, 6, false, Some(ms(200))),
            (300, 6, false, Some(ms(90))),
            (390, 6, true, None),
        ] {
            steady.begin(ms(at));
            assert_eq!(steady.holds(path, Stamp::with_size(size), LIMIT), holds, "at {at}");
            assert_eq!(steady.end(), wait, "at {at}");
        }
    }

    #[test]
    fn forgets_what_is_gone_and_follows_a_rename() {
        let mut steady = Steady::default();
        steady.begin(ms(0));
        assert!(!steady.holds(Path::new("/a"), Stamp::with_size(1), LIMIT));
        assert!(!steady.holds(Path::new("/b"), Stamp::with_size(1), LIMIT));
        steady.end();
        steady.begin(ms(200));
        assert!(steady.holds(Path::new("/a"), Stamp::with_size(1), LIMIT));
        steady.renamed(Path::new("/a"), "/c".into());
        assert!(steady.holds(Path::new("/c"), Stamp::with_size(1), LIMIT));
        steady.end();
        steady.begin(ms(400));
        assert!(!steady.holds(Path::new("/b"), Stamp::with_size(1), LIMIT));
        assert!(!steady.holds(Path::new("/a"), Stamp::with_size(1), LIMIT));
    }
}
