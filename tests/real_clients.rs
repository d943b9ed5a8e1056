//! The real Claude Code, Codex and Gemini CLI, driven by Longhaul against a small model API on loopback.
//!
//! `LONGHAUL_TEST_PEERS=1 cargo test --test real_clients` installs them first; CI always does.

#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::path::Path;
use std::process::Command;

use testkit::api::{Call, FakeApi, Turn};
use testkit::{Peer, Running, World, words};

/// Three iterations: each writes a file, commits it and says so; the third claims that all is done.
fn three_iterations(project: &Path) -> Vec<Turn> {
    let mut turns = Vec::new();
    for n in 1..=3 {
        let path = project.join(format!("part{n}.txt")).display().to_string();
        let mut write = Turn::writes(&path, &format!("part {n}\n"));
        write.text = format!("I will write part {n}.");
        turns.push(write);
        turns.push(Turn {
            calls: vec![Call::Shell(format!("git add part{n}.txt && git commit -q -m 'Add part {n}'"))],
            ..Turn::default()
        });
        turns.push(Turn::says(&match n {
            3 => "Part 3 is written.\n\nLONGHAUL_DONE".to_owned(),
            _ => format!("Part {n} is written and committed."),
        }));
    }
    turns
}

/// A repository with a gate that passes once all three parts are there, and the CLI on `PATH`.
fn world_with(peer: Peer, program: &Path) -> World {
    let world = World::with_git();
    world.write("SPEC.md", "# Parts\n\nWrite part1.txt, part2.txt and part3.txt, and commit each.\n");
    world.config(
        "[[gates.commands]]\nname = \"parts\"\nrun = \"test -f part1.txt -a -f part2.txt -a -f part3.txt\"\n",
    );
    peer.installs(&world, program);
    world
}

/// The CLI alone: when this fails, the other tests of this file say nothing about Longhaul.
fn alone(peer: Peer, args: &str) {
    let Some(program) = peer.find() else { return };
    let mut world = world_with(peer, &program);
    let api = FakeApi::start(three_iterations(world.project()));
    peer.connects(&mut world, &api);
    let mut command: Command = world.program(&program);
    command.args(words(args)).arg("Write part 1");
    let ended = Running::spawn(command).wait().ok();
    assert!(ended.stdout.contains("Part 1 is written and committed."), "{}\n{:#?}", ended.stdout, api.seen());
    assert_eq!(world.read("part1.txt"), "part 1\n");
    assert_eq!(world.git("log -1 --format=%s"), "Add part 1");
}

#[test]
fn claude_works_with_the_fake_api() {
    alone(
        Peer::Claude,
        "-p --output-format stream-json --verbose --dangerously-skip-permissions --model claude-sonnet-4-5",
    );
}

#[test]
fn codex_works_with_the_fake_api() {
    alone(
        Peer::Codex,
        "exec --json --dangerously-bypass-approvals-and-sandbox --disable plugins --disable shell_snapshot",
    );
}

#[test]
fn gemini_works_with_the_fake_api() {
    alone(Peer::Gemini, "--skip-trust -m gemini-2.5-pro --approval-mode yolo -o text -p");
}

/// Longhaul drives the CLI for three iterations.
fn driven(peer: Peer) {
    let Some(program) = peer.find() else { return };
    let mut world = world_with(peer, &program);
    let api = FakeApi::start(three_iterations(world.project()));
    peer.connects(&mut world, &api);

    let run = format!(
        "run SPEC.md --json --max-iterations 5 --provider {} --model {}",
        peer.program(),
        peer.model()
    );
    let ended = world.run(words(&run)).ok();

    for n in 1..=3 {
        assert_eq!(world.read(&format!("part{n}.txt")), format!("part {n}\n"));
    }
    assert_eq!(world.git("log --reverse --format=%s"), "first\nAdd part 1\nAdd part 2\nAdd part 3");
    let finished: Vec<_> = ended.events_of("iteration_finished").iter().map(|e| e.iteration()).collect();
    assert_eq!(finished, [1, 2, 3]);
    for attempt in ended.events_of("attempt_finished") {
        assert_eq!(attempt.text("outcome"), "completed", "{attempt:?}");
        assert_eq!(attempt.0["provider"], peer.program());
        let usage = attempt.data("usage");
        assert!(
            usage["input_tokens"].as_u64().is_some_and(|n| n >= 3600),
            "three requests of 1200: {attempt:?}"
        );
        assert!(
            usage["output_tokens"].as_u64().is_some_and(|n| n >= 102),
            "three answers of 34: {attempt:?}"
        );
        let cost = attempt.data("cost_usd").as_f64().unwrap_or_default();
        assert!((0.001..0.1).contains(&cost), "a few cents at list price: {attempt:?}");
    }
    ended.event("completion_claimed");
    ended.event("completion_verified");
    let gate = ended.events_of("gate_finished").pop().unwrap();
    assert_eq!((gate.text("name"), gate.text("result")), ("parts", "passed"));
    let status = world.status();
    assert_eq!(status["session"]["state"], "finished");
    assert_eq!(status["session"]["reason"], "goals_met");
    assert!(status["budget"]["spent_usd"].as_f64().is_some_and(|usd| usd > 0.0), "{status}");
    world.is_quiet();
}

#[test]
fn claude_builds_in_three_iterations() {
    driven(Peer::Claude);
}

#[test]
fn codex_builds_in_three_iterations() {
    driven(Peer::Codex);
}

#[test]
fn gemini_builds_in_three_iterations() {
    driven(Peer::Gemini);
}
