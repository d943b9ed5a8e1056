//! Start, stop, crash, and going on.

use super::world::*;
use crate::domain::event::{Body, Mode};
use crate::domain::outcome::Outcome;
use crate::domain::session::{Action, Begin, Input, Signals, Stop};
use crate::domain::state::{GateResult, Limits, Phase, Reason};

#[test]
fn a_new_session_readies_a_call_reads_the_tree_and_goes() {
    let mut w = World::new(rules(), Begin { found: vec![disk_low()], ..begin() });
    assert_eq!(w.told(), ["disk_low", "session_started"]);
    assert!(w.preparing);
    assert!(w.ready().is_empty(), "the tree is not known");
    w.base();
    assert_eq!(w.told(), [""; 0], "checkpoint 0 is part of the commit of the first call");
    let actions = w.admit();
    assert_eq!(w.told(), ["checkpoint_created", "iteration_started", "attempt_started"]);
    let commit = actions.iter().position(|a| matches!(a, Action::Commit(_))).unwrap();
    let go = actions.iter().position(|a| matches!(a, Action::Go { iteration: 1, attempt: 1, .. })).unwrap();
    let kept = actions.iter().position(|a| matches!(a, Action::Checkpoint { number: 0 })).unwrap();
    assert!(commit < go && go < kept, "{actions:?}");
    assert_eq!(w.phase(), "running");
    assert_eq!(w.session().open.as_ref().unwrap().pid, Some(100));
}

#[test]
fn the_tree_may_be_known_before_the_lane_is_ready() {
    let mut w = World::new(rules(), begin());
    w.base();
    w.ready();
    w.admit();
    assert!(w.call.is_some());
    assert_eq!(w.session().checkpoint.as_ref().unwrap().number, 0);
}

#[test]
fn a_tree_that_cannot_be_read_keeps_nothing_from_starting() {
    let mut w = World::new(rules(), begin());
    w.input(Input::Base { tree: None, git: false });
    w.looking = false;
    w.call();
    assert_eq!(w.session().checkpoint, None);
    let report = crate::domain::session::AttemptReport { tree: None, ..w.report(completed()) };
    w.ended(report);
    assert_eq!(w.session().unchanged, 0, "nobody knows whether it has changed");
    assert_eq!(w.count("checkpoint_created"), 0);
}

/// Brings a session into a state, as a dead supervisor may have left it.
fn left_in(name: &str) -> World {
    let mut rules = rules();
    rules.gates = vec!["test".into()];
    let mut w = World::new(rules, chain("a"));
    match name {
        "starting" => {}
        "calling" => drop(w.call()),
        "waiting" => {
            w.attempt(Outcome::Overloaded);
            w.settle();
        }
        "gating" => w.attempt(completed()),
        "stopping" => {
            w.call();
            w.signal(stop());
            w.signals = Signals::default();
        }
        "paused" => {
            w.attempt(Outcome::AuthFailed);
            w.settle();
        }
        "paused in a call" => {
            w.call();
            w.signal(pause());
        }
        "stopped" => {
            w.call();
            w.signal(stop());
            let report = w.report(Outcome::Cancelled);
            w.ended(report);
        }
        "interrupted" => {
            w.call();
            let stop = Stop { reason: Reason::Interrupted, detail: String::new(), now: false };
            w.signal(Signals { stop: Some(stop), ..Signals::default() });
            let report = w.report(Outcome::Cancelled);
            w.ended(report);
            w.signals = Signals::default();
        }
        other => panic!("{other}"),
    }
    w
}

