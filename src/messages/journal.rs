//! Journal: fans committed events out to the file, to stdout and to whoever subscribed.

use std::sync::Arc;

use ractor::RpcReplyPort;

use crate::domain::event::Event;

/// What Journal receives.
#[derive(Debug)]
pub enum JournalMsg {
    /// Store: these were committed.
    Committed(Arc<[Event]>),
    /// Itself: the blocking job is over.
    JobDone(Box<crate::actors::journal::Job>),
    /// Project: write what is queued, then close.
    Close(RpcReplyPort<()>),
    /// Tests: die now.
    #[cfg(debug_assertions)]
    Crash,
}
