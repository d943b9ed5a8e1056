//! Git: repository, capabilities, checkpoints.

mod commit_all;

pub use commit_all::commit_all;
