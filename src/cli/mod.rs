//! Arguments in, calls to the core, printing out.

pub mod args;
pub mod completions;
pub mod config;
pub mod error;
pub mod init;
pub mod output;
