//! The state database, and the journal on disk.
//!
//! [`Db`] is the truth: every commit writes events and the state they fold to, in one transaction. [`Journal`] is
//! the same events as JSON lines, for people, for `tail -f`, and for rebuilding the database when it is damaged.
//! [`Reader`] and [`inspect`] look without changing anything. [`HostDb`] is what all projects of the host share. All of it blocks: call it from blocking threads.

mod ballast;
mod check;
mod codec;
mod connect;
mod create;
mod db;
mod error;
mod follow;
mod host_db;
mod journal;
mod link;
mod lock;
mod open;
mod paths;
mod reader;
mod rebuild;
mod schema;
mod segments;
mod status_file;
#[cfg(test)]
pub(crate) mod testing;

pub use ballast::Ballast;
pub use codec::{EventLine, decode};
pub use db::{Committed, Db};
pub use error::StoreError;
pub use follow::Follower;
pub use host_db::{
    Caller, Delivery, Entry, Found, HOST_DB, HostDb, Known, Letter, Line, Mark, Post, Replaced,
};
pub use journal::{Journal, JournalLimits};
pub use lock::{Held, Holder, LockError, ProjectLock, holder};
pub use open::{Inspection, OpenOptions, Opened, Recovery, inspect};
pub use paths::{FOLDER, StorePaths};
pub use reader::{EventSource, Reader};
pub use segments::{find, read_after};
pub use status_file::{replace, sweep_temp};

/// What a commit outlives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// A power cut: one `fdatasync` a commit.
    #[default]
    Power,
    /// The death of the process. After a power cut the last commits may be gone; what is there is consistent.
    Process,
}
