//! Checkpoints with libgit2: commits, references and differences. No program is started, except for packing.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use git2::{Delta, DiffOptions, ErrorCode, Signature as Author, Time};
use jiff::Timestamp;

use super::backend::{
    AUTHOR, Backend, CHECKPOINTS, Change, ChangeKind, Changes, Head, NewCommit, RawCommit, Taken,
};
use super::library::Library;
use super::{CommitId, GitError, TreeId};

/// Packing is background work; a slow disk may take its time.
const PACK_LIMIT: Duration = Duration::from_secs(600);

impl Backend for Library {
    fn snapshot(&mut self) -> Result<Taken, GitError> {
        self.check_identity()?;
        self.refresh_settings()?;
        self.read_user_index()?;
        let (warnings, files_read) = self.walk()?;
        let tree = self.write_tree()?.into();
        Ok(Taken { tree, warnings, files_read })
    }

    fn head(&self) -> Result<Head, GitError> {
        let head = self.repository.find_reference("HEAD")?;
        let branch =
            head.symbolic_target_bytes().map(|name| name.strip_prefix(b"refs/heads/").unwrap_or(name));
        let branch = branch.map(|name| String::from_utf8_lossy(name).into_owned());
        match self.repository.refname_to_id("HEAD") {
            Ok(commit) => Ok(Head { commit: Some(commit.into()), branch }),
            Err(error) if error.code() == ErrorCode::NotFound => Ok(Head { commit: None, branch }),
            Err(error) => Err(error.into()),
        }
    }

    fn settle(&mut self, tree: TreeId, anchored: bool) -> Result<(), GitError> {
        if !anchored {
            // Nothing of ours protected the older objects from `git gc --prune=now`: write all trees again, and
            // look for every blob.
            self.index.forget_trees();
            let again = TreeId::from(self.write_tree()?);
            self.objects.flush(&self.repository)?;
            if again != tree || !self.is_complete()? {
                return Err(GitError::ObjectsGone(tree));
            }
        }
        self.objects.flush(&self.repository)?;
        self.save_index();
        Ok(())
    }

    fn commit(&mut self, commit: &NewCommit<'_>) -> Result<CommitId, GitError> {
        let author = Author::new(AUTHOR.0, AUTHOR.1, &Time::new(commit.time.as_second(), 0))?;
        let tree = self.repository.find_tree(commit.tree.0.oid()?)?;
        let parent = commit.parent.map(|id| self.repository.find_commit(id.0.oid()?)).transpose()?;
        let parents: Vec<_> = parent.iter().collect();
        let id = self.repository.commit(None, &author, &author, commit.message, &tree, &parents)?;
        self.objects.note(id);
        self.objects.flush(&self.repository)?;
        Ok(id.into())
    }

    fn read_commit(&self, id: CommitId) -> Result<Option<RawCommit>, GitError> {
        let Ok(commit) = self.repository.find_commit(id.0.oid()?) else { return Ok(None) };
        if !self.repository.odb()?.exists(commit.tree_id()) {
            return Ok(None);
        }
        Ok(Some(RawCommit {
            tree: commit.tree_id().into(),
            parent: commit.parent_id(0).ok().map(CommitId::from),
            message: String::from_utf8_lossy(commit.message_bytes()).into_owned(),
            time: Timestamp::from_second(commit.time().seconds()).unwrap_or(Timestamp::UNIX_EPOCH),
        }))
    }

    fn references(&self) -> Result<Vec<(String, CommitId)>, GitError> {
        let found = self.repository.references_glob(&format!("{CHECKPOINTS}*"))?;
        // A reference that was cut by a power failure cannot be read; it is none.
        Ok(found
            .filter_map(Result::ok)
            .filter_map(|reference| Some((reference.name().ok()?.to_owned(), reference.target()?.into())))
            .collect())
    }

    fn reference(&self, name: &str) -> Result<Option<CommitId>, GitError> {
        match self.repository.refname_to_id(name) {
            Ok(id) => Ok(Some(id.into())),
            Err(error) if error.code() == ErrorCode::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn set_reference(&mut self, name: &str, new: CommitId, old: Option<CommitId>) -> Result<(), GitError> {
        let new = new.0.oid()?;
        let result = match old {
            Some(old) => self.repository.reference_matching(name, new, true, old.0.oid()?, "checkpoint"),
            None => self.repository.reference(name, new, false, "checkpoint"),
        };
        result.map(drop).map_err(|error| refused(name, error))
    }

    fn delete_reference(&mut self, name: &str, old: CommitId) -> Result<(), GitError> {
        match self.repository.find_reference(name) {
            Ok(reference) if reference.target() != Some(old.0.oid()?) => {
                Err(GitError::Contended(name.to_owned()))
            }
            Ok(mut reference) => reference.delete().map_err(|error| refused(name, error)),
            Err(error) if error.code() == ErrorCode::NotFound => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn changes(&mut self, from: TreeId, to: TreeId, limit: usize) -> Result<Changes, GitError> {
        self.objects.flush(&self.repository)?;
        let from = self.repository.find_tree(from.0.oid()?)?;
        let to = self.repository.find_tree(to.0.oid()?)?;
        let mut options = DiffOptions::new();
        // A file that became a link is one change, as in `git diff-tree`.
        options.include_typechange(true).skip_binary_check(true).context_lines(0);
        let diff = self.repository.diff_tree_to_tree(Some(&from), Some(&to), Some(&mut options))?;
        let mut changes = Changes { list: Vec::new(), total: diff.deltas().len() };
        for delta in diff.deltas().take(limit) {
            let (kind, file) = match delta.status() {
                Delta::Added => (ChangeKind::Added, delta.new_file()),
                Delta::Deleted => (ChangeKind::Deleted, delta.old_file()),
                _ => (ChangeKind::Modified, delta.new_file()),
            };
            let path = PathBuf::from(OsStr::from_bytes(file.path_bytes().unwrap_or_default()));
            changes.list.push(Change { kind, path });
        }
        Ok(changes)
    }

    fn loose_objects(&self) -> u64 {
        self.objects.listed()
    }

    fn pack(&mut self) -> Result<usize, GitError> {
        let loose = self.objects.loose(&self.repository)?;
        if !loose.is_empty() {
            let list: String = loose.iter().map(|id| format!("{id}\n")).collect();
            let objects = self.repository.commondir().join("objects");
            self.program
                .call(&self.work_tree, "pack-objects")
                .args(["-q", "--incremental", "--non-empty", "--threads=1"])
                .arg(objects.join("pack/pack"))
                .stdin(list.as_bytes())
                .limit(PACK_LIMIT)
                .run()?;
            // Removes loose objects only where a pack has them, whoever made them.
            self.program.call(&self.work_tree, "prune-packed").arg("-q").limit(PACK_LIMIT).run()?;
            self.repository.odb()?.refresh()?;
        }
        self.objects.forget_listed()?;
        Ok(loose.len())
    }
}

/// Why libgit2 did not move a reference.
fn refused(name: &str, error: git2::Error) -> GitError {
    match error.code() {
        ErrorCode::Modified | ErrorCode::Exists => GitError::Contended(name.to_owned()),
        ErrorCode::Locked => GitError::Locked(name.to_owned()),
        _ => error.into(),
    }
}
