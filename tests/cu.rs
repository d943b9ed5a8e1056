//! Rows CU of the acceptance list: several at once.

use std::fs;

use serde_json::Value;
use testkit::{Event, World, words};

#[test]
fn cu_001_of_fifty_runs_at_once_one_runs() {
    let world = World::new();
    let go = world.flag("go");
    let args = world.run_agent(&format!("until={go} say=ok"), "--max-iterations 1");
    let mut runs: Vec<_> = (0..50).map(|_| world.start(args.clone())).collect();
    world.agent_reaches("the one call", |log| log.calls.len() == 1);
    let mut refused = 0;
    while runs.len() > 1 {
        let Some(at) = runs.iter_mut().position(testkit::Running::has_ended) else {
            std::thread::yield_now();
            continue;
        };
        let ended = runs.swap_remove(at).wait().exits(4);
        let winner = runs.iter().map(|r| r.pid().to_string()).find(|pid| ended.stderr.contains(pid.as_str()));
        assert!(winner.is_some(), "the holder is named: {}", ended.stderr);
        refused += 1;
    }
    assert_eq!(refused, 49);
    world.raise("go");
    let winner = runs.pop().unwrap().wait().ok();
    assert_eq!(winner.events_of("session_started").len(), 1);
    assert_eq!(world.events_of("session_started").len(), 1);
    assert_eq!(world.agent_log().calls.len(), 1);
}

#[test]
fn cu_001_a_dead_holder_never_blocks() {
    let world = World::new();
    for _ in 0..3 {
        let mut run = world.start(world.run_agent("hang", ""));
        run.event("attempt_started");
        run.kill_9();
    }
    let ended = world.run(world.run_agent("say=ok", "--max-iterations 1")).ok();
    assert!(!ended.events_of("session_crashed").is_empty() || !ended.events_of("session_resumed").is_empty());
    assert!(world.agent_log().violations.is_empty(), "two agents never share a folder");
}

#[test]
fn cu_003_two_pauses_in_one_moment_are_one_pause() {
    let world = World::new();
    let go = world.flag("go");
    let mut run =
        world.start(world.run_script(&format!("1: until={go} say=ok\n*: say=ok"), "--max-iterations 2"));
    world.agent_reaches("the first call", |log| log.calls.len() == 1);
    let by_command = world.start(["pause"]);
    fs::write(world.state().join("PAUSE"), "by file").unwrap();
    by_command.wait().ok();
    run.event("session_paused");
    world.raise("go");
    run.event("iteration_finished");
    assert_eq!(world.status()["session"]["state"], "paused");
    world.run(["resume"]).ok();
    let ended = run.wait().ok();
    ended.event("session_paused");
    ended.event("session_continued");
    assert!(!world.state().join("PAUSE").exists());
}

#[test]
fn cu_004_pause_wins_over_a_queued_message() {
    let world = World::new();
    let go = world.flag("go");
    let mut run =
        world.start(world.run_script(&format!("1: until={go} say=ok\n*: say=ok"), "--max-iterations 2"));
    world.agent_reaches("the first call", |log| log.calls.len() == 1);
    world.run(["say", "please mark-1"]).ok();
    world.run(["pause"]).ok();
    // The call ends once the pause has been seen: until then the next one may begin.
    run.event("session_paused");
    world.raise("go");
    run.event("iteration_finished");
    let status = world.status();
    assert_eq!(status["session"]["state"], "paused");
    assert_eq!(status["inbox"]["queued"], 1, "the message waits");
    assert_eq!(world.agent_log().calls.len(), 1);
    world.run(["resume"]).ok();
    let ended = run.wait().ok();
    let delivered = ended.event("message_delivered");
    assert_eq!(delivered.iteration(), 2, "it is in the first prompt after resume");
    assert_eq!(world.agent_log().calls[1].marks, ["mark-1"]);
}

#[test]
fn cu_006_templates_are_listed_whole_while_they_are_saved() {
    let world = World::new();
    let body = "## Goal\n\nBuild.\n\n## Requirements\n\n- one\n\n## Done when\n\nIt works.\n";
    let text = format!("# Mine\n\n{body}{}", "filler line\n".repeat(20_000));
    world.write("mine.md", &text);
    let list = |_| -> Vec<String> {
        let list: Value = serde_json::from_str(&world.run(words("init --list --json")).ok().stdout).unwrap();
        let items = list.as_array().or(list["templates"].as_array()).unwrap().clone();
        items.iter().map(|t| t.as_str().or(t["name"].as_str()).unwrap().to_owned()).collect()
    };
    let builtin = list(()).len();
    for round in 0..10 {
        let name = format!("mine{round}");
        let save = world.start(["init", "--save", &name, "mine.md"]);
        let during = list(());
        assert!((builtin + round..=builtin + round + 1).contains(&during.len()), "{during:?}");
        save.wait().ok();
        assert!(list(()).contains(&name), "the new one is in the next list");
        // Whatever was listed can be used, whole.
        for name in during.iter().filter(|n| n.starts_with("mine")) {
            let used = World::new();
            fs::remove_dir_all(used.home()).unwrap();
            std::os::unix::fs::symlink(world.home(), used.home()).unwrap();
            used.run(["init", "-t", name]).ok();
            let spec = fs::read_dir(used.project())
                .unwrap()
                .flatten()
                .find_map(|f| fs::read_to_string(f.path()).ok().filter(|t| t.contains("filler")))
                .unwrap();
            assert_eq!(spec.matches("filler line").count(), 20_000);
        }
    }
}

