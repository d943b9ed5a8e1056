//! Rows EC-010, EC-013 and EC-014: agents that stagnate, fail or say nothing, and gates that hang.

use testkit::{Event, Finished, World, words};

#[test]
fn ec_010_stagnation_is_told_and_then_pauses() {
    let world = World::with_git();
    let mut run = world.start(world.run_script("1: change=work.txt say=ok\n*: say=ok", ""));
    let paused = run.event("session_paused");
    assert_eq!(paused.text("reason"), "stagnated");
    let events = run.events();
    let told: Vec<_> = events.iter().filter(|e| e.kind() == "stagnation").collect();
    assert_eq!(told[0].data("iterations"), 5);
    assert_eq!(told[0].iteration(), 6, "iterations 2 to 6 changed nothing");
    let finished = events.iter().filter(|e| e.kind() == "iteration_finished").count();
    assert_eq!(finished, 11, "it pauses after ten without a change");
    let says = |n: usize| world.prompt(n).to_lowercase().contains("stagnation");
    assert!(!says(6) && says(7), "the next prompt says so: {}", world.prompt(7));
    world.run(words("stop")).ok();
    run.wait().exits(3);
}

#[test]
fn ec_010_fifty_checkpoints_are_kept() {
    let world = World::with_git();
    world.config("durability = \"process\"\n");
    world.run(world.run_agent("change=work.txt say=ok", "--max-iterations 60")).ok();
    let refs = world.git("for-each-ref --format=%(refname) refs/longhaul/checkpoints");
    let numbers: Vec<u64> = refs.lines().map(|r| r.rsplit('/').next().unwrap().parse().unwrap()).collect();
    assert_eq!(numbers, (11..=60).collect::<Vec<_>>());
    assert!(refs.lines().all(|r| r.rsplit('/').next().unwrap().len() == 6), "{refs}");
}

#[test]
fn ec_010_only_failures_in_a_row_use_retries() {
    let world = World::new();
    world.config("backoff.base = \"1ms\"\nbackoff.cap = \"1ms\"\ndurability = \"process\"\n");
    // 49 failures, a success, and then failures for ever.
    let rules = "@50: change=work.txt say=ok\n*: err=broken exit=7";
    let mut run = world.start(world.run_script(rules, ""));
    let paused = run.event("session_paused");
    assert_eq!(paused.text("reason"), "retries_exhausted");
    let log = world.agent_log();
    assert_eq!(log.calls.len(), 100, "fifty in a row after the success, and not one more");
    assert!(
        log.calls[..50].iter().all(|c| c.iteration == 1) && log.calls[50..].iter().all(|c| c.iteration == 2)
    );
    assert_eq!(log.calls[49].attempt, 50);
    let status = world.status();
    assert_eq!(
        (status["session"]["retries"].as_u64(), status["session"]["iteration"].as_u64()),
        (Some(50), Some(2))
    );
    world.run(words("stop")).ok();
    run.wait().exits(3);
}

#[test]
fn ec_010_no_wait_exits_where_only_a_person_can_help() {
    let world = World::new();
    world.config("backoff.base = \"1ms\"\nbackoff.cap = \"1ms\"\nrun.retries = 2\n");
    world.run(world.run_agent("err=broken exit=7", "--no-wait")).exits(5);
}

#[test]
fn ec_013_no_output_is_no_success() {
    let world = World::new();
    world.config("backoff.base = \"1ms\"\nbackoff.cap = \"1ms\"\n");
    let mut run = world.start(world.run_agent("", ""));
    run.event("session_paused");
    let attempts: Vec<Event> = run.events().into_iter().filter(|e| e.kind() == "attempt_finished").collect();
    assert_eq!(attempts.len(), 3, "three in a row lead to a pause");
    assert!(
        attempts.iter().all(|a| a.text("outcome") == "empty" && a.data("counts") == true),
        "{attempts:#?}"
    );
    assert!(run.events().iter().all(|e| e.kind() != "iteration_finished"), "never a success");
    assert_eq!(world.status()["session"]["retries"], 3);
    world.run(words("stop")).ok();
    run.wait().exits(3);
}

#[test]
fn ec_013_three_empty_answers_fail_over() {
    let world = World::new();
    world.provider("mute", "");
    world.provider("talks", "say=ok change=work.txt");
    world.config("backoff.base = \"1ms\"\nbackoff.cap = \"1ms\"\nprovider.name = \"mute\"\nprovider.fallback = [\"talks\"]\n");
    let ended = world.run(words("run --json --max-iterations 1")).ok();
    let failover = ended.event("failover");
    assert_eq!((failover.text("from"), failover.text("to")), ("mute", "talks"));
    let outcomes: Vec<_> =
        ended.events_of("attempt_finished").iter().map(|e| e.text("outcome").to_owned()).collect();
    assert_eq!(outcomes, ["empty", "empty", "empty", "completed"]);
}

/// Two iterations of an agent that claims to be done each time, with this gate.
fn claims_with_gate(gate: &str) -> (World, Finished) {
    let world = World::new();
    let program = testkit::fake_agent().display().to_string();
    world.config(&format!(
        "stop.grace = \"100ms\"\n[[gates.commands]]\nname = \"check\"\nrun = \"{program} deaf {gate}\"\ntimeout = \"300ms\"\n"
    ));
    let ended = world.run(world.run_agent("change=work.txt done", "--max-iterations 2")).ok();
    (world, ended)
}

