//! Money over windows: what one call may cost, a session, a project, and all projects of the host in a day and a month.
//!
//! The session's own limit is kept by [`Budget`](super::budget). What goes beyond a session is in the host's ledger,
//! one row a call: a call is admitted when its forecast fits into each window that has a limit, together with all that
//! was spent in it and all that is set aside for calls in flight, and is set aside with that.

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use serde::{Deserialize, Serialize};

use super::ids::{LaneId, SessionId, Token};
use super::money::MicroUsd;

/// What a limit is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Window {
    /// One call.
    Call,
    /// One session.
    #[default]
    Session,
    /// All sessions of a project.
    Project,
    /// All projects of the host, in a calendar day of its time zone. A call belongs to the day in which it began.
    Day,
    /// The same in a calendar month.
    Month,
}

/// The limits that go beyond a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WindowLimits {
    /// See [`Window::Project`].
    pub project: Option<MicroUsd>,
    /// See [`Window::Day`].
    pub day: Option<MicroUsd>,
    /// See [`Window::Month`].
    pub month: Option<MicroUsd>,
}

/// A call asks for money.
#[derive(Debug, Clone, PartialEq)]
pub struct Reservation {
    /// The call.
    pub call: Call,
    /// What it is expected to cost.
    pub usd: MicroUsd,
    /// What is in force now.
    pub limits: WindowLimits,
    /// The last call of this session, which has ended: its end may not be committed yet, and counts already.
    pub ended: Option<Booking>,
}

/// Which call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Its fencing token: its name in the ledger.
    pub token: Token,
    /// Its session.
    pub session: SessionId,
    /// Its lane.
    pub lane: LaneId,
    /// Its iteration.
    pub iteration: u64,
    /// Its attempt.
    pub attempt: u32,
}

/// What a call that has ended came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Booking {
    /// The call.
    pub call: Call,
    /// Its provider.
    pub provider: String,
    /// When it began.
    pub began: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
    /// What it is booked at; none: not known, and nothing was assumed.
    pub cost: Option<MicroUsd>,
    /// That is not what it is known to have cost.
    pub unknown: bool,
}

/// What the calls of a window come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Booked.
    pub spent: MicroUsd,
    /// Set aside for calls in flight.
    pub reserved: MicroUsd,
    /// How many.
    pub calls: u64,
    /// Those of them whose cost is not known.
    pub unknown_calls: u64,
}

/// A window with a limit, as a call that asks finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Use {
    /// Which.
    pub window: Window,
    /// Its limit.
    pub limit: MicroUsd,
    /// Booked.
    pub spent: MicroUsd,
    /// Set aside for other calls in flight.
    pub reserved: MicroUsd,
    /// When it begins anew; none: never.
    pub resets_at: Option<Timestamp>,
}

/// A call does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exceeded {
    /// Where.
    pub of: Use,
    /// Its forecast.
    pub next: MicroUsd,
}

/// What the ledger says to a [`Reservation`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Money {
    /// It is set aside.
    Reserved {
        /// For this call.
        token: Token,
        /// The windows before that.
        windows: Vec<Use>,
    },
    /// The call would pass a limit.
    Exceeded(Exceeded),
    /// Nobody knows: the ledger cannot be used.
    Unusable(String),
}

/// [`Use`] as events tell it, US dollars.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WindowUse {
    /// Which window.
    pub window: Window,
    /// Its limit.
    pub limit_usd: f64,
    /// Booked.
    pub spent_usd: f64,
    /// Set aside for other calls in flight.
    pub reserved_usd: f64,
}

/// The first window that a call of this forecast does not fit into: those that only a person ends come first, then
/// those that last longer.
pub fn judge(next: MicroUsd, windows: &[Use]) -> Option<Exceeded> {
    let passed = windows.iter().filter(|of| of.spent.plus(of.reserved).plus(next) > of.limit);
    // What calls in flight have set aside may come free at any time: a window that is really used up says more.
    let mut passed: Vec<Exceeded> = passed.map(|of| Exceeded { of: *of, next }).collect();
    passed.sort_by_key(|exceeded| {
        let Use { resets_at, .. } = exceeded.of;
        (!exceeded.needs_person(), !exceeded.is_used_up(), resets_at.is_some(), std::cmp::Reverse(resets_at))
    });
    passed.first().copied()
}

// === impl Window ===

impl Window {
    /// Those that the ledger keeps.
    pub const KEPT: [Window; 3] = [Window::Project, Window::Day, Window::Month];

    /// Its name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Window::Call => "call",
            Window::Session => "session",
            Window::Project => "project",
            Window::Day => "day",
            Window::Month => "month",
        }
    }

    /// The setting that limits it.
    pub fn key(self) -> &'static str {
        match self {
            Window::Call => "budget.call_usd",
            Window::Session => "budget.usd",
            Window::Project => "budget.project_usd",
            Window::Day => "budget.day_usd",
            Window::Month => "budget.month_usd",
        }
    }

    /// The present one: from its first instant to the first that is no longer in it. None: it has no bounds.
    pub fn bounds(self, now: Timestamp, zone: &TimeZone) -> Option<(Timestamp, Timestamp)> {
        let today = now.to_zoned_datetime(zone.clone()).date();
        let (first, next) = match self {
            Window::Call | Window::Session | Window::Project => return None,
            Window::Day => (today, today.checked_add(1.day()).ok()?),
            Window::Month => (today.first_of_month(), today.first_of_month().checked_add(1.month()).ok()?),
        };
        // Midnight itself may not exist, or come twice: the first instant of the day counts.
        let start = |day: jiff::civil::Date| Some(day.to_zoned_datetime(zone.clone()).ok()?.timestamp());
        Some((start(first)?, start(next)?))
    }
}

// === impl WindowLimits ===

impl WindowLimits {
    /// The limit of a window.
    pub fn of(&self, window: Window) -> Option<MicroUsd> {
        match window {
            Window::Call | Window::Session => None,
            Window::Project => self.project,
            Window::Day => self.day,
            Window::Month => self.month,
        }
    }

    /// The smallest of them; none: there is no limit.
    pub fn smallest(&self) -> Option<MicroUsd> {
        [self.project, self.day, self.month].into_iter().flatten().min()
    }
}

// === impl Use, Exceeded ===

impl Use {
    /// As events tell it.
    pub fn told(&self) -> WindowUse {
        WindowUse {
            window: self.window,
            limit_usd: self.limit.as_usd(),
            spent_usd: self.spent.as_usd(),
            reserved_usd: self.reserved.as_usd(),
        }
    }
}

impl Exceeded {
    /// What is booked leaves no room; otherwise it is only set aside, for calls in flight.
    pub fn is_used_up(&self) -> bool {
        self.of.spent.plus(self.next) > self.of.limit
    }

    /// No time makes room for it: the window does not begin anew, or is too small for the call when it does.
    pub fn needs_person(&self) -> bool {
        self.next > self.of.limit || (self.is_used_up() && self.of.resets_at.is_none())
    }
}

#[cfg(test)]
mod tests;
