use std::collections::BTreeSet;

use jiff::SignedDuration;
use proptest::prelude::*;

use super::*;
use crate::domain::event::{Body, Event};
use crate::store::testing::{Author, Project, noon, notice};
use crate::store::{Db, Follower, read_after};

/// Every line of every segment, in order, as it is on disk.
fn lines(paths: &StorePaths) -> Vec<EventLine> {
    let mut found = Vec::new();
    for segment in segments::all(paths).unwrap() {
        let content = fs::read_to_string(&segment.path).unwrap();
        assert!(content.ends_with('\n'), "{} ends in a line", segment.path.display());
        let parsed = content.lines().map(|line| EventLine::parse(line.to_owned()).unwrap());
        let parsed: Vec<_> = parsed.collect();
        assert!(parsed[0].snapshot, "{} begins with a snapshot", segment.path.display());
        found.extend(parsed);
    }
    found
}

/// Places of the events on disk.
fn places(paths: &StorePaths) -> Vec<u64> {
    lines(paths).iter().filter(|line| !line.snapshot).map(|line| line.seq).collect()
}

fn upto(last: u64) -> Vec<u64> {
    (1..=last).collect()
}

fn names(paths: &StorePaths) -> Vec<String> {
    let segments = segments::finished(paths).unwrap();
    segments.iter().map(|s| s.path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
}

fn catch_up(project: &Project, db: &mut Db) -> (Journal, u64) {
    let mut journal = Journal::new(project.paths.clone(), JournalLimits::default());
    let appended = journal.catch_up(&db.state(), db, noon()).unwrap();
    (journal, appended)
}

#[test]
fn midnight_rotates_and_neither_loses_nor_repeats_a_line() {
    let project = Project::new();
    let (mut db, mut journal) = project.start();
    let mut author = Author::new();
    author.now = "2026-08-22T23:59:55Z".parse().unwrap();
    for _ in 0..4 {
        journal.append(&db.commit(author.notices(3)).unwrap()).unwrap();
    }
    assert_eq!(names(&project.paths), ["events-2026-08-22-000000000001.jsonl"]);
    assert_eq!(places(&project.paths), upto(12));
    // The batch that began before midnight stays together.
    let today = fs::read_to_string(&project.paths.events).unwrap();
    let days: BTreeSet<&str> =
        today.lines().map(|line| &line[line.find("\"time\":\"").unwrap() + 8..][..10]).collect();
    assert_eq!(days, BTreeSet::from(["2026-08-23"]));
    // The snapshot is the state before the events that follow it.
    let first = today.lines().next().unwrap();
    let Some(Event { body: Body::Snapshot(state), seq, .. }) = crate::store::decode(first.as_bytes()) else {
        panic!("no snapshot: {first}");
    };
    assert_eq!((state.seq, seq), (6, 6));
}

#[test]
fn a_clock_that_steps_back_over_midnight_does_not_rotate() {
    let project = Project::new();
    let (mut db, mut journal) = project.start();
    let mut author = Author::new();
    for step in [-86_400i64, 86_400, -86_400] {
        author.now = author.now.checked_add(SignedDuration::from_secs(step)).unwrap();
        journal.append(&db.commit(author.notices(1)).unwrap()).unwrap();
    }
    assert_eq!((names(&project.paths).len(), places(&project.paths)), (0, upto(3)));
}

#[test]
fn size_rotates_and_the_cap_deletes_the_oldest() {
    let project = Project::new();
    let limits = JournalLimits { max_file: 2_000, max_total: 8_000 };
    let (mut db, mut journal) = project.start_with(limits);
    let mut author = Author::new();
    for _ in 0..200 {
        journal.append(&db.commit(author.notices(2)).unwrap()).unwrap();
        let sizes: Vec<u64> = segments::all(&project.paths).unwrap().iter().map(|s| s.bytes).collect();
        assert!(sizes.iter().all(|&size| size <= 2_000), "{sizes:?}");
        assert!(sizes.iter().sum::<u64>() <= 8_000 + 2_000, "{sizes:?}");
    }
    let found = places(&project.paths);
    assert_eq!(found, (found[0]..=400).collect::<Vec<_>>());
    assert!(found[0] > 300, "old segments are gone");
    let state = db.state();
    db.close().unwrap();
    fs::remove_file(&project.paths.state_db).unwrap();
    assert_eq!(project.open().state, state, "what is left rebuilds everything");
}

#[test]
fn a_torn_last_line_is_completed_wherever_it_was_cut() {
    let project = Project::new();
    let (mut db, mut journal) = project.start();
    let mut author = Author::new();
    journal.append(&db.commit(author.notices(2)).unwrap()).unwrap();
    let before = fs::read(&project.paths.events).unwrap();
    journal.append(&db.commit(author.notices(2)).unwrap()).unwrap();
    drop(journal);
    let whole = fs::read(&project.paths.events).unwrap();
    for cut in before.len()..=whole.len() {
        fs::write(&project.paths.events, &whole[..cut]).unwrap();
        catch_up(&project, &mut db);
        assert_eq!(fs::read(&project.paths.events).unwrap(), whole, "cut at {cut}");
    }
}

#[test]
fn a_torn_line_that_was_never_committed_is_cut() {
    let project = Project::new();
    let (mut db, mut journal) = project.start();
    let mut author = Author::new();
    journal.append(&db.commit(author.notices(2)).unwrap()).unwrap();
    drop(journal);
    let whole = fs::read(&project.paths.events).unwrap();
    for torn in [&b"{\"id\":\"01"[..], &[0; 5000], b"\xff\xfe"] {
        fs::write(&project.paths.events, [&whole[..], torn].concat()).unwrap();
        let (mut journal, appended) = catch_up(&project, &mut db);
        assert_eq!((fs::read(&project.paths.events).unwrap(), appended), (whole.clone(), 0));
        drop(journal.append(&db.commit(Vec::new()).unwrap()));
    }
}

#[test]
fn commits_that_the_crash_kept_from_the_journal_are_appended_at_the_next_start() {
    let project = Project::new();
    let (mut db, mut journal) = project.start();
    let mut author = Author::new();
    journal.append(&db.commit(author.notices(2)).unwrap()).unwrap();
    db.commit(author.notices(700)).unwrap();
    drop(journal);
    let (mut journal, appended) = catch_up(&project, &mut db);
    assert_eq!((appended, places(&project.paths)), (700, upto(702)));
    journal.append(&db.commit(author.notices(1)).unwrap()).unwrap();
    assert_eq!(places(&project.paths), upto(703));
}

#[test]
fn a_rotation_that_was_cut_between_any_two_steps_is_finished_or_undone() {
    let project = Project::new();
    let (mut db, mut journal) = project.start();
    let mut author = Author::new();
    journal.append(&db.commit(author.notices(3)).unwrap()).unwrap();
    drop(journal);
    author.now = author.now.checked_add(SignedDuration::from_hours(24)).unwrap();
    let paths = &project.paths;
    let mut snapshot = Vec::new();
    snapshot_line(&db.state(), author.now, &mut snapshot).unwrap();
    // Killed while, and after, the next segment was written; before the old one is moved.
    for part in [0, snapshot.len() / 2, snapshot.len()] {
        fs::write(paths.next_events(), &snapshot[..part]).unwrap();
        catch_up(&project, &mut db);
        assert!(!paths.next_events().exists());
        assert_eq!((names(paths).len(), places(paths)), (0, upto(3)));
    }
    // Killed after the old one was moved.
    fs::create_dir_all(&paths.logs).unwrap();
    fs::write(paths.next_events(), &snapshot).unwrap();
    fs::rename(&paths.events, segments::finished_path(paths, noon(), 1)).unwrap();
    assert_eq!(segments::last_seq(paths).unwrap(), 3, "a reader in between sees everything");
    assert_eq!(places(paths), upto(3));
    // The commit that had caused the rotation was not written yet.
    db.commit(author.notices(2)).unwrap();
    catch_up(&project, &mut db);
    assert_eq!((names(paths).len(), places(paths)), (1, upto(5)));
    // And a next segment that cannot be used: the events go to the last one there is.
    fs::rename(&paths.events, segments::finished_path(paths, author.now, 4)).unwrap();
    fs::write(paths.next_events(), &snapshot[..9]).unwrap();
    db.commit(author.notices(2)).unwrap();
    catch_up(&project, &mut db);
    assert_eq!(places(paths), upto(7));
}

#[test]
fn a_deleted_journal_is_written_anew_from_the_database() {
    let project = Project::new();
    let (mut db, mut journal) = project.start();
    let mut author = Author::new();
    journal.append(&db.commit(author.notices(5)).unwrap()).unwrap();
    drop(journal);
    fs::remove_file(&project.paths.events).unwrap();
    let (_, appended) = catch_up(&project, &mut db);
    assert_eq!((appended, places(&project.paths)), (5, upto(5)));
}

#[test]
fn a_file_deleted_under_the_running_session_is_put_back() {
    let project = Project::new();
    let (mut db, mut journal) = project.start();
    let mut author = Author::new();
    let first = db.commit(author.notices(5)).unwrap();
    assert_eq!(journal.append(&first).unwrap(), None);
    fs::remove_dir_all(&project.paths.dir).unwrap();
    let second = db.commit(author.notices(1)).unwrap();
    assert_eq!(journal.append(&second).unwrap(), Some("events.jsonl"));
    assert_eq!(journal.append(&db.commit(author.notices(1)).unwrap()).unwrap(), None);
    assert_eq!(places(&project.paths), upto(7));
    // Somebody else's file of that name is not lost.
    fs::remove_file(&project.paths.events).unwrap();
    fs::write(&project.paths.events, "mine\n").unwrap();
    journal.append(&db.commit(author.notices(1)).unwrap()).unwrap();
    assert_eq!(places(&project.paths), upto(8));
    let kept = fs::read_dir(&project.paths.dir).unwrap().map(|e| e.unwrap().path());
    let kept: Vec<_> = kept.filter(|path| path.to_str().unwrap().contains("replaced")).collect();
    assert_eq!(fs::read_to_string(&kept[0]).unwrap(), "mine\n");
}

#[test]
fn a_gap_that_the_database_cannot_fill_begins_a_segment_that_rebuilds_everything() {
    let project = Project::new();
    let (mut db, mut journal) = project.start();
    let mut author = Author::new();
    journal.append(&db.commit(author.notices(5)).unwrap()).unwrap();
    drop(journal);
    for _ in 0..50 {
        db.commit(author.notices(100)).unwrap();
        db.maintain().unwrap();
    }
    let (mut journal, _) = catch_up(&project, &mut db);
    journal.append(&db.commit(author.notices(2)).unwrap()).unwrap();
    let state = db.state();
    assert_eq!(state.seq, 5007);
    db.close().unwrap();
    fs::remove_file(&project.paths.state_db).unwrap();
    let opened = project.open();
    assert_eq!(opened.state, state);
    assert!(!opened.recovery.unwrap().lag.contains("missing"));
}

#[test]
fn garbage_in_place_of_the_journal_is_kept_aside() {
    let project = Project::new();
    let (mut db, journal) = project.start();
    drop(journal);
    db.commit(Author::new().notices(2)).unwrap();
    fs::write(&project.paths.events, "no journal\nat all").unwrap();
    catch_up(&project, &mut db);
    assert_eq!(places(&project.paths), upto(2));
    let kept = project.paths.dir.join("events.jsonl.corrupt-20260822T120000Z");
    assert_eq!(fs::read_to_string(kept).unwrap(), "no journal\nat all");
}

#[test]
fn a_batch_is_not_written_twice_and_one_after_a_gap_waits() {
    let project = Project::new();
    let (mut db, mut journal) = project.start();
    let mut author = Author::new();
    let first = db.commit(author.notices(2)).unwrap();
    journal.append(&first).unwrap();
    journal.append(&first).unwrap();
    assert_eq!(places(&project.paths), upto(2));
    db.commit(author.notices(1)).unwrap();
    let third = db.commit(author.notices(1)).unwrap();
    journal.append(&third).unwrap();
    assert!(journal.is_behind());
    assert_eq!(places(&project.paths), upto(2));
    journal.catch_up(&db.state(), &mut db, noon()).unwrap();
    assert_eq!((journal.is_behind(), journal.last(), places(&project.paths)), (false, 4, upto(4)));
}

#[test]
fn a_failed_write_is_caught_up_later() {
    let project = Project::new();
    let (mut db, mut journal) = project.start();
    let mut author = Author::new();
    journal.append(&db.commit(author.notices(2)).unwrap()).unwrap();
    // A file that cannot be written stands for a full disk.
    let full = File::options().write(true).open("/dev/full").unwrap();
    let id = FileId::of(&project.paths.events).unwrap().unwrap();
    journal.out.as_mut().unwrap().file = full;
    journal.out.as_mut().unwrap().id = id;
    let lost = db.commit(author.notices(2)).unwrap();
    assert_eq!(journal.append(&lost).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert!(journal.is_behind());
    assert_eq!(journal.append(&db.commit(author.notices(1)).unwrap()).unwrap(), None);
    journal.catch_up(&db.state(), &mut db, noon()).unwrap();
    assert_eq!(places(&project.paths), upto(5));
}

#[derive(Debug, Clone)]
enum Step {
    Commit(usize),
    /// Committed, and killed before the line was written or in the middle of it.
    Tear(f64),
    NextDay,
    Poll,
    Read,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..4usize).prop_map(Step::Commit),
        1 => (0.0..=1.0f64).prop_map(Step::Tear),
        1 => Just(Step::NextDay),
        2 => Just(Step::Poll),
        1 => Just(Step::Read),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever happens between two polls, a follower yields every event once and in order; and so does the journal.
    #[test]
    fn followers_and_files_have_every_event_once(
        steps in proptest::collection::vec(step(), 1..40), max_file in 600..4000u64
    ) {
        let project = Project::new();
        let limits = JournalLimits { max_file, ..JournalLimits::default() };
        let (mut db, mut journal) = project.start_with(limits);
        let mut author = Author::new();
        let mut follower = Follower::new(project.paths.clone(), 0);
        let mut followed = Vec::new();
        let mut poll = |follower: &mut Follower| {
            loop {
                let new = follower.poll().unwrap();
                if new.is_empty() { break }
                followed.extend(new.iter().map(|line| line.seq));
            }
        };
        for step in steps {
            match step {
                Step::Commit(n) => {
                    journal.append(&db.commit(author.notices(n)).unwrap()).unwrap();
                }
                Step::Tear(at) => {
                    let committed = db.commit(author.notices(2)).unwrap();
                    let part = (committed.lines.len() as f64 * at) as usize;
                    let mut file = File::options().append(true).open(&project.paths.events).unwrap();
                    file.write_all(&committed.lines.as_bytes()[..part]).unwrap();
                    poll(&mut follower);
                    drop(journal);
                    journal = Journal::new(project.paths.clone(), limits);
                    journal.catch_up(&db.state(), &mut db, author.now).unwrap();
                }
                Step::NextDay => author.now = author.now.checked_add(SignedDuration::from_hours(24)).unwrap(),
                Step::Poll => poll(&mut follower),
                Step::Read => {
                    let middle = db.state().seq / 2;
                    let read = read_after(&project.paths, middle, usize::MAX).unwrap();
                    let read: Vec<u64> = read.iter().map(|line| line.seq).collect();
                    prop_assert_eq!(read, (middle + 1..=db.state().seq).collect::<Vec<_>>());
                }
            }
        }
        poll(&mut follower);
        let last = db.state().seq;
        prop_assert_eq!(followed, upto(last));
        prop_assert_eq!(places(&project.paths), upto(last));
    }
}

#[test]
fn a_follower_begins_where_it_is_told_and_survives_a_replaced_file() {
    let project = Project::new();
    let (mut db, mut journal) = project.start();
    let mut author = Author::new();
    journal.append(&db.commit(author.notices(4)).unwrap()).unwrap();
    let mut late = Follower::from_now(project.paths.clone()).unwrap();
    let mut early = Follower::new(project.paths.clone(), 2);
    let seqs = |lines: Vec<EventLine>| lines.iter().map(|line| line.seq).collect::<Vec<_>>();
    assert_eq!((seqs(early.poll().unwrap()), seqs(late.poll().unwrap())), (vec![3, 4], vec![]));
    fs::remove_dir_all(&project.paths.dir).unwrap();
    assert!(late.poll().unwrap().is_empty());
    journal.append(&db.commit(vec![author.draft(notice(5))]).unwrap()).unwrap();
    assert_eq!((seqs(early.poll().unwrap()), seqs(late.poll().unwrap())), (vec![5], vec![5]));
    assert_eq!(late.last(), 5);
}

#[test]
fn a_follower_and_a_reader_beside_the_writer_miss_nothing_while_it_rotates() {
    let project = Project::new();
    let limits = JournalLimits { max_file: 2_000, ..JournalLimits::default() };
    let (mut db, mut journal) = project.start_with(limits);
    const EVENTS: u64 = 1_500;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut follower = Follower::new(project.paths.clone(), 0);
            let mut seen = Vec::new();
            while seen.last() != Some(&EVENTS) {
                seen.extend(follower.poll().unwrap().iter().map(|line| line.seq));
            }
            let missing = upto(EVENTS).into_iter().find(|n| !seen.contains(n));
            assert_eq!((missing, seen.len()), (None, EVENTS as usize));
        });
        scope.spawn(|| {
            let mut last = 0;
            while last < EVENTS {
                let read = read_after(&project.paths, last.saturating_sub(5), usize::MAX).unwrap();
                let read: Vec<u64> = read.iter().map(|line| line.seq).collect();
                let expected = last.saturating_sub(5) + 1;
                assert_eq!(read, (expected..expected + read.len() as u64).collect::<Vec<_>>());
                last = read.last().copied().unwrap_or(last);
            }
        });
        let mut author = Author::new();
        for _ in 0..EVENTS {
            journal.append(&db.commit(author.notices(1)).unwrap()).unwrap();
        }
    });
}
