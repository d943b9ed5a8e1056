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
            found.push((place, Segment { path: entry.path(), first: place.0, bytes, id }));
        }
    }
    found.sort_by_key(|(place, _)| *place);
    Ok(found.into_iter().map(|(_, segment)| segment).collect())
}

/// The segment being written; while it is being exchanged, the one that will take its place.
pub(crate) fn current(paths: &StorePaths) -> io::Result<Option<Segment>> {
    for path in [paths.events.clone(), paths.next_events()] {
        match fs::metadata(&path) {
            Ok(meta) => {
                let first = first_seq(&path)?.unwrap_or(u64::MAX);
                return Ok(Some(Segment { path, first, bytes: meta.len(), id: FileId::from(&meta) }));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// All segments, oldest first.
pub(crate) fn all(paths: &StorePaths) -> io::Result<Vec<Segment>> {
    let mut segments = finished(paths)?;
    segments.extend(current(paths)?);
    Ok(segments)
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

/// First `seq` and number of a finished segment's name.
fn place(name: &str) -> Option<(u64, u32)> {
    let rest = name.strip_prefix("events-")?.strip_suffix(".jsonl")?;
    let (_, place) = rest.rsplit_once('-')?;
    match place.split_once('.') {
        Some((seq, n)) => Some((seq.parse().ok()?, n.parse().ok()?)),
        None => Some((place.parse().ok()?, 1)),
    }
}

/// `seq` of the first event in a file, by its first readable line.
fn first_seq(path: &Path) -> io::Result<Option<u64>> {
    let mut lines = Lines::open(path)?;
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
    let mut segments = all(paths)?;
    let start = segments.iter().rposition(|segment| segment.first <= seq.saturating_add(1)).unwrap_or(0);
    let mut found: Vec<EventLine> = Vec::new();
    let mut last = seq;
    for segment in segments.drain(..).skip(start) {
        let mut lines = match Lines::open(&segment.path) {
            Ok(lines) => lines,
            // It was rotated away or pruned meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        while let Some(line) = lines.next()? {
            if found.len() >= limit {
                return Ok(found);
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
    Ok(found)
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
        Ok(Lines { input: BufReader::with_capacity(32 << 10, File::open(path)?), line: Vec::new() })
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
