//! One input at a time.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::boundary::later;
use super::input::{
    Action, AttemptReport, EndReason, GateReport, Input, Rules, Signals, Stop, SwitchRequest,
};
use super::policy::advice;
use crate::domain::accounts::Admission;
use crate::domain::backoff::Backoff;
use crate::domain::event::{Body, Draft};
use crate::domain::ids::{EventId, IdSource, LaneId, Token};
use crate::domain::money::MicroUsd;
use crate::domain::state::{Phase, Reason, Session, State, WaitReason};

/// Exit codes of the program that the session decides.
const DONE: u8 = 0;
const FAILED: u8 = 1;
const STOPPED: u8 = 3;
const NEEDS_PERSON: u8 = 5;

/// Before an attempt is made again that was lost with its actor.
const LOST: Backoff = Backoff {
    floor: Duration::from_millis(10),
    ..Backoff::new(Duration::from_millis(100), Duration::from_secs(30))
};

/// The state machine of one session with one lane.
#[derive(Debug)]
pub struct Machine {
    pub(super) rules: Rules,
    /// State as committed, and what is decided but not yet committed folded in.
    pub(super) view: State,
    /// Decided, not yet handed over for commit.
    pub(super) pending: Vec<Draft>,
    pub(super) actions: Vec<Action>,
    /// To be done after the next commit.
    pub(super) late: Vec<Action>,
    pub(super) step: Step,
    pub(super) ids: IdSource,
    /// The time of the input being handled.
    pub(super) now: Timestamp,
    /// Signal files as last told.
    pub(super) signals: Signals,
    /// A file system in use runs full.
    pub(super) disk: Option<Body>,
    /// Disk has spoken: until then a pause for want of space holds.
    disk_known: bool,
    /// The lane is ready, with this process.
    ready: Option<Option<(u32, u64)>>,
    generation: u64,
    asks: u64,
    /// Calls lost in a row.
    lost: u32,
    /// The tree before the first call is known.
    pub(super) base_known: bool,
    staged: Option<(Rules, Vec<Body>)>,
    switch: Option<String>,
    /// Before this time no attempt begins.
    pub(super) not_before: Option<(Timestamp, WaitReason, String)>,
}

/// What is in flight.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    /// Nothing.
    Idle,
    /// The lane makes itself ready.
    Preparing,
    /// The accounts were asked. What is pending stays so: the answer belongs to the same commit.
    Admitting { ask: u64 },
    /// A call.
    Calling { token: Token, ending: Option<EndReason> },
    /// Gates, after the attempt of this report.
    Gating { report: Box<AttemptReport>, ending: bool },
    /// A timer.
    Waiting,
    /// The program is about to end.
    Ended,
}

// === impl Machine ===

impl Machine {
    /// A machine that knows nothing is in flight. `ids` makes event ids, tokens and jitter.
    pub fn new(rules: Rules, state: &State, ids: IdSource, now: Timestamp) -> Self {
        Machine {
            rules,
            view: state.clone(),
            pending: Vec::new(),
            actions: Vec::new(),
            late: Vec::new(),
            step: Step::Idle,
            ids,
            now,
            signals: Signals::default(),
            disk: None,
            disk_known: false,
            ready: None,
            generation: 0,
            asks: 0,
            lost: 0,
            base_known: false,
            staged: None,
            switch: None,
            not_before: None,
        }
    }

