//! What each outcome costs, and what it asks for. The table of the design, as code.

use crate::domain::outcome::Outcome;
use crate::domain::state::{Reason, WaitReason};

/// What follows from an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// The iteration is over.
    Done,
    /// Ended by us: the iteration runs again under its number.
    Again,
    /// The account cools down until its own reset; uses no retry.
    CoolDown,
    /// The account is out until a person or its credential says otherwise; uses no retry.
    Out,
    /// Back-off and try again; uses no retry.
    Wait(WaitReason),
    /// Back-off and try again; uses a retry.
    Retry,
}

impl Policy {
    /// The attempt uses up one of the retries.
    pub fn counts(self) -> bool {
        self == Policy::Retry
    }
}

/// The policy for `outcome`.
pub fn policy(outcome: &Outcome) -> Policy {
    match outcome {
        Outcome::Completed { .. } | Outcome::CapReached => Policy::Done,
        Outcome::Cancelled => Policy::Again,
        Outcome::RateLimited { .. } | Outcome::UsageLimited { .. } | Outcome::QuotaExhausted { .. } => {
            Policy::CoolDown
        }
        Outcome::Overloaded => Policy::Wait(WaitReason::Overloaded),
        Outcome::NetworkDown => Policy::Wait(WaitReason::NetworkDown),
        Outcome::AuthFailed | Outcome::ModelUnavailable | Outcome::NotRunnable | Outcome::Refused => {
            Policy::Out
        }
        Outcome::Empty
        | Outcome::ContextOverflow
        | Outcome::Truncated
        | Outcome::SilentHang
        | Outcome::TimedOut
        | Outcome::Crashed { .. }
        | Outcome::Unknown { .. } => Policy::Retry,
    }
}

/// What a session pauses for whose accounts are all out, one of them because of the outcome of this name.
pub(super) fn out_reason(why: &str) -> Reason {
    match why {
        "auth_failed" => Reason::AuthRequired,
        "refused" => Reason::Refused,
        _ => Reason::ProviderUnavailable,
    }
}

/// The agent had the prompt and may have acted on it: what people said in it has reached it.
///
/// After a limit, a dead key or an unreachable server nobody has read it; after our own interrupt the iteration
/// runs again. In both cases the messages go into the next prompt, under the same ids.
pub(super) fn prompt_was_read(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Completed { .. }
        | Outcome::CapReached
        | Outcome::Truncated
        | Outcome::Refused
        | Outcome::TimedOut
        | Outcome::SilentHang
        | Outcome::Crashed { .. }
        | Outcome::Unknown { .. } => true,
        Outcome::Empty
        | Outcome::RateLimited { .. }
        | Outcome::UsageLimited { .. }
        | Outcome::QuotaExhausted { .. }
        | Outcome::Overloaded
        | Outcome::AuthFailed
        | Outcome::NetworkDown
        | Outcome::ContextOverflow
        | Outcome::ModelUnavailable
        | Outcome::NotRunnable
        | Outcome::Cancelled => false,
    }
}

/// Nobody began to work on it. What is not told to have cost anything has cost nothing.
pub(super) fn was_turned_away(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::RateLimited { .. }
            | Outcome::UsageLimited { .. }
            | Outcome::QuotaExhausted { .. }
            | Outcome::Overloaded
            | Outcome::AuthFailed
            | Outcome::NetworkDown
            | Outcome::ModelUnavailable
            | Outcome::NotRunnable
    )
}

/// In words, for people: what happened and what to do.
pub(super) fn advice(reason: Reason, provider: &str, credential: Option<&str>) -> String {
    match reason {
        Reason::AuthRequired => {
            let renew = credential.unwrap_or("log in again with the provider's own command");
            format!("the credential of `{provider}` was refused: {renew}, then `longhaul resume`")
        }
        Reason::ProviderUnavailable => {
            format!("`{provider}` cannot be used as it is: see `longhaul logs`, then `longhaul provider use NAME` or `longhaul resume`")
        }
        Reason::Refused => {
            format!("`{provider}` refused the content: change the spec or the provider, then `longhaul resume`")
        }
        Reason::RetriesExhausted => {
            "see `longhaul logs`, then `longhaul resume`".to_owned()
        }
        Reason::Stagnated => {
            "nothing has changed for too many iterations: `longhaul say` what to do, then `longhaul resume`"
                .to_owned()
        }
        Reason::ContextOverflow => {
            "the prompt is too long for the model, twice in a row: shorten the spec or take another model, then `longhaul resume`"
                .to_owned()
        }
        _ => String::new(),
    }
}
