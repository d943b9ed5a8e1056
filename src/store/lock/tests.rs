use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::store::testing::{Project, noon};

fn me() -> Holder {
    Holder {
        pid: std::process::id(),
        since: Some(noon()),
        command: "longhaul run".into(),
        version: "0.1.0".into(),
    }
}

/// Fifty at the same moment: how many have the lock, and what the others were told.
fn storm(paths: &StorePaths, meanwhile: impl Fn() + Sync) -> (usize, Vec<LockError>) {
    let barrier = Barrier::new(51);
    let have = AtomicUsize::new(0);
    let mut refused = Vec::new();
    std::thread::scope(|scope| {
        let starters: Vec<_> = (0..50)
            .map(|_| {
                scope.spawn(|| {
                    barrier.wait();
                    let lock = ProjectLock::acquire(paths, &me());
                    have.fetch_add(usize::from(lock.is_ok()), Ordering::Relaxed);
                    // Held until all have tried.
                    barrier.wait();
                    lock.err()
                })
            })
            .collect();
        barrier.wait();
        meanwhile();
        barrier.wait();
        refused.extend(starters.into_iter().filter_map(|starter| starter.join().unwrap()));
    });
    (have.into_inner(), refused)
}

#[test]
fn of_fifty_at_once_exactly_one_has_it_and_the_others_name_it() {
    let project = Project::new();
    let (have, refused) = storm(&project.paths, || {});
    assert_eq!((have, refused.len()), (1, 49));
    for error in refused {
        let LockError::Held(Held { holder: Some(holder) }) = &error else { panic!("{error}") };
        assert_eq!(holder, &me());
        assert!(error.to_string().contains(&format!("process {}", holder.pid)), "{error}");
    }
}

#[test]
fn deleting_the_lock_file_and_looking_at_it_meanwhile_changes_nothing_of_that() {
    for _ in 0..10 {
        let project = Project::new();
        let (have, _) = storm(&project.paths, || {
            for _ in 0..50 {
                let _ = fs::remove_file(&project.paths.lock);
                is_held(&project.paths);
            }
        });
        assert_eq!(have, 1);
    }
}

#[test]
fn a_lock_on_a_file_that_is_no_longer_there_is_not_taken_for_the_lock() {
    let project = Project::new();
    let paths = &project.paths;
    fs::create_dir_all(&paths.dir).unwrap();
    let file = File::create(&paths.lock).unwrap();
    assert!(same_file(&file, paths).unwrap());
    fs::remove_file(&paths.lock).unwrap();
    assert!(!same_file(&file, paths).unwrap());
    let _other = File::create(&paths.lock).unwrap();
    assert!(!same_file(&file, paths).unwrap());
}

#[test]
fn what_is_in_the_file_never_blocks() {
    for content in [&b""[..], b"\0\xff garbage", br#"{"pid":1,"command":"dead"}"#] {
        let project = Project::new();
        fs::create_dir_all(&project.paths.dir).unwrap();
        fs::write(&project.paths.lock, content).unwrap();
        assert_eq!(holder(&project.paths), None);
        let lock = ProjectLock::acquire(&project.paths, &me()).unwrap();
        assert_eq!(holder(&project.paths), Some(me()));
        drop(lock);
        assert!(!is_held(&project.paths));
        ProjectLock::acquire(&project.paths, &me()).unwrap();
    }
}

#[test]
fn a_holder_that_wrote_nothing_is_named_by_the_system() {
    let project = Project::new();
    let _lock = ProjectLock::acquire(&project.paths, &me()).unwrap();
    fs::write(&project.paths.lock, "").unwrap();
    assert_eq!(holder(&project.paths).unwrap().pid, std::process::id());
}

#[test]
fn a_deleted_folder_does_not_allow_a_second_session() {
    let project = Project::new();
    let mut lock = ProjectLock::acquire(&project.paths, &me()).unwrap();
    assert_eq!(lock.ensure_linked().unwrap(), None);
    fs::remove_dir_all(&project.paths.dir).unwrap();
    let error = ProjectLock::acquire(&project.paths, &me()).unwrap_err();
    assert!(error.to_string().contains(&format!("(process {})", std::process::id())), "{error}");
    assert_eq!(lock.ensure_linked().unwrap(), Some("lock"));
    assert_eq!(lock.ensure_linked().unwrap(), None);
    assert_eq!(holder(&project.paths), Some(me()));
    drop(lock);
    ProjectLock::acquire(&project.paths, &me()).unwrap();
}

#[test]
fn a_look_where_there_is_nothing_creates_nothing() {
    let project = Project::new();
    assert_eq!((holder(&project.paths), project.files().len()), (None, 0));
}

/// A killed supervisor that was just starting a process has left the lock to that, until it becomes another program.
#[test]
fn the_lock_of_a_dead_process_is_waited_for() {
    let project = Project::new();
    // No process has this pid: the kernel's largest is 2^22.
    let dead = Holder { pid: 1 << 23, ..me() };
    let heir = ProjectLock::acquire(&project.paths, &dead).unwrap();
    std::thread::scope(|scope| {
        let taker = scope.spawn(|| ProjectLock::acquire(&project.paths, &me()));
        // Longer than a lock of the living is waited for. It has tried by then, or tries later: both must do.
        std::thread::park_timeout(Duration::from_millis(200));
        drop(heir);
        assert_eq!(taker.join().unwrap().unwrap().holder, me());
    });
}