    /// Takes one input in. `state` is the committed state as it is now.
    pub fn handle(&mut self, input: Input, state: &State, now: Timestamp) -> Vec<Action> {
        if self.step == Step::Ended {
            // The last word has been said.
            return Vec::new();
        }
        self.rebase(state, now);
        match input {
            Input::Signals(signals) => self.signals_changed(signals),
            Input::Disk(low) => self.disk_changed(low),
            Input::Ready(process) => {
                self.ready = Some(process);
                self.settle();
            }
            Input::Base { tree, git } => self.base(tree, git),
            Input::Admitted { ask, admission } => {
                if self.step == (Step::Admitting { ask }) {
                    self.step = Step::Idle;
                    self.admitted(admission);
                }
            }
            Input::AttemptEnded(report) => self.attempt_ended(*report),
            Input::GatesEnded { token, reports } => self.gates_ended(token, reports),
            Input::Timer(generation) if generation == self.generation => self.timer(),
            Input::Timer(_) => {}
            Input::Settings { rules, changes } => self.settings(*rules, changes),
            Input::Switch(SwitchRequest { to }) => {
                self.switch = Some(to);
                self.settle();
            }
            Input::NotReady { cause } => self.not_ready(cause),
            Input::LaneLost { token, cause } => self.lane_lost(token, &cause),
            Input::GatesLost => self.gates_lost(),
            Input::Nudge => self.settle(),
        }
        self.take_actions()
    }

    /// The provider that the next attempt would use, for readiness and for `status`.
    pub fn session(&self) -> Option<&Session> {
        self.view.session.as_ref()
    }

    /// Fencing token of the call in flight.
    pub fn calling(&self) -> Option<Token> {
        match self.step {
            Step::Calling { token, .. } => Some(token),
            _ => None,
        }
    }

    /// No change of settings waits to be taken in or to be committed.
    pub fn is_up_to_date(&self) -> bool {
        self.staged.is_none() && self.switch.is_none() && self.pending.is_empty()
    }

    pub(super) fn rebase(&mut self, state: &State, now: Timestamp) {
        self.now = now;
        self.view = state.clone();
        for draft in &self.pending {
            self.view.apply(&draft.clone().at(self.view.seq + 1));
        }
    }

    pub(super) fn take_actions(&mut self) -> Vec<Action> {
        if !matches!(self.step, Step::Admitting { .. }) {
            self.flush();
            self.settle_late();
        }
        std::mem::take(&mut self.actions)
    }

    /// Decides on an event: it takes part in all that is decided from here on.
    pub(super) fn push(&mut self, body: Body) {
        self.push_at(body, None);
    }

    pub(super) fn push_at(&mut self, body: Body, at: Option<(u64, u32, &str)>) {
        let session = self.view.session.as_ref();
        let (iteration, attempt, provider) = match at {
            Some((iteration, attempt, provider)) => {
                (Some(iteration), Some(attempt), Some(provider.to_owned()))
            }
            None => (session.map(|s| s.iteration).filter(|n| *n > 0), None, None),
        };
        let draft = Draft {
            id: EventId(self.ids.next(self.now)),
            time: self.now,
            session: session.map(|s| s.id),
            lane: at.map(|_| LaneId(1)),
            iteration,
            attempt,
            provider,
            body,
        };
        self.push_draft(draft);
    }

    pub(super) fn push_draft(&mut self, draft: Draft) {
        self.view.apply(&draft.clone().at(self.view.seq + 1));
        self.pending.push(draft);
    }

    /// Hands what was decided over for one commit.
    pub(super) fn flush(&mut self) {
        if !self.pending.is_empty() {
            self.actions.push(Action::Commit(std::mem::take(&mut self.pending)));
        }
    }

    /// What follows a commit without anybody waiting for it goes to the end.
    fn settle_late(&mut self) {
        if self.pending.is_empty() {
            let before_exit = self.actions.iter().position(|a| matches!(a, Action::Exit(_)));
            let at = before_exit.unwrap_or(self.actions.len());
            let late = std::mem::take(&mut self.late);
            self.actions.splice(at..at, late);
        }
    }

    pub(super) fn act(&mut self, action: Action) {
        self.flush();
        self.actions.push(action);
    }

    fn state(&self) -> Phase {
        self.session().map_or(Phase::Starting, |s| s.state)
    }

    fn paused_for(&self) -> Option<Reason> {
        self.session().filter(|s| s.state == Phase::Paused).and_then(|s| s.reason)
    }

