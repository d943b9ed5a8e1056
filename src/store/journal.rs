//! The journal on disk: every event as a line, appended after its commit, in files that rotate and are capped.
//!
//! The database is the truth, so lines are not synced and a failed write is no harm: what is missing is appended
//! again from the database, by `seq`. A new segment is begun under the name `events.jsonl.next`; then the old one is
//! moved to `logs/`, then the new one to its name. So a kill between any two steps loses and repeats no line.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::Offset;

use super::codec::{EventLine, Head, snapshot_line};
use super::db::Committed;
use super::error::StoreError;
use super::link::FileId;
use super::paths::{StorePaths, aside};
use super::reader::EventSource;
use super::segments::{self, Lines};
use crate::domain::state::State;

/// Events that are taken from the database at once while catching up.
const BATCH: usize = 500;

/// How often the turn is asked for while another writer of this process finishes its job, and the time between:
/// about 2 s, then it is tried at the next catch-up.
const TURN_TRIES: u32 = 400;

/// See [`TURN_TRIES`].
const TURN_PAUSE: Duration = Duration::from_millis(5);

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
    /// Locked for as long as this writes: the job of an actor that died may still be writing. None where the file
    /// system does not lock folders.
    turn: Option<File>,
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
        Journal { paths, limits, out: None, last: 0, at: None, behind: true, turn: None }
    }

    /// Events are missing on disk: call [`Journal::catch_up`].
    pub fn is_behind(&self) -> bool {
        self.behind
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
            self.behind = true;
            self.out = None;
        }
        written
    }

    /// Brings the files in line with the database, whose state is `state`: finishes a rotation that was cut, completes
    /// or cuts a torn last line, and appends what is missing from `source`. How many events were appended.
    pub fn catch_up(
        &mut self,
        state: &Arc<State>,
        source: &mut dyn EventSource,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        self.behind = true;
        self.out = None;
        let appended = self.try_catch_up(state, source, now).map_err(|failure| match failure {
            Failure::Io(error) => StoreError::io(&self.paths.events, &error),
            Failure::Source(error) => error,
        })?;
        self.behind = false;
        Ok(appended)
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

    fn try_catch_up(
        &mut self,
        state: &Arc<State>,
        source: &mut dyn EventSource,
        now: Timestamp,
    ) -> Result<u64, Failure> {
        fs::create_dir_all(&self.paths.dir)?;
        if self.turn.is_none() {
            self.turn = take_turn(&self.paths)?;
        }
        self.settle(now)?;
        self.last = segments::last_seq(&self.paths)?;
        let mut missing = source.events_from(self.last + 1, BATCH)?;
        let gap = missing.first().is_some_and(|line| line.seq != self.last + 1)
            || (missing.is_empty() && self.last < state.seq);
        let mut appended = 0;
        let current = self.paths.events.try_exists()?;
        let into = match segments::finished(&self.paths)?.pop() {
            _ if gap => None,
            _ if current => Some(self.paths.events.clone()),
            finished => finished.map(|segment| segment.path),
        };
        if let Some(path) = into {
            let (mut file, mut torn) = repair(&path, missing.first())?;
            while !missing.is_empty() {
                let mut lines = Vec::new();
                for line in &missing {
                    lines.extend_from_slice(line.text.as_bytes());
                    lines.push(b'\n');
                    self.last = line.seq;
                }
                file.write_all(lines.get(torn..).unwrap_or_default())?;
                torn = 0;
                appended += missing.len() as u64;
                missing = source.events_from(self.last + 1, BATCH)?;
            }
            if current && let Some(began) = snapshot_time(&path)? {
                let meta = file.metadata()?;
                self.out = Some(Out { file, id: FileId::from(&meta), len: meta.len(), day: day(began) });
            }
        }
        if self.out.is_none() {
            // The events that the journal missed follow the snapshot, though they are older; with all of them there
            // the snapshot is that of the beginning.
            let mut rest = missing;
            while let Some(last) = rest.last().map(|line| line.seq) {
                let more = source.events_from(last + 1, BATCH)?;
                if more.is_empty() {
                    break;
                }
                rest.extend(more);
            }
            let whole = self.last == 0 && rest.first().is_some_and(|line| line.seq == 1);
            let nothing = State::default();
            self.begin(if whole { &nothing } else { state }, &rest, now)?;
            appended += rest.len() as u64;
        }
        self.last = self.last.max(state.seq);
        self.at = Some(Arc::clone(state)).filter(|state| state.seq == self.last);
        Ok(appended)
    }

    /// Finishes or undoes a rotation that was cut, and moves a current segment without any readable line aside.
    fn settle(&mut self, now: Timestamp) -> io::Result<()> {
        let (events, next) = (&self.paths.events, self.paths.next_events());
        if events.try_exists()? {
            remove(&next)?;
            if fs::metadata(events)?.len() > 0 && segments::last_seq_of(events)?.is_none() {
                fs::rename(events, aside(events, "corrupt", now))?;
            }
        } else if next.try_exists()? {
            match snapshot_time(&next)? {
                Some(_) => fs::rename(&next, events)?,
                None => remove(&next)?,
            }
        }
        Ok(())
    }
}

