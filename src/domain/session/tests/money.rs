//! Budget: reserved before a call, booked after it.

use super::world::*;
use crate::domain::event::Body;
use crate::domain::money::MicroUsd;
use crate::domain::outcome::{Outcome, Usage};
use crate::domain::session::{AttemptReport, Begin, Input, Rules};
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
