//! Hours and days of one kind of fault: the run waits, says until when, and goes on by itself.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp, ToSpan};
use longhaul::actors::host::Ended;
use longhaul::domain::event::{AttemptFinished, Body, Event};
use longhaul::domain::state::{Phase, Reason, State, WaitReason};
use longhaul::domain::status::Status;
use longhaul::intake::signal_files::resume_path;
use longhaul::messages::signals::SignalsMsg;
use tokio::time::{sleep, timeout};

use crate::scene::{Place, simulated};
use crate::verdict::named;

/// More than any of these takes.
const LONG: Duration = Duration::from_secs(60 * 86_400);

fn settings(iterations: u64, fallback: &str) -> String {
    format!(
        r#"
durability = "process"
[provider]
name = "rehearsal"
fallback = [{fallback}]
[run]
max_iterations = {iterations}
[disk]
interval = "1h"
[gates]
detect = false
"#
    )
}

/// `good` calls that work, then this, then more that work.
fn script(good: u64, then: &str) -> String {
    let works = r#"steps = [{ write = "work.txt", text = "{call}\n" }, { wait = 30.0 }, { say = "Did {iteration}." }]"#;
    format!("after = \"repeat-last\"\n[[call]]\nrepeat = {good}\n{works}\n{then}\n[[call]]\n{works}\n")
}

/// Runs it to its end, without anybody doing anything.
fn by_itself(settings: &str, script: &str) -> Vec<Event> {
    let mut place = Place::still(settings, script);
    let runtime = simulated();
    let scene = runtime.block_on(async {
        let (scene, end) = place.start(1);
        let ended = timeout(LONG, end).await;
        let state = scene.ctx.state();
        assert_eq!(ended, Ok(Ok(Ended::Code(0))), "{}", serde_json::to_string(&*state).unwrap());
        scene
    });
    drop(runtime);
    let events = scene.events();
    no_retry_is_used(&events);
    events
}

fn no_retry_is_used(events: &[Event]) {
    let mut state = State::default();
    for event in events {
        state.apply(event);
        let retries = state.session.as_ref().map_or(0, |session| session.retries);
        assert_eq!(retries, 0, "event {}: {}", event.seq, event.body.name());
    }
}

/// When each call of this outcome ended, and on which account.
fn ended<'e>(events: &'e [Event], outcome: &str) -> Vec<(&'e Event, &'e AttemptFinished)> {
    let finished = events.iter().filter_map(|event| match &event.body {
        Body::AttemptFinished(finished) => Some((event, &**finished)),
        _ => None,
    });
    finished.filter(|(_, finished)| finished.verdict.outcome.name() == outcome).collect()
}

/// Each wait: its reason, when it began, until when it was to be, and when it was over.
fn waits(events: &[Event]) -> Vec<(WaitReason, Timestamp, Timestamp, Timestamp)> {
    let mut waits = Vec::new();
    let mut open = None;
    for event in events {
        match &event.body {
            Body::WaitStarted { until, why, .. } => open = Some((*why, event.time, *until)),
            Body::WaitEnded { .. } => {
                let (why, began, until) = open.take().unwrap();
                waits.push((why, began, until, event.time));
            }
            _ => {}
        }
    }
    assert_eq!(open, None);
    waits
}

#[test]
fn ep_003_an_outage_of_six_hours_is_waited_out_in_iteration_15() {
    let outage = "[[call]]\nrepeat = 180\nsteps = [{ fail = \"network_down\" }]";
    let events = by_itself(&settings(20, ""), &script(14, outage));
    let down = ended(&events, "network_down");
    assert_eq!(down.len(), 180);
    assert!(down.iter().all(|(event, finished)| event.iteration == Some(15) && !finished.counts));
    let attempts: Vec<_> = down.iter().map(|(event, _)| event.attempt.unwrap()).collect();
    assert_eq!(attempts, (1..=180).collect::<Vec<_>>(), "each attempt is saved");
    let lasted = down[179].0.time.duration_since(down[0].0.time);
    println!("an outage of {lasted:#}");
    assert!(lasted >= SignedDuration::from_hours(6), "{lasted:#}");
    // It goes on where it was, and nobody had to do anything.
    let back = named(&events, "iteration_finished").find(|event| event.iteration == Some(15)).unwrap();
    assert!(back.time > down[179].0.time);
    assert_eq!(named(&events, "session_paused").count(), 0);
    let waits = waits(&events);
    assert_eq!(waits.len(), 180);
    for (why, began, until, over) in waits {
        assert_eq!(why, WaitReason::NetworkDown);
        assert!(until.duration_since(began) <= SignedDuration::from_mins(5), "the cap");
        assert!(over >= until);
    }
}

