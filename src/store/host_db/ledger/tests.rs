//! Processes are played by connections; those of the dead by holders that name no living process.

use std::path::Path;

use jiff::SignedDuration;
use ulid::Ulid;

use super::*;
use crate::domain::ids::{EventId, LaneId};
use crate::domain::ledger::{Booking, Call, WindowLimits};
use crate::domain::money::MicroUsd;

fn noon() -> Timestamp {
    "2026-11-30T12:00:00Z".parse().unwrap()
}

fn later(seconds: i64) -> Timestamp {
    noon() + SignedDuration::from_secs(seconds)
}

fn usd(dollars: f64) -> MicroUsd {
    MicroUsd::from_usd(dollars).unwrap()
}

fn open(home: &Path) -> HostDb {
    HostDb::open(home, /* make */ true, noon()).unwrap().0.unwrap()
}

fn holder(db: &HostDb, project: &str) -> Holder {
    db.holder(Path::new(project)).unwrap()
}

/// Its process has ended.
fn dead(db: &HostDb, project: &str) -> Holder {
    let living = holder(db, project);
    Holder { start_time: living.start_time + 1, ..living }
}

fn session(of: &Holder) -> SessionId {
    SessionId(Ulid::from_parts(1, of.project.bytes().map(u128::from).sum()))
}

fn call(holder: &Holder, number: u64) -> Call {
    let token = Token(Ulid::from_parts(1000 + number, session(holder).0.random()));
    Call { token, session: session(holder), lane: LaneId(1), iteration: number, attempt: 1 }
}

fn a_day_of(limit: f64) -> WindowLimits {
    WindowLimits { day: Some(usd(limit)), ..WindowLimits::default() }
}

fn ask(holder: &Holder, number: u64, amount: f64, limits: WindowLimits) -> Reservation {
    Reservation { call: call(holder, number), usd: usd(amount), limits, ended: None }
}

fn reserve(db: &mut HostDb, holder: &Holder, ask: &Reservation, now: Timestamp) -> Money {
    let zone = TimeZone::UTC;
    let caller =
        Caller { holder, provider: "claude", account: Some("claude:1"), rehearsed: false, zone: &zone };
    db.reserve(caller, ask, now).unwrap()
}

fn fits(money: &Money) -> bool {
    matches!(money, Money::Reserved { .. })
}

fn ended(holder: &Holder, number: u64, cost: Option<f64>) -> Booking {
    Booking {
        call: call(holder, number),
        provider: "claude".into(),
        began: noon(),
        ended: later(60),
        cost: cost.map(usd),
        unknown: cost.is_none(),
    }
}

/// Books as the project's journal tells it.
fn book(db: &mut HostDb, holder: &Holder, bookings: Vec<Booking>) {
    let mark = Some(Mark { seq: 7, id: EventId(Ulid::from_parts(7, 7)) });
    db.book(holder, &Found { bookings, mark }, None, |_| (None, false), later(61)).unwrap();
    assert_eq!(db.booked(&holder.project).unwrap(), mark);
}

fn today(db: &HostDb) -> (f64, f64, u64, u64) {
    shown(db.tally(Window::Day, "/a", &TimeZone::UTC, later(61)).unwrap())
}

fn shown(tally: Tally) -> (f64, f64, u64, u64) {
    (tally.spent.as_usd(), tally.reserved.as_usd(), tally.calls, tally.unknown_calls)
}

#[test]
fn a_call_that_does_not_fit_is_refused_with_what_stands_in_the_way() {
    let home = tempfile::tempdir().unwrap();
    let (mut db, mut other) = (open(home.path()), open(home.path()));
    let (a, b) = (holder(&db, "/a"), holder(&db, "/b"));
    assert!(fits(&reserve(&mut db, &a, &ask(&a, 1, 0.6, a_day_of(1.0)), noon())));
    let refused = reserve(&mut other, &b, &ask(&b, 1, 0.6, a_day_of(1.0)), noon());
    let Money::Exceeded(exceeded) = refused else { panic!("{refused:?}") };
    assert_eq!(
        (exceeded.of.reserved, exceeded.of.spent, exceeded.next),
        (usd(0.6), MicroUsd::ZERO, usd(0.6))
    );
    assert_eq!(exceeded.of.resets_at, Some("2026-12-01T00:00:00Z".parse().unwrap()));
    assert_eq!(today(&db), (0.0, 0.6, 1, 0), "what was refused is not written");
    // What it really cost leaves room.
    book(&mut db, &a, vec![ended(&a, 1, Some(0.2))]);
    assert!(fits(&reserve(&mut other, &b, &ask(&b, 1, 0.6, a_day_of(1.0)), later(70))));
    assert_eq!(today(&db), (0.2, 0.6, 2, 0));
}

