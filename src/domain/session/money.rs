//! Money: what a call may cost before it begins, and what it is booked at.

use std::time::Duration;

use super::boundary::later;
use super::input::Action;
use super::machine::Machine;
use crate::domain::accounts::Admission;
use crate::domain::event::{AttemptFinished, Body};
use crate::domain::ids::{LaneId, Token};
use crate::domain::ledger::{Booking, Call, Exceeded, Reservation, Use, Window};
use crate::domain::money::MicroUsd;
use crate::domain::state::{OpenAttempt, Reason, WaitReason};

/// How long a wait for calls in flight is said to last at most, where the window itself has no end.
const OTHERS: Duration = Duration::from_secs(300);

/// Between two looks at a window whose rest is set aside for calls in flight.
const LOOK: Duration = Duration::from_secs(1);

/// Between two looks at a window that is used up: a call that was cut is booked at its reservation until its own
/// session knows better.
const LOOK_SELDOM: Duration = Duration::from_secs(60);

/// Between two tries of a ledger that cannot be used.
const UNUSABLE: Duration = Duration::from_secs(60);

impl Machine {
    // --- what is known here ---

    /// The session's limit, if it has one.
    fn budget_limit(&self) -> Option<MicroUsd> {
        self.session()?.limits.budget_usd.and_then(MicroUsd::from_usd)
    }

    fn assumed(&self) -> Option<MicroUsd> {
        self.rules.assume_usd.and_then(MicroUsd::from_usd)
    }

    /// What a call of `provider` may cost; none: nothing limits it.
    pub(super) fn reservation(&self, provider: &str) -> Option<MicroUsd> {
        let limits = [self.budget_limit(), self.rules.windows.smallest(), self.rules.call_usd];
        let limit = limits.into_iter().flatten().min()?;
        let next = self.session()?.budget.next(limit, self.assumed());
        // A CLI that keeps the limit of one call itself does not go far beyond it.
        let cap = self.rules.call_usd.filter(|_| self.rules.capped.contains(provider));
        Some(cap.map_or(next, |cap| next.min(cap)))
    }

    /// The limit that a call of `provider` would pass, as far as that is known without the host.
    pub(super) fn over_limit(&self, provider: &str) -> Option<Exceeded> {
        let next = self.reservation(provider)?;
        let budget = &self.session()?.budget;
        let of = |window, limit, spent| Exceeded {
            of: Use { window, limit, spent, reserved: MicroUsd::ZERO, resets_at: None },
            next,
        };
        let session = self.budget_limit().filter(|limit| budget.would_pass(*limit, next));
        let session = session.map(|limit| of(Window::Session, limit, budget.spent));
        let call = self.rules.call_usd.filter(|limit| next > *limit);
        session.or_else(|| call.map(|limit| of(Window::Call, limit, MicroUsd::ZERO)))
    }

    /// The pause for money still has its cause.
    pub(super) fn budget_holds(&self) -> bool {
        let Some(session) = self.session() else { return false };
        if self.over_limit(session.provider()).is_some() {
            return true;
        }
        // What was found out with the last question holds until the limit is another one.
        let Some(over) = session.over else { return false };
        let now = match over.window {
            Window::Call => self.rules.call_usd,
            Window::Session => None,
            Window::Project | Window::Day | Window::Month => self.rules.windows.of(over.window),
        };
        if matches!(over.window, Window::Day | Window::Month) {
            // It was paused for because not even a new one has room for one call.
            let next = self.reservation(session.provider());
            return next.is_some_and(|next| now.is_some_and(|now| next > now));
        }
        MicroUsd::from_usd(over.limit_usd).is_some_and(|limit| now.is_some_and(|now| now <= limit))
    }

    // --- before a call ---

    /// What the ledger is asked, where a limit goes beyond the session.
    pub(super) fn ask_ledger(&mut self) -> Option<Box<Reservation>> {
        self.rules.windows.smallest()?;
        let token = Token(self.ids.next(self.now));
        let session = self.session()?;
        let usd = self.reservation(session.provider())?;
        let (iteration, attempt) = self.next_call()?;
        let call = Call { token, session: session.id, lane: LaneId(1), iteration, attempt };
        let (limits, ended) = (self.rules.windows, self.booking.clone());
        Some(Box::new(Reservation { call, usd, limits, ended }))
    }

    /// Iteration and attempt of the next call.
    pub(super) fn next_call(&self) -> Option<(u64, u32)> {
        let session = self.session()?;
        Some(if session.in_iteration() {
            (session.iteration, session.attempt + 1)
        } else {
            (session.finished + 1, 1)
        })
    }

    /// Sets money aside in the journal, where there is a limit.
    pub(super) fn reserve(&mut self, provider: &str, at: Option<(u64, u32, &str)>) -> Option<MicroUsd> {
        let reserved = self.reservation(provider)?;
        let session = self.session()?;
        let windows: Vec<_> = self.found.iter().map(Use::told).collect();
        let own = self.budget_limit().map(|limit| (Window::Session, session.budget.spent, limit));
        let tightest = self.found.iter().min_by_key(|of| of.limit.minus(of.spent.plus(of.reserved)));
        let told = own.or_else(|| tightest.map(|of| (of.window, of.spent, of.limit)));
        if let Some((window, spent, limit)) = told {
            let (usd, spent_usd, limit_usd) = (reserved.as_usd(), spent.as_usd(), limit.as_usd());
            self.push_at(Body::BudgetReserved { usd, spent_usd, limit_usd, window, windows }, at);
        }
        Some(reserved)
    }

