//! The repository that a project folder belongs to, as the rest of the program sees it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::backend::{Backend, Changes, Head};
use super::by_program::ByProgram;
use super::checkpoint::{Checkpoint, CheckpointDetails, CheckpointMeta, Checkpoints};
use super::opening::reason;
use super::warning::Warnings;
use super::{CommitId, GitError, Program, TreeId, pack, sweep};
use crate::domain::ids::SessionId;

/// What a written checkpoint must survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// The end of any process; a power cut may take the newest checkpoints.
    #[default]
    Process,
    /// A power cut as well: objects are synced before the reference that names them.
    Power,
}

/// How the work is done, for the log and for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// With libgit2; the git program runs for filters and packing only.
    Library,
    /// With the git program, and why.
    Program(String),
}

/// The work tree as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// All tracked files and all others that are not ignored.
    pub tree: TreeId,
    /// It differs from the snapshot before it in this process; false for the first.
    pub changed: bool,
    /// The commit that was checked out then.
    pub head: Option<CommitId>,
    /// What had to be left out or taken otherwise.
    pub warnings: Warnings,
    /// How many files were read, because their stat did not prove them unchanged. 0 on the git program's route.
    pub files_read: usize,
    /// How many times the git program was started for it.
    pub program_calls: u64,
}

/// A repository and the project folder in it. One operation at a time; every one blocks.
pub struct Repo {
    pub(super) backend: Box<dyn Backend>,
    pub(super) route: Route,
    pub(super) program: Arc<Program>,
    pub(super) durability: Durability,
    pub(super) place: Place,
    pub(super) checkpoints: Checkpoints,
    /// The tree of the last snapshot.
    pub(super) last: Option<TreeId>,
}

/// Where everything is.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// The top of the work tree.
    pub(super) work_tree: PathBuf,
    /// The project folder, from there; empty when it is the top.
    pub(super) folder: PathBuf,
    /// The git directory of this work tree.
    pub(super) git_dir: PathBuf,
    /// The one that all work trees of the repository share.
    pub(super) common_dir: PathBuf,
}

// === impl Place ===

impl Place {
    /// Our folder in the git directory.
    pub(super) fn private(&self) -> PathBuf {
        self.git_dir.join("longhaul")
    }
}

// === impl Repo ===

impl Repo {
    /// How the work is done now. It may change when the repository does.
    pub fn route(&self) -> &Route {
        &self.route
    }

    /// The top of the work tree that checkpoints are of.
    pub fn work_tree(&self) -> &Path {
        &self.place.work_tree
    }

    /// The project folder, from the top of the work tree; empty when it is the top.
    pub fn folder(&self) -> &Path {
        &self.place.folder
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// How many times the git program was started, for this repository and whatever else shares its [`Program`].
    pub fn program_calls(&self) -> u64 {
        self.program.calls()
    }

    /// Reads the work tree. When it returns, later changes to the files no longer matter; most objects are still
    /// in memory and are written by [`Repo::commit_checkpoint`].
    pub fn snapshot(&mut self) -> Result<Snapshot, GitError> {
        let calls = self.program.calls();
        let taken = match self.backend.snapshot() {
            Err(error @ GitError::Unsupported(_)) if self.route == Route::Library => {
                self.backend = Box::new(ByProgram::open(
                    &self.place.work_tree,
                    Arc::clone(&self.program),
                    self.durability == Durability::Power,
                )?);
                self.route = Route::Program(reason(&error));
                self.backend.snapshot()?
            }
            taken => taken?,
        };
        let changed = self.last.is_some_and(|last| last != taken.tree);
        self.last = Some(taken.tree);
        Ok(Snapshot {
            tree: taken.tree,
            changed,
            head: self.backend.head()?.commit,
            warnings: taken.warnings,
            files_read: taken.files_read,
            program_calls: self.program.calls() - calls,
        })
    }

    /// Makes the last snapshot a checkpoint: objects, then the commit, then the reference. Doing it again after a
    /// crash is fine; another tree under the same session and iteration takes the place of the first.
    pub fn commit_checkpoint(
        &mut self,
        snapshot: &Snapshot,
        meta: &CheckpointMeta,
    ) -> Result<Checkpoint, GitError> {
        match self.checkpoints.make(&mut *self.backend, snapshot, meta) {
            Err(GitError::Locked(_)) => {
                // Only this project writes references of its sessions: the lock is of a process that was killed.
                sweep::remove_lock(&self.place, meta.session, meta.iteration);
                self.checkpoints.make(&mut *self.backend, snapshot, meta)
            }
            made => made,
        }
    }

    /// Removes the oldest checkpoints of this project, over all its sessions, so that `keep` are left. How many.
    pub fn retain(&mut self, keep: usize) -> Result<usize, GitError> {
        self.checkpoints.retain(&mut *self.backend, keep)
    }

    /// Packs our loose objects when there are many: after 500 checkpoints, or when git itself would want to clean
    /// up. How many were packed; `None`: it was not time yet. Call it after each checkpoint.
    pub fn pack_if_due(&mut self) -> Result<Option<usize>, GitError> {
        pack::pack_if_due(&mut *self.backend, &self.place)
    }

    /// Whether this checkpoint is there in full.
    pub fn checkpoint_exists(&self, session: SessionId, iteration: u32) -> Result<bool, GitError> {
        Ok(self.checkpoint(session, iteration)?.is_some())
    }

    /// One checkpoint; `None`: there is none. Fails with [`GitError::NewerFormat`] for one of a newer program.
    pub fn checkpoint(
        &self,
        session: SessionId,
        iteration: u32,
    ) -> Result<Option<CheckpointDetails>, GitError> {
        self.checkpoints.read(&*self.backend, (session, iteration))
    }

    /// All checkpoints of this project, oldest first.
    pub fn list(&self) -> Result<Vec<CheckpointDetails>, GitError> {
        self.checkpoints.list(&*self.backend)
    }

    /// What is checked out.
    pub fn head(&self) -> Result<Head, GitError> {
        self.backend.head()
    }

    /// Whether the work tree was as the commit that was checked out has it.
    pub fn is_clean(&self, snapshot: &Snapshot) -> Result<bool, GitError> {
        let Some(head) = snapshot.head else { return Ok(false) };
        Ok(self.backend.read_commit(head)?.is_some_and(|commit| commit.tree == snapshot.tree))
    }

    /// The tree of a commit, for [`Repo::changes`]; `None`: there is no such commit.
    pub fn tree_of(&self, commit: CommitId) -> Result<Option<TreeId>, GitError> {
        Ok(self.backend.read_commit(commit)?.map(|commit| commit.tree))
    }

    /// What differs between two trees, the first `limit` paths of it. Either may be of a snapshot that was not
    /// made a checkpoint.
    pub fn changes(&mut self, from: TreeId, to: TreeId, limit: usize) -> Result<Changes, GitError> {
        self.backend.changes(from, to, limit)
    }

    /// Removes what killed runs have left of our own files, when it is older than five minutes. How many files.
    pub fn sweep(&self) -> Result<usize, GitError> {
        sweep::sweep(&self.place)
    }
}

impl std::fmt::Debug for Repo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Repo").field("place", &self.place).field("route", &self.route).finish_non_exhaustive()
    }
}
