//! Following the journal as it grows, across rotation.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use super::codec::EventLine;
use super::link::FileId;
use super::paths::StorePaths;
use super::segments::{self, Segment};

/// How much is read at once.
const CHUNK: u64 = 256 << 10;

/// How often a listing that was overtaken by a rotation is made again before the caller's next poll.
const TRIES: u32 = 8;

/// Yields the events that are appended to the journal, each once and in order, without snapshots. It never waits:
/// the caller polls, when it was told of a change or from time to time.
#[derive(Debug)]
pub struct Follower {
    paths: StorePaths,
    /// The last event that was yielded.
    last: u64,
    open: Option<Open>,
}

/// The segment that is being read.
#[derive(Debug)]
struct Open {
    file: File,
    id: FileId,
    /// Up to where it was read.
    offset: u64,
    /// The beginning of a line whose end is not there yet.
    part: Vec<u8>,
    /// It was read from its start again, because a line did not go on as it had begun.
    again: bool,
}

// === impl Follower ===

impl Follower {
    /// Follows from the event after place `after`.
    pub fn new(paths: StorePaths, after: u64) -> Self {
        Follower { paths, last: after, open: None }
    }

    /// Follows from what is there now.
    pub fn from_now(paths: StorePaths) -> io::Result<Self> {
        let last = segments::last_seq(&paths)?;
        Ok(Follower::new(paths, last))
    }

    /// The last event that was yielded.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// What is new, at most about 256 KiB at a time; empty when nothing is.
    pub fn poll(&mut self) -> io::Result<Vec<EventLine>> {
        loop {
            let Some(open) = &mut self.open else {
                match self.first()? {
                    Some(open) => self.open = Some(open),
                    None => return Ok(Vec::new()),
                }
                continue;
            };
            let mut read = open.read()?;
            let mut next = None;
            if read.is_none() {
                let id = open.id;
                if FileId::of(&self.paths.events)? == Some(id) {
                    return Ok(Vec::new());
                }
                next = self.after(id)?;
                let (Some(open), true) = (&mut self.open, next.is_some()) else { return Ok(Vec::new()) };
                // Only now is it known that nothing is added any more; something may have been since the read above.
                read = open.read()?;
            }
            match read {
                Some(lines) => {
                    let fresh = self.fresh(lines);
                    if !fresh.is_empty() {
                        return Ok(fresh);
                    }
                }
                None => self.open = next,
            }
        }
    }

    /// The segment that has the event after the last one, else the oldest.
    fn first(&self) -> io::Result<Option<Open>> {
        self.open(|segments| {
            let wanted = self.last.saturating_add(1);
            segments.iter().rposition(|segment| segment.first <= wanted).unwrap_or(0)
        })
    }

    /// The segment after the one with `id`; the oldest that may hold something new when that was deleted.
    fn after(&self, id: FileId) -> io::Result<Option<Open>> {
        self.open(|segments| match segments.iter().position(|segment| segment.id == id) {
            Some(at) => at + 1,
            None => {
                segments.iter().position(|segment| segment.first > self.last).unwrap_or(segments.len() - 1)
            }
        })
    }

    fn open(&self, choose: impl Fn(&[Segment]) -> usize) -> io::Result<Option<Open>> {
        for _ in 0..TRIES {
            let Some(segments) = segments::try_all(&self.paths)?.filter(|all| !all.is_empty()) else { break };
            let Some(segment) = segments.get(choose(&segments)) else { break };
            match File::open(&segment.path) {
                // It may have been rotated between the listing and the opening.
                Ok(file) if FileId::from(&file.metadata()?) == segment.id => {
                    return Ok(Some(Open {
                        file,
                        id: segment.id,
                        offset: 0,
                        part: Vec::new(),
                        again: false,
                    }));
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Those that were not yielded yet.
    fn fresh(&mut self, mut lines: Vec<EventLine>) -> Vec<EventLine> {
        lines.retain(|line| {
            let fresh = !line.snapshot && line.seq > self.last;
            if fresh {
                self.last = line.seq;
            }
            fresh
        });
        lines
    }
}

// === impl Open ===

impl Open {
    /// The whole lines of the next piece; `None` at the end of the file. Damaged lines are left out.
    fn read(&mut self) -> io::Result<Option<Vec<EventLine>>> {
        if self.file.metadata()?.len() < self.offset {
            self.rewind();
        }
        self.file.seek(SeekFrom::Start(self.offset))?;
        let continued = !self.part.is_empty();
        let read = (&mut self.file).take(CHUNK).read_to_end(&mut self.part)?;
        if read == 0 {
            return Ok(None);
        }
        self.offset += read as u64;
        let whole = self.part.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let rest = self.part.split_off(whole);
        let whole = std::mem::replace(&mut self.part, rest);
        let parse = |line: &[u8]| {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            EventLine::parse(String::from_utf8(line.to_vec()).ok()?)
        };
        let mut lines = whole.split_inclusive(|&byte| byte == b'\n').map(parse).peekable();
        if continued && !self.again && lines.peek().is_some_and(Option::is_none) {
            self.again = true;
            self.rewind();
            return Ok(Some(Vec::new()));
        }
        Ok(Some(lines.flatten().collect()))
    }

    /// A torn line was cut off, or somebody emptied the file. Lines that were yielded are told by their place.
    fn rewind(&mut self) {
        self.offset = 0;
        self.part.clear();
    }
}
