//! Rows BD of the acceptance list: at the limit.
#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use testkit::{Event, World, eventually, status_kb, words};

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

// === BD-004: money ===

/// Projects of one user, with one home and one settings file of the user.
struct User {
    first: World,
}

impl User {
    /// `limits`: the user's `[budget]`.
    fn new(limits: &str) -> User {
        let user = User { first: World::new() };
        user.limits(limits);
        user
    }

    fn limits(&self, limits: &str) {
        let folder = self.first.home().join(".config/longhaul");
        fs::create_dir_all(&folder).unwrap();
        let new = folder.join("new");
        fs::write(&new, format!("[budget]\n{limits}\n")).unwrap();
        fs::rename(new, folder.join("config.toml")).unwrap();
    }

    /// One more project. It is about noon there, so that no test runs into the next day.
    #[expect(clippy::disallowed_methods, reason = "the program goes by the clock of the host")]
    fn project(&self) -> World {
        let mut world = World::new();
        world.set("LONGHAUL_HOME", self.first.home().join("longhaul"));
        world.set("XDG_CONFIG_HOME", self.first.home().join(".config"));
        let hour = jiff::Timestamp::now().as_second() / 3600 % 24;
        world.set("TZ", format!("NOON{}", hour - 12));
        world
    }
}

/// Gives a project the provider `spender`, an agent that follows `rules` and tells what its calls cost.
fn spender(world: &World, rules: &str) {
    world.provider("spender", "");
    let script = world.outside().join("spender.script");
    fs::write(&script, rules).unwrap();
    let file = world.read(".longhaul/providers/spender.toml");
    let file = file.replace("output = \"text\"", "output = \"claude-stream-json\"");
    let args = format!("args = [\"--script\", {:?}, ", script.display().to_string());
    world.write(".longhaul/providers/spender.toml", file.replace("args = [", &args));
}

/// The directive of a call that says that it has cost this much.
fn costs(usd: f64) -> String {
    format!(
        "change=work.txt say='{{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"result\":\"did it\",\
         \"session_id\":\"00000000-0000-4000-8000-000000000001\",\"total_cost_usd\":{usd},\
         \"usage\":{{\"input_tokens\":12,\"output_tokens\":34}}}}'"
    )
}

/// A window as `budget --json` has it.
fn window(world: &World, name: &str) -> Value {
    let shown: Value = serde_json::from_str(&world.run(words("budget --json")).ok().stdout).unwrap();
    let windows = shown["windows"].as_array().unwrap();
    windows.iter().find(|window| window["window"] == name).cloned().unwrap_or_default()
}

fn exceeded_file(world: &World) -> Option<Value> {
    let text = fs::read(world.state().join("signals/BUDGET_EXCEEDED")).ok()?;
    serde_json::from_slice(&text).ok()
}

const SPEND: &str = "run --json --provider spender --max-iterations 2";

#[test]
fn bd_004_a_day_is_shared_by_all_projects_and_goes_on_when_it_is_raised() {
    let user = User::new("day_usd = 1.0");
    let (one, other) = (user.project(), user.project());
    spender(&one, &format!("*: {}", costs(0.7)));
    let flag = other.flag("go");
    spender(&other, &format!("1: until={flag} {}\n*: {}", costs(0.9), costs(0.2)));

    let mut second = other.start(words(SPEND));
    let reserved = second.event("budget_reserved");
    assert_eq!((reserved.data("usd"), reserved.text("window")), (&0.1.into(), "day"));
    let mut first = one.start(words(SPEND));
    // Its own call is over, the next one is expected to cost as much, and the other project's is in flight.
    let exceeded = first.event("budget_exceeded");
    assert_eq!(exceeded.text("window"), "day");
    assert_eq!((exceeded.data("spent_usd"), exceeded.data("reserved_usd")), (&0.7.into(), &0.1.into()));
    assert_eq!((exceeded.data("limit_usd"), exceeded.data("next_usd")), (&1.0.into(), &0.7.into()));
    let wait = first.event("wait_started");
    assert_eq!((wait.text("why"), wait.text("until")), ("budget_exceeded", exceeded.text("resets_at")));
    let status = one.status_reaches("it waits", |s| s["session"]["state"] == "waiting");
    assert_eq!(status["session"]["reason"], "budget_exceeded");
    assert_eq!(status["session"]["resume_at"], exceeded.text("resets_at"));
    let today = &status["budget"]["windows"][1];
    assert_eq!((&today["window"], &today["limit_usd"]), (&"day".into(), &1.0.into()), "{status}");
    eventually("scripts are told", || exceeded_file(&one));

    // What is in flight may pass the limit, and says by how much.
    other.raise("go");
    let over = second.event_where("the overshoot", |e| e.kind() == "budget_exceeded");
    assert_eq!((over.text("window"), over.data("limit_usd")), ("day", &1.0.into()));
    let over = second.event_where("with all that was spent", |e| {
        e.kind() == "budget_exceeded"
            && e.data("overshoot_usd").as_f64().is_some_and(|usd| (usd - 0.6).abs() < 1e-9)
    });
    assert_eq!(over.text("window"), "day");
    second.event("wait_started");
    for world in [&one, &other] {
        let today = window(world, "day");
        assert_eq!(
            (&today["spent_usd"], &today["reserved_usd"], &today["calls"]),
            (&1.6.into(), &0.0.into(), &2.into())
        );
        assert_eq!(today["left_usd"], 0.0);
    }

    user.limits("day_usd = 10.0");
    for (world, run) in [(&one, first), (&other, second)] {
        let ended = run.wait().ok();
        assert_eq!(ended.events_of("attempt_started").len(), 2);
        assert!(exceeded_file(world).is_none(), "it went on");
    }
    let spent = window(&one, "month")["spent_usd"].as_f64().unwrap();
    assert!((spent - 2.5).abs() < 1e-9, "{spent}");
    let by: Value = serde_json::from_str(&one.run(words("budget --json --by project")).ok().stdout).unwrap();
    assert_eq!(by["by"].as_array().unwrap().len(), 2, "{by}");
}