    // --- signals ---

    fn signals_changed(&mut self, signals: Signals) {
        let resume = signals.resume;
        self.signals = Signals { resume: false, ..signals };
        if let Some(stop) = self.signals.stop.clone() {
            return self.stop(&stop);
        }
        if resume {
            if let Some(reason) = self.paused_for()
                && reason != Reason::DiskLow
                && self.signals.pause.is_none()
            {
                self.continue_from(reason);
            }
            self.act(Action::ConsumeResume);
        }
        match (self.signals.pause.clone(), self.paused_for()) {
            (Some(detail), reason) if reason != Some(Reason::Requested) => self.pause_requested(detail),
            (None, Some(reason @ Reason::Requested)) => {
                self.continue_from(reason);
                self.settle();
            }
            _ => self.settle(),
        }
    }

    /// A pause is over. What only a person could mend counts as mended.
    pub(super) fn continue_from(&mut self, reason: Reason) {
        if reason.ends_with_accounts() {
            self.readmit_accounts();
        }
        self.push(Body::SessionContinued { reason });
        if matches!(self.step, Step::Calling { .. }) {
            self.watch_the_time();
        }
    }

    /// Accounts that were out until a person says otherwise may be tried again.
    pub(super) fn readmit_accounts(&mut self) {
        let accounts = self.view.accounts.iter();
        let out = accounts.filter(|(_, a)| a.out && a.until.is_none()).map(|(name, _)| name.clone());
        let learned = out.map(|account| Action::Learned { account, out: None });
        self.actions.extend(learned.collect::<Vec<_>>());
    }

    fn stop(&mut self, stop: &Stop) {
        let grace = if stop.now { Duration::ZERO } else { self.rules.stop_grace };
        let was_stopping = self.state() == Phase::Stopping;
        match &mut self.step {
            Step::Calling { ending, .. } => {
                let again = *ending == Some(EndReason::Stop);
                *ending = Some(EndReason::Stop);
                if !again || stop.now {
                    // TERM first: the commit may be slow, the person must not wait for it.
                    self.actions.push(Action::EndCall { why: EndReason::Stop, grace });
                }
            }
            Step::Gating { ending, .. } => {
                let again = std::mem::replace(ending, true);
                if !again || stop.now {
                    self.actions.push(Action::EndGates { grace });
                }
            }
            _ => return self.settle(),
        }
        if !was_stopping {
            let (reason, detail, now) = (stop.reason, stop.detail.clone(), stop.now);
            self.push(Body::SessionStopping { reason, detail, now });
        }
    }

    fn pause_requested(&mut self, detail: String) {
        let in_flight = matches!(self.step, Step::Calling { .. } | Step::Gating { .. });
        if self.session().is_some_and(|s| s.wait.is_some()) {
            self.end_wait();
        }
        self.push(Body::SessionPaused { reason: Reason::Requested, detail, in_flight });
        if self.rules.pause_interrupts {
            self.interrupt(EndReason::Pause);
        }
        self.settle();
    }

    /// Ends a call in flight so that its iteration runs again later.
    fn interrupt(&mut self, why: EndReason) {
        if let Step::Calling { ending: ending @ None, .. } = &mut self.step {
            *ending = Some(why);
            self.actions.push(Action::EndCall { why, grace: self.rules.stop_grace });
        }
    }

    // --- disk ---

    fn disk_changed(&mut self, low: Option<Body>) {
        let before = self.disk.take();
        self.disk = low;
        self.disk_known = true;
        match (&before, self.disk.clone()) {
            (None, Some(body)) => {
                self.push(body.clone());
                self.interrupt(EndReason::Disk);
                if self.paused_for().is_none() {
                    self.pause_for_disk(&body);
                }
            }
            (Some(Body::DiskLow { path, .. }), None) => {
                let path = path.clone();
                self.push(Body::DiskRecovered { path, free_bytes: 0 });
                if self.paused_for() == Some(Reason::DiskLow) {
                    self.continue_from(Reason::DiskLow);
                }
            }
            _ => {}
        }
        self.settle();
    }

