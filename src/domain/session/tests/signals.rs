//! STOP, PAUSE, `resume` and a full disk, in every step.

use super::world::*;
use crate::domain::event::Body;
use crate::domain::outcome::Outcome;
use crate::domain::session::{Action, EndReason, Input, Rules, Signals, Stop};
use crate::domain::state::{GateResult, Phase, Reason};

/// A world in each step of the machine.
fn steps(change: impl Fn(&mut Rules)) -> Vec<(&'static str, World)> {
    let mut rules = rules();
    change(&mut rules);
    let fresh = || World::new(rules.clone(), begin());
    let mut all = vec![("preparing, tree unknown", fresh())];
    let mut w = fresh();
    w.ready();
    all.push(("before the tree", w));
    let mut w = fresh();
    w.base();
    all.push(("preparing", w));
    let mut w = fresh();
    w.base();
    w.ready();
    all.push(("admitting", w));
    let mut w = fresh();
    w.call();
    let report = w.report(completed());
    w.ended(report);
    assert!(w.ask.is_some());
    all.push(("admitting with an end to commit", w));
    let mut w = fresh();
    w.call();
    all.push(("calling", w));
    let mut w = fresh();
    w.attempt(Outcome::Overloaded);
    w.settle();
    all.push(("waiting", w));
    let mut w = fresh();
    w.attempt(Outcome::UsageLimited { until: None });
    w.settle();
    all.push(("cooling down", w));
    let mut w = fresh();
    w.attempt(Outcome::AuthFailed);
    w.settle();
    all.push(("paused", w));
    let mut w = fresh();
    w.call();
    w.signal(pause());
    all.push(("paused in a call", w));
    let mut w = fresh();
    w.input(disk(true));
    w.settle();
    all.push(("disk low", w));
    let mut gated = rules.clone();
    gated.gates = vec!["test".into()];
    let mut w = World::new(gated, begin());
    w.attempt(completed());
    all.push(("gating", w));
    all
}

#[test]
fn stop_is_obeyed_in_every_step() {
    for now in [false, true] {
        for (step, mut w) in steps(|_| {}) {
            let finished = w.session().finished;
            let pending = u64::from(step == "admitting with an end to commit");
            let mut stop = stop();
            stop.stop.as_mut().unwrap().now = now;
            let actions = w.mark().signal(stop.clone());
            let in_flight = w.call.is_some() || w.gates.is_some();
            if in_flight {
                // TERM goes out before the commit.
                let grace = if now { secs(0) } else { secs(5) };
                let first = actions.first().unwrap();
                assert!(
                    *first == Action::EndCall { why: EndReason::Stop, grace }
                        || *first == Action::EndGates { grace },
                    "{step}: {first:?}"
                );
                assert_eq!(w.session().state, Phase::Stopping, "{step}");
                assert_eq!(w.told(), ["session_stopping"], "{step}");
                assert!(w.signal(stop).iter().all(|a| !matches!(a, Action::Commit(_))), "{step}: said once");
                if w.call.is_some() {
                    w.attempt(Outcome::Cancelled);
                } else {
                    w.gates_end(GateResult::Cancelled);
                }
            }
            assert_eq!((w.exit, w.phase().as_str()), (Some(3), "stopped/requested"), "{step}");
            let session = w.session();
            assert_eq!(
                (&session.open, &session.wait, session.detail.as_str()),
                (&None, &None, "enough"),
                "{step}"
            );
            assert!(session.finished >= finished + pending, "{step}");
            assert_eq!(w.count("session_stopping"), 1, "{step}");
            assert_eq!(w.count("session_finished"), 1, "{step}");
            assert_eq!(w.count("wait_started"), w.count("wait_ended"), "{step}");
            let consume = w.actions.iter().position(|a| *a == Action::ConsumeStop).unwrap();
            let commit = w.actions.iter().rposition(|a| matches!(a, Action::Commit(_))).unwrap();
            assert!(commit < consume, "{step}: removed before it was obeyed");
        }
    }
}

