//! Repo: owns the git repository; one operation at a time.

use ractor::RpcReplyPort;

/// What Repo receives.
#[derive(Debug)]
pub enum RepoMsg {
    /// Lane: the tree as it is now.
    Snapshot(RpcReplyPort<TreeNow>),
    /// Session: keep the tree of this iteration under its ref. Said again after a restart for the last one.
    Checkpoint {
        /// The iteration.
        number: u64,
    },
    /// Itself: the blocking job is over.
    JobDone(Box<crate::actors::repo::Job>),
    /// Project: finish what is queued.
    Close(RpcReplyPort<()>),
    /// Tests: die now.
    #[cfg(debug_assertions)]
    Crash,
}

/// A look at the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeNow {
    /// Git tree id, or the folder's fingerprint; none when it could not be read.
    pub tree: Option<String>,
    /// It is a git tree: a checkpoint can keep it.
    pub git: bool,
}
