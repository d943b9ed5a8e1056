//! The journal on disk: every event as a line, appended after its commit, in files that rotate and are capped.
//!
//! The database is the truth, so lines are not synced and a failed write is no harm: what is missing is appended
//! again from the database, by `seq`. A new segment is begun under the name `events.jsonl.next`; then the old one is
//! moved to `logs/`, then the new one to its name. So a kill between any two steps loses and repeats no line.

mod catch_up;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::Offset;

use super::codec::{EventLine, Head, snapshot_line};
use super::db::Committed;
use super::link::FileId;
use super::paths::{StorePaths, aside};
use super::segments::{self, Lines};
use crate::domain::state::State;

/// How large the journal may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalLimits {
    /// Bytes after which a segment is finished.
    pub max_file: u64,
    /// Bytes of all segments together; the oldest are deleted. The current one and one before it always stay.
    pub max_total: u64,
}

/// The writer of the journal's files.
#[derive(Debug)]
pub struct Journal {
    paths: StorePaths,
    limits: JournalLimits,
    /// The segment being written; none before the first [`Journal::catch_up`] and after a failure.
    out: Option<Out>,
    /// The last event on disk.
    last: u64,
    /// The state as of `last`, for the next segment's snapshot.
    at: Option<Arc<State>>,
    /// Events are missing on disk, or may be.
    behind: bool,
}

/// The open segment.
#[derive(Debug)]
struct Out {
    file: File,
    id: FileId,
    len: u64,
    /// The UTC day on which it began.
    day: Date,
}

// === impl JournalLimits ===

impl Default for JournalLimits {
    fn default() -> Self {
        JournalLimits { max_file: 64 << 20, max_total: 1 << 30 }
    }
}

// === impl Journal ===

impl Journal {
    /// A journal that has yet to [catch up](Journal::catch_up).
    pub fn new(paths: StorePaths, limits: JournalLimits) -> Self {
        Journal { paths, limits, out: None, last: 0, at: None, behind: true }
    }

    /// Events are missing on disk: call [`Journal::catch_up`].
    pub fn is_behind(&self) -> bool {
        self.behind
    }

    /// Whatever has become of a write that was cut: the next [`Journal::catch_up`] looks at the files.
    pub fn distrust(&mut self) {
        self.behind = true;
        self.out = None;
    }

