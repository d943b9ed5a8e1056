//! The state of a project: a fold over its events, and nothing else.
//!
//! The store keeps the newest value; each journal segment begins with one. So `State` can always be rebuilt as
//! "newest snapshot, then the events after it" ([`State::apply`]).

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::budget::Budget;
use super::event::{AttemptFinished, Body, Event, Mode};
use super::ids::{LaneId, MessageId, SessionId, Token};
use super::ledger::Window;
use super::outcome::{Exit, Outcome};

/// Version of the stored form of [`State`].
pub const SCHEMA: u32 = 1;

/// Ids of taken messages that are remembered, so that a file found twice is one message.
const SEEN: usize = 256;

/// All that must survive the supervisor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Version of this form.
    pub schema: u32,
    /// The last event in it.
    pub seq: u64,
    /// The newest session.
    pub session: Option<Session>,
    /// Messages from people.
    pub inbox: Inbox,
    /// What is known about the accounts, by name.
    #[serde(default)]
    pub accounts: BTreeMap<String, Account>,
    /// The last result of each gate.
    #[serde(default)]
    pub gates: BTreeMap<String, GateRecord>,
}

/// One supervised run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// Identity.
    pub id: SessionId,
    /// What it is doing.
    pub state: Phase,
    /// Why.
    pub reason: Option<Reason>,
    /// In words, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// The program was started again, and no call has begun since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resume_due: bool,
    /// Since when.
    pub since: Timestamp,
    /// When it was started.
    pub started: Timestamp,
    /// `spec` or `analysis`.
    pub mode: Mode,
    /// `simple`, `standard` or `complex`.
    pub complexity: String,
    /// The spec's path.
    pub spec: Option<String>,
    /// What it may use.
    pub limits: Limits,
    /// The provider chain, primary first.
    pub chain: Vec<String>,
    /// Settings of the command line.
    #[serde(default)]
    pub overrides: Vec<Override>,
    /// `--agent`, in words.
    #[serde(default)]
    pub agent: Vec<String>,
    /// The one in use: an index into `chain`.
    pub active: usize,
    /// The iteration in progress, else the last finished one; 0 before the first.
    pub iteration: u64,
    /// Iterations finished.
    pub finished: u64,
    /// Attempts of the iteration in progress.
    pub attempt: u32,
    /// Calls of the whole session.
    #[serde(default)]
    pub calls: u64,
    /// When the iteration in progress began.
    pub iteration_started: Option<Timestamp>,
    /// The call in flight.
    pub open: Option<OpenAttempt>,
    /// Failures in a row that count.
    pub retries: u32,
    /// Failures in a row on the active provider, since the last fail-over.
    #[serde(default)]
    pub retries_here: u32,
    /// Waits in a row for the same cause; the exponent of a back-off.
    #[serde(default)]
    pub backoff: u32,
    /// Context overflows in a row.
    #[serde(default)]
    pub overflows: u32,
    /// Since when calls fail because the server or the network is away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outage_since: Option<Timestamp>,
    /// Finished iterations in a row without a changed tree.
    #[serde(default)]
    pub unchanged: u32,
    /// Tree id at the last boundary.
    pub tree: Option<String>,
    /// The last checkpoint.
    pub checkpoint: Option<Checkpoint>,
    /// The wait in progress.
    pub wait: Option<Wait>,
    /// A claim that is being checked, or was rejected.
    pub claim: Option<Claim>,
    /// Goals met so far (perpetual mode).
    #[serde(default)]
    pub goals_met: u32,
    /// How the last attempt ended, by outcome name; for the next prompt.
    #[serde(default)]
    pub last_outcome: Option<String>,
    /// Money.
    pub budget: Budget,
    /// The limit that the next call would have passed, until one begins or a person resumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<OverBudget>,
    /// Time in which the session was not paused, milliseconds, up to `active_since`.
    pub active_ms: u64,
    /// Since when it is not paused.
    pub active_since: Option<Timestamp>,
    /// The last event of the session; a crash is counted up to here.
    pub last_event: Timestamp,
    /// Conversation ids by provider.
    #[serde(default)]
    pub conversations: BTreeMap<String, Conversation>,
}

