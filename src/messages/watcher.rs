//! Watcher: one inotify instance per process; every event is only a hint to look again.

use std::ffi::OsString;
use std::path::PathBuf;

use super::signals::SignalsMsg;
use super::slot::Slot;

/// What Watcher receives.
#[derive(Debug)]
pub enum WatcherMsg {
    /// Signals, and the Watcher's supervisor after a restart: hint this Signals when something changes in these
    /// folders. Said again with the same folders, it replaces the first.
    Watch {
        /// The folders, the outermost first. Those that do not exist yet are taken up when they appear.
        folders: Vec<WatchedFolder>,
        /// Whom to tell.
        tell: Slot<SignalsMsg>,
    },
    /// The notification thread: it has noted something.
    Changed,
    /// Itself: the watches are what they should be, or why not.
    Arranged(Box<crate::actors::watcher::Arranged>),
    /// Timer: check that folders are still the ones being watched.
    Check,
    /// Tests: die now.
    #[cfg(debug_assertions)]
    Crash,
}

/// A folder to watch: it alone, nothing below.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedFolder {
    /// Where it is.
    pub path: PathBuf,
    /// Entries that matter; none: all of them.
    pub names: Option<Vec<OsString>>,
}
