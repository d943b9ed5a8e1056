//! Which repository a project folder belongs to: what `git` run in that folder would find, except where that is
//! surely not what the user means.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::Environment;
use super::gitdir::{DotGit, dot_git, is_git_directory};

/// What is found from a folder upward.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Located {
    /// No repository.
    Nothing,
    /// A repository; its `.git` is in this folder, which is the project folder or one above it.
    Repository(PathBuf),
    /// The folder is inside a bare repository, or inside a git directory.
    Bare(PathBuf),
    /// A `.git` file that names no git directory: the main repository of a linked work tree was moved or removed.
    Dangling { file: PathBuf, target: PathBuf },
}

/// Looks from `folder` (absolute, links resolved) upward, as far as git does: not beyond the file system and not
/// above `GIT_CEILING_DIRECTORIES`.
pub(super) fn locate(folder: &Path, environment: &Environment) -> Located {
    let device = |path: &Path| path.metadata().ok().map(|meta| meta.dev());
    let ceilings: Vec<_> =
        environment.ceilings().into_iter().map(|path| path.canonicalize().unwrap_or(path)).collect();
    let across = environment.is_true("GIT_DISCOVERY_ACROSS_FILESYSTEM");
    for here in folder.ancestors() {
        // A ceiling is not looked at itself, unless one starts there.
        let beyond = here != folder && ceilings.iter().any(|ceiling| ceiling == here);
        if beyond || (!across && device(here) != device(folder)) {
            break;
        }
        match dot_git(here) {
            DotGit::Directory(_) => return Located::Repository(here.to_owned()),
            DotGit::Dangling(target) => return Located::Dangling { file: here.join(".git"), target },
            DotGit::Nothing if is_git_directory(here) => return Located::Bare(here.to_owned()),
            DotGit::Nothing => {}
        }
    }
    Located::Nothing
}

/// Whether a repository found above an untracked project folder is surely another project: one that hides
/// untracked files, or one that is rooted at the home folder or at `/` (dotfiles, etckeeper). A checkpoint there
/// would take in everything the user has.
pub(super) fn is_foreign(top: &Path, hides_untracked: bool, environment: &Environment) -> bool {
    let home = environment.home().and_then(|home| home.canonicalize().ok());
    hides_untracked || top == Path::new("/") || home.as_deref() == Some(top)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::testing::Sandbox;

    #[test]
    fn finds_what_git_finds() {
        let sandbox = Sandbox::new();
        let top = sandbox.path().canonicalize().unwrap();
        std::fs::create_dir_all(top.join("a/b/.git")).unwrap();
        let environment = sandbox.environment(&[]);
        assert_eq!(locate(&top, &environment), Located::Repository(top.clone()));
        assert_eq!(
            locate(&top.join("a/b"), &environment),
            Located::Repository(top.clone()),
            "an empty .git is none"
        );
        assert_eq!(locate(&top.join(".git/refs"), &environment), Located::Bare(top.join(".git")));
        let ceiling = sandbox.environment(&[("GIT_CEILING_DIRECTORIES", top.to_str().unwrap())]);
        assert_eq!(locate(&top.join("a"), &ceiling), Located::Nothing);
        assert_eq!(
            locate(&top, &ceiling),
            Located::Repository(top.clone()),
            "a project may start at a ceiling"
        );
        std::fs::write(top.join("a/.git"), "gitdir: ../gone").unwrap();
        let target = top.join("a/../gone");
        assert_eq!(
            locate(&top.join("a"), &environment),
            Located::Dangling { file: top.join("a/.git"), target }
        );
    }

    #[test]
    fn a_repository_of_the_whole_home_is_foreign() {
        let environment = Environment::of([("HOME".into(), "/tmp".into())]);
        let home = Path::new("/tmp").canonicalize().unwrap();
        assert!(is_foreign(&home, false, &environment));
        assert!(is_foreign(Path::new("/"), false, &environment));
        assert!(is_foreign(Path::new("/srv/x"), true, &environment));
        assert!(!is_foreign(Path::new("/srv/x"), false, &environment));
    }
}
