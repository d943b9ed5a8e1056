//! What is read from the project: the spec, the files that it refers to, and a count of its source files.

pub mod languages;
pub mod references;
pub mod spec_file;
pub mod survey;
pub mod template;