/// What a session does. See "States and reasons".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Before the first iteration.
    Starting,
    /// A call or a gate runs.
    Running,
    /// Until a time.
    Waiting,
    /// Until a cause is gone.
    Paused,
    /// A call is being ended.
    Stopping,
    /// Ended by a person.
    Stopped,
    /// Ended well.
    Finished,
    /// Ended badly.
    Failed,
}

/// Why a session is in its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// A person asked for it (PAUSE, STOP).
    Requested,
    /// Ctrl-C, TERM or HUP.
    Interrupted,
    /// A file system in use runs full.
    DiskLow,
    /// The next call would pass the budget.
    BudgetExceeded,
    /// A credential must be renewed.
    AuthRequired,
    /// No provider of the chain can be used.
    ProviderUnavailable,
    /// The provider refused the content on every route.
    Refused,
    /// No changed tree for too long.
    Stagnated,
    /// Too many failures in a row.
    RetriesExhausted,
    /// The agent asks for a person.
    NeedsHuman,
    /// An account's limit with its own reset.
    RateLimited,
    /// Before a retry.
    BackOff,
    /// The server is at capacity.
    Overloaded,
    /// The network is away.
    NetworkDown,
    /// The network or the server was away for longer than `network.max_outage`.
    MaxOutage,
    /// The prompt is too long for the model, twice in a row.
    ContextOverflow,
    /// The asked-for number of iterations is done.
    MaxIterations,
    /// The asked-for time is over.
    MaxDuration,
    /// A claim of completion was verified.
    GoalsMet,
    /// The session could not be run.
    InternalError,
}

/// Why nothing happens for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitReason {
    /// Before a retry.
    BackOff,
    /// All accounts cool down.
    CoolDown,
    /// The server is at capacity.
    Overloaded,
    /// The network is away.
    NetworkDown,
    /// The budget of a day or a month is used up, or set aside for calls in flight.
    BudgetExceeded,
}

/// A limit of money that is used up.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct OverBudget {
    /// What it is about.
    pub window: Window,
    /// The limit, US dollars.
    pub limit_usd: f64,
}

/// A setting of the command line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Override {
    /// Its key.
    pub key: String,
    /// Its value, as typed.
    pub value: String,
    /// The option, for messages.
    pub option: String,
}

/// What a session may use.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Iterations of the whole session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iterations: Option<u64>,
    /// Time without pauses, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_duration_ms: Option<u64>,
    /// US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_usd: Option<f64>,
    /// Go on with new goals when the goals are met.
    #[serde(default)]
    pub perpetual: bool,
}

/// A call that has begun and is not known to have ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenAttempt {
    /// Fencing token.
    pub token: Token,
    /// Its lane.
    pub lane: LaneId,
    /// Its provider.
    pub provider: String,
    /// When it began.
    pub started: Timestamp,
    /// Its process.
    pub pid: Option<u32>,
    /// Start time of that process, clock ticks since boot.
    pub start_time: Option<u64>,
    /// Budget reserved, US dollars.
    pub reserved_usd: Option<f64>,
    /// The conversation that it is to go on with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumes: Option<String>,
}

/// The last checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The iteration it belongs to.
    pub number: u64,
    /// Git tree id, or the folder's fingerprint.
    pub tree: String,
    /// The ref that keeps it.
    pub reference: Option<String>,
}

/// A wait in progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// When it goes on.
    pub until: Timestamp,
    /// Why.
    pub why: WaitReason,
    /// Since when.
    pub since: Timestamp,
}

/// A claim that everything is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// `line` or `file`.
    pub by: String,
    /// What the agent says.
    pub summary: String,
    /// Gates that did not pass when it was checked; empty while it is being checked.
    #[serde(default)]
    pub failed: Vec<String>,
    /// It was checked and does not hold.
    #[serde(default)]
    pub rejected: bool,
}

/// What the provider calls a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Conversation {
    /// Its id.
    pub id: String,
    /// Cost so far by the provider's own counter, US dollars.
    pub usd: Option<f64>,
    /// The account and the folder that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<String>,
}

