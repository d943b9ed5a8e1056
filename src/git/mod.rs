//! Git: which repository a project is in, reading its work tree, and checkpoints of it.
//!
//! # How a checkpoint comes about
//!
//! [`Repo::snapshot`] walks the work tree (`scan`), compares each file's stat with the private index (`index`), reads
//! what may have changed (`content`) and names the tree. That is all the next call of an agent has to wait for: the
//! objects are held back in memory (`objects`). [`Repo::commit_checkpoint`] writes them, then the commit, then the
//! reference, while that call runs already; [`Repo::retain`] and [`Repo::pack_if_due`] tidy up.
//!
//! The private index starts as a copy of the user's. Which files are tracked is read from the user's index whenever
//! that changes, so a tree is always what `git add -A` on a fresh copy of it would give. It is kept in memory and,
//! when reading everything again would be dear, in `longhaul/index` in the git directory; losing that file costs
//! time only.
//!
//! # Two ways
//!
//! `library` and `by_library` use libgit2. Where it cannot do what git does, `by_program` runs the git program, behind
//! the same trait (`backend`): SHA-256 and reftable repositories, unknown extensions, split and sparse indexes, and
//! settings that change names (`settings`). Within the first way single files go through the program (`filters`):
//! those with a filter driver (LFS), an encoding or `ident`, and those whose line ends libgit2 would treat
//! otherwise. [`Repo::route`] and [`Snapshot::program_calls`] tell.
//!
//! # Invariants
//!
//! - The user's index, branch, HEAD, reflog, files, hooks and configuration are never written; of `info/exclude` one
//!   line is ([`Repo::exclude_own_folder`]). Hooks never run.
//! - A reference is written last and by compare-and-swap; objects are never deleted, only packed.
//! - No link is followed, nothing waits for a pipe, and a file that cannot be taken is a [`Warning`], not an error.
//! - The git program runs through [`Program`] alone.

mod backend;
mod by_library;
mod by_program;
mod checkpoint;
mod commit_all;
mod content;
mod converter;
mod dotfiles;
mod environment;
mod error;
mod exclude;
mod filters;
mod folder;
mod gitdir;
mod id;
mod ignore;
mod index;
mod init;
mod library;
mod listing;
mod locate;
mod message;
mod names;
mod objects;
mod open;
mod opening;
mod pack;
mod program;
mod repo;
mod running;
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
pub use commit_all::commit_all;
pub use environment::Environment;
pub use error::GitError;
pub use folder::{FolderState, FolderWatch};
pub use id::{CommitId, InvalidObjectId, ObjectId, TreeId};
pub use init::{exclude, init};
pub use opening::Opening;
pub use program::{Call, Output, Program, ProgramError};
pub use repo::{Durability, Repo, Route, Snapshot};
pub use vcs::{Look, Vcs};
pub use warning::{Warning, Warnings, Why};
