//! What a snapshot had to leave out.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// More warnings than this are only counted.
const KEPT: usize = 20;

/// A file that a snapshot could not take as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// From the top of the work tree.
    pub path: PathBuf,
    /// Why.
    pub why: Why,
}

/// Why a file was left out or taken otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// It cannot be read; what was known of it before is kept.
    Unreadable(String),
    /// A pipe, socket or device: git has no such thing.
    Special,
    /// A git repository of its own without a commit: there is nothing that could stand for it.
    NestedWithoutCommit,
    /// Too many folders deep, or too long a path.
    TooDeep,
    /// A name that git refuses, since it means `.git` on some file systems.
    Forbidden,
    /// It was being written all the time: taken as it was at one moment.
    Unsettled,
    /// Its filter failed; what was known of it before is kept.
    NotConverted(String),
    /// What the git program said about it.
    Git(String),
}

/// The warnings of one snapshot, bounded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Warnings {
    /// The first 20.
    pub list: Vec<Warning>,
    /// How many there were in all.
    pub total: usize,
}

// === impl Warnings ===

impl Warnings {
    /// Adds one about `path`, given in bytes from the top of the work tree.
    pub(super) fn add(&mut self, path: &[u8], why: Why) {
        self.total += 1;
        if self.list.len() < KEPT {
            self.list.push(Warning { path: PathBuf::from(OsStr::from_bytes(path)), why });
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.as_os_str().is_empty() {
            write!(f, "{:?}: ", self.path)?;
        }
        self.why.fmt(f)
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Unreadable(error) => write!(f, "cannot be read ({error})"),
            Why::Special => f.write_str("is a pipe, socket or device"),
            Why::NestedWithoutCommit => f.write_str("is a git repository without a commit"),
            Why::TooDeep => f.write_str("lies too deep"),
            Why::Forbidden => f.write_str("has a name that git refuses"),
            Why::Unsettled => f.write_str("was being written while it was read"),
            Why::NotConverted(error) => write!(f, "could not be converted ({error})"),
            Why::Git(text) => f.write_str(text),
        }
    }
}