#[test]
fn a_second_stop_without_grace_shortens_the_first() {
    let mut w = World::new(rules(), begin());
    w.call();
    w.signal(stop());
    let mut now = stop();
    now.stop.as_mut().unwrap().now = true;
    let actions = w.signal(now);
    assert_eq!(actions, [Action::EndCall { why: EndReason::Stop, grace: secs(0) }]);
}

#[test]
fn an_interrupt_consumes_no_stop_file() {
    let mut w = World::new(rules(), begin());
    let stop = Stop { reason: Reason::Interrupted, detail: String::new(), now: false };
    w.signal(Signals { stop: Some(stop), ..Signals::default() });
    assert_eq!((w.exit, w.phase().as_str()), (Some(3), "stopped/interrupted"));
    assert!(!w.actions.contains(&Action::ConsumeStop));
}

#[test]
fn a_stop_that_is_taken_back_in_time_lets_the_session_go_on() {
    let mut w = World::new(rules(), begin());
    w.call();
    w.signal(stop());
    w.signal(Signals::default());
    w.attempt(Outcome::Cancelled);
    w.call();
    assert_eq!((w.exit, w.phase().as_str()), (None, "running"));
}

#[test]
fn pause_holds_in_every_step_and_ends_with_its_file() {
    for (step, mut w) in steps(|_| {}) {
        w.mark().signal(pause());
        let in_flight = w.call.is_some() || w.gates.is_some();
        assert_eq!(w.phase(), "paused/requested", "{step}");
        assert_eq!(w.ending, None, "{step}: the call may finish");
        let finished = w.session().finished;
        if w.call.is_some() {
            w.attempt(completed());
        }
        if w.gates.is_some() {
            w.gates_end(GateResult::Passed);
        }
        w.settle();
        w.pass(secs(100_000));
        w.settle();
        assert_eq!(w.phase(), "paused/requested", "{step}");
        assert_eq!(w.session().finished, finished + u64::from(in_flight), "{step}");
        assert_eq!((w.call, w.exit), (None, None), "{step}: a call while paused");
        w.signal(Signals::default());
        w.settle();
        let then = if step == "disk low" { "paused/disk_low" } else { "" };
        if step == "paused" {
            assert_eq!(w.phase(), "paused/auth_required", "{step}: seen again");
        } else if then.is_empty() {
            assert!(w.session().state != Phase::Paused, "{step}: {}", w.phase());
            w.call();
        } else {
            assert_eq!(w.phase(), then, "{step}");
        }
    }
}

#[test]
fn pause_may_interrupt_the_call() {
    let mut w = World::new(Rules { pause_interrupts: true, ..rules() }, begin());
    w.call();
    let actions = w.signal(pause());
    assert_eq!(actions[0], Action::EndCall { why: EndReason::Pause, grace: secs(5) });
    assert_eq!(w.phase(), "paused/requested");
    w.attempt(Outcome::Cancelled);
    w.signal(Signals::default());
    w.call();
    assert_eq!((w.session().iteration, w.session().attempt, w.session().retries), (1, 2, 0));
}

#[test]
fn stop_beats_a_pause_that_interrupts() {
    let mut w = World::new(Rules { pause_interrupts: true, ..rules() }, begin());
    w.call();
    w.signal(pause());
    w.signal(Signals { pause: Some(String::new()), ..stop() });
    assert_eq!((w.ending, w.phase().as_str()), (Some(EndReason::Stop), "stopping/requested"));
    w.attempt(Outcome::Cancelled);
    assert_eq!(w.exit, Some(3));
}

