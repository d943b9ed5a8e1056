//! Ways to call an agent: provider files, command lines, decoders, classification, rehearsal.
//!
//! A call goes through here in four steps, each usable alone:
//! [`registry::Registry`] finds the [`definition::Definition`]; [`command_line::build`] turns it and a
//! [`call::CallRequest`] into a program, arguments, a whole environment and bytes for stdin; a
//! [`decode::Decoder`] turns output lines into [`decode::Fact`]s and at the end into a
//! [`decode::Transcript`]; [`classify::classify`] gives the one outcome.
//! Nothing here starts a program, reads a clock or knows an actor.

pub mod account;
pub mod book;
pub mod call;
#[cfg(test)]
mod captures;
#[cfg(test)]
mod cases;
#[cfg(test)]
mod cases_in_words;
pub mod classify;
pub mod command_line;
pub mod decode;
pub mod definition;
pub mod pricing;
pub mod provider_file;
pub mod registry;
pub mod rehearsal;
pub mod resolve;
mod said;
pub mod server;
pub mod status;
