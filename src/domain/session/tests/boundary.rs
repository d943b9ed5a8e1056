//! What the end of an attempt leads to when it went well.

use super::world::*;
use crate::domain::event::Body;
use crate::domain::outcome::Outcome;
use crate::domain::session::{Action, AttemptReport, Begin, Input, Signals};
use crate::domain::state::{GateResult, Limits};

fn limited(limits: Limits) -> Begin {
    Begin { limits, ..begin() }
}

fn with_gates() -> crate::domain::session::Rules {
    crate::domain::session::Rules { gates: vec!["build".into(), "test".into()], ..rules() }
}

#[test]
fn one_commit_per_boundary() {
    let mut w = World::new(rules(), begin());
    w.call();
    for _ in 0..5 {
        w.say("go on");
        let messages: Vec<_> = w.state.inbox.queued.iter().map(|m| m.id).collect();
        let report = AttemptReport { messages, ..w.report(completed()) };
        w.mark().actions.clear();
        w.ended(report);
        w.settle();
        let commits = w.actions.iter().filter(|a| matches!(a, Action::Commit(_))).count();
        assert_eq!(commits, 1, "{:#?}", w.actions);
        let boundary = [
            "attempt_finished",
            "message_delivered",
            "iteration_finished",
            "checkpoint_created",
            "iteration_started",
            "attempt_started",
        ];
        assert_eq!(w.told(), boundary);
        let at = |wanted: fn(&Action) -> bool| w.actions.iter().position(wanted);
        let go = at(|a| matches!(a, Action::Go { .. })).unwrap();
        assert!(at(|a| matches!(a, Action::Commit(_))).unwrap() < go);
        assert!(
            at(|a| matches!(a, Action::Checkpoint { .. })).unwrap() > go,
            "it follows during the next call"
        );
    }
}

#[test]
fn without_a_process_to_ready_a_boundary_is_two_commits_at_most() {
    let mut w = World::new(rules(), begin());
    w.processes = false;
    w.call();
    w.actions.clear();
    w.attempt(completed());
    w.call();
    let commits = w.actions.iter().filter(|a| matches!(a, Action::Commit(_))).count();
    assert!(commits <= 2, "{commits}");
}

#[test]
fn max_iterations_is_exact_also_over_restarts() {
    for restart in [false, true] {
        let mut w = World::new(rules(), limited(Limits { max_iterations: Some(5), ..Limits::default() }));
        let mut calls = 0;
        while !w.is_over() {
            w.attempt(completed());
            calls += 1;
            if restart && !w.is_over() {
                w.program_starts();
            }
        }
        assert_eq!((calls, w.session().finished, w.count("iteration_finished")), (5, 5, 5));
        assert_eq!((w.phase().as_str(), w.exit), ("finished/max_iterations", Some(0)));
    }
}

#[test]
fn failed_attempts_are_no_iterations() {
    let mut w = World::new(rules(), limited(Limits { max_iterations: Some(2), ..Limits::default() }));
    w.attempt(Outcome::Truncated);
    w.attempt(completed());
    w.attempt(Outcome::Overloaded);
    w.attempt(Outcome::Cancelled);
    w.attempt(completed());
    assert_eq!(
        (w.phase().as_str(), w.session().finished, w.session().calls),
        ("finished/max_iterations", 2, 5)
    );
}

#[test]
fn a_cap_of_ours_ends_the_iteration() {
    let mut w = World::new(rules(), begin());
    w.attempt(Outcome::CapReached);
    assert_eq!(w.count("iteration_finished"), 1);
    assert_eq!(w.session().finished, 1);
}

#[test]
fn max_duration_cuts_the_call_and_counts_no_pauses() {
    let minute = Limits { max_duration_ms: Some(60_000), ..Limits::default() };
    let mut w = World::new(rules(), limited(minute));
    w.call();
    w.pass(secs(30));
    assert_eq!(w.ending, None);
    w.signal(pause());
    w.pass(secs(1000));
    assert_eq!(w.ending, None, "paused while the call finishes");
    w.signal(Signals::default());
    w.pass(secs(29));
    assert_eq!(w.ending, None);
    w.pass(secs(1));
    assert_eq!(w.ending, Some(crate::domain::session::EndReason::Deadline));
    w.attempt(Outcome::Cancelled);
    assert_eq!((w.phase().as_str(), w.exit), ("finished/max_duration", Some(0)));
    assert_eq!(w.session().active_time_ms(w.now), 60_000);
}