    /// The last event on disk.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Appends the lines of a commit in one write, after rotating where that is due. Lines that are there already are
    /// left out; when some before them are missing nothing is written and the journal is behind.
    ///
    /// Puts the file back first if it was deleted: `Ok(Some(name))` then.
    pub fn append(&mut self, committed: &Committed) -> io::Result<Option<&'static str>> {
        let written = self.try_append(committed);
        if written.is_err() {
            self.distrust();
        }
        written
    }

    fn try_append(&mut self, committed: &Committed) -> io::Result<Option<&'static str>> {
        let (Some(first), false) = (committed.events.first(), self.behind) else { return Ok(None) };
        if first.seq > self.last + 1 {
            self.behind = true;
            return Ok(None);
        }
        let known = usize::try_from(self.last + 1 - first.seq).unwrap_or(usize::MAX);
        let Some(next) = committed.events.get(known) else { return Ok(None) };
        let lines = after_lines(&committed.lines, known);
        let restored = self.ensure_linked(next.time)?;
        if let Some(state) = self.at.clone()
            && self.is_due(next.time, lines.len() as u64)
        {
            self.begin(&state, &[], next.time)?;
        }
        self.write(lines.as_bytes())?;
        if let Some(event) = committed.events.last() {
            self.last = event.seq;
        }
        self.at = Some(Arc::clone(&committed.state)).filter(|state| state.seq == self.last);
        Ok(restored)
    }

    /// The next line belongs into a new segment.
    fn is_due(&self, time: Timestamp, bytes: u64) -> bool {
        self.out
            .as_ref()
            .is_some_and(|out| day(time) > out.day || out.len.saturating_add(bytes) > self.limits.max_file)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(out) = &mut self.out else { return Err(io::Error::other("the journal is not open")) };
        if let Err(error) = out.file.write_all(bytes) {
            // Half a line helps nobody; if this fails too, the next catch-up cuts it.
            let _ = out.file.set_len(out.len);
            return Err(error);
        }
        out.len += bytes.len() as u64;
        Ok(())
    }

    /// Checks that the file is still to be found under its name (one `stat`), and writes it anew from the open one if
    /// it is not.
    fn ensure_linked(&mut self, now: Timestamp) -> io::Result<Option<&'static str>> {
        let Some(out) = &mut self.out else { return Ok(None) };
        let present = FileId::of(&self.paths.events)?;
        if present == Some(out.id) {
            return Ok(None);
        }
        fs::create_dir_all(&self.paths.dir)?;
        let next = self.paths.next_events();
        let mut copy = create(&self.paths)?;
        out.file.seek(SeekFrom::Start(0))?;
        io::copy(&mut (&mut out.file).take(out.len), &mut copy)?;
        if present.is_some() {
            fs::rename(&self.paths.events, aside(&self.paths.events, "replaced", now))?;
        }
        fs::rename(next, &self.paths.events)?;
        out.id = FileId::from(&copy.metadata()?);
        out.file = copy;
        Ok(Some("events.jsonl"))
    }

    /// Begins a segment with a snapshot of `state`, then `events`; the one before it is finished.
    fn begin(&mut self, state: &State, events: &[EventLine], time: Timestamp) -> io::Result<()> {
        self.out = None;
        let mut content = Vec::new();
        snapshot_line(state, time, &mut content)?;
        for event in events {
            content.extend_from_slice(event.text.as_bytes());
            content.push(b'\n');
        }
        let mut file = create(&self.paths)?;
        file.write_all(&content)?;
        if let Some(old) = segments::current(&self.paths)?.filter(|old| old.path == self.paths.events) {
            fs::create_dir_all(&self.paths.logs)?;
            let began = first_time(&old.path)?.unwrap_or(time);
            let first = if old.first == u64::MAX { state.seq } else { old.first };
            fs::rename(&old.path, segments::finished_path(&self.paths, began, first))?;
        }
        fs::rename(self.paths.next_events(), &self.paths.events)?;
        let id = FileId::from(&file.metadata()?);
        self.out = Some(Out { file, id, len: content.len() as u64, day: day(time) });
        self.prune()
    }

    /// Deletes the oldest segments beyond the limit.
    fn prune(&self) -> io::Result<()> {
        let finished = segments::finished(&self.paths)?;
        let mut total = self.out.as_ref().map_or(0, |out| out.len);
        total += finished.iter().map(|segment| segment.bytes).sum::<u64>();
        for segment in finished.iter().take(finished.len().saturating_sub(1)) {
            if total <= self.limits.max_total {
                break;
            }
            fs::remove_file(&segment.path)?;
            total -= segment.bytes;
        }
        Ok(())
    }
}

fn day(time: Timestamp) -> Date {
    Offset::UTC.to_datetime(time).date()
}

/// `lines` without its first `skip` lines.
fn after_lines(lines: &str, skip: usize) -> &str {
    let at = lines.split_inclusive('\n').take(skip).map(str::len).sum();
    lines.get(at..).unwrap_or("")
}

/// The file that will be the next segment, empty.
fn create(paths: &StorePaths) -> io::Result<File> {
    remove(&paths.next_events())?;
    OpenOptions::new().read(true).append(true).create_new(true).open(paths.next_events())
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// When the segment at `path` began, by its first readable line.
fn first_time(path: &Path) -> io::Result<Option<Timestamp>> {
    let mut lines = Lines::open(path)?;
    while let Some(line) = lines.next()? {
        if let Some(head) = Head::parse(line.bytes) {
            return Ok(Some(head.time));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
