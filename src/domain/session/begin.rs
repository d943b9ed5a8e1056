//! How a session starts, or goes on after a stop or a crash.

use jiff::Timestamp;

use super::input::{Action, Signals};
use super::machine::Machine;
use super::policy::policy;
use crate::domain::accounts::Lesson;
use crate::domain::event::{AttemptFinished, Body, Draft, Mode, SessionStarted};
use crate::domain::ids::{EventId, SessionId, Token};
use crate::domain::outcome::{AccountScope, Evidence, Outcome, Usage, Verdict};
use crate::domain::state::{Limits, Override, Phase, State, Wait, WaitReason, checkpoint_ref};

/// What the command line and the project say at the start.
#[derive(Debug, Clone, PartialEq)]
pub struct Begin {
    /// A new session even if the last one could go on.
    pub fresh: bool,
    /// Version of Longhaul.
    pub version: String,
    /// The project's folder.
    pub project: String,
    /// `spec` or `analysis`.
    pub mode: Mode,
    /// `simple`, `standard` or `complex`.
    pub complexity: String,
    /// The spec's path.
    pub spec: Option<String>,
    /// What it may use; of a session that goes on, what the command line does not say stays.
    pub limits: Limits,
    /// The provider chain, primary first.
    pub chain: Vec<String>,
    /// Settings of the command line.
    pub overrides: Vec<Override>,
    /// `--agent`, in words.
    pub agent: Vec<String>,
    /// Events about what was found on the way: a damaged state, a strange spec, a missing capability.
    pub found: Vec<Body>,
}

// === impl Machine ===

impl Machine {
    /// Begins: starts a session or goes on with the last one, and takes the first step.
    pub fn begin(
        &mut self,
        mut begin: Begin,
        signals: Signals,
        state: &State,
        now: Timestamp,
    ) -> Vec<Action> {
        self.rebase(state, now);
        let resume = signals.resume;
        self.signals = Signals { resume: false, ..signals };
        let goes_on = !begin.fresh && self.view.session.as_ref().is_some_and(|s| !s.ended());
        // To start the program is a person's word, too: what was out for want of one is tried again.
        self.late.push(Action::Readmit { chain: begin.chain.clone() });
        // What an earlier program has not told the ledger.
        self.late.push(Action::Book);
        if goes_on {
            self.go_on(&begin);
        } else {
            let found = std::mem::take(&mut begin.found);
            self.start(&begin, found);
        }
        for body in std::mem::take(&mut begin.found) {
            self.push(body);
        }
        if resume {
            if let Some(reason) = self.session().filter(|s| s.state == Phase::Paused).and_then(|s| s.reason) {
                self.continue_from(reason);
            }
            self.late.push(Action::ConsumeResume);
        }
        self.advance();
        self.take_actions()
    }

    /// A restarted Session actor goes on with the session that its supervisor still runs: nothing is said about a
    /// crash of the program, but the call in flight is lost.
    pub fn recover(&mut self, signals: Signals, state: &State, now: Timestamp) -> Vec<Action> {
        self.rebase(state, now);
        self.signals = Signals { resume: false, ..signals };
        let Some(session) = self.session().cloned() else { return Vec::new() };
        if matches!(session.state, Phase::Finished | Phase::Failed | Phase::Stopped) {
            // It died after the last commit, before it could say so.
            self.keep_last_checkpoint();
            self.leave(session.state);
            return self.take_actions();
        }
        if let Some(open) = session.open {
            self.close_lost_attempt(open.token, "the session actor was restarted");
        }
        if let Some(wait) = session.wait {
            self.keep_waiting(&wait);
        }
        self.keep_last_checkpoint();
        self.advance();
        self.take_actions()
    }

    /// The time of a wait is kept: a restart must not turn a back-off into a hot loop. How long an account cools
    /// down is known to the accounts.
    fn keep_waiting(&mut self, wait: &Wait) {
        // Whether a budget has room is known to the ledger.
        if !matches!(wait.why, WaitReason::CoolDown | WaitReason::BudgetExceeded) {
            self.not_before = Some((wait.until, wait.why, "continued after a restart".to_owned()));
        }
    }

    /// Its ref follows the commit: it may be missing.
    fn keep_last_checkpoint(&mut self) {
        let last = self.session().and_then(|s| s.checkpoint.as_ref()).filter(|c| c.reference.is_some());
        if let Some(number) = last.map(|checkpoint| checkpoint.number) {
            self.late.push(Action::Checkpoint { number });
        }
    }

