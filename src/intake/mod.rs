//! What is read from the project: the spec, the files that it refers to, a count of its source files, its checks.

pub mod gates;
pub mod languages;
pub mod references;
pub mod spec_file;
pub mod survey;
pub mod template;
