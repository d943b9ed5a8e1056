//! The walk over the work tree that brings the private index up to date.
//!
//! It visits what `git add -A` would: every file that is not ignored, and ignored ones that the user's index
//! has. Links are never followed: each folder is opened below its parent's descriptor. A file is read only when
//! its stat differs from the one its blob was made at, or is racy.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use git2::Oid;
use rustix::fs::{AtFlags, statat};

use super::content::{Content, Maker};
use super::ignore::Level;
use super::index::{File, Folder, Mode, SubFolder};
use super::listing::{Kind, Listing, open_folder};
use super::seen::Seen;
use super::stat::{Moment, Stat};
use super::warning::{Warnings, Why};
use super::{GitError, gitdir, names};

/// Our own folder is never taken, whatever the ignore files say; what the user has committed of it is.
const OURS: &[u8] = b".longhaul";
/// Each level holds a descriptor open.
const DEPTH_MAX: usize = 200;
/// git cannot handle longer paths.
const PATH_MAX: usize = 4095;

/// One walk.
pub(super) struct Scan<'a> {
    pub(super) maker: Maker<'a>,
    /// The file system's clock from before the walk.
    pub(super) now: Moment,
    /// Paths at which the user's index has a repository, with the commit it has.
    pub(super) submodules: &'a BTreeMap<Vec<u8>, Oid>,
    /// `core.fileMode`: the executable bit means something.
    pub(super) file_mode: bool,
    pub(super) warnings: Warnings,
    /// Files that only the git program can convert.
    pub(super) for_program: Vec<Vec<u8>>,
    /// How many files were read.
    pub(super) read: usize,
    /// The folder at hand, with a slash at its end; empty at the top.
    path: Vec<u8>,
    buffer: Vec<u8>,
}

/// What a folder turned out to be.
enum Visited {
    /// Its files were taken; whether its tree changed.
    Folder { changed: bool },
    /// A repository of its own, with its HEAD commit.
    Nested(Option<Oid>),
}

/// Where a folder stands, for the decisions about what is in it.
#[derive(Clone, Copy)]
struct Place<'a> {
    level: &'a Level<'a>,
    /// Ignored: only what the user's index has counts.
    ignored: bool,
    depth: usize,
}

// === impl Scan ===

impl<'a> Scan<'a> {
    /// A walk that has not begun.
    pub(super) fn new(
        maker: Maker<'a>,
        submodules: &'a BTreeMap<Vec<u8>, Oid>,
        now: Moment,
        file_mode: bool,
    ) -> Self {
        Scan {
            maker,
            submodules,
            now,
            file_mode,
            warnings: Warnings::default(),
            for_program: Vec::new(),
            read: 0,
            path: Vec::new(),
            buffer: Vec::new(),
        }
    }

    /// Walks the work tree open at `top`. `level` has the rules of the whole repository.
    pub(super) fn run(
        &mut self,
        top: OwnedFd,
        folder: &mut Folder,
        level: &Level<'_>,
    ) -> Result<(), GitError> {
        self.folder(top, folder, Place { level, ignored: false, depth: 0 })?;
        Ok(())
    }

