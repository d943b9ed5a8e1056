//! What can go wrong around a child process.

use std::io;
use std::path::PathBuf;

use super::wire::Stage;

/// The machinery failed; nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The keeper could not be started.
    #[error("start the keeper: {0}")]
    KeeperStart(#[source] io::Error),
    /// The keeper ended twice while a call was being prepared.
    #[error("prepare a call: the keeper is gone")]
    KeeperGone,
    /// Descriptors, pipes or memory files for a call could not be made.
    #[error("prepare a call: {0}")]
    Prepare(#[source] io::Error),
    /// The call's description or prompt could not be handed over.
    #[error("hand over a call: {0}")]
    HandOver(#[source] io::Error),
    /// The description of the call makes no sense.
    #[error("start a call: {what}")]
    BadCall {
        /// What is wrong with it.
        what: &'static str,
    },
    /// `call.lock` could not be opened or locked.
    #[error("lock {}: {source}", path.display())]
    Lock {
        /// The lock file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Why a program did not start. Each cause is told apart, so that the message names the real one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartFailure {
    /// There is no such program.
    #[error("start {}: no such program", program.display())]
    NotFound {
        /// As it was given.
        program: PathBuf,
    },
    /// The program is there; the interpreter in its first line, or its loader, is not.
    #[error("start {}: its interpreter is missing", program.display())]
    InterpreterNotFound {
        /// As it was given.
        program: PathBuf,
    },
    /// The file is there and may not be executed (EACCES).
    #[error("start {}: not executable (permission denied)", program.display())]
    NotExecutable {
        /// As it was given.
        program: PathBuf,
    },
    /// The file is neither a program of this machine nor a script with `#!` (ENOEXEC).
    #[error("start {}: not a program (neither a binary for this machine nor a script with #!)", program.display())]
    NotAProgram {
        /// As it was given.
        program: PathBuf,
    },
    /// Arguments and environment are larger than the system allows (E2BIG).
    #[error("start {}: arguments and environment are too long", program.display())]
    TooLong {
        /// As it was given.
        program: PathBuf,
    },
    /// The working folder cannot be entered.
    #[error("enter {}: {}", cwd.display(), io::Error::from_raw_os_error(*errno))]
    Folder {
        /// The folder.
        cwd: PathBuf,
        /// Why (ENOENT, ENOTDIR, EACCES, ...).
        errno: i32,
    },
    /// The system has no process, memory or descriptor left for it, or something else that is not the program's fault.
    #[error("start {}: {}", program.display(), io::Error::from_raw_os_error(*errno))]
    System {
        /// As it was given.
        program: PathBuf,
        /// What the system said.
        errno: i32,
    },
}

// === impl StartFailure ===

impl StartFailure {
    pub(super) fn from_report(stage: Stage, errno: i32, program: PathBuf, cwd: PathBuf) -> Self {
        match (stage, errno) {
            (Stage::Chdir, _) => StartFailure::Folder { cwd, errno },
            (Stage::Interpreter, _) => StartFailure::InterpreterNotFound { program },
            (Stage::Exec, libc::ENOENT | libc::ENOTDIR) => StartFailure::NotFound { program },
            (Stage::Exec, libc::EACCES | libc::EPERM | libc::EISDIR) => {
                StartFailure::NotExecutable { program }
            }
            (Stage::Exec, libc::ENOEXEC) => StartFailure::NotAProgram { program },
            (Stage::Exec, libc::E2BIG) => StartFailure::TooLong { program },
            _ => StartFailure::System { program, errno },
        }
    }
}
