//! The journal's vocabulary: every event that can happen, and what each carries.
//!
//! Events are the only way in which state changes: [`State`] is a fold over them. So each
//! carries all that the fold needs. Types and fields are only ever added to.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::ids::{EventId, LaneId, MessageId, SessionId, Token};
use super::ledger::{Window, WindowUse};
use super::money::MicroUsd;
use super::outcome::{Exit, Usage, Verdict};
use super::state::{GateResult, Limits, Override, Phase, Reason, State, WaitReason};

/// How much attention an event wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// For whoever reads the whole story.
    Debug,
    /// The ordinary course of things; a "notice" when shown on stderr.
    Info,
    /// Something is off, the run goes on.
    Warn,
    /// The run cannot go on as it is.
    Error,
}

/// One line of the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Identity, ascending.
    pub id: EventId,
    /// Position in the project's journal, from 1, without gaps.
    pub seq: u64,
    /// When it was decided, UTC.
    pub time: Timestamp,
    /// How much attention it wants.
    pub level: Level,
    /// The session it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The lane it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<LaneId>,
    /// The iteration it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iteration: Option<u64>,
    /// The attempt within the iteration, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The provider it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// `type` and `data`.
    #[serde(flatten)]
    pub body: Body,
}

/// An event before the store has given it its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    /// See [`Event::id`].
    pub id: EventId,
    /// See [`Event::time`].
    pub time: Timestamp,
    /// See [`Event::session`].
    pub session: Option<SessionId>,
    /// See [`Event::lane`].
    pub lane: Option<LaneId>,
    /// See [`Event::iteration`].
    pub iteration: Option<u64>,
    /// See [`Event::attempt`].
    pub attempt: Option<u32>,
    /// See [`Event::provider`].
    pub provider: Option<String>,
    /// See [`Event::body`].
    pub body: Body,
}

