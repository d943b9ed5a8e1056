//! When a file system counts as full, and when it has room again.

use std::time::Duration;

use super::event::Body;

/// When a file system counts as full.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DiskLimits {
    /// Fewer free bytes than this; 0: not looked at.
    pub min_free: u64,
    /// Fewer free inodes than this; 0: not looked at.
    pub min_inodes: u64,
    /// It has room again at this multiple of the limits.
    pub resume_factor: f64,
    /// How often to look.
    pub interval: Duration,
}

/// What a look at one file system gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Space {
    /// A path on it: one of those that we write.
    pub path: String,
    /// Bytes that may still be written without special rights.
    pub free_bytes: u64,
    /// Inodes that may still be made; none where the file system has no such limit.
    pub free_inodes: Option<u64>,
    /// Writing was tried, and there was no room for it: a quota, or blocks that are reserved.
    pub write_failed: bool,
}

/// What a session is told about its disks.
#[derive(Debug, Clone, PartialEq)]
pub enum DiskReport {
    /// A file system in use runs full: the `disk_low` event about it.
    Low(Body),
    /// All of them have room.
    Room {
        /// Free bytes where there is least, or of the one that was low before.
        free_bytes: u64,
    },
}

/// What stands in short supply, the first that applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shortage {
    /// Bytes.
    Bytes,
    /// Inodes.
    Inodes,
    /// Writing fails although enough seems free.
    Writes,
}

// === impl Space ===

impl Space {
    /// What it lacks. A file system that lacked something `before` needs `resume_factor` times the limits to be rid
    /// of it, so that it does not flap around them.
    pub fn shortage(&self, limits: &DiskLimits, before: Option<Shortage>) -> Option<Shortage> {
        let factor = if before.is_some() { limits.resume_factor.max(1.0) } else { 1.0 };
        if self.free_bytes < scaled(limits.min_free, factor) {
            Some(Shortage::Bytes)
        } else if self.free_inodes.is_some_and(|free| free < scaled(limits.min_inodes, factor)) {
            Some(Shortage::Inodes)
        } else if self.write_failed {
            Some(Shortage::Writes)
        } else {
            None
        }
    }

    /// The event about it.
    pub fn low(&self, limits: &DiskLimits, shortage: Shortage) -> Body {
        let free = bytes(self.free_bytes);
        let limit = match shortage {
            Shortage::Bytes => format!(
                "{free} free, less than disk.min_free = {}; it goes on at {}",
                bytes(limits.min_free),
                bytes(scaled(limits.min_free, limits.resume_factor.max(1.0)))
            ),
            Shortage::Inodes => format!(
                "{} inodes free, less than disk.min_inodes = {}, with {free} of space; it goes on at {}",
                self.free_inodes.unwrap_or(0),
                limits.min_inodes,
                scaled(limits.min_inodes, limits.resume_factor.max(1.0))
            ),
            Shortage::Writes => {
                format!("writing fails for want of space although {free} are free: is there a quota?")
            }
        };
        Body::DiskLow {
            path: self.path.clone(),
            free_bytes: self.free_bytes,
            free_inodes: self.free_inodes,
            limit,
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a limit times a small positive factor; float casts saturate"
)]
fn scaled(limit: u64, factor: f64) -> u64 {
    (limit as f64 * factor) as u64
}

/// Bytes for people: three digits are enough.
#[expect(clippy::cast_precision_loss, reason = "for display")]
fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if n < 1000 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1000.0;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = usize::from(value < 9.95);
    format!("{value:.digits$} {}", UNITS.get(unit).unwrap_or(&"PB"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: DiskLimits = DiskLimits {
        min_free: 100_000_000,
        min_inodes: 1000,
        resume_factor: 1.5,
        interval: Duration::from_secs(2),
    };

    fn space(free_bytes: u64, free_inodes: Option<u64>) -> Space {
        Space { path: "/p".to_owned(), free_bytes, free_inodes, write_failed: false }
    }

    #[test]
    fn limits_and_their_hysteresis() {
        use Shortage::{Bytes, Inodes, Writes};
        for (bytes, inodes, before, after) in [
            (100_000_000, Some(1000), None, None),
            (99_999_999, Some(1000), None, Some(Bytes)),
            (100_000_000, Some(999), None, Some(Inodes)),
            (100_000_000, None, None, None),
            (149_999_999, None, Some(Bytes), Some(Bytes)),
            (150_000_000, None, Some(Bytes), None),
            (150_000_000, Some(1499), Some(Inodes), Some(Inodes)),
            (150_000_000, Some(1499), Some(Bytes), Some(Inodes)),
            (150_000_000, Some(1500), Some(Inodes), None),
            (0, Some(0), Some(Writes), Some(Bytes)),
        ] {
            assert_eq!(
                space(bytes, inodes).shortage(&LIMITS, before),
                after,
                "{bytes} {inodes:?} {before:?}"
            );
        }
        let failed = Space { write_failed: true, ..space(1 << 40, None) };
        assert_eq!(failed.shortage(&LIMITS, None), Some(Writes));
        let off = DiskLimits { min_free: 0, min_inodes: 0, ..LIMITS };
        assert_eq!(space(0, Some(0)).shortage(&off, Some(Bytes)), None);
    }

    #[test]
    fn says_which_limit_and_what_is_enough() {
        let Body::DiskLow { limit, .. } = space(12_345_678, Some(20)).low(&LIMITS, Shortage::Bytes) else {
            panic!("another event");
        };
        assert_eq!(limit, "12 MB free, less than disk.min_free = 100 MB; it goes on at 150 MB");
        let Body::DiskLow { limit, .. } = space(1_040_000, Some(20)).low(&LIMITS, Shortage::Inodes) else {
            panic!("another event");
        };
        assert!(
            limit.starts_with("20 inodes free, less than disk.min_inodes = 1000, with 1.0 MB"),
            "{limit}"
        );
    }

    #[test]
    fn sizes_for_people() {
        for (n, text) in
            [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (999_499, "999 kB"), (999_600, "1.0 MB")]
        {
            assert_eq!(bytes(n), text);
        }
        assert_eq!(bytes(u64::MAX), "18447 PB");
    }

    proptest! {
        #[test]
        fn more_room_is_never_worse(bytes in 0u64..400_000_000, more in 0u64..400_000_000, before: bool) {
            let before = before.then_some(Shortage::Bytes);
            if space(bytes, None).shortage(&LIMITS, before).is_none() {
                prop_assert_eq!(space(bytes + more, None).shortage(&LIMITS, before), None);
            }
        }
    }
}
