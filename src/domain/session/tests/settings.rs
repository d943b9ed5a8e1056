//! Settings and providers that change while the session runs.

use super::world::*;
use crate::domain::event::Body;
use crate::domain::outcome::Outcome;
use crate::domain::session::{Input, Rules, SwitchRequest};
use crate::domain::state::Limits;

fn changed(rules: Rules, limits: Option<Limits>) -> Input {
    let change = Body::ConfigChanged {
        key: "run.retries".into(),
        old: serde_json::json!(50),
        new: serde_json::json!(rules.retries),
        live: true,
    };
    let mut changes = vec![change];
    changes.extend(limits.map(|limits| Body::LimitsChanged { limits, overrides: Vec::new() }));
    Input::Settings { rules: Box::new(rules), changes }
}

#[test]
fn settings_come_in_after_the_call() {
    let mut w = World::new(rules(), begin());
    w.call();
    let limits = Limits { max_iterations: Some(1), ..Limits::default() };
    w.mark();
    assert!(w.input(changed(Rules { retries: 7, ..rules() }, Some(limits))).is_empty());
    assert!(w.input(changed(Rules { retries: 8, ..rules() }, None)).is_empty());
    w.attempt(completed());
    let told = w.told();
    assert_eq!(told.iter().filter(|name| **name == "config_changed").count(), 2);
    assert!(told.contains(&"limits_changed"));
    assert_eq!(w.phase(), "finished/max_iterations", "the first change's limit holds");
    assert_eq!(w.machine.rules.retries, 8, "of two, the last one holds");
}

#[test]
fn settings_come_in_at_once_where_nothing_is_in_flight() {
    let mut w = World::new(rules(), begin());
    w.attempt(Outcome::AuthFailed);
    w.settle();
    w.mark().input(changed(Rules { retries: 7, ..rules() }, None));
    assert_eq!(w.told(), ["config_changed"]);
}

#[test]
fn another_provider_is_taken_at_the_next_attempt() {
    let mut w = World::new(rules(), chain("a b"));
    w.call();
    w.mark();
    assert!(w.input(Input::Switch(SwitchRequest { to: "b".into() })).is_empty());
    assert_eq!(w.session().provider(), "a");
    w.attempt(completed());
    w.settle();
    assert!(w.told().contains(&"provider_switched"));
    assert_eq!(w.session().open.as_ref().unwrap().provider, "b");
    w.input(Input::Switch(SwitchRequest { to: "c".into() }));
    w.attempt(completed());
    assert_eq!((w.session().provider(), w.session().chain.len()), ("c", 3));
    w.mark().input(Input::Switch(SwitchRequest { to: "c".into() }));
    assert!(!w.told().contains(&"provider_switched"));
}

#[test]
fn another_provider_ends_what_the_first_one_waited_or_paused_for() {
    for outcome in [
        Outcome::AuthFailed,
        Outcome::Refused,
        Outcome::NotRunnable,
        Outcome::Overloaded,
        Outcome::UsageLimited { until: None },
    ] {
        let mut w = World::new(rules(), begin());
        w.attempt(outcome.clone());
        w.settle();
        w.input(Input::Switch(SwitchRequest { to: "b".into() }));
        w.settle();
        assert!(w.call.is_some(), "{outcome:?}: {}", w.phase());
        assert_eq!(w.session().provider(), "b");
        assert_eq!(w.session().wait, None);
    }
    let mut w = World::new(rules(), begin());
    w.signal(pause());
    w.input(Input::Switch(SwitchRequest { to: "b".into() }));
    w.settle();
    assert_eq!(w.phase(), "paused/requested");
}
