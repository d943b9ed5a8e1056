//! Finds the program of a call, and says exactly why it cannot be used.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::call::StartFailure;

/// Why `--agent CMD` cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// Nothing but white space.
    #[error("the agent's command is empty")]
    Empty,
    /// A quote that is not closed, or a backslash at the end.
    #[error("the agent's command has an open quote or a trailing backslash: {0}")]
    Quoting(String),
}

/// Splits `--agent CMD` by shell words, without a shell: no variables, no globs, no pipes.
pub fn split_command(command: &str) -> Result<Vec<String>, CommandError> {
    let words = shlex::split(command).ok_or_else(|| CommandError::Quoting(command.to_owned()))?;
    match words.first() {
        None => Err(CommandError::Empty),
        Some(first) if first.is_empty() => Err(CommandError::Empty),
        Some(_) => Ok(words),
    }
}

/// The absolute path of `program`. A name with a slash is taken from `base` (the project's folder), any other is
/// looked up in `path`, the `PATH` of the environment that the agent gets; its relative entries are taken from
/// `base` too. When a later entry works, an earlier one that is not executable does not matter.
pub fn find_program(program: &str, path: Option<&OsStr>, base: &Path) -> Result<PathBuf, StartFailure> {
    if program.contains('/') {
        return usable(&base.join(program));
    }
    let mut nearest = StartFailure::NotFound(format!("{program} (on PATH)"));
    for folder in path.unwrap_or_default().as_bytes().split(|b| *b == b':') {
        // An empty entry means the current folder by POSIX; nobody wants that for an agent.
        if folder.is_empty() || program.is_empty() {
            continue;
        }
        match usable(&base.join(OsStr::from_bytes(folder)).join(program)) {
            Ok(found) => return Ok(found),
            Err(StartFailure::NotFound(_)) => {}
            Err(why) if matches!(nearest, StartFailure::NotFound(_)) => nearest = why,
            Err(_) => {}
        }
    }
    Err(nearest)
}

fn usable(file: &Path) -> Result<PathBuf, StartFailure> {
    let shown = file.display().to_string();
    match fs::metadata(file) {
        Err(_) => Err(StartFailure::NotFound(shown)),
        Ok(meta) if meta.is_dir() => Err(StartFailure::IsDirectory(shown)),
        Ok(_) if access(file, Access::EXEC_OK).is_err() => Err(StartFailure::NotExecutable(shown)),
        Ok(_) => Ok(file.to_owned()),
    }
}