    fn start(&mut self, begin: &Begin, found: Vec<Body>) {
        if let Some(token) = self.session().and_then(|s| s.open.as_ref()).map(|open| open.token) {
            self.close_lost_attempt(token, "the supervisor had died");
        }
        let id = SessionId(self.ids.next(self.now));
        let started = SessionStarted {
            version: begin.version.clone(),
            project: begin.project.clone(),
            mode: begin.mode,
            complexity: begin.complexity.clone(),
            spec: begin.spec.clone(),
            limits: begin.limits.clone(),
            chain: begin.chain.clone(),
            overrides: begin.overrides.clone(),
            agent: begin.agent.clone(),
        };
        // What was noticed on the way comes first: the class of the job rests on it.
        for body in found {
            self.push_first(id, None, body);
        }
        self.push_first(id, begin.chain.first().cloned(), Body::SessionStarted(Box::new(started)));
    }

    /// An event of a session that is only about to begin.
    fn push_first(&mut self, id: SessionId, provider: Option<String>, body: Body) {
        let event = EventId(self.ids.next(self.now));
        self.push_draft(Draft {
            id: event,
            time: self.now,
            session: Some(id),
            lane: None,
            iteration: None,
            attempt: None,
            provider,
            body,
        });
    }

    fn go_on(&mut self, begin: &Begin) {
        let Some(session) = self.session() else { return };
        let (from, reason) = (session.state, session.reason);
        let open = session.open.as_ref().map(|open| open.token);
        let died = matches!(from, Phase::Starting | Phase::Running | Phase::Waiting | Phase::Stopping);
        if died {
            self.push(Body::SessionCrashed { found: from });
        }
        if let Some(token) = open {
            self.close_lost_attempt(token, "the supervisor had died");
        }
        if let Some(wait) = self.session().and_then(|s| s.wait.clone()) {
            if self.session().is_some_and(|s| s.chain == begin.chain) {
                self.keep_waiting(&wait);
            }
            self.push(Body::WaitEnded { why: wait.why });
        }
        self.push(Body::SessionResumed {
            from,
            reason,
            version: begin.version.clone(),
            limits: begin.limits.clone(),
            chain: begin.chain.clone(),
            spec: begin.spec.clone(),
            mode: begin.mode,
            complexity: begin.complexity.clone(),
            overrides: begin.overrides.clone(),
            agent: begin.agent.clone(),
        });
        self.keep_last_checkpoint();
    }

    /// The attempt did not live to say how it ended: it is closed as cancelled, and booked at its reservation.
    pub(super) fn close_lost_attempt(&mut self, token: Token, cause: &str) {
        let Some(session) = self.session() else { return };
        let Some(open) = session.open.clone().filter(|open| open.token == token) else { return };
        let (iteration, attempt) = (session.iteration, session.attempt);
        let (cost, cost_source) = match (open.reserved_usd, self.rules.assume_usd) {
            (Some(reserved), _) => (Some(reserved), "reservation"),
            (None, Some(assumed)) => (Some(assumed), "assumed"),
            (None, None) => (None, "unknown"),
        };
        let outcome = Outcome::Cancelled;
        let finished = AttemptFinished {
            token,
            counts: policy(&outcome).counts(),
            verdict: Verdict {
                outcome,
                scope: AccountScope::None,
                evidence: Evidence { source: "none".to_owned(), text: cause.to_owned() },
                rule: "longhaul.attempt_lost".to_owned(),
                warning: None,
            },
            usage: Usage::default(),
            cost_usd: cost,
            cost_source: cost_source.to_owned(),
            duration_ms: crate::domain::state::millis_between(open.started, self.now),
            exit: None,
            conversation: None,
            conversation_usd: None,
            conversation_home: None,
            resumed: None,
            tools: 0,
            answer: String::new(),
            strays: 0,
            tree: None,
            extra: std::collections::BTreeMap::new(),
        };
        self.note_booking(&open, &finished);
        self.found.clear();
        self.push_at(
            Body::AttemptFinished(Box::new(finished)),
            Some((iteration, attempt, open.provider.as_str())),
        );
        self.probing = false;
        self.actions.push(Action::Learned { account: open.provider, lesson: Lesson::Nothing });
    }

    /// The tree before the first call is known: with it comes checkpoint 0.
    pub(super) fn base(&mut self, tree: Option<String>, git: bool) {
        self.base_known = true;
        if let Some(tree) = tree
            && let Some(session) = self.session()
            && session.checkpoint.is_none()
        {
            // 0, unless no tree could be read until now.
            let number = session.finished;
            let reference = git.then(|| checkpoint_ref(session.id, number));
            self.push(Body::CheckpointCreated { number, tree, reference });
            self.late.push(Action::Checkpoint { number });
        } else if let Some(checkpoint) = self.session().and_then(|s| s.checkpoint.clone())
            && checkpoint.reference.is_some()
        {
            // A crash may have come between its commit and its ref; to keep it twice does no harm.
            self.late.push(Action::Checkpoint { number: checkpoint.number });
        }
        self.settle();
    }
}
