//! Whole projects in simulated time: the real actors, a real database, journal and inbox in a temporary folder, agents
//! that are rehearsed, and a clock that moves only when nothing else does. `LONGHAUL_SIM_SEED` repeats a run.
#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

mod broken;
mod faults;
mod invariants;
mod ledger;
mod moments;
mod month;
mod restarts;
mod scene;
mod storm;
mod verdict;