#[test]
fn max_duration_ends_a_wait_and_is_not_reached_while_paused() {
    let minute = Limits { max_duration_ms: Some(60_000), ..Limits::default() };
    let mut w = World::new(rules(), limited(minute.clone()));
    w.attempt(Outcome::UsageLimited { until: Some("2026-11-30T15:00:00Z".parse().unwrap()) });
    w.settle();
    assert_eq!(w.phase(), "waiting/rate_limited");
    w.wake();
    assert_eq!((w.phase().as_str(), w.exit), ("finished/max_duration", Some(0)));
    assert_eq!(w.now.duration_since(morning()).as_secs(), 60);

    let mut w = World::unbegun(rules(), limited(minute), pause());
    w.settle();
    w.pass(secs(100_000));
    assert_eq!(w.phase(), "paused/requested");
}

#[test]
fn messages_are_delivered_with_the_attempt_that_read_them_once_and_in_order() {
    let read: Vec<Outcome> = vec![
        completed(),
        Outcome::CapReached,
        Outcome::Truncated,
        Outcome::Refused,
        Outcome::TimedOut,
        Outcome::SilentHang,
        Outcome::Crashed { signal: None, code: Some(1) },
        Outcome::Unknown { code: Some(1), tail: String::new() },
    ];
    let unread = vec![
        Outcome::Empty,
        Outcome::RateLimited { until: None },
        Outcome::UsageLimited { until: None },
        Outcome::QuotaExhausted { until: None },
        Outcome::Overloaded,
        Outcome::AuthFailed,
        Outcome::NetworkDown,
        Outcome::ContextOverflow,
        Outcome::ModelUnavailable,
        Outcome::NotRunnable,
        Outcome::Cancelled,
    ];
    let all = read.iter().map(|o| (o, true)).chain(unread.iter().map(|o| (o, false)));
    for (outcome, delivered) in all {
        let mut w = World::new(rules(), chain("a b"));
        let first = w.say("one");
        let second = w.say("two");
        w.call();
        let third = w.say("came too late for this prompt");
        let report = AttemptReport { messages: vec![first, second], ..w.report(outcome.clone()) };
        w.ended(report);
        w.settle();
        let told = w.events.iter().filter_map(|e| match e.body {
            Body::MessageDelivered { id } => Some(id),
            _ => None,
        });
        let told: Vec<_> = told.collect();
        assert_eq!(told, if delivered { vec![first, second] } else { vec![] }, "{outcome:?}");
        let queued: Vec<_> = w.state.inbox.queued.iter().map(|m| m.id).collect();
        assert_eq!(queued, if delivered { vec![third] } else { vec![first, second, third] }, "{outcome:?}");
    }
}

#[test]
fn a_claim_without_gates_counts_unverified() {
    let mut w = World::new(rules(), begin());
    w.mark().claim();
    let told = w.told();
    assert!(told.ends_with(&[
        "attempt_finished",
        "completion_claimed",
        "completion_verified",
        "iteration_finished",
        "checkpoint_created",
        "session_finished",
    ]));
    let Body::CompletionVerified { unverified, gates } = &w.last("completion_verified").body else {
        panic!()
    };
    assert!(*unverified && gates.is_empty());
    assert_eq!((w.phase().as_str(), w.exit), ("finished/goals_met", Some(0)));
}

#[test]
fn a_claim_counts_when_every_gate_passes_on_this_tree() {
    let mut w = World::new(with_gates(), begin());
    w.claim();
    assert_eq!(w.gates.as_ref().unwrap().1, ["build", "test"]);
    assert_eq!(w.session().open, None, "the attempt's end does not wait for the gates");
    w.mark().gates_end(GateResult::Passed);
    let Body::CompletionVerified { unverified, gates } = &w.last("completion_verified").body else {
        panic!()
    };
    assert_eq!((*unverified, gates.len()), (false, 2));
    assert_eq!(w.phase(), "finished/goals_met");
}

#[test]
fn a_claim_that_does_not_hold_is_rejected_and_the_work_goes_on() {
    for result in [GateResult::Failed, GateResult::TimedOut, GateResult::CouldNotRun] {
        let mut w = World::new(with_gates(), begin());
        w.claim();
        w.mark().gates_end(result);
        let told = w.told();
        assert!(told.contains(&"completion_rejected"), "{told:?}");
        assert_eq!(told.contains(&"gate_timeout"), result == GateResult::TimedOut);
        let claim = w.session().claim.clone().unwrap();
        assert!(claim.rejected && claim.failed == ["build", "test"]);
        w.call();
        assert_eq!((w.session().iteration, w.session().finished), (2, 1));
    }
}

