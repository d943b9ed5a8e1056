use std::os::unix::fs::FileExt;

use proptest::prelude::*;
use proptest::strategy::ValueTree;

use super::*;
use crate::domain::event::Event;
use crate::store::testing::{Author, Project, body, fold, noon, options};
use crate::store::{Journal, JournalLimits, ProjectLock};

/// A project with some batches committed, and the state after them. `settled`: closed in good order.
fn story(batches: usize, settled: bool) -> (Project, State) {
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

fn open(project: &Project) -> Result<Opened, StoreError> {
    Db::open(&project.paths, options())
}

fn edit(project: &Project, sql: &str) {
    let conn = connect::writer(&project.paths.state_db, Durability::Process).unwrap();
    conn.execute_batch(sql).unwrap();
    connect::leave_as_it_is(&conn, false).unwrap();
}

fn flip(path: &Path, offset: u64, mask: u8) {
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ mask], offset).unwrap();
}

/// The state is rebuilt exactly, the bad file is kept with its content, and nothing is reported twice.
fn assert_recovers(project: &Project, state: &State, what: &str) {
    let bad = fs::read(&project.paths.state_db).unwrap();
    let seen = inspect(&project.paths).unwrap();
    assert!(seen.problem.is_some(), "{what}: a look finds nothing wrong");
    assert_eq!(&*seen.state, state, "{what}: a look shows another state");
    assert_eq!(fs::read(&project.paths.state_db).unwrap(), bad, "{what}: a look changed the file");

    let opened = open(project).unwrap();
    let recovery = opened.recovery.unwrap_or_else(|| panic!("{what}: not reported"));
    assert_eq!(&*opened.state, state, "{what}");
    assert_eq!(recovery.last_seq, state.seq, "{what}");
    assert_eq!(fs::read(recovery.kept_as.unwrap()).unwrap(), bad, "{what}: the bad file is not kept");
    drop(opened.db);
    assert_eq!(open(project).unwrap().recovery, None, "{what}: reported twice");
}

#[test]
fn what_is_half_written_or_garbage_is_never_a_clean_start() {
    type Damage = (&'static str, fn(&mut Vec<u8>));
    let damages: [Damage; 6] = [
        ("empty", |bytes| bytes.clear()),
        ("half a JSON text", |bytes| *bytes = b"{\"status\": \"runn".to_vec()),
        ("zero-filled first page", |bytes| bytes[..4096].fill(0)),
        ("zero-filled second page", |bytes| bytes[4096..8192].fill(0)),
        ("cut in a page", |bytes| bytes.truncate(5000)),
        ("cut between pages", |bytes| bytes.truncate(8192)),
    ];
    for (what, damage) in damages {
        let (project, state) = story(5, true);
        let mut bytes = fs::read(&project.paths.state_db).unwrap();
        damage(&mut bytes);
        fs::write(&project.paths.state_db, bytes).unwrap();
        assert_recovers(&project, &state, what);
    }
}

#[test]
fn one_flipped_byte_is_found_or_harmless_wherever_it_is() {
    let (project, state) = story(5, true);
    let size = fs::metadata(&project.paths.state_db).unwrap().len();
    let mut found = 0;
    // The header byte by byte, the rest at a step that meets every kind of content.
    for offset in (0..100).chain((100..size).step_by(97)) {
        let damaged = project.crashed();
        flip(&damaged.paths.state_db, offset, 0x55);
        let opened = open(&damaged).unwrap_or_else(|error| panic!("byte {offset}: {error}"));
        assert_eq!(*opened.state, state, "byte {offset}");
        found += u32::from(opened.recovery.is_some());
    }
    assert!(found > 50, "only {found} were found");
}

#[test]
fn one_flipped_byte_of_the_write_ahead_log_is_found_or_harmless() {
    let (project, state) = story(4, false);
    let size = fs::metadata(project.paths.wal()).unwrap().len();
    assert!(size > 4096);
    let mut found = 0;
    for offset in (0..64).chain((64..size).step_by(499)) {
        let damaged = project.crashed();
        flip(&damaged.paths.wal(), offset, 0x01);
        let seen = inspect(&damaged.paths).unwrap();
        assert_eq!(*seen.state, state, "byte {offset}");
        let opened = open(&damaged).unwrap_or_else(|error| panic!("byte {offset}: {error}"));
        assert_eq!(*opened.state, state, "byte {offset}");
        assert_eq!(seen.problem.is_some(), opened.recovery.is_some(), "byte {offset}");
        found += u32::from(opened.recovery.is_some());
    }
    assert!(found > 50, "only {found} were found");
}

#[test]
fn a_lost_write_ahead_log_is_found_by_the_journal() {
    let (project, state) = story(4, false);
    fs::remove_file(project.paths.wal()).unwrap();
    assert_recovers(&project, &state, "no log");
}

#[test]
fn what_the_journal_lacks_is_saved_from_the_damaged_database() {
    let (project, state) = story(4, true);
    let journal = fs::read_to_string(&project.paths.events).unwrap();
    let lines: Vec<&str> = journal.split_inclusive('\n').collect();
    fs::write(&project.paths.events, lines[..lines.len() - 5].concat()).unwrap();
    // A row of an early event: what is after it is sound.
    edit(&project, "UPDATE events SET line = 'x' WHERE seq = 2");
    let opened = open(&project).unwrap();
    assert!(opened.recovery.unwrap().why.contains("event 2 does not match"));
    assert_eq!(*opened.state, state);
    let mut db = opened.db;
    let mut journal = Journal::new(project.paths.clone(), JournalLimits::default());
    assert_eq!(journal.catch_up(&opened.state, &mut db, noon()).unwrap(), 5);
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
    fs::remove_file(&project.paths.state_db).unwrap();
    assert_eq!(*open(&project).unwrap().state, expected);
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
    let _lock = ProjectLock::acquire(&project.paths, holder).unwrap();
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
    let _lock = ProjectLock::acquire(&project.paths, holder).unwrap();
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Any bytes anywhere: the state is right, or the damage is reported; it is never silently another state.
    #[test]
    fn overwritten_bytes_never_give_another_state(
        at in 0.0..1.0f64, bytes in proptest::collection::vec(any::<u8>(), 1..40), log in any::<bool>()
    ) {
        let (project, state) = story(3, !log);
        let path = if log { project.paths.wal() } else { project.paths.state_db.clone() };
        let file = fs::File::options().write(true).open(&path).unwrap();
        let offset = (file.metadata().unwrap().len() as f64 * at) as u64;
        file.write_all_at(&bytes, offset).unwrap();
        let opened = open(&project).unwrap();
        prop_assert_eq!(&*opened.state, &state);
    }

    /// The same with a file that was cut anywhere.
    #[test]
    fn a_cut_file_never_gives_another_state(at in 0.0..1.0f64, log in any::<bool>()) {
        let (project, state) = story(3, !log);
        let path = if log { project.paths.wal() } else { project.paths.state_db.clone() };
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_len((file.metadata().unwrap().len() as f64 * at) as u64).unwrap();
        let opened = open(&project).unwrap();
        prop_assert_eq!(&*opened.state, &state);
    }
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
