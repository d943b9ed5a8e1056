//! What is read from the project: the spec and a count of its source files.

pub mod template;
