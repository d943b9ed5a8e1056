//! Opening the state database: what is damaged is never taken for a clean start.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use rusqlite::Connection;

use super::Durability;
use super::check::{self, Loaded};
use super::connect::{self, Access};
use super::create;
use super::db::Db;
use super::error::StoreError;
use super::link::Links;
use super::lock;
use super::paths::{StorePaths, aside, beside};
use super::rebuild::{self, Rebuilt, Salvage, salvage};
use super::schema::{self, Version};
use super::segments;
use crate::domain::event::Body;
use crate::domain::state::State;

/// How to open.
#[derive(Debug, Clone, Copy)]
pub struct OpenOptions {
    /// What a commit outlives.
    pub durability: Durability,
    /// When the state cannot be rebuilt, start with an empty one instead of failing. The bad files are kept.
    pub fresh: bool,
    /// Wall time, for the names of files that are kept aside.
    pub now: Timestamp,
}

/// An open database.
#[derive(Debug)]
pub struct Opened {
    /// The writer.
    pub db: Db,
    /// The state in it.
    pub state: Arc<State>,
    /// What had to be done to get there. Commit [`Recovery::events`] before anything else.
    pub recovery: Option<Recovery>,
}

/// How a damaged or missing database was replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// Where the bad file is now; none when it was missing.
    pub kept_as: Option<PathBuf>,
    /// What was wrong.
    pub why: String,
    /// From what the state was rebuilt.
    pub from: String,
    /// The last event in it.
    pub last_seq: u64,
    /// How far it may lag behind what had happened.
    pub lag: String,
}

/// What a look at a project found.
#[derive(Debug, Clone)]
pub struct Inspection {
    /// The state; rebuilt in memory when the database is damaged. Empty where nothing was ever run.
    pub state: Arc<State>,
    /// What is wrong with the database, if anything, in words.
    pub problem: Option<String>,
    /// From what `state` was rebuilt, where it was.
    pub rebuilt_from: Option<String>,
}

// === impl Recovery ===

impl Recovery {
    /// The events that tell of it: `state_corrupt` and `state_recovered`.
    pub fn events(&self) -> [Body; 2] {
        let corrupt = Body::StateCorrupt {
            why: self.why.clone(),
            kept_as: self.kept_as.as_ref().map(|path| path.display().to_string()),
        };
        let recovered =
            Body::StateRecovered { from: self.from.clone(), last_seq: self.last_seq, lag: self.lag.clone() };
        [corrupt, recovered]
    }
}

// === impl Db ===

impl Db {
    /// Opens the database of a session, which must hold the project's lock; creates it where nothing was ever run.
    ///
    /// One that is damaged, or that misses events which the journal has, is kept aside as
    /// `state.db.corrupt-<UTC time>` and replaced by what can be rebuilt.
    pub fn open(paths: &StorePaths, options: OpenOptions) -> Result<Opened, StoreError> {
        fs::create_dir_all(&paths.dir).map_err(|error| StoreError::io(&paths.dir, &error))?;
        let journal = segments::last_seq(paths).map_err(|error| StoreError::io(&paths.events, &error))?;
        let size = size_of(&paths.state_db)?;
        let verdict = match size {
            None if journal == 0 => {
                let scratch = create::database(paths, &State::default(), &[])?;
                keep_aside(paths, options.now)?;
                create::install(scratch, paths, options.durability)?;
                open_sound(paths, options.durability, journal)
            }
            None => return recover(paths, options, None, journal),
            Some(0) => Err(corrupt(paths, "it is empty")),
            Some(_) => open_sound(paths, options.durability, journal),
        };
        match verdict {
            Ok((conn, loaded)) => Ok(opened(paths, options.durability, conn, loaded, None)?),
            Err(StoreError::Corrupt { why, .. }) => recover(paths, options, Some(why), journal),
            Err(error) => Err(error),
        }
    }
}

/// Looks at the state of a project. Changes nothing and creates nothing, beside a running session or without one.
pub fn inspect(paths: &StorePaths) -> Result<Inspection, StoreError> {
    // The journal first: a session that commits meanwhile must not look as if it had lost something.
    let journal = segments::last_seq(paths).map_err(|error| StoreError::io(&paths.events, &error))?;
    let verdict = match size_of(&paths.state_db)? {
        None if journal == 0 => return Ok(Inspection::sound(State::default())),
        None => Err(corrupt(paths, "it is missing, and the journal is not")),
        Some(0) => Err(corrupt(paths, "it is empty")),
        Some(_) => look(paths, journal),
    };
    match verdict {
        Ok(loaded) => Ok(Inspection::sound(loaded.state)),
        Err(StoreError::Corrupt { why, .. }) => {
            let rebuilt = rebuild::rebuild(paths, salvage(paths));
            Ok(match rebuilt.map_err(|error| StoreError::io(&paths.events, &error))? {
                Some(Rebuilt { state, from, .. }) => {
                    Inspection { state: Arc::new(state), problem: Some(why), rebuilt_from: Some(from) }
                }
                None => Inspection { problem: Some(why), ..Inspection::sound(State::default()) },
            })
        }
        Err(error) => Err(error),
    }
}