#[test]
fn a_restart_goes_on_whatever_was_found() {
    let lost = "attempt_finished";
    for (found, state, told, then) in [
        ("starting", "starting", vec!["session_crashed", "session_resumed"], "starting"),
        ("calling", "running", vec!["session_crashed", lost, "session_resumed"], "starting"),
        (
            "waiting",
            "waiting/overloaded",
            vec!["session_crashed", "wait_ended", "session_resumed", "wait_started"],
            "waiting/overloaded",
        ),
        ("gating", "running", vec!["session_crashed", "session_resumed"], "starting"),
        ("stopping", "stopping/requested", vec!["session_crashed", lost, "session_resumed"], "starting"),
        ("paused", "paused/auth_required", vec!["session_resumed"], "paused/auth_required"),
        ("paused in a call", "paused/requested", vec![lost, "session_resumed"], "paused/requested"),
        ("stopped", "stopped/requested", vec!["session_resumed"], "starting"),
        ("interrupted", "stopped/interrupted", vec!["session_resumed"], "starting"),
    ] {
        let mut w = left_in(found);
        assert_eq!(w.phase(), state, "{found}");
        let before = w.session().clone();
        w.mark().program_starts();
        assert_eq!(w.told(), told, "{found}");
        assert_eq!(w.phase(), then, "{found}");
        let after = w.session();
        assert_eq!(after.id, before.id, "{found}");
        let counters =
            |s: &crate::domain::state::Session| (s.iteration, s.attempt, s.finished, s.retries, s.calls);
        assert_eq!(counters(after), counters(&before), "{found}");
        assert_eq!(after.open, None, "{found}");
        if told.contains(&lost) {
            let Body::AttemptFinished(a) = &w.last(lost).body else { panic!() };
            assert_eq!((a.verdict.outcome.clone(), a.counts), (Outcome::Cancelled, false), "{found}");
            assert_eq!(a.token, before.open.unwrap().token, "{found}");
        }
        if let Body::SessionResumed { from, reason, .. } = &w.last("session_resumed").body {
            assert_eq!((*from, *reason), (before.state, before.reason), "{found}");
        }
    }
}

#[test]
fn a_cut_iteration_runs_again_under_its_number_with_the_next_attempt() {
    for found in ["calling", "gating", "stopping", "stopped", "interrupted"] {
        let mut w = left_in(found);
        w.program_starts();
        w.call();
        let session = w.session();
        assert_eq!((session.iteration, session.attempt, session.finished), (1, 2, 0), "{found}");
        assert_eq!(w.count("iteration_started"), 1, "{found}");
        w.rules.gates.clear();
        w.attempt(completed());
        if w.gates.is_some() {
            w.gates_end(GateResult::Passed);
        }
        assert_eq!(w.session().finished, 1, "{found}");
        assert_eq!(w.count("iteration_finished"), 1, "{found}");
    }
}

#[test]
fn a_back_off_is_not_shortened_by_a_crash() {
    for program in [true, false] {
        let mut w = left_in("waiting");
        let until = w.session().wait.as_ref().unwrap().until;
        w.mark();
        if program {
            w.program_starts()
        } else {
            w.actor_restarts()
        }
        w.settle();
        assert_eq!(w.session().wait.as_ref().map(|w| w.until), Some(until), "{program}");
        w.call();
        assert!(w.now >= until);
        assert_eq!(w.told().iter().filter(|name| **name == "attempt_started").count(), 1);
    }
}

#[test]
fn another_provider_does_not_wait_for_the_back_off_of_the_last_one() {
    let mut w = left_in("waiting");
    w.begin = chain("b");
    w.program_starts();
    w.settle();
    assert!(w.call.is_some());
    assert_eq!(w.session().provider(), "b");
}

#[test]
fn a_pause_holds_as_long_as_its_cause() {
    let mut w = left_in("paused in a call");
    w.program_starts();
    w.settle();
    assert_eq!(w.phase(), "paused/requested");
    w.mark().signal(Signals::default());
    w.settle();
    assert_eq!(w.told(), ["session_continued", "attempt_started"]);

    let mut w = left_in("paused in a call");
    w.signals = Signals::default();
    w.mark().program_starts();
    assert_eq!(w.told()[..3], ["attempt_finished", "session_resumed", "session_continued"]);

    let mut w = left_in("paused");
    w.program_starts();
    w.settle();
    assert_eq!(w.phase(), "paused/auth_required");
    w.signal(resume());
    w.settle();
    assert!(w.call.is_some(), "{}", w.phase());
}

#[test]
fn a_pause_for_space_holds_until_the_disk_has_spoken() {
    let mut w = World::new(rules(), begin());
    w.call();
    w.input(disk(true));
    let report = w.report(Outcome::Cancelled);
    w.ended(report);
    assert_eq!(w.phase(), "paused/disk_low");
    w.mark().actor_restarts();
    w.settle();
    assert_eq!(w.told(), [""; 0]);
    w.input(disk(true));
    assert_eq!((w.phase().as_str(), w.told()), ("paused/disk_low", vec!["disk_low"]));
    w.actor_restarts();
    w.input(disk(false));
    w.settle();
    assert_eq!(w.told(), ["session_continued", "attempt_started"]);
}

#[test]
fn a_finished_session_is_followed_by_a_new_one() {
    let mut w = World::new(rules(), begin());
    w.claim();
    assert_eq!((w.phase().as_str(), w.exit), ("finished/goals_met", Some(0)));
    let old = w.session().id;
    w.program_starts();
    assert_ne!(w.session().id, old);
    assert_eq!((w.session().iteration, w.phase().as_str()), (0, "starting"));
}

