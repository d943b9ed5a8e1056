//! What stands in for the actors: commits fold into the state, calls and gates last until the test ends them, time
//! passes when it says so.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::domain::accounts::{Admission, admit};
use crate::domain::backoff::Backoff;
use crate::domain::disk::DiskReport;
use crate::domain::event::{Body, Event, Mode};
use crate::domain::ids::{EventId, IdSource, MessageId, Token};
use crate::domain::ledger::{Money, Reservation, Use, Window, WindowLimits, judge};
use crate::domain::money::MicroUsd;
use crate::domain::outcome::{Exit, Outcome, Usage, Verdict};
use crate::domain::session::{
    Action, AttemptReport, Begin, EndReason, GateReport, Input, Machine, Rules, Signals, Stop,
};
use crate::domain::state::{Account, GateResult, Limits, Phase, Reason, Session, State};

/// Ten in the morning of some day.
pub(super) fn morning() -> Timestamp {
    "2026-11-30T10:00:00Z".parse().unwrap()
}

pub(super) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The settings as they come, with little time lost.
pub(super) fn rules() -> Rules {
    Rules {
        retries: 50,
        failover_after: 3,
        backoff: Backoff { base: secs(2), cap: secs(300), floor: Duration::from_millis(100) },
        probe: Backoff { base: secs(60), cap: secs(3600), floor: secs(5) },
        stagnation_warn: 5,
        stagnation_pause: 10,
        pause_interrupts: false,
        stop_grace: secs(5),
        max_outage: None,
        assume_usd: None,
        call_usd: None,
        capped: BTreeSet::new(),
        windows: WindowLimits::default(),
        resume_conversation: false,
        credentials: std::collections::BTreeMap::new(),
        gates: Vec::new(),
        wait: true,
    }
}

pub(super) fn begin() -> Begin {
    Begin {
        fresh: false,
        version: "1.0.0".into(),
        project: "/project".into(),
        mode: Mode::Spec,
        complexity: "simple".into(),
        spec: Some("SPEC.md".into()),
        limits: Limits::default(),
        chain: vec!["a".into()],
        overrides: Vec::new(),
        agent: Vec::new(),
        found: Vec::new(),
    }
}

/// With these providers.
pub(super) fn chain(names: &str) -> Begin {
    Begin { chain: names.split_whitespace().map(str::to_owned).collect(), ..begin() }
}

pub(super) fn stop() -> Signals {
    let stop = Stop { reason: Reason::Requested, detail: "enough".into(), now: false };
    Signals { stop: Some(stop), ..Signals::default() }
}

pub(super) fn pause() -> Signals {
    Signals { pause: Some("lunch".into()), ..Signals::default() }
}

pub(super) fn resume() -> Signals {
    Signals { resume: true, ..Signals::default() }
}

pub(super) fn completed() -> Outcome {
    Outcome::Completed { changed: true, claims_done: false, denied: Vec::new() }
}

pub(super) fn disk_low() -> Body {
    Body::DiskLow { path: "/".into(), free_bytes: 1, free_inodes: None, limit: "100 MB".into() }
}

/// What Disk says.
pub(super) fn disk(low: bool) -> Input {
    Input::Disk(if low { DiskReport::Low(disk_low()) } else { DiskReport::Room { free_bytes: 1 << 30 } })
}

/// A question to the accounts.
pub(super) struct Ask {
    pub(super) ask: u64,
    chain: Vec<String>,
    active: usize,
    known: BTreeMap<String, Account>,
    money: Option<Box<Reservation>>,
}

pub(super) struct World {
    pub(super) machine: Machine,
    pub(super) state: State,
    pub(super) events: Vec<Event>,
    pub(super) now: Timestamp,
    pub(super) rules: Rules,
    pub(super) begin: Begin,
    pub(super) signals: Signals,
    /// All that was asked for, commits included.
    pub(super) actions: Vec<Action>,
    /// The lane makes itself ready.
    pub(super) preparing: bool,
    /// The tree is being read.
    pub(super) looking: bool,
    pub(super) ask: Option<Ask>,
    pub(super) call: Option<Token>,
    /// Calls that were ended or given up: what they say is late.
    pub(super) gone: Vec<Token>,
    pub(super) ending: Option<EndReason>,
    pub(super) gates: Option<(Token, Vec<String>)>,
    pub(super) timer: Option<(Timestamp, u64)>,
    pub(super) exit: Option<u8>,
    /// Calls are processes: the next one waits while one works.
    pub(super) processes: bool,
    /// What other projects have spent and set aside, in every window.
    pub(super) others: (MicroUsd, MicroUsd),
    marked: usize,
    seed: u64,
    trees: u64,
}

