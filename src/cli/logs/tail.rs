//! One stream of an attempt, read through all of its files.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// How much is read at once.
const CHUNK: u64 = 64 << 10;

/// Files that a stream may have at one time.
const PARTS: usize = 3;

/// Reads one stream of an attempt to the end that it has now. The end of a long one stands in files beside it until
/// the attempt is over (see [`AttemptLog`](crate::process::AttemptLog)).
#[derive(Debug)]
pub(super) struct Tail {
    pub(super) base: PathBuf,
    /// Files still to be read, the next one last.
    parts: Vec<PathBuf>,
    /// What has been read, the present one last. They are told by their inodes, as `.tail` becomes `.tail.1`; open
    /// ones cannot be given to another file.
    open: VecDeque<File>,
}

// === impl Tail ===

/// The files of a stream in the order of their content.
pub(super) fn parts(base: &Path) -> [PathBuf; PARTS] {
    let beside = |suffix: &str| {
        let mut name = base.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    [base.to_owned(), beside(".tail.1"), beside(".tail")]
}

impl Tail {
    pub(super) fn new(base: &Path) -> Self {
        Tail { base: base.to_owned(), parts: parts(base).into_iter().rev().collect(), open: VecDeque::new() }
    }

    /// The next piece; empty at the present end.
    pub(super) fn read(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(file) = self.open.back_mut() {
                let mut piece = Vec::new();
                file.take(CHUNK).read_to_end(&mut piece)?;
                if !piece.is_empty() {
                    return Ok(piece);
                }
            }
            let Some(next) = self.next()? else { return Ok(Vec::new()) };
            // What was written after the end was found, and before the next file was made.
            let mut rest = Vec::new();
            if let Some(file) = self.open.back_mut() {
                file.read_to_end(&mut rest)?;
            }
            self.open.push_back(next);
            if self.open.len() > PARTS {
                self.open.pop_front();
            }
            if !rest.is_empty() {
                return Ok(rest);
            }
        }
    }

    /// The next file of the stream, if there is one.
    fn next(&mut self) -> io::Result<Option<File>> {
        if self.parts.is_empty() {
            // From here on only newer ones can come.
            let [_, older, newest] = parts(&self.base);
            self.parts = vec![newest, older];
        }
        while let Some(path) = self.parts.pop() {
            let file = match File::open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                file => file?,
            };
            if !self.knows(&file)? {
                return Ok(Some(file));
            }
        }
        Ok(None)
    }

    fn knows(&self, file: &File) -> io::Result<bool> {
        let inode = file.metadata()?.ino();
        for known in &self.open {
            if known.metadata()?.ino() == inode {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{AttemptLog, RawLog, Stream};

    /// Writes a flood piece by piece and reads after each: everything that was not dropped is read once, in order.
    #[test]
    fn a_flood_is_followed_through_its_parts() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("000001-1");
        let mut log = AttemptLog::new(&base, 4096);
        let mut tail = Tail::new(&dir.path().join("000001-1.stdout.log"));
        let mut read = Vec::new();
        let mut take = |tail: &mut Tail| loop {
            let piece = tail.read().unwrap();
            if piece.is_empty() {
                break;
            }
            read.extend(piece);
        };
        let lines: Vec<String> = (0..2000).map(|n| format!("line {n}\n")).collect();
        for piece in lines.chunks(20) {
            log.write(Stream::Stdout, piece.concat().as_bytes()).unwrap();
            take(&mut tail);
        }
        log.finish().unwrap();
        take(&mut tail);
        assert!(String::from_utf8(read).unwrap() == lines.concat());
    }
}
