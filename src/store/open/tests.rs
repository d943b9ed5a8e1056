use std::os::unix::fs::FileExt;

use proptest::prelude::*;
use proptest::strategy::ValueTree;

use super::*;
use crate::domain::event::Event;
use crate::store::testing::{Author, Project, body, fold, noon, options};
use crate::store::{Journal, JournalLimits, ProjectLock};

/// A project with some batches committed, and the state after them. `settled`: closed in good order.
pub(super) fn story(batches: usize, settled: bool) -> (Project, State) {
    let project = Project::new();
    let (mut db, mut journal) = project.start();
    let mut author = Author::new();
    let mut random = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..batches {
        let bodies = proptest::collection::vec(body(), 4).new_tree(&mut random).unwrap().current();
        let batch = author.batch(bodies);
        journal.append(&db.commit(batch).unwrap()).unwrap();
    }
    let state = State::clone(&db.state());
    if settled {
        db.close().unwrap();
        (project, state)
    } else {
        (project.crashed(), state)
    }
}

pub(super) fn open(project: &Project) -> Result<Opened, StoreError> {
    Db::open(&project.paths, options())
}

pub(super) fn edit(project: &Project, sql: &str) {
    let conn = connect::writer(&project.paths.state_db, Durability::Process).unwrap();
    conn.execute_batch(sql).unwrap();
    connect::leave_as_it_is(&conn, false).unwrap();
}

pub(super) fn flip(path: &Path, offset: u64, mask: u8) {
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ mask], offset).unwrap();
}

#[test]
fn a_log_without_its_database_is_not_replayed_into_a_new_one() {
    let (project, _) = story(3, false);
    fs::remove_file(&project.paths.state_db).unwrap();
    fs::remove_file(&project.paths.events).unwrap();
    let log = fs::read(project.paths.wal()).unwrap();
    let opened = open(&project).unwrap();
    assert_eq!((&*opened.state, opened.recovery), (&State::default(), None));
    let kept = project.paths.dir.join("state.db.corrupt-20260822T120000Z-wal");
    assert_eq!(fs::read(kept).unwrap(), log);
}

#[test]
fn a_missing_database_is_rebuilt_where_there_is_a_journal() {
    let (project, state) = story(4, true);
    fs::remove_file(&project.paths.state_db).unwrap();
    let seen = inspect(&project.paths).unwrap();
    assert!(seen.problem.unwrap().contains("missing"));
    assert_eq!(*seen.state, state);
    let opened = open(&project).unwrap();
    let recovery = opened.recovery.unwrap();
    assert_eq!((recovery.kept_as, recovery.last_seq), (None, state.seq));
    assert_eq!(*opened.state, state);
}

#[test]
fn a_stale_log_is_not_replayed_into_a_rebuilt_database() {
    let (project, state) = story(4, false);
    fs::remove_file(&project.paths.state_db).unwrap();
    let opened = open(&project).unwrap();
    assert_eq!(*opened.state, state);
    assert!(opened.recovery.is_some());
}

#[test]
fn with_nothing_to_rebuild_from_it_refuses_and_fresh_starts_anew() {
    let (project, _) = story(4, true);
    fs::write(&project.paths.state_db, "garbage").unwrap();
    fs::remove_file(&project.paths.events).unwrap();
    let before = project.files();
    let error = open(&project).unwrap_err();
    assert!(matches!(error, StoreError::Unrecoverable { .. }), "{error}");
    assert!(error.to_string().contains("--fresh"), "{error}");
    assert_eq!(project.files(), before, "refusing changes nothing");

    let opened = Db::open(&project.paths, OpenOptions { fresh: true, ..options() }).unwrap();
    assert_eq!(*opened.state, State::default());
    assert_eq!(fs::read(opened.recovery.unwrap().kept_as.unwrap()).unwrap(), b"garbage");
}

#[test]
fn fresh_does_not_give_a_place_of_the_journal_again() {
    let (project, state) = story(4, true);
    fs::write(&project.paths.state_db, "garbage").unwrap();
    let journal = fs::read_to_string(&project.paths.events).unwrap();
    let tail: Vec<&str> = journal.split_inclusive('\n').skip(3).collect();
    fs::write(&project.paths.events, tail.concat()).unwrap();
    assert!(matches!(open(&project).unwrap_err(), StoreError::Unrecoverable { .. }));
    let opened = Db::open(&project.paths, OpenOptions { fresh: true, ..options() }).unwrap();
    assert_eq!((opened.state.seq, opened.state.session.is_none()), (state.seq, true));
    let mut db = opened.db;
    let mut journal = Journal::new(project.paths.clone(), JournalLimits::default());
    journal.catch_up(&opened.state, &mut db, noon()).unwrap();
    drop(db);
    assert_eq!(open(&project).unwrap().recovery, None);
}