#[test]
fn results_hold_for_the_tree_they_looked_at() {
    let mut w = World::new(with_gates(), begin());
    w.attempt(completed());
    w.gates_end(GateResult::Passed);
    w.mark().idle_attempt();
    assert_eq!(w.gates, None, "the tree is the same");
    assert_eq!(w.told().iter().filter(|kind| **kind == "gate_finished").count(), 2);
    let Body::GateFinished { name, result, reused, .. } = &w.last("gate_finished").body else { panic!() };
    assert_eq!((name.as_str(), *result, *reused), ("test", GateResult::Passed, true));
    assert_eq!(w.session().finished, 2);
    w.attempt(completed());
    assert!(w.gates.is_some(), "another tree");
    w.gates_end(GateResult::CouldNotRun);
    w.idle_attempt();
    assert!(w.gates.is_some(), "what could not run says nothing about the tree");
}

#[test]
fn stop_during_gates_neither_verifies_nor_rejects() {
    for lost in [false, true] {
        let mut w = World::new(with_gates(), begin());
        w.claim();
        w.mark().signal(stop());
        assert_eq!(w.told(), ["session_stopping"]);
        assert!(w.actions.iter().any(|a| matches!(a, Action::EndGates { .. })));
        if lost {
            w.input(Input::GatesLost);
        } else {
            w.gates_end(GateResult::Cancelled);
        }
        let told = w.told();
        assert!(!told.iter().any(|name| name.starts_with("completion")), "{told:?}");
        assert_eq!((w.session().finished, w.exit), (1, Some(3)), "the work was done");
    }
}

#[test]
fn a_claim_that_stop_overtakes_is_not_rejected() {
    let mut w = World::new(with_gates(), begin());
    w.call();
    w.signal(stop());
    w.mark().claim();
    let told = w.told();
    assert!(!told.contains(&"completion_rejected"), "{told:?}");
    assert_eq!((w.gates.is_none(), w.exit), (true, Some(3)));
}

#[test]
fn gates_that_are_lost_run_again() {
    let mut w = World::new(with_gates(), begin());
    w.attempt(completed());
    let before = w.gates.take();
    w.input(Input::GatesLost);
    assert_eq!(w.gates, before);
    w.gates_end(GateResult::Passed);
    assert_eq!(w.session().finished, 1);
    assert!(w.mark().input(Input::GatesLost).is_empty(), "nobody waits for any");
}

#[test]
fn reports_of_other_gates_are_late() {
    let mut w = World::new(with_gates(), begin());
    w.attempt(completed());
    let token = w.gone[0];
    w.gates_end(GateResult::Passed);
    w.call();
    w.mark().input(Input::GatesEnded { token, reports: Vec::new() });
    assert_eq!(w.told(), [""; 0]);
}

#[test]
fn perpetual_goes_on_with_new_goals() {
    let perpetual = Limits { perpetual: true, max_iterations: Some(3), ..Limits::default() };
    let mut w = World::new(rules(), limited(perpetual));
    w.claim();
    w.claim();
    assert_eq!((w.session().goals_met, w.session().finished), (2, 2));
    w.call();
    w.signal(pause());
    assert_eq!(w.phase(), "paused/requested");
    w.signal(Signals::default());
    w.claim();
    assert_eq!(w.phase(), "finished/max_iterations");
}

#[test]
fn stagnation_warns_then_pauses_and_a_person_ends_it() {
    let mut w = World::new(rules(), begin());
    w.attempt(completed());
    for unchanged in 1..=10 {
        w.mark().idle_attempt();
        assert_eq!(w.session().unchanged, unchanged);
        assert_eq!(w.told().contains(&"stagnation"), unchanged == 5 || unchanged == 10, "{unchanged}");
    }
    assert_eq!(w.phase(), "paused/stagnated");
    w.program_starts();
    w.settle();
    assert_eq!(w.phase(), "paused/stagnated");
    w.signal(resume());
    w.call();
    assert_eq!(w.session().unchanged, 0);
}

#[test]
fn a_changed_tree_ends_stagnation() {
    let mut w = World::new(rules(), begin());
    for _ in 0..5 {
        for _ in 0..9 {
            w.idle_attempt();
        }
        w.attempt(completed());
    }
    assert_eq!(w.session().finished, 50);
    assert_eq!(w.phase(), "running");
}

#[test]
fn an_agent_that_is_blocked_waits_for_a_person() {
    let mut w = World::new(rules(), begin());
    w.call();
    let report = AttemptReport { blocked: Some("which database?".into()), ..w.report(completed()) };
    w.ended(report);
    assert_eq!((w.phase().as_str(), w.session().finished), ("paused/needs_human", 1));
    assert!(w.session().detail.contains("which database?"));
    w.signal(resume());
    w.call();
    assert_eq!(w.session().iteration, 2);
}

#[test]
fn goals_met_beat_a_call_for_help() {
    let mut w = World::new(rules(), begin());
    w.call();
    let claim = Some(("file".to_owned(), String::new()));
    let report = AttemptReport { claim, blocked: Some("?".into()), ..w.report(completed()) };
    w.ended(report);
    assert_eq!(w.phase(), "finished/goals_met");
}
