//! A plain commit of everything, for rehearsals.

use std::path::Path;

use git2::{IndexAddOption, Repository, Signature};

/// Commits everything in the repository at `folder` on its branch, also when nothing changed.
///
/// # Errors
/// Those of libgit2: no repository, no room, a lock.
pub fn commit_all(folder: &Path, message: &str) -> Result<(), git2::Error> {
    let repo = Repository::open(folder)?;
    let mut index = repo.index()?;
    index.add_all(["*"], IndexAddOption::DEFAULT, None)?;
    index.update_all(["*"], None)?;
    index.write()?;
    let tree = repo.find_tree(index.write_tree()?)?;
    let who = repo.signature().or_else(|_| Signature::now("Longhaul rehearsal", "rehearsal@localhost"))?;
    let parent = repo.head().ok().and_then(|head| head.peel_to_commit().ok());
    let parents: Vec<_> = parent.iter().collect();
    repo.commit(Some("HEAD"), &who, &who, message, &tree, &parents)?;
    Ok(())
}
