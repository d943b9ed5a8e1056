//! The budget of one session: what was spent, what is set aside for the call in flight, what the next may cost.
//!
//! What is spent and reserved never passes the limit, except by what a call in flight cost beyond its reservation.

use serde::{Deserialize, Serialize};

use super::money::MicroUsd;

/// How many of the last known costs a forecast looks at.
const RECENT: usize = 20;

/// From this many known costs on a forecast may leave out the dearest tenth.
const ENOUGH: usize = 5;

/// What a first call is taken to cost when nothing is known: an agent's turn with a large model.
const FIRST_CALL: MicroUsd = MicroUsd(500_000);

/// Money of one session. A fold over its attempts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Budget {
    /// Booked.
    pub spent: MicroUsd,
    /// Set aside for calls in flight.
    pub reserved: MicroUsd,
    /// Calls whose cost is not known, and not in `spent`.
    pub unknown_calls: u64,
    /// Known costs of the latest calls that came to something, oldest first.
    pub recent: Vec<MicroUsd>,
}

/// The forecast of a call's cost, never nothing: the 90th percentile of the last known costs; with few of them the
/// largest, and not less than what is assumed; with none what is assumed, or a cautious first guess.
pub fn forecast(
    recent: impl IntoIterator<Item = MicroUsd>,
    limit: Option<MicroUsd>,
    assume: Option<MicroUsd>,
) -> MicroUsd {
    let mut known: Vec<MicroUsd> = recent.into_iter().collect();
    known.sort_unstable();
    let forecast = match known.last() {
        None => {
            assume.unwrap_or_else(|| limit.map_or(FIRST_CALL, |limit| MicroUsd(limit.0 / 10).min(FIRST_CALL)))
        }
        Some(largest) if known.len() < ENOUGH => assume.unwrap_or_default().max(*largest),
        // Nearest rank: the smallest cost that nine of ten calls did not pass.
        Some(largest) => known.get((known.len() * 9).div_ceil(10) - 1).copied().unwrap_or(*largest),
    };
    forecast.max(MicroUsd::SMALLEST)
}

// === impl Budget ===

impl Budget {
    /// A call begins, with this set aside for it.
    pub fn reserve(&mut self, usd: Option<f64>) {
        self.reserved = usd.and_then(MicroUsd::from_usd).unwrap_or_default();
    }

    /// A call is over. `typical`: its cost says something about the next one's.
    pub fn book(&mut self, usd: Option<f64>, typical: bool) {
        self.reserved = MicroUsd::ZERO;
        let Some(cost) = usd.and_then(MicroUsd::from_usd) else {
            self.unknown_calls = self.unknown_calls.saturating_add(1);
            return;
        };
        self.spent = self.spent.plus(cost);
        if typical {
            self.recent.push(cost);
            if self.recent.len() > RECENT {
                self.recent.remove(0);
            }
        }
    }

    /// What the next call may cost under `limit`.
    pub fn next(&self, limit: MicroUsd, assume: Option<MicroUsd>) -> MicroUsd {
        forecast(self.recent.iter().copied(), Some(limit), assume)
    }

    /// A call of this forecast would pass `limit`.
    pub fn would_pass(&self, limit: MicroUsd, next: MicroUsd) -> bool {
        self.spent.plus(self.reserved).plus(next) > limit
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn usd(dollars: f64) -> MicroUsd {
        MicroUsd::from_usd(dollars).unwrap()
    }

    #[test]
    fn bd_004_a_call_that_would_pass_the_limit_is_not_admitted() {
        let mut budget = Budget::default();
        for _ in 0..9 {
            budget.book(Some(1.11), true);
        }
        assert_eq!(budget.spent, usd(9.99));
        assert_eq!(budget.next(usd(10.0), None), usd(1.11));
        assert!(budget.would_pass(usd(10.0), usd(1.11)));
        assert!(!budget.would_pass(usd(11.10), usd(1.11)), "a raised limit admits it");
    }

    #[test]
    fn a_forecast_follows_what_calls_cost() {
        let of = |costs: &[f64], assume: Option<f64>| {
            forecast(costs.iter().map(|c| usd(*c)), Some(usd(10.0)), assume.map(usd))
        };
        assert_eq!(of(&[], None), usd(0.5), "a cautious first guess");
        assert_eq!(of(&[], Some(0.07)), usd(0.07));
        assert_eq!(of(&[0.2, 0.4], None), usd(0.4));
        assert_eq!(of(&[0.2, 0.4], Some(1.0)), usd(1.0), "two calls say little");
        let mut ten = vec![0.1; 9];
        ten.push(5.0);
        assert_eq!(of(&ten, Some(1.0)), usd(0.1), "nine of ten did not pass it");
    }

    #[test]
    fn unknown_is_not_nothing() {
        let mut budget = Budget::default();
        budget.book(None, true);
        assert_eq!((budget.unknown_calls, budget.spent), (1, MicroUsd::ZERO));
        assert!(budget.next(usd(10.0), None) > MicroUsd::ZERO);
    }

    proptest! {
        /// Whatever calls cost, an admitted call that keeps to its forecast does not pass the limit.
        #[test]
        fn admitted_calls_keep_the_limit(costs in proptest::collection::vec(0.0..5.0_f64, 0..40), limit in 0.5..20.0_f64) {
            let (mut budget, limit) = (Budget::default(), usd(limit));
            for cost in costs {
                let next = budget.next(limit, None);
                if budget.would_pass(limit, next) {
                    break;
                }
                budget.reserve(Some(next.as_usd()));
                prop_assert!(budget.spent.plus(budget.reserved) <= limit);
                let cost = cost.min(next.as_usd());
                budget.book(Some(cost), true);
                prop_assert!(budget.spent <= limit);
            }
        }
    }
}