/// What is known about an account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Left alone until then; none with `out` set: until a person resumes or its credential changes.
    pub until: Option<Timestamp>,
    /// It is not to be used now.
    pub out: bool,
    /// Why: an outcome's name.
    pub why: String,
    /// Cool-downs in a row.
    pub times: u32,
    /// When that was learned; not known of what older versions wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// Messages from people.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inbox {
    /// Not yet delivered, in order of arrival.
    pub queued: Vec<Message>,
    /// How many were delivered.
    pub delivered: u64,
    /// Ids of the latest ones taken.
    pub seen: Vec<MessageId>,
}

/// One message from a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Identity.
    pub id: MessageId,
    /// When it was taken.
    pub time: Timestamp,
    /// `file`, `inbox` or `say`.
    pub source: String,
    /// Its words.
    pub text: String,
}

/// How a gate ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateResult {
    /// Exit code 0.
    Passed,
    /// Another exit code, or a signal.
    Failed,
    /// Its time limit passed.
    TimedOut,
    /// It could not be started. Blocks completion as a failure does.
    CouldNotRun,
    /// Ended by us before it was through.
    Cancelled,
}

/// The last result of a gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateRecord {
    /// How it ended.
    pub result: GateResult,
    /// The tree it looked at.
    pub tree: Option<String>,
    /// How it exited.
    pub exit: Option<Exit>,
    /// Its output: head and tail.
    pub tail: String,
    /// When.
    pub time: Timestamp,
    /// Milliseconds.
    pub duration_ms: u64,
}

// === impl State ===

impl Default for State {
    fn default() -> Self {
        State {
            schema: SCHEMA,
            seq: 0,
            session: None,
            inbox: Inbox::default(),
            accounts: BTreeMap::new(),
            gates: BTreeMap::new(),
        }
    }
}

impl State {
    /// Takes one event in. Events of other sessions than the newest do not touch it.
    pub fn apply(&mut self, event: &Event) {
        if let Body::Snapshot(state) = &event.body {
            if state.seq >= self.seq {
                *self = (**state).clone();
            }
            self.seq = self.seq.max(event.seq);
            return;
        }
        self.seq = event.seq;
        match &event.body {
            Body::SessionStarted(s) => {
                let id = event.session.unwrap_or(SessionId(ulid::Ulid::nil()));
                self.session = Some(Session::new(id, event.time, s));
                self.gates.clear();
            }
            Body::MessageQueued { id, source, text } => self.inbox.queue(Message {
                id: *id,
                time: event.time,
                source: source.clone(),
                text: text.clone(),
            }),
            Body::MessageDelivered { id } => self.inbox.deliver(*id),
            Body::CoolDown { account, until, why } => {
                let times = self.accounts.get(account).map_or(0, |a| a.times);
                let record = Account {
                    until: *until,
                    out: true,
                    why: why.clone(),
                    times: times.saturating_add(1),
                    since: Some(event.time),
                };
                self.accounts.insert(account.clone(), record);
            }
            Body::GateFinished { name, result, tree, exit, tail, duration_ms, reused: false } => {
                let record = GateRecord {
                    result: *result,
                    tree: tree.clone(),
                    exit: *exit,
                    tail: tail.clone(),
                    time: event.time,
                    duration_ms: *duration_ms,
                };
                self.gates.insert(name.clone(), record);
            }
            _ => {}
        }
        if let Body::AttemptFinished(a) = &event.body
            && a.verdict.outcome.ends_iteration()
            && let Some(provider) = &event.provider
        {
            self.accounts.remove(provider);
        }
        let by_a_person = match &event.body {
            Body::SessionContinued { reason } => reason.ends_with_accounts(),
            Body::SessionStarted(_) | Body::SessionResumed { .. } => true,
            _ => false,
        };
        if by_a_person {
            self.accounts.retain(|_, account| account.until.is_some());
        }
        if let Some(session) = &mut self.session
            && event.session == Some(session.id)
        {
            session.apply(event);
        }
    }
}

// === impl Session ===

