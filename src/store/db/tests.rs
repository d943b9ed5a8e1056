use proptest::prelude::*;

use super::*;
use crate::domain::event::Body;
use crate::store::testing::{Author, Project, body, fold, notice};
use crate::store::{inspect, read_after};

fn seqs(events: &[Event]) -> Vec<u64> {
    events.iter().map(|event| event.seq).collect()
}

#[test]
fn a_commit_gives_places_in_order_and_the_lines_of_its_events() {
    let project = Project::new();
    let (mut db, _) = project.start();
    let mut author = Author::new();
    db.commit(author.notices(2)).unwrap();
    let committed = db.commit(author.notices(3)).unwrap();
    assert_eq!(seqs(&committed.events), [3, 4, 5]);
    let parsed: Vec<Event> =
        committed.lines.lines().map(|line| crate::store::decode(line.as_bytes()).unwrap()).collect();
    assert_eq!(parsed, &committed.events[..]);
    assert_eq!(committed.state.seq, 5);
}

#[test]
fn an_empty_batch_changes_nothing() {
    let project = Project::new();
    let (mut db, _) = project.start();
    let committed = db.commit(Vec::new()).unwrap();
    assert_eq!((committed.events.len(), &*committed.lines, committed.state.seq), (0, "", 0));
}

#[test]
fn a_repeated_batch_is_written_once() {
    let project = Project::new();
    let (mut db, _) = project.start();
    let mut author = Author::new();
    let batch = author.batch([notice(1), Body::IterationStarted {}, notice(2)]);
    let first = db.commit(batch.clone()).unwrap();
    let later = db.commit(author.notices(2)).unwrap();
    let again = db.commit(batch).unwrap();
    assert_eq!(again.events, first.events);
    assert_eq!(again.lines, first.lines);
    assert_eq!(again.state, later.state);
    assert_eq!(project.open().state.seq, 5);
}

#[test]
fn a_batch_is_repeated_on_a_new_connection_after_the_old_one_committed_it() {
    let project = Project::new();
    let (mut old, _) = project.start();
    let mut new = project.open().db;
    let mut author = Author::new();
    let batch = author.notices(2);
    // The job of the actor that died goes through after its successor has opened the database.
    let first = old.commit(batch.clone()).unwrap();
    let again = new.commit(batch).unwrap();
    assert_eq!(again.events, first.events);
    // What follows builds on it, and the old connection sees that in turn.
    assert_eq!(seqs(&new.commit(author.notices(1)).unwrap().events), [3]);
    let last = old.commit(author.notices(1)).unwrap();
    assert_eq!(seqs(&last.events), [4]);
    assert_eq!(project.open().state, last.state);
}

#[test]
fn a_repeated_first_draft_with_another_rest_is_refused() {
    let project = Project::new();
    let (mut db, _) = project.start();
    let mut author = Author::new();
    let batch = author.notices(1);
    db.commit(batch.clone()).unwrap();
    let mut longer = batch;
    longer.extend(author.notices(1));
    let error = db.commit(longer).unwrap_err();
    assert!(matches!(error, StoreError::Other { .. }), "{error}");
    assert_eq!(seqs(&db.commit(author.notices(1)).unwrap().events), [2]);
}

#[test]
fn old_events_leave_the_database_and_stay_in_the_journal() {
    let project = Project::new();
    let (mut db, mut journal) = project.start();
    let mut author = Author::new();
    let mut first_id = None;
    for _ in 0..60 {
        let committed = db.commit(author.notices(100)).unwrap();
        first_id.get_or_insert(committed.events[0].id);
        journal.append(&committed).unwrap();
        db.maintain().unwrap();
    }
    assert!(db.kept() <= KEEP + SLACK + 100, "{} kept", db.kept());
    let mut reader = db.reader();
    let all = reader.events_since(first_id.unwrap(), usize::MAX).unwrap().unwrap();
    assert_eq!(all.iter().map(|line| line.seq).collect::<Vec<_>>(), (2..=6000).collect::<Vec<_>>());
    let page = reader.events_since(first_id.unwrap(), 10).unwrap().unwrap();
    assert_eq!(page.iter().map(|line| line.seq).collect::<Vec<_>>(), (2..=11).collect::<Vec<_>>());
    let state = db.state();
    db.close().unwrap();
    assert_eq!(project.open().state, state);
}

