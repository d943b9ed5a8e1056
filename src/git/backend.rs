//! The two ways to work on a repository: libgit2, and the git program where libgit2 cannot.

use std::path::PathBuf;

use jiff::Timestamp;

use super::warning::Warnings;
use super::{CommitId, GitError, TreeId};

/// Below this every checkpoint has its reference.
pub(super) const CHECKPOINTS: &str = "refs/longhaul/checkpoints/";

/// What checkpoints need of a repository. Every method blocks.
pub(super) trait Backend: Send {
    /// Reads the work tree into the private index and names its tree.
    fn snapshot(&mut self) -> Result<Taken, GitError>;
    /// What HEAD is.
    fn head(&self) -> Result<Head, GitError>;
    /// Makes sure that the tree, which is that of the last snapshot, is in the repository in full. `anchored`: a
    /// reference still holds the snapshot before it.
    fn settle(&mut self, tree: TreeId, anchored: bool) -> Result<(), GitError>;
    /// Writes a commit; no reference names it yet.
    fn commit(&mut self, commit: &NewCommit<'_>) -> Result<CommitId, GitError>;
    /// A commit's tree and message; `None` when it, or its tree, is not there.
    fn read_commit(&self, id: CommitId) -> Result<Option<RawCommit>, GitError>;
    /// All references below [`CHECKPOINTS`] that can be read.
    fn references(&self) -> Result<Vec<(String, CommitId)>, GitError>;
    /// Where a reference points.
    fn reference(&self, name: &str) -> Result<Option<CommitId>, GitError>;
    /// Points a reference at `new` if it is still at `old`; `None`: it does not exist.
    fn set_reference(&mut self, name: &str, new: CommitId, old: Option<CommitId>) -> Result<(), GitError>;
    /// Removes a reference if it is still at `old`.
    fn delete_reference(&mut self, name: &str, old: CommitId) -> Result<(), GitError>;
    /// What differs between two trees, at most `limit` paths of it.
    fn changes(&mut self, from: TreeId, to: TreeId, limit: usize) -> Result<Changes, GitError>;
    /// How many loose objects of ours there may be, as far as that is known.
    fn loose_objects(&self) -> u64;
    /// Packs our own loose objects. How many there were.
    fn pack(&mut self) -> Result<usize, GitError>;
}

/// What a snapshot found.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) tree: TreeId,
    pub(super) warnings: Warnings,
    pub(super) files_read: usize,
}

/// A commit to be written.
#[derive(Debug)]
pub(super) struct NewCommit<'a> {
    pub(super) tree: TreeId,
    pub(super) parent: Option<CommitId>,
    pub(super) message: &'a str,
    pub(super) time: Timestamp,
}

/// What is in a commit, as far as checkpoints need it.
#[derive(Debug)]
pub(super) struct RawCommit {
    pub(super) tree: TreeId,
    pub(super) parent: Option<CommitId>,
    pub(super) message: String,
    pub(super) time: Timestamp,
}

/// Where the user's work stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Head {
    /// The commit that is checked out; `None` before the first one.
    pub commit: Option<CommitId>,
    /// The branch's short name; `None` when HEAD is detached.
    pub branch: Option<String>,
}

/// What differs between two trees.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// The first of them, by path.
    pub list: Vec<Change>,
    /// How many there are in all.
    pub total: usize,
}

/// One path that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// How.
    pub kind: ChangeKind,
    /// From the top of the work tree.
    pub path: PathBuf,
}

/// How a path differs. Renames show as both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// Its content, mode or kind is another.
    Modified,
    /// It has gone.
    Deleted,
}

// === impl ChangeKind ===

impl ChangeKind {
    /// The letter that git uses: A, M or D.
    pub fn letter(self) -> char {
        match self {
            ChangeKind::Added => 'A',
            ChangeKind::Modified => 'M',
            ChangeKind::Deleted => 'D',
        }
    }
}

/// The name and address on checkpoint commits.
pub(super) const AUTHOR: (&str, &str) = ("Longhaul", "longhaul@localhost");