impl Draft {
    /// The event at place `seq`.
    pub fn at(self, seq: u64) -> Event {
        let Draft { id, time, session, lane, iteration, attempt, provider, body } = self;
        Event { id, seq, time, level: body.level(), session, lane, iteration, attempt, provider, body }
    }
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data", rename_all = "snake_case")]
pub enum Body {
    /// A new session begins.
    SessionStarted(Box<SessionStarted>),
    /// A session goes on after it had ended, been stopped, paused or crashed.
    SessionResumed {
        /// The state it was found in.
        from: Phase,
        /// The reason beside that state.
        reason: Option<Reason>,
        /// Version of Longhaul that goes on.
        version: String,
        /// What the command line now asks for.
        limits: Limits,
        /// The provider chain, primary first.
        chain: Vec<String>,
        /// The spec, where there is one.
        spec: Option<String>,
        /// `spec` or `analysis`.
        mode: Mode,
        /// The complexity class now.
        complexity: String,
        /// Settings of the command line, all that hold for the session.
        #[serde(default)]
        overrides: Vec<Override>,
        /// `--agent`, in words.
        #[serde(default)]
        agent: Vec<String>,
    },
    /// The session was found as a dead supervisor left it.
    SessionCrashed {
        /// The state it was found in.
        found: Phase,
    },
    /// The session pauses.
    SessionPaused {
        /// Why.
        reason: Reason,
        /// In words, for people: what happened and what to do.
        detail: String,
        /// A call is still finishing.
        in_flight: bool,
    },
    /// A pause is over.
    SessionContinued {
        /// The reason that is gone.
        reason: Reason,
    },
    /// The session is being stopped.
    SessionStopping {
        /// Why.
        reason: Reason,
        /// What the person wrote, if anything.
        detail: String,
        /// Without grace.
        now: bool,
    },
    /// The session has ended.
    SessionFinished {
        /// `finished`, `failed` or `stopped`.
        state: Phase,
        /// Why.
        reason: Reason,
        /// In words.
        detail: String,
        /// Iterations finished in the whole session.
        iterations: u64,
        /// What is known to have been spent, US dollars.
        spent_usd: f64,
    },
    /// A turn of a lane begins.
    IterationStarted {},
    /// A turn is over. Exactly one for each number.
    IterationFinished {
        /// The lane's tree is another one than before.
        changed: bool,
        /// Tree id (or folder fingerprint) at its end.
        tree: Option<String>,
        /// Wall time since it started, milliseconds.
        duration_ms: u64,
    },
    /// One provider call begins. Its process exists and waits; it has not worked yet.
    AttemptStarted {
        /// Fencing token.
        token: Token,
        /// The model asked for, where one was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// Process id; none for calls within the supervisor.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pid: Option<u32>,
        /// Start time of that process, clock ticks since boot (`/proc/PID/stat` field 22).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        start_time: Option<u64>,
        /// The conversation that it is to go on with, by the provider's id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        resumes: Option<String>,
        /// Budget reserved for it, US dollars.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reserved_usd: Option<f64>,
    },
    /// One provider call is over.
    AttemptFinished(Box<AttemptFinished>),
    /// Nothing happens until a time.
    WaitStarted {
        /// When it goes on.
        until: Timestamp,
        /// Why it waits.
        why: WaitReason,
        /// In words.
        detail: String,
    },
    /// A wait is over.
    WaitEnded {
        /// Why it had waited.
        why: WaitReason,
    },
    /// A gate was run, or its result for the same tree was used again.
    GateFinished {
        /// Its name.
        name: String,
        /// How it ended.
        result: GateResult,
        /// The tree it looked at.
        tree: Option<String>,
        /// How it exited.
        exit: Option<Exit>,
        /// Milliseconds.
        duration_ms: u64,
        /// Its output: head and tail.
        tail: String,
        /// The result is that of an earlier run on the same tree.
        reused: bool,
    },
    /// A gate passed its time limit; its process tree was ended.
    GateTimeout {
        /// Its name.
        name: String,
        /// The limit, milliseconds.
        after_ms: u64,
    },
    /// A checkpoint is recorded.
    CheckpointCreated {
        /// The iteration it belongs to; 0 is before the first call.
        number: u64,
        /// Git tree id, or the folder's fingerprint.
        tree: String,
        /// The ref that keeps it; none without git.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reference: Option<String>,
    },
    /// A message from a person was taken.
    MessageQueued {
        /// Its identity.
        id: MessageId,
        /// `file`, `inbox` or `say`.
        source: String,
        /// Its words.
        text: String,
    },
    /// The attempt whose prompt held the message has ended.
    MessageDelivered {
        /// Its identity.
        id: MessageId,
    },
    /// The provider was changed by a person.
    ProviderSwitched {
        /// The old one.
        from: String,
        /// The new one.
        to: String,
    },
    /// The provider was changed because the last one cannot be used now.
    Failover {
        /// The old one.
        from: String,
        /// The new one.
        to: String,
        /// Why.
        why: String,
    },
    /// An account is left alone until a time.
    CoolDown {
        /// The account.
        account: String,
        /// When it may be tried again; none: not by itself.
        until: Option<Timestamp>,
        /// Why: an outcome's name.
        why: String,
    },
    /// A setting was changed while the session runs.
    ConfigChanged {
        /// Its key.
        key: String,
        /// Its old value, secrets masked.
        old: serde_json::Value,
        /// Its new value, secrets masked.
        new: serde_json::Value,
        /// In force from the next iteration; otherwise after a restart.
        live: bool,
    },
    /// A settings file could not be used; the old settings stay in force.
    ConfigInvalid {
        /// What is wrong and where.
        message: String,
    },
    /// The limits of the session were changed.
    LimitsChanged {
        /// The new ones.
        limits: Limits,
        /// Settings of the command line that still hold: a file that was changed since wins.
        #[serde(default)]
        overrides: Vec<Override>,
    },
    /// Something that the run could do is gone; the run goes on without it.
    CapabilityDegraded {
        /// `git`, `watch`, `provider`, `checkpoints`, ...
        capability: String,
        /// What needs it is refused rather than done in another way.
        fail_closed: bool,
        /// Why.
        reason: String,
        /// The provider it is about.
        provider: Option<String>,
        /// The model it is about.
        model: Option<String>,
        /// The iteration in which it was noticed.
        iteration: Option<u64>,
    },
    /// The state database could not be trusted.
    StateCorrupt {
        /// What was wrong.
        why: String,
        /// Where the bad file was kept.
        kept_as: Option<String>,
    },
    /// State was rebuilt.
    StateRecovered {
        /// From what.
        from: String,
        /// The last event it knows.
        last_seq: u64,
        /// How far it may lag behind what had happened, in words.
        lag: String,
    },
    /// A state file that had been deleted under the running session was put back.
    StateRestored {
        /// Which.
        file: String,
    },
    /// Iterations in a row without a changed tree.
    Stagnation {
        /// How many.
        iterations: u32,
    },
    /// The agent says that everything is done.
    CompletionClaimed {
        /// `line` or `file`.
        by: String,
        /// What it says.
        summary: String,
    },
    /// A claim was checked and holds.
    CompletionVerified {
        /// The gates that passed.
        gates: Vec<String>,
        /// There was no gate to check it with.
        unverified: bool,
    },
    /// A claim was checked and does not hold.
    CompletionRejected {
        /// The gates that did not pass.
        failed: Vec<String>,
    },
    /// Money was set aside for the next call.
    BudgetReserved {
        /// US dollars.
        usd: f64,
        /// Spent so far in that window, US dollars.
        spent_usd: f64,
        /// The limit, US dollars.
        limit_usd: f64,
        /// The window that these two are of: the session, where it has a limit.
        #[serde(default)]
        window: Window,
        /// The windows beyond the session that have a limit, as they were before that.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        windows: Vec<WindowUse>,
    },
    /// The next call would pass the limit, or one in flight did.
    BudgetExceeded {
        /// The limit, US dollars.
        limit_usd: f64,
        /// Spent so far, US dollars.
        spent_usd: f64,
        /// What the next call was expected to cost, US dollars.
        next_usd: f64,
        /// How far calls in flight went beyond the limit, US dollars.
        overshoot_usd: f64,
        /// The window whose limit that is.
        #[serde(default)]
        window: Window,
        /// Set aside for other calls in flight, US dollars.
        #[serde(default)]
        reserved_usd: f64,
        /// When the window begins anew; none: a person has to raise the limit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        resets_at: Option<Timestamp>,
    },
    /// A file system in use runs full.
    DiskLow {
        /// A path on it.
        path: String,
        /// Free bytes.
        free_bytes: u64,
        /// Free inodes; none where the file system has no such limit.
        free_inodes: Option<u64>,
        /// The limit that was passed, in words.
        limit: String,
    },
    /// There is room again.
    DiskRecovered {
        /// A path on it.
        path: String,
        /// Free bytes.
        free_bytes: u64,
    },
    /// The spec says nothing.
    SpecEmpty {
        /// Its path.
        path: String,
    },
    /// The spec is not what its name says; it is used as plain text.
    SpecInvalid {
        /// Its path.
        path: String,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What is wrong.
        message: String,
    },
    /// Only part of the spec fits the prompt.
    SpecTruncated {
        /// Characters of the whole.
        from_chars: usize,
        /// Characters in the prompt.
        to_chars: usize,
    },
    /// The spec holds a command that would destroy things.
    SpecDangerous {
        /// Line, from 1.
        line: usize,
        /// The line itself.
        text: String,
    },
    /// The spec file was changed while the session runs.
    SpecChanged {
        /// Its path.
        path: String,
    },
    /// An actor died and was started again.
    ActorRestarted {
        /// Which.
        actor: String,
        /// What it died of.
        cause: String,
        /// Restarts within the window, this one included.
        restarts: u32,
    },
    /// A process that an earlier call or run had left was ended.
    OrphanEnded {
        /// Its process id.
        pid: u32,
        /// Its command line, clipped.
        command: String,
    },
    /// Something a person should know that has no event of its own.
    Notice {
        /// Stable name.
        code: String,
        /// In words.
        message: String,
    },
    /// The whole state at this point: the first line of each journal segment.
    Snapshot(Box<State>),
    /// An event of a later version. Kept, shown, and without effect on state.
    #[serde(skip)]
    Unknown,
}

/// Data of [`Body::SessionStarted`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionStarted {
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
    /// What it may use.
    pub limits: Limits,
    /// The provider chain, primary first.
    pub chain: Vec<String>,
    /// Settings of the command line; they hold for the whole session.
    #[serde(default)]
    pub overrides: Vec<Override>,
    /// `--agent`, in words.
    #[serde(default)]
    pub agent: Vec<String>,
}