#[test]
fn a_database_of_the_first_version_gets_a_ledger() {
    let home = tempfile::tempdir().unwrap();
    drop(std::fs::File::create(home.path().join(super::super::HOST_DB)).unwrap());
    let conn = crate::store::connect::scratch(&home.path().join(super::super::HOST_DB)).unwrap();
    conn.execute_batch(super::super::MIGRATIONS[0]).unwrap();
    conn.pragma_update(None, "user_version", 1).unwrap();
    drop(conn);
    let mut db = open(home.path());
    let a = holder(&db, "/a");
    assert!(fits(&reserve(&mut db, &a, &ask(&a, 1, 0.6, a_day_of(1.0)), noon())));
    assert_eq!(today(&db), (0.0, 0.6, 1, 0));
}

#[test]
fn to_ask_twice_sets_aside_once() {
    let home = tempfile::tempdir().unwrap();
    let mut db = open(home.path());
    let a = holder(&db, "/a");
    let first = ask(&a, 1, 0.6, a_day_of(1.0));
    let told = reserve(&mut db, &a, &first, noon());
    assert_eq!(reserve(&mut db, &a, &first, noon()), told, "its answer was lost");
    // Nothing came of that, and the same attempt is asked for under another token.
    let mut again = first.clone();
    again.call.token = Token(Ulid::from_parts(5000, 1));
    assert!(fits(&reserve(&mut db, &a, &again, noon())));
    assert_eq!(today(&db), (0.0, 0.6, 1, 0));
    db.release(again.call.token).unwrap();
    assert_eq!(today(&db), (0.0, 0.0, 0, 0));
}

#[test]
fn an_end_is_booked_once_and_the_journal_has_the_last_word() {
    let home = tempfile::tempdir().unwrap();
    let mut db = open(home.path());
    let a = holder(&db, "/a");
    reserve(&mut db, &a, &ask(&a, 1, 0.6, a_day_of(10.0)), noon());
    // With the next question, before it is committed.
    let next = Reservation { ended: Some(ended(&a, 1, Some(0.9))), ..ask(&a, 2, 0.6, a_day_of(10.0)) };
    for _ in 0..2 {
        reserve(&mut db, &a, &next, later(61));
        assert_eq!(today(&db), (0.9, 0.6, 2, 0));
    }
    for (told, spent) in [(Some(0.7), 0.7), (Some(5.0), 0.7)] {
        book(&mut db, &a, vec![ended(&a, 1, told)]);
        assert_eq!(today(&db), (spent, 0.6, 2, 0), "{told:?}");
    }
    reserve(&mut db, &a, &next, later(62));
    assert_eq!(today(&db), (0.7, 0.6, 2, 0));
    // Calls that nobody had asked for, one of them of unknown cost.
    book(&mut db, &a, vec![ended(&a, 3, Some(0.1)), ended(&a, 4, None)]);
    assert_eq!(today(&db), (0.8, 0.6, 4, 1));
}

#[test]
fn what_the_dead_had_set_aside_is_booked_by_whoever_looks_next() {
    let home = tempfile::tempdir().unwrap();
    let mut db = open(home.path());
    let (gone, b) = (dead(&db, "/a"), holder(&db, "/b"));
    reserve(&mut db, &gone, &ask(&gone, 1, 0.6, a_day_of(1.0)), noon());
    assert_eq!(today(&db), (0.6, 0.0, 1, 1), "to look changes nothing, and counts it as spent");
    let refused = reserve(&mut db, &b, &ask(&b, 1, 0.6, a_day_of(1.0)), later(5));
    let Money::Exceeded(exceeded) = refused else { panic!("{refused:?}") };
    assert!(exceeded.is_used_up() && exceeded.of.spent == usd(0.6), "{exceeded:?}");
    assert_eq!(today(&db), (0.6, 0.0, 1, 1));
    // Its own session knows better when it is back.
    book(&mut db, &gone, vec![ended(&gone, 1, Some(0.25))]);
    assert_eq!(today(&db), (0.25, 0.0, 1, 0));
}

