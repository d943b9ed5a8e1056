//! Git: repository, capabilities, checkpoints.

mod commit_all;
mod vcs;

pub use commit_all::commit_all;
pub use vcs::Vcs;
