//! What the session's state machine is told, and what it asks for.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::domain::accounts::{Admission, Lesson, Outage};
use crate::domain::backoff::Backoff;
use crate::domain::disk::DiskReport;
use crate::domain::event::{Body, Draft};
use crate::domain::ids::{MessageId, Token};
use crate::domain::ledger::{Money, Reservation, WindowLimits};
use crate::domain::money::MicroUsd;
use crate::domain::outcome::{Exit, Usage, Verdict};
use crate::domain::state::{Account, GateResult, Reason};

/// The settings that the rules look at. Time limits of calls and gates are their owners' business.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    /// Failures in a row at which the session pauses.
    pub retries: u32,
    /// Failures in a row on one provider at which it fails over.
    pub failover_after: u32,
    /// Before a retry, and while a server or the network is away.
    pub backoff: Backoff,
    /// While a limit tells no reset.
    pub probe: Backoff,
    /// Unchanged iterations at which the agent is told.
    pub stagnation_warn: u32,
    /// Unchanged iterations at which the session pauses.
    pub stagnation_pause: u32,
    /// PAUSE interrupts the call instead of letting it finish.
    pub pause_interrupts: bool,
    /// TERM to KILL.
    pub stop_grace: Duration,
    /// How long the server or the network may be away before the session ends.
    pub max_outage: Option<Duration>,
    /// What a call of unknown cost is taken to cost, US dollars.
    pub assume_usd: Option<f64>,
    /// What one call may cost.
    pub call_usd: Option<MicroUsd>,
    /// Providers whose CLI keeps `call_usd` itself.
    pub capped: std::collections::BTreeSet<String>,
    /// What all sessions of the project may cost, and all projects in a day and a month.
    pub windows: WindowLimits,
    /// The first call after a restart goes on with the last conversation.
    pub resume_conversation: bool,
    /// What each provider's credential is, and how to renew it, in words.
    pub credentials: std::collections::BTreeMap<String, String>,
    /// Names of the gates, in order.
    pub gates: Vec<String>,
    /// Wait for a person; otherwise the program exits 5 where only a person can help.
    pub wait: bool,
}

/// STOP, or a signal to the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stop {
    /// `requested` (STOP) or `interrupted` (Ctrl-C, TERM).
    pub reason: Reason,
    /// What the person wrote.
    pub detail: String,
    /// KILL at once.
    pub now: bool,
}

/// Which signal files are there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Signals {
    /// STOP.
    pub stop: Option<Stop>,
    /// PAUSE, with its content.
    pub pause: Option<String>,
    /// A person asked to go on (`longhaul resume`).
    pub resume: bool,
}

/// Why we end a call before it has ended by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// STOP or Ctrl-C.
    Stop,
    /// PAUSE in interrupt mode.
    Pause,
    /// A file system in use runs full.
    Disk,
    /// The session's time is over.
    Deadline,
}

/// What a lane says about an attempt that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct AttemptReport {
    /// Its fencing token.
    pub token: Token,
    /// What it came to.
    pub verdict: Verdict,
    /// Tokens, and cost where the provider told it.
    pub usage: Usage,
    /// How its process exited.
    pub exit: Option<Exit>,
    /// Milliseconds.
    pub duration_ms: u64,
    /// The provider's id of the conversation.
    pub conversation: Option<String>,
    /// The provider's cumulative cost of it, US dollars.
    pub conversation_usd: Option<f64>,
    /// Whose conversation it is: the account and the folder.
    pub conversation_home: Option<String>,
    /// It was to go on with a conversation: whether it has.
    pub resumed: Option<bool>,
    /// Tool uses seen.
    pub tools: u32,
    /// Its answer, clipped.
    pub answer: String,
    /// Processes it left behind.
    pub strays: u32,
    /// Messages that its prompt held.
    pub messages: Vec<MessageId>,
    /// The claim of completion, `(by, summary)`.
    pub claim: Option<(String, String)>,
    /// It asks for a person, and why.
    pub blocked: Option<String>,
    /// Tree id or folder fingerprint after it.
    pub tree: Option<String>,
    /// The ref that will keep the tree; none without git.
    pub reference: Option<String>,
    /// Process id and start time of the next call's process, which waits.
    pub next: Option<(u32, u64)>,
}

/// What a gate came to.
#[derive(Debug, Clone, PartialEq)]
pub struct GateReport {
    /// Its name.
    pub name: String,
    /// How it ended.
    pub result: GateResult,
    /// How it exited.
    pub exit: Option<Exit>,
    /// Milliseconds.
    pub duration_ms: u64,
    /// The limit that it passed, milliseconds.
    pub timed_out_after: Option<u64>,
    /// Its output: head and tail.
    pub tail: String,
}

/// Another provider is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwitchRequest {
    /// Its name, known to be usable.
    pub to: String,
}

