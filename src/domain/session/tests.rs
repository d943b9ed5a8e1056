//! The state machine without actors: a [`world::World`] does what it asks for, and tells it what happens.

mod begin;
mod boundary;
mod money;
mod notifications;
mod outcomes;
mod property;
mod settings;
mod signals;
mod world;
