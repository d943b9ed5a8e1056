//! Index files: reading the user's, and keeping our own from one run to the next.

use std::fs;
use std::io;
use std::path::Path;

use git2::{Index, IndexEntry, IndexTime, Oid, Repository};

use super::GitError;
use super::index::{Entry, Folder, Mode};
use super::stat::{Moment, Signature, Stat};

/// assume-unchanged, in an entry's flags (gitformat-index(5)).
const ASSUME_VALID: u16 = 0x8000;
/// skip-worktree and intent-to-add, in its extended flags.
const SKIP_WORKTREE: u16 = 1 << 14;
const INTENT_TO_ADD: u16 = 1 << 13;

/// The entries of an index file; none when there is no file. Fails when libgit2 cannot read it: it knows neither
/// split nor sparse indexes.
pub(super) fn read(path: &Path) -> Result<Vec<Entry>, git2::Error> {
    // Looked at first: an index that is replaced now is then taken for older, and its stats for racy.
    let Some(signature) = Signature::of(path) else { return Ok(Vec::new()) };
    let written = signature.mtime();
    let index = Index::open(path)?;
    let mut entries: Vec<Entry> = Vec::with_capacity(index.len());
    for raw in index.iter() {
        let conflicted = (raw.flags >> 12) & 3 != 0;
        if conflicted && entries.last().is_some_and(|last| last.path == raw.path) {
            continue;
        }
        entries.push(entry(raw, conflicted, written));
    }
    Ok(entries)
}

fn entry(raw: IndexEntry, conflicted: bool, written: Moment) -> Entry {
    let moment = |time: IndexTime| Moment { seconds: time.seconds() as u32, nanoseconds: time.nanoseconds() };
    let stat = Stat {
        mtime: moment(raw.mtime),
        ctime: moment(raw.ctime),
        dev: raw.dev,
        ino: raw.ino,
        uid: raw.uid,
        gid: raw.gid,
        size: raw.file_size,
    };
    // git sets the size of an entry that it knows to be racy to 0.
    let smudged = stat.size == 0 && Some(raw.id) != empty_blob();
    let stale =
        conflicted || smudged || raw.flags_extended & INTENT_TO_ADD != 0 || stat.is_racy_in_index(written);
    let pinned = raw.flags & ASSUME_VALID != 0 || raw.flags_extended & SKIP_WORKTREE != 0;
    Entry { path: raw.path, id: raw.id, mode: Mode::from_bits(raw.mode), stat, pinned, stale }
}

fn empty_blob() -> Option<Oid> {
    Oid::hash_object(git2::ObjectType::Blob, &[]).ok()
}

/// Writes our private index to `path`, as an index file that git could read as well.
pub(super) fn write(path: &Path, folder: &Folder) -> Result<(), GitError> {
    let fresh = path.with_extension("new");
    remove_if_there(&fresh)?;
    let mut index = Index::open(&fresh)?;
    let mut result = Ok(());
    folder.each_present(&mut Vec::new(), &mut |path, file| {
        // Nested repositories have no stat, and pinned files come from the user's index.
        if result.is_ok() && file.mode != Mode::Repository && !file.pinned {
            result = index.add(&IndexEntry {
                ctime: time(file.stat.ctime),
                mtime: time(file.stat.mtime),
                dev: file.stat.dev,
                ino: file.stat.ino,
                mode: file.mode as u32,
                uid: file.stat.uid,
                gid: file.stat.gid,
                file_size: if file.stale { 0 } else { file.stat.size },
                id: file.id,
                flags: 0,
                flags_extended: 0,
                path: path.to_vec(),
            });
        }
    });
    result?;
    index.write()?;
    fs::rename(&fresh, path).map_err(GitError::file("write", path))
}

