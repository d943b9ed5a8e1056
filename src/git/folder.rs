//! Whether anything changed in a folder that has no git: a fingerprint of its files.
//!
//! It is made of names, kinds, executable bits, link targets and content, so that writing the same bytes again is
//! no change. Content is read once and then only when the stat proves nothing. Of files that are large, or come
//! after the first 64 MiB, stat stands for content.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use git2::{ObjectType, Oid};
use rustix::fs::{AtFlags, fstat, readlinkat, statat};

use super::TreeId;
use super::index::{self, Folder, Mode, SubFolder};
use super::listing::{Kind, Listing, open_file, open_folder};
use super::seen::Seen;
use super::stat::{FileClock, Moment, Stat};

/// Content up to this size counts; source files are smaller.
const CONTENT_MAX: u64 = 64 << 10;
/// All content together, by name order: it bounds the first look at a large folder.
const CONTENT_TOTAL: u64 = 64 << 20;
/// More entries than this are left out.
const ENTRIES_MAX: usize = 100_000;
/// Each level holds a descriptor open.
const DEPTH_MAX: usize = 200;

/// A folder to be looked at again and again.
pub struct FolderWatch {
    path: PathBuf,
    known: Folder,
    /// Made at the first look.
    clock: Option<FileClock>,
}

/// What a folder looked like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FolderState {
    /// Two equal ones mean the same files.
    pub fingerprint: TreeId,
    /// How many files there are.
    pub files: usize,
    /// There are more than 100,000 files and folders; the rest was left out.
    pub truncated: bool,
}

/// One look.
struct Look {
    now: Moment,
    entries: usize,
    files: usize,
    content: u64,
    truncated: bool,
    buffer: Vec<u8>,
}

// === impl FolderWatch ===

impl FolderWatch {
    /// Nothing is read yet.
    pub fn new(path: &Path) -> Self {
        FolderWatch { path: path.to_owned(), known: Folder::default(), clock: None }
    }

    /// Looks at the folder now. Links are not followed; what cannot be read is left out.
    pub fn look(&mut self) -> io::Result<FolderState> {
        let clock = match &self.clock {
            Some(clock) => clock,
            None => {
                let ours = self.path.join(".longhaul");
                self.clock.insert(FileClock::in_folder(if ours.is_dir() { &ours } else { &self.path })?)
            }
        };
        let now = clock.now()?;
        let top = File::open(&self.path)?;
        let mut look = Look { now, entries: 0, files: 0, content: 0, truncated: false, buffer: Vec::new() };
        let listing = Listing::read(&top, &mut look.buffer)?;
        look.folder(top.into(), &listing, &mut self.known, 0);
        let hash = |kind, bytes: Vec<u8>| Oid::hash_object(kind, &bytes);
        let tree = self.known.write_tree(&mut { hash }).map_err(io::Error::other)?;
        let tree = match tree {
            Some(tree) => tree,
            None => hash(ObjectType::Tree, Vec::new()).map_err(io::Error::other)?,
        };
        Ok(FolderState { fingerprint: tree.into(), files: look.files, truncated: look.truncated })
    }
}

// === impl Look ===

impl Look {
    /// True when something changed in it.
    fn folder(&mut self, fd: OwnedFd, listing: &Listing, known: &mut Folder, depth: usize) -> bool {
        let mut items: Vec<_> = listing.iter().collect();
        // By name: which content still counts must not depend on the order of the file system.
        items.sort_unstable_by_key(|(name, _)| *name);
        let built = items.iter().any(|(name, _)| matches!(name.to_bytes(), b"Cargo.toml" | b"pom.xml"));
        let mut seen = Seen::new(known);
        let mut changed = false;
        for (name, kind) in items {
            if self.entries >= ENTRIES_MAX {
                self.truncated = true;
                break;
            }
            self.entries += 1;
            changed |= match kind {
                Kind::Folder if depth >= DEPTH_MAX || is_skipped(name.to_bytes(), built) => false,
                Kind::Folder => self.sub_folder(fd.as_fd(), name, known, &mut seen, depth),
                Kind::File | Kind::Link => self.file(fd.as_fd(), name, known, &mut seen),
                Kind::Special => false,
            };
        }
        changed |= seen.apply(known);
        if changed {
            known.tree = None;
        }
        changed
    }

    fn sub_folder(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        known: &mut Folder,
        seen: &mut Seen,
        depth: usize,
    ) -> bool {
        let Ok(fd) = open_folder(parent, name) else { return false };
        let Ok(listing) = Listing::read(&fd, &mut self.buffer) else { return false };
        if is_rebuilt(fd.as_fd(), &listing) {
            return false;
        }
        match known.find_folder(name.to_bytes()) {
            Ok(at) => {
                seen.folders[at] = true;
                self.folder(fd, &listing, &mut known.folders[at].folder, depth + 1)
            }
            Err(_) => {
                let mut sub = SubFolder { name: name.to_bytes().into(), folder: Folder::default() };
                let changed = self.folder(fd, &listing, &mut sub.folder, depth + 1);
                seen.new_folders.push(sub);
                changed
            }
        }
    }

