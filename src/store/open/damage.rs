//! Damage of every kind, anywhere: the state is exactly right or the damage is reported.

use std::os::unix::fs::FileExt;

use proptest::prelude::*;

use super::tests::{edit, flip, open, story};
use super::*;
use crate::store::testing::{Project, noon};
use crate::store::{Journal, JournalLimits};

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
fn another_number_in_the_state_is_found() {
    let (project, state) = story(3, true);
    edit(&project, r#"UPDATE state SET doc = replace(doc, '"delivered":', '"delivered":1')"#);
    assert_recovers(&project, &state, "another number");
}

#[test]
fn an_index_that_does_not_lead_to_its_event_is_found() {
    let (project, state) = story(3, true);
    let bytes = fs::read(&project.paths.state_db).unwrap();
    let id = segments::read_after(&project.paths, 4, 1).unwrap()[0].id.0.to_bytes();
    let places = bytes.windows(16).enumerate().filter(|(_, window)| *window == id).map(|(at, _)| at);
    // Leaves of an index begin with 10 (https://sqlite.org/fileformat2.html#b_tree_pages).
    let in_index: Vec<usize> = places.filter(|at| bytes[at / 4096 * 4096] == 10).collect();
    assert_eq!(in_index.len(), 1);
    flip(&project.paths.state_db, in_index[0] as u64 + 9, 1);
    assert_recovers(&project, &state, "index");
}

#[test]
fn a_damaged_version_is_not_taken_for_a_later_one() {
    let (project, state) = story(3, true);
    edit(&project, "UPDATE meta SET value = '7' WHERE key = 'schema'");
    assert_recovers(&project, &state, "meta");
    edit(&project, "PRAGMA user_version = 7");
    assert_recovers(&project, &state, "header");
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
