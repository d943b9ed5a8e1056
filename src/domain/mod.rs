//! The rules, pure: no `async`, no clock of its own, no I/O, no randomness that it was not given.

pub mod claims;
pub mod ids;
pub mod outcome;
pub mod reset_time;
