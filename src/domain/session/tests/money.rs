//! Budget: reserved before a call, booked after it.

use std::collections::BTreeSet;

use super::world::*;
use crate::domain::accounts::Admission;
use crate::domain::event::Body;
use crate::domain::ledger::{Money, Window, WindowLimits};
use crate::domain::money::MicroUsd;
use crate::domain::outcome::{Outcome, Usage};
use crate::domain::session::{Action, AttemptReport, Begin, Input, Rules};
use crate::domain::state::Limits;

fn budget(usd: f64) -> Begin {
    Begin { limits: Limits { budget_usd: Some(usd), ..Limits::default() }, ..begin() }
}

fn cost(w: &mut World, outcome: Outcome, usd: Option<f64>) {
    w.call();
    let report = AttemptReport { usage: Usage { cost_usd: usd, ..Usage::default() }, ..w.report(outcome) };
    w.ended(report);
    w.settle();
}

fn booked(w: &World) -> (Option<f64>, String) {
    let Body::AttemptFinished(a) = &w.last("attempt_finished").body else { panic!() };
    (a.cost_usd, a.cost_source.clone())
}

#[test]
fn the_dearest_of_the_latest_calls_is_reserved() {
    let mut w = World::new(rules(), budget(10.0));
    cost(&mut w, completed(), Some(1.0));
    cost(&mut w, completed(), Some(3.0));
    cost(&mut w, completed(), Some(2.0));
    w.call();
    assert_eq!(w.session().open.as_ref().unwrap().reserved_usd, Some(3.0));
    assert_eq!(w.session().budget.reserved.as_usd(), 3.0);
    assert_eq!(w.session().budget.spent.as_usd(), 6.0);
    let report = w.report(completed());
    w.ended(report);
    w.settle();
    assert_eq!(booked(&w), (Some(3.0), "reservation".into()));
    assert_eq!((w.phase().as_str(), w.session().budget.spent.as_usd()), ("paused/budget_exceeded", 9.0));
    let Body::BudgetExceeded { limit_usd, spent_usd, next_usd, .. } = w.last("budget_exceeded").body else {
        panic!()
    };
    assert_eq!((limit_usd, spent_usd, next_usd), (10.0, 9.0, 3.0));
}

#[test]
fn a_raised_limit_goes_on_by_itself() {
    let mut w = World::new(rules(), budget(2.0));
    cost(&mut w, completed(), Some(1.5));
    w.settle();
    assert_eq!(w.phase(), "paused/budget_exceeded");
    w.program_starts();
    w.settle();
    assert_eq!(w.phase(), "paused/budget_exceeded", "it holds over a restart");
    let limits = Limits { budget_usd: Some(5.0), ..Limits::default() };
    w.mark().input(Input::Settings {
        rules: Box::new(rules()),
        changes: vec![Body::LimitsChanged { limits, overrides: Vec::new() }],
    });
    w.settle();
    assert_eq!(
        w.told(),
        ["limits_changed", "session_continued", "iteration_started", "budget_reserved", "attempt_started"]
    );
}

#[test]
fn what_a_call_in_flight_spends_beyond_the_limit_is_told() {
    let mut w = World::new(rules(), budget(2.0));
    cost(&mut w, completed(), Some(0.5));
    cost(&mut w, completed(), Some(4.0));
    let Body::BudgetExceeded { overshoot_usd, .. } = w.last("budget_exceeded").body else { panic!() };
    assert_eq!(overshoot_usd, 2.5);
    w.settle();
    assert_eq!(w.phase(), "paused/budget_exceeded");
}

#[test]
fn a_cut_call_is_booked_at_its_reservation() {
    let assume = Rules { assume_usd: Some(0.25), ..rules() };
    let mut w = World::new(assume, budget(10.0));
    cost(&mut w, Outcome::Cancelled, None);
    assert_eq!(booked(&w), (Some(0.25), "reservation".into()));
    w.call();
    w.program_starts();
    assert_eq!(booked(&w), (Some(0.25), "reservation".into()));
    w.call();
    w.input(Input::LaneLost { token: None, cause: "died".into() });
    w.call = None;
    assert_eq!(booked(&w), (Some(0.25), "reservation".into()));
    assert_eq!(w.session().budget.spent.as_usd(), 0.75);
    assert_eq!(w.session().budget.reserved, MicroUsd::ZERO);
}

