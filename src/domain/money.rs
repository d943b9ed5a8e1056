//! Money as whole micro-dollars: sums are exact, however many calls there are.

use std::fmt;

use serde::{Deserialize, Serialize};

/// US dollars in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MicroUsd(pub u64);

// === impl MicroUsd ===

impl MicroUsd {
    /// Nothing.
    pub const ZERO: MicroUsd = MicroUsd(0);
    /// The smallest amount that is not nothing.
    pub const SMALLEST: MicroUsd = MicroUsd(1);

    /// From dollars, rounded up to the next micro-dollar. `None` for a negative, infinite or undefined amount.
    pub fn from_usd(usd: f64) -> Option<Self> {
        if !usd.is_finite() || usd < 0.0 {
            return None;
        }
        // A printed price such as 0.07 is a little more or less in binary: do not round that up.
        let micros = (usd * 1e6 - 1e-3).ceil().max(0.0);
        Some(MicroUsd(micros as u64)) // saturates
    }

    /// In dollars, for events and people.
    pub fn as_usd(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The sum, at most the largest amount.
    pub fn plus(self, other: Self) -> Self {
        MicroUsd(self.0.saturating_add(other.0))
    }

    /// What is left after `other`, at least nothing.
    pub fn minus(self, other: Self) -> Self {
        MicroUsd(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for MicroUsd {
    /// Cents, or all six places where cents would hide something.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (dollars, micros) = (self.0 / 1_000_000, self.0 % 1_000_000);
        if micros % 10_000 == 0 {
            write!(f, "${dollars}.{:02}", micros / 10_000)
        } else {
            write!(f, "${dollars}.{micros:06}")
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn dollars_become_micro_dollars() {
        let table = [
            (0.0, Some(0)),
            (0.07, Some(70_000)),
            (9.99, Some(9_990_000)),
            (0.000_000_4, Some(1)),
            (1e30, Some(u64::MAX)),
            (-0.01, None),
            (f64::NAN, None),
            (f64::INFINITY, None),
        ];
        for (usd, micros) in table {
            assert_eq!(MicroUsd::from_usd(usd).map(|m| m.0), micros, "{usd}");
        }
    }

    #[test]
    fn shown_in_cents_unless_that_would_hide_something() {
        assert_eq!(MicroUsd(9_990_000).to_string(), "$9.99");
        assert_eq!(MicroUsd(12_000_000).to_string(), "$12.00");
        assert_eq!(MicroUsd(1).to_string(), "$0.000001");
    }

    proptest! {
        #[test]
        fn a_sum_has_no_drift(cents in prop::collection::vec(0_u64..10_000, 0..200)) {
            let sum = cents.iter().fold(MicroUsd::ZERO, |sum, c| {
                sum.plus(MicroUsd::from_usd(*c as f64 / 100.0).unwrap())
            });
            prop_assert_eq!(sum.0, cents.iter().sum::<u64>() * 10_000);
        }

        #[test]
        fn micro_dollars_survive_the_way_through_dollars(micros in 0_u64..1_000_000_000_000) {
            prop_assert_eq!(MicroUsd::from_usd(MicroUsd(micros).as_usd()), Some(MicroUsd(micros)));
        }
    }
}
