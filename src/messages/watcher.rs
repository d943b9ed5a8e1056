//! Watcher: one inotify instance per process; every event is only a hint to look again.

use std::path::PathBuf;

use super::signals::SignalsMsg;
use super::slot::Slot;

/// What Watcher receives.
#[derive(Debug)]
pub enum WatcherMsg {
    /// A project: hint this Signals actor when something changes in one of these folders.
    Watch {
        /// Folders, not recursive. Those that do not exist yet are taken up when they appear.
        folders: Vec<PathBuf>,
        /// Whom to tell.
        tell: Slot<SignalsMsg>,
    },
    /// The notification thread: something changed (or: it cannot tell what).
    Changed(Changed),
    /// Timer: check that folders are still the ones being watched.
    Check,
    /// Tests: die now.
    #[cfg(debug_assertions)]
    Crash,
}

/// What the notification thread says.
#[derive(Debug)]
pub enum Changed {
    /// Somewhere in these folders.
    Folders(Vec<PathBuf>),
    /// Events were lost: anywhere.
    Anything,
    /// The watch itself failed.
    Failed(String),
}