impl Session {
    fn new(id: SessionId, time: Timestamp, s: &super::event::SessionStarted) -> Self {
        Session {
            id,
            state: Phase::Starting,
            reason: None,
            detail: String::new(),
            resume_due: false,
            since: time,
            started: time,
            mode: s.mode,
            complexity: s.complexity.clone(),
            spec: s.spec.clone(),
            limits: s.limits.clone(),
            chain: s.chain.clone(),
            overrides: s.overrides.clone(),
            agent: s.agent.clone(),
            active: 0,
            iteration: 0,
            finished: 0,
            attempt: 0,
            calls: 0,
            iteration_started: None,
            open: None,
            retries: 0,
            retries_here: 0,
            backoff: 0,
            overflows: 0,
            outage_since: None,
            unchanged: 0,
            tree: None,
            checkpoint: None,
            wait: None,
            claim: None,
            goals_met: 0,
            last_outcome: None,
            budget: Budget::default(),
            over: None,
            active_ms: 0,
            active_since: Some(time),
            last_event: time,
            conversations: BTreeMap::new(),
        }
    }

    /// The provider in use.
    pub fn provider(&self) -> &str {
        self.chain.get(self.active).or(self.chain.first()).map_or("", String::as_str)
    }

    /// An iteration has begun and is not finished.
    pub fn in_iteration(&self) -> bool {
        self.iteration > self.finished
    }

    /// Time in which it was not paused, up to `now`.
    pub fn active_time_ms(&self, now: Timestamp) -> u64 {
        let since = self.active_since.map_or(0, |since| millis_between(since, now));
        self.active_ms.saturating_add(since)
    }

    /// It has ended for good: the next `run` starts a new one.
    pub fn ended(&self) -> bool {
        matches!(self.state, Phase::Finished | Phase::Failed)
    }

    fn enter(&mut self, state: Phase, reason: Option<Reason>, time: Timestamp) {
        if self.state != state || self.reason != reason {
            self.since = time;
        }
        self.state = state;
        self.reason = reason;
        self.detail.clear();
    }

    /// Stops the clock of [`Session::active_time_ms`] at `time`.
    fn clock_out(&mut self, time: Timestamp) {
        if let Some(since) = self.active_since.take() {
            self.active_ms = self.active_ms.saturating_add(millis_between(since, time));
        }
    }

