//! Disk: free bytes and inodes of every file system in use.

use std::path::PathBuf;

use ractor::RpcReplyPort;

use super::session::SessionMsg;
use super::slot::Slot;
pub use crate::domain::disk::DiskLimits;

/// What Disk receives.
#[derive(Debug)]
pub enum DiskMsg {
    /// A project: watch the file systems of these paths, and tell this Session when one runs full or has room again.
    /// Said again with the same paths, and by the supervisor after a restart, it replaces the first.
    Watch {
        /// Paths on them.
        paths: Vec<PathBuf>,
        /// The limits.
        limits: DiskLimits,
        /// Whom to tell.
        tell: Slot<SessionMsg>,
    },
    /// New limits.
    Limits(DiskLimits),
    /// Timer.
    Look,
    /// Session, before an iteration: look now and answer when it has been told.
    LookNow(RpcReplyPort<()>),
    /// Store: a write failed for want of space.
    WriteFailed,
    /// Timer: whoever waits for a look has waited long enough.
    Overdue,
    /// Itself: the blocking look is over.
    Looked(Box<crate::actors::disk::Seen>),
    /// Tests: die now.
    #[cfg(debug_assertions)]
    Crash,
}
