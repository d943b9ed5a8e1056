//! What a person is told while a session goes its way.

use super::world::{World, begin, chain, completed, pause, resume, rules, secs, stop};
use crate::domain::event::Body;
use crate::domain::notification::{About, Kind, Notification, of_event, of_state};
use crate::domain::outcome::Outcome;
use crate::domain::session::input::Signals;

fn about(w: &World) -> About<'static> {
    About { project: "/home/me/shop", long_wait: secs(1800), now: w.now }
}

/// What holds now.
fn told(w: &World) -> Vec<Notification> {
    of_state(&w.state, about(w))
}

fn kinds(w: &World) -> Vec<Kind> {
    told(w).into_iter().map(|n| n.kind).collect()
}

#[test]
fn rt_08_a_pause_for_a_person_has_one_name_until_something_has_worked() {
    let mut w = World::new(rules(), begin());
    w.attempt(Outcome::AuthFailed);
    w.settle();
    let first = told(&w);
    assert_eq!(kinds(&w), [Kind::NeedsHuman]);
    assert!(first[0].title.starts_with("shop: needs you: auth required"), "{first:?}");
    assert!(first[0].text.contains("longhaul resume"), "{first:?}");
    w.signal(resume());
    w.attempt(Outcome::AuthFailed);
    w.settle();
    assert_eq!(told(&w)[0].id, first[0].id, "it fails of the same");
    w.program_starts();
    w.settle();
    assert!(told(&w).iter().all(|again| again.id == first[0].id), "{:?}", told(&w));
    w.signal(resume());
    w.attempt(completed());
    w.settle();
    assert_eq!(kinds(&w), []);
    w.attempt(Outcome::AuthFailed);
    w.settle();
    assert_ne!(told(&w)[0].id, first[0].id, "it had worked in between");
}

#[test]
fn what_a_person_does_is_not_told() {
    let mut w = World::new(rules(), begin());
    w.signal(pause());
    w.settle();
    assert_eq!((w.phase().as_str(), kinds(&w)), ("paused/requested", vec![]));
    w.signal(Signals::default());
    w.signal(stop());
    w.settle();
    assert_eq!(kinds(&w), []);
}

#[test]
fn the_end_and_the_money_are_told() {
    let mut begin = begin();
    (begin.limits.max_iterations, begin.limits.budget_usd) = (Some(2), Some(1.0));
    let mut w = World::new(rules(), begin);
    let cost = |w: &mut World, usd: f64| {
        w.call();
        let mut report = w.report(completed());
        report.usage.cost_usd = Some(usd);
        w.ended(report);
        w.settle();
    };
    cost(&mut w, 0.3);
    assert_eq!(kinds(&w), []);
    cost(&mut w, 0.5);
    assert_eq!(kinds(&w), [Kind::Finished, Kind::Budget80]);
    assert!(told(&w)[0].text.contains("2 iterations, 0.80 USD"), "{:?}", told(&w));
}

#[test]
fn long_waits_are_told_and_short_ones_are_not() {
    let mut w = World::new(rules(), begin());
    let limited = |w: &mut World, seconds: i64| {
        let until = Some(w.now + jiff::SignedDuration::from_secs(seconds));
        w.attempt(Outcome::UsageLimited { until });
        w.settle();
    };
    limited(&mut w, 60);
    assert_eq!(kinds(&w), []);
    w.wake();
    w.settle();
    limited(&mut w, 4 * 3600);
    assert_eq!(kinds(&w), [Kind::LongWait]);
    assert!(told(&w)[0].title.contains("waits until 20"), "{:?}", told(&w));
}

#[test]
fn a_fail_over_is_told_once_an_iteration() {
    let mut w = World::new(rules(), chain("a b"));
    w.attempt(Outcome::UsageLimited { until: Some(w.now + jiff::SignedDuration::from_secs(7200)) });
    w.settle();
    let event = w.events.iter().find(|e| matches!(e.body, Body::Failover { .. })).expect("it fails over");
    let told = of_event(event, &w.state, about(&w)).expect("it is told");
    assert_eq!((told.kind, told.title.as_str()), (Kind::Failover, "shop: b has taken over from a"));
    assert_eq!(told.text, "usage limited");
}