impl World {
    /// Begun, and nothing answered yet.
    pub(super) fn new(rules: Rules, begin: Begin) -> Self {
        Self::unbegun(rules, begin, Signals::default())
    }

    pub(super) fn unbegun(rules: Rules, begin: Begin, signals: Signals) -> Self {
        let (state, now) = (State::default(), morning());
        let mut world = World {
            machine: Machine::new(rules.clone(), &state, IdSource::new(Some(0)), now),
            state,
            events: Vec::new(),
            now,
            rules,
            begin,
            signals,
            actions: Vec::new(),
            preparing: false,
            looking: true,
            ask: None,
            call: None,
            gone: Vec::new(),
            ending: None,
            gates: None,
            timer: None,
            exit: None,
            processes: true,
            others: Default::default(),
            marked: 0,
            seed: 0,
            trees: 0,
        };
        world.program_starts();
        world
    }

    /// The supervisor died, or ended, and is started again.
    pub(super) fn program_starts(&mut self) {
        self.new_machine();
        let actions = self.machine.begin(self.begin.clone(), self.signals.clone(), &self.state, self.now);
        self.signals.resume = false;
        self.take(actions);
    }

    /// The Session actor died and is started again.
    pub(super) fn actor_restarts(&mut self) {
        self.new_machine();
        let actions = self.machine.recover(self.signals.clone(), &self.state, self.now);
        self.take(actions);
    }

    fn new_machine(&mut self) {
        self.seed += 1;
        let ids = IdSource::new(Some(self.seed));
        self.machine = Machine::new(self.rules.clone(), &self.state, ids, self.now);
        (self.preparing, self.looking) = (false, true);
        self.gone.extend(self.call.take());
        (self.ask, self.ending, self.gates, self.timer, self.exit) = (None, None, None, None, None);
    }

    pub(super) fn session(&self) -> &Session {
        self.state.session.as_ref().unwrap()
    }

    /// `state/reason`.
    pub(super) fn phase(&self) -> String {
        let session = self.session();
        session.reason.map_or(session.state.to_string(), |reason| format!("{}/{reason}", session.state))
    }

    pub(super) fn input(&mut self, input: Input) -> Vec<Action> {
        if let Input::Signals(signals) = &input {
            self.signals = Signals { resume: false, ..signals.clone() };
        }
        let actions = self.machine.handle(input, &self.state, self.now);
        self.take(actions.clone());
        actions
    }

    pub(super) fn signal(&mut self, signals: Signals) -> Vec<Action> {
        self.input(Input::Signals(signals))
    }

    /// Does what is asked for.
    fn take(&mut self, actions: Vec<Action>) {
        for action in &actions {
            assert!(self.exit.is_none(), "{action:?} after the exit");
            match action.clone() {
                Action::Commit(drafts) => {
                    assert!(!drafts.is_empty(), "an empty commit");
                    for draft in drafts {
                        let event = draft.at(self.state.seq + 1);
                        self.state.apply(&event);
                        self.events.push(event);
                    }
                }
                Action::Prepare => self.preparing = true,
                Action::Admit { ask, chain, active, known, money, .. } => {
                    self.ask = Some(Ask { ask, chain, active, known, money });
                }
                Action::Go { token, .. } => {
                    assert_eq!(self.call, None, "two calls at once");
                    let open = self.session().open.as_ref().map(|open| open.token);
                    assert_eq!(open, Some(token), "a call begins that is not recorded");
                    self.call = Some(token);
                    self.ending = None;
                }
                Action::EndCall { why, .. } => self.ending = Some(why),
                Action::RunGates { token, names } => self.gates = Some((token, names)),
                Action::Arm { at, generation } => self.timer = Some((at, generation)),
                Action::Exit(code) => self.exit = Some(code),
                Action::ConsumeStop => self.signals.stop = None,
                Action::Learned { .. }
                | Action::Readmit { .. }
                | Action::EndGates { .. }
                | Action::Checkpoint { .. }
                | Action::Release { .. }
                | Action::Book
                | Action::ConsumeResume => {}
            }
        }
        self.actions.extend(actions);
    }

