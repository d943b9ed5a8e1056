//! Store: the only writer of `state.db`.

use std::sync::Arc;

use ractor::RpcReplyPort;

use crate::domain::event::Draft;
use crate::store::StoreError;

pub use crate::store::Committed;

/// What Store receives.
#[derive(Debug)]
pub enum StoreMsg {
    /// Whoever decides: write these events together, and answer when they are durable. The same batch may be sent
    /// again (its first event's id is its identity).
    Commit {
        /// The events, in order.
        drafts: Arc<[Draft]>,
        /// The incarnation of Session that decides; none for what touches no session. That of an earlier one is
        /// dropped without an answer.
        session: Option<u64>,
        /// Answered after the commit.
        reply: RpcReplyPort<Result<Committed, Arc<StoreError>>>,
    },
    /// Itself: the blocking job is over.
    JobDone(Box<crate::actors::store::Job>),
    /// Timer: look whether the files are still there.
    CheckLink,
    /// Project: commit what is queued, then close.
    Close(RpcReplyPort<()>),
    /// Tests: die now.
    #[cfg(debug_assertions)]
    Crash,
}