    fn apply(&mut self, event: &Event) {
        let now = event.time;
        match &event.body {
            Body::SessionResumed { limits, chain, spec, mode, complexity, overrides, agent, .. } => {
                self.resume_due = true;
                self.overrides = overrides.clone();
                self.agent = agent.clone();
                if self.chain != *chain {
                    self.active = 0;
                    self.retries_here = 0;
                }
                self.limits = limits.clone();
                self.chain = chain.clone();
                self.spec = spec.clone();
                self.mode = *mode;
                self.complexity = complexity.clone();
                if self.state != Phase::Paused {
                    self.active_since = Some(now);
                    self.enter(Phase::Starting, None, now);
                }
            }
            Body::SessionCrashed { .. } => {
                let last = self.last_event;
                self.clock_out(last);
            }
            Body::SessionPaused { reason, detail, .. } => {
                self.clock_out(now);
                self.enter(Phase::Paused, Some(*reason), now);
                self.detail = detail.clone();
                self.wait = None;
            }
            Body::BudgetExceeded { window, limit_usd, .. } => {
                self.over = Some(OverBudget { window: *window, limit_usd: *limit_usd });
            }
            Body::SessionContinued { reason } => {
                self.over = None;
                self.active_since.get_or_insert(now);
                self.enter(Phase::Running, None, now);
                match reason {
                    Reason::RetriesExhausted => {
                        self.retries = 0;
                        self.retries_here = 0;
                        self.backoff = 0;
                    }
                    Reason::Stagnated => self.unchanged = 0,
                    Reason::ContextOverflow => self.overflows = 0,
                    _ => {}
                }
            }
            Body::SessionStopping { reason, detail, .. } => {
                self.enter(Phase::Stopping, Some(*reason), now);
                self.detail = detail.clone();
            }
            Body::SessionFinished { state, reason, detail, .. } => {
                self.clock_out(now);
                self.enter(*state, Some(*reason), now);
                self.detail = detail.clone();
                self.wait = None;
                self.open = None;
            }
            Body::IterationStarted {} => {
                self.iteration = event.iteration.unwrap_or(self.iteration + 1);
                self.attempt = 0;
                self.iteration_started = Some(now);
                self.run(now);
            }
            Body::IterationFinished { changed, tree, .. } => {
                self.finished = event.iteration.unwrap_or(self.iteration);
                self.iteration = self.finished;
                self.iteration_started = None;
                self.unchanged = match (*changed, tree) {
                    (true, _) => 0,
                    (false, Some(_)) => self.unchanged.saturating_add(1),
                    // It could not be read: nobody knows.
                    (false, None) => self.unchanged,
                };
                if tree.is_some() {
                    self.tree = tree.clone();
                }
            }
            Body::AttemptStarted { token, pid, start_time, reserved_usd, resumes, .. } => {
                self.resume_due = false;
                self.over = None;
                self.attempt = event.attempt.unwrap_or(self.attempt + 1);
                self.calls = self.calls.saturating_add(1);
                let reserved_usd = *reserved_usd;
                self.budget.reserve(reserved_usd);
                self.open = Some(OpenAttempt {
                    token: *token,
                    lane: event.lane.unwrap_or(LaneId(1)),
                    provider: event.provider.clone().unwrap_or_default(),
                    started: now,
                    pid: *pid,
                    start_time: *start_time,
                    reserved_usd,
                    resumes: resumes.clone(),
                });
                self.run(now);
            }
            Body::AttemptFinished(a) => self.attempt_finished(event, a),
            Body::WaitStarted { until, why, .. } => {
                self.wait = Some(Wait { until: *until, why: *why, since: now });
                if self.state != Phase::Paused {
                    self.enter(Phase::Waiting, Some(why.reason()), now);
                }
            }
            Body::WaitEnded { .. } => {
                self.wait = None;
                if self.state == Phase::Waiting {
                    self.enter(Phase::Running, None, now);
                }
            }
            Body::CheckpointCreated { number, tree, reference } => {
                self.checkpoint =
                    Some(Checkpoint { number: *number, tree: tree.clone(), reference: reference.clone() });
                self.tree = Some(tree.clone());
            }
            Body::ProviderSwitched { to, .. } | Body::Failover { to, .. } => {
                match self.chain.iter().position(|name| name == to) {
                    Some(at) => self.active = at,
                    None => {
                        self.chain.insert(0, to.clone());
                        self.active = 0;
                    }
                }
                self.retries_here = 0;
                self.backoff = 0;
            }
            Body::LimitsChanged { limits, overrides } => {
                self.limits = limits.clone();
                self.overrides = overrides.clone();
            }
            Body::CompletionClaimed { by, summary } => {
                let (by, summary) = (by.clone(), summary.clone());
                self.claim = Some(Claim { by, summary, failed: Vec::new(), rejected: false });
            }
            Body::CompletionVerified { .. } => {
                self.claim = None;
                self.goals_met = self.goals_met.saturating_add(1);
            }
            Body::CompletionRejected { failed } => {
                if let Some(claim) = &mut self.claim {
                    claim.failed = failed.clone();
                    claim.rejected = true;
                }
            }
            _ => {}
        }
        self.last_event = now;
    }

    /// A call runs: the session does, unless a person has paused it meanwhile.
    fn run(&mut self, now: Timestamp) {
        self.wait = None;
        if self.state != Phase::Paused {
            self.active_since.get_or_insert(now);
            self.enter(Phase::Running, None, now);
        }
    }