    // --- what answers ---

    pub(super) fn ready(&mut self) -> Vec<Action> {
        self.preparing = false;
        let process = self.processes.then_some((100, 1000));
        self.input(Input::Ready(process))
    }

    pub(super) fn base(&mut self) -> Vec<Action> {
        self.looking = false;
        self.input(Input::Base { tree: Some("base".into()), git: true })
    }

    /// The accounts answer by what the session knows.
    pub(super) fn admit(&mut self) -> Vec<Action> {
        let Ask { ask, chain, active, known, money } = self.ask.take().unwrap();
        let admission = admit(&known, &BTreeSet::new(), &BTreeSet::new(), &chain, active, self.now);
        let admitted = matches!(admission, Admission::Granted(_) | Admission::Probe(_));
        let money = money.filter(|_| admitted).map(|ask| self.ledger(&ask));
        self.input(Input::Admitted { ask, admission, news: Vec::new(), money })
    }

    pub(super) fn refuse(&mut self, admission: Admission) -> Vec<Action> {
        let ask = self.ask.take().unwrap().ask;
        self.input(Input::Admitted { ask, admission, news: Vec::new(), money: None })
    }

    /// The host's ledger, with what others have spent in each window.
    fn ledger(&self, ask: &Reservation) -> Money {
        let own = self.session().budget.spent.plus(self.others.0);
        let own = ask
            .ended
            .as_ref()
            .filter(|_| self.uncommitted())
            .and_then(|ended| ended.cost)
            .map_or(own, |c| own.plus(c));
        let limited = Window::KEPT.into_iter().filter_map(|window| Some((window, ask.limits.of(window)?)));
        let windows: Vec<Use> = limited
            .map(|(window, limit)| {
                let resets_at = window.bounds(self.now, &jiff::tz::TimeZone::UTC).map(|(_, end)| end);
                Use { window, limit, spent: own, reserved: self.others.1, resets_at }
            })
            .collect();
        match judge(ask.usd, &windows) {
            Some(exceeded) => Money::Exceeded(exceeded),
            None => Money::Reserved { token: ask.call.token, windows },
        }
    }

    /// The end of the last call is decided, and not yet committed.
    fn uncommitted(&self) -> bool {
        self.machine.session().map(|s| s.budget.spent) != Some(self.session().budget.spent)
    }

    /// Answers one question. False: nobody has asked anything.
    pub(super) fn answer(&mut self) -> bool {
        if self.exit.is_some() {
            return false;
        }
        if self.looking {
            self.base();
        } else if self.preparing {
            self.ready();
        } else if self.ask.is_some() {
            self.admit();
        } else {
            return false;
        }
        true
    }

    /// Answers all questions, and lets no time pass.
    pub(super) fn settle(&mut self) -> &mut Self {
        for _ in 0..1000 {
            if !self.answer() {
                return self;
            }
        }
        panic!("questions without end: {}", self.phase());
    }

    /// Time passes until a call works.
    pub(super) fn call(&mut self) -> Token {
        for _ in 0..1000 {
            self.settle();
            match self.call {
                Some(token) => return token,
                None => self.wake(),
            }
        }
        panic!("no call begins");
    }

    /// Time passes.
    pub(super) fn pass(&mut self, time: Duration) {
        self.now = self.now.checked_add(SignedDuration::try_from(time).unwrap()).unwrap();
        if let Some((at, generation)) = self.timer
            && at <= self.now
        {
            self.timer = None;
            self.input(Input::Timer(generation));
        }
    }

    /// Time passes until the timer fires.
    pub(super) fn wake(&mut self) {
        let (at, _) = self.timer.unwrap_or_else(|| panic!("nothing will ever happen: {}", self.phase()));
        let left = Duration::try_from(at.duration_since(self.now)).unwrap_or_default();
        self.pass(left);
    }

