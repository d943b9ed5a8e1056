//! Events and what they are made of, in words for people.

mod line;
mod names;
mod show;
mod words;

pub use line::{Lines, Stamp};
pub use names::{gate, phase, reason, wait};
pub use show::{JsonLines, Words};
pub use words::words;