#[test]
fn fresh_starts_anew_and_closes_the_open_attempt() {
    let mut w = World::new(rules(), begin());
    w.say("hello");
    w.call();
    let (old, open) = (w.session().id, w.call.unwrap());
    w.begin.fresh = true;
    w.mark().program_starts();
    assert_eq!(w.told(), ["attempt_finished", "session_started"]);
    assert_ne!(w.session().id, old);
    assert_eq!(w.session().calls, 0);
    assert_eq!(w.state.inbox.queued.len(), 1, "nobody has read it");
    let Body::AttemptFinished(a) = &w.last("attempt_finished").body else { panic!() };
    assert_eq!(a.token, open);
}

#[test]
fn the_command_line_replaces_limits_chain_and_spec() {
    let mut w = left_in("stopped");
    let limits = Limits { max_iterations: Some(7), ..Limits::default() };
    w.begin = Begin { limits: limits.clone(), mode: Mode::Analysis, spec: None, ..chain("b c") };
    w.program_starts();
    let session = w.session();
    assert_eq!((&session.limits, session.provider(), session.mode), (&limits, "b", Mode::Analysis));
    assert_eq!(session.spec, None);
}

#[test]
fn a_session_actor_that_died_after_the_end_says_so_again() {
    for (outcome, code) in [("finished", 0), ("stopped", 3), ("failed", 1)] {
        let mut rules = rules();
        rules.max_outage = Some(secs(60));
        let mut w = World::new(rules, begin());
        match outcome {
            "finished" => w.claim(),
            "stopped" => drop(w.signal(stop())),
            _ => {
                while !w.is_over() {
                    w.attempt(Outcome::NetworkDown);
                    if w.timer.is_some() {
                        w.wake();
                    }
                }
            }
        }
        assert_eq!(w.exit, Some(code), "{outcome}");
        w.mark().actor_restarts();
        assert_eq!((w.exit, w.told()), (Some(code), vec![]), "{outcome}");
    }
}

#[test]
fn a_session_actor_that_died_in_mid_call_loses_the_call_and_nothing_else() {
    let mut w = World::new(rules(), begin());
    w.attempt(completed());
    let lost = w.call();
    w.mark().actor_restarts();
    assert_eq!(w.told(), ["attempt_finished"], "no session_crashed: the program lives");
    w.call();
    assert_eq!((w.session().iteration, w.session().attempt, w.session().finished), (2, 2, 1));
    let late = crate::domain::session::AttemptReport { token: lost, ..w.report(completed()) };
    w.mark().ended(late);
    assert_eq!(w.told(), [""; 0], "fenced off");
    assert!(w.call.is_some());
}

#[test]
fn the_last_checkpoint_is_said_again() {
    let mut w = World::new(rules(), begin());
    w.attempt(completed());
    w.call();
    for program in [true, false] {
        w.actions.clear();
        if program {
            w.program_starts()
        } else {
            w.actor_restarts()
        }
        assert!(w.actions.contains(&Action::Checkpoint { number: 1 }), "{:?}", w.actions);
    }
}

#[test]
fn stop_at_the_start_is_obeyed_before_anything_begins() {
    let mut w = World::unbegun(rules(), begin(), stop());
    assert_eq!(w.told(), ["session_started", "session_stopping", "session_finished"]);
    assert_eq!((w.exit, w.phase().as_str()), (Some(3), "stopped/requested"));
    assert!(w.actions.contains(&Action::ConsumeStop) && !w.actions.contains(&Action::Prepare));
    let w = World::unbegun(rules(), begin(), Signals { pause: Some(String::new()), ..stop() });
    assert_eq!(w.exit, Some(3), "STOP beats PAUSE");
}

#[test]
fn pause_at_the_start_holds_everything() {
    let mut w = World::unbegun(rules(), begin(), pause());
    w.settle();
    assert_eq!(w.told(), ["session_started", "session_paused", "checkpoint_created"]);
    w.signal(Signals::default());
    w.settle();
    assert!(w.call.is_some());
}

#[test]
fn a_crash_is_counted_up_to_the_last_event() {
    let mut w = World::new(rules(), begin());
    w.pass(secs(10));
    w.call();
    w.now = w.now.checked_add(secs(3600)).unwrap();
    w.program_starts();
    assert_eq!(w.session().active_time_ms(w.now), 10_000, "an hour in which nobody was there");
    assert_eq!(w.session().state, Phase::Starting);
}
