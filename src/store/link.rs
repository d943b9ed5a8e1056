//! Agents run `git clean -fdx`, which deletes an ignored `.longhaul/`. The open files live on without a name; here
//! they get it back.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use jiff::Timestamp;
use rusqlite::backup::Backup;
use rusqlite::config::DbConfig;

use super::connect;
use super::create::{self, Scratch};
use super::db::Db;
use super::error::StoreError;
use super::paths::{StorePaths, aside};

/// What file a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileId {
    dev: u64,
    ino: u64,
}

/// The files that the open connection uses, as found under their names when it opened them. An inode in use is not
/// given to another file, so the same number means the same file.
#[derive(Debug)]
pub(crate) struct Links {
    db: FileId,
    /// Made by the first commit.
    log: Option<[Option<FileId>; 2]>,
}

// === impl FileId ===

impl FileId {
    /// The file at `path`; `None` when nothing is there.
    pub(crate) fn of(path: &Path) -> io::Result<Option<FileId>> {
        match fs::metadata(path) {
            Ok(meta) => Ok(Some(FileId::from(&meta))),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

impl From<&fs::Metadata> for FileId {
    fn from(meta: &fs::Metadata) -> Self {
        FileId { dev: meta.dev(), ino: meta.ino() }
    }
}

// === impl Links ===

impl Links {
    /// The files of a connection that has just opened `paths.state_db`.
    pub(crate) fn of(paths: &StorePaths) -> Result<Self, StoreError> {
        let found = FileId::of(&paths.state_db).map_err(|error| StoreError::io(&paths.state_db, &error))?;
        match found {
            Some(db) => Ok(Links { db, log: None }),
            None => Err(StoreError::Other {
                path: paths.state_db.clone(),
                detail: "it was deleted while it was being opened".into(),
            }),
        }
    }

    /// After a commit the write-ahead log is there: remembers it.
    pub(crate) fn seen_log(&mut self, paths: &StorePaths) {
        if self.log.is_none() {
            self.log = Some([paths.wal(), paths.shm()].map(|path| FileId::of(&path).ok().flatten()));
        }
    }

    /// Every file is still to be found under its name.
    fn hold(&self, paths: &StorePaths) -> io::Result<bool> {
        if FileId::of(&paths.state_db)? != Some(self.db) {
            return Ok(false);
        }
        if let Some([wal, shm]) = self.log {
            return Ok(FileId::of(&paths.wal())? == wal && FileId::of(&paths.shm())? == shm);
        }
        Ok(true)
    }
}

// === impl Db ===

impl Db {
    /// Checks that the database is still to be found under its name (three `stat`s), and puts it back from the open
    /// connection if it is not. What was restored, for a `state_restored` event; `None` when all was well.
    ///
    /// A file that somebody else has put in its place meanwhile is kept under another name.
    pub fn ensure_linked(&mut self, now: Timestamp) -> Result<Option<&'static str>, StoreError> {
        let path = &self.paths.state_db;
        if self.links.hold(&self.paths).map_err(|error| StoreError::io(path, &error))? {
            return Ok(None);
        }
        fs::create_dir_all(&self.paths.dir).map_err(|error| StoreError::io(&self.paths.dir, &error))?;
        let scratch = Scratch::new(&self.paths)?;
        self.copy_to(scratch.path()).map_err(|error| self.sqlite(&error))?;
        let present = FileId::of(path).map_err(|error| StoreError::io(path, &error))?;
        if present.is_some_and(|file| file != self.links.db) {
            let kept = aside(path, "replaced", now);
            fs::rename(path, &kept).map_err(|error| StoreError::io(&kept, &error))?;
        }
        create::install(scratch, &self.paths, self.durability)?;
        let conn = connect::writer(path, self.durability).map_err(|e| StoreError::sqlite_open(path, &e))?;
        let old = std::mem::replace(&mut self.conn, conn);
        // The old connection must not tidy up: the names are those of the new one's files now.
        old.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
            .map_err(|error| self.sqlite(&error))?;
        drop(old);
        self.links = Links::of(&self.paths)?;
        Ok(Some("state.db"))
    }

    /// Copies the database, as of the last commit, to a new file.
    fn copy_to(&self, path: &Path) -> rusqlite::Result<()> {
        let mut to = connect::scratch(path)?;
        Backup::new(&self.conn, &mut to)?.step(-1)?;
        to.close().map_err(|(_, error)| error)
    }
}
