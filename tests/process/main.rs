//! Child processes through the real keeper: how they start, how they end, and that nothing of them stays.

#![expect(clippy::unwrap_used, reason = "a test that cannot set its scene fails")]

mod end;
mod orphans;
mod output;
mod probe;
mod scene;
mod start;
