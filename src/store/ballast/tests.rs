//! On a full disk. These need a file system of their own, so they run as root only.

use std::os::unix::fs::MetadataExt;

use super::*;
use crate::store::testing::{Author, Project, noon, options};
use crate::store::{Db, Journal, JournalLimits, StoreError, inspect, replace};

/// A small file system in memory, mounted over a project's folder for as long as this lives.
struct SmallDisk(Project);

impl SmallDisk {
    /// `None`, with a notice, where mounting is not allowed.
    fn new(options: &std::ffi::CStr) -> Option<Self> {
        let project = Project::new();
        let flags = rustix::mount::MountFlags::empty();
        match rustix::mount::mount("tmpfs", &project.paths.project, "tmpfs", flags, options) {
            Ok(()) => Some(SmallDisk(project)),
            Err(error) => {
                println!("skipped: cannot mount a tmpfs here ({error})");
                None
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0.paths.project, rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn takes_real_blocks_and_gives_them_back() {
    let project = Project::new();
    fs::create_dir_all(&project.paths.dir).unwrap();
    let ballast = Ballast::new(&project.paths);
    assert!(!ballast.release().unwrap());
    assert!(ballast.restore().unwrap());
    assert!(!ballast.restore().unwrap());
    let meta = fs::metadata(&project.paths.ballast).unwrap();
    assert!(meta.len() == SIZE && meta.blocks() * 512 >= SIZE);
    // What a full disk or somebody else left of it is made whole.
    fs::write(&project.paths.ballast, "short").unwrap();
    assert!(ballast.restore().unwrap());
    assert!(ballast.release().unwrap());
    assert!(!project.paths.ballast.exists());
}

#[test]
fn a_full_disk_is_told_apart_and_with_the_ballast_released_the_last_commits_fit() {
    let Some(disk) = SmallDisk::new(c"size=12m") else { return };
    let paths = &disk.0.paths;
    let (mut db, mut journal) = disk.0.start();
    let ballast = Ballast::new(paths);
    ballast.restore().unwrap();
    let mut author = Author::new();
    journal.append(&db.commit(author.notices(20)).unwrap()).unwrap();

    // Somebody fills the disk.
    let mut hog = File::create(paths.project.join("hog")).unwrap();
    while hog.write_all(&[1; 4096]).is_ok() {}
    drop(hog);
    let mut acknowledged = db.state();
    let refused = loop {
        let batch = author.notices(20);
        match db.commit(batch.clone()) {
            Ok(committed) => {
                acknowledged = committed.state.clone();
                let _ = journal.append(&committed);
            }
            Err(error) => {
                assert!(matches!(error, StoreError::Full { .. }), "{error}");
                break batch;
            }
        }
    };
    // What was acknowledged can be read, by the session and by others.
    assert_eq!(db.state(), acknowledged);
    assert_eq!(db.reader().state().unwrap(), Some(acknowledged.clone()));
    assert!(replace(&paths.status, &[b'x'; 8192], false).is_err());

    assert!(ballast.release().unwrap());
    let committed = db.commit(refused).unwrap();
    assert_eq!(committed.state.seq, acknowledged.seq + 20);
    for _ in 0..20 {
        db.commit(author.notices(6)).unwrap();
    }
    journal.catch_up(&db.state(), &mut db, noon()).unwrap();
    assert!(!journal.is_behind());
    assert!(ballast.restore().is_err(), "there is still no room for it");
    assert!(!paths.ballast.exists());
    db.maintain().unwrap();

    // Killed now, nothing is lost.
    let state = db.state();
    let crashed = disk.0.crashed();
    assert_eq!(inspect(&crashed.paths).unwrap().state, state);
    assert_eq!(crashed.open().state, state);

    fs::remove_file(paths.project.join("hog")).unwrap();
    assert!(ballast.restore().unwrap());
}

#[test]
fn no_inodes_are_told_as_a_full_disk() {
    let Some(disk) = SmallDisk::new(c"size=8m,nr_inodes=16") else { return };
    let paths = &disk.0.paths;
    fs::create_dir_all(&paths.dir).unwrap();
    let mut n = 0;
    while File::create(paths.project.join(format!("hog-{n}"))).is_ok() {
        n += 1;
    }
    let error = Db::open(paths, options()).unwrap_err();
    assert!(matches!(error, StoreError::Full { .. }), "{error}");
    // With room for the database and none for its log.
    fs::remove_file(paths.project.join("hog-0")).unwrap();
    let error = Db::open(paths, options()).unwrap_err();
    assert!(matches!(error, StoreError::Full { .. }), "{error}");
    for k in 1..8 {
        fs::remove_file(paths.project.join(format!("hog-{k}"))).unwrap();
    }
    let opened = Db::open(paths, options()).unwrap();
    assert_eq!(opened.recovery, None, "a full disk is no damage");
    let mut db = opened.db;
    let mut journal = Journal::new(paths.clone(), JournalLimits::default());
    journal.catch_up(&opened.state, &mut db, noon()).unwrap();
}
