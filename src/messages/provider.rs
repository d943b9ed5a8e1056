//! Provider: one attempt, a process or a script, until its outcome.

use std::time::Duration;

use crate::domain::ids::Token;
use crate::domain::outcome::{Exit, Usage, Verdict};
use crate::domain::session::EndReason;

/// What Provider receives.
#[derive(Debug)]
pub enum ProviderMsg {
    /// Lane: end the call.
    End {
        /// Why.
        why: EndReason,
        /// TERM to KILL.
        grace: Duration,
    },
    /// Timer: look for signs of life.
    Look,
    /// Itself: part of the call has ended.
    Part(Box<crate::actors::provider::Part>),
    /// Tests: die now.
    #[cfg(debug_assertions)]
    Crash,
}

/// What a call came to.
#[derive(Debug, Clone, PartialEq)]
pub struct ProviderReport {
    /// Fencing token of the attempt.
    pub token: Token,
    /// Its outcome; `changed` and `claims_done` are the lane's to fill in.
    pub verdict: Verdict,
    /// Tokens and cost.
    pub usage: Usage,
    /// How its process exited.
    pub exit: Option<Exit>,
    /// Milliseconds.
    pub duration_ms: u64,
    /// The provider's id of the conversation.
    pub conversation: Option<String>,
    /// The provider's cumulative cost of it, US dollars.
    pub conversation_usd: Option<f64>,
    /// Tool uses seen.
    pub tools: u32,
    /// The final answer, whole as far as it was kept.
    pub answer: String,
    /// Processes it left behind.
    pub strays: u32,
}
