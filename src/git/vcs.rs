//! What a project's tree is read with: its repository, or the folder itself where there is none.

use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;

use super::{CheckpointMeta, Durability, Environment, FolderWatch, Opening, Program, Repo, Snapshot};
use crate::domain::ids::SessionId;

/// A project's tree.
pub enum Vcs {
    /// A repository; `last` is the snapshot that a checkpoint is made of.
    Git {
        /// The repository.
        repo: Box<Repo>,
        /// The last look at it.
        last: Option<Snapshot>,
        /// Checkpoints kept.
        keep: usize,
    },
    /// A plain folder: it can be told whether it changed, not brought back.
    Folder(FolderWatch),
}

/// A look at the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// Git tree id, or the folder's fingerprint.
    pub tree: String,
    /// It is a git tree: a checkpoint can keep it.
    pub git: bool,
    /// What had to be left out, in words, for the log.
    pub left_out: Option<String>,
}

impl std::fmt::Debug for Vcs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Vcs::Git { .. } => "Git",
            Vcs::Folder(_) => "Folder",
        })
    }
}

// === impl Vcs ===

impl Vcs {
    /// Opens what is there, and keeps `.longhaul/` out of git. With the second value: why there is no git, where a
    /// person may have expected it.
    pub fn open(
        root: &Path,
        environment: Environment,
        durability: Durability,
        keep: usize,
    ) -> (Self, Option<String>) {
        let folder = || Vcs::Folder(FolderWatch::new(root));
        match Repo::open_with(root, &Arc::new(Program::new(environment)), durability) {
            Opening::Git(repo) => {
                let excluded = repo.exclude_own_folder();
                let problem = excluded.err().map(|error| format!("`.longhaul/` is not excluded: {error}"));
                (Vcs::Git { repo, last: None, keep }, problem)
            }
            Opening::NoRepository => {
                let why = "no git repository: checkpoints hold state only (`--init-git` makes one)";
                (folder(), Some(why.to_owned()))
            }
            Opening::Unusable { reason, advice } => (folder(), Some(format!("{reason}; {advice}"))),
        }
    }

    /// Reads the tree as it is now.
    ///
    /// # Errors
    /// In words: the folder or the repository cannot be read.
    pub fn look(&mut self) -> Result<Look, String> {
        match self {
            Vcs::Git { repo, last, .. } => {
                let snapshot = repo.snapshot().map_err(|error| error.to_string())?;
                let tree = snapshot.tree.to_string();
                let left_out = snapshot.warnings.list.first().map(|first| {
                    format!(
                        "{} files were left out or taken otherwise, first {first}",
                        snapshot.warnings.total
                    )
                });
                *last = Some(snapshot);
                Ok(Look { tree, git: true, left_out })
            }
            Vcs::Folder(watch) => {
                let state = watch.look().map_err(|error| error.to_string())?;
                Ok(Look { tree: state.fingerprint.to_string(), git: false, left_out: None })
            }
        }
    }

    /// Keeps the tree of the last look under its ref, and lets old checkpoints go. A tree of an earlier look is
    /// passed over: its objects may not be there any more.
    ///
    /// # Errors
    /// In words: the repository cannot be written.
    pub fn keep(
        &mut self,
        session: SessionId,
        number: u64,
        tree: &str,
        state: &str,
        time: Timestamp,
    ) -> Result<(), String> {
        let Vcs::Git { repo, last, keep } = self else { return Ok(()) };
        if last.is_none() {
            // The one that looked has died: perhaps nothing has changed since.
            *last = Some(repo.snapshot().map_err(|error| error.to_string())?);
        }
        let Some(snapshot) = last.as_ref().filter(|snapshot| snapshot.tree.to_string() == tree) else {
            return Ok(());
        };
        let iteration = u32::try_from(number).unwrap_or(u32::MAX);
        let state = serde_json::from_str(state).unwrap_or_default();
        let meta = CheckpointMeta { session, iteration, state, time };
        repo.commit_checkpoint(snapshot, &meta).map_err(|error| error.to_string())?;
        repo.retain(*keep).map_err(|error| error.to_string())?;
        repo.pack_if_due().map_err(|error| error.to_string())?;
        Ok(())
    }

    /// Sweeps what a killed process of ours has left in the repository.
    ///
    /// # Errors
    /// In words: the repository cannot be read.
    pub fn sweep(&self) -> Result<usize, String> {
        match self {
            Vcs::Git { repo, .. } => repo.sweep().map_err(|error| error.to_string()),
            Vcs::Folder(_) => Ok(0),
        }
    }
}
