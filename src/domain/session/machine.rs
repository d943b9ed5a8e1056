//! One input at a time.

use jiff::{SignedDuration, Timestamp};

use super::boundary::later;
use super::input::{Action, AttemptReport, EndReason, Input, Rules, Signals, SwitchRequest};
use super::policy::advice;
use crate::domain::event::{Body, Draft};
use crate::domain::ids::{EventId, IdSource, LaneId, Token};
use crate::domain::ledger::{Booking, Use};
use crate::domain::money::MicroUsd;
use crate::domain::state::{Phase, Reason, Session, State, WaitReason};

/// Exit codes of the program that the session decides.
const DONE: u8 = 0;
const FAILED: u8 = 1;
const STOPPED: u8 = 3;
const NEEDS_PERSON: u8 = 5;

/// What a wall clock may go back by without having been set.
const SET_BACK: SignedDuration = SignedDuration::from_secs(1);

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
    pub(super) disk_known: bool,
    /// The lane is ready, with this process.
    pub(super) ready: Option<Option<(u32, u64)>>,
    generation: u64,
    pub(super) asks: u64,
    /// The call in flight finds out whether an account works again.
    pub(super) probing: bool,
    /// The last call that has ended, for the ledger.
    pub(super) booking: Option<Booking>,
    /// Windows beyond the session as the call in flight found them.
    pub(super) found: Vec<Use>,
    /// Calls lost in a row.
    pub(super) lost: u32,
    /// The tree before the first call is known.
    pub(super) base_known: bool,
    pub(super) staged: Option<(Rules, Vec<Body>)>,
    pub(super) switch: Option<String>,
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
            probing: false,
            booking: None,
            found: Vec::new(),
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
            Input::Disk(report) => self.disk_changed(report),
            Input::Ready(process) => {
                self.ready = Some(process);
                self.settle();
            }
            Input::Base { tree, git } => self.base(tree, git),
            Input::Admitted { ask, admission, news, money } => match self.step {
                Step::Admitting { ask: last } if last == ask => {
                    self.step = Step::Idle;
                    self.heard(news);
                    self.admitted(admission, money);
                }
                _ => self.turn_down(&admission, money),
            },
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
            Input::CredentialChanged => self.credential_changed(),
        }
        self.take_actions()
    }

    /// The session, with what is decided but not yet committed.
    pub fn session(&self) -> Option<&Session> {
        self.view.session.as_ref()
    }

    /// No change of settings waits to be taken in or to be committed.
    pub fn is_up_to_date(&self) -> bool {
        self.staged.is_none() && self.switch.is_none() && self.pending.is_empty()
    }

    pub(super) fn rebase(&mut self, state: &State, now: Timestamp) {
        let back = self.now.duration_since(now);
        if back > SET_BACK
            && let Some((until, ..)) = &mut self.not_before
        {
            // The wall clock was set back: a wait of ours takes no longer for that.
            *until = until.saturating_sub(back).unwrap_or(Timestamp::MIN);
        }
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

    pub(super) fn state(&self) -> Phase {
        self.session().map_or(Phase::Starting, |s| s.state)
    }

    pub(super) fn paused_for(&self) -> Option<Reason> {
        self.session().filter(|s| s.state == Phase::Paused).and_then(|s| s.reason)
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
    pub(super) fn watch_the_time(&mut self) {
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

    pub(super) fn end_wait(&mut self) {
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
            self.end_wait();
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
    pub(super) fn hold(&mut self) -> bool {
        if let Some(body) = self.disk.clone()
            && self.paused_for().is_none()
        {
            self.pause_for_disk(&body);
        }
        if let Some(detail) = self.signals.pause.clone()
            && self.paused_for().is_none()
        {
            // Found at a restart in the middle of a wait.
            self.end_wait();
            self.push(Body::SessionPaused { reason: Reason::Requested, detail, in_flight: false });
        }
        let Some(reason) = self.paused_for() else { return false };
        let holds = match reason {
            Reason::Requested => self.signals.pause.is_some(),
            Reason::DiskLow => self.disk.is_some() || !self.disk_known,
            Reason::BudgetExceeded => self.budget_holds(),
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

    pub(super) fn wait(&mut self, until: Timestamp, why: WaitReason, detail: String) {
        self.wait_until(until, until, why, detail);
    }

    /// Waits until a time, and looks again at another, earlier one.
    pub(super) fn wait_until(&mut self, until: Timestamp, look: Timestamp, why: WaitReason, detail: String) {
        let already =
            self.session().and_then(|s| s.wait.clone()).is_some_and(|w| w.until == until && w.why == why);
        if !already {
            self.end_wait();
            self.push(Body::WaitStarted { until, why, detail });
        }
        self.step = Step::Waiting;
        let look = look.min(until);
        self.arm(self.deadline().map_or(look, |deadline| deadline.min(look)));
    }

    pub(super) fn pause(&mut self, reason: Reason) {
        let provider = self.session().map_or(String::new(), |s| s.provider().to_owned());
        let credential = self.rules.credentials.get(&provider).cloned();
        self.pause_with(reason, advice(reason, &provider, credential.as_deref()));
    }

    pub(super) fn pause_with(&mut self, reason: Reason, detail: String) {
        self.end_wait();
        self.push(Body::SessionPaused { reason, detail, in_flight: false });
        self.step = Step::Idle;
        self.hold();
    }

    pub(super) fn finish(&mut self, state: Phase, reason: Reason, detail: String) {
        self.end_wait();
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
}
