//! The rules, pure: no `async`, no clock of its own, no I/O, no randomness that it was not given.

pub mod accounts;
pub mod backoff;
pub mod budget;
pub mod claim;
pub mod complexity;
pub mod danger;
pub mod disk;
pub mod event;
pub mod host_accounts;
pub mod ids;
pub mod ledger;
pub mod money;
pub mod notification;
pub mod outcome;
pub mod plain_text;
pub mod prompt;
pub mod reach;
pub mod reset_time;
pub mod session;
pub mod signal_file;
pub mod spec;
pub mod state;
pub mod status;