#[test]
fn bd_004_what_a_killed_project_had_set_aside_counts_for_the_others() {
    let user = User::new("day_usd = 1.0\nassume_usd_per_call = 0.6");
    let (one, other) = (user.project(), user.project());
    let mut first = one.start(one.run_agent("hang", ""));
    one.agent_reaches("a call", |log| log.calls.len() == 1);
    let mut second = other.start(other.run_agent("change=work.txt say=ok", "--max-iterations 1 --no-wait"));
    let exceeded = second.event("budget_exceeded");
    assert_eq!((exceeded.data("spent_usd"), exceeded.data("reserved_usd")), (&0.0.into(), &0.6.into()));
    assert_eq!(window(&other, "day")["reserved_usd"], 0.6);
    first.kill_9();
    let booked = eventually("it is booked at its reservation", || {
        let today = window(&other, "day");
        (today["reserved_usd"] == 0.0).then_some(today)
    });
    assert_eq!((&booked["spent_usd"], &booked["unknown_calls"]), (&0.6.into(), &1.into()));
    assert!(!second.has_ended(), "a day ends by itself, with --no-wait too");
    assert_eq!(other.agent_log().calls.len(), 0);
    user.limits("day_usd = 1.3\nassume_usd_per_call = 0.6");
    second.wait().ok();
    // Its own session says the same when it is back.
    one.run(one.run_agent("say=ok", "--max-iterations 1 --budget 0.1 --no-wait")).exits(5);
    let today = window(&one, "day");
    assert_eq!((&today["spent_usd"], &today["calls"]), (&1.2.into(), &2.into()));
}

#[test]
fn bd_004_a_project_needs_a_person_and_counts_all_its_sessions() {
    let world = World::new();
    world.config("budget.project_usd = 1.0\nbudget.assume_usd_per_call = 0.6\n");
    let run = |more: &str| world.run(world.run_agent("change=work.txt say=ok", more));
    let ended = run("--max-iterations 2 --no-wait").exits(5);
    let exceeded = ended.event("budget_exceeded");
    assert_eq!((exceeded.text("window"), exceeded.data("spent_usd")), ("project", &0.6.into()));
    let paused = ended.event("session_paused");
    assert_eq!(paused.text("reason"), "budget_exceeded");
    assert!(
        paused.text("detail").contains("longhaul config set budget.project_usd N"),
        "{}",
        paused.text("detail")
    );
    assert_eq!(exceeded_file(&world).unwrap()["data"]["window"], "project");
    let again = run("--max-iterations 2 --no-wait").exits(5);
    assert!(again.events_of("session_continued").is_empty(), "the pause holds");
    assert_eq!(world.agent_log().calls.len(), 1);

    let mut waits = world.start(world.run_agent("change=work.txt say=ok", "--max-iterations 2"));
    waits.event("session_resumed");
    world.run(words("config set budget.project_usd 1.5")).ok();
    waits.wait().ok();
    assert_eq!((world.agent_log().calls.len(), exceeded_file(&world)), (2, None));
    run("--fresh --max-iterations 2 --no-wait").exits(5);
    assert_eq!(world.agent_log().calls.len(), 2, "what an earlier session has spent counts");
    let (project, session) = (window(&world, "project"), window(&world, "session"));
    assert_eq!((&project["spent_usd"], &project["limit_usd"]), (&1.2.into(), &1.5.into()));
    assert_eq!((&session["spent_usd"], &session["calls"]), (&0.0.into(), &0.into()));
}

