//! One call: what is asked of an agent, and how the call ended.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

use crate::domain::outcome::Exit;

/// What is asked of an agent in one attempt.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CallRequest {
    /// The whole prompt.
    pub prompt: String,
    /// Model to ask for; `None` leaves the choice to the CLI.
    pub model: Option<String>,
    /// Conversation to go on with, as the provider named it.
    pub resume: Option<String>,
    /// Caps that the CLI itself enforces, where it can.
    pub caps: Caps,
    /// Folder that the agent works in; absolute.
    pub cwd: PathBuf,
    /// `LONGHAUL_PROJECT`, `LONGHAUL_SESSION`, `LONGHAUL_LANE`, `LONGHAUL_ITERATION`, `LONGHAUL_ATTEMPT`:
    /// added to the agent's environment last, so nothing overrides them.
    pub vars: Vec<(String, OsString)>,
}

/// Caps of one call.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Caps {
    /// Model turns.
    pub max_turns: Option<u32>,
    /// US dollars.
    pub max_budget_usd: Option<f64>,
}

/// Which pipe a line came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallEnd {
    /// The process's own end, or why there never was a process.
    pub exit: Result<Exit, StartFailure>,
    /// Set when we ended the call, with the first reason.
    pub ended_by: Option<OurReason>,
}

/// Why we ended a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OurReason {
    /// No first output within the limit.
    FirstOutput,
    /// No sign of life within the limit.
    Silence,
    /// Total time limit passed.
    Total,
    /// STOP, interrupt, fencing.
    Stop,
    /// A cap of ours (turns, cost) that we enforce ourselves.
    Cap,
    /// It had delivered its terminal result and then did not exit within the grace period.
    Linger,
    /// It made a failed request again and again for longer than the limit.
    Retrying,
}

/// Why a program could not be started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartFailure {
    /// No such program.
    #[error("{0} was not found")]
    NotFound(String),
    /// There is a file, but it may not be executed.
    #[error("{0} is not executable")]
    NotExecutable(String),
    /// The name is a folder.
    #[error("{0} is a folder, not a program")]
    IsDirectory(String),
    /// The kernel does not know the file's format, or its interpreter is missing.
    #[error("{0} is not a program for this machine, or its interpreter is missing")]
    BadFormat(String),
    /// Arguments and environment are larger than the kernel takes (`E2BIG`).
    #[error("the command line of {0} is too long")]
    TooLong(String),
    /// The folder to work in is missing or may not be entered.
    #[error("the folder {0} cannot be entered")]
    Folder(String),
    /// The host had no room for another process just now (`EAGAIN`, `ENOMEM`, `EMFILE`, `ENFILE`, `ETXTBSY`).
    #[error("the host cannot start {0} now")]
    Busy(String),
    /// Any other error of the system, in its words.
    #[error("{0}")]
    Other(String),
}

// === impl CallEnd ===

impl CallEnd {
    /// The process ended by itself.
    pub fn exited(exit: Exit) -> Self {
        CallEnd { exit: Ok(exit), ended_by: None }
    }

    /// We ended it.
    pub fn ended(exit: Exit, reason: OurReason) -> Self {
        CallEnd { exit: Ok(exit), ended_by: Some(reason) }
    }

    /// It never ran.
    pub fn not_started(failure: StartFailure) -> Self {
        CallEnd { exit: Err(failure), ended_by: None }
    }
}

// === impl StartFailure ===

impl StartFailure {
    /// Reads the error of a failed spawn of `program`. The same `ENOENT` stands for a missing program and for a
    /// missing folder: look the program up with [`super::resolve::find_program`] first and check the folder, so
    /// that what remains here is a missing interpreter.
    pub fn from_io(error: &io::Error, program: &str) -> Self {
        let program = program.to_owned();
        match Errno::from_io_error(error) {
            Some(Errno::NOENT) => StartFailure::NotFound(program),
            Some(Errno::ACCESS | Errno::PERM) => StartFailure::NotExecutable(program),
            Some(Errno::ISDIR) => StartFailure::IsDirectory(program),
            Some(Errno::NOEXEC) => StartFailure::BadFormat(program),
            Some(Errno::TOOBIG) => StartFailure::TooLong(program),
            Some(Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE | Errno::TXTBSY) => {
                StartFailure::Busy(program)
            }
            _ => StartFailure::Other(format!("{program}: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_errno_has_its_own_words() {
        let read = |errno: Errno| StartFailure::from_io(&io::Error::from(errno), "agent");
        assert_eq!(read(Errno::NOENT), StartFailure::NotFound("agent".into()));
        assert_eq!(read(Errno::ACCESS), StartFailure::NotExecutable("agent".into()));
        assert_eq!(read(Errno::NOEXEC), StartFailure::BadFormat("agent".into()));
        assert_eq!(read(Errno::TOOBIG), StartFailure::TooLong("agent".into()));
        assert_eq!(read(Errno::AGAIN), StartFailure::Busy("agent".into()));
        assert!(matches!(read(Errno::IO), StartFailure::Other(words) if words.starts_with("agent: ")));
    }
}
