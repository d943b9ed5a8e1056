//! What can go wrong with a repository.

use std::io;
use std::path::{Path, PathBuf};

use super::ProgramError;

/// Why a git operation failed. Messages read after "failed to".
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// libgit2 said no.
    #[error("work on the repository: {0}")]
    Library(#[from] git2::Error),
    /// The git program said no.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// libgit2 cannot do here what git does.
    #[error("use libgit2: {0}")]
    Unsupported(String),
    /// The git program answered with something else than the name of an object.
    #[error("read git's answer '{0}'")]
    Unexpected(String),
    /// A file could not be read or written.
    #[error("{doing} {path}: {source}", path = path.display())]
    File {
        /// For example "read".
        doing: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The git directory is gone or is another one than when it was opened. Open it again.
    #[error("find the repository at {path}: it was moved, removed or made anew", path = .0.display())]
    Moved(PathBuf),
    /// `core.worktree` puts the files somewhere else than where the project is.
    #[error("use the repository: its work tree is {work_tree}, and {folder} is not in it",
        work_tree = work_tree.display(), folder = folder.display())]
    Elsewhere {
        /// Where its files are.
        work_tree: PathBuf,
        /// The project folder.
        folder: PathBuf,
    },
    /// The reference was changed by somebody else in the meantime.
    #[error("move {0}: it is not where it was")]
    Contended(String),
    /// The reference's lock file is there: of another git at work, or of one that was killed.
    #[error("lock {0}: its lock file exists")]
    Locked(String),
    /// A commit that is no checkpoint, or not one of ours.
    #[error("read checkpoint {reference}: {why}")]
    NotACheckpoint {
        /// Its reference.
        reference: String,
        /// What is wrong with it.
        why: String,
    },
    /// A checkpoint made by a newer Longhaul.
    #[error("read checkpoint {reference}: its format {found} is newer than {known}; use a newer longhaul")]
    NewerFormat {
        /// Its reference.
        reference: String,
        /// The format it has.
        found: u32,
        /// The newest format that this program knows.
        known: u32,
    },
    /// Objects of the snapshot were removed from the repository, for example by `git gc --prune=now`. The next
    /// snapshot reads the files again.
    #[error("keep tree {0}: objects of it were removed from the repository")]
    ObjectsGone(super::TreeId),
}

// === impl GitError ===

impl GitError {
    /// Whether it failed because the disk, or the user's share of it, is full.
    pub fn is_disk_full(&self) -> bool {
        let says =
            |text: &str| text.contains("No space left on device") || text.contains("Disk quota exceeded");
        match self {
            GitError::Library(error) => says(error.message()),
            GitError::Program(error) => says(&error.to_string()),
            GitError::File { source, .. } => {
                matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            _ => false,
        }
    }

    /// For `map_err` on file operations.
    pub(super) fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> GitError {
        let path = path.to_owned();
        move |source| GitError::File { doing, path, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_a_full_disk_whoever_found_it() {
        let full = io::Error::from_raw_os_error(28);
        let message = format!("could not write: {full}");
        assert!(GitError::file("write", Path::new("x"))(full).is_disk_full());
        assert!(GitError::Library(git2::Error::from_str(&message)).is_disk_full());
        let failed = ProgramError::Failed { command: "add".into(), code: 128, stderr: message };
        assert!(GitError::Program(failed).is_disk_full());
        assert!(!GitError::Unsupported(String::new()).is_disk_full());
    }
}
