//! From a file of the work tree to a blob, as git would make it.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use git2::{ObjectType, Oid, Repository};
use rustix::fs::{fstat, readlinkat};

use super::GitError;
use super::converter::Converter;
use super::listing::{Kind, open_file};
use super::objects::{Objects, WHOLE_MAX};
use super::stat::Stat;

/// libgit2 converts in memory; what is larger goes through the git program.
const CONVERT_MAX: u64 = 4 << 20;
/// A file that is being written is read this often before it is taken as it comes.
const ATTEMPTS: usize = 3;

/// What may happen to content on its way into the repository, in the work tree at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Conversion {
    /// Nothing: there are no attributes, and `core.autocrlf` is off.
    None,
    /// CRLF becomes LF and `$Id$` is shortened, so only content that has such bytes is affected.
    LineEnds,
    /// Besides, an attribute file names filters (LFS is one) or encodings: each file's attributes count.
    Drivers,
}

/// What became of a file.
#[derive(Debug)]
pub(super) enum Content {
    /// It is this blob; `settled` unless it was changed while it was read.
    Blob { id: Oid, stat: Stat, settled: bool },
    /// Only the git program can convert it.
    ForProgram,
    /// It has gone meanwhile.
    Gone,
    /// It is no regular file any more.
    Special,
    /// It cannot be opened or read.
    Unreadable(io::Error),
}

/// Makes blobs.
pub(super) struct Maker<'a> {
    pub(super) repo: &'a Repository,
    pub(super) objects: &'a mut Objects,
    pub(super) conversion: Conversion,
    pub(super) converter: &'a mut Converter,
    pub(super) work_tree: &'a Path,
}

// === impl Conversion ===

impl Conversion {
    /// What an attribute file with this text may ask for (gitattributes(5)).
    pub(super) fn asked_by(attributes: &[u8]) -> Conversion {
        let names = |word: &[u8]| attributes.windows(word.len()).any(|window| window == word);
        if names(b"filter") || names(b"working-tree-encoding") {
            Conversion::Drivers
        } else {
            Conversion::LineEnds
        }
    }
}

// === impl Maker ===

impl Maker<'_> {
    /// The blob of a link: its target.
    pub(super) fn link(&mut self, folder: impl AsFd, name: &CStr, stat: Stat) -> Result<Content, GitError> {
        match readlinkat(folder, name, Vec::new()) {
            Ok(target) => {
                let id = self.objects.put(self.repo, ObjectType::Blob, target.into_bytes())?;
                Ok(Content::Blob { id, stat, settled: true })
            }
            Err(error) => Ok(failure(error.into())),
        }
    }

    /// The blob of a regular file. `path` is its path from the top of the work tree.
    pub(super) fn file(&mut self, folder: impl AsFd, name: &CStr, path: &[u8]) -> Result<Content, GitError> {
        let mut last = Content::Gone;
        for _ in 0..ATTEMPTS {
            let mut file = match open_file(folder.as_fd(), name) {
                Ok(fd) => File::from(fd),
                Err(error) => return Ok(failure(error)),
            };
            let before = match fstat(&file) {
                Ok(stat) if Kind::of(&stat) == Kind::File => stat,
                Ok(_) => return Ok(Content::Special),
                Err(error) => return Ok(failure(error.into())),
            };
            let Some(id) = self.read(&mut file, before.st_size as u64, path)? else { continue };
            let id = match id {
                Made::Blob(id) => id,
                Made::ForProgram => return Ok(Content::ForProgram),
                Made::Unreadable(error) => return Ok(failure(error)),
            };
            let stat = Stat::from(&before);
            let settled = fstat(&file).is_ok_and(|after| Stat::from(&after).is_same(&stat));
            last = Content::Blob { id, stat, settled };
            if settled {
                break;
            }
        }
        Ok(last)
    }

    /// `None`: it became shorter while it was read.
    fn read(&mut self, file: &mut File, size: u64, path: &[u8]) -> Result<Option<Made>, GitError> {
        if self.conversion == Conversion::Drivers && self.has_driver(path)? {
            return Ok(Some(Made::ForProgram));
        }
        if size <= WHOLE_MAX {
            let mut bytes = Vec::with_capacity(size as usize + 1);
            // What is appended meanwhile shows in the stat, so it need not be read.
            if let Err(error) = file.take(size).read_to_end(&mut bytes) {
                return Ok(Some(Made::Unreadable(error)));
            }
            if self.conversion != Conversion::None
                && let Some(made) = self.convert(path, Marks::of(&bytes), size)?
            {
                return Ok(Some(made));
            }
            let id = self.objects.put(self.repo, ObjectType::Blob, bytes)?;
            return Ok(Some(Made::Blob(id)));
        }
        if self.conversion != Conversion::None {
            match scan(file, size) {
                Ok(marks) => {
                    if let Some(made) = self.convert(path, marks, size)? {
                        return Ok(Some(made));
                    }
                }
                Err(error) => return Ok(Some(Made::Unreadable(error))),
            }
        }
        Ok(self.objects.stream(self.repo, file, size)?.map(Made::Blob))
    }

    /// Whether an attribute names a program or an encoding for this file.
    fn has_driver(&mut self, path: &[u8]) -> Result<bool, GitError> {
        self.converter.has_driver(Path::new(OsStr::from_bytes(path)))
    }

    /// Makes the blob of a file that a conversion may change. `None`: none does.
    fn convert(&mut self, path: &[u8], marks: Marks, size: u64) -> Result<Option<Made>, GitError> {
        let path = Path::new(OsStr::from_bytes(path));
        // libgit2 leaves `$Id$` alone in binary files, and git does not.
        if marks.ident && self.converter.expands_ident(path)? {
            return Ok(Some(Made::ForProgram));
        }
        if !marks.cr {
            return Ok(None);
        }
        if size > CONVERT_MAX {
            return Ok(Some(Made::ForProgram));
        }
        Ok(Some(match self.converter.blob(path)? {
            Some(id) => {
                self.objects.note(id);
                Made::Blob(id)
            }
            None => Made::ForProgram,
        }))
    }
}

