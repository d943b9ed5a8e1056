//! The effects of steps on the lane's folder. Blocking.

use std::fs;
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};

use super::script::Step;

/// Makes commits; the caller says how (libgit2, or the git program).
pub trait Commit {
    /// Commits everything in the folder; an empty commit is fine.
    fn commit_all(&mut self, folder: &Path, message: &str) -> Result<(), String>;
}

/// Why a step could not be performed.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// The path leads out of the lane's folder, or into git's.
    #[error("{} is not within the lane's folder", .0.display())]
    Outside(PathBuf),
    /// The file system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Git refused.
    #[error("commit: {0}")]
    Commit(String),
}

/// Performs one step in `folder`. Steps without an effect on files do nothing.
pub fn perform(step: &Step, folder: &Path, git: &mut dyn Commit) -> Result<(), StageError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| StageError::Io { path, source }
    };
    match step {
        Step::Write { path, text } => {
            let file = confined(folder, path)?;
            make_parent(&file).and_then(|()| fs::write(&file, text)).map_err(failed(path))
        }
        Step::Append { path, text } => {
            let file = confined(folder, path)?;
            let append =
                || fs::OpenOptions::new().create(true).append(true).open(&file)?.write_all(text.as_bytes());
            make_parent(&file).and_then(|()| append()).map_err(failed(path))
        }
        Step::Delete { path } => match fs::remove_file(confined(folder, path)?) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed(path)(e)),
            _ => Ok(()),
        },
        Step::Commit(message) => git.commit_all(folder, message).map_err(StageError::Commit),
        _ => Ok(()),
    }
}

/// The file at `path` within `folder`: relative, no `..`, not in `.git`, and no link on the way.
fn confined(folder: &Path, path: &Path) -> Result<PathBuf, StageError> {
    let outside = || StageError::Outside(path.to_owned());
    let mut file = folder.to_owned();
    for component in path.components() {
        match component {
            Component::Normal(name) if !name.eq_ignore_ascii_case(".git") => file.push(name),
            Component::CurDir => continue,
            _ => return Err(outside()),
        }
        if fs::symlink_metadata(&file).is_ok_and(|meta| meta.is_symlink()) {
            return Err(outside());
        }
    }
    if file == folder { Err(outside()) } else { Ok(file) }
}

fn make_parent(file: &Path) -> io::Result<()> {
    file.parent().map_or(Ok(()), fs::create_dir_all)
}