/// What can happen to a session.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// The signal files as they are now (level, not edge).
    Signals(Signals),
    /// Free space is below its limit, or no longer.
    Disk(DiskReport),
    /// A lane is ready for a call: the process of the next one, or none where it needs none.
    Ready(Option<(u32, u64)>),
    /// The tree before the first call.
    Base {
        /// Git tree id or folder fingerprint; none when it could not be read.
        tree: Option<String>,
        /// It is a git tree: a checkpoint can keep it.
        git: bool,
    },
    /// The answer to [`Action::Admit`] with the same number.
    Admitted {
        /// The question's number.
        ask: u64,
        /// The answer.
        admission: Admission,
        /// Accounts of which others have learned that they are to be left alone, by provider.
        news: Vec<(String, Outage)>,
        /// What the ledger says of the money, where it was asked and the call may begin otherwise.
        money: Option<Money>,
    },
    /// An attempt has ended.
    AttemptEnded(Box<AttemptReport>),
    /// All gates that were asked for have ended.
    GatesEnded {
        /// The attempt after which they were run.
        token: Token,
        /// What they came to.
        reports: Vec<GateReport>,
    },
    /// The timer of this generation has fired.
    Timer(u64),
    /// Settings were changed: new rules and limits, and what to say about them.
    Settings {
        /// In force from the next iteration.
        rules: Box<Rules>,
        /// What to say about them: `config_changed`, `limits_changed`.
        changes: Vec<Body>,
    },
    /// A person asks for another provider.
    Switch(SwitchRequest),
    /// A lane cannot make itself ready.
    NotReady {
        /// Why, for the journal.
        cause: String,
    },
    /// A lane or its call died: the attempt is lost.
    LaneLost {
        /// Which attempt; none: whatever was in flight, for the lane itself died.
        token: Option<Token>,
        /// Why, for the journal.
        cause: String,
    },
    /// The actor that runs gates was restarted: it runs none.
    GatesLost,
    /// Look again (state was changed by others).
    Nudge,
    /// A file that holds a credential has changed, while the session is paused for one.
    CredentialChanged,
}

/// What the session asks for, to be done in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Commit these events together before anything that follows.
    Commit(Vec<Draft>),
    /// Make the lane ready for a call; answered by [`Input::Ready`].
    Prepare,
    /// Ask the accounts whether a call may begin; answered by [`Input::Admitted`].
    Admit {
        /// The question's number.
        ask: u64,
        /// The provider chain, primary first.
        chain: Vec<String>,
        /// The one in use.
        active: usize,
        /// What the session knows of accounts, what is still to be committed included: the one who is asked may have
        /// been restarted.
        known: BTreeMap<String, Account>,
        /// The last call of this iteration could not reach its server.
        lost: bool,
        /// Money that is to be set aside with the admission.
        money: Option<Box<Reservation>>,
    },
    /// The money that was set aside for this call is not needed.
    Release {
        /// The call that does not begin.
        token: Token,
    },
    /// Calls have ended that the host's ledger may not know of.
    Book,
    /// The accounts learn what an attempt showed.
    Learned {
        /// The account.
        account: String,
        /// What that is.
        lesson: Lesson,
    },
    /// A person says that these work which are out until a person says so.
    Readmit {
        /// The provider chain.
        chain: Vec<String>,
    },
    /// The committed attempt begins.
    Go {
        /// Its fencing token.
        token: Token,
        /// The iteration.
        iteration: u64,
        /// The attempt.
        attempt: u32,
        /// The provider.
        provider: String,
    },
    /// End the call in flight: TERM, then KILL after the grace.
    EndCall {
        /// Why.
        why: EndReason,
        /// TERM to KILL.
        grace: Duration,
    },
    /// Run these gates on the tree as it is; answered by [`Input::GatesEnded`].
    RunGates {
        /// The attempt after which they run.
        token: Token,
        /// Their names.
        names: Vec<String>,
    },
    /// End running gates.
    EndGates {
        /// TERM to KILL.
        grace: Duration,
    },
    /// Wake me at a time; replaces an earlier timer.
    Arm {
        /// When.
        at: Timestamp,
        /// Its generation.
        generation: u64,
    },
    /// The checkpoint of this iteration is recorded: keep its tree under its ref.
    Checkpoint {
        /// The iteration.
        number: u64,
    },
    /// STOP has been obeyed: remove it.
    ConsumeStop,
    /// `resume` has been obeyed: remove it.
    ConsumeResume,
    /// The program ends with this exit code.
    Exit(u8),
}

// === impl GateReport ===

impl GateReport {
    /// Of a gate that was ended, or never begun.
    pub fn cancelled(name: String) -> Self {
        let result = GateResult::Cancelled;
        GateReport { name, result, exit: None, duration_ms: 0, timed_out_after: None, tail: String::new() }
    }
}
