//! The private index, kept in memory as a tree of folders.
//!
//! For each file it has what git's index has: the blob, the mode and the stat that the blob was made at. As a
//! tree it knows which folders did not change, so that a snapshot writes the trees above a changed file only.

use std::sync::Arc;

use git2::{ObjectType, Oid};

use super::ignore::Rules;
use super::stat::Stat;

/// A folder of the work tree.
#[derive(Debug, Default)]
pub(super) struct Folder {
    /// Sorted by name.
    pub(super) files: Vec<File>,
    /// Sorted by name.
    pub(super) folders: Vec<SubFolder>,
    /// The tree that these make; `None` when something below has changed since.
    pub(super) tree: Option<Oid>,
    /// The user's index has something in it or below: git then looks inside also when it is ignored.
    pub(super) tracked: bool,
    /// Its `.gitignore` and the stat that it was read at.
    pub(super) rules: Option<Cached<Arc<Rules>>>,
    /// The stat of its `.gitattributes` when that was last seen.
    pub(super) attributes: Option<Cached<()>>,
}

/// A folder with its name.
#[derive(Debug)]
pub(super) struct SubFolder {
    pub(super) name: Box<[u8]>,
    pub(super) folder: Folder,
}

/// Something read from a file, and the file's stat then.
#[derive(Debug, Clone)]
pub(super) struct Cached<T> {
    pub(super) stat: Stat,
    /// The file may have changed since without another stat.
    pub(super) stale: bool,
    pub(super) value: T,
}

/// A file, link or nested repository.
#[derive(Debug)]
pub(super) struct File {
    pub(super) name: Box<[u8]>,
    pub(super) id: Oid,
    pub(super) mode: Mode,
    pub(super) stat: Stat,
    /// The user's index has it: then ignore rules do not count.
    pub(super) tracked: bool,
    /// The user told git not to look at the file (assume-unchanged, skip-worktree): it stays as the index has it.
    pub(super) pinned: bool,
    /// The stat proves nothing: read the content next time.
    pub(super) stale: bool,
    /// Blob and stat are those of the user's index: git takes them as they are, whatever attributes say now.
    pub(super) settled: bool,
    /// It is in the work tree. A tracked file that is not stays known, since it may come back.
    pub(super) present: bool,
}

/// The kinds of tree entries, with git's mode bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Mode {
    Plain = 0o100_644,
    Executable = 0o100_755,
    Link = 0o120_000,
    /// A submodule or another nested repository: its HEAD commit.
    Repository = 0o160_000,
}

/// An entry of an index file: the user's, or our private one.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) path: Vec<u8>,
    pub(super) id: Oid,
    pub(super) mode: Mode,
    pub(super) stat: Stat,
    pub(super) pinned: bool,
    pub(super) stale: bool,
}

// === impl Mode ===

impl Mode {
    /// From an index entry's mode. Group-writable files of very old repositories count as plain.
    pub(super) fn from_bits(bits: u32) -> Mode {
        match bits & 0o170_000 {
            0o120_000 => Mode::Link,
            0o160_000 => Mode::Repository,
            _ if bits & 0o100 != 0 => Mode::Executable,
            _ => Mode::Plain,
        }
    }

    /// As a tree object writes it.
    fn text(self) -> &'static [u8] {
        match self {
            Mode::Plain => b"100644 ",
            Mode::Executable => b"100755 ",
            Mode::Link => b"120000 ",
            Mode::Repository => b"160000 ",
        }
    }
}

// === impl File ===

impl File {
    /// A name of which nothing is known yet.
    pub(super) fn unknown(name: &[u8]) -> File {
        File {
            name: name.into(),
            id: Oid::ZERO_SHA1,
            mode: Mode::Plain,
            stat: Stat::default(),
            tracked: false,
            pinned: false,
            stale: true,
            settled: false,
            present: false,
        }
    }

    /// Sets what it is in the tree; true when that is something new.
    pub(super) fn take(&mut self, id: Oid, mode: Mode) -> bool {
        let changed = !self.present || self.id != id || self.mode != mode;
        (self.present, self.id, self.mode) = (true, id, mode);
        changed
    }

    /// It cannot be looked at now: a tracked one stays as the index has it. True when that changes the tree.
    pub(super) fn keep(&mut self) -> bool {
        self.tracked && !std::mem::replace(&mut self.present, true)
    }
}

// === impl Folder ===

impl Folder {
    /// Where the file of this name is in `files`, or would be.
    pub(super) fn find_file(&self, name: &[u8]) -> Result<usize, usize> {
        self.files.binary_search_by(|file| (*file.name).cmp(name))
    }

    /// Where the folder of this name is in `folders`, or would be.
    pub(super) fn find_folder(&self, name: &[u8]) -> Result<usize, usize> {
        self.folders.binary_search_by(|sub| (*sub.name).cmp(name))
    }