    pub(super) fn pause_for_disk(&mut self, body: &Body) {
        let detail = match body {
            Body::DiskLow { path, limit, .. } => {
                format!("{path}: {limit}; make room, the session goes on by itself")
            }
            _ => String::new(),
        };
        let in_flight = matches!(self.step, Step::Calling { .. } | Step::Gating { .. });
        if self.session().is_some_and(|s| s.wait.is_some()) {
            self.end_wait();
        }
        self.push(Body::SessionPaused { reason: Reason::DiskLow, detail, in_flight });
    }

    // --- settings ---

    fn settings(&mut self, rules: Rules, changes: Vec<Body>) {
        let mut said = self.staged.take().map_or_else(Vec::new, |(_, said)| said);
        said.extend(changes);
        self.staged = Some((rules, said));
        self.settle();
    }

    /// New settings and another provider come in where nothing is in flight.
    fn take_in_settings(&mut self) {
        if let Some((rules, changes)) = self.staged.take() {
            self.rules = rules;
            for change in changes {
                self.push(change);
            }
        }
        if let Some(to) = self.switch.take()
            && let Some(session) = self.session()
            && session.provider() != to
        {
            let from = session.provider().to_owned();
            self.push(Body::ProviderSwitched { from, to });
            self.not_before = None;
            let elsewhere =
                [Reason::AuthRequired, Reason::ProviderUnavailable, Reason::Refused, Reason::ContextOverflow];
            if let Some(reason) = self.paused_for().filter(|reason| elsewhere.contains(reason)) {
                self.continue_from(reason);
            }
        }
    }

    // --- going on ---

    /// Looks again where nothing is in flight, or only a wait.
    pub(super) fn settle(&mut self) {
        if !matches!(self.step, Step::Calling { .. } | Step::Gating { .. } | Step::Ended) {
            self.advance();
        }
    }

    fn timer(&mut self) {
        match self.step {
            Step::Calling { .. } if self.time_is_over() => self.interrupt(EndReason::Deadline),
            // The wall clock was set, or the host slept.
            Step::Calling { .. } => self.watch_the_time(),
            Step::Waiting => self.advance(),
            _ => {}
        }
    }

    fn time_is_over(&self) -> bool {
        self.session().is_some_and(|s| {
            s.state != Phase::Paused
                && s.limits.max_duration_ms.is_some_and(|limit| s.active_time_ms(self.now) >= limit)
        })
    }

    /// The server or the network is away for longer than is allowed.
    fn is_out_for_too_long(&self) -> bool {
        let since = self.session().and_then(|s| s.outage_since);
        since.zip(self.rules.max_outage).is_some_and(|(since, limit)| later(since, limit) <= self.now)
    }

    /// Wakes the machine when the time of the session is over in mid-call.
    fn watch_the_time(&mut self) {
        if let Some(deadline) = self.deadline() {
            self.arm(deadline);
        }
    }

    /// When the session's time is over if nothing pauses it.
    fn deadline(&self) -> Option<Timestamp> {
        let session = self.session().filter(|s| s.state != Phase::Paused)?;
        let left = session.limits.max_duration_ms?.saturating_sub(session.active_time_ms(self.now));
        let left = SignedDuration::from_millis(i64::try_from(left).unwrap_or(i64::MAX));
        self.now.checked_add(left).ok()
    }

    fn arm(&mut self, at: Timestamp) {
        self.generation += 1;
        let generation = self.generation;
        self.act(Action::Arm { at, generation });
    }

    fn end_wait(&mut self) {
        if let Some(wait) = self.session().and_then(|s| s.wait.clone()) {
            self.push(Body::WaitEnded { why: wait.why });
        }
    }