#[test]
fn ec_014_a_gate_that_hangs_does_not_count_as_passed() {
    for gate in ["hang", "ignore=term,int,hup hang", "ignore=term stray=setsid stray=double stray=plain hang"]
    {
        let (world, ended) = claims_with_gate(gate);
        assert_eq!(ended.events_of("gate_timeout").len(), 2, "{gate}: {}", ended.stdout);
        let results: Vec<_> =
            ended.events_of("gate_finished").iter().map(|e| e.text("result").to_owned()).collect();
        assert_eq!(results, ["timed_out", "timed_out"], "{gate}");
        assert!(ended.events_of("completion_verified").is_empty(), "{gate}: completion waits");
        assert_eq!(ended.events_of("iteration_finished").len(), 2, "{gate}: the iterations go on");
        world.is_quiet();
    }
}

#[test]
fn ec_014_children_that_hold_the_pipe_do_not_hold_the_gate() {
    let (world, ended) = claims_with_gate("stray=plain stray=setsid stray=double say=passed");
    let gate = &ended.events_of("gate_finished")[0];
    assert_eq!(gate.text("result"), "passed", "its exit counts: {gate:?}");
    assert_eq!(world.status()["session"]["reason"], "goals_met");
    world.is_quiet();
}

#[test]
fn ec_014_a_gate_that_cannot_run_blocks_completion() {
    let world = World::new();
    world.config("[[gates.commands]]\nname = \"check\"\nrun = \"/nowhere/gate --now\"\n");
    let ended = world.run(world.run_agent("change=work.txt done", "--max-iterations 1")).ok();
    assert_eq!(ended.event("gate_finished").text("result"), "could_not_run");
    assert!(ended.events_of("completion_verified").is_empty());
}

#[test]
fn ec_010_tools_without_end_are_ended_at_the_cap() {
    let world = World::new();
    world.config("[limits]\ntool_calls = 20\nfirst_output = \"8s\"\n[provider]\nname = \"claude\"\n");
    let tool = r#"{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Bash","input":{}}]}}"#;
    world.cli("claude", "2.1.332 (Claude Code)", &format!("while :; do echo '{tool}'; sleep 0.02; done"));
    let ended = world.run(words("run --json --max-iterations 1")).ok();
    let attempt = ended.event("attempt_finished");
    assert_eq!((attempt.text("outcome"), attempt.text("rule")), ("cap_reached", "ended.cap"), "{attempt:?}");
    assert!(attempt.data("tools").as_u64().is_some_and(|tools| tools >= 20), "{attempt:?}");
    assert_eq!(ended.events_of("iteration_finished").len(), 1, "it counts as an iteration");
    world.is_quiet();
}

/// Recorded with codex 0.171.0 on a host without a network: it says so again and again, and waits for ever.
#[test]
fn a_cli_that_only_tries_again_is_ended_and_judged_by_what_it_fails_of() {
    let world = World::new();
    let waits = r#"{"type":"error","message":"Reconnecting... waiting for network (Connection failed: error sending request)"}"#;
    let done = concat!(
        r#"{"type":"item.completed","item":{"id":"i","type":"agent_message","text":"done"}}"#,
        "\n",
        r#"{"type":"turn.completed","usage":{"input_tokens":1,"output_tokens":1}}"#
    );
    world.cli(
        "codex",
        "codex-cli 0.171.0",
        &format!("if mkdir once; then while :; do echo '{waits}'; sleep 0.02; done; fi; echo '{done}'"),
    );
    world.config("provider.name = \"codex\"\nlimits.retrying = \"100ms\"\nbackoff.base = \"10ms\"\n");
    let ended = world.run(words("run --json --max-iterations 1")).ok();
    let attempts = ended.events_of("attempt_finished");
    let told: Vec<_> = attempts.iter().map(|e| (e.text("outcome"), e.data("counts").clone())).collect();
    assert_eq!(told, [("network_down", false.into()), ("completed", false.into())], "{attempts:?}");
    world.is_quiet();
}

#[test]
fn bd_004_tokens_of_a_model_with_a_known_price_are_money() {
    let world = World::new();
    world.config("[provider]\nname = \"codex\"\nmodel = \"gpt-5.1-codex\"\n[budget]\nusd = 5.0\n");
    let usage = r#"{"input_tokens":1000000,"cached_input_tokens":200000,"output_tokens":10000}"#;
    let said = r#"{"type":"item.completed","item":{"type":"agent_message","text":"done"}}"#;
    let shell = format!("echo '{said}'; echo '{{\"type\":\"turn.completed\",\"usage\":{usage}}}'");
    world.cli("codex", "codex-cli 0.171.0", &shell);
    let attempt = world.run(words("run --json --max-iterations 1")).ok().event("attempt_finished");
    let cost = attempt.data("cost_usd").as_f64().unwrap();
    assert!((cost - (0.8 * 1.25 + 0.2 * 0.125 + 0.1)).abs() < 1e-9, "{attempt:?}");
    // Without a known price a budget cannot be kept.
    world.config("[provider]\nname = \"codex\"\nmodel = \"some-model\"\n[budget]\nusd = 5.0\n");
    let refused = world.run(words("run --fresh --max-iterations 1")).exits(2);
    assert!(refused.stderr.contains("does not tell"), "{}", refused.stderr);
}
