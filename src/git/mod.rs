//! Git: repository, capabilities, checkpoints.

mod backend;
mod by_program;
mod checkpoint;
mod commit_all;
mod content;
mod converter;
mod environment;
mod error;
mod exclude;
mod filters;
mod folder;
mod gitdir;
mod id;
mod ignore;
mod index;
mod library;
mod listing;
mod locate;
mod message;
mod objects;
mod open;
mod pack;
mod program;
mod repo;
mod saved;
mod scan;
mod seen;
mod settings;
mod stat;
mod sweep;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod vcs;
mod warning;
mod wildmatch;

pub use backend::{Change, ChangeKind, Changes, Head};
pub use checkpoint::{Checkpoint, CheckpointDetails, CheckpointMeta};
pub use environment::Environment;
pub use commit_all::commit_all;
pub use error::GitError;
pub use folder::{FolderState, FolderWatch};
pub use id::{CommitId, InvalidObjectId, ObjectId, TreeId};
pub use program::{Call, Output, Program, ProgramError};
pub use repo::{Durability, Opening, Repo, Route, Snapshot};
pub use vcs::{Look, Vcs};
pub use warning::{Warning, Warnings, Why};