    /// Nothing is in flight: what now?
    pub(super) fn advance(&mut self) {
        self.step = Step::Idle;
        self.take_in_settings();
        let Some(session) = self.session() else { return };
        if session.ended() || session.state == Phase::Stopped {
            return;
        }
        if let Some(stop) = self.signals.stop.clone() {
            if session.wait.is_some() {
                self.end_wait();
            }
            if self.state() != Phase::Stopping {
                let (reason, detail, now) = (stop.reason, stop.detail.clone(), stop.now);
                self.push(Body::SessionStopping { reason, detail, now });
            }
            return self.finish(Phase::Stopped, stop.reason, stop.detail);
        }
        if self.hold() {
            return;
        }
        let Some(session) = self.session() else { return };
        if !session.in_iteration() {
            if session.limits.max_iterations.is_some_and(|max| session.finished >= max) {
                return self.finish(Phase::Finished, Reason::MaxIterations, String::new());
            }
            if session.unchanged >= self.rules.stagnation_pause && self.rules.stagnation_pause > 0 {
                return self.pause(Reason::Stagnated);
            }
        }
        if self.time_is_over() {
            return self.finish(Phase::Finished, Reason::MaxDuration, String::new());
        }
        if self.is_out_for_too_long() {
            let detail = "no call came through for longer than network.max_outage".to_owned();
            return self.finish(Phase::Failed, Reason::MaxOutage, detail);
        }
        if session.retries >= self.rules.retries && self.rules.retries > 0 {
            return self.pause(Reason::RetriesExhausted);
        }
        self.start_attempt();
    }

    /// A pause whose cause still holds.
    fn hold(&mut self) -> bool {
        if let Some(body) = self.disk.clone()
            && self.paused_for().is_none()
        {
            self.pause_for_disk(&body);
        }
        if let Some(detail) = self.signals.pause.clone()
            && self.paused_for().is_none()
        {
            self.push(Body::SessionPaused { reason: Reason::Requested, detail, in_flight: false });
        }
        let Some(reason) = self.paused_for() else { return false };
        let holds = match reason {
            Reason::Requested => self.signals.pause.is_some(),
            Reason::DiskLow => self.disk.is_some() || !self.disk_known,
            Reason::BudgetExceeded => self.over_budget().is_some(),
            _ => true,
        };
        if !holds {
            self.continue_from(reason);
            // Another cause may have been hidden behind this one.
            return self.hold();
        }
        if reason.needs_person() && !self.rules.wait {
            if self.pending.iter().all(|draft| !matches!(draft.body, Body::SessionPaused { .. })) {
                // It was paused before this start: whoever started it must hear why it ends at once.
                let detail = self.session().map_or(String::new(), |s| s.detail.clone());
                self.push(Body::SessionPaused { reason, detail, in_flight: false });
            }
            self.flush();
            self.step = Step::Ended;
            self.act(Action::Exit(NEEDS_PERSON));
        }
        true
    }

    fn start_attempt(&mut self) {
        if let Some((until, why, detail)) = self.not_before.clone()
            && until > self.now
        {
            return self.wait(until, why, detail);
        }
        self.not_before = None;
        if let Some((forecast, limit)) = self.over_budget() {
            let spent = self.session().map_or(MicroUsd::ZERO, |s| s.budget.spent);
            self.push(Body::BudgetExceeded {
                limit_usd: limit.as_usd(),
                spent_usd: spent.as_usd(),
                next_usd: forecast.as_usd(),
                overshoot_usd: spent.minus(limit).as_usd(),
            });
            return self.pause(Reason::BudgetExceeded);
        }
        if self.ready.is_none() {
            self.step = Step::Preparing;
            return self.act(Action::Prepare);
        }
        if !self.base_known {
            self.step = Step::Preparing;
            return;
        }
        let Some(session) = self.session() else { return };
        let (chain, active) = (session.chain.clone(), session.active);
        let known = self.view.accounts.clone();
        self.asks += 1;
        let ask = self.asks;
        self.step = Step::Admitting { ask };
        self.actions.push(Action::Admit { ask, chain, active, known });
    }

