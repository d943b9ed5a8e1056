//! Processes are played by connections; those of the dead by leases that name no living process.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::domain::accounts::{Lesson, Outage};

const ID: &str = "claude:1";

fn at(second: i64) -> Timestamp {
    Timestamp::new(1_800_000_000 + second, 123_456_789).unwrap()
}

fn open(home: &Path) -> HostDb {
    HostDb::open(home, /* make */ true, at(0)).unwrap().0.unwrap()
}

fn limit(until: i64) -> Lesson {
    Lesson::Out(Outage { until: Some(at(until)), why: "usage_limited".into(), stated: true })
}

fn learn(db: &mut HostDb, lesson: &Lesson, now: i64) {
    let me = db.holder(Path::new("/p")).unwrap();
    db.change(at(now), |known| ((), known.learn(ID, lesson, &me, at(now)))).unwrap();
}

fn lend(db: &mut HostDb, holder: &Holder, expiry: i64) {
    let lease = Lease { holder: holder.clone(), expiry: at(expiry) };
    db.change(at(0), |_| ((), vec![Change::Lease(ID.into(), lease)])).unwrap();
}

#[test]
fn what_one_learns_all_know() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path().join("not/yet/there");
    assert!(HostDb::open(&home, /* make */ false, at(0)).unwrap().0.is_none());
    assert!(!home.exists(), "looking makes nothing");
    let (mut one, mut other) = (open(&home), open(&home));
    assert_eq!(other.look(at(3)).unwrap(), &HostAccounts::default());
    learn(&mut one, &limit(100), 1);
    let record = &other.look(at(3)).unwrap().records[ID];
    assert_eq!((record.account.until, record.stated, record.since), (Some(at(100)), true, at(1)));
    assert_eq!((record.account.why.as_str(), record.account.times), ("usage_limited", 1));
    learn(&mut other, &Lesson::Works, 2);
    assert!(!one.look(at(3)).unwrap().records[ID].account.out);
    drop((one, other));
    assert!(!open(&home).look(at(3)).unwrap().records[ID].account.out);
    let mode = fs::metadata(home.join(HOST_DB)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mode = fs::metadata(&home).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn leases_end_with_their_process_or_their_time() {
    let home = tempfile::tempdir().unwrap();
    let mut db = open(home.path());
    let me = db.holder(Path::new("/p")).unwrap();
    let later = Holder { start_time: me.start_time + 1, ..me.clone() };
    let unseen = Holder { space: "another container".into(), ..later.clone() };
    for (holder, holds) in [(&me, true), (&later, false), (&unseen, true)] {
        lend(&mut db, holder, 100);
        assert_eq!(db.look(at(99)).unwrap().leases.contains_key(ID), holds, "{holder:?}");
        assert!(!db.look(at(100)).unwrap().leases.contains_key(ID), "its time is over");
    }
}

#[test]
fn a_damaged_one_is_kept_aside_and_begun_anew() {
    let garbage: [&[u8]; 2] = [b"{\"status\": \"runn", &[0x5a; 40_000]];
    for bytes in garbage {
        let home = tempfile::tempdir().unwrap();
        learn(&mut open(home.path()), &limit(100), 1);
        fs::write(home.path().join(HOST_DB), bytes).unwrap();
        let (db, replaced) = HostDb::open(home.path(), /* make */ true, at(0)).unwrap();
        let replaced = replaced.unwrap();
        assert_eq!(fs::read(&replaced.kept_as).unwrap(), bytes);
        assert!(db.unwrap().look(at(3)).unwrap().records.is_empty());
        let (_, again) = HostDb::open(home.path(), true, at(0)).unwrap();
        assert_eq!(again, None);
    }
    let home = tempfile::tempdir().unwrap();
    drop(open(home.path()));
    let conn = connect::scratch(&home.path().join(HOST_DB)).unwrap();
    conn.execute_batch("DROP TABLE leases").unwrap();
    drop(conn);
    assert!(HostDb::open(home.path(), true, at(0)).unwrap().1.is_some(), "a table is missing");
}

#[test]
fn a_half_made_one_is_finished() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join(HOST_DB), b"").unwrap();
    let (db, replaced) = HostDb::open(home.path(), true, at(0)).unwrap();
    assert_eq!(replaced, None);
    learn(&mut db.unwrap(), &limit(100), 1);
}

#[test]
fn what_a_newer_version_wrote_is_left_alone() {
    let home = tempfile::tempdir().unwrap();
    drop(open(home.path()));
    let conn = connect::scratch(&home.path().join(HOST_DB)).unwrap();
    conn.pragma_update(None, "user_version", CURRENT + 1).unwrap();
    drop(conn);
    for _ in 0..2 {
        assert!(matches!(HostDb::open(home.path(), true, at(0)), Err(StoreError::Newer { .. })));
    }
}

#[test]
fn a_deleted_file_is_noticed() {
    let home = tempfile::tempdir().unwrap();
    let db = open(home.path());
    assert!(db.is_linked());
    fs::remove_file(home.path().join(HOST_DB)).unwrap();
    assert!(!db.is_linked());
    drop(open(home.path()));
    assert!(!db.is_linked(), "another file of that name");
}

#[test]
fn sixteen_at_once_open_a_new_one() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| learn(&mut open(home), &limit(100), 1));
        }
    });
    assert_eq!(open(home).look(at(3)).unwrap().records[ID].account.times, 16);
}
