//! Notifier: tells a person who is not looking.

use jiff::Timestamp;
use ractor::RpcReplyPort;

use crate::domain::event::Event;

/// What Notifier receives.
#[derive(Debug)]
pub enum NotifierMsg {
    /// Journal: these were committed, and may be worth a look.
    Hint(Vec<Event>),
    /// Timer: something is due.
    Due,
    /// Itself: a round of sending is over.
    Round(Round),
    /// Host: the run is over; answer when nothing is due any more.
    Close(RpcReplyPort<()>),
    /// Tests: die now.
    #[cfg(debug_assertions)]
    Crash,
}

/// What a round of sending came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Round {
    /// These are written down.
    pub posted: Vec<String>,
    /// When the next one is due.
    pub next: Option<Timestamp>,
    /// Why something did not arrive, by channel.
    pub failures: Vec<(String, String)>,
}