#[test]
fn a_lost_call_that_nothing_was_set_aside_for_is_booked_at_what_is_assumed() {
    let mut w = World::new(Rules { assume_usd: Some(0.25), ..rules() }, begin());
    w.call();
    w.program_starts();
    assert_eq!(booked(&w), (Some(0.25), "assumed".into()));
    let mut w = World::new(rules(), begin());
    w.call();
    w.program_starts();
    assert_eq!(booked(&w), (None, "unknown".into()));
}

#[test]
fn a_call_that_was_turned_away_costs_nothing() {
    let assume = Rules { assume_usd: Some(1.0), ..rules() };
    for outcome in [
        Outcome::NetworkDown,
        Outcome::Overloaded,
        Outcome::RateLimited { until: None },
        Outcome::AuthFailed,
        Outcome::NotRunnable,
    ] {
        let mut w = World::new(assume.clone(), budget(2.0));
        w.call();
        let report = AttemptReport { tools: 0, ..w.report(outcome.clone()) };
        w.ended(report);
        w.settle();
        assert_eq!(booked(&w), (Some(0.0), "none".into()), "{outcome:?}");
        let mut w = World::new(assume.clone(), budget(2.0));
        w.attempt(outcome.clone());
        assert_eq!(booked(&w).0, Some(1.0), "{outcome:?}: it had begun to work");
    }
}

#[test]
fn unknown_cost_is_counted_as_unknown() {
    let mut w = World::new(rules(), begin());
    cost(&mut w, completed(), None);
    assert_eq!(booked(&w), (None, "unknown".into()));
    assert_eq!((w.session().budget.spent, w.session().budget.unknown_calls), (MicroUsd::ZERO, 1));
}

#[test]
fn odd_figures_do_no_harm() {
    for odd in [f64::NAN, f64::INFINITY, -3.0] {
        let mut w = World::new(rules(), budget(10.0));
        cost(&mut w, completed(), Some(odd));
        cost(&mut w, Outcome::Empty, Some(odd));
        assert_eq!(w.session().budget.spent, MicroUsd::ZERO);
    }
    let mut w = World::new(rules(), budget(10.0));
    cost(&mut w, completed(), Some(1e300));
    assert_eq!(w.phase(), "paused/budget_exceeded");
}

// --- beyond the session ---

fn micros(usd: f64) -> MicroUsd {
    MicroUsd::from_usd(usd).unwrap()
}

fn windows(project: Option<f64>, day: Option<f64>) -> Rules {
    let windows = WindowLimits { project: project.map(micros), day: day.map(micros), month: None };
    Rules { windows, assume_usd: Some(0.5), ..rules() }
}

fn raised(w: &mut World, rules: Rules) {
    w.rules = rules.clone();
    w.mark().input(Input::Settings { rules: Box::new(rules), changes: Vec::new() });
    w.settle();
}

#[test]
fn a_day_that_is_used_up_is_waited_for() {
    let mut w = World::new(windows(None, Some(2.0)), begin());
    cost(&mut w, completed(), Some(1.6));
    assert_eq!(w.phase(), "waiting/budget_exceeded");
    let midnight = "2026-12-01T00:00:00Z".parse().unwrap();
    assert_eq!(w.session().wait.as_ref().unwrap().until, midnight);
    let Body::BudgetExceeded { window, limit_usd, spent_usd, next_usd, resets_at, .. } =
        w.last("budget_exceeded").body
    else {
        panic!()
    };
    assert_eq!((window, limit_usd, spent_usd, next_usd), (Window::Day, 2.0, 1.6, 1.6));
    assert_eq!(resets_at, Some(midnight));
    // It looks again now and then, and says nothing.
    w.mark().wake();
    w.settle();
    assert_eq!((w.told(), w.phase().as_str()), (vec![], "waiting/budget_exceeded"));
    // A restart asks again, and does not wait for what is no longer so.
    w.mark().program_starts();
    w.settle();
    assert_eq!(w.phase(), "waiting/budget_exceeded");
    raised(&mut w, windows(None, Some(20.0)));
    assert_eq!(w.told(), ["wait_ended", "iteration_started", "budget_reserved", "attempt_started"]);
}

