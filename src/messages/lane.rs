//! Lane: one iteration at a time.

use std::time::Duration;

use crate::domain::ids::Token;
use crate::domain::session::EndReason;

use super::provider::ProviderReport;

/// What Lane receives.
#[derive(Debug)]
pub enum LaneMsg {
    /// Session: make yourself ready for a call.
    Prepare {
        /// The providers of which one will be called.
        chain: Vec<String>,
    },
    /// Session: the committed attempt begins.
    Go(Go),
    /// Session: end the call in flight.
    End {
        /// Why.
        why: EndReason,
        /// TERM to KILL.
        grace: Duration,
    },
    /// Itself: the process of the next call is there, or why not.
    Prepared(Box<crate::actors::lane::PreparedCall>),
    /// Itself: the prompt is built.
    Prompted(Box<crate::actors::lane::Prompted>),
    /// Provider: the call has ended.
    CallEnded(Box<ProviderReport>),
    /// Itself: the tree after the call has been read.
    Looked(Box<crate::actors::lane::Looked>),
    /// Tests: die now.
    #[cfg(debug_assertions)]
    Crash,
}

/// An attempt that begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Go {
    /// Its fencing token.
    pub token: Token,
    /// The iteration.
    pub iteration: u64,
    /// The attempt.
    pub attempt: u32,
    /// The provider.
    pub provider: String,
}