    /// The file at `path`, made when it is not known. `path` is relative to this folder.
    pub(super) fn file_at(&mut self, path: &[u8]) -> &mut File {
        match path.iter().position(|&b| b == b'/') {
            Some(slash) => {
                let (name, rest) = (&path[..slash], &path[slash + 1..]);
                let at = self.find_folder(name).unwrap_or_else(|at| {
                    self.folders.insert(at, SubFolder { name: name.into(), folder: Folder::default() });
                    at
                });
                self.folders[at].folder.file_at(rest)
            }
            None => {
                let at = self.find_file(path).unwrap_or_else(|at| {
                    self.files.insert(at, File::unknown(path));
                    at
                });
                &mut self.files[at]
            }
        }
    }

    /// The file at `path` if it is known. All trees above it are forgotten, for a change to it.
    pub(super) fn changed_at(&mut self, path: &[u8]) -> Option<&mut File> {
        self.tree = None;
        match path.iter().position(|&b| b == b'/') {
            Some(slash) => {
                let at = self.find_folder(&path[..slash]).ok()?;
                self.folders[at].folder.changed_at(&path[slash + 1..])
            }
            None => self.find_file(path).ok().map(|at| &mut self.files[at]),
        }
    }

    /// Takes over which files the user's index has. Where its stat is not ours, our own blob stays: it is younger.
    /// With `conversions` such a file is read again, since what line ends become may depend on the blob in the
    /// index.
    pub(super) fn apply_tracked(&mut self, entries: Vec<Entry>, conversions: bool) {
        self.each_file(&mut |file| {
            file.tracked = false;
            file.settled = false;
            // What is no longer pinned is looked at again.
            file.stale |= std::mem::take(&mut file.pinned);
        });
        let mut changed = false;
        for entry in entries {
            let file = self.file_at(&entry.path);
            file.tracked = true;
            let unknown = !file.present && file.id.is_zero();
            let same = !entry.stale && entry.stat.is_same(&file.stat);
            // What git takes for unchanged it does not convert again.
            let converted = conversions && !entry.stale;
            if unknown || same || converted || entry.pinned {
                changed |= file.present && (file.id, file.mode) != (entry.id, entry.mode);
                file.id = entry.id;
                file.mode = entry.mode;
                file.stat = entry.stat;
                file.stale = entry.stale;
                file.settled = true;
            }
            if entry.pinned {
                changed |= !file.present;
                file.pinned = true;
                file.present = true;
            }
        }
        if conversions {
            self.doubt_conversions();
        }
        if changed {
            self.forget_trees();
        }
        self.settle();
    }

    /// What files become in the repository may have changed: those are read again that git would not take from
    /// the index.
    pub(super) fn doubt_conversions(&mut self) {
        self.each_file(&mut |file| file.stale |= !file.settled);
    }

    /// Takes blobs and stats from our own index file of an earlier run, except for what is pinned.
    pub(super) fn apply_saved(&mut self, entries: Vec<Entry>) {
        for entry in entries {
            let file = self.file_at(&entry.path);
            if !file.pinned && !entry.stale {
                file.id = entry.id;
                file.mode = entry.mode;
                file.stat = entry.stat;
                file.stale = false;
                file.settled = false;
            }
        }
    }

    /// Drops what is neither in the work tree nor in the user's index, and finds out which folders are tracked.
    /// True when nothing is left.
    pub(super) fn settle(&mut self) -> bool {
        self.files.retain(|file| file.present || file.tracked);
        self.folders.retain_mut(|sub| !sub.folder.settle());
        self.tracked =
            self.files.iter().any(|file| file.tracked) || self.folders.iter().any(|sub| sub.folder.tracked);
        self.files.is_empty() && self.folders.is_empty()
    }

    /// Everything in and below has gone from the work tree. True when that changes the tree.
    pub(super) fn remove_all(&mut self) -> bool {
        let mut changed = false;
        self.files.retain_mut(|file| {
            changed |= file.present && !file.pinned;
            file.present = file.pinned;
            file.tracked
        });
        self.folders.retain_mut(|sub| {
            changed |= sub.folder.remove_all();
            !sub.folder.files.is_empty() || !sub.folder.folders.is_empty()
        });
        self.rules = None;
        self.attributes = None;
        if changed {
            self.tree = None;
        }
        changed
    }

    /// It cannot be looked into now: what is tracked stays. True when that changes the tree.
    pub(super) fn keep_tracked(&mut self) -> bool {
        let mut changed = false;
        self.each_file(&mut |file| changed |= file.keep());
        if changed {
            self.forget_trees();
        }
        changed
    }

    /// Calls `visit` for every file in and below.
    pub(super) fn each_file(&mut self, visit: &mut impl FnMut(&mut File)) {
        self.files.iter_mut().for_each(&mut *visit);
        self.folders.iter_mut().for_each(|sub| sub.folder.each_file(visit));
    }

    /// Calls `visit` with the path of every file that is in the work tree.
    pub(super) fn each_present(&self, path: &mut Vec<u8>, visit: &mut impl FnMut(&[u8], &File)) {
        let length = path.len();
        for file in self.files.iter().filter(|file| file.present) {
            path.extend_from_slice(&file.name);
            visit(path, file);
            path.truncate(length);
        }
        for sub in &self.folders {
            path.extend_from_slice(&sub.name);
            path.push(b'/');
            sub.folder.each_present(path, visit);
            path.truncate(length);
        }
    }