/// What is in a file that a conversion would change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Marks {
    /// A carriage return: it may belong to a line end.
    cr: bool,
    /// `$Id`.
    ident: bool,
}

impl Marks {
    fn of(bytes: &[u8]) -> Marks {
        let ident = bytes.contains(&b'$') && bytes.windows(3).any(|window| window == b"$Id");
        Marks { cr: bytes.contains(&b'\r'), ident }
    }
}

enum Made {
    Blob(Oid),
    ForProgram,
    Unreadable(io::Error),
}

fn failure(error: io::Error) -> Content {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Content::Gone,
        // It became a link or a socket since it was looked at.
        _ if matches!(rustix::io::Errno::from_io_error(&error), Some(rustix::io::Errno::LOOP)) => {
            Content::Gone
        }
        _ if matches!(rustix::io::Errno::from_io_error(&error), Some(rustix::io::Errno::NXIO)) => {
            Content::Special
        }
        _ => Content::Unreadable(error),
    }
}

/// Searches a large file. Leaves it at its start.
fn scan(file: &mut File, size: u64) -> io::Result<Marks> {
    let mut buffer = vec![0; 64 << 10];
    // The last two bytes of the piece before, so that `$Id` is found across pieces.
    let mut kept = 0;
    let mut left = size;
    let mut found = Marks::default();
    while left > 0 && found != (Marks { cr: true, ident: true }) {
        let n = file.read(&mut buffer[kept..])?;
        if n == 0 {
            break;
        }
        let end = kept + n;
        let piece = Marks::of(&buffer[..end]);
        found = Marks { cr: found.cr | piece.cr, ident: found.ident | piece.ident };
        kept = end.min(2);
        buffer.copy_within(end - kept..end, 0);
        left = left.saturating_sub(n as u64);
    }
    file.rewind()?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn attribute_files_are_judged_by_what_they_name() {
        assert_eq!(Conversion::asked_by(b"* text=auto\n"), Conversion::LineEnds);
        assert_eq!(Conversion::asked_by(b"*.png filter=lfs diff=lfs"), Conversion::Drivers);
        assert_eq!(Conversion::asked_by(b"*.txt working-tree-encoding=UTF-16"), Conversion::Drivers);
    }

    #[test]
    fn a_large_file_is_searched_across_pieces() {
        let (ident, cr) = (Marks { ident: true, cr: false }, Marks { ident: false, cr: true });
        let cases = [
            (65_535, "$Id$", ident),
            (65_534, "$Id$", ident),
            (200_000, "\r", cr),
            (5, "-", Marks::default()),
        ];
        for (at, needle, expected) in cases {
            let mut file = tempfile::tempfile().unwrap();
            let mut bytes = vec![b'x'; 300_000];
            bytes[at..at + needle.len()].copy_from_slice(needle.as_bytes());
            file.write_all(&bytes).unwrap();
            file.rewind().unwrap();
            assert_eq!(scan(&mut file, 300_000).unwrap(), expected, "{needle} at {at}");
            assert_eq!(file.stream_position().unwrap(), 0);
        }
    }
}