impl Inspection {
    fn sound(state: State) -> Self {
        Inspection { state: Arc::new(state), problem: None, rebuilt_from: None }
    }
}

fn look(paths: &StorePaths, journal: u64) -> Result<Loaded, StoreError> {
    let held = lock::is_held(paths);
    match look_as(paths, connect::access(paths, held), journal) {
        // A session that began meanwhile writes beside a look that does not expect it.
        Err(StoreError::Corrupt { .. }) if !held && lock::is_held(paths) => {
            look_as(paths, Access::Live, journal)
        }
        verdict => verdict,
    }
}

fn look_as(paths: &StorePaths, access: Access, journal: u64) -> Result<Loaded, StoreError> {
    let conn = connect::reader(&paths.state_db, access)?;
    let loaded = check::load(&conn, &paths.state_db)?;
    not_behind(paths, &loaded, journal)?;
    Ok(loaded)
}

/// Opens for writing and checks everything.
fn open_sound(
    paths: &StorePaths,
    durability: Durability,
    journal: u64,
) -> Result<(Connection, Loaded), StoreError> {
    let path = &paths.state_db;
    let mut conn = connect::writer(path, durability)?;
    if let Ok(Version::Known(from)) = schema::version(&conn)
        && from < schema::CURRENT
    {
        schema::migrate(&mut conn, from).map_err(|error| StoreError::sqlite(path, &conn, &error))?;
    }
    let loaded = check::load(&conn, path)?;
    not_behind(paths, &loaded, journal)?;
    connect::leave_as_it_is(&conn, false).map_err(|error| StoreError::sqlite(path, &conn, &error))?;
    Ok((conn, loaded))
}

/// The journal is written after the commit, so it never has more.
fn not_behind(paths: &StorePaths, loaded: &Loaded, journal: u64) -> Result<(), StoreError> {
    let seq = loaded.state.seq;
    if journal <= seq {
        return Ok(());
    }
    Err(corrupt(paths, &format!("it ends at event {seq} and the journal has events up to {journal}")))
}

fn recover(
    paths: &StorePaths,
    options: OpenOptions,
    why: Option<String>,
    journal: u64,
) -> Result<Opened, StoreError> {
    let salvage = if why.is_some() { salvage(paths) } else { Salvage::default() };
    let rebuilt = rebuild::rebuild(paths, salvage).map_err(|error| StoreError::io(&paths.events, &error))?;
    let rebuilt = match rebuilt {
        Some(rebuilt) => rebuilt,
        // Places in the journal are not used twice.
        None if options.fresh => Rebuilt {
            state: State { seq: journal, ..State::default() },
            events: Vec::new(),
            from: "nothing".into(),
            lag: "everything before is lost".into(),
        },
        None => {
            let why = why.unwrap_or_else(|| "it is missing".into());
            return Err(StoreError::Unrecoverable { path: paths.state_db.clone(), why });
        }
    };
    let Rebuilt { state, events, from, lag } = rebuilt;
    let scratch = create::database(paths, &state, &events)?;
    let kept_as = keep_aside(paths, options.now)?;
    create::install(scratch, paths, options.durability)?;
    let (conn, loaded) = open_sound(paths, options.durability, journal)?;
    let recovery = Recovery {
        kept_as,
        why: why.unwrap_or_else(|| "it is missing, and the journal is not".into()),
        from,
        last_seq: loaded.state.seq,
        lag,
    };
    opened(paths, options.durability, conn, loaded, Some(recovery))
}

/// Moves the database and its log to another name. The log goes first: without it the database is found to be
/// behind, with another database it would be replayed.
fn keep_aside(paths: &StorePaths, now: Timestamp) -> Result<Option<PathBuf>, StoreError> {
    let kept = aside(&paths.state_db, "corrupt", now);
    let mut moved = false;
    for suffix in ["-wal", "-shm", ""] {
        let to = beside(&kept, suffix);
        match fs::rename(beside(&paths.state_db, suffix), &to) {
            Ok(()) => moved = true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(StoreError::io(&to, &error)),
        }
    }
    Ok(moved.then_some(kept))
}

fn opened(
    paths: &StorePaths,
    durability: Durability,
    conn: Connection,
    loaded: Loaded,
    recovery: Option<Recovery>,
) -> Result<Opened, StoreError> {
    let state = Arc::new(loaded.state);
    let db = Db {
        conn,
        links: Links::of(paths)?,
        paths: paths.clone(),
        durability,
        state: Arc::clone(&state),
        first: loaded.first,
        logged: 0,
        buffer: Vec::new(),
    };
    Ok(Opened { db, state, recovery })
}

fn corrupt(paths: &StorePaths, why: &str) -> StoreError {
    StoreError::Corrupt { path: paths.state_db.clone(), why: why.to_owned() }
}

/// `None` when nothing is there.
fn size_of(path: &Path) -> Result<Option<u64>, StoreError> {
    match fs::metadata(path) {
        Ok(meta) => Ok(Some(meta.len())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::io(path, &error)),
    }
}

#[cfg(test)]
mod damage;
#[cfg(test)]
mod tests;