#[test]
fn no_wait_does_not_end_a_wait_that_ends_by_itself() {
    let mut w = World::new(Rules { wait: false, ..windows(None, Some(2.0)) }, begin());
    cost(&mut w, completed(), Some(1.6));
    assert_eq!((w.phase().as_str(), w.exit), ("waiting/budget_exceeded", None));
    let mut w = World::new(Rules { wait: false, ..windows(Some(2.0), None) }, begin());
    cost(&mut w, completed(), Some(1.6));
    assert_eq!((w.phase().as_str(), w.exit), ("paused/budget_exceeded", Some(5)));
}

#[test]
fn a_project_that_is_used_up_holds_over_a_restart_until_its_limit_is_raised() {
    let mut w = World::new(windows(Some(2.0), Some(100.0)), begin());
    cost(&mut w, completed(), Some(1.6));
    assert_eq!(w.phase(), "paused/budget_exceeded");
    let Body::BudgetExceeded { window, resets_at, .. } = w.last("budget_exceeded").body else { panic!() };
    assert_eq!((window, resets_at), (Window::Project, None));
    w.mark().program_starts();
    w.settle();
    assert_eq!((w.phase().as_str(), w.told()), ("paused/budget_exceeded", vec!["session_resumed"]));
    raised(&mut w, windows(Some(1.9), Some(100.0)));
    assert_eq!((w.phase().as_str(), w.told()), ("paused/budget_exceeded", vec![]), "that is less");
    raised(&mut w, windows(Some(20.0), Some(100.0)));
    let told = ["session_continued", "iteration_started", "budget_reserved", "attempt_started"];
    assert_eq!(w.told(), told);
}

#[test]
fn what_is_set_aside_elsewhere_is_waited_for() {
    let mut w = World::new(windows(None, Some(2.0)), begin());
    w.others = (micros(0.1), micros(1.8));
    w.settle();
    assert_eq!(w.phase(), "waiting/budget_exceeded");
    let Body::BudgetExceeded { reserved_usd, .. } = w.last("budget_exceeded").body else { panic!() };
    assert_eq!(reserved_usd, 1.8);
    w.others = (micros(0.2), MicroUsd::ZERO);
    w.pass(secs(1));
    w.settle();
    assert!(w.call.is_some(), "the other call has cost less than was set aside for it");
}

#[test]
fn what_a_call_spends_beyond_a_window_is_told() {
    let mut w = World::new(windows(None, Some(2.0)), begin());
    w.call();
    w.mark();
    let usage = Usage { cost_usd: Some(4.5), ..Usage::default() };
    let report = AttemptReport { usage, ..w.report(completed()) };
    w.ended(report);
    let exceeded = |body: &Body| match body {
        Body::BudgetExceeded { window, overshoot_usd, .. } => Some((*window, *overshoot_usd)),
        _ => None,
    };
    w.settle();
    let said: Vec<_> = w.events.iter().filter_map(|event| exceeded(&event.body)).collect();
    assert_eq!(said, [(Window::Day, 2.5), (Window::Day, 2.5)], "at its end, and with the next call");
    assert_eq!(w.phase(), "paused/budget_exceeded");
}

#[test]
fn a_ledger_that_cannot_be_used_lets_no_call_begin() {
    let mut w = World::new(windows(None, Some(2.0)), begin());
    w.base();
    w.ready();
    let ask = w.ask.take().unwrap().ask;
    let money = Some(Money::Unusable("no home".into()));
    w.input(Input::Admitted { ask, admission: Admission::Granted(0), news: Vec::new(), money });
    assert_eq!((w.phase().as_str(), w.call), ("waiting/budget_exceeded", None));
    w.wake();
    w.settle();
    assert!(w.call.is_some(), "it is tried again");
}

#[test]
fn money_of_a_call_that_does_not_begin_is_given_back() {
    let mut w = World::new(windows(None, Some(2.0)), begin());
    w.base();
    w.ready();
    let Some(Action::Admit { ask, money: Some(money), .. }) = w.actions.last().cloned() else { panic!() };
    w.signal(pause());
    let token = money.call.token;
    let money = Some(Money::Reserved { token, windows: Vec::new() });
    let actions = w.input(Input::Admitted { ask, admission: Admission::Granted(0), news: Vec::new(), money });
    assert_eq!(actions, [Action::Release { token }]);
}