#[test]
fn ep_011_a_limit_of_24_hours_is_slept_through_until_its_reset() {
    let limit = "[[call]]\nsteps = [{ fail = \"usage_limited\", after = 86400 }]";
    let mut place = Place::still(&settings(5, ""), &script(2, limit));
    let runtime = simulated();
    let (scene, midway) = runtime.block_on(async {
        let (scene, end) = place.start(1);
        sleep(Duration::from_secs(12 * 3600)).await;
        let ctx = &scene.ctx;
        let status = Status::of(&ctx.state(), &ctx.status_facts(), ctx.now());
        assert_eq!(timeout(LONG, end).await, Ok(Ok(Ended::Code(0))));
        (scene, serde_json::to_string(&status).unwrap())
    });
    drop(runtime);
    let events = scene.events();
    no_retry_is_used(&events);
    let [(limited, finished)] = ended(&events, "usage_limited")[..] else { panic!("one limit") };
    assert!(!finished.counts);
    let reset = limited.time.checked_add(24.hours()).unwrap();
    let [(why, _, until, over)] = waits(&events)[..] else { panic!("one wait") };
    assert_eq!(why, WaitReason::CoolDown);
    // The stated reset, and jitter: never before it.
    assert!(until > reset && until.duration_since(reset) <= SignedDuration::from_secs(5), "{reset} {until}");
    assert!(over >= until && over.duration_since(until) < SignedDuration::from_secs(1), "{until} {over}");
    assert!(midway.contains(&format!("\"{until}\"")), "it does not show when it goes on: {midway}");
    assert!(midway.contains("waiting"), "{midway}");
    // No call in between: the next one is at that time.
    let next = named(&events, "attempt_started").find(|event| event.time > limited.time).unwrap();
    assert!(next.time >= until);
    assert_eq!(next.iteration, limited.iteration);
}

#[test]
fn ep_011_a_limit_without_a_reset_is_probed_ever_more_seldom() {
    let limit = "[[call]]\nrepeat = 20\nsteps = [{ fail = \"usage_limited\" }]";
    let events = by_itself(&settings(5, ""), &script(2, limit));
    assert_eq!(ended(&events, "usage_limited").len(), 20);
    let waits: Vec<_> =
        waits(&events).iter().map(|(_, began, until, _)| until.duration_since(*began).as_secs()).collect();
    println!("waits of {waits:?} s");
    assert_eq!(waits.len(), 20);
    for (n, wait) in waits.iter().enumerate() {
        let most = 3600.min(60 << n.min(10)) + 60;
        assert!((60..=most).contains(wait), "wait {n} of {wait} s: {waits:?}");
    }
    assert!(waits[10..].iter().any(|wait| *wait > 1800), "it never gets to the hour: {waits:?}");
    assert_eq!(named(&events, "session_paused").count(), 0);
}