    /// All trees are to be made again.
    pub(super) fn forget_trees(&mut self) {
        self.tree = None;
        self.folders.iter_mut().for_each(|sub| sub.folder.forget_trees());
    }

    /// The tree of this folder. Hands every tree that changed since the last time to `store`, children first.
    /// `None`: there is nothing in it.
    pub(super) fn write_tree<E>(
        &mut self,
        store: &mut impl FnMut(ObjectType, Vec<u8>) -> Result<Oid, E>,
    ) -> Result<Option<Oid>, E> {
        if self.tree.is_none() {
            let mut children = Vec::with_capacity(self.folders.len());
            for sub in &mut self.folders {
                if let Some(id) = sub.folder.write_tree(store)? {
                    children.push((&*sub.name, id));
                }
            }
            // In a tree a folder sorts as if its name ended in a slash, so `a-` comes before `a`.
            children.sort_unstable_by(|(a, _), (b, _)| a.iter().chain(b"/").cmp(b.iter().chain(b"/")));
            // A pinned file that became a folder gives way to it, as in git's index.
            let hidden = |file: &File| file.pinned && children.iter().any(|(name, _)| **name == *file.name);
            let files = self.files.iter().filter(|file| file.present && !hidden(file));
            let bytes = tree_object(files, &children);
            if !bytes.is_empty() {
                self.tree = Some(store(ObjectType::Tree, bytes)?);
            }
        }
        Ok(self.tree)
    }
}

/// The content of a tree: files, sorted by name, merged with folders, sorted as if their names ended in a slash.
fn tree_object<'a>(files: impl Iterator<Item = &'a File>, folders: &[(&[u8], Oid)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut folders = folders.iter().peekable();
    let mut files = files.peekable();
    loop {
        let folder_first = match (files.peek(), folders.peek()) {
            (None, None) => return bytes,
            (Some(_), None) => false,
            (None, Some(_)) => true,
            (Some(file), Some((name, _))) => name.iter().chain(b"/").lt(file.name.iter()),
        };
        let (mode, name, id) = if folder_first {
            let Some((name, id)) = folders.next() else { return bytes };
            (&b"40000 "[..], *name, id)
        } else {
            let Some(file) = files.next() else { return bytes };
            (file.mode.text(), &*file.name, &file.id)
        };
        bytes.extend_from_slice(mode);
        bytes.extend_from_slice(name);
        bytes.push(0);
        bytes.extend_from_slice(id.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str) -> Entry {
        Entry {
            path: path.into(),
            id: Oid::hash_object(ObjectType::Blob, path.as_bytes()).unwrap(),
            mode: Mode::Plain,
            stat: Stat::default(),
            pinned: false,
            stale: false,
        }
    }

    fn hash(folder: &mut Folder) -> (Option<Oid>, usize) {
        let mut trees = 0;
        let id = folder.write_tree(&mut |kind, bytes| {
            trees += 1;
            Oid::hash_object(kind, &bytes)
        });
        (id.unwrap(), trees)
    }

    #[test]
    fn writes_the_trees_above_a_change_only() {
        let mut top = Folder::default();
        top.apply_tracked(["a/b/c", "a/d", "e/f", "g"].map(entry).into(), false);
        assert_eq!(hash(&mut top), (None, 0), "known from the index, but not seen in the work tree");
        top.each_file(&mut |file| file.present = true);
        let (first, trees) = hash(&mut top);
        assert_eq!(trees, 4);
        assert_eq!(hash(&mut top), (first, 0));
        top.changed_at(b"a/d").unwrap().mode = Mode::Executable;
        let (second, trees) = hash(&mut top);
        assert!(second != first && trees == 2);
    }

    #[test]
    fn keeps_tracked_files_that_are_gone_and_forgets_the_others() {
        let mut top = Folder::default();
        top.file_at(b"new/x").present = true;
        top.apply_tracked(vec![entry("old/y")], false);
        assert!(!top.folders[0].folder.tracked && top.folders[1].folder.tracked);
        assert!(top.remove_all());
        assert_eq!(top.folders.len(), 1);
        assert_eq!(&*top.folders[0].name, b"old");
        assert!(!top.remove_all());
        top.apply_tracked(Vec::new(), false);
        assert!(top.folders.is_empty());
    }

    #[test]
    fn sorts_folders_as_if_they_ended_in_a_slash() {
        let mut top = Folder::default();
        for path in ["a.b", "a/x", "a0", "a-/x", "a--"] {
            top.file_at(path.as_bytes()).present = true;
        }
        let mut names = Vec::new();
        top.write_tree(&mut |kind, bytes| {
            let text = String::from_utf8_lossy(&bytes);
            names = text.split('\0').filter_map(|part| part.split(' ').nth(1).map(str::to_owned)).collect();
            Oid::hash_object(kind, &bytes)
        })
        .unwrap();
        assert_eq!(names, ["a--", "a-", "a.b", "a", "a0"]);
    }
}