    fn folder(&mut self, fd: OwnedFd, folder: &mut Folder, place: Place<'_>) -> Result<Visited, GitError> {
        let listing = match Listing::read(&fd, &mut self.buffer) {
            Ok(listing) => listing,
            // It was removed while we stood in it.
            Err(error) if is_gone(&error) => return Ok(Visited::Folder { changed: folder.remove_all() }),
            Err(error) => {
                self.warn(Why::Unreadable(error.to_string()));
                return Ok(Visited::Folder { changed: folder.keep_tracked() });
            }
        };
        if place.depth > 0 && !folder.tracked && listing.dot_git {
            let here = self.absolute();
            // A dangling `.git` file is no repository to git, an unreadable one is.
            if matches!(gitdir::dot_git(&here), gitdir::DotGit::Directory(_)) {
                return Ok(Visited::Nested(gitdir::head_commit(&here)));
            }
        }
        self.attributes(fd.as_fd(), folder, &listing);
        let own = if place.ignored { None } else { self.rules(fd.as_fd(), folder, &listing) };
        let level = match &own {
            Some(rules) => Level { rules, base: self.path.len(), above: Some(place.level) },
            None => *place.level,
        };
        let place = Place { level: &level, ..place };

        let mut seen = Seen::new(folder);
        let mut changed = false;
        for (name, kind) in listing.iter() {
            if name.to_bytes() == b".git" {
                continue;
            }
            self.path.extend_from_slice(name.to_bytes());
            let result = match kind {
                Kind::Folder => self.folder_entry(fd.as_fd(), name, folder, place, &mut seen),
                _ => self.file_entry(fd.as_fd(), name, kind, folder, place, &mut seen),
            };
            self.path.truncate(self.path.len() - name.to_bytes().len());
            changed |= result?;
        }
        changed |= seen.apply(folder);
        if changed {
            folder.tree = None;
        }
        Ok(Visited::Folder { changed })
    }

    /// A name that stands for a folder. True when it changes the tree.
    fn folder_entry(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        folder: &mut Folder,
        place: Place<'_>,
        seen: &mut Seen,
    ) -> Result<bool, GitError> {
        let bytes = name.to_bytes();
        if let Some(&id) = self.submodules.get(&self.path)
            && let Ok(at) = folder.find_file(bytes)
        {
            seen.files[at] = true;
            let file = &mut folder.files[at];
            // Without a commit to be seen it is left as the index has it, and not looked into.
            let head = if file.pinned { None } else { gitdir::head_commit(&self.absolute()) };
            return Ok(file.take(head.unwrap_or(id), Mode::Repository));
        }
        let known = folder.find_folder(bytes);
        let tracked = known.is_ok_and(|at| folder.folders[at].folder.tracked);
        let ignored = place.ignored || bytes == OURS || place.level.ignores(&self.path, true);
        if ignored && !tracked {
            return Ok(false);
        }
        if names::is_forbidden(bytes, Kind::Folder) {
            self.warn(Why::Forbidden);
            return Ok(false);
        }
        if place.depth >= DEPTH_MAX || self.path.len() >= PATH_MAX {
            self.warn(Why::TooDeep);
            return Ok(false);
        }
        let fd = match open_folder(parent, name) {
            Ok(fd) => fd,
            Err(error) if is_gone(&error) => return Ok(false),
            Err(error) => {
                self.warn(Why::Unreadable(error.to_string()));
                let Ok(at) = known else { return Ok(false) };
                seen.folders[at] = true;
                return Ok(folder.folders[at].folder.keep_tracked());
            }
        };

        self.path.push(b'/');
        let inner = Place { ignored, depth: place.depth + 1, ..place };
        let mut fresh = SubFolder { name: bytes.into(), folder: Folder::default() };
        let sub = match known {
            Ok(at) => &mut folder.folders[at],
            Err(_) => &mut fresh,
        };
        let visited = self.folder(fd, &mut sub.folder, inner);
        self.path.pop();
        match visited? {
            Visited::Folder { changed } => {
                match known {
                    Ok(at) => seen.folders[at] = true,
                    Err(_) if fresh.folder.files.is_empty() && fresh.folder.folders.is_empty() => {}
                    Err(_) => seen.new_folders.push(fresh),
                }
                Ok(changed)
            }
            Visited::Nested(Some(head)) => {
                let mut file = File::unknown(bytes);
                if let Ok(at) = folder.find_file(bytes) {
                    seen.files[at] = true;
                    return Ok(folder.files[at].take(head, Mode::Repository));
                }
                file.take(head, Mode::Repository);
                seen.new_files.push(file);
                Ok(true)
            }
            Visited::Nested(None) => {
                self.warn(Why::NestedWithoutCommit);
                Ok(false)
            }
        }
    }

