//! The log of an attempt: its output as it came, capped, so that an agent that floods stdout cannot fill the disk.
//!
//! Up to the cap there is one file per stream, written as the bytes arrive (`tail -f` works). Beyond it the first
//! half stays and the end is kept in two segments beside it (`.tail`, `.tail.1`), the older of which is dropped when
//! the newer is full. [`AttemptLog::finish`] puts them together, with a line that says how much was cut out. After a
//! crash the segments are still there, readable by themselves.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::capture::char_floor;
use super::output::{RawLog, Stream};

/// Smallest useful cap.
const MIN_CAP: u64 = 64;

/// The log of one attempt; a file is made for a stream that has said something, or by [`AttemptLog::open`].
#[derive(Debug)]
pub struct AttemptLog {
    stdout: CappedFile,
    stderr: CappedFile,
}

/// One stream's file.
#[derive(Debug)]
struct CappedFile {
    path: PathBuf,
    /// Largest size of the finished file, in bytes, without the line about the cut.
    cap: u64,
    head: Option<Part>,
    /// The newest segment of the end; `None` while everything fits.
    tail: Option<Part>,
    /// Length of the segment before it, if there is one.
    older: u64,
    /// Bytes that were dropped.
    cut: u64,
}

/// A file and how long it is.
#[derive(Debug)]
struct Part {
    file: File,
    length: u64,
    /// The last byte was a line end.
    line_ended: bool,
}

// === impl AttemptLog ===

impl AttemptLog {
    /// `<base>.stdout.log` and `<base>.stderr.log`, each of at most `cap` bytes. The folder must be there.
    /// Files that are there are replaced.
    pub fn new(base: &Path, cap: u64) -> Self {
        AttemptLog {
            stdout: CappedFile::new(base, ".stdout.log", cap),
            stderr: CappedFile::new(base, ".stderr.log", cap),
        }
    }

    /// Makes the file for stdout now rather than with its first byte, which may come when time is dear.
    ///
    /// # Errors
    /// The system's; writing tries again.
    pub fn open(&mut self) -> io::Result<()> {
        self.stdout.head = Some(Part::create(&self.stdout.path)?);
        Ok(())
    }

    /// Puts head and end of what was too long together. Returns the bytes cut out of both.
    pub fn finish(self) -> io::Result<u64> {
        Ok(self.stdout.finish()? + self.stderr.finish()?)
    }
}

impl RawLog for AttemptLog {
    fn write(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        match stream {
            Stream::Stdout => self.stdout.write(bytes),
            Stream::Stderr => self.stderr.write(bytes),
        }
    }
}

// === impl CappedFile ===

impl CappedFile {
    fn new(base: &Path, suffix: &str, cap: u64) -> Self {
        let path = with_suffix(base, suffix);
        CappedFile { path, cap: cap.max(MIN_CAP), head: None, tail: None, older: 0, cut: 0 }
    }

    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        if self.tail.is_none() {
            let head = match &mut self.head {
                Some(head) => head,
                None => self.head.insert(Part::create(&self.path)?),
            };
            let written = head.fill(bytes, self.cap / 2)?;
            bytes = &bytes[written..];
        }
        while !bytes.is_empty() {
            let tail = match &mut self.tail {
                Some(tail) => tail,
                None => self.tail.insert(Part::create(&self.tail_path())?),
            };
            let written = tail.fill(bytes, self.cap / 4)?;
            bytes = &bytes[written..];
            if !bytes.is_empty() {
                self.drop_older()?;
            }
        }
        Ok(())
    }

    /// The newest segment is full: it becomes the older one, whose predecessor is gone with that.
    fn drop_older(&mut self) -> io::Result<()> {
        if let Some(full) = self.tail.take() {
            fs::rename(self.tail_path(), self.older_path())?;
            self.cut += self.older;
            self.older = full.length;
            self.tail = Some(Part::create(&self.tail_path())?);
        }
        Ok(())
    }

    fn finish(self) -> io::Result<u64> {
        let (Some(mut head), Some(_)) = (self.head.as_ref().map(|p| &p.file), self.tail.as_ref()) else {
            return Ok(0);
        };
        if self.cut > 0 {
            writeln!(head, "\n[longhaul: {} bytes cut out here]", self.cut)?;
        }
        for part in [self.older_path(), self.tail_path()] {
            match File::open(&part) {
                Ok(mut file) => io::copy(&mut file, &mut head)?,
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(e),
            };
            fs::remove_file(&part)?;
        }
        Ok(self.cut)
    }

    fn tail_path(&self) -> PathBuf {
        with_suffix(&self.path, ".tail")
    }

    fn older_path(&self) -> PathBuf {
        with_suffix(&self.path, ".tail.1")
    }
}

