//! The invariants see what breaks them: a story of a run is told again and again, each time with one thing in it that
//! must not be.

use jiff::SignedDuration;
use longhaul::domain::event::{Body, Event};

use crate::invariants::Invariants;
use crate::month::run;

#[test]
fn each_invariant_sees_what_breaks_it() {
    let told = run(None, 150, 3, "").events;
    let seen = |words: &str, change: &dyn Fn(&mut Vec<Event>)| {
        let mut events = told.clone();
        change(&mut events);
        let mut invariants = Invariants::default();
        let broken = events.iter().find_map(|event| invariants.take(event).err()).unwrap_or_default();
        let said = broken.lines().next().unwrap_or("nothing is seen");
        println!("{words}: {said}");
        assert!(said.contains(words), "not `{words}`, but: {said}");
    };
    let at = |name: &str| told.iter().position(|event| event.body.name() == name).unwrap();
    let gone = |name: &'static str, events: &mut Vec<Event>| drop(events.remove(at(name)));
    let twice = |name: &'static str, events: &mut Vec<Event>| {
        let mut again = events[at(name)].clone();
        again.id = "00000000000000000000000001".parse().unwrap();
        events.insert(at(name) + 1, again);
    };
    seen("nothing is seen", &|_| {});
    seen("it follows event", &|events| gone("attempt_started", events));
    seen("its id was there before", &|events| events[7].id = events[6].id);
    seen("is in progress", &|events| renumbered(events, |events| twice("iteration_finished", events)));
    seen("has not finished", &|events| renumbered(events, |events| twice("iteration_started", events)));
    seen("it follows", &|events| events[at("iteration_started")].iteration = Some(2));
    seen("two calls at once", &|events| renumbered(events, |events| twice("attempt_started", events)));
    seen("no call was in flight", &|events| renumbered(events, |events| twice("attempt_finished", events)));
    seen("it is attempt", &|events| events[at("attempt_started")].attempt = Some(2));
    seen("in the middle of a wait", &|events| renumbered(events, |events| gone("wait_ended", events)));
    seen("it waits already", &|events| renumbered(events, |events| twice("wait_started", events)));
    seen("in the middle of a pause", &|events| {
        renumbered(events, |events| gone("session_continued", events))
    });
    seen("it was paused for None", &|events| renumbered(events, |events| gone("session_paused", events)));
    seen("taken before", &|events| renumbered(events, |events| twice("message_queued", events)));
    seen("delivered twice", &|events| renumbered(events, |events| twice("message_delivered", events)));
    seen("for no reason", &|events| {
        let began = events[at("wait_started")].time;
        events[at("wait_ended")].time = began;
    });
    let edited = |words: &str, name: &str, how: fn(&mut Body)| {
        seen(words, &|events| how(&mut events[at(name)].body));
    };
    edited("is over already", "wait_started", |body| {
        let Body::WaitStarted { until, .. } = body else { return };
        *until = until.checked_sub(SignedDuration::from_hours(24)).unwrap();
    });
    edited("nobody knows why", "wait_started", |body| {
        let Body::WaitStarted { detail, .. } = body else { return };
        detail.clear();
    });
    edited("is left alone", "cool_down", |body| {
        let Body::CoolDown { until, .. } = body else { return };
        *until = Some("2029-01-01T00:00:00Z".parse().unwrap());
    });
    edited("over at once", "cool_down", |body| {
        let Body::CoolDown { until, .. } = body else { return };
        *until = Some("2020-01-01T00:00:00Z".parse().unwrap());
    });
    edited("pass $0.60", "session_started", |body| {
        let Body::SessionStarted(started) = body else { return };
        started.limits.budget_usd = Some(0.6);
    });
    edited("nothing is set aside", "attempt_started", |body| {
        let Body::AttemptStarted { reserved_usd, .. } = body else { return };
        *reserved_usd = None;
    });
    edited("nobody knows what the call cost", "attempt_finished", |body| {
        let Body::AttemptFinished(finished) = body else { return };
        finished.cost_usd = None;
    });
    edited("uses a retry", "attempt_finished", |body| {
        let Body::AttemptFinished(finished) = body else { return };
        finished.counts = !finished.counts;
    });
    edited("the call in flight is", "attempt_finished", |body| {
        let Body::AttemptFinished(finished) = body else { return };
        finished.token = "00000000000000000000000001".parse().unwrap();
    });
    edited("it is over by", "budget_exceeded", |body| {
        let Body::BudgetExceeded { overshoot_usd, .. } = body else { return };
        *overshoot_usd += 1.0;
    });
}

/// Numbers as if it had happened so.
fn renumbered(events: &mut Vec<Event>, change: impl Fn(&mut Vec<Event>)) {
    change(events);
    for (seq, event) in (1..).zip(events) {
        event.seq = seq;
    }
}
