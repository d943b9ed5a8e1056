//! Blobs of files that a filter driver converts (Git LFS is one): made by the git program, all in one call.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use git2::{Index, Oid};

use super::index::Mode;
use super::{GitError, Program, saved};

/// Only so many files are tried one by one after a failure.
const SINGLY_MAX: usize = 50;

/// Where the program works.
pub(super) struct Workshop<'a> {
    pub(super) program: &'a Program,
    pub(super) work_tree: &'a Path,
    /// The user's index: what a file becomes may depend on the blob that it has there.
    pub(super) user_index: &'a Path,
    /// Our folder in the git directory.
    pub(super) private: &'a Path,
    /// What is written is synced.
    pub(super) durable: bool,
}

/// What a file became; `None`: it has gone.
pub(super) type Converted = Result<Option<(Oid, Mode)>, String>;

// === impl Workshop ===

impl Workshop<'_> {
    /// Converts the files at these paths. One that fails does not spoil the others.
    pub(super) fn convert(&self, paths: &[Vec<u8>]) -> Result<Vec<Converted>, GitError> {
        match self.together(paths) {
            Ok(converted) => Ok(converted.into_iter().map(Ok).collect()),
            Err(error @ GitError::Program(_)) if paths.len() == 1 => Ok(vec![Err(error.to_string())]),
            Err(error @ GitError::Program(_)) => {
                let singly = |(n, path): (usize, &Vec<u8>)| match n {
                    0..SINGLY_MAX => Ok(self.convert(std::slice::from_ref(path))?.remove(0)),
                    _ => Ok(Err(error.to_string())),
                };
                paths.iter().enumerate().map(singly).collect()
            }
            Err(error) => Err(error),
        }
    }

    fn together(&self, paths: &[Vec<u8>]) -> Result<Vec<Option<(Oid, Mode)>>, GitError> {
        let folder = tempfile::Builder::new().prefix("convert-").tempdir_in(self.private);
        let folder = folder.map_err(GitError::file("make a folder in", self.private))?;
        let index = folder.path().join("index");
        saved::copy(self.user_index, &index)?;
        let list: Vec<u8> = paths.iter().flat_map(|path| path.iter().copied().chain([0])).collect();
        self.program
            .call(self.work_tree, "update-index")
            .args(["--add", "--remove", "--replace", "-z", "--stdin"])
            // The user's wish to be warned of mixed line ends is about commits, not about checkpoints.
            .config("core.safecrlf=false")
            .durable(self.durable)
            .env("GIT_INDEX_FILE", &index)
            .stdin(&list)
            .run()?;
        let index = Index::open(&index)?;
        let find = |path: &Vec<u8>| {
            let entry = index.get_path(Path::new(OsStr::from_bytes(path)), 0)?;
            Some((entry.id, Mode::from_bits(entry.mode)))
        };
        Ok(paths.iter().map(find).collect())
    }
}
