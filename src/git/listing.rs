//! Reading one folder, without following anything.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, openat, statat};

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Folder,
    File,
    Link,
    /// Pipe, socket or device.
    Special,
}

/// The names in a folder, in the order of the file system, without `.` and `..`.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// All names, each with a zero byte behind.
    names: Vec<u8>,
    items: Vec<(u32, Kind)>,
    /// There is a `.git`.
    pub(super) dot_git: bool,
    /// What `.gitignore` is.
    pub(super) ignore_file: Option<Kind>,
    /// What `.gitattributes` is.
    pub(super) attribute_file: Option<Kind>,
}

// === impl Kind ===

impl Kind {
    /// From the mode that lstat(2) gives.
    pub(super) fn of(stat: &rustix::fs::Stat) -> Self {
        Self::of_type(FileType::from_raw_mode(stat.st_mode)).unwrap_or(Kind::Special)
    }

    fn of_type(kind: FileType) -> Option<Self> {
        match kind {
            FileType::Directory => Some(Kind::Folder),
            FileType::RegularFile => Some(Kind::File),
            FileType::Symlink => Some(Kind::Link),
            FileType::Unknown => None,
            _ => Some(Kind::Special),
        }
    }
}

// === impl Listing ===

impl Listing {
    /// Reads the open folder. `buffer` is scratch space, kept by the caller for the next folder.
    pub(super) fn read(folder: impl AsFd, buffer: &mut Vec<u8>) -> io::Result<Self> {
        buffer.clear();
        buffer.reserve(32 << 10);
        let mut listing = Listing::default();
        let mut entries = RawDir::new(folder.as_fd(), buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let kind = match Kind::of_type(entry.file_type()) {
                Some(kind) => kind,
                // Some file systems do not tell. What has gone since is not listed.
                None => match statat(folder.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => Kind::of(&stat),
                    Err(_) => continue,
                },
            };
            match name.to_bytes() {
                b".git" => listing.dot_git = true,
                b".gitignore" => listing.ignore_file = Some(kind),
                b".gitattributes" => listing.attribute_file = Some(kind),
                _ => {}
            }
            listing.items.push((listing.names.len() as u32, kind));
            listing.names.extend_from_slice(name.to_bytes_with_nul());
        }
        Ok(listing)
    }

    /// Each name with its kind.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&CStr, Kind)> {
        self.items.iter().filter_map(|&(start, kind)| {
            let name = CStr::from_bytes_until_nul(&self.names[start as usize..]).ok()?;
            Some((name, kind))
        })
    }
}

/// Opens a folder below another. Fails when the name is a link.
pub(super) fn open_folder(parent: impl AsFd, name: &CStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    Ok(openat(parent, name, flags, Mode::empty())?)
}

/// Opens a file to be read. Fails when the name is a link, and never waits, not even on a pipe.
pub(super) fn open_file(parent: impl AsFd, name: &CStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    Ok(openat(parent, name, flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_every_kind_and_follows_no_link() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        std::fs::create_dir(path.join("folder")).unwrap();
        std::fs::write(path.join("file\nname"), "").unwrap();
        std::os::unix::fs::symlink("folder", path.join("link")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, path.join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();

        let fd = std::fs::File::open(path).unwrap();
        let listing = Listing::read(&fd, &mut Vec::new()).unwrap();
        let mut items: Vec<_> = listing.iter().map(|(name, kind)| (name.to_str().unwrap(), kind)).collect();
        items.sort_unstable_by_key(|(name, _)| *name);
        let expected = [
            ("file\nname", Kind::File),
            ("folder", Kind::Folder),
            ("link", Kind::Link),
            ("pipe", Kind::Special),
        ];
        assert_eq!(items, expected);
        assert!(open_folder(&fd, c"link").is_err());
        assert!(open_file(&fd, c"link").is_err());
        assert!(open_file(&fd, c"pipe").is_ok(), "returns at once though nobody writes");
    }
}
