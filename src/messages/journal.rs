//! Journal: fans committed events out to the file, to stdout and to whoever subscribed.

use ractor::RpcReplyPort;

use super::store::Committed;

/// What Journal receives.
#[derive(Debug)]
pub enum JournalMsg {
    /// Store: these were committed.
    Committed(Committed),
    /// Itself: the blocking job is over.
    JobDone,
    /// Timer: what was committed is to be written.
    Write,
    /// Timer: `status.json` is due.
    ProjectStatus,
    /// Project: write what is queued, then close.
    Close(RpcReplyPort<()>),
    /// Tests: die now.
    #[cfg(debug_assertions)]
    Crash,
}