#[test]
fn damaged_lines_of_the_journal_are_skipped_and_told() {
    let (project, state) = story(4, true);
    fs::remove_file(&project.paths.state_db).unwrap();
    let mut journal = fs::read(&project.paths.events).unwrap();
    let ends: Vec<usize> = journal.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(i, _)| i).collect();
    journal[ends[2] + 1] = b'#';
    fs::write(&project.paths.events, journal).unwrap();
    let opened = open(&project).unwrap();
    assert_eq!(opened.state.seq, state.seq);
    let lag = opened.recovery.unwrap().lag;
    assert!(lag.contains("1 damaged lines") && lag.contains("1 events are missing"), "{lag}");
}

#[test]
fn an_unreadable_snapshot_is_passed_over_for_an_older_one() {
    let project = Project::new();
    let limits = JournalLimits { max_file: 3000, ..JournalLimits::default() };
    let (mut db, mut journal) = project.start_with(limits);
    let mut author = Author::new();
    for _ in 0..30 {
        journal.append(&db.commit(author.notices(2)).unwrap()).unwrap();
    }
    let state = db.state();
    db.close().unwrap();
    assert!(segments::finished(&project.paths).unwrap().len() > 2);
    flip(&project.paths.events, 1, 0xff);
    fs::remove_file(&project.paths.state_db).unwrap();
    assert_eq!(open(&project).unwrap().state, state);
}

#[test]
fn a_newer_schema_is_refused_and_left_alone() {
    let (project, _) = story(2, true);
    edit(&project, "UPDATE meta SET value = '99' WHERE key = 'schema'; PRAGMA user_version = 99;");
    let before = project.files();
    for error in [open(&project).unwrap_err(), inspect(&project.paths).unwrap_err()] {
        assert!(matches!(error, StoreError::Newer { found: 99, supported: schema::CURRENT, .. }), "{error}");
    }
    let mut after = project.files();
    after.retain(|name, _| !name.ends_with("-wal") && !name.ends_with("-shm"));
    assert_eq!(after, before);
}

#[test]
fn the_database_of_schema_1_loads() {
    let project = Project::new();
    fs::create_dir_all(&project.paths.dir).unwrap();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/store/v1");
    for name in ["state.db", "events.jsonl"] {
        fs::copy(fixtures.join(name), project.paths.dir.join(name)).unwrap();
    }
    let expected: State = serde_json::from_slice(&fs::read(fixtures.join("state.json")).unwrap()).unwrap();
    assert_eq!(*inspect(&project.paths).unwrap().state, expected);
    let opened = open(&project).unwrap();
    assert_eq!((&*opened.state, opened.recovery), (&expected, None));
    drop(opened.db);
    // From its journal a later version may fold more than was stored then.
    fs::remove_file(&project.paths.state_db).unwrap();
    let rebuilt = open(&project).unwrap().state;
    let counters = |state: &State| {
        let session = state.session.as_ref().map(|s| (s.id, s.iteration, s.finished, s.attempt, s.retries));
        (state.seq, session, state.inbox.clone())
    };
    assert_eq!(counters(&rebuilt), counters(&expected));
}

#[test]
fn a_look_changes_nothing_and_creates_nothing() {
    let nothing = Project::new();
    let before = nothing.files();
    assert_eq!(*inspect(&nothing.paths).unwrap().state, State::default());
    assert_eq!(nothing.files(), before);

    for settled in [true, false] {
        let (project, state) = story(3, settled);
        let before = project.files();
        let seen = inspect(&project.paths).unwrap();
        assert_eq!((&*seen.state, seen.problem), (&state, None));
        let mut reader = crate::store::Reader::new(project.paths.clone());
        assert_eq!(*reader.state().unwrap().unwrap(), state);
        assert_eq!(reader.tail(3).unwrap().len(), 3);
        assert_eq!(project.files(), before, "settled: {settled}");
    }
}