#[test]
fn resume_ends_what_a_person_can_end() {
    let mut w = World::new(rules(), begin());
    w.attempt(Outcome::AuthFailed);
    w.settle();
    let actions = w.signal(resume());
    assert!(actions.contains(&Action::ConsumeResume));
    assert!(actions.contains(&Action::Readmit { chain: vec!["a".into()] }), "{actions:?}");
    w.settle();
    assert!(w.call.is_some());

    let mut w = World::new(rules(), begin());
    w.attempt(Outcome::Refused);
    w.settle();
    assert_eq!(w.phase(), "paused/refused");
    w.signal(resume());
    w.settle();
    assert!(w.call.is_some(), "{}", w.phase());

    let mut w = World::new(rules(), begin());
    w.signal(pause());
    w.signal(Signals { resume: true, ..pause() });
    assert_eq!(w.phase(), "paused/requested", "its file is still there");
    w.input(disk(true));
    w.signal(Signals::default());
    w.signal(resume());
    assert_eq!(w.phase(), "paused/disk_low", "no word makes room");
}

#[test]
fn resume_where_nothing_is_paused_is_only_removed() {
    let mut w = World::new(rules(), begin());
    w.call();
    assert_eq!(w.signal(resume()), [Action::ConsumeResume]);
}

#[test]
fn a_full_disk_pauses_in_every_step_and_ends_by_itself() {
    for (step, mut w) in steps(|_| {}) {
        if step == "disk low" {
            continue;
        }
        let before = w.phase();
        w.input(disk(true));
        let paused = if before.starts_with("paused") { before.as_str() } else { "paused/disk_low" };
        assert_eq!(w.phase(), paused, "{step}");
        assert_eq!(w.ending, w.call.map(|_| EndReason::Disk), "{step}: the call fills the disk");
        if w.call.is_some() {
            w.attempt(Outcome::Cancelled);
        }
        if w.gates.is_some() {
            w.gates_end(GateResult::Passed);
        }
        w.settle();
        assert_eq!((w.call, w.phase().as_str()), (None, paused), "{step}");
        w.signal(Signals::default());
        w.input(disk(false));
        w.settle();
        let Body::DiskRecovered { free_bytes, .. } = w.last("disk_recovered").body else { panic!() };
        assert_eq!((w.count("disk_recovered"), free_bytes), (1, 1 << 30), "{step}");
        if step != "paused" {
            w.call();
        }
    }
}

#[test]
fn a_disk_that_stays_low_is_told_once() {
    let mut w = World::new(rules(), begin());
    w.call();
    w.mark().input(disk(true));
    assert_eq!(w.told(), ["disk_low", "session_paused"]);
    assert!(w.input(disk(true)).is_empty());
}

#[test]
fn without_waiting_a_pause_for_a_person_ends_the_program() {
    let no_wait = |w: &mut Rules| w.wait = false;
    for (step, mut w) in steps(no_wait) {
        if w.exit.is_some() {
            assert_eq!((step, w.exit), ("paused", Some(5)));
            continue;
        }
        w.signal(pause());
        if w.call.is_some() {
            assert_eq!(w.exit, None, "{step}: the call finishes first");
            w.attempt(completed());
        }
        if w.gates.is_some() {
            w.gates_end(GateResult::Passed);
        }
        assert_eq!((w.exit, w.phase().as_str()), (Some(5), "paused/requested"), "{step}");
    }
}

#[test]
fn without_waiting_timed_waits_and_full_disks_are_waited_for() {
    let mut w = World::new(Rules { wait: false, ..rules() }, begin());
    w.attempt(Outcome::UsageLimited { until: None });
    w.settle();
    assert_eq!(w.exit, None);
    w.input(disk(true));
    assert_eq!(w.exit, None);
    w.input(disk(false));
    w.call();
}

#[test]
fn nothing_is_said_after_the_exit() {
    let mut w = World::new(rules(), begin());
    w.signal(stop());
    for input in [
        Input::Signals(pause()),
        disk(true),
        Input::Ready(None),
        Input::Base { tree: Some("late".into()), git: true },
        Input::LaneLost { token: None, cause: "late".into() },
        Input::GatesLost,
        Input::Nudge,
        Input::Timer(1),
    ] {
        assert!(w.input(input).is_empty());
    }
}
