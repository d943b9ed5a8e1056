//! Git: repository, capabilities, checkpoints.

mod environment;
mod id;
mod ignore;
mod program;
#[cfg(test)]
mod testing;
mod wildmatch;

pub use environment::Environment;
pub use id::{CommitId, InvalidObjectId, ObjectId, TreeId};
pub use program::{Call, Output, Program, ProgramError};
