//! Agents run `git clean -fdx`, which deletes an ignored `.longhaul/`. The open files live on without a name; here
//! they get it back.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use rusqlite::backup::Backup;

use super::check;
use super::connect::{self, Access};
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
    /// connection if it is not. What was restored, for a `state_restored` event; `None` when all was well, or when
    /// another connection of ours had put it back already.
    ///
    /// A file that somebody else has put in its place meanwhile is kept under another name.
    pub fn ensure_linked(&mut self, now: Timestamp) -> Result<Option<&'static str>, StoreError> {
        let path = &self.paths.state_db;
        if self.links.hold(&self.paths).map_err(|error| StoreError::io(path, &error))? {
            return Ok(None);
        }
        let present = FileId::of(path).map_err(|error| StoreError::io(path, &error))?;
        if present.is_some_and(|file| file != self.links.db) {
            if self.is_continued_by_file() {
                self.reopen()?;
                return Ok(None);
            }
            let kept = aside(path, "replaced", now);
            fs::rename(path, &kept).map_err(|error| StoreError::io(&kept, &error))?;
        }
        fs::create_dir_all(&self.paths.dir).map_err(|error| StoreError::io(&self.paths.dir, &error))?;
        let scratch = Scratch::new(&self.paths)?;
        self.copy_to(scratch.path()).map_err(|error| self.sqlite(&error))?;
        create::install(scratch, &self.paths, self.durability)?;
        self.reopen()?;
        Ok(Some("state.db"))
    }

    /// The file under our name is sound and has at least what we have: the connection of an actor that died, or of
    /// its successor, has put it back before us.
    fn is_continued_by_file(&self) -> bool {
        let path = &self.paths.state_db;
        let found = connect::reader(path, Access::Live).and_then(|conn| check::load(&conn, path));
        found.is_ok_and(|loaded| loaded.state.seq >= self.state.seq)
    }

    /// Goes over to the file that is under our name now.
    fn reopen(&mut self) -> Result<(), StoreError> {
        let path = &self.paths.state_db;
        let conn = connect::writer(path, self.durability)?;
        let loaded = check::load(&conn, path)?;
        // The old connection must not tidy up: the names are those of the new one's files now.
        connect::leave_as_it_is(&self.conn, true).map_err(|error| self.sqlite(&error))?;
        connect::leave_as_it_is(&conn, false).map_err(|error| StoreError::sqlite(path, &conn, &error))?;
        self.links = Links::of(&self.paths)?;
        self.conn = conn;
        self.state = Arc::new(loaded.state);
        self.first = loaded.first;
        Ok(())
    }

    /// Copies the database, as of the last commit, to a new file.
    fn copy_to(&self, path: &Path) -> rusqlite::Result<()> {
        let mut to = connect::scratch(path)?;
        Backup::new(&self.conn, &mut to)?.step(-1)?;
        connect::finish(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::{Author, Project, noon};
    use crate::store::{Reader, inspect};

    /// Deletes something, and expects it back with everything in it.
    fn restores_after(delete: impl Fn(&StorePaths)) {
        let project = Project::new();
        let (mut db, mut journal) = project.start();
        let mut author = Author::new();
        let mut reader = db.reader();
        for round in 0..3 {
            assert_eq!(db.ensure_linked(noon()).unwrap(), None);
            journal.append(&db.commit(author.notices(3)).unwrap()).unwrap();
            assert_eq!(db.ensure_linked(noon()).unwrap(), None);
            delete(&project.paths);
            // What is committed in between is in it too.
            journal.append(&db.commit(author.notices(1)).unwrap()).unwrap();
            assert_eq!(db.ensure_linked(noon()).unwrap(), Some("state.db"), "round {round}");
            assert_eq!(db.ensure_linked(noon()).unwrap(), None);
            assert_eq!(reader.state().unwrap(), Some(db.state()));
            journal.append(&db.commit(author.notices(1)).unwrap()).unwrap();
            assert_eq!(*inspect(&project.crashed().paths).unwrap().state, *db.state());
        }
        let state = db.state();
        assert_eq!(state.seq, 15);
        drop(db);
        let opened = project.open();
        assert_eq!((opened.recovery, opened.state), (None, state));
        let temporary = fs::read_dir(&project.paths.dir).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(temporary.filter(|name| name.to_str().unwrap().contains("tmp")).count(), 0);
    }

    #[test]
    fn the_whole_folder() {
        restores_after(|paths| fs::remove_dir_all(&paths.dir).unwrap());
    }

    #[test]
    fn the_database_alone() {
        restores_after(|paths| fs::remove_file(&paths.state_db).unwrap());
    }

    #[test]
    fn the_write_ahead_log_alone() {
        restores_after(|paths| fs::remove_file(paths.wal()).unwrap());
    }

    #[test]
    fn the_database_moved_away() {
        restores_after(|paths| {
            fs::rename(&paths.dir, paths.project.join(format!("old-{}", fastrand::u64(..)))).unwrap()
        });
    }

    #[test]
    fn what_somebody_put_in_its_place_is_kept() {
        let project = Project::new();
        let (mut db, _) = project.start();
        db.commit(Author::new().notices(3)).unwrap();
        fs::remove_file(&project.paths.state_db).unwrap();
        fs::write(&project.paths.state_db, "mine").unwrap();
        assert_eq!(db.ensure_linked(noon()).unwrap(), Some("state.db"));
        let kept = project.paths.dir.join("state.db.replaced-20260822T120000Z");
        assert_eq!(fs::read_to_string(kept).unwrap(), "mine");
        assert_eq!(Reader::new(project.paths.clone()).state().unwrap(), Some(db.state()));
    }

    #[test]
    fn of_two_connections_the_second_takes_what_the_first_has_put_back() {
        let project = Project::new();
        let (mut one, _) = project.start();
        let mut two = project.open().db;
        let mut author = Author::new();
        one.commit(author.notices(2)).unwrap();
        fs::remove_dir_all(&project.paths.dir).unwrap();
        assert_eq!(one.ensure_linked(noon()).unwrap(), Some("state.db"));
        one.commit(author.notices(1)).unwrap();
        assert_eq!(two.ensure_linked(noon()).unwrap(), None);
        assert_eq!(two.commit(author.notices(1)).unwrap().state.seq, 4);
        assert_eq!(one.ensure_linked(noon()).unwrap(), None);
        assert_eq!(one.commit(author.notices(1)).unwrap().state.seq, 5);
        assert!(
            !fs::read_dir(&project.paths.dir)
                .unwrap()
                .any(|entry| { entry.unwrap().file_name().to_str().unwrap().contains("replaced") })
        );
    }

    #[test]
    fn restoring_leaks_no_descriptor() {
        let project = Project::new();
        let (mut db, _) = project.start();
        let mut author = Author::new();
        let open = || {
            let links = fs::read_dir("/proc/self/fd")
                .unwrap()
                .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
            links.filter(|to| to.starts_with(project.folder.path())).count()
        };
        db.commit(author.notices(1)).unwrap();
        let before = open();
        for _ in 0..10 {
            fs::remove_dir_all(&project.paths.dir).unwrap();
            db.ensure_linked(noon()).unwrap();
            db.commit(author.notices(1)).unwrap();
        }
        assert_eq!(open(), before);
    }
}