/// Data of [`Body::AttemptFinished`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttemptFinished {
    /// Fencing token of the attempt.
    pub token: Token,
    /// What it came to, and why we think so.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// It uses up one of the retries.
    pub counts: bool,
    /// Tokens.
    pub usage: Usage,
    /// What it is booked at, US dollars; none: unknown.
    pub cost_usd: Option<f64>,
    /// Where `cost_usd` comes from: `provider`, `assumed`, `reservation`, `none` (turned away before it worked) or `unknown`.
    pub cost_source: String,
    /// Wall time, milliseconds.
    pub duration_ms: u64,
    /// How its process exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    /// The provider's id of the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<String>,
    /// The provider's cumulative cost of that conversation, US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_usd: Option<f64>,
    /// Whose conversation it is: the account and the folder. It is gone on with there alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_home: Option<String>,
    /// It was to go on with a conversation: whether it has, by the id that came back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed: Option<bool>,
    /// Tool uses seen.
    #[serde(default)]
    pub tools: u32,
    /// Its answer, clipped.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub answer: String,
    /// Processes it left behind, which were ended.
    #[serde(default)]
    pub strays: u32,
    /// Tree id (or folder fingerprint) at its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<String>,
    /// Anything else.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, serde_json::Value>,
}

/// What the session works from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// A spec.
    #[default]
    Spec,
    /// No spec, or an empty one: work is derived from the code base.
    Analysis,
}

