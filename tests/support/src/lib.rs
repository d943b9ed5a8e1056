//! The kit of Longhaul's black-box tests and benches: it runs the real program in a world of its own and asks
//! what a user could see.
//!
//! - [`World`]: a scratch project with its own home, configuration and git settings. When it goes, every process
//!   that was started in it is ended and its files are removed.
//! - [`Running`] and [`Finished`]: one run of the program; waiting is always for a condition, with a deadline.
//! - [`AgentLog`]: what the fake agent (`tests/helpers/fake_agent.rs`) wrote about its own calls, so that the
//!   journal can be compared with what really happened.
//! - [`api`]: a small model API on loopback for the real CLIs, with scripted turns and faults.
//! - [`Peer`]: those CLIs, pinned and installed from npm.
//!
//! Nothing here uses Longhaul's own code: a wrong assumption must not be able to confirm itself.
#![expect(
    clippy::disallowed_methods,
    reason = "the kit stands outside the program: it starts it and times it"
)]

mod agent_log;
pub mod api;
mod bins;
mod cpu;
mod event;
mod figures;
mod mount;
mod peers;
mod processes;
mod run;
mod terminal;
mod wait;
mod world;

pub use agent_log::{AgentCall, AgentLog};
pub use bins::{fake_agent, longhaul};
pub use cpu::{CpuMeter, cpu_ns};
pub use event::Event;
pub use figures::{Report, median, ms, percentile};
pub use mount::SmallDisk;
pub use peers::Peer;
pub use processes::{Process, start_time, status_kb};
pub use run::{Finished, Running};
pub use terminal::Terminal;
pub use wait::{PATIENCE, eventually, pass, wall_ns};
pub use world::{World, words};
