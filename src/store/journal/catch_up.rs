//! Bringing the journal's files in line with the database: at start, and after a write that failed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;

use super::{Journal, Out, day, remove};
use crate::domain::state::State;
use crate::store::codec::{EventLine, Head};
use crate::store::error::StoreError;
use crate::store::link::FileId;
use crate::store::paths::aside;
use crate::store::reader::EventSource;
use crate::store::segments::{self, Lines};

/// Events that are taken from the database at once while catching up.
const BATCH: usize = 500;

impl Journal {
    /// Brings the files in line with the database, whose state is `state`: finishes a rotation that was cut, completes
    /// or cuts a torn last line, and appends what is missing from `source`. How many events were appended.
    pub fn catch_up(
        &mut self,
        state: &Arc<State>,
        source: &mut dyn EventSource,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        self.distrust();
        let appended = self.try_catch_up(state, source, now).map_err(|failure| match failure {
            Failure::Io(error) => StoreError::io(&self.paths.events, &error),
            Failure::Source(error) => error,
        })?;
        self.behind = false;
        Ok(appended)
    }

    fn try_catch_up(
        &mut self,
        state: &Arc<State>,
        source: &mut dyn EventSource,
        now: Timestamp,
    ) -> Result<u64, Failure> {
        fs::create_dir_all(&self.paths.dir)?;
        self.settle(now)?;
        self.last = segments::last_seq(&self.paths)?;
        // What is committed later than `state` shows as a gap at the next append. At most starts nothing is missing,
        // and a source need not even be opened.
        let mut missing = Vec::new();
        if self.last < state.seq {
            missing = source.events_from(self.last + 1, BATCH)?;
        }
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
            if fs::metadata(events)?.len() == 0 {
                remove(events)?;
            } else if segments::last_seq_of(events)?.is_none() {
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
