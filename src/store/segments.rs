//! The journal on disk as a row of files, oldest first, and the lines in them.
//!
//! A finished segment is `logs/events-<UTC day it began>-<first seq, 12 digits>.jsonl`; the one being written is
//! `events.jsonl`. Every segment starts with a `snapshot` line, which has the `seq` of the last event before it.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::tz::Offset;

use super::codec::{EventLine, Head};
use super::link::FileId;
use super::paths::StorePaths;
use crate::domain::ids::EventId;

/// A line longer than this is damage; the rest of it is skipped, not kept in memory.
const MAX_LINE: u64 = 32 << 20;

/// How often a listing is made again when a rotation overtook it.
const TRIES: u32 = 8;

/// How much of a file's end is looked at first for its last line; four times as much each time it is not there.
const TAIL: u64 = 16 << 10;

/// One file of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// `seq` of its first event.
    pub(crate) first: u64,
    /// Its size.
    pub(crate) bytes: u64,
    /// Which file it is.
    pub(crate) id: FileId,
}

/// Reads lines of any bytes, bounded.
pub(crate) struct Lines {
    input: BufReader<File>,
    line: Vec<u8>,
}

/// One line of a file.
pub(crate) struct RawLine<'a> {
    /// Its bytes without the line end.
    pub(crate) bytes: &'a [u8],
    /// It has its line end.
    pub(crate) ended: bool,
}

/// The finished segments, oldest first.
pub(crate) fn finished(paths: &StorePaths) -> io::Result<Vec<Segment>> {
    let entries = match fs::read_dir(&paths.logs) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        if let Some(place) = entry.file_name().to_str().and_then(place)
            && let Ok(meta) = entry.metadata()
            && meta.is_file()
        {
            let (id, bytes) = (FileId::from(&meta), meta.len());
            let first = place.0;
            found.push((place, Segment { path: entry.path(), first, bytes, id }));
        }
    }
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(found.into_iter().map(|(_, segment)| segment).collect())
}

/// The segment being written; while it is being exchanged, the one that will take its place.
pub(crate) fn current(paths: &StorePaths) -> io::Result<Option<Segment>> {
    let events = || segment(&paths.events);
    match events()? {
        Some(segment) => Ok(Some(segment)),
        None => {
            let next = segment(&paths.next_events())?;
            // The exchange may be over by now, and that one already the next but one.
            Ok(events()?.or(next))
        }
    }
}

fn segment(path: &Path) -> io::Result<Option<Segment>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let meta = file.metadata()?;
    let first = first_seq(file)?.unwrap_or(u64::MAX);
    Ok(Some(Segment { path: path.to_owned(), first, bytes: meta.len(), id: FileId::from(&meta) }))
}

/// All segments, oldest first; `None` when rotations overtook every try to list them.
pub(crate) fn try_all(paths: &StorePaths) -> io::Result<Option<Vec<Segment>>> {
    for _ in 0..TRIES {
        let before = current(paths)?;
        let mut segments = finished(paths)?;
        // A rotation in between would hide the segment that it finished.
        if current(paths)?.map(|segment| segment.id) == before.as_ref().map(|segment| segment.id) {
            segments.extend(before);
            return Ok(Some(segments));
        }
    }
    Ok(None)
}

/// All segments, oldest first.
pub(crate) fn all(paths: &StorePaths) -> io::Result<Vec<Segment>> {
    try_all(paths)?
        .ok_or_else(|| io::Error::new(io::ErrorKind::WouldBlock, "it is rotated faster than it is read"))
}

/// A free name for a finished segment that began at `day` with event `first`.
pub(crate) fn finished_path(paths: &StorePaths, day: Timestamp, first: u64) -> PathBuf {
    let day = Offset::UTC.to_datetime(day).date();
    let mut path = paths.logs.join(format!("events-{day}-{first:012}.jsonl"));
    let mut n = 1;
    while path.symlink_metadata().is_ok() {
        n += 1;
        path = paths.logs.join(format!("events-{day}-{first:012}.{n}.jsonl"));
    }
    path
}

/// What orders the finished segments, by name: first `seq`; then, when a segment held no event, the day; then a number.
fn place(name: &str) -> Option<(u64, String, u32)> {
    let rest = name.strip_prefix("events-")?.strip_suffix(".jsonl")?;
    let (day, place) = rest.rsplit_once('-')?;
    let (seq, n) = place.split_once('.').unwrap_or((place, "1"));
    Some((seq.parse().ok()?, day.to_owned(), n.parse().ok()?))
}

/// `seq` of the first event in a file, by its first readable line.
fn first_seq(file: File) -> io::Result<Option<u64>> {
    let mut lines = Lines::new(file);
    while let Some(line) = lines.next()? {
        if let Some(head) = Head::parse(line.bytes) {
            return Ok(Some(if head.is_snapshot() { head.seq + 1 } else { head.seq }));
        }
    }
    Ok(None)
}

