//! Rows RT of the acceptance list: recovery after a crash, and lost capabilities.

use std::fs;

use rustix::process::Signal;
use testkit::{Event, World, words};

#[test]
fn rt_03_losing_git_is_an_event_and_the_run_goes_on() {
    let broken = World::with_git();
    fs::write(broken.project().join(".git/HEAD"), "garbage\n").unwrap();
    fs::remove_dir_all(broken.project().join(".git/objects")).unwrap();
    for world in [World::new(), broken] {
        // No setting hides it from the journal.
        let ended = world
            .run(world.run_agent("change=work.txt say=ok", "--max-iterations 1 --log-level error --quiet"))
            .ok();
        let lost = ended.event("capability_degraded");
        assert_eq!(lost.text("capability"), "git");
        assert_eq!(lost.level(), "warn");
        for field in ["capability", "fail_closed", "reason", "provider", "model", "iteration"] {
            assert!(lost.0["data"].as_object().unwrap().contains_key(field), "{field}: {lost:?}");
        }
        assert!(!lost.text("reason").is_empty());
        assert_eq!(world.events_of("capability_degraded").len(), 1);
    }
}

#[test]
fn rt_03_git_that_breaks_during_the_run_does_not_end_it() {
    let world = World::with_git();
    let rules = "2: run='rm -rf .git/objects .git/HEAD' change=work.txt say=ok\n*: change=work.txt say=ok";
    let ended = world.run(world.run_script(rules, "--max-iterations 4")).ok();
    assert_eq!(ended.events_of("iteration_finished").len(), 4);
    assert!(
        ended
            .events_of("capability_degraded")
            .iter()
            .any(|e| e.iteration() >= 2 || e.data("iteration").is_u64())
    );
}

/// Kills the run of a session in state `found`, and goes on with it.
fn crash_and_go_on(world: &World, mut run: testkit::Running, found: &str) -> testkit::Finished {
    let iteration = world.status()["session"]["iteration"].as_u64().unwrap_or_default();
    run.kill_9();
    let ended = world.run(world.run_script("*: change=work.txt say=ok", "--max-iterations 3")).ok();
    let crashed = ended.event("session_crashed");
    assert_eq!(crashed.text("found"), found);
    let finished: Vec<_> = ended.events_of("iteration_finished").iter().map(Event::iteration).collect();
    assert_eq!(finished, (iteration.max(1)..=3).collect::<Vec<_>>(), "the counter goes on");
    assert_eq!(world.events_of("session_started").len(), 1, "it is the same session");
    assert!(world.agent_log().violations.is_empty());
    ended
}

#[test]
fn rt_07_killed_while_running() {
    let world = World::new();
    let rules = "1: change=work.txt say=ok\n*: hang";
    let mut run = world.start(world.run_script(rules, ""));
    run.event_where("iteration 2", |e| e.kind() == "attempt_started" && e.iteration() == 2);
    let ended = crash_and_go_on(&world, run, "running");
    let closed = &ended.events_of("attempt_finished")[0];
    assert_eq!((closed.iteration(), closed.attempt(), closed.text("outcome")), (2, 1, "cancelled"));
    let again = &ended.events_of("attempt_started")[0];
    assert_eq!((again.iteration(), again.attempt()), (2, 2), "the cut iteration runs again");
}

#[test]
fn rt_07_killed_while_waiting_keeps_the_retries() {
    let world = World::new();
    world.config("backoff.base = \"1ms\"\nbackoff.cap = \"9h\"\n");
    let rules = "1: change=work.txt say=ok\n*: err=broken exit=5";
    let mut run = world.start(world.run_script(rules, ""));
    // The first pause that is long enough not to end by itself.
    world.config("backoff.base = \"9h\"\nbackoff.cap = \"9h\"\n");
    run.event_where("a long wait", |e| e.kind() == "wait_started" && e.iteration() == 2);
    let waiting = world.status_reaches("waiting", |s| s["session"]["state"] == "waiting");
    let retries = waiting["session"]["retries"].as_u64().unwrap();
    assert!(retries >= 1, "{waiting}");
    run.kill_9();
    // Still waiting after the restart, with its counters: a crash is no way around a back-off.
    let mut run = world.start(world.run_script("*: change=work.txt say=ok", "--max-iterations 3"));
    assert_eq!(run.event("session_crashed").text("found"), "waiting");
    let status = world.status_reaches("waiting again", |s| s["session"]["state"] == "waiting");
    assert_eq!(
        (status["session"]["retries"].as_u64(), status["session"]["iteration"].as_u64()),
        (Some(retries), Some(2))
    );
    run.signal(Signal::INT);
    run.wait().exits(3);
}

