//! Working on a repository with the git program alone: where libgit2 cannot open it (SHA-256, reftable, unknown
//! extensions), cannot read its index (split, sparse), or would not do what git does.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::backend::{
    AUTHOR, Backend, CHECKPOINTS, Change, ChangeKind, Changes, Head, NewCommit, RawCommit, Taken,
};
use super::stat::Signature;
use super::warning::{Warnings, Why};
use super::{Call, CommitId, GitError, Program, ProgramError, TreeId, saved};

/// A large work tree whose files must all be read takes its time.
const ADD_LIMIT: Duration = Duration::from_secs(600);
/// Files that vanish while they are added make git give up.
const ATTEMPTS: usize = 3;
/// Everything but our own folders.
const WHAT: [&str; 2] = [".", ":(exclude,glob)**/.longhaul/**"];

/// The git program's way.
pub(super) struct ByProgram {
    program: Arc<Program>,
    work_tree: PathBuf,
    git_dir: PathBuf,
    common_dir: PathBuf,
    /// Our folder in the git directory, and in it one of this instance.
    private: tempfile::TempDir,
    durable: bool,
    /// The user's index when it was copied.
    copied: Option<Signature>,
    /// The last tree.
    tree: Option<TreeId>,
}

// === impl ByProgram ===

impl ByProgram {
    /// Fails with git's own words when git cannot work there either.
    pub(super) fn open(folder: &Path, program: Arc<Program>, durable: bool) -> Result<Self, GitError> {
        let ask = |what: &str| -> Result<PathBuf, GitError> {
            let mut answer = program.call(folder, "rev-parse").arg(what).run()?.stdout;
            answer.truncate(answer.strip_suffix(b"\n").map_or(answer.len(), <[u8]>::len));
            Ok(folder.join(OsStr::from_bytes(&answer)))
        };
        let work_tree = ask("--show-toplevel")?;
        let git_dir = ask("--absolute-git-dir")?;
        let common_dir = ask("--git-common-dir")?;
        let ours = git_dir.join("longhaul");
        fs::create_dir_all(&ours).map_err(GitError::file("make", &ours))?;
        let private = tempfile::Builder::new().prefix("program-").tempdir_in(&ours);
        let private = private.map_err(GitError::file("make a folder in", &ours))?;
        Ok(ByProgram { program, work_tree, git_dir, common_dir, private, durable, copied: None, tree: None })
    }

    /// The top of the work tree.
    pub(super) fn work_tree(&self) -> &Path {
        &self.work_tree
    }

    /// The git directory of the work tree, and the one that all work trees share.
    pub(super) fn directories(&self) -> (&Path, &Path) {
        (&self.git_dir, &self.common_dir)
    }

    /// Whether git ignores this folder of the work tree, which has nothing that is tracked.
    pub(super) fn ignores(&self, folder: &Path) -> Result<bool, GitError> {
        let tracked = self.call("ls-files").args(["-z", "--"]).arg(folder).run()?;
        if !tracked.stdout.is_empty() {
            return Ok(false);
        }
        let output = self.call("check-ignore").args(["-q", "--"]).arg(folder).accept(&[0, 1]).run()?;
        Ok(output.code == 0)
    }

    fn call(&self, command: &str) -> Call<'_> {
        // Without a split index of our own, git would write parts of it into the user's git directory.
        let call = self.program.call(&self.work_tree, command).config("core.splitIndex=false");
        // A `.git` that is gone must not lead git to a repository further up.
        match self.work_tree.parent() {
            Some(above) => call.env("GIT_CEILING_DIRECTORIES", above),
            None => call,
        }
    }

    fn index(&self) -> PathBuf {
        self.private.path().join("index")
    }

    /// Starts again from the user's index: it says which files are tracked.
    fn copy_index(&mut self) -> Result<(), GitError> {
        let user_index = self.git_dir.join("index");
        self.copied = Signature::of(&user_index);
        fs::create_dir_all(self.private.path()).map_err(GitError::file("make", self.private.path()))?;
        saved::copy(&user_index, &self.index())
    }

    fn add(&mut self, warnings: &mut Warnings) -> Result<TreeId, GitError> {
        for attempt in 1.. {
            let call = self.call("add").args(["-A", "--sparse", "--ignore-errors", "--"]).args(WHAT);
            let call = call.config("core.safecrlf=false").config("advice.addEmbeddedRepo=false");
            let call = call.durable(self.durable).env("GIT_INDEX_FILE", self.index()).limit(ADD_LIMIT);
            match call.accept(&[0, 1]).run() {
                Ok(output) => {
                    let errors = output.stderr.lines().filter(|line| line.starts_with("error: "));
                    errors.for_each(|line| warnings.add(b"", Why::Git(line["error: ".len()..].to_owned())));
                    break;
                }
                Err(ProgramError::Failed { stderr, .. })
                    if attempt < ATTEMPTS && stderr.contains("unable to stat") => {}
                Err(error) => return Err(error.into()),
            }
        }
        let call = self.call("write-tree").durable(self.durable);
        parse_line(&call.env("GIT_INDEX_FILE", self.index()).run()?.stdout)
    }

    /// Whether an ignore file differs between two trees: the private index may then track what is now ignored.
    fn ignore_rules_differ(&self, from: TreeId, to: TreeId) -> Result<bool, GitError> {
        let call = self.call("diff-tree").args(["-r", "--quiet", "--exit-code"]);
        let call = call.arg(from.to_string()).arg(to.to_string()).args(["--", ":(glob)**/.gitignore"]);
        Ok(call.accept(&[0, 1]).run()?.code == 1)
    }
}