// === impl AttemptFinished ===

impl AttemptFinished {
    /// What it is booked at, and whether that is not what it is known to have cost.
    pub fn booked(&self) -> (Option<MicroUsd>, bool) {
        let cost = self.cost_usd.and_then(MicroUsd::from_usd);
        (cost, cost.is_none() || !matches!(self.cost_source.as_str(), "provider" | "none"))
    }
}

// === impl Body ===

impl Body {
    /// The event's `type`.
    pub fn name(&self) -> &'static str {
        match self {
            Body::SessionStarted(_) => "session_started",
            Body::SessionResumed { .. } => "session_resumed",
            Body::SessionCrashed { .. } => "session_crashed",
            Body::SessionPaused { .. } => "session_paused",
            Body::SessionContinued { .. } => "session_continued",
            Body::SessionStopping { .. } => "session_stopping",
            Body::SessionFinished { .. } => "session_finished",
            Body::IterationStarted {} => "iteration_started",
            Body::IterationFinished { .. } => "iteration_finished",
            Body::AttemptStarted { .. } => "attempt_started",
            Body::AttemptFinished(_) => "attempt_finished",
            Body::WaitStarted { .. } => "wait_started",
            Body::WaitEnded { .. } => "wait_ended",
            Body::GateFinished { .. } => "gate_finished",
            Body::GateTimeout { .. } => "gate_timeout",
            Body::CheckpointCreated { .. } => "checkpoint_created",
            Body::MessageQueued { .. } => "message_queued",
            Body::MessageDelivered { .. } => "message_delivered",
            Body::ProviderSwitched { .. } => "provider_switched",
            Body::Failover { .. } => "failover",
            Body::CoolDown { .. } => "cool_down",
            Body::ConfigChanged { .. } => "config_changed",
            Body::ConfigInvalid { .. } => "config_invalid",
            Body::LimitsChanged { .. } => "limits_changed",
            Body::CapabilityDegraded { .. } => "capability_degraded",
            Body::StateCorrupt { .. } => "state_corrupt",
            Body::StateRecovered { .. } => "state_recovered",
            Body::StateRestored { .. } => "state_restored",
            Body::Stagnation { .. } => "stagnation",
            Body::CompletionClaimed { .. } => "completion_claimed",
            Body::CompletionVerified { .. } => "completion_verified",
            Body::CompletionRejected { .. } => "completion_rejected",
            Body::BudgetReserved { .. } => "budget_reserved",
            Body::BudgetExceeded { .. } => "budget_exceeded",
            Body::DiskLow { .. } => "disk_low",
            Body::DiskRecovered { .. } => "disk_recovered",
            Body::SpecEmpty { .. } => "spec_empty",
            Body::SpecInvalid { .. } => "spec_invalid",
            Body::SpecTruncated { .. } => "spec_truncated",
            Body::SpecDangerous { .. } => "spec_dangerous",
            Body::SpecChanged { .. } => "spec_changed",
            Body::ActorRestarted { .. } => "actor_restarted",
            Body::OrphanEnded { .. } => "orphan_ended",
            Body::Notice { .. } => "notice",
            Body::Snapshot(_) => "snapshot",
            Body::Unknown => "unknown",
        }
    }

    /// How much attention it wants.
    pub fn level(&self) -> Level {
        match self {
            Body::SpecEmpty { .. }
            | Body::SpecInvalid { .. }
            | Body::SpecTruncated { .. }
            | Body::SpecDangerous { .. }
            | Body::SessionCrashed { .. }
            | Body::GateTimeout { .. }
            | Body::CapabilityDegraded { .. }
            | Body::ConfigInvalid { .. }
            | Body::StateRecovered { .. }
            | Body::StateRestored { .. }
            | Body::Stagnation { .. }
            | Body::BudgetExceeded { .. }
            | Body::DiskLow { .. }
            | Body::ActorRestarted { .. }
            | Body::Failover { .. }
            | Body::CoolDown { .. }
            | Body::CompletionRejected { .. }
            | Body::OrphanEnded { .. } => Level::Warn,
            Body::StateCorrupt { .. } => Level::Error,
            Body::SessionPaused { reason, .. } if *reason != Reason::Requested => Level::Warn,
            Body::SessionFinished { state: Phase::Failed, .. } => Level::Error,
            Body::AttemptFinished(a) if !a.verdict.outcome.ends_iteration() => Level::Warn,
            Body::AttemptFinished(a) if a.verdict.warning.is_some() => Level::Warn,
            Body::BudgetReserved { .. } | Body::Snapshot(_) => Level::Debug,
            _ => Level::Info,
        }
    }
}