#[test]
fn cu_009_a_new_provider_takes_over_at_the_next_iteration() {
    let world = World::new();
    let go = world.flag("go");
    world.provider("first", &format!("until={go} say=one"));
    world.provider("second", "say=two");
    world.config("provider.name = \"first\"\n");
    let mut run = world.start(words("run --json --max-iterations 3"));
    world.agent_reaches("the first call", |log| log.calls.len() == 1);

    world.run(words("provider use nonsuch")).exits(2).tells("nonsuch");
    world.run(words("provider use claudd")).exits(2).tells("claude");
    world.run(words("provider use second")).ok();
    world.raise("go");
    let switched = run.event("provider_switched");
    let ended = run.wait().ok();
    let used: Vec<_> = ended.events_of("attempt_started").iter().map(|e| e.0["provider"].clone()).collect();
    assert_eq!(used, ["first", "second", "second"], "never within a call");
    assert_eq!(switched.text("from"), "first");
    assert_eq!(switched.text("to"), "second");
}

/// A run that waits in iteration 1, and goes on when `go` is raised.
fn waiting_run(world: &World, more: &str) -> testkit::Running {
    let go = world.flag("go");
    let run = world.start(world.run_script(&format!("1: until={go} say=ok\n*: say=ok"), more));
    world.agent_reaches("the first call", |log| log.calls.len() == 1);
    run
}

#[test]
fn cu_010_a_changed_setting_applies_at_the_next_iteration_and_is_told() {
    let world = World::new();
    world.config("run.max_iterations = 9\n");
    let run = waiting_run(&world, "");
    world.run(words("config set run.max_iterations 2")).ok();
    world.raise("go");
    let ended = run.wait().ok();
    let changed = ended.event("config_changed");
    assert_eq!(changed.text("key"), "run.max_iterations");
    assert_eq!((changed.data("old").to_string(), changed.data("new").to_string()), ("9".into(), "2".into()));
    assert_eq!(ended.events_of("iteration_finished").len(), 2, "limits are live");
}

#[test]
fn cu_010_secrets_are_masked_and_restart_keys_say_so() {
    let world = World::new();
    world.config("run.max_iterations = 500\n");
    let mut run = world.start(world.run_agent("work=10 say=ok change=work.txt", ""));
    run.event("iteration_finished");
    world.config(
        "run.max_iterations = 500\ndurability = \"process\"\n[providers.claude.env]\nMY_API_KEY = \"sk-very-secret\"\n",
    );
    let secret = run
        .event_where("the secret", |e| e.kind() == "config_changed" && e.text("key").contains("MY_API_KEY"));
    world.run(words("stop")).ok();
    let ended = run.wait().exits(3);
    assert!(!format!("{}{}", ended.stdout, ended.stderr).contains("sk-very-secret"), "{secret:?}");
    let durability: Vec<_> =
        ended.events_of("config_changed").into_iter().filter(|e| e.text("key") == "durability").collect();
    assert_eq!(durability.len(), 1);
    assert_eq!(durability[0].data("live"), false, "{durability:?}");
}

#[test]
fn cu_010_an_invalid_file_is_refused_with_its_place() {
    let world = World::new();
    world.config("run.max_iterations = 2\n");
    let mut run = waiting_run(&world, "");
    world.config("run.max_iterations = 1\nrun.retries = \"many\"\n");
    let place = |e: &Event| e.kind() == "config_invalid" && e.text("message").contains('2');
    run.event_where("the refusal, with line and column", place);
    world.raise("go");
    let ended = run.wait().ok();
    assert_eq!(ended.events_of("iteration_finished").len(), 2, "the old settings stay in force");
    assert!(ended.events_of("config_changed").iter().all(|e| e.text("key") != "run.max_iterations"));
    world.run(words("config set run.retries many")).exits(2);
    world.run(words("config set run.retriez 3")).exits(2).tells("run.retries");
}