/// What catching up failed of.
enum Failure {
    Io(io::Error),
    Source(StoreError),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Io(error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Failure::Source(error)
    }
}

/// Waits until no other writer is at work, and keeps it so until the lock is dropped.
fn take_turn(paths: &StorePaths) -> io::Result<Option<File>> {
    let folder = File::open(&paths.dir)?;
    for _ in 0..TURN_TRIES {
        match folder.try_lock() {
            Ok(()) => return Ok(Some(folder)),
            Err(TryLockError::WouldBlock) => std::thread::sleep(TURN_PAUSE),
            Err(TryLockError::Error(_)) => return Ok(None),
        }
    }
    Err(io::Error::new(io::ErrorKind::WouldBlock, "another writer of the journal is still at work"))
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

/// When the segment at `path` began, if it begins with a whole snapshot.
fn snapshot_time(path: &Path) -> io::Result<Option<Timestamp>> {
    let mut lines = Lines::open(path)?;
    let line = lines.next()?.filter(|line| line.ended);
    Ok(line.and_then(|line| Head::parse(line.bytes).filter(Head::is_snapshot).map(|head| head.time)))
}

/// Opens a segment for appending, so that it ends with a whole line, or with the beginning of `next`: then as many
/// bytes of it are there. Any other torn line is cut.
fn repair(path: &Path, next: Option<&EventLine>) -> io::Result<(File, usize)> {
    let mut file = OpenOptions::new().read(true).append(true).open(path)?;
    let len = file.metadata()?.len();
    let torn = torn_line(&mut file, len)?;
    if torn.is_empty() {
        return Ok((file, 0));
    }
    if Head::parse(&torn).is_some() {
        file.write_all(b"\n")?;
        return Ok((file, 0));
    }
    if next.is_some_and(|next| next.text.as_bytes().starts_with(&torn)) {
        return Ok((file, torn.len()));
    }
    file.set_len(len - torn.len() as u64)?;
    Ok((file, 0))
}

/// What comes after the last line end.
fn torn_line(file: &mut File, len: u64) -> io::Result<Vec<u8>> {
    let mut want = 4096;
    loop {
        let start = len.saturating_sub(want);
        file.seek(SeekFrom::Start(start))?;
        let mut tail = Vec::new();
        file.take(len - start).read_to_end(&mut tail)?;
        match tail.iter().rposition(|&byte| byte == b'\n') {
            Some(end) => return Ok(tail.split_off(end + 1)),
            None if start == 0 => return Ok(tail),
            None => want *= 4,
        }
    }
}

#[cfg(test)]
mod tests;
