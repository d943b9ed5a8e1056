//! What must hold at each step, whatever happens: fed event by event, as they are shown. Money, retries, numbers,
//! waits and cool-downs are kept here a second time, apart from the program's own state, and compared with it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use longhaul::domain::event::{AttemptFinished, Body, Event};
use longhaul::domain::ids::{EventId, MessageId, Token};
use longhaul::domain::ledger::Window;
use longhaul::domain::money::MicroUsd;
use longhaul::domain::state::{Reason, State, WaitReason};

/// The failures that use up a retry, by the policy table of the design.
const COSTS_A_RETRY: [&str; 7] =
    ["empty", "truncated", "crashed", "timed_out", "silent_hang", "unknown", "context_overflow"];

/// What ends an iteration.
const ENDS_ITERATION: [&str; 2] = ["completed", "cap_reached"];

/// What was seen so far.
#[derive(Debug, Default)]
pub struct Invariants {
    /// The program's own fold.
    state: State,
    ids: BTreeSet<EventId>,
    finished: u64,
    open: Option<u64>,
    attempts: u32,
    call: Option<Call>,
    spent: MicroUsd,
    limit: Option<MicroUsd>,
    retries: u32,
    wait: Option<(Timestamp, WaitReason)>,
    /// A wait ended before its time: what cut it comes next.
    cut: bool,
    paused: Option<Reason>,
    /// Accounts that are left alone: until when, or until a person says otherwise.
    out: BTreeMap<String, Option<Timestamp>>,
    queued: Vec<MessageId>,
    delivered: usize,
    /// What calls came to.
    pub outcomes: BTreeMap<String, u64>,
}

/// The call in flight.
#[derive(Debug)]
struct Call {
    token: Token,
    provider: String,
    reserved: Option<MicroUsd>,
    /// The budget when it was reserved.
    limit: Option<MicroUsd>,
}

/// `Err` with these words unless it holds.
macro_rules! holds {
    ($what:expr, $($words:tt)+) => {
        if !$what {
            return Err(format!($($words)+));
        }
    };
}

impl Invariants {
    /// Takes the next event in.
    ///
    /// # Errors
    /// What does not hold, in words.
    pub fn take(&mut self, event: &Event) -> Result<(), String> {
        self.check(event).map_err(|what| {
            let line = serde_json::to_string(event).unwrap_or_default();
            format!("event {}: {what}\n{line}\n{self:?}", event.seq)
        })
    }

    fn check(&mut self, event: &Event) -> Result<(), String> {
        holds!(event.seq == self.state.seq + 1, "it follows event {}", self.state.seq);
        holds!(self.ids.insert(event.id), "its id was there before");
        self.cut_by(&event.body)?;
        match &event.body {
            Body::SessionStarted(started) => {
                holds!(self.open.is_none() && self.call.is_none(), "another session still works");
                self.limit = started.limits.budget_usd.and_then(MicroUsd::from_usd);
                (self.finished, self.retries, self.spent) = (0, 0, MicroUsd::ZERO);
                (self.wait, self.paused) = (None, None);
                self.out.retain(|_, until| until.is_some());
            }
            Body::SessionResumed { limits, .. } => {
                self.limit = limits.budget_usd.and_then(MicroUsd::from_usd);
                self.out.retain(|_, until| until.is_some());
            }
            Body::LimitsChanged { limits, .. } => {
                self.limit = limits.budget_usd.and_then(MicroUsd::from_usd);
            }
            Body::SessionPaused { reason, .. } => {
                holds!(self.wait.is_none(), "it pauses and waits");
                self.paused = Some(*reason);
            }
            Body::SessionContinued { reason } => self.continued(*reason)?,
            // What was found in a pause is told once more when the program ends or starts for it.
            Body::SessionStopping { .. } => self.paused = None,
            Body::SessionFinished { .. } => {
                self.paused = None;
                holds!(self.call.is_none(), "a call outlives its session");
                holds!(self.wait.is_none(), "a wait outlives its session");
            }
            Body::IterationStarted {} => {
                holds!(self.open.is_none(), "iteration {:?} has not finished", self.open);
                holds!(event.iteration == Some(self.finished + 1), "it follows {}", self.finished);
                self.open = event.iteration;
                self.attempts = 0;
            }
            Body::IterationFinished { .. } => {
                holds!(event.iteration.is_some(), "it has no number");
                holds!(event.iteration == self.open, "iteration {:?} is in progress", self.open);
                self.finished = self.open.take().unwrap_or_default();
            }
            Body::AttemptStarted { token, reserved_usd, .. } => {
                self.call_begins(event, *token, reserved_usd.and_then(MicroUsd::from_usd))?;
            }
            Body::AttemptFinished(finished) => self.call_ends(event, finished)?,
            Body::WaitStarted { until, why, detail } => {
                holds!(self.wait.is_none(), "it waits already");
                holds!(self.call.is_none(), "a call is in flight");
                holds!(self.paused.is_none(), "it is paused");
                holds!(!detail.is_empty(), "nobody knows why");
                holds!(*until > event.time, "it is over already");
                self.wait = Some((*until, *why));
            }
            Body::WaitEnded { why } => {
                let (until, reason) = self.wait.take().ok_or("there was no wait")?;
                holds!(reason == *why, "it had begun for another reason: {reason}");
                // A budget has room again when its limit is raised, or other calls cost less than was set aside.
                self.cut = event.time < until && *why != WaitReason::BudgetExceeded;
            }
            Body::CoolDown { account, until, .. } => {
                holds!(until.is_none_or(|until| until > event.time), "a cool-down that is over at once");
                self.out.insert(account.clone(), *until);
            }
            Body::MessageQueued { id, .. } => {
                holds!(!self.queued.contains(id), "this message was taken before");
                self.queued.push(*id);
            }
            Body::MessageDelivered { id } => {
                holds!(self.queued.get(self.delivered) == Some(id), "delivered twice, or out of order");
                holds!(self.call.is_none(), "delivered before the call that read it has ended");
                self.delivered += 1;
            }
            Body::BudgetExceeded { window, limit_usd, spent_usd, overshoot_usd, .. }
                if *window != Window::Session =>
            {
                let micros = |usd: &f64| MicroUsd::from_usd(*usd).unwrap_or_default();
                let over = micros(spent_usd).minus(micros(limit_usd));
                holds!(
                    Some(over) == MicroUsd::from_usd(*overshoot_usd),
                    "the {} is over by {over}",
                    window.name()
                );
            }
            Body::BudgetReserved { usd, windows, .. } => {
                let micros = |usd: f64| MicroUsd::from_usd(usd).unwrap_or_default();
                for of in windows {
                    let sum = micros(of.spent_usd).plus(micros(of.reserved_usd)).plus(micros(*usd));
                    let within = sum <= micros(of.limit_usd);
                    holds!(within, "{sum} passes the limit of the {}", of.window.name());
                }
            }
            Body::BudgetExceeded { overshoot_usd, .. } => {
                let over = self.limit.map(|limit| self.spent.minus(limit));
                holds!(over == MicroUsd::from_usd(*overshoot_usd), "it is over by {over:?}");
            }
            _ => {}
        }
        self.state.apply(event);
        self.as_the_state_says()
    }