    /// A name that stands for anything but a folder. True when it changes the tree.
    fn file_entry(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        kind: Kind,
        folder: &mut Folder,
        place: Place<'_>,
        seen: &mut Seen,
    ) -> Result<bool, GitError> {
        let bytes = name.to_bytes();
        let known = folder.find_file(bytes);
        if let Ok(at) = known
            && folder.files[at].pinned
        {
            return Ok(false);
        }
        let tracked = known.is_ok_and(|at| folder.files[at].tracked);
        if !tracked && (place.ignored || bytes == OURS || place.level.ignores(&self.path, false)) {
            return Ok(false);
        }
        if kind == Kind::Special {
            self.warn(Why::Special);
            return Ok(seen.keep_file(folder, known));
        }
        if names::is_forbidden(bytes, kind) {
            self.warn(Why::Forbidden);
            return Ok(false);
        }
        if self.path.len() > PATH_MAX {
            self.warn(Why::TooDeep);
            return Ok(false);
        }
        let stat = match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(error) if is_gone(&error.into()) => return Ok(false),
            Err(error) => {
                self.warn(Why::Unreadable(error.to_string()));
                return Ok(seen.keep_file(folder, known));
            }
        };
        match known {
            Ok(at) => {
                let file = &mut folder.files[at];
                let (stays, changed) = self.update(parent, name, &stat, file)?;
                seen.files[at] = stays;
                Ok(changed && stays)
            }
            Err(_) => {
                let mut file = File::unknown(bytes);
                let (stays, changed) = self.update(parent, name, &stat, &mut file)?;
                if stays && (file.present || !file.id.is_zero()) {
                    seen.new_files.push(file);
                }
                Ok(changed && stays)
            }
        }
    }

    /// Brings one file up to date: whether it stays, and whether the tree changes.
    fn update(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        lstat: &rustix::fs::Stat,
        file: &mut File,
    ) -> Result<(bool, bool), GitError> {
        let stat = Stat::from(lstat);
        let mode = match Kind::of(lstat) {
            Kind::Link => Mode::Link,
            Kind::File => self.mode_of(lstat, file),
            // It was replaced after the folder was listed: the next snapshot sees it.
            Kind::Folder | Kind::Special => return Ok((false, false)),
        };
        if !file.stale && file.mode == mode && file.stat.is_same(&stat) {
            let changed = !std::mem::replace(&mut file.present, true);
            return Ok((true, changed));
        }
        self.read += 1;
        let content = match mode {
            Mode::Link => self.maker.link(parent, name, stat)?,
            _ => self.maker.file(parent, name, &self.path)?,
        };
        match content {
            Content::Blob { id, stat, settled } => {
                if !settled {
                    self.warn(Why::Unsettled);
                }
                file.stat = stat;
                file.stale = !settled || stat.is_racy(self.now);
                file.settled = false;
                Ok((true, file.take(id, mode)))
            }
            Content::ForProgram => {
                // Its blob comes after the walk; until then it is not in the tree.
                self.for_program.push(self.path.clone());
                file.mode = mode;
                file.stat = stat;
                file.stale = true;
                file.settled = false;
                if file.id.is_zero() {
                    file.id = Oid::hash_object(git2::ObjectType::Blob, &[])?;
                }
                Ok((true, false))
            }
            Content::Gone => Ok((false, false)),
            Content::Special => {
                self.warn(Why::Special);
                Ok((true, file.keep()))
            }
            Content::Unreadable(error) => {
                self.warn(Why::Unreadable(error.to_string()));
                Ok((true, file.keep()))
            }
        }
    }

    fn mode_of(&self, stat: &rustix::fs::Stat, file: &File) -> Mode {
        match file.mode {
            known @ (Mode::Plain | Mode::Executable) if !self.file_mode => known,
            _ if self.file_mode && stat.st_mode & 0o100 != 0 => Mode::Executable,
            _ => Mode::Plain,
        }
    }

    pub(super) fn warn(&mut self, why: Why) {
        self.warnings.add(&self.path, why);
    }

    fn absolute(&self) -> PathBuf {
        use std::os::unix::ffi::OsStrExt;
        self.maker.work_tree.join(std::ffi::OsStr::from_bytes(&self.path))
    }
}

fn is_gone(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::STALE))
}
