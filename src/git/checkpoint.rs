//! Checkpoints: commits of the whole work tree under references of their own.
//!
//! A checkpoint is `refs/longhaul/checkpoints/<session>/<iteration, 6 digits>`. Its parent is the commit that the
//! user had checked out when the work tree was read, so that `git show` of it is what was not committed then.
//! The reference is written last, by compare-and-swap: a checkpoint is there in full or not at all.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::backend::{Backend, CHECKPOINTS, NewCommit};
use super::message::Message;
use super::{CommitId, GitError, Snapshot, TreeId};
use crate::domain::ids::SessionId;

/// What a checkpoint is of.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckpointMeta {
    /// The session that made it.
    pub session: SessionId,
    /// The iteration that it ends; 0 is the state before the first.
    pub iteration: u32,
    /// The project's state then, for a rebuild without the database.
    pub state: Value,
    /// When.
    pub time: Timestamp,
}

/// A checkpoint that is in the repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its commit.
    pub commit: CommitId,
    /// Its reference, in full.
    pub reference: String,
}

/// A checkpoint with everything in it.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckpointDetails {
    /// Which one.
    pub checkpoint: Checkpoint,
    /// What it is of.
    pub meta: CheckpointMeta,
    /// The work tree.
    pub tree: TreeId,
    /// The user's commit at that time; `None` before the first one.
    pub parent: Option<CommitId>,
}

/// The key of a checkpoint. In order of age: sessions are ULIDs.
pub(super) type Key = (SessionId, u32);

/// The checkpoints of one project.
pub(super) struct Checkpoints {
    /// See [`super::message::project_key`].
    project: String,
    /// What is in the repository; `None` until it was looked at.
    known: Option<BTreeMap<Key, CommitId>>,
    /// The last one made here, which keeps the objects of the work tree.
    last: Option<(String, CommitId)>,
}

/// The reference of a checkpoint.
pub(super) fn reference(session: SessionId, iteration: u32) -> String {
    format!("{CHECKPOINTS}{session}/{iteration:06}")
}

fn parse_reference(name: &str) -> Option<Key> {
    let (session, iteration) = name.strip_prefix(CHECKPOINTS)?.split_once('/')?;
    let digits = iteration.len() >= 6 && iteration.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| Some((session.parse().ok()?, iteration.parse().ok()?)))?
}

// === impl Checkpoints ===

impl Checkpoints {
    /// Of the project with this key.
    pub(super) fn new(project: String) -> Self {
        Checkpoints { project, known: None, last: None }
    }

    /// Makes a checkpoint. Making the same one again is no error; another one under the same key replaces it.
    pub(super) fn make(
        &mut self,
        backend: &mut dyn Backend,
        snapshot: &Snapshot,
        meta: &CheckpointMeta,
    ) -> Result<Checkpoint, GitError> {
        let anchored = match &self.last {
            Some((name, commit)) => backend.reference(name)? == Some(*commit),
            None => true,
        };
        backend.settle(snapshot.tree, anchored)?;
        let message = Message {
            session: meta.session,
            iteration: meta.iteration,
            project: self.project.clone(),
            state: meta.state.clone(),
        };
        let commit = backend.commit(&NewCommit {
            tree: snapshot.tree,
            parent: snapshot.head,
            message: &message.write(),
            time: meta.time,
        })?;
        let reference = reference(meta.session, meta.iteration);
        let old = backend.reference(&reference)?;
        if old != Some(commit) {
            backend.set_reference(&reference, commit, old)?;
        }
        if let Some(known) = &mut self.known {
            known.insert((meta.session, meta.iteration), commit);
        }
        self.last = Some((reference.clone(), commit));
        Ok(Checkpoint { commit, reference })
    }

    /// All of this project, oldest first. One whose commit or tree is missing is not listed.
    pub(super) fn list(&self, backend: &dyn Backend) -> Result<Vec<CheckpointDetails>, GitError> {
        let mut list = Vec::new();
        for (name, commit) in backend.references()? {
            match self.details(backend, &name, commit) {
                Ok(Some((_, details))) => list.push(details),
                // Not one of ours, or of a newer program: for others to judge.
                Ok(None) | Err(GitError::NotACheckpoint { .. } | GitError::NewerFormat { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        list.sort_by_key(|details| (details.meta.session, details.meta.iteration));
        Ok(list)
    }

    /// One checkpoint; `None`: there is none. Unlike `list` it says when a newer program made it.
    pub(super) fn read(
        &self,
        backend: &dyn Backend,
        key: Key,
    ) -> Result<Option<CheckpointDetails>, GitError> {
        let name = reference(key.0, key.1);
        let Some(commit) = backend.reference(&name)? else { return Ok(None) };
        Ok(self.details(backend, &name, commit)?.map(|(_, details)| details))
    }

    /// `None`: its objects are missing, or it is another project's.
    fn details(
        &self,
        backend: &dyn Backend,
        name: &str,
        commit: CommitId,
    ) -> Result<Option<(Key, CheckpointDetails)>, GitError> {
        let (Some(key), Some(raw)) = (parse_reference(name), backend.read_commit(commit)?) else {
            return Ok(None);
        };
        let message = Message::read(name, &raw.message)?;
        if message.project != self.project {
            return Ok(None);
        }
        if key != (message.session, message.iteration) {
            let why = "its message is of another checkpoint".to_owned();
            return Err(GitError::NotACheckpoint { reference: name.to_owned(), why });
        }
        let details = CheckpointDetails {
            checkpoint: Checkpoint { commit, reference: name.to_owned() },
            meta: CheckpointMeta {
                session: message.session,
                iteration: message.iteration,
                state: message.state,
                time: raw.time,
            },
            tree: raw.tree,
            parent: raw.parent,
        };
        Ok(Some((key, details)))
    }

    /// Removes the oldest references so that `keep` are left, over all sessions of the project; at least the
    /// newest one stays. How many were removed.
    pub(super) fn retain(&mut self, backend: &mut dyn Backend, keep: usize) -> Result<usize, GitError> {
        if self.known.is_none() {
            let list = self.list(backend)?;
            let keyed = list.into_iter().map(|d| ((d.meta.session, d.meta.iteration), d.checkpoint.commit));
            self.known = Some(keyed.collect());
        }
        let known = self.known.get_or_insert_default();
        let surplus = known.len().saturating_sub(keep.max(1));
        let oldest: Vec<_> = known.iter().take(surplus).map(|(&key, &commit)| (key, commit)).collect();
        let mut removed = 0;
        for (key, commit) in oldest {
            match backend.delete_reference(&reference(key.0, key.1), commit) {
                Ok(()) => removed += 1,
                // Somebody else moved it: then it is theirs.
                Err(GitError::Contended(_)) => {}
                // Perhaps by a process that was killed: it is tried again next time.
                Err(GitError::Locked(_)) => continue,
                Err(error) => return Err(error),
            }
            known.remove(&key);
        }
        Ok(removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ulid::Ulid;

    #[test]
    fn a_reference_names_session_and_iteration() {
        let session = SessionId(Ulid::nil());
        let name = reference(session, 12);
        assert_eq!(name, "refs/longhaul/checkpoints/00000000000000000000000000/000012");
        assert_eq!(parse_reference(&name), Some((session, 12)));
        let large = reference(session, 1_234_567);
        assert_eq!(parse_reference(&large), Some((session, 1_234_567)));
        for other in ["refs/heads/main", "refs/longhaul/checkpoints/x/000001", &name[..name.len() - 1]] {
            assert_eq!(parse_reference(other), None, "{other}");
        }
    }
}
