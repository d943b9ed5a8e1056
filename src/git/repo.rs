//! The repository that a project folder belongs to, as the rest of the program sees it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use git2::ErrorCode;

use super::backend::{Backend, Changes, Head};
use super::by_program::ByProgram;
use super::checkpoint::{Checkpoint, CheckpointDetails, CheckpointMeta, Checkpoints};
use super::library::Library;
use super::locate::{Located, is_foreign, locate};
use super::message::project_key;
use super::open::Opener;
use super::warning::Warnings;
use super::{CommitId, Environment, GitError, Program, TreeId, pack, sweep};
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

/// What became of looking for a repository.
#[derive(Debug)]
pub enum Opening {
    /// Here it is.
    Git(Box<Repo>),
    /// The folder is in no repository, or in one that is not meant: one that ignores the folder, or a repository
    /// of the whole home folder.
    NoRepository,
    /// There is one that cannot be worked with.
    Unusable {
        /// Why.
        reason: String,
        /// What a person can do.
        advice: String,
    },
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
    backend: Box<dyn Backend>,
    route: Route,
    program: Arc<Program>,
    durability: Durability,
    place: Place,
    checkpoints: Checkpoints,
    /// The tree of the last snapshot.
    last: Option<TreeId>,
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
    /// Looks for the repository of the project folder `root` with this process's environment.
    pub fn open(root: &Path) -> Opening {
        Self::open_with(root, &Arc::new(Program::new(Environment::current())), Durability::default())
    }

    /// Looks for the repository of the project folder `root`: what git run in that folder would find. In a
    /// subfolder of a repository the checkpoints are of the whole work tree, as a commit would be.
    pub fn open_with(root: &Path, program: &Arc<Program>, durability: Durability) -> Opening {
        let root = match root.canonicalize() {
            Ok(root) => root,
            Err(error) => {
                return Opening::Unusable {
                    reason: format!("the folder {} cannot be read: {error}", root.display()),
                    advice: "check that the folder exists".to_owned(),
                };
            }
        };
        let top = match locate(&root, program.environment()) {
            Located::Repository(top) => top,
            Located::Nothing => return Opening::NoRepository,
            Located::Bare(path) => {
                return Opening::Unusable {
                    reason: format!(
                        "{} is a bare repository or a git directory: it has no files",
                        path.display()
                    ),
                    advice: "work in a work tree of it: git worktree add FOLDER".to_owned(),
                };
            }
            Located::Dangling { file, target } => {
                return Opening::Unusable {
                    reason: format!(
                        "{} names {}, which is no git directory",
                        file.display(),
                        target.display()
                    ),
                    advice: "run `git worktree repair` in the main repository, or remove the file".to_owned(),
                };
            }
        };
        let opener = Opener {
            folder: top.clone(),
            environment: program.environment().clone(),
            durable: durability == Durability::Power,
        };
        let opened = match Library::open(opener, Arc::clone(program)) {
            Ok(library) => Self::with_library(library, &root, program, durability),
            Err(error) => Self::without_library(&top, &root, program, durability, &error),
        };
        opened.unwrap_or_else(|error| Opening::Unusable {
            advice: advice(&error, &top),
            reason: reason(&error),
        })
    }

    fn with_library(
        library: Library,
        root: &Path,
        program: &Arc<Program>,
        durability: Durability,
    ) -> Result<Opening, GitError> {
        let repository = library.repository();
        let work_tree =
            library.work_tree().canonicalize().map_err(GitError::file("read", library.work_tree()))?;
        let Ok(folder) = root.strip_prefix(&work_tree) else {
            return Err(GitError::Elsewhere { work_tree, folder: root.to_owned() });
        };
        let place = Place {
            folder: folder.to_owned(),
            git_dir: repository.path().to_owned(),
            common_dir: repository.commondir().to_owned(),
            work_tree,
        };
        if !place.folder.as_os_str().is_empty() && !library.tracks_folder(&place.folder) {
            let foreign = is_foreign(&place.work_tree, library.hides_untracked(), program.environment());
            if foreign || library.ignores_folder(&place.folder) {
                return Ok(Opening::NoRepository);
            }
        }
        Ok(Self::ready(Box::new(library), Route::Library, place, program, durability))
    }

    /// libgit2 cannot: then the program must, or say why not.
    fn without_library(
        top: &Path,
        root: &Path,
        program: &Arc<Program>,
        durability: Durability,
        error: &GitError,
    ) -> Result<Opening, GitError> {
        let backend = ByProgram::open(top, Arc::clone(program), durability == Durability::Power)?;
        let (git_dir, common_dir) = backend.directories();
        let work_tree =
            backend.work_tree().canonicalize().map_err(GitError::file("read", backend.work_tree()))?;
        let Ok(folder) = root.strip_prefix(&work_tree) else {
            return Err(GitError::Elsewhere { work_tree, folder: root.to_owned() });
        };
        let place = Place {
            folder: folder.to_owned(),
            git_dir: git_dir.to_owned(),
            common_dir: common_dir.to_owned(),
            work_tree,
        };
        if !place.folder.as_os_str().is_empty() && backend.ignores(&place.folder)? {
            return Ok(Opening::NoRepository);
        }
        let route = Route::Program(reason(error));
        Ok(Self::ready(Box::new(backend), route, place, program, durability))
    }

    fn ready(
        backend: Box<dyn Backend>,
        route: Route,
        place: Place,
        program: &Arc<Program>,
        durability: Durability,
    ) -> Opening {
        let project = project_key(&place.git_dir, &place.common_dir, &place.folder);
        Opening::Git(Box::new(Repo {
            backend,
            route,
            program: Arc::clone(program),
            durability,
            checkpoints: Checkpoints::new(project),
            place,
            last: None,
        }))
    }

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
            Err(GitError::Library(error)) if error.code() == ErrorCode::Locked => {
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

fn reason(error: &GitError) -> String {
    match error {
        GitError::Unsupported(why) => why.clone(),
        GitError::Library(error) => error.message().to_owned(),
        error => format!("failed to {error}"),
    }
}

fn advice(error: &GitError, top: &Path) -> String {
    let owner = match error {
        GitError::Library(error) => error.code() == ErrorCode::Owner,
        GitError::Program(error) => error.to_string().contains("dubious ownership"),
        _ => false,
    };
    match error {
        _ if owner => format!(
            "the folder belongs to another user; if you trust it: git config --global --add safe.directory {}",
            top.display()
        ),
        GitError::Program(super::ProgramError::NotFound) => {
            "install git: libgit2 alone cannot work here".to_owned()
        }
        GitError::File { .. } => "check the owner and the permissions of the git directory".to_owned(),
        _ => "run `git status` in the folder and fix what it says".to_owned(),
    }
}