    fn admitted(&mut self, admission: Admission) {
        match admission {
            Admission::Granted(at) => {
                let Some(process) = self.ready.take() else { return self.advance() };
                if self.session().is_some_and(|s| s.wait.is_some()) {
                    self.end_wait();
                }
                self.begin_attempt(at, process);
            }
            Admission::Wait { until, account } => {
                let detail = format!("all accounts cool down; `{account}` is the first to be back");
                self.wait(until, WaitReason::CoolDown, detail);
            }
            Admission::Out { why } => self.pause(match why.as_str() {
                "auth_failed" => Reason::AuthRequired,
                "refused" => Reason::Refused,
                _ => Reason::ProviderUnavailable,
            }),
        }
    }

    fn begin_attempt(&mut self, at: usize, process: Option<(u32, u64)>) {
        let Some(session) = self.session() else { return };
        let from = session.provider().to_owned();
        let provider = session.chain.get(at).cloned().unwrap_or_default();
        if from != provider {
            let why = self.view.accounts.get(&from).map_or_else(
                || {
                    if at == 0 {
                        "back to the primary".to_owned()
                    } else {
                        "too many failures in a row".to_owned()
                    }
                },
                |account| account.why.clone(),
            );
            self.push(Body::Failover { from, to: provider.clone(), why });
        }
        let Some(session) = self.session() else { return };
        let fresh = !session.in_iteration();
        let iteration = if fresh { session.finished + 1 } else { session.iteration };
        let attempt = if fresh { 1 } else { session.attempt + 1 };
        let at = Some((iteration, attempt, provider.as_str()));
        if fresh {
            self.push_at(Body::IterationStarted {}, Some((iteration, 0, provider.as_str())));
            if let Some(draft) = self.pending.last_mut() {
                draft.attempt = None;
            }
        }
        let reserved = self.reservation();
        if let (Some(usd), Some(limit), Some(session)) = (reserved, self.budget_limit(), self.session()) {
            let (usd, spent_usd, limit_usd) = (usd.as_usd(), session.budget.spent.as_usd(), limit.as_usd());
            self.push_at(Body::BudgetReserved { usd, spent_usd, limit_usd }, at);
        }
        let token = Token(self.ids.next(self.now));
        let (pid, start_time) = process.unzip();
        self.push_at(
            Body::AttemptStarted {
                token,
                model: None,
                pid,
                start_time,
                reserved_usd: reserved.map(MicroUsd::as_usd),
            },
            at,
        );
        self.step = Step::Calling { token, ending: None };
        self.act(Action::Go { token, iteration, attempt, provider });
        self.watch_the_time();
    }

    pub(super) fn wait(&mut self, until: Timestamp, why: WaitReason, detail: String) {
        let already =
            self.session().and_then(|s| s.wait.clone()).is_some_and(|w| w.until == until && w.why == why);
        if !already {
            self.end_wait();
            self.push(Body::WaitStarted { until, why, detail });
        }
        self.step = Step::Waiting;
        let until = self.deadline().map_or(until, |deadline| deadline.min(until));
        self.arm(until);
    }

    pub(super) fn pause(&mut self, reason: Reason) {
        let provider = self.session().map_or(String::new(), |s| s.provider().to_owned());
        self.pause_with(reason, advice(reason, &provider));
    }

    pub(super) fn pause_with(&mut self, reason: Reason, detail: String) {
        if self.session().is_some_and(|s| s.wait.is_some()) {
            self.end_wait();
        }
        self.push(Body::SessionPaused { reason, detail, in_flight: false });
        self.step = Step::Idle;
        self.hold();
    }