/// `seq` of the last event that the journal has, in whole lines; 0 when it has none.
pub(crate) fn last_seq(paths: &StorePaths) -> io::Result<u64> {
    if let Some(segment) = current(paths)?
        && let Some(seq) = last_seq_of(&segment.path)?
    {
        return Ok(seq);
    }
    for segment in finished(paths)?.iter().rev() {
        if let Some(seq) = last_seq_of(&segment.path)? {
            return Ok(seq);
        }
    }
    Ok(0)
}

/// `seq` of the last event in a file; a file with nothing but a snapshot has that of the snapshot.
pub(crate) fn last_seq_of(path: &Path) -> io::Result<Option<u64>> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut want = TAIL;
    loop {
        let start = size.saturating_sub(want);
        file.seek(SeekFrom::Start(start))?;
        let mut tail = Vec::new();
        (&mut file).take(want).read_to_end(&mut tail)?;
        let mut lines = tail.split(|&byte| byte == b'\n');
        if start > 0 {
            // The first piece may be the end of a line.
            lines.next();
        }
        let (mut event, mut snapshot) = (None, None);
        for head in lines.filter_map(Head::parse) {
            let last = if head.is_snapshot() { &mut snapshot } else { &mut event };
            *last = (*last).max(Some(head.seq));
        }
        match event {
            Some(seq) => return Ok(Some(seq)),
            None if start == 0 => return Ok(snapshot),
            None => want = want.saturating_mul(4),
        }
    }
}

/// The events after `seq` as far as the journal has them, at most `limit`, in order, without snapshots.
pub fn read_after(paths: &StorePaths, seq: u64, limit: usize) -> io::Result<Vec<EventLine>> {
    let mut found = Vec::new();
    let mut tries = 0;
    while !read_once(paths, seq, limit, &mut found)? && tries < TRIES {
        tries += 1;
    }
    Ok(found)
}

/// Adds what comes after `seq` and after what is `found` already. `false`: a rotation overtook it, so go on.
fn read_once(paths: &StorePaths, seq: u64, limit: usize, found: &mut Vec<EventLine>) -> io::Result<bool> {
    let mut last = found.last().map_or(seq, |line| line.seq);
    let Some(segments) = try_all(paths)? else { return Ok(false) };
    let start = segments.iter().rposition(|segment| segment.first <= last.saturating_add(1)).unwrap_or(0);
    for segment in &segments[start.min(segments.len())..] {
        let file = match File::open(&segment.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        if FileId::from(&file.metadata()?) != segment.id {
            return Ok(false);
        }
        let mut lines = Lines::new(file);
        while let Some(line) = lines.next()? {
            if found.len() >= limit {
                return Ok(true);
            }
            if let Some(line) = line.event_line()
                && !line.snapshot
                && line.seq > last
            {
                last = line.seq;
                found.push(line);
            }
        }
    }
    Ok(true)
}

/// `seq` of the event with `id`, as far as the journal has it; the newest segment is looked at first.
pub fn find(paths: &StorePaths, id: EventId) -> io::Result<Option<u64>> {
    let wanted = id.to_string();
    for segment in all(paths)?.iter().rev() {
        let mut lines = match Lines::open(&segment.path) {
            Ok(lines) => lines,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        while let Some(line) = lines.next()? {
            let near = line.bytes.get(..64).unwrap_or(line.bytes);
            if near.windows(wanted.len()).any(|window| window == wanted.as_bytes())
                && let Some(head) = Head::parse(line.bytes)
                && head.id == id
            {
                return Ok(Some(head.seq));
            }
        }
    }
    Ok(None)
}

// === impl Lines, RawLine ===

impl Lines {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Lines::new(File::open(path)?))
    }

    fn new(file: File) -> Self {
        Lines { input: BufReader::with_capacity(32 << 10, file), line: Vec::new() }
    }

    /// The next line; what is longer than [`MAX_LINE`] comes cut, which no reader takes for an event.
    pub(crate) fn next(&mut self) -> io::Result<Option<RawLine<'_>>> {
        self.line.clear();
        let read = (&mut self.input).take(MAX_LINE).read_until(b'\n', &mut self.line)?;
        if read == 0 {
            return Ok(None);
        }
        let ended = self.line.last() == Some(&b'\n');
        if ended {
            self.line.pop();
        } else if read as u64 == MAX_LINE {
            self.input.skip_until(b'\n')?;
        }
        Ok(Some(RawLine { bytes: &self.line, ended }))
    }
}

impl RawLine<'_> {
    /// The line of an event; `None` when it is damaged.
    pub(crate) fn event_line(&self) -> Option<EventLine> {
        EventLine::parse(String::from_utf8(self.bytes.to_vec()).ok()?)
    }
}
