//! What is read from the project: the spec, the files that it refers to, a count of its source files, its checks,
//! signals and messages from people, free space.

pub mod file_system;
pub mod gates;
pub mod inbox;
pub mod languages;
pub mod lease;
pub mod references;
pub mod signal_files;
pub mod space;
pub mod spec_file;
pub mod stamp;
pub mod survey;
pub mod template;
