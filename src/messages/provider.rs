//! Provider: one attempt, a process or a script, until it has ended.

use std::time::Duration;

use crate::domain::ids::Token;
use crate::domain::session::EndReason;
use crate::providers::call::CallEnd;
use crate::providers::decode::Transcript;
use crate::providers::rehearsal::Performance;

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

/// What a call said.
#[derive(Debug)]
pub enum Said {
    /// A process, read by its provider's decoder.
    Decoded(Box<Transcript>),
    /// A script.
    Played(Performance),
    /// It never ran.
    Nothing,
}

/// A call that has ended.
#[derive(Debug)]
pub struct ProviderReport {
    /// Fencing token of the attempt.
    pub token: Token,
    /// What it said.
    pub said: Said,
    /// How it ended.
    pub end: CallEnd,
    /// Milliseconds.
    pub duration_ms: u64,
    /// Processes it left behind, which were ended.
    pub strays: u32,
}