impl Backend for ByProgram {
    fn snapshot(&mut self) -> Result<Taken, GitError> {
        if !self.git_dir.is_dir() {
            return Err(GitError::Moved(self.git_dir.clone()));
        }
        let fresh = Signature::of(&self.git_dir.join("index")) != self.copied || !self.index().exists();
        if fresh {
            self.copy_index()?;
        }
        let mut warnings = Warnings::default();
        let mut tree = self.add(&mut warnings)?;
        if !fresh
            && let Some(last) = self.tree
            && last != tree
            && self.ignore_rules_differ(last, tree)?
        {
            warnings = Warnings::default();
            self.copy_index()?;
            tree = self.add(&mut warnings)?;
        }
        self.tree = Some(tree);
        Ok(Taken { tree, warnings, files_read: 0 })
    }

    fn head(&self) -> Result<Head, GitError> {
        let branch = self.call("symbolic-ref").args(["-q", "--short", "HEAD"]).accept(&[0, 1]).run()?;
        let branch = (branch.code == 0).then(|| first_line(&branch.stdout));
        Ok(Head { commit: self.reference("HEAD")?, branch })
    }

    fn settle(&mut self, _tree: TreeId, _anchored: bool) -> Result<(), GitError> {
        // `git write-tree` has checked and written everything.
        Ok(())
    }

    fn commit(&mut self, commit: &NewCommit<'_>) -> Result<CommitId, GitError> {
        let date = format!("{} +0000", commit.time.as_second());
        let mut call = self.call("commit-tree").arg("--no-gpg-sign").arg(commit.tree.to_string());
        if let Some(parent) = commit.parent {
            call = call.arg("-p").arg(parent.to_string());
        }
        for role in ["AUTHOR", "COMMITTER"] {
            call = call
                .env(&format!("GIT_{role}_NAME"), AUTHOR.0)
                .env(&format!("GIT_{role}_EMAIL"), AUTHOR.1)
                .env(&format!("GIT_{role}_DATE"), &date);
        }
        let call = call.config("i18n.commitEncoding=UTF-8").durable(self.durable);
        parse_line(&call.stdin(commit.message.as_bytes()).run()?.stdout)
    }

    fn read_commit(&self, id: CommitId) -> Result<Option<RawCommit>, GitError> {
        let output = self.call("cat-file").args(["commit", &id.to_string()]).accept(&[0, 128]).run()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let Some(commit) = parse_commit(&text) else { return Ok(None) };
        let tree = self.call("cat-file").args(["-e", &commit.tree.to_string()]).accept(&[0, 1, 128]).run()?;
        Ok((tree.code == 0).then_some(commit))
    }

    fn references(&self) -> Result<Vec<(String, CommitId)>, GitError> {
        let output =
            self.call("for-each-ref").args(["--format=%(refname) %(objectname)", CHECKPOINTS]).run()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let parse = |line: &str| {
            let (name, id) = line.split_once(' ')?;
            Some((name.to_owned(), id.parse().ok()?))
        };
        Ok(text.lines().filter_map(parse).collect())
    }

