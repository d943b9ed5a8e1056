//! Actors that panic in the middle of a call, in the real program: the same process goes on.
#![expect(clippy::expect_used, reason = "a test says what it expects")]

use std::fs;

use testkit::{Event, World, status_kb};

/// Panics `actor` while a call is in flight, and returns the events of the whole run.
fn crashed_in_mid_call(actor: &str) -> (World, Vec<Event>) {
    let mut world = World::with_git();
    let file = world.outside().join("crash");
    world.set("LONGHAUL_CRASH_FILE", &file);
    world.set("RUST_BACKTRACE", "0");
    let go = world.flag("go");
    let rules = format!("1: change=a.txt say=ok\n2: change=b.txt until={go} say=ok\n*: change=c.txt say=ok");
    let mut run = world.start(world.run_script(&rules, "--max-iterations 4"));
    world.agent_reaches("the second call", |log| log.calls.len() == 2);
    let pid = run.pid();
    let whole = world.outside().join("crash-whole");
    fs::write(&whole, actor).and_then(|()| fs::rename(&whole, &file)).expect("the crash file");
    run.event_where("the restart", |e| e.kind() == "actor_restarted" && e.text("actor") == actor);
    assert!(status_kb(pid, "VmRSS").is_some(), "the same process goes on");
    world.raise("go");
    let ended = run.wait().ok();
    let events = ended.events();
    (world, events)
}

fn goes_on(actor: &str) {
    let (world, events) = crashed_in_mid_call(actor);
    let numbers: Vec<u64> =
        events.iter().filter(|e| e.kind() == "iteration_finished").map(Event::iteration).collect();
    assert_eq!(numbers, [1, 2, 3, 4], "each number once, none skipped");
    let restarts = events.iter().filter(|e| e.kind() == "actor_restarted").count();
    assert_eq!(restarts, 1, "one death, one restart");
    let log = world.agent_log();
    assert!(log.violations.is_empty(), "never two agents in one folder: {:?}", log.violations);
    world.is_quiet();
}

#[test]
fn crash_of_the_store_in_mid_call() {
    goes_on("store");
}

#[test]
fn crash_of_the_lane_in_mid_call() {
    goes_on("lane");
}

#[test]
fn crash_of_the_repo_in_mid_call() {
    goes_on("repo");
}

#[test]
fn crash_of_the_signals_in_mid_call() {
    goes_on("signals");
}

#[test]
fn crash_of_the_session_in_mid_call() {
    goes_on("session");
}