#[test]
fn bd_004_a_day_that_is_too_small_for_one_call_needs_a_person() {
    let user = User::new("day_usd = 1.0");
    let world = user.project();
    spender(&world, &format!("*: {}", costs(1.2)));
    let ended = world.run(words(&format!("{SPEND} --no-wait"))).exits(5);
    assert_eq!(ended.events_of("attempt_started").len(), 1);
    assert!(ended.events_of("wait_started").is_empty(), "there is nothing to wait for");
    let exceeded = ended.events_of("budget_exceeded").pop().unwrap();
    assert_eq!((exceeded.text("window"), exceeded.data("next_usd")), ("day", &1.2.into()));
    assert_eq!(exceeded.data("resets_at"), &Value::Null, "it would not go on then");
    let detail = ended.event("session_paused").text("detail").to_owned();
    assert!(detail.contains("a new day has no room for it either; raise budget.day_usd"), "{detail}");
    assert!(exceeded_file(&world).is_some());

    let run = world.start(words(SPEND));
    world.status_reaches("it holds", |s| s["session"]["state"] == "paused");
    user.limits("day_usd = 10.0");
    let ended = run.wait().ok();
    assert_eq!(ended.events_of("attempt_started").len(), 1, "the second of two");
    assert_eq!(exceeded_file(&world), None);
}

#[test]
fn bd_004_the_sessions_limit_exits_5_for_a_person() {
    let world = World::new();
    spender(&world, &format!("*: {}", costs(3.33)));
    let ended = world.run(words("run --json --provider spender --budget 10.00 --no-wait")).exits(5);
    assert_eq!(ended.events_of("attempt_started").len(), 3);
    let exceeded = ended.event("budget_exceeded");
    assert_eq!((exceeded.data("spent_usd"), exceeded.data("next_usd")), (&9.99.into(), &3.33.into()));
    assert_eq!((exceeded.text("window"), exceeded.data("overshoot_usd")), ("session", &0.0.into()));
    assert!(exceeded_file(&world).is_some());
    // All that was spent is in the ledger, though nothing beyond the session has a limit.
    let month = window(&world, "month");
    assert_eq!(
        (&month["spent_usd"], &month["calls"], &month["limit_usd"]),
        (&9.99.into(), &3.into(), &Value::Null)
    );
    let table = world.run(words("budget")).ok().stdout;
    assert!(table.lines().any(|line| line.starts_with("session") && line.contains("$10.00")), "{table}");
    world.run(words("run --json --provider spender --budget 20 --max-iterations 4")).ok();
    assert!(exceeded_file(&world).is_none());
}

#[test]
fn bd_004_a_call_has_a_limit_of_its_own() {
    let mut world = World::new();
    let said = costs(1.2);
    let said = said.split_once("say=").unwrap().1;
    world.cli("claude", "2.1.332 (Claude Code)", &format!("echo \"$@\" >> work.txt\necho {said}"));
    world.set("ANTHROPIC_API_KEY", "k");
    world.config("budget.call_usd = 1.0\n");
    world.run(words("run --json --provider claude --max-iterations 2")).ok();
    assert_eq!(world.read("work.txt").matches("--max-budget-usd 1").count(), 2, "{}", world.read("work.txt"));

    // A CLI that has no such limit is not called when more is expected.
    let world = World::new();
    spender(&world, &format!("*: {}", costs(1.2)));
    world.config("budget.call_usd = 1.0\n");
    let ended = world.run(words("run --json --provider spender --max-iterations 2 --no-wait")).exits(5);
    assert_eq!(ended.events_of("attempt_started").len(), 1);
    assert_eq!(ended.event("budget_exceeded").text("window"), "call");
}

#[test]
fn bd_004_no_call_of_a_killed_session_is_missing_from_the_ledger() {
    let world = World::new();
    let flag = world.flag("never");
    spender(&world, &format!("1-3: {}\n*: until={flag}", costs(0.25)));
    let mut run = world.start(words("run --json --provider spender"));
    run.event_where("the fourth call", |e| e.kind() == "attempt_started" && e.iteration() == 4);
    run.kill_9();
    let month = window(&world, "month");
    assert_eq!((&month["spent_usd"], &month["calls"]), (&0.75.into(), &3.into()));
    assert_eq!(window(&world, "month"), month, "each of them once");
}

#[test]
fn bd_004_without_a_project_the_host_is_shown() {
    let world = World::new();
    let shown: Value = serde_json::from_str(&world.run(words("budget --json")).ok().stdout).unwrap();
    let names: Vec<_> = shown["windows"].as_array().unwrap().iter().map(|w| w["window"].clone()).collect();
    assert_eq!(names, ["day", "month"]);
    assert!(
        !world.home().join("longhaul/host.db").exists() && !world.state().exists(),
        "looking makes nothing"
    );
}

#[test]
fn bd_004_without_a_ledger_no_call_passes_a_limit_beyond_the_session() {
    let user = User::new("day_usd = 1.0\nassume_usd_per_call = 0.1");
    let world = user.project();
    // A file where the folder should be: nothing can be read or made there, whoever we are.
    fs::write(user.first.home().join("longhaul"), "").unwrap();
    let mut run = world.start(world.run_agent("say=ok", "--max-iterations 1"));
    let wait = run.event("wait_started");
    assert!(wait.text("detail").contains("no call begins until that is mended"), "{}", wait.text("detail"));
    user.limits("assume_usd_per_call = 0.1");
    run.wait().ok();
}
