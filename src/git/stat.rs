//! What the file system says about a file, and when that can be trusted.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{Timespec, Timestamps, UTIME_NOW, fstat, futimens};

/// A moment of the file system's clock. Seconds wrap in 2106, as in git's index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Moment {
    pub(super) seconds: u32,
    pub(super) nanoseconds: u32,
}

/// The part of lstat(2) that git's index keeps, cut to 32 bits as there. A file whose `Stat` is the same has the
/// same content, unless the stat is racy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Stat {
    pub(super) mtime: Moment,
    pub(super) ctime: Moment,
    pub(super) dev: u32,
    pub(super) ino: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) size: u32,
}

/// Tells whether a whole file was replaced or changed: for the few files that are read once and kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Signature {
    dev: u64,
    ino: u64,
    size: i64,
    mtime: (i64, i64),
    ctime: (i64, i64),
}

/// The file system's own clock. Ours may differ: time stamps come from a coarser one, and on a network from
/// another machine.
#[derive(Debug)]
pub(super) struct FileClock {
    /// Has no name; only its time stamp is used.
    file: File,
}

// === impl Moment ===

impl Moment {
    fn new(seconds: i64, nanoseconds: i64) -> Self {
        Moment { seconds: seconds as u32, nanoseconds: nanoseconds as u32 }
    }

    /// In nanoseconds.
    fn total(self) -> u64 {
        u64::from(self.seconds) * 1_000_000_000 + u64::from(self.nanoseconds)
    }

    /// How many whole seconds this is before `later`; 0 when it is not.
    pub(super) fn seconds_before(self, later: Moment) -> u64 {
        later.total().saturating_sub(self.total()) / 1_000_000_000
    }
}

// === impl Stat ===

impl From<&rustix::fs::Stat> for Stat {
    fn from(stat: &rustix::fs::Stat) -> Self {
        // git writes a size of 4 GiB times n as 2 GiB, so that it is not taken for "unknown" (0).
        let size = match stat.st_size as u32 {
            0 if stat.st_size != 0 => 1 << 31,
            size => size,
        };
        Stat {
            mtime: Moment::new(stat.st_mtime, stat.st_mtime_nsec as i64),
            ctime: Moment::new(stat.st_ctime, stat.st_ctime_nsec as i64),
            dev: stat.st_dev as u32,
            ino: stat.st_ino as u32,
            uid: stat.st_uid,
            gid: stat.st_gid,
            size,
        }
    }
}

impl Stat {
    /// Nothing changed between the two. The device is left out: it differs after a remount.
    pub(super) fn is_same(&self, other: &Stat) -> bool {
        Stat { dev: 0, ..*self } == Stat { dev: 0, ..*other }
    }

    /// The file was last changed so close to `read_from`, the moment before it was looked at, that a later change
    /// could leave the same stat. This is git's racy rule with the clock's whole resolution
    /// (Documentation/technical/racy-git.txt).
    pub(super) fn is_racy(&self, read_from: Moment) -> bool {
        let changed = self.mtime.max(self.ctime);
        if changed.nanoseconds == 0 && self.mtime.nanoseconds == 0 {
            // Whole seconds look like a file system that has no finer stamps; FAT's are 2 s apart.
            return changed.seconds.saturating_add(2) >= read_from.seconds;
        }
        changed >= read_from
    }

    /// Whether git could have missed a change between looking at the file and writing its index at `written`.
    pub(super) fn is_racy_in_index(&self, written: Moment) -> bool {
        /// The kernel's coarsest tick (HZ=100): the stamps of both may be this old.
        const TICK: u64 = 10_000_000;
        self.mtime.total() + TICK >= written.total()
    }
}

// === impl Signature ===

impl Signature {
    /// Of the file at `path`, links followed; `None` when there is nothing to be seen.
    pub(super) fn of(path: &Path) -> Option<Self> {
        rustix::fs::stat(path).ok().map(|stat| Self::from(&stat))
    }

    /// When the content was last changed.
    pub(super) fn mtime(&self) -> Moment {
        Moment::new(self.mtime.0, self.mtime.1)
    }

    /// Device and inode: another pair is another file.
    pub(super) fn identity(&self) -> (u64, u64) {
        (self.dev, self.ino)
    }
}

impl From<&rustix::fs::Stat> for Signature {
    fn from(stat: &rustix::fs::Stat) -> Self {
        Signature {
            dev: stat.st_dev,
            ino: stat.st_ino,
            size: stat.st_size,
            mtime: (stat.st_mtime, stat.st_mtime_nsec as i64),
            ctime: (stat.st_ctime, stat.st_ctime_nsec as i64),
        }
    }
}

// === impl FileClock ===

impl FileClock {
    /// The clock of the file system that holds `folder`, which must be writable.
    pub(super) fn in_folder(folder: &Path) -> io::Result<Self> {
        Ok(FileClock { file: tempfile::tempfile_in(folder)? })
    }

    /// Now: what a file written at this moment would get as its time stamp.
    pub(super) fn now(&self) -> io::Result<Moment> {
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        futimens(&self.file, &Timestamps { last_access: now, last_modification: now })?;
        Ok(Stat::from(&fstat(&self.file)?).mtime)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u32, nanoseconds: u32) -> Moment {
        Moment { seconds, nanoseconds }
    }

    #[test]
    fn a_file_is_racy_until_the_clock_has_moved_on() {
        let stat = Stat { mtime: at(10, 500), ctime: at(10, 500), ..Stat::default() };
        assert!(stat.is_racy(at(10, 500)));
        assert!(stat.is_racy(at(9, 0)));
        assert!(!stat.is_racy(at(10, 501)));
        let restored = Stat { mtime: at(3, 1), ..stat };
        assert!(restored.is_racy(at(10, 500)), "an old mtime that was just set");
        let coarse = Stat { mtime: at(10, 0), ctime: at(10, 0), ..Stat::default() };
        assert!(coarse.is_racy(at(12, 900)) && !coarse.is_racy(at(13, 0)));
    }

    #[test]
    fn the_clock_is_that_of_the_files() {
        let folder = tempfile::tempdir().unwrap();
        let clock = FileClock::in_folder(folder.path()).unwrap();
        let before = clock.now().unwrap();
        std::fs::write(folder.path().join("x"), "x").unwrap();
        let stat = Stat::from(&rustix::fs::stat(folder.path().join("x")).unwrap());
        assert!(stat.mtime >= before && clock.now().unwrap() >= stat.mtime);
    }
}
