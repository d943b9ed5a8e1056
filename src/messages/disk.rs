//! Disk: free bytes and inodes of every file system in use.

use std::path::PathBuf;
use std::time::Duration;

use ractor::RpcReplyPort;

use super::session::SessionMsg;
use super::slot::Slot;

/// What Disk receives.
#[derive(Debug)]
pub enum DiskMsg {
    /// A project: watch the file systems of these paths, and tell this Session when one runs full or has room again.
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
    /// Itself: the blocking look is over.
    Looked(Box<crate::actors::disk::Seen>),
    /// Tests: die now.
    #[cfg(debug_assertions)]
    Crash,
}

/// When a file system counts as full.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DiskLimits {
    /// Fewer free bytes than this.
    pub min_free: u64,
    /// Fewer free inodes than this.
    pub min_inodes: u64,
    /// It has room again at this multiple of the limits.
    pub resume_factor: f64,
    /// How often to look.
    pub interval: Duration,
}
