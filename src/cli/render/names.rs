//! Names from the journal in words.

use crate::domain::state::{GateResult, Phase, Reason, WaitReason};

/// Why a session is in its state.
pub fn reason(reason: Reason) -> &'static str {
    match reason {
        Reason::Requested => "asked for by a person",
        Reason::Interrupted => "interrupted",
        Reason::DiskLow => "the disk is nearly full",
        Reason::BudgetExceeded => "the budget is used up",
        Reason::AuthRequired => "the provider wants a new login",
        Reason::ProviderUnavailable => "no provider can be used",
        Reason::Refused => "the provider refused the content",
        Reason::Stagnated => "nothing changes any more",
        Reason::RetriesExhausted => "too many failures in a row",
        Reason::NeedsHuman => "the agent asks for a person",
        Reason::RateLimited => "rate limit",
        Reason::BackOff => "before another try",
        Reason::Overloaded => "the provider is overloaded",
        Reason::NetworkDown => "the network is down",
        Reason::MaxOutage => "the network was down for too long",
        Reason::ContextOverflow => "the prompt is too long for the model",
        Reason::MaxIterations => "the asked-for iterations are done",
        Reason::MaxDuration => "the asked-for time is over",
        Reason::GoalsMet => "the goals are met",
        Reason::InternalError => "a fault of Longhaul",
    }
}

/// Why nothing happens for a while.
pub fn wait(why: WaitReason) -> &'static str {
    match why {
        WaitReason::BackOff => "before another try",
        WaitReason::CoolDown => "all accounts are at their limits",
        WaitReason::Overloaded => "the provider is overloaded",
        WaitReason::NetworkDown => "the network is down",
        WaitReason::BudgetExceeded => "the budget is used up",
    }
}

/// How a gate ended.
pub fn gate(result: GateResult) -> &'static str {
    match result {
        GateResult::Passed => "passed",
        GateResult::Failed => "failed",
        GateResult::TimedOut => "timed out",
        GateResult::CouldNotRun => "could not run",
        GateResult::Cancelled => "was cancelled",
    }
}

/// What a session does.
pub fn phase(state: Phase) -> &'static str {
    match state {
        Phase::Starting => "starting",
        Phase::Running => "running",
        Phase::Waiting => "waiting",
        Phase::Paused => "paused",
        Phase::Stopping => "stopping",
        Phase::Stopped => "stopped",
        Phase::Finished => "finished",
        Phase::Failed => "failed",
    }
}