    fn attempt_finished(&mut self, event: &Event, a: &AttemptFinished) {
        self.open = None;
        self.budget.book(a.cost_usd, a.verdict.outcome.ends_iteration());
        let provider = event.provider.clone().unwrap_or_default();
        if let Some(id) = &a.conversation {
            let (id, home) = (id.clone(), a.conversation_home.clone());
            self.conversations.insert(provider, Conversation { id, usd: a.conversation_usd, home });
        }
        self.last_outcome = Some(a.verdict.outcome.name().to_owned());
        match &a.verdict.outcome {
            Outcome::Overloaded | Outcome::NetworkDown => {
                self.outage_since.get_or_insert(event.time);
            }
            Outcome::Cancelled => {}
            _ => self.outage_since = None,
        }
        match &a.verdict.outcome {
            outcome if outcome.ends_iteration() => {
                self.retries = 0;
                self.retries_here = 0;
                self.backoff = 0;
                self.overflows = 0;
                if self.claim.as_ref().is_some_and(|claim| claim.rejected) {
                    self.claim = None;
                }
            }
            Outcome::Cancelled => {}
            outcome => {
                self.backoff = self.backoff.saturating_add(1);
                if a.counts {
                    self.retries = self.retries.saturating_add(1);
                    self.retries_here = self.retries_here.saturating_add(1);
                }
                let overflow = *outcome == Outcome::ContextOverflow;
                self.overflows = if overflow { self.overflows.saturating_add(1) } else { 0 };
            }
        }
    }
}

// === impl Inbox ===

impl Inbox {
    /// A message of this identity was taken, lately enough to be remembered.
    pub fn knows(&self, id: MessageId) -> bool {
        self.seen.contains(&id) || self.queued.iter().any(|message| message.id == id)
    }

    fn queue(&mut self, message: Message) {
        if self.seen.contains(&message.id) {
            return;
        }
        self.seen.push(message.id);
        if self.seen.len() > SEEN {
            self.seen.remove(0);
        }
        self.queued.push(message);
    }

    fn deliver(&mut self, id: MessageId) {
        let before = self.queued.len();
        self.queued.retain(|message| message.id != id);
        self.delivered += (before - self.queued.len()) as u64;
    }
}

// === impl Phase, Reason, WaitReason, GateResult ===

/// The snake_case name that serde gives a unit variant.
fn unit_name<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        _ => String::new(),
    }
}

macro_rules! display_as_serde {
    ($($type:ty),*) => {$(
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&unit_name(self))
            }
        }
    )*};
}

display_as_serde!(Phase, Reason, WaitReason, GateResult, Mode);

impl Reason {
    /// Only a person can end a pause for this: with `--no-wait` the program exits 5.
    pub fn needs_person(self) -> bool {
        !matches!(
            self,
            Reason::DiskLow
                | Reason::RateLimited
                | Reason::BackOff
                | Reason::Overloaded
                | Reason::NetworkDown
        )
    }

    /// Its cause is accounts that are out until a person says otherwise.
    pub fn ends_with_accounts(self) -> bool {
        matches!(self, Reason::AuthRequired | Reason::ProviderUnavailable | Reason::Refused)
    }
}

impl Account {
    /// It may be called at `now`.
    pub fn is_usable(&self, now: Timestamp) -> bool {
        !self.out || self.until.is_some_and(|until| until <= now)
    }

    /// It is out because of what this project asks of it or starts it with, not because of the account.
    pub fn is_the_projects_own(&self) -> bool {
        matches!(self.why.as_str(), "refused" | "not_runnable" | "model_unavailable")
    }
}

impl WaitReason {
    /// The reason shown beside `waiting`.
    fn reason(self) -> Reason {
        match self {
            WaitReason::BackOff => Reason::BackOff,
            WaitReason::CoolDown => Reason::RateLimited,
            WaitReason::Overloaded => Reason::Overloaded,
            WaitReason::NetworkDown => Reason::NetworkDown,
            WaitReason::BudgetExceeded => Reason::BudgetExceeded,
        }
    }
}

/// The ref that keeps the checkpoint of an iteration.
pub fn checkpoint_ref(session: SessionId, number: u64) -> String {
    format!("refs/longhaul/checkpoints/{session}/{number:06}")
}

/// Whole milliseconds from `from` to `to`; 0 when the clock stepped back.
pub fn millis_between(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.duration_since(from).as_millis()).unwrap_or(0)
}