#[test]
fn a_call_is_over_when_its_host_was_started_again() {
    let home = tempfile::tempdir().unwrap();
    let mut db = open(home.path());
    let living = holder(&db, "/a");
    let (boot, pids) = living.space.split_once(' ').unwrap();
    let table = [
        (living.space.clone(), 0, false),
        (format!("another-boot {pids}"), 0, true),
        // A container whose processes are not seen from here.
        (format!("{boot} pid:[1]"), 3600, false),
        (format!("{boot} pid:[1]"), 25 * 3600, true),
    ];
    for (number, (space, age, is_dead)) in (1..).zip(table) {
        let project = format!("/{number}");
        let of = Holder { space, project: project.clone(), ..living.clone() };
        let limits = WindowLimits { project: Some(usd(100.0)), ..WindowLimits::default() };
        reserve(&mut db, &of, &ask(&of, number, 1.0, limits), noon());
        let tally = db.tally(Window::Project, &project, &TimeZone::UTC, later(age)).unwrap();
        assert_eq!(tally.reserved == MicroUsd::ZERO, is_dead, "{of:?}");
    }
}

#[test]
fn what_led_to_no_call_is_forgotten() {
    let home = tempfile::tempdir().unwrap();
    let mut db = open(home.path());
    let (gone, me) = (dead(&db, "/a"), holder(&db, "/a"));
    let limits = a_day_of(10.0);
    for (number, of) in [(1, &gone), (2, &gone), (3, &me), (4, &me)] {
        reserve(&mut db, of, &ask(of, number, 1.0, limits), noon());
    }
    // Those of the dead are booked by now. The journal knows of one of them, and of one that this process makes.
    let open = |number| Some(call(&me, number).token);
    let known = |closing, number| Some(Known { session: session(&me), open: open(number), closing });
    let nothing = Found::default();
    db.book(&me, &nothing, known(false, 1), |_| (None, false), later(1)).unwrap();
    assert_eq!(today(&db), (1.0, 2.0, 3, 1));
    db.book(&me, &nothing, known(true, 4), |_| (None, false), later(1)).unwrap();
    assert_eq!(today(&db), (0.0, 1.0, 1, 0), "no call begins any more: only the one that is open counts");
    // Another session's calls are not judged by what this one knows.
    let other = Some(Known { session: SessionId(Ulid::from_parts(9, 9)), open: None, closing: true });
    db.book(&me, &nothing, other, |_| (None, false), later(1)).unwrap();
    assert_eq!(today(&db), (0.0, 1.0, 1, 0));
}

#[test]
fn windows_count_what_began_in_them() {
    let home = tempfile::tempdir().unwrap();
    let mut db = open(home.path());
    let (a, b) = (holder(&db, "/a"), holder(&db, "/b"));
    let at = |text: &str| text.parse::<Timestamp>().unwrap();
    let began = |holder: &Holder, number, time: &str| Booking {
        began: at(time),
        ended: at(time) + SignedDuration::from_hours(2),
        ..ended(holder, number, Some(1.0))
    };
    let calls = ["2026-11-01T00:30:00Z", "2026-11-29T23:30:00Z", "2026-11-30T00:00:00Z"];
    book(&mut db, &a, (1..).zip(calls).map(|(number, time)| began(&a, number, time)).collect());
    book(&mut db, &b, vec![began(&b, 9, "2026-11-30T11:00:00Z")]);
    let spent = |window, project: &str, zone: &TimeZone| {
        db.tally(window, project, zone, noon()).unwrap().spent.as_usd()
    };
    let berlin = jiff::tz::TimeZoneDatabase::bundled().get("Europe/Berlin").unwrap();
    let new_york = jiff::tz::TimeZoneDatabase::bundled().get("America/New_York").unwrap();
    assert_eq!(
        (spent(Window::Day, "/a", &TimeZone::UTC), spent(Window::Month, "/a", &TimeZone::UTC)),
        (2.0, 4.0)
    );
    assert_eq!(spent(Window::Day, "/a", &berlin), 3.0, "half past midnight there");
    assert_eq!(spent(Window::Month, "/a", &new_york), 3.0, "that was still October there");
    assert_eq!((spent(Window::Project, "/a", &berlin), spent(Window::Project, "/b", &berlin)), (3.0, 1.0));
    assert_eq!(spent(Window::Project, "/c", &berlin), 0.0);
    let lines = db.lines(Window::Month, &TimeZone::UTC, noon()).unwrap();
    let projects: Vec<&str> = lines.iter().map(|line| line.project.as_str()).collect();
    assert_eq!(projects, ["/a", "/a", "/a", "/b"]);
}

