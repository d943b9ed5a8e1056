//! The rules, pure: no `async`, no clock of its own, no I/O, no randomness that it was not given.

pub mod accounts;
pub mod backoff;
pub mod claims;
pub mod disk;
pub mod event;
pub mod ids;
pub mod outcome;
pub mod plain_text;
pub mod reset_time;
pub mod session;
pub mod signal_file;
pub mod state;