    fn reference(&self, name: &str) -> Result<Option<CommitId>, GitError> {
        let output = self.call("rev-parse").args(["-q", "--verify", name]).accept(&[0, 1]).run()?;
        if output.code == 0 { parse_line(&output.stdout).map(Some) } else { Ok(None) }
    }

    fn set_reference(&mut self, name: &str, new: CommitId, old: Option<CommitId>) -> Result<(), GitError> {
        // All zeros: it must not exist.
        let zeros = "0".repeat(new.0.as_bytes().len() * 2);
        let old = old.map_or(zeros, |old| old.to_string());
        let call = self.call("update-ref").args(["-m", "checkpoint", name, &new.to_string(), &old]);
        call.durable(self.durable).run().map(drop).map_err(|error| refused(name, error))
    }

    fn delete_reference(&mut self, name: &str, old: CommitId) -> Result<(), GitError> {
        match self.call("update-ref").args(["-d", name, &old.to_string()]).run() {
            // Somebody was faster.
            Err(ProgramError::Failed { stderr, .. }) if stderr.contains("unable to resolve reference") => {
                Ok(())
            }
            result => result.map(drop).map_err(|error| refused(name, error)),
        }
    }

    fn changes(&mut self, from: TreeId, to: TreeId, limit: usize) -> Result<Changes, GitError> {
        let call = self.call("diff-tree").args(["-r", "-z", "--no-renames", "--name-status"]);
        let output = call.arg(from.to_string()).arg(to.to_string()).run()?;
        let mut fields = output.stdout.split(|&b| b == 0);
        let mut changes = Changes::default();
        while let (Some(&[letter, ..]), Some(path)) = (fields.next(), fields.next()) {
            changes.total += 1;
            if changes.list.len() < limit {
                let kind = match letter {
                    b'A' => ChangeKind::Added,
                    b'D' => ChangeKind::Deleted,
                    _ => ChangeKind::Modified,
                };
                changes.list.push(Change { kind, path: PathBuf::from(OsStr::from_bytes(path)) });
            }
        }
        Ok(changes)
    }

    fn loose_objects(&self) -> u64 {
        // git wrote them, and keeps no list.
        0
    }

    fn pack(&mut self) -> Result<usize, GitError> {
        // Without a list of our own objects all loose ones are packed, reachable or not: none is lost.
        let call = self.call("pack-objects").args(["-q", "--incremental", "--non-empty", "--threads=1"]);
        let call =
            call.args(["--revs", "--pack-loose-unreachable"]).arg(self.common_dir.join("objects/pack/pack"));
        call.stdin(b"\n").limit(ADD_LIMIT).run()?;
        self.call("prune-packed").arg("-q").limit(ADD_LIMIT).run()?;
        Ok(0)
    }
}

/// Why git did not move a reference, by its words.
fn refused(name: &str, error: ProgramError) -> GitError {
    match error {
        ProgramError::Failed { stderr, .. }
            if stderr.contains("but expected") || stderr.contains("reference already exists") =>
        {
            GitError::Contended(name.to_owned())
        }
        ProgramError::Failed { stderr, .. } if stderr.contains(".lock': File exists") => {
            GitError::Locked(name.to_owned())
        }
        error => error.into(),
    }
}

fn first_line(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).lines().next().unwrap_or_default().to_owned()
}

fn parse_line<T: std::str::FromStr>(bytes: &[u8]) -> Result<T, GitError> {
    let line = first_line(bytes);
    line.parse().map_err(|_| GitError::Unexpected(line))
}

/// Reads a raw commit object: headers, an empty line, the message.
fn parse_commit(text: &str) -> Option<RawCommit> {
    let (headers, message) = text.split_once("\n\n")?;
    let header = |name: &str| headers.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let seconds = header("committer")?.rsplit(' ').nth(1)?.parse().ok()?;
    Some(RawCommit {
        tree: header("tree")?.parse().ok()?,
        parent: header("parent").and_then(|id| id.parse().ok()),
        message: message.to_owned(),
        time: Timestamp::from_second(seconds).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_raw_commit() {
        let tree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
        let text = format!(
            "tree {tree}\nparent {tree}\nauthor A <a@b> 5 +0000\ncommitter A <a@b> 7 +0100\n\nx\n\ny\n"
        );
        let commit = parse_commit(&text).unwrap();
        assert_eq!(commit.tree.to_string(), tree);
        assert_eq!((commit.message.as_str(), commit.time.as_second()), ("x\n\ny\n", 7));
        assert!(parse_commit("").is_none());
    }
}