#[test]
fn rehearsed_money_is_kept_apart() {
    let home = tempfile::tempdir().unwrap();
    let mut db = open(home.path());
    let a = holder(&db, "/a");
    let zone = TimeZone::UTC;
    let caller = Caller { holder: &a, provider: "rehearsal", account: None, rehearsed: true, zone: &zone };
    let limits = a_day_of(1.0);
    assert!(fits(&db.reserve(caller, &ask(&a, 1, 0.6, limits), noon()).unwrap()));
    assert!(!fits(&db.reserve(caller, &ask(&a, 2, 0.6, limits), noon()).unwrap()), "limits can be rehearsed");
    assert_eq!(today(&db), (0.0, 0.0, 0, 0));
    let found = Found { bookings: vec![ended(&a, 1, Some(0.1)), ended(&a, 3, Some(0.1))], mark: None };
    db.book(&a, &found, None, |_| (None, true), later(61)).unwrap();
    assert_eq!(today(&db), (0.0, 0.0, 0, 0));
    assert!(db.lines(Window::Month, &zone, noon()).unwrap().is_empty());
    assert!(fits(&db.reserve(caller, &ask(&a, 2, 0.6, limits), later(62)).unwrap()));
}

#[test]
fn the_largest_amounts_do_no_harm() {
    let home = tempfile::tempdir().unwrap();
    let mut db = open(home.path());
    let a = holder(&db, "/a");
    book(&mut db, &a, (1..40).map(|number| ended(&a, number, Some(1e300))).collect());
    assert!(!fits(&reserve(&mut db, &a, &ask(&a, 99, 0.01, a_day_of(1e9)), later(61))));
}

#[test]
fn who_asks_at_once_stays_below_the_limit_together() {
    const LIMIT: f64 = 10.0;
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    drop(open(home));
    std::thread::scope(|scope| {
        for who in 0..6_u64 {
            scope.spawn(move || {
                let mut db = open(home);
                let me = holder(&db, &format!("/{who}"));
                let mut last = None;
                for number in 1..60 {
                    let amount = 0.05 * (1 + (number * 7 + who) % 9) as f64;
                    let ask =
                        Reservation { ended: last.clone(), ..ask(&me, number, amount, a_day_of(LIMIT)) };
                    let money = reserve(&mut db, &me, &ask, noon());
                    let Money::Reserved { windows, .. } = &money else { break };
                    assert!(windows[0].spent.plus(windows[0].reserved).plus(ask.usd) <= usd(LIMIT));
                    // A little cheaper than expected.
                    let cost = ask.usd.as_usd() * 0.9;
                    last = Some(Booking { began: noon(), ..ended(&me, number, Some(cost)) });
                }
            });
        }
    });
    let db = open(home);
    let tally = db.tally(Window::Day, "/0", &TimeZone::UTC, noon()).unwrap();
    assert!(tally.spent.plus(tally.reserved) <= usd(LIMIT), "{tally:?}");
    assert!(tally.spent > usd(LIMIT * 0.7), "it is used all the same: {tally:?}");
}

#[test]
fn a_look_by_another_process_takes_no_call_of_the_living_away() {
    let home = tempfile::tempdir().unwrap();
    let mut db = open(home.path());
    let living = holder(&db, "/a");
    let looks = Holder { pid: 1, start_time: 0, ..living.clone() };
    reserve(&mut db, &living, &ask(&living, 1, 0.6, a_day_of(10.0)), noon());
    // It has ended, and its end is not in the journal yet that was read.
    let next =
        Reservation { ended: Some(ended(&living, 1, Some(0.9))), ..ask(&living, 2, 0.6, a_day_of(10.0)) };
    reserve(&mut db, &living, &next, later(61));
    let known = Known { session: session(&living), open: Some(call(&living, 2).token), closing: false };
    for closing in [false, true] {
        let known = Some(Known { closing, ..known });
        db.book(&looks, &Found::default(), known, |_| (None, false), later(61)).unwrap();
        assert_eq!(today(&db), (0.9, 0.6, 2, 0), "closing: {closing}");
    }
}