#[test]
fn rt_07_killed_while_stopping_is_still_stopped() {
    let world = World::new();
    let mut run = world.start(world.run_agent("ignore=term hang", ""));
    world.agent_reaches("the call", |log| log.calls.len() == 1);
    run.event("attempt_started");
    fs::write(world.state().join("STOP"), "enough").unwrap();
    run.event("session_stopping");
    run.kill_9();
    assert!(world.state().join("STOP").exists(), "not obeyed to its end");
    let args = || world.run_agent("change=work.txt say=ok", "--max-iterations 1");
    world.run(args()).exits(3);
    assert_eq!(world.agent_log().calls.len(), 1, "one found at start is obeyed: nothing starts");
    assert!(!world.state().join("STOP").exists());
    world.run(args()).ok();
    assert_eq!(world.events_of("iteration_finished").len(), 1);
    assert!(world.agent_log().violations.is_empty());
}

#[test]
fn rt_07_a_pause_holds_as_long_as_its_cause() {
    let world = World::new();
    let args = || world.run_agent("change=work.txt say=ok", "--max-iterations 2");
    let go = world.flag("go");
    let mut run =
        world.start(world.run_script(&format!("1: until={go} say=ok\n*: say=ok"), "--max-iterations 2"));
    run.event("attempt_started");
    fs::write(world.state().join("PAUSE"), "").unwrap();
    run.event("session_paused");
    // The call in flight may finish; nothing comes after it.
    world.raise("go");
    run.event("iteration_finished");
    run.kill_9();
    let mut run = world.start(args());
    run.event_where("it resumes as paused", |e| e.kind() == "session_resumed");
    world.status_reaches("still paused", |s| s["session"]["state"] == "paused");
    assert_eq!(world.agent_log().calls.len(), 1, "nothing starts");
    world.run(["resume"]).ok();
    let ended = run.wait().ok();
    assert_eq!(ended.events_of("iteration_finished").len(), 1);
    assert_eq!(world.events_of("iteration_finished").len(), 2);
}

#[test]
fn rt_07_budget_exceeded_holds_over_a_restart() {
    let world = World::new();
    world.config("budget.usd = 1.0\nbudget.assume_usd_per_call = 0.6\n");
    let args = || world.run_agent("change=work.txt say=ok", "--max-iterations 2");
    let mut run = world.start(args());
    assert_eq!(run.event("session_paused").text("reason"), "budget_exceeded");
    run.kill_9();
    let mut run = world.start(args());
    run.event_where("resumed", |e| e.kind() == "session_resumed" || e.kind() == "session_crashed");
    let status = world.status_reaches("paused", |s| s["session"]["state"] == "paused");
    assert_eq!(status["session"]["reason"], "budget_exceeded");
    assert_eq!(status["budget"]["spent_usd"], 0.6);
    assert_eq!(world.agent_log().calls.len(), 1);
    world.run(words("config set budget.usd 5")).ok();
    run.wait().ok();
    assert_eq!(world.agent_log().calls.len(), 2);
}

#[test]
fn rt_07_interrupted_and_stopped_sessions_keep_their_counters() {
    let world = World::new();
    let mut last = 0;
    for how in ["INT", "TERM", "STOP"] {
        let mut run = world.start(world.run_agent("change=work.txt say=ok", ""));
        let at = last;
        run.event_where("two more", |e| e.kind() == "iteration_finished" && e.iteration() >= at + 2);
        match how {
            "INT" => run.signal(Signal::INT),
            "TERM" => run.signal(Signal::TERM),
            _ => drop(fs::write(world.state().join("STOP"), "")),
        }
        let ended = run.wait().exits(3);
        let end = ended.event("session_finished");
        let reason = if how == "STOP" { "requested" } else { "interrupted" };
        assert_eq!((end.text("state"), end.text("reason")), ("stopped", reason));
        assert_eq!(world.status()["session"]["reason"], reason, "kept");
        last = ended.events_of("iteration_finished").last().map_or(last, Event::iteration);
    }
    let finished: Vec<_> = world.events_of("iteration_finished").iter().map(Event::iteration).collect();
    assert_eq!(finished, (1..=last).collect::<Vec<_>>(), "one after the other over three runs");
    assert_eq!(world.events_of("session_started").len(), 1);
    assert!(world.events_of("session_crashed").is_empty());
}