    pub(super) fn finish(&mut self, state: Phase, reason: Reason, detail: String) {
        if self.session().is_some_and(|s| s.wait.is_some()) {
            self.end_wait();
        }
        let (iterations, spent) =
            self.session().map_or((0, MicroUsd::ZERO), |s| (s.finished, s.budget.spent));
        self.push(Body::SessionFinished { state, reason, detail, iterations, spent_usd: spent.as_usd() });
        self.leave(state);
    }

    /// The session has ended: so does the program.
    pub(super) fn leave(&mut self, state: Phase) {
        self.step = Step::Ended;
        if self.signals.stop.as_ref().is_some_and(|stop| stop.reason == Reason::Requested) {
            self.act(Action::ConsumeStop);
        }
        let code = match state {
            Phase::Finished => DONE,
            Phase::Stopped => STOPPED,
            _ => FAILED,
        };
        self.act(Action::Exit(code));
    }

    // --- budget ---

    /// The session's limit, if it has one.
    fn budget_limit(&self) -> Option<MicroUsd> {
        self.session()?.limits.budget_usd.and_then(MicroUsd::from_usd)
    }

    fn assumed(&self) -> Option<MicroUsd> {
        self.rules.assume_usd.and_then(MicroUsd::from_usd)
    }

    fn reservation(&self) -> Option<MicroUsd> {
        let limit = self.budget_limit()?;
        Some(self.session()?.budget.next(limit, self.assumed()))
    }

    /// `(forecast, limit)` when the next call would pass the limit.
    fn over_budget(&self) -> Option<(MicroUsd, MicroUsd)> {
        let limit = self.budget_limit()?;
        let next = self.session()?.budget.exceeded(limit, self.assumed())?;
        Some((next, limit))
    }

    // --- what was lost ---

    fn lane_lost(&mut self, lost: Option<Token>, cause: &str) {
        self.ready = None;
        match self.step {
            Step::Calling { token, .. } if lost.is_none_or(|lost| lost == token) => {
                self.step = Step::Idle;
                self.close_lost_attempt(token, cause);
                self.hold_off("the call was lost".to_owned());
                self.advance();
            }
            Step::Preparing if lost.is_none() => self.not_ready(cause.to_owned()),
            _ => {}
        }
    }

    fn not_ready(&mut self, cause: String) {
        if self.step == Step::Preparing {
            self.hold_off(cause);
            self.advance();
        }
    }

    /// What is lost again and again must not become a hot loop.
    fn hold_off(&mut self, cause: String) {
        let delay = LOST.delay(self.lost, None, self.ids.rng());
        self.lost = self.lost.saturating_add(1);
        self.not_before = Some((later(self.now, delay), WaitReason::BackOff, cause));
    }

    /// The gates that ran are lost with their actor: run again, unless they were being ended.
    fn gates_lost(&mut self) {
        match std::mem::replace(&mut self.step, Step::Idle) {
            Step::Gating { report, ending: true } if self.signals.stop.is_some() => {
                self.gates_done(&report, Vec::new());
            }
            Step::Gating { report, .. } => {
                let (token, names) = (report.token, self.due(&report));
                self.step = Step::Gating { report, ending: false };
                self.act(Action::RunGates { token, names });
            }
            other => self.step = other,
        }
    }

    fn gates_ended(&mut self, token: Token, reports: Vec<GateReport>) {
        match std::mem::replace(&mut self.step, Step::Idle) {
            Step::Gating { report, .. } if report.token == token => self.gates_done(&report, reports),
            other => self.step = other,
        }
    }

    fn attempt_ended(&mut self, report: AttemptReport) {
        match self.step {
            Step::Calling { token, .. } if token == report.token => {
                self.ready = Some(report.next).filter(Option::is_some);
                self.lost = 0;
                self.step = Step::Idle;
                self.judge(report);
            }
            // Late output of an older attempt: fenced off.
            _ => {}
        }
    }
}
