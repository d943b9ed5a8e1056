//! The in-process provider: plays a script of edits, commits, usage, faults and delays, so that people can
//! rehearse their gates, limits and budgets without an account, and simulations run whole nights in milliseconds.
//!
//! The caller loops over [`Script::play`]: it waits for [`Step::Wait`], hangs at [`Step::Hang`] until it ends the
//! call, hands every step to [`stage::perform`] (files and commits; blocking) and to [`Performance::take`], and
//! at the end asks [`Performance::verdict`].

mod chaos;
mod performance;
mod script;
pub mod stage;

pub use chaos::Chaos;
pub use performance::Performance;
pub use script::{After, Cue, Failure, Play, Script, ScriptError, Step};