#[test]
fn a_call_that_would_cost_more_than_one_may_does_not_begin() {
    let limited = Rules { call_usd: Some(micros(1.0)), assume_usd: Some(0.5), ..rules() };
    let mut w = World::new(limited.clone(), begin());
    cost(&mut w, completed(), Some(1.2));
    assert_eq!(w.phase(), "paused/budget_exceeded");
    let Body::BudgetExceeded { window, limit_usd, next_usd, .. } = w.last("budget_exceeded").body else {
        panic!()
    };
    assert_eq!((window, limit_usd, next_usd), (Window::Call, 1.0, 1.2));
    raised(&mut w, Rules { call_usd: Some(micros(1.5)), ..limited.clone() });
    assert_eq!(w.told(), ["session_continued", "iteration_started", "attempt_started"]);

    // Where the CLI ends such a call itself, a call is made.
    let mut w = World::new(Rules { capped: BTreeSet::from(["a".into()]), ..limited.clone() }, begin());
    cost(&mut w, completed(), Some(1.2));
    w.call();
    assert_eq!(w.session().open.as_ref().unwrap().reserved_usd, Some(1.0));

    // A fail-over to one that does not is no way around it.
    let capped = Rules { capped: BTreeSet::from(["a".into()]), ..limited };
    let mut w = World::new(capped, chain("a b"));
    cost(&mut w, completed(), Some(1.2));
    w.call();
    let report = w.report(Outcome::UsageLimited { until: None });
    w.ended(report);
    w.settle();
    assert_eq!(w.phase(), "paused/budget_exceeded");
}

#[test]
fn the_ledger_hears_of_an_end_before_it_is_committed() {
    let mut w = World::new(windows(None, Some(20.0)), begin());
    cost(&mut w, completed(), Some(1.5));
    let asked = w.actions.iter().rev().find_map(|action| match action {
        Action::Admit { money: Some(money), .. } => Some(money.clone()),
        _ => None,
    });
    let asked = asked.unwrap();
    let ended = asked.ended.as_ref().unwrap();
    assert_eq!((ended.cost, ended.unknown), (Some(micros(1.5)), false));
    assert_eq!((asked.call.iteration, asked.call.attempt, asked.usd), (2, 1, micros(1.5)));
    assert_eq!((ended.call.iteration, ended.call.attempt), (1, 1));
}

#[test]
fn a_call_that_is_dearer_than_a_whole_day_needs_a_person() {
    let mut w = World::new(windows(None, Some(2.0)), begin());
    cost(&mut w, completed(), Some(2.5));
    assert_eq!(w.phase(), "paused/budget_exceeded", "tomorrow has no room for it either");
    let Body::BudgetExceeded { window, resets_at, .. } = w.last("budget_exceeded").body else { panic!() };
    assert_eq!((window, resets_at), (Window::Day, None));
    w.mark().program_starts();
    w.settle();
    assert_eq!((w.phase().as_str(), w.told()), ("paused/budget_exceeded", vec!["session_resumed"]));
    raised(&mut w, windows(None, Some(2.4)));
    assert_eq!((w.phase().as_str(), w.told()), ("paused/budget_exceeded", vec![]), "still too small");
    // There is room for it from now on, but not today.
    raised(&mut w, windows(None, Some(3.0)));
    assert_eq!(w.told(), ["session_continued", "budget_exceeded", "wait_started"]);
    assert_eq!(w.phase(), "waiting/budget_exceeded");
    // A call that is only expected to cost less is reason enough, too.
    let mut w = World::new(Rules { assume_usd: Some(3.0), ..windows(None, Some(2.0)) }, begin());
    w.settle();
    assert_eq!(w.phase(), "paused/budget_exceeded");
    raised(&mut w, windows(None, Some(2.0)));
    assert!(w.call.is_some());

    let mut w = World::new(Rules { wait: false, ..windows(None, Some(2.0)) }, begin());
    cost(&mut w, completed(), Some(2.5));
    assert_eq!(w.exit, Some(5));
}