    // --- the agent ---

    /// What an agent that did some work tells.
    pub(super) fn report(&mut self, outcome: Outcome) -> AttemptReport {
        self.trees += 1;
        AttemptReport {
            token: self.call.unwrap_or(Token(ulid::Ulid::nil())),
            verdict: Verdict {
                outcome,
                scope: Default::default(),
                evidence: Default::default(),
                rule: "test".into(),
                warning: None,
            },
            usage: Usage::default(),
            exit: Some(Exit::Code(0)),
            duration_ms: 1000,
            conversation: None,
            conversation_usd: None,
            conversation_home: None,
            resumed: None,
            tools: 1,
            answer: "did it".into(),
            strays: 0,
            messages: Vec::new(),
            claim: None,
            blocked: None,
            tree: Some(format!("tree {}", self.trees)),
            reference: Some("refs/longhaul/checkpoints/x".into()),
            next: self.processes.then_some((100 + u32::try_from(self.trees).unwrap(), 1000)),
        }
    }

    pub(super) fn ended(&mut self, report: AttemptReport) -> Vec<Action> {
        if self.call == Some(report.token) {
            self.gone.extend(self.call.take());
        }
        self.input(Input::AttemptEnded(Box::new(report)))
    }

    /// The next call is made, comes to this, and all questions after it are answered.
    pub(super) fn attempt(&mut self, outcome: Outcome) {
        self.call();
        let report = self.report(outcome);
        self.ended(report);
        self.settle();
    }

    /// The same, and nothing has changed.
    pub(super) fn idle_attempt(&mut self) {
        self.call();
        let tree = self.session().tree.clone();
        let report = AttemptReport { tree, ..self.report(completed()) };
        self.ended(report);
        self.settle();
    }

    /// The next call is made, and says that everything is done.
    pub(super) fn claim(&mut self) {
        self.call();
        let claim = Some(("line".to_owned(), "all of it".to_owned()));
        let report = AttemptReport { claim, ..self.report(completed()) };
        self.ended(report);
        self.settle();
    }

    /// The gates that run come to this, and all questions after it are answered.
    pub(super) fn gates_end(&mut self, result: GateResult) {
        self.gates_ended(result);
        self.settle();
    }

    pub(super) fn gates_ended(&mut self, result: GateResult) -> Vec<Action> {
        let (token, names) = self.gates.take().expect("gates run");
        let report = |name| GateReport {
            name,
            result,
            exit: None,
            duration_ms: 10,
            timed_out_after: (result == GateResult::TimedOut).then_some(300_000),
            tail: String::new(),
        };
        let reports = names.into_iter().map(report).collect();
        self.input(Input::GatesEnded { token, reports })
    }

    /// A person says something.
    pub(super) fn say(&mut self, text: &str) -> MessageId {
        self.seed += 1;
        let id = MessageId(IdSource::new(Some(self.seed)).next(self.now));
        let event = Event {
            id: EventId(id.0),
            seq: self.state.seq + 1,
            time: self.now,
            level: crate::domain::event::Level::Info,
            session: self.state.session.as_ref().map(|s| s.id),
            lane: None,
            iteration: None,
            attempt: None,
            provider: None,
            body: Body::MessageQueued { id, source: "say".into(), text: text.into() },
        };
        self.state.apply(&event);
        self.events.push(event);
        id
    }

    // --- what happened ---

    /// From here on, for [`World::told`].
    pub(super) fn mark(&mut self) -> &mut Self {
        self.marked = self.events.len();
        self
    }

    /// Types of the events since the mark.
    pub(super) fn told(&mut self) -> Vec<&'static str> {
        let names = self.events[self.marked..].iter().map(|event| event.body.name()).collect();
        self.mark();
        names
    }

    pub(super) fn count(&self, name: &str) -> usize {
        self.events.iter().filter(|event| event.body.name() == name).count()
    }

    /// The last one of these.
    pub(super) fn last(&self, name: &str) -> &Event {
        self.events.iter().rev().find(|event| event.body.name() == name).expect(name)
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.session().state, Phase::Finished | Phase::Failed | Phase::Stopped)
    }
}