    /// The call does not begin.
    pub(super) fn exceeded(&mut self, exceeded: Exceeded) {
        let Exceeded { of, .. } = exceeded;
        if exceeded.needs_person() {
            self.say_exceeded(exceeded);
            let (name, key) = (of.window.name(), of.window.key());
            // A limit of the host is set for all projects, mostly: the project's file is not where to raise it.
            let raise = if of.resets_at.is_some() {
                format!(
                    "a new {name} has no room for it either; raise {key} where it is set: \
                     `longhaul config show --origin`"
                )
            } else {
                format!("raise it with `longhaul config set {key} N`")
            };
            let detail =
                format!("the next call would pass the budget of the {name}: {}; {raise}", in_words(exceeded));
            return self.pause_with(Reason::BudgetExceeded, detail);
        }
        let told = self.session().and_then(|s| s.wait.as_ref());
        let told = told.filter(|wait| wait.why == WaitReason::BudgetExceeded && wait.until > self.now);
        let told = told.map(|wait| wait.until);
        // It may be over by the time that this is heard.
        let until = of.resets_at.or(told).unwrap_or_else(|| later(self.now, OTHERS));
        let until = until.max(later(self.now, LOOK));
        if told != Some(until) {
            self.end_wait();
            self.say_exceeded(exceeded);
        }
        let detail = format!(
            "the next call would pass the budget of the {}: {}; it goes on by itself, or when {} is raised",
            of.window.name(),
            in_words(exceeded),
            of.window.key()
        );
        let look = if exceeded.is_used_up() { LOOK_SELDOM } else { LOOK };
        self.wait_until(until, later(self.now, look), WaitReason::BudgetExceeded, detail);
    }

    fn say_exceeded(&mut self, exceeded: Exceeded) {
        let Exceeded { of, next } = exceeded;
        self.push(Body::BudgetExceeded {
            limit_usd: of.limit.as_usd(),
            spent_usd: of.spent.as_usd(),
            next_usd: next.as_usd(),
            overshoot_usd: of.spent.minus(of.limit).as_usd(),
            window: of.window,
            reserved_usd: of.reserved.as_usd(),
            resets_at: of.resets_at.filter(|_| !exceeded.needs_person()),
        });
    }

    /// Limits that nobody can look at are not passed: no call begins.
    pub(super) fn no_ledger(&mut self, why: &str) {
        let detail = format!(
            "whether the budget has room is not known: {why}; no call begins until that is mended, or the \
             limits beyond the session are \"none\""
        );
        self.wait_a_minute(detail);
    }

    /// A wait that is told once, however often it is looked at.
    fn wait_a_minute(&mut self, detail: String) {
        let told = self.session().and_then(|s| s.wait.as_ref());
        let told = told.filter(|wait| wait.why == WaitReason::BudgetExceeded && wait.until > self.now);
        let until = told.map_or_else(|| later(self.now, UNUSABLE), |wait| wait.until);
        self.wait(until, WaitReason::BudgetExceeded, detail);
    }

    /// A fail-over may have chosen a provider whose CLI does not keep the limit of one call.
    pub(super) fn over_with(&self, admission: &Admission) -> Option<Exceeded> {
        let (Admission::Granted(at) | Admission::Probe(at)) = admission else { return None };
        self.over_limit(self.session()?.chain.get(*at)?)
    }

    // --- after a call ---

    /// The call that was open comes to this: the ledger hears of it with the next question, and otherwise at leisure.
    pub(super) fn note_booking(&mut self, open: &OpenAttempt, finished: &AttemptFinished) {
        let Some(session) = self.session() else { return };
        let (iteration, attempt) = (session.iteration, session.attempt);
        let call = Call { token: finished.token, session: session.id, lane: open.lane, iteration, attempt };
        let (provider, began) = (open.provider.clone(), open.started);
        let (cost, unknown) = finished.booked();
        self.booking = Some(Booking { call, provider, began, ended: self.now, cost, unknown });
        self.late.push(Action::Book);
    }

    /// A call that cost more than was set aside for it may have passed a limit.
    pub(super) fn say_overshoot(&mut self, reserved: Option<MicroUsd>, cost: Option<MicroUsd>) {
        let (Some(reserved), Some(cost)) = (reserved, cost) else { return };
        let spent = self.session().map_or(MicroUsd::ZERO, |s| s.budget.spent);
        let own = self.budget_limit().map(|limit| Use {
            window: Window::Session,
            limit,
            spent,
            reserved: MicroUsd::ZERO,
            resets_at: None,
        });
        let found = std::mem::take(&mut self.found);
        let others = found.into_iter().map(|of| Use { spent: of.spent.plus(cost), ..of });
        // Others that began since then have left room for the reservation, not for more.
        let over = |of: &Use| of.spent > of.limit && cost > reserved;
        let over: Vec<Use> =
            own.into_iter().filter(|of| of.spent > of.limit).chain(others.filter(over)).collect();
        for of in over {
            self.say_exceeded(Exceeded { of, next: MicroUsd::ZERO });
        }
    }
}

fn in_words(Exceeded { of, next }: Exceeded) -> String {
    let mut text = format!("{} of {} spent", of.spent, of.limit);
    if of.reserved > MicroUsd::ZERO {
        text.push_str(&format!(", {} set aside for calls in flight", of.reserved));
    }
    text.push_str(&format!(", {next} expected"));
    text
}
