//! What one provider call came to: exactly one [`Outcome`], with the evidence for it.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The typed result of an attempt. Exhaustive; see "Outcomes" in the design.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// A terminal result that says success, with evidence of work.
    Completed {
        /// The lane's tree is another one than before the attempt.
        changed: bool,
        /// The agent claims that everything is done.
        claims_done: bool,
        /// Tools that the agent was refused, by name.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        denied: Vec<String>,
    },
    /// Success claimed, nothing there.
    Empty,
    /// Requests or tokens per short window.
    RateLimited {
        /// The account's own reset, where it said one.
        until: Option<Timestamp>,
    },
    /// A plan's or subscription's window is used up.
    UsageLimited {
        /// The window's own reset, where it said one.
        until: Option<Timestamp>,
    },
    /// Money or a hard quota.
    QuotaExhausted {
        /// When the quota is full again, where it said so.
        #[serde(default)]
        until: Option<Timestamp>,
    },
    /// The server is at capacity or failing.
    Overloaded,
    /// Credential missing, wrong, expired, revoked, forbidden.
    AuthFailed,
    /// Cannot reach or lost the server.
    NetworkDown,
    /// Prompt or history too long for the model.
    ContextOverflow,
    /// Model unknown, withdrawn or not allowed for this account.
    ModelUnavailable,
    /// The model declined the content.
    Refused,
    /// Ended by a turn, token or cost cap that we set.
    CapReached,
    /// No terminal result, or the answer was cut by an output limit.
    Truncated,
    /// No sign of life for the limit.
    SilentHang,
    /// Total limit passed.
    TimedOut,
    /// Died without a result and without a known reason.
    Crashed {
        /// The signal that ended it.
        signal: Option<i32>,
        /// Its exit code.
        code: Option<i32>,
    },
    /// Missing, not executable, refuses to start, bad configuration or arguments.
    NotRunnable,
    /// Ended by us: STOP, interrupt, fencing.
    Cancelled,
    /// A failure that none of these explains.
    Unknown {
        /// Its exit code.
        code: Option<i32>,
        /// The last line it said.
        tail: String,
    },
}

impl Outcome {
    /// The outcome's name as in the journal: snake_case, without its data.
    pub fn name(&self) -> &'static str {
        match self {
            Outcome::Completed { .. } => "completed",
            Outcome::Empty => "empty",
            Outcome::RateLimited { .. } => "rate_limited",
            Outcome::UsageLimited { .. } => "usage_limited",
            Outcome::QuotaExhausted { .. } => "quota_exhausted",
            Outcome::Overloaded => "overloaded",
            Outcome::AuthFailed => "auth_failed",
            Outcome::NetworkDown => "network_down",
            Outcome::ContextOverflow => "context_overflow",
            Outcome::ModelUnavailable => "model_unavailable",
            Outcome::Refused => "refused",
            Outcome::CapReached => "cap_reached",
            Outcome::Truncated => "truncated",
            Outcome::SilentHang => "silent_hang",
            Outcome::TimedOut => "timed_out",
            Outcome::Crashed { .. } => "crashed",
            Outcome::NotRunnable => "not_runnable",
            Outcome::Cancelled => "cancelled",
            Outcome::Unknown { .. } => "unknown",
        }
    }

    /// The iteration is over with this attempt: it succeeded, or it ended at a cap that we set.
    pub fn ends_iteration(&self) -> bool {
        matches!(self, Outcome::Completed { .. } | Outcome::CapReached)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name().replace('_', " "))
    }
}

/// What a limit or failure applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccountScope {
    /// Everything that uses this credential and endpoint.
    Account,
    /// One model of the account.
    Model,
    /// This request alone.
    Request,
    /// Nothing: the account is fine.
    #[default]
    None,
}

/// Where the words that decided stood.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Evidence {
    /// `result`, `event`, `http`, `stderr`, `stdout`, `exit`, `signal`, `limit` or `none`.
    pub source: String,
    /// The line or field that decided, at most 500 characters.
    pub text: String,
}

/// An outcome with why it was chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// What happened.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// What it applies to.
    pub scope: AccountScope,
    /// What it was read from.
    pub evidence: Evidence,
    /// Stable id of the rule that decided, for example `claude.result.rate_limit`.
    pub rule: String,
    /// Something a person should know although it did not change the outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// Tokens and money of one attempt. Unknown is `None`, never 0.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Input tokens, without cached ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    /// Output tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    /// Input tokens read from a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read_tokens: Option<u64>,
    /// Input tokens written to a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_tokens: Option<u64>,
    /// US dollars as told by the provider for this attempt alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

/// How the process of a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

impl Exit {
    /// Exit code 0.
    pub fn success(self) -> bool {
        self == Exit::Code(0)
    }
}
