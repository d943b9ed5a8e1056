//! The state machine of a session: `(state, input, now) → (events, effects)`.
//!
//! [`Machine`] decides, the Session actor does. Whatever must survive is in the [`State`](super::state::State) that the events fold
//! into; the machine itself only remembers what is in flight *now* (a call, gates, a timer) and which causes
//! stand in the way (PAUSE, STOP, a full disk). After a crash a new machine begins from the state alone.
//!
//! - [`input`]: what can come in, and what goes out
//! - [`machine`]: one input at a time, and what is next when nothing is in flight
//! - [`signals`]: signal files, the disk, settings
//! - [`attempt`]: how an attempt begins, or is lost
//! - [`boundary`]: what the end of an attempt leads to
//! - [`begin`]: how a session starts, or goes on after a stop or a crash
//! - [`money`]: what a call may cost, and what it is booked at
//! - [`policy`]: what each outcome costs and asks for

mod attempt;
mod begin;
mod boundary;
mod input;
mod machine;
mod money;
mod policy;
mod signals;
#[cfg(test)]
mod tests;

pub use begin::Begin;
pub use input::{Action, AttemptReport, EndReason, GateReport, Input, Rules, Signals, Stop, SwitchRequest};
pub use machine::Machine;
pub use policy::{Policy, policy};