    fn file(&mut self, parent: BorrowedFd<'_>, name: &CStr, known: &mut Folder, seen: &mut Seen) -> bool {
        let Ok(raw) = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) else { return false };
        let mut fresh = index::File::unknown(name.to_bytes());
        let at = known.find_file(name.to_bytes());
        let file = match at {
            Ok(at) => &mut known.files[at],
            Err(_) => &mut fresh,
        };
        let Some(changed) = self.update(parent, name, &raw, file) else { return false };
        self.files += 1;
        match at {
            Ok(at) => seen.files[at] = true,
            Err(_) => seen.new_files.push(fresh),
        }
        changed
    }

    /// Brings one file up to date; `None`: it cannot be read, or has gone.
    fn update(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        raw: &rustix::fs::Stat,
        file: &mut index::File,
    ) -> Option<bool> {
        let stat = Stat::from(raw);
        let size = raw.st_size as u64;
        let counts = size <= CONTENT_MAX && self.content + size <= CONTENT_TOTAL;
        if counts {
            self.content += size;
        }
        let mode = match Kind::of(raw) {
            Kind::Link => Mode::Link,
            Kind::File if raw.st_mode & 0o100 != 0 => Mode::Executable,
            Kind::File => Mode::Plain,
            Kind::Folder | Kind::Special => return None,
        };
        // `settled`: content was left out the last time.
        if !file.stale && file.mode == mode && file.stat.is_same(&stat) && file.settled != counts {
            return Some(false);
        }
        let content = match mode {
            Mode::Link => readlinkat(parent, name, Vec::new()).ok()?.into_bytes(),
            _ if counts => read(parent, name, size)?,
            _ => format!("{:?} {size} {}", (raw.st_mtime, raw.st_mtime_nsec), raw.st_ino).into_bytes(),
        };
        let id = Oid::hash_object(ObjectType::Blob, &content).ok()?;
        file.stat = stat;
        file.stale = stat.is_racy(self.now);
        file.settled = !counts;
        Some(file.take(id, mode))
    }
}

/// Folders that are not work: git's and our own, and those of whole dependencies or compiled files, which are
/// large and come back by themselves.
fn is_skipped(name: &[u8], built: bool) -> bool {
    matches!(name, b".git" | b".longhaul" | b"node_modules" | b"__pycache__") || (built && name == b"target")
}

/// Folders that say of themselves that they can be made again: `CACHEDIR.TAG` (<https://bford.info/cachedir/>;
/// Cargo and many others write it) and virtual environments of Python.
fn is_rebuilt(fd: BorrowedFd<'_>, listing: &Listing) -> bool {
    const SIGNATURE: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55";
    let tagged = || read(fd, c"CACHEDIR.TAG", SIGNATURE.len() as u64).is_some_and(|text| text == SIGNATURE);
    listing.iter().any(|(name, kind)| {
        kind == Kind::File
            && (name.to_bytes() == b"pyvenv.cfg" || (name.to_bytes() == b"CACHEDIR.TAG" && tagged()))
    })
}

/// At most `size` bytes of a regular file.
fn read(parent: BorrowedFd<'_>, name: &CStr, size: u64) -> Option<Vec<u8>> {
    let file = File::from(open_file(parent, name).ok()?);
    if Kind::of(&fstat(&file).ok()?) != Kind::File {
        return None;
    }
    let mut bytes = Vec::with_capacity(size as usize + 1);
    file.take(size).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    struct Bench {
        folder: tempfile::TempDir,
        watch: FolderWatch,
        last: Option<TreeId>,
    }

    impl Bench {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let watch = FolderWatch::new(folder.path());
            let mut bench = Bench { folder, watch, last: None };
            bench.changed();
            bench
        }

        fn write(&self, path: &str, content: &str) {
            let path = self.folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }

        /// Since the last call. Another watch of the same folder must agree.
        fn changed(&mut self) -> bool {
            let now = self.watch.look().unwrap().fingerprint;
            assert_eq!(FolderWatch::new(self.folder.path()).look().unwrap().fingerprint, now);
            self.last.replace(now) != Some(now)
        }
    }

    #[test]
    fn sees_every_kind_of_change_and_nothing_else() {
        let mut bench = Bench::new();
        bench.write("a/b", "one");
        assert!(bench.changed());
        assert!(!bench.changed());
        bench.write("a/b", "two");
        assert!(bench.changed(), "same size, same moment");
        bench.write("a/b", "two");
        assert!(!bench.changed(), "the same bytes again");
        let path = bench.folder.path().join("a/b");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(bench.changed(), "executable");
        fs::rename(&path, bench.folder.path().join("a/c")).unwrap();
        assert!(bench.changed(), "renamed");
        fs::remove_dir_all(bench.folder.path().join("a")).unwrap();
        assert!(bench.changed(), "removed");
        bench.write("large", &"x".repeat(100 << 10));
        assert!(bench.changed(), "large");
        assert!(!bench.changed());
    }

    #[test]
    fn follows_no_link_and_skips_what_is_not_work() {
        let mut bench = Bench::new();
        symlink("/", bench.folder.path().join("root")).unwrap();
        symlink(".", bench.folder.path().join("circle")).unwrap();
        assert!(bench.changed());
        bench.write("Cargo.toml", "");
        bench.changed();
        for path in [
            ".longhaul/state.db",
            ".git/HEAD",
            "node_modules/x",
            "target/x",
            "a/__pycache__/x",
            "v/pyvenv.cfg",
        ] {
            bench.write(path, "x");
        }
        bench.write("cache/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n# x");
        // Empty folders are nothing, as in git.
        assert!(!bench.changed());
        bench.write("b/target/x", "x");
        assert!(bench.changed(), "not beside a Cargo.toml");
        assert_eq!(bench.watch.look().unwrap().files, 4);
    }
}
