//! What is read from the project: the spec, a count of its source files, signals and messages from people.

pub mod file_system;
pub mod inbox;
pub mod lease;
pub mod signal_files;
pub mod space;
