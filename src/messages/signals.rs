//! Signals: PAUSE, STOP, HUMAN_INPUT.md and the inbox become typed inputs.

use ractor::RpcReplyPort;

/// What Signals receives.
#[derive(Debug)]
pub enum SignalsMsg {
    /// Watcher or timer: something may have changed, look.
    Hint,
    /// Watcher: whether change notices come.
    Notices(Notices),
    /// Itself: the blocking look is over.
    Looked(Box<crate::actors::signals::Found>),
    /// Itself: messages that were taken are committed (or could not be).
    Queued(Box<crate::actors::signals::Queued>),
    /// The program: Ctrl-C, TERM or HUP has been counted; the second time means without grace.
    Interrupt,
    /// Session: STOP has been obeyed; remove it.
    ConsumeStop(RpcReplyPort<()>),
    /// Session: `resume` has been obeyed; remove it.
    ConsumeResume,
    /// A new Session: tell it everything again.
    Repeat,
    /// Tests: die now.
    #[cfg(debug_assertions)]
    Crash,
}

/// Whether changes of a project's signal files are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notices {
    /// Each change is followed by a hint.
    Come,
    /// Not for now: the Watcher is being restarted.
    Paused,
    /// Nothing is told, and why: they must be looked for.
    None(String),
}
