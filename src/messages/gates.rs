//! Gates: runs checks with time limits.

use std::time::Duration;

use crate::domain::ids::Token;
use crate::domain::session::GateReport;

/// What Gates receives.
#[derive(Debug)]
pub enum GatesMsg {
    /// Session: run these, in order; the answer is a [`SessionMsg`](super::session::SessionMsg).
    Run {
        /// The attempt after which they run.
        token: Token,
        /// The iteration, for their environment.
        iteration: u64,
        /// Their names.
        names: Vec<String>,
    },
    /// Session: end what runs.
    End {
        /// TERM to KILL.
        grace: Duration,
    },
    /// Itself: one has ended.
    Ended {
        /// The attempt after which it ran.
        token: Token,
        /// What it came to.
        report: Box<GateReport>,
    },
    /// Tests: die now.
    #[cfg(debug_assertions)]
    Crash,
}