// === impl Part ===

impl Part {
    fn create(path: &Path) -> io::Result<Self> {
        Ok(Part { file: File::create(path)?, length: 0, line_ended: false })
    }

    /// Writes as much as fits into `size`, up to the end of a line or at least of a character. Returns how much.
    fn fill(&mut self, bytes: &[u8], size: u64) -> io::Result<usize> {
        let room = usize::try_from(size.saturating_sub(self.length)).unwrap_or(usize::MAX);
        let fits = if bytes.len() <= room {
            bytes.len()
        } else {
            let line_end = memchr::memrchr(b'\n', &bytes[..room]).map(|at| at + 1);
            // A line that does not fit goes to the next file as a whole, unless it began here.
            line_end.unwrap_or_else(|| if self.line_ended { 0 } else { char_floor(bytes, room) })
        };
        self.file.write_all(&bytes[..fits])?;
        self.length += fits as u64;
        self.line_ended = if fits > 0 { bytes[fits - 1] == b'\n' } else { self.line_ended };
        Ok(fits)
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(cap: u64, chunks: &[&[u8]]) -> (String, u64, usize) {
        let folder = tempfile::tempdir().unwrap();
        let mut log = AttemptLog::new(&folder.path().join("7"), cap);
        for chunk in chunks {
            log.write(Stream::Stdout, chunk).unwrap();
        }
        let cut = log.finish().unwrap();
        let text = fs::read_to_string(folder.path().join("7.stdout.log")).unwrap_or_default();
        (text, cut, fs::read_dir(folder.path()).unwrap().count())
    }

    #[test]
    fn what_fits_is_one_whole_file_and_silence_is_none() {
        assert_eq!(logged(100, &[b"one\n", b"two"]), ("one\ntwo".into(), 0, 1));
        assert_eq!(logged(100, &[]), (String::new(), 0, 0));
    }

    #[test]
    fn a_log_that_was_opened_ahead_is_empty_or_whole() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = AttemptLog::new(&folder.path().join("7"), 100);
        log.open().unwrap();
        let text = || fs::read_to_string(folder.path().join("7.stdout.log")).unwrap();
        assert_eq!(text(), "");
        log.write(Stream::Stdout, b"one\n").unwrap();
        log.write(Stream::Stdout, b"two").unwrap();
        log.finish().unwrap();
        assert_eq!(text(), "one\ntwo");
    }

    #[test]
    fn what_is_a_little_too_long_for_the_head_is_still_whole() {
        let line = [b'x'; 30];
        let (text, cut, files) = logged(128, &[&line, b"\n", &line, b"\n", &line]);
        assert_eq!((text.len(), cut, files), (92, 0, 1));
    }

    #[test]
    fn a_flood_keeps_head_and_end_and_says_what_it_cut() {
        let lines: Vec<String> = (0..100_000).map(|n| format!("line {n}\n")).collect();
        let chunks: Vec<&[u8]> = lines.iter().map(String::as_bytes).collect();
        let total: usize = chunks.iter().map(|c| c.len()).sum();
        for chunks in [chunks.clone(), vec![lines.concat().as_bytes()]] {
            let (text, cut, files) = logged(4096, &chunks);
            assert_eq!(files, 1);
            let mark = format!("\n[longhaul: {cut} bytes cut out here]\n");
            let (head, tail) = text.split_once(&mark).unwrap();
            assert_eq!(head.len() + tail.len() + usize::try_from(cut).unwrap(), total);
            assert!(text.len() <= 4096 + mark.len());
            assert!(head.starts_with("line 0\n") && head.ends_with('\n'));
            assert!(tail.starts_with("line ") && tail.ends_with("line 99999\n"));
        }
    }

    #[test]
    fn one_endless_line_is_cut_on_characters() {
        let (text, cut, _) = logged(64, &["é".repeat(5000).as_bytes()]);
        assert!(cut > 9000 && !text.contains('\u{fffd}'));
    }
}
