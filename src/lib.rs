//! Longhaul: the supervisor for coding agents that run overnight, over a weekend, for weeks.
//!
//! Dependencies point one way: `cli` → `actors` → `messages` → `domain`; `providers`, `git`, `process`,
//! `store`, `channels`, `intake` and `config` know `domain`, never `actors`. See ARCHITECTURE.md for the map.

pub mod actors;
pub mod channels;
pub mod cli;
pub mod clock;
pub mod config;
pub mod domain;
pub mod git;
mod http;
pub mod intake;
pub mod messages;
pub mod process;
pub mod providers;
pub mod store;