/// The entries of our own index whose blobs are still there: nothing but checkpoints keeps them.
pub(super) fn read_own(path: &Path, repository: &Repository) -> Vec<Entry> {
    let Ok(odb) = repository.odb() else { return Vec::new() };
    match read(path) {
        Ok(mut entries) => {
            entries.retain(|entry| odb.exists(entry.id));
            entries
        }
        // It only saves time: the next one replaces it.
        Err(error) => {
            tracing::debug!(path = %path.display(), %error, "private index is unreadable, starting without it");
            Vec::new()
        }
    }
}

/// Copies an index for the git program. The copy keeps the time stamp, by which git tells which stats are racy.
pub(super) fn copy(from: &Path, to: &Path) -> Result<(), GitError> {
    let doing = GitError::file("copy", from);
    let copied = fs::metadata(from).and_then(|meta| {
        fs::copy(from, to)?;
        fs::File::options().write(true).open(to)?.set_modified(meta.modified()?)
    });
    match copied {
        Err(error) if error.kind() == io::ErrorKind::NotFound => remove_if_there(to),
        copied => copied.map_err(doing),
    }
}

fn time(moment: Moment) -> IndexTime {
    IndexTime::new(moment.seconds as i32, moment.nanoseconds)
}

fn remove_if_there(path: &Path) -> Result<(), GitError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(GitError::file("remove", path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::testing::Sandbox;

    #[test]
    fn reads_what_git_wrote() {
        let sandbox = Sandbox::new();
        for name in ["a", "b/c", "flagged", "skipped"] {
            sandbox.write(name, name);
        }
        sandbox.git(&["add", "-A"]);
        sandbox.git(&["update-index", "--assume-unchanged", "flagged"]);
        sandbox.git(&["update-index", "--skip-worktree", "skipped"]);
        sandbox.write("later", "x");
        sandbox.git(&["add", "-N", "later"]);
        let entries = read(&sandbox.path().join(".git/index")).unwrap();
        let of = |path: &str| entries.iter().find(|e| e.path == path.as_bytes()).unwrap();
        assert_eq!(entries.len(), 5);
        assert_eq!(of("a").id.to_string(), sandbox.git(&["hash-object", "a"]));
        assert!(of("flagged").pinned && of("skipped").pinned && !of("a").pinned);
        assert!(of("later").stale);

        // git could have missed a change to a file that is as young as its index.
        let index = fs::File::options().append(true).open(sandbox.path().join(".git/index")).unwrap();
        let changed = fs::metadata(sandbox.path().join("a")).unwrap().modified().unwrap();
        for (later, stale) in [(0, true), (1, false)] {
            index.set_modified(changed + std::time::Duration::from_secs(later)).unwrap();
            assert_eq!(read(&sandbox.path().join(".git/index")).unwrap()[0].stale, stale);
        }
    }

    #[test]
    fn refuses_a_split_index() {
        let sandbox = Sandbox::new();
        sandbox.write("a", "a");
        sandbox.git(&["add", "-A"]);
        sandbox.git(&["update-index", "--split-index"]);
        assert!(read(&sandbox.path().join(".git/index")).is_err());
    }

    #[test]
    fn our_own_survives_being_written_read_and_lost() {
        let sandbox = Sandbox::new();
        sandbox.write("a", "a");
        sandbox.write("b/c", "c");
        sandbox.git(&["add", "-A"]);
        let mut folder = Folder::default();
        folder.apply_tracked(read(&sandbox.path().join(".git/index")).unwrap(), false);
        folder.each_file(&mut |file| (file.present, file.stale) = (true, &*file.name == b"a"));
        let path = sandbox.path().join(".git/own");
        write(&path, &folder).unwrap();
        write(&path, &folder).unwrap();
        let ours = sandbox.git_env(&["ls-files", "-s"], &[("GIT_INDEX_FILE", path.to_str().unwrap())]);
        assert_eq!(ours, sandbox.git(&["ls-files", "-s"]), "git reads it");
        let repository = Repository::open(sandbox.path()).unwrap();
        let entries = read_own(&path, &repository);
        assert!(entries[0].stale, "racy when it was saved");
        std::fs::write(&path, "garbage").unwrap();
        assert!(read_own(&path, &repository).is_empty());
    }
}
