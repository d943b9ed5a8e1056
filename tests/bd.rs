//! Rows BD of the acceptance list: at the limit.
#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use testkit::{Event, World, status_kb, words};

#[test]
fn bd_001_a_file_of_fifty_megabytes_costs_its_size_once_at_most() {
    let world = World::with_git();
    world.config("durability = \"process\"\n");
    let (first, second) = (world.flag("first"), world.flag("second"));
    let big = "run='yes \"let answer = 42;\" | head -c 50000000 > big.rs'";
    let rules = format!(
        "1: change=work.txt say=ok\n2: until={first} {big} say=ok\n3: change=big.rs say=ok\n4: until={second} say=ok\n*: say=ok"
    );
    let mut run = world.start(world.run_script(&rules, "--max-iterations 4"));
    run.event_where("iteration 2", |e| e.kind() == "attempt_started" && e.iteration() == 2);
    let before = status_kb(run.pid(), "VmHWM").unwrap();
    world.raise("first");
    run.event_where("iteration 4", |e| e.kind() == "attempt_started" && e.iteration() == 4);
    let after = status_kb(run.pid(), "VmHWM").unwrap();
    world.raise("second");
    let ended = run.wait().ok();
    // 50 MB, and a few for the libraries that read it.
    assert!(after - before < 50_000 + 12_000, "the supervisor grew from {before} to {after} KiB");
    let checkpoints = ended.events_of("checkpoint_created");
    let of = |n: u64| checkpoints.iter().rfind(|c| c.data("number") == n).unwrap().text("tree").to_owned();
    assert_eq!(world.git(&format!("cat-file -s {}:big.rs", of(2))), "50000000");
    assert_ne!(of(2), of(3), "its change was seen");
}

#[test]
fn bd_005_from_999_exactly_one_more_iteration_runs() {
    let world = World::new();
    world.config("durability = \"process\"\nstagnation.pause = \"none\"\n");
    let hold = world.flag("never");
    let mut run =
        world.start(world.run_script(&format!("1000: until={hold}\n*: say=ok"), "--max-iterations 1000"));
    // In steps, as each wait has a deadline of its own.
    for n in (100..=900).step_by(100) {
        run.event_where("a hundred more", |e| e.kind() == "iteration_finished" && e.iteration() == n);
    }
    run.event_where("the thousandth", |e| e.kind() == "attempt_started" && e.iteration() == 1000);
    world.run(words("stop --now")).ok();
    run.wait().exits(3);

    let ended = world.run(world.run_agent("say=ok", "")).ok();
    let finished: Vec<_> = ended.events_of("iteration_finished").iter().map(Event::iteration).collect();
    assert_eq!(finished, [1000]);
    let end = ended.event("session_finished");
    assert_eq!((end.text("state"), end.text("reason")), ("finished", "max_iterations"));
    assert_eq!(end.data("iterations"), 1000);
    let all: Vec<_> = world.events_of("iteration_finished").iter().map(Event::iteration).collect();
    assert_eq!(all, (1..=1000).collect::<Vec<_>>());
}

/// Every path below a folder.
fn tree(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        found.push(entry.path());
        if entry.file_type().unwrap().is_dir() {
            found.extend(tree(&entry.path()));
        }
    }
    found.sort();
    found
}

#[test]
fn bd_008_a_bad_template_name_touches_no_file() {
    let world = World::new();
    world.write("mine.md", "## Goal\n\n## Requirements\n\n## Done when\n");
    let before = tree(world.outside());
    let long = "x".repeat(500);
    let hundred_and_one = "é".repeat(51);
    let names: [(&str, &str); 9] = [
        (&long, "100"),
        (&hundred_and_one, "100"),
        ("a/b", "/"),
        ("../escape", "/"),
        ("..", "dot"),
        (".hidden", "dot"),
        ("a\\b", "\\"),
        ("a\nb", "control"),
        ("", "empty"),
    ];
    for (name, rule) in names {
        for args in [["init", "-t", name].as_slice(), &["init", "--save", name, "mine.md"]] {
            world.run(args.iter().map(OsStr::new)).exits(2).tells(rule);
            assert_eq!(tree(world.outside()), before, "{name:?} left something behind");
        }
    }
    let exactly = "x".repeat(100);
    world.run(["init", "--save", &exactly, "mine.md"]).ok();
}

#[test]
fn bd_009_rotation_loses_and_repeats_no_line() {
    let world = World::new();
    world.config("durability = \"process\"\njournal.max_file = \"64KiB\"\nstagnation.pause = \"none\"\n");
    let ended = world.run(world.run_agent("say=ok", "--max-iterations 150")).ok();
    let events = world.events();
    let segments = fs::read_dir(world.state())
        .unwrap()
        .flatten()
        .chain(fs::read_dir(world.state().join("logs")).into_iter().flatten().flatten())
        .filter(|f| f.file_name().to_string_lossy().starts_with("events"))
        .count();
    assert!(segments > 1, "64 KiB were passed");
    let plain = |events: &[Event]| -> Vec<u64> {
        events.iter().filter(|e| e.kind() != "snapshot").map(Event::seq).collect()
    };
    let printed = plain(&ended.events());
    assert_eq!(plain(&events), printed, "the files hold what was printed, each line once");
    assert!(printed.windows(2).all(|w| w[0] < w[1]));
}