#[test]
fn ep_004_a_revoked_key_pauses_names_the_credential_and_goes_on_when_a_person_says_so() {
    let revoked = "[[call]]\nsteps = [{ fail = \"auth_failed\" }]";
    let mut place = Place::still(&settings(5, ""), &script(2, revoked));
    let runtime = simulated();
    let scene = runtime.block_on(async {
        let (scene, end) = place.start(1);
        sleep(Duration::from_secs(3 * 3600)).await;
        let ctx = &scene.ctx;
        let state = ctx.state();
        let session = state.session.as_ref().unwrap();
        assert_eq!((session.state, session.reason), (Phase::Paused, Some(Reason::AuthRequired)));
        assert!(session.detail.contains("credential of `rehearsal`"), "{}", session.detail);
        assert!(session.detail.contains("log in again"), "{}", session.detail);
        assert!(ctx.store_paths.signals.join("NEEDS_HUMAN").exists());
        // It was asked once, not again and again.
        assert_eq!((session.calls, session.retries), (3, 0));
        fs::write(resume_path(&ctx.paths), "").unwrap();
        ctx.slots.signals.cast(SignalsMsg::Hint);
        assert_eq!(timeout(LONG, end).await, Ok(Ok(Ended::Code(0))));
        assert!(!ctx.store_paths.signals.join("NEEDS_HUMAN").exists());
        scene
    });
    drop(runtime);
    let events = scene.events();
    no_retry_is_used(&events);
    let [(revoked, _)] = ended(&events, "auth_failed")[..] else { panic!("one refusal") };
    let again = named(&events, "attempt_started").find(|event| event.time > revoked.time).unwrap();
    assert_eq!((again.iteration, again.attempt), (revoked.iteration, Some(2)), "where it was");
}

#[test]
fn ep_004_another_credential_takes_over_and_the_revoked_one_is_left_alone() {
    let revoked = "[[call]]\nsteps = [{ fail = \"auth_failed\" }]";
    let events = by_itself(&settings(8, "\"second\""), &script(2, revoked));
    let providers: Vec<_> =
        named(&events, "attempt_started").map(|event| event.provider.clone().unwrap()).collect();
    let mut expected = vec!["rehearsal"; 3];
    expected.extend(["second"; 6]);
    assert_eq!(providers, expected);
    assert_eq!(named(&events, "session_paused").count(), 0);
}

/// Calls that end with a limit: one for each account and window, whatever the other account does.
fn one_probe_for_each_window(events: &[Event], shortest: SignedDuration) {
    let mut until: BTreeMap<&str, Timestamp> = BTreeMap::new();
    let mut last: BTreeMap<&str, Timestamp> = BTreeMap::new();
    let mut probes: BTreeMap<&str, u32> = BTreeMap::new();
    for event in events {
        let provider = event.provider.as_deref().unwrap_or_default();
        match &event.body {
            Body::CoolDown { account, until: Some(end), .. } => {
                assert!(end.duration_since(event.time) >= shortest, "{account} at {}", event.time);
                until.insert(account, *end);
                probes.insert(account, 0);
            }
            Body::AttemptStarted { .. } => {
                let window = until.get(provider);
                assert!(window.is_none_or(|until| event.time >= *until), "{provider} called in its window");
                if let Some(probes) = probes.get_mut(provider) {
                    *probes += 1;
                    assert_eq!(*probes, 1, "{provider} is called again before it has answered");
                    let before = last[provider];
                    assert!(event.time.duration_since(before) >= shortest, "{provider}: ping-pong");
                }
                last.insert(provider, event.time);
            }
            Body::AttemptFinished(finished) if finished.verdict.outcome.ends_iteration() => {
                probes.remove(provider);
                until.remove(provider);
            }
            _ => {}
        }
    }
}

#[test]
fn two_limited_providers_are_probed_once_a_window_each() {
    let limited = "[[call]]\nrepeat = 40\nsteps = [{ fail = \"rate_limited\", after = 1800 }]";
    let events = by_itself(&settings(6, "\"second\""), &script(2, limited));
    one_probe_for_each_window(&events, SignedDuration::from_mins(30));
    let limited = ended(&events, "rate_limited");
    assert_eq!(limited.len(), 40);
    // Two calls in each half hour, one for each account.
    let lasted = limited[39].0.time.duration_since(limited[0].0.time);
    assert!(lasted >= SignedDuration::from_mins(19 * 30), "{lasted:#}");
    for name in ["rehearsal", "second"] {
        assert_eq!(limited.iter().filter(|(event, _)| event.provider.as_deref() == Some(name)).count(), 20);
    }
}

#[test]
fn two_providers_limited_without_a_reset_are_probed_once_a_window_each() {
    let limited = "[[call]]\nrepeat = 40\nsteps = [{ fail = \"rate_limited\" }]";
    let events = by_itself(&settings(6, "\"second\""), &script(2, limited));
    one_probe_for_each_window(&events, SignedDuration::from_secs(60));
    assert_eq!(ended(&events, "rate_limited").len(), 40);
}