/// Claude, as far as conversations go: each call has a new one unless it goes on with one. `$keeps` no: it never does.
/// The second call asks for a stop, and stays until that ends it.
const TALKER: &str = r#"
n=$(cat calls 2>/dev/null | wc -l)
echo "$*" >> calls
id=s-$n
while [ $# -gt 0 ]; do [ "$1" = --resume ] && [ "$KEEPS" = yes ] && id=$2; shift; done
echo "{\"type\":\"system\",\"subtype\":\"init\",\"session_id\":\"$id\"}"
echo "{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"result\":\"did $n\",\"session_id\":\"$id\"}"
[ $n = 1 ] && touch .longhaul/STOP && exec sleep 60
exit 0
"#;

/// Two calls, a restart, two more calls: the arguments of all four, and the attempts of the second run.
fn restarted(settings: &str, keeps: &str) -> (Vec<String>, Vec<testkit::Event>) {
    let mut world = World::new();
    world.config(&format!("[provider]\nname = \"claude\"\n[run]\n{settings}\n"));
    world.cli("claude", "2.1.332 (Claude Code)", TALKER);
    world.set("KEEPS", keeps);
    world.run(words("run --max-iterations 4")).exits(3);
    let ended = world.run(words("run --max-iterations 4 --json")).ok();
    let calls = world.read("calls").lines().map(str::to_owned).collect();
    (calls, ended.events_of("attempt_finished"))
}

#[test]
fn rt_05_one_call_after_a_restart_goes_on_with_the_conversation() {
    let (calls, attempts) = restarted("resume_conversation = true", "yes");
    let resumed: Vec<bool> = calls.iter().map(|call| call.contains("--resume s-1")).collect();
    assert_eq!(resumed, [false, false, true, false], "{calls:?}");
    assert_eq!((attempts[0].data("resumed"), attempts[0].text("conversation")), (&true.into(), "s-1"));
    assert_eq!(
        (attempts[1].data("resumed"), attempts[1].text("conversation")),
        (&serde_json::Value::Null, "s-3")
    );
}

#[test]
fn rt_05_another_id_that_comes_back_is_no_resumption_and_said_so() {
    let (calls, attempts) = restarted("resume_conversation = true", "no");
    assert!(calls[2].contains("--resume s-1"), "{calls:?}");
    assert_eq!((attempts[0].data("resumed"), attempts[0].text("conversation")), (&false.into(), "s-2"));
    assert!(attempts[0].text("warning").contains("a fresh one"), "{:?}", attempts[0]);
}

#[test]
fn rt_05_another_account_does_not_go_on_with_it() {
    let mut world = World::new();
    world.config("[provider]\nname = \"claude\"\n[run]\nresume_conversation = true\n");
    world.cli("claude", "2.1.332 (Claude Code)", TALKER);
    world.set("KEEPS", "yes");
    world.set("ANTHROPIC_API_KEY", "one");
    world.run(words("run --max-iterations 4")).exits(3);
    world.set("ANTHROPIC_API_KEY", "two");
    let ended = world.run(words("run --max-iterations 4 --json")).ok();
    assert!(!world.read("calls").contains("--resume"), "{}", world.read("calls"));
    let first = &ended.events_of("attempt_finished")[0];
    assert_eq!(first.data("resumed"), &serde_json::Value::Bool(false), "and it says so");
    assert!(!ended.stdout.contains("\"one\"") && !ended.stdout.contains("one@"), "no key is told");
}

#[test]
fn rt_05_it_is_off_unless_it_is_asked_for() {
    let (calls, attempts) = restarted("", "yes");
    assert!(calls.iter().all(|call| !call.contains("--resume")), "{calls:?}");
    assert_eq!(attempts[0].data("resumed"), &serde_json::Value::Null);
}
