//! The budget of one session: money is reserved before a call and settled after it, over all lanes together.
//!
//! What is spent and reserved never passes the limit, except by what a call in flight cost beyond its reservation;
//! that overshoot is told by [`Settled`].

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::money::MicroUsd;

/// Calls that the forecast looks back on.
const RECENT: usize = 20;

/// Fewer known costs than this say little about the spread: the forecast then takes the largest.
const ENOUGH: usize = 5;

/// Forecast for a call when nothing is known yet (half a dollar), at most a tenth of the limit.
const FIRST_CALL: MicroUsd = MicroUsd(500_000);

/// What was spent and reserved. Kept in the state.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Budget {
    /// `None`: no limit, but the figures are kept.
    limit: Option<MicroUsd>,
    /// Assumed cost of a call whose provider does not tell its costs.
    assume: Option<MicroUsd>,
    /// Booked: costs of calls that are over.
    spent: MicroUsd,
    /// The part of `spent` that no provider told: booked at its reservation.
    estimated: MicroUsd,
    /// Calls in flight, at most one a lane.
    open: Vec<Reservation>,
    /// Known costs of the last calls, newest last.
    recent: VecDeque<MicroUsd>,
    /// Number of the next reservation.
    next: u64,
}

/// Money that is set aside for one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// Number within the session.
    pub id: u64,
    /// The forecast of the call's cost.
    pub amount: MicroUsd,
}

/// Whether a call may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Yes; settle it when the call is over, however it ends.
    Granted(Reservation),
    /// No: the forecast would pass the limit.
    Exceeded {
        /// The forecast of the call's cost.
        forecast: MicroUsd,
        /// By how much it would pass the limit.
        by: MicroUsd,
    },
}

/// How a call was booked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settled {
    /// Added to what is spent.
    pub booked: MicroUsd,
    /// No provider told the cost: it is the reservation.
    pub estimated: bool,
    /// Cost beyond the reservation.
    pub beyond_reservation: MicroUsd,
    /// What is spent is now above the limit by this much.
    pub over_limit: MicroUsd,
}

/// The figures, for status and events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// The limit, if there is one.
    pub limit: Option<MicroUsd>,
    /// Booked.
    pub spent: MicroUsd,
    /// The part of `spent` that was booked without a told cost.
    pub estimated: MicroUsd,
    /// Set aside for calls in flight.
    pub reserved: MicroUsd,
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
    /// A budget that nothing was spent of. `assume` is `budget.assume_usd_per_call`.
    pub fn new(limit: Option<MicroUsd>, assume: Option<MicroUsd>) -> Self {
        Budget { limit, assume, ..Budget::default() }
    }

    /// Another limit or assumption from now on. A raised limit admits calls again; a lowered one stops the next.
    pub fn set_limits(&mut self, limit: Option<MicroUsd>, assume: Option<MicroUsd>) {
        self.limit = limit;
        self.assume = assume;
    }

    /// The forecast of the next call's cost: see [`forecast`].
    pub fn forecast(&self) -> MicroUsd {
        forecast(self.recent.iter().copied(), self.limit, self.assume)
    }

    /// Sets money aside for a call, if the limit leaves room for its forecast.
    pub fn reserve(&mut self) -> Admission {
        let amount = self.forecast();
        if let Some(limit) = self.limit {
            let wanted = self.spent.plus(self.reserved()).plus(amount);
            if wanted > limit {
                return Admission::Exceeded { forecast: amount, by: wanted.minus(limit) };
            }
        }
        let reservation = Reservation { id: self.next, amount };
        self.next = self.next.wrapping_add(1);
        self.open.push(reservation);
        Admission::Granted(reservation)
    }

    /// Books the call of reservation `id` at its cost in dollars, or at its reservation when the cost is not known
    /// (`None`, or no possible amount): a cut call is not a free call. `None` if `id` is not open: it was settled.
    pub fn settle(&mut self, id: u64, cost_usd: Option<f64>) -> Option<Settled> {
        let position = self.open.iter().position(|r| r.id == id)?;
        let reserved = self.open.swap_remove(position).amount;
        let told = cost_usd.and_then(MicroUsd::from_usd);
        let booked = told.unwrap_or(reserved);
        self.spent = self.spent.plus(booked);
        match told {
            Some(cost) => {
                self.recent.push_back(cost);
                if self.recent.len() > RECENT {
                    self.recent.pop_front();
                }
            }
            None => self.estimated = self.estimated.plus(booked),
        }
        Some(Settled {
            booked,
            estimated: told.is_none(),
            beyond_reservation: booked.minus(reserved),
            over_limit: self.limit.map_or(MicroUsd::ZERO, |limit| self.spent.minus(limit)),
        })
    }

    /// Gives a reservation back whose call never started. False if it is not open.
    pub fn release(&mut self, id: u64) -> bool {
        let before = self.open.len();
        self.open.retain(|r| r.id != id);
        self.open.len() < before
    }

    /// After a crash: books every call that was in flight at its reservation, oldest first.
    pub fn settle_cut(&mut self) -> Vec<(Reservation, Settled)> {
        let mut cut = self.open.clone();
        cut.sort_unstable_by_key(|r| r.id);
        cut.into_iter().filter_map(|r| self.settle(r.id, None).map(|settled| (r, settled))).collect()
    }

    /// Calls in flight.
    pub fn open(&self) -> &[Reservation] {
        &self.open
    }

    /// The figures as they are now.
    pub fn figures(&self) -> Figures {
        Figures { limit: self.limit, spent: self.spent, estimated: self.estimated, reserved: self.reserved() }
    }

    fn reserved(&self) -> MicroUsd {
        self.open.iter().fold(MicroUsd::ZERO, |sum, r| sum.plus(r.amount))
    }
}

#[cfg(test)]
mod tests;
