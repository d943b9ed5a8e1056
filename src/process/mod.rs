//! The only place that starts or signals processes.
//!
//! ```text
//! supervisor ── keeper ── call keeper ── agent ── whatever the agent starts
//!     └──────────── one socket per call ────┘
//! ```
//!
//! The [`Keeper`] is this program started once more, small and single-threaded; it forks one call keeper per call.
//! A call keeper is the agent's parent and the reaper of all its descendants. It ends the call when it is told to,
//! when the agent leaves something behind, or when the supervisor's end of the socket closes. So a call has an end
//! whoever is killed:
//!
//! | killed | what ends the agent and its descendants |
//! | --- | --- |
//! | agent | the call keeper: TERM, a second, KILL |
//! | supervisor | each call keeper, by the end of file on its socket, in the same way |
//! | keeper | nothing has to: call keepers live on; the next [`Keeper::prepare`] starts a new keeper |
//! | call keeper | the agent's parent-death signal; the keeper adopts and kills the rest, and [`Call::ended`] sweeps |
//! | all of them | [`sweep()`] at the next start, by recorded [`ProcessId`] and by environment |
//!
//! Use: [`Keeper::prepare`] while the last call still runs, record [`Prepared::id`], [`Prepared::start`], give the
//! [`Output`] to [`pump()`] on a blocking thread, wait for [`Call::ended`], then [`PumpStop::stop`]: whoever could
//! have written is gone by then, so nothing is lost, and a stranger who holds the pipe holds nobody up. Gates go the
//! same way. Dropping a [`Prepared`] or a [`Call`] ends what it owns.
//!
//! Needs Linux 5.4 or later with `/proc`.
//!
//! `main` must begin with `if process::is_keeper_invocation() { process::keeper_main() }`.

mod agent;
mod call;
mod call_keeper;
mod capture;
mod error;
mod gate;
mod keeper;
mod lines;
mod link;
mod lock;
mod log;
mod output;
mod probe;
mod spec;
mod supervisor;
mod sweep;
mod sys;
mod tree;
mod wire;

pub use call::{Call, Ended, Output, Prepared};
pub use capture::HeadTail;
pub use error::{ProcessError, StartFailure};
pub use gate::{GateLimits, run_gate};
pub use keeper::{is_keeper_invocation, keeper_main};
pub use lines::{LONG_LINE_HEAD, Line, read_lines};
pub use lock::wait_for_call_lock;
pub use log::AttemptLog;
pub use output::{
    Activity, LineSink, MAX_LINE, PumpStop, Pumped, RawLog, StopSignal, Stream, StreamEnd, pump,
};
pub use probe::{CAPTURE_LIMIT, CaptureError, Captured, run_capture, run_in_terminal};
pub use spec::CallSpec;
pub use supervisor::Keeper;
pub use sweep::{FoundBy, Swept, Targets, sweep};
pub use sys::{drop_startup_pages, return_memory};
pub use tree::{ProcessId, TreeUsage};