    /// A wait ends at its time, unless something cuts it: that is told next.
    fn cut_by(&mut self, body: &Body) -> Result<(), String> {
        let cuts = matches!(
            body,
            Body::SessionPaused { .. }
                | Body::SessionStopping { .. }
                | Body::SessionFinished { .. }
                | Body::SessionResumed { .. }
                | Body::ProviderSwitched { .. }
                | Body::WaitStarted { .. }
        );
        holds!(!std::mem::take(&mut self.cut) || cuts, "a wait ended before its time for no reason");
        Ok(())
    }

    fn continued(&mut self, reason: Reason) -> Result<(), String> {
        let paused = self.paused.take();
        holds!(paused == Some(reason), "it was paused for {paused:?}");
        match reason {
            Reason::AuthRequired | Reason::ProviderUnavailable | Reason::Refused => {
                self.out.retain(|_, until| until.is_some());
            }
            Reason::RetriesExhausted => self.retries = 0,
            _ => {}
        }
        Ok(())
    }

    fn call_begins(&mut self, event: &Event, token: Token, reserved: Option<MicroUsd>) -> Result<(), String> {
        holds!(self.call.is_none(), "two calls at once");
        holds!(self.wait.is_none(), "a call in the middle of a wait");
        holds!(self.paused.is_none(), "a call in the middle of a pause");
        holds!(self.open.is_some() && event.iteration == self.open, "iteration {:?} is open", self.open);
        self.attempts += 1;
        holds!(event.attempt == Some(self.attempts), "it is attempt {}", self.attempts);
        let provider = event.provider.clone().ok_or("a call of nobody")?;
        if let Some(until) = self.out.get(&provider) {
            holds!(until.is_some_and(|until| until <= event.time), "`{provider}` is left alone: {until:?}");
        }
        if let Some(limit) = self.limit {
            let reserved = reserved.ok_or("a budget, and nothing is set aside")?;
            holds!(self.spent.plus(reserved) <= limit, "{} and {reserved} pass {limit}", self.spent);
        }
        self.call = Some(Call { token, provider, reserved, limit: self.limit });
        Ok(())
    }

    fn call_ends(&mut self, event: &Event, finished: &AttemptFinished) -> Result<(), String> {
        let call = self.call.take().ok_or("no call was in flight")?;
        holds!(call.token == finished.token, "the call in flight is {}", call.token);
        holds!(event.provider.as_ref() == Some(&call.provider), "the call in flight is {}'s", call.provider);
        let outcome = finished.verdict.outcome.name();
        *self.outcomes.entry(outcome.to_owned()).or_default() += 1;
        let cost = finished.cost_usd.and_then(MicroUsd::from_usd);
        if let Some(limit) = call.limit {
            let cost = cost.ok_or("a budget, and nobody knows what the call cost")?;
            let beyond = cost.minus(call.reserved.unwrap_or_default());
            let spent = self.spent.plus(cost);
            holds!(spent <= limit.plus(beyond), "{spent} is more than {limit} and {beyond}");
        }
        self.spent = self.spent.plus(cost.unwrap_or_default());
        let counts = COSTS_A_RETRY.contains(&outcome);
        holds!(finished.counts == counts, "`{outcome}` uses a retry: {counts}");
        if ENDS_ITERATION.contains(&outcome) {
            self.retries = 0;
            self.out.remove(&call.provider);
        }
        self.retries += u32::from(counts);
        Ok(())
    }

    fn as_the_state_says(&self) -> Result<(), String> {
        let Some(session) = &self.state.session else { return Ok(()) };
        holds!(session.retries == self.retries, "the state has used {} retries", session.retries);
        holds!(session.budget.spent == self.spent, "the state has spent {}", session.budget.spent);
        holds!(session.finished == self.finished, "the state has finished {}", session.finished);
        let wait = session.wait.as_ref().map(|wait| (wait.until, wait.why));
        holds!(wait == self.wait, "the state waits: {wait:?}");
        let open = session.open.as_ref().map(|open| open.token);
        holds!(open == self.call.as_ref().map(|call| call.token), "the state has the call {open:?}");
        Ok(())
    }
}
