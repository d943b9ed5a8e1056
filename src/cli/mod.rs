//! Arguments in, calls to the core, printing out.

pub mod accounts;
pub mod args;
pub mod budget;
mod classify;
pub mod completions;
pub mod config;
pub mod control;
pub mod demo;
pub mod doctor;
pub mod error;
pub mod events;
mod follow;
pub mod format;
pub mod gates;
pub mod init;
pub mod logs;
pub mod notify;
pub mod output;
pub mod project;
pub mod provider;
pub mod render;
pub mod run;
pub mod status;
