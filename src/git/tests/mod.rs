//! The whole of it, with the real git as the oracle.

mod checkpoints;
mod random;
mod snapshots;