#[test]
fn a_look_beside_a_running_session_sees_every_commit() {
    let project = Project::new();
    let holder = crate::store::Holder { pid: 1, since: None, command: String::new(), version: String::new() };
    let _lock = ProjectLock::acquire(&project.paths, &holder).unwrap();
    let (mut db, mut journal) = project.start();
    let mut author = Author::new();
    let mut reader = crate::store::Reader::new(project.paths.clone());
    for _ in 0..5 {
        let committed = db.commit(author.notices(3)).unwrap();
        let seen = inspect(&project.paths).unwrap();
        assert_eq!((seen.state, seen.problem), (Arc::clone(&committed.state), None));
        assert_eq!(reader.state().unwrap(), Some(Arc::clone(&committed.state)));
        journal.append(&committed).unwrap();
    }
}

#[test]
fn looks_and_commits_at_once_never_find_damage() {
    let project = Project::new();
    let holder = crate::store::Holder { pid: 1, since: None, command: String::new(), version: String::new() };
    let _lock = ProjectLock::acquire(&project.paths, &holder).unwrap();
    let (mut db, mut journal) = project.start();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looker = scope.spawn(|| {
            let mut looks = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) || looks == 0 {
                let seen = inspect(&project.paths).unwrap();
                assert_eq!(seen.problem, None);
                looks += 1;
            }
        });
        let mut author = Author::new();
        for _ in 0..150 {
            journal.append(&db.commit(author.notices(3)).unwrap()).unwrap();
            db.maintain().unwrap();
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        looker.join().unwrap();
    });
}

#[test]
fn a_project_killed_while_it_was_being_created_starts_clean() {
    let project = Project::new();
    fs::create_dir_all(&project.paths.dir).unwrap();
    fs::write(project.paths.dir.join(".longhaul-tmp-abc"), "half a data").unwrap();
    let opened = open(&project).unwrap();
    assert_eq!((opened.recovery, &*opened.state), (None, &State::default()));
    // The database is there and the journal is not yet.
    drop(opened.db);
    assert_eq!(open(&project).unwrap().recovery, None);
}

#[test]
fn a_recovery_says_what_it_found_and_did() {
    let (project, state) = story(2, true);
    fs::write(&project.paths.state_db, "").unwrap();
    let recovery = open(&project).unwrap().recovery.unwrap();
    let [corrupt, recovered] = recovery.events();
    assert!(
        matches!(corrupt, Body::StateCorrupt { kept_as: Some(at), .. } if at.contains("state.db.corrupt-20260822T120000Z"))
    );
    assert!(matches!(recovered, Body::StateRecovered { last_seq, .. } if last_seq == state.seq));
}

#[test]
fn an_unwritable_folder_is_told_apart() {
    if rustix::process::geteuid().is_root() {
        println!("skipped: root may write everywhere");
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    let project = Project::new();
    fs::create_dir_all(&project.paths.dir).unwrap();
    fs::set_permissions(&project.paths.dir, fs::Permissions::from_mode(0o500)).unwrap();
    assert!(matches!(open(&project).unwrap_err(), StoreError::ReadOnly { .. }));
}

/// Writes the fixture of the present schema. Run it once for each schema that is released:
/// `cargo test --lib write_the_fixture -- --ignored`.
#[test]
#[ignore = "writes into the source tree"]
fn write_the_fixture() {
    let project = Project::new();
    let (mut db, mut journal) = project.start();
    let mut author = Author::new();
    let mut random = proptest::test_runner::TestRunner::deterministic();
    let mut all: Vec<Event> = Vec::new();
    for _ in 0..8 {
        let bodies = proptest::collection::vec(body(), 5).new_tree(&mut random).unwrap().current();
        let committed = db.commit(author.batch(bodies)).unwrap();
        all.extend(committed.events.iter().cloned());
        journal.append(&committed).unwrap();
    }
    assert_eq!(*db.state(), fold(&all));
    let state = serde_json::to_vec_pretty(&*db.state()).unwrap();
    db.close().unwrap();
    let to = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/store/v{}", schema::CURRENT));
    fs::create_dir_all(&to).unwrap();
    fs::write(to.join("state.json"), state).unwrap();
    for path in [&project.paths.state_db, &project.paths.events] {
        fs::copy(path, to.join(path.file_name().unwrap())).unwrap();
    }
}