#[test]
fn without_housekeeping_commits_prune_at_a_second_bound() {
    let project = Project::new();
    let (mut db, _) = project.start();
    let mut author = Author::new();
    for _ in 0..50 {
        db.commit(author.notices(100)).unwrap();
    }
    assert!(db.kept() <= KEEP + HARD_SLACK, "{} kept", db.kept());
    assert_eq!(project.open().state, db.state());
}

#[test]
fn durability_decides_what_sqlite_syncs() {
    for (durability, expected) in [(Durability::Power, 2), (Durability::Process, 1)] {
        let project = Project::new();
        let options = crate::store::OpenOptions { durability, ..crate::store::testing::options() };
        let db = Db::open(&project.paths, options).unwrap().db;
        let value: i64 = db.conn.query_row("PRAGMA synchronous", [], |row| row.get(0)).unwrap();
        assert_eq!(value, expected, "{durability:?}");
        let mode: String = db.conn.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
        assert_eq!(mode, "wal");
    }
}

#[test]
fn a_reader_sees_what_is_committed_and_what_is_not_is_not_there() {
    let project = Project::new();
    let (mut db, _) = project.start();
    let mut author = Author::new();
    let mut reader = db.reader();
    assert_eq!(reader.state().unwrap().unwrap().seq, 0);
    let committed = db.commit(author.notices(3)).unwrap();
    assert_eq!(reader.state().unwrap().unwrap(), committed.state);
    let tail = reader.tail(2).unwrap();
    assert_eq!(tail.iter().map(|line| line.event().unwrap()).collect::<Vec<_>>(), committed.events[1..]);
    let unknown = author.notices(1)[0].id;
    assert_eq!(reader.events_since(unknown, 5).unwrap(), None);
}

#[test]
fn many_connections_commit_at_once_and_every_event_has_its_own_place() {
    let project = Project::new();
    project.start();
    std::thread::scope(|scope| {
        for n in 0..4u64 {
            let project = &project;
            scope.spawn(move || {
                let mut db = project.open().db;
                for k in 0..10 {
                    let id = EventId(ulid::Ulid::from_parts(n + 1, k + 1));
                    let mut draft = Author::new().draft(notice(0));
                    draft.id = id;
                    db.commit(vec![draft]).unwrap();
                }
            });
        }
    });
    assert_eq!(project.open().state.seq, 40);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Whatever is committed in whatever batches, with crashes, restarts and repetitions between them: the state that
    /// is found again is the fold of all events, and the journal alone rebuilds the same.
    #[test]
    fn state_is_the_fold_of_all_that_was_committed(
        steps in proptest::collection::vec((proptest::collection::vec(body(), 1..6), 0..5u8), 1..12)
    ) {
        let mut author = Author::new();
        let mut project = Project::new();
        let (mut db, mut journal) = project.start();
        let mut all: Vec<Event> = Vec::new();
        for (bodies, then) in steps {
            let batch = author.batch(bodies);
            let committed = db.commit(batch.clone()).unwrap();
            all.extend(committed.events.iter().cloned());
            // A crash before the line is written, or after it.
            if then != 1 {
                journal.append(&committed).unwrap();
            }
            match then {
                1 | 2 => {
                    let next = project.crashed();
                    drop((db, journal));
                    project = next;
                    (db, journal) = project.start();
                }
                3 => {
                    db.close().unwrap();
                    drop(journal);
                    (db, journal) = project.start();
                }
                4 => {
                    let again = db.commit(batch).unwrap();
                    prop_assert_eq!(again.events, committed.events);
                }
                _ => {}
            }
            let state = fold(&all);
            prop_assert_eq!(&*db.state(), &state);
            prop_assert_eq!(&*inspect(&project.paths).unwrap().state, &state);
        }
        let lines = read_after(&project.paths, 0, usize::MAX).unwrap();
        let written: Vec<Event> = lines.iter().map(|line| line.event().unwrap()).collect();
        prop_assert_eq!(&written, &all);

        drop((db, journal));
        std::fs::remove_file(&project.paths.state_db).unwrap();
        let opened = project.open();
        prop_assert!(opened.recovery.is_some());
        prop_assert_eq!(&*opened.state, &fold(&all));
    }
}
