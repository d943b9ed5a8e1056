//! The actors: thin; they do the effects that `domain/` decides.
//!
//! ```text
//! Host
//! ├─ Accounts   limits, cool-downs, fail-over order
//! ├─ Disk       free bytes and inodes per file system in use
//! ├─ Watcher    one inotify instance per process; only hints
//! └─ Project
//!    ├─ Store      the only writer of state.db
//!    ├─ Journal    fans committed events out
//!    ├─ Signals    PAUSE, STOP, inbox → typed inputs
//!    ├─ Repo       trees and checkpoints
//!    ├─ Gates      runs checks
//!    └─ Session    the state machine; owns the lanes
//!       └─ Lane       one iteration at a time
//!          └─ Provider   one attempt
//! ```

pub mod blocking;
pub mod context;
pub mod disk;
pub mod signals;
pub mod supervision;
pub mod watcher;
