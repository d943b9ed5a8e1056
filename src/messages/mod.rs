//! What actors say to each other: one file per actor, with the enum it receives and the types that cross mailboxes.
//!
//! Messages are hints, the store is the truth: any of them may be lost with its actor, and nothing that matters
//! lives only in a mailbox. Calls go down the tree and always have a time limit; casts go up.

pub mod accounts;
pub mod disk;
pub mod gates;
pub mod host;
pub mod journal;
pub mod lane;
pub mod notifier;
pub mod project;
pub mod provider;
pub mod repo;
pub mod session;
pub mod signals;
pub mod slot;
pub mod store;
pub mod watcher;

pub use slot::{Gone, Slot};
