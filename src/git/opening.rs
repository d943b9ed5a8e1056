//! Finding and opening the repository of a project folder.

use std::path::Path;
use std::sync::Arc;

use git2::ErrorCode;

use super::backend::Backend;
use super::by_program::ByProgram;
use super::checkpoint::Checkpoints;
use super::library::Library;
use super::locate::{Located, is_foreign, locate};
use super::message::project_key;
use super::open::Opener;
use super::repo::{Durability, Place, Repo, Route};
use super::{Environment, GitError, Program};

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
}

/// Why, without what was tried.
pub(super) fn reason(error: &GitError) -> String {
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
