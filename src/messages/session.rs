//! Session: the state machine of the run; owns the lanes.

use std::sync::Arc;

use crate::config::{ConfigError, Files};
use crate::domain::session::Input;
use crate::messages::store::Committed;
use crate::store::StoreError;

/// What Session receives.
#[derive(Debug)]
pub enum SessionMsg {
    /// Signals, Disk, Accounts, Lane, Gates, Config: something for the state machine.
    Input(Box<Input>),
    /// Itself: a commit is through, or cannot be made.
    Committed(Result<Box<Committed>, CommitFailed>),
    /// Its timer: the machine's, with its generation.
    Timer(u64),
    /// Itself: what must be read before the first step has been read.
    Begun(Box<crate::actors::session::Surveyed>),
    /// Itself: try the commit again that found no room.
    RetryCommit,
    /// Signals: the settings files may have changed.
    ConfigHint,
    /// Itself: what the settings files hold.
    Reread(Box<Result<Files, ConfigError>>),
    /// Itself, after a back-off: start the lane again.
    RestartLane,
    /// Tests: die now.
    #[cfg(debug_assertions)]
    Crash,
    /// Tests: the lane dies now.
    #[cfg(debug_assertions)]
    CrashLane,
}

/// Why a commit could not be made.
#[derive(Debug, Clone)]
pub enum CommitFailed {
    /// The store said no.
    Store(Arc<StoreError>),
    /// The store did not answer.
    Gone(super::slot::Gone),
}
