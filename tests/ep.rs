//! Rows EP of the acceptance list: faults on the way.
#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::Value;
use testkit::{Event, Finished, SmallDisk, World, eventually, words};

fn position(events: &[Event], kind: &str) -> usize {
    events.iter().position(|e| e.kind() == kind).unwrap_or_else(|| panic!("no {kind} in {events:#?}"))
}

/// Runs one iteration with this spec in a project of 60 source files.
fn one_iteration(spec: Option<(&str, &[u8])>) -> (World, Finished) {
    let world = World::new();
    for n in 0..60 {
        world.write(&format!("src/part{n}.py"), "print(1)\n");
    }
    let mut more = "--max-iterations 1".to_owned();
    if let Some((name, text)) = spec {
        world.write(name, text);
        more = format!("{name} {more}");
    }
    let ended = world.run(world.run_agent("say=ok", &more)).ok();
    (world, ended)
}

#[test]
fn ep_001_an_empty_spec_is_noticed_first_and_turns_on_analysis() {
    for text in [&b""[..], b" \n\t\r\n  \n", b"\xef\xbb\xbf", b"\xef\xbb\xbf \n"] {
        let (world, ended) = one_iteration(Some(("SPEC.md", text)));
        let events = ended.events();
        let warning = ended.event("spec_empty");
        assert_eq!(warning.level(), "warn", "{text:?}");
        assert!(position(&events, "spec_empty") < position(&events, "session_started"), "{text:?}");
        assert!(ended.stderr.contains("SPEC.md"), "one line on stderr names the file: {}", ended.stderr);
        let status = world.status();
        assert_eq!(status["session"]["mode"], "analysis", "{status}");
        assert_eq!(status["session"]["complexity"], "complex", "60 source files decide: {status}");
        assert!(world.prompt(1).to_lowercase().contains("code base"), "{}", world.prompt(1));
    }
}

#[test]
fn ep_001_no_spec_at_all_is_analysis_without_a_warning() {
    let (world, ended) = one_iteration(None);
    assert!(ended.events_of("spec_empty").is_empty(), "{}", ended.stdout);
    assert_eq!(world.status()["session"]["mode"], "analysis");
    assert_eq!(ended.event("session_started").text("complexity"), "complex");
    assert!(world.prompt(1).to_lowercase().contains("code base"));
}

#[test]
fn ep_002_broken_json_is_used_as_plain_text() {
    let world = World::new();
    let features: String = (1..=6).map(|n| format!("- feature number {n}\n")).collect();
    world.write("bad.json", format!("{{\"goal\": \"build it\",\n  \"broken\": [1, 2,,\n}}\n{features}"));
    let ended = world.run(world.run_agent("say=ok", "bad.json --max-iterations 1")).ok();
    let warning = ended.event("spec_invalid");
    assert_eq!(warning.level(), "warn");
    assert_eq!(warning.data("line"), 2, "{warning:?}");
    assert_eq!(warning.data("column"), 19, "{warning:?}");
    assert!(world.prompt(1).contains("feature number 6"), "the text is still the spec");
    // Six features are more than `simple` allows, so they were counted from the text.
    assert_eq!(ended.event("session_started").text("complexity"), "standard");
}

/// A project on a disk of `megabytes` MiB; none where a disk cannot be mounted.
fn on_small_disk(megabytes: u32) -> Option<(World, SmallDisk)> {
    let mut world = World::new();
    let disk = SmallDisk::mount(&world.outside().join("disk"), megabytes)?;
    let project = disk.folder().join("project");
    fs::create_dir(&project).unwrap();
    world.move_project(&project);
    Some((world, disk))
}

const MB: u64 = 1_000_000;

#[test]
fn ep_005_low_space_pauses_and_half_as_much_again_resumes() {
    let Some((world, disk)) = on_small_disk(64) else { return };
    world.config("disk.min_free = \"10MB\"\ndisk.interval = \"100ms\"\n");
    let go = world.flag("go");
    let rules = format!("1: until={go} say=ok\n*: say=ok change=work.txt");
    let mut run = world.start(world.run_script(&rules, "--max-iterations 3"));
    world.agent_reaches("the first call", |log| log.calls.len() == 1);

    let filler = disk.fill_to(8 * MB);
    world.raise("go");
    let low = run.event("disk_low");
    assert_eq!(low.level(), "warn", "{low:?}");
    let paused = run.event("session_paused");
    assert_eq!(paused.text("reason"), "disk_low");
    assert_eq!(world.agent_log().calls.len(), 1, "nothing starts on a full disk");
    let status = world.status();
    assert_eq!(status["session"]["state"], "paused", "the state stays readable: {status}");
    assert_eq!(status["session"]["reason"], "disk_low");

    // Above the limit, but not by half: it must look and stay.
    disk.fill_to(13 * MB);
    let free = |status: &Value| status.to_string().contains("disk_low");
    for _ in 0..3 {
        assert!(free(&world.status_reaches("still paused", |s| s["session"]["state"] == "paused")));
    }
    assert!(run.events().iter().all(|e| e.kind() != "session_continued"), "13 MB is not 1.5 times 10 MB");

    fs::remove_file(filler).unwrap();
    run.event("session_continued");
    let ended = run.wait().ok();
    let finished: Vec<_> = ended.events_of("iteration_finished").iter().map(Event::iteration).collect();
    assert_eq!(finished, [1, 2, 3]);
}

#[test]
fn ep_005_a_disk_that_fills_during_a_call_loses_nothing() {
    let Some((world, disk)) = on_small_disk(48) else { return };
    world.config("disk.min_free = \"2MB\"\ndisk.interval = \"5s\"\n");
    let (filled, go) = (world.flag("filled"), world.flag("go"));
    // The agent takes all there is, to the last byte, between two looks, and works on.
    let fill = "run='cat /dev/zero > ../filler 2>/dev/null; true'";
    let rules = format!("1: {fill} touch={filled} until={go} say=ok\n*: say=ok");
    let mut run = world.start(world.run_script(&rules, "--max-iterations 2"));
    eventually("the disk is full", || fs::exists(&filled).unwrap().then_some(()));
    assert_eq!(disk.free() / 4096, 0, "the agent left nothing");
    assert_eq!(world.status()["session"]["iteration"], 1, "the last committed state stays readable");
    // What is acknowledged now has to survive, so it is either refused or kept.
    let said = world.run(["say", "keep mark-full in mind"]);
    world.raise("go");
    world.agent_reaches("the call ended", |log| log.ended() == 1);

    run.event("disk_low");
    fs::remove_file(disk.folder().join("filler")).unwrap();
    let ended = run.wait().ok();
    let finished: Vec<_> = ended.events_of("iteration_finished").iter().map(Event::iteration).collect();
    assert_eq!(finished, [1, 2], "no iteration is lost or done twice");
    assert_eq!(said.code() == Some(0), world.prompt(2).contains("mark-full"), "{said:?}");
    let journal: Vec<_> = world.events().iter().filter(|e| e.kind() != "snapshot").map(Event::seq).collect();
    assert!(journal.windows(2).all(|w| w[1] == w[0] + 1), "the journal has every event once: {journal:?}");
}

#[test]
fn ep_005_ballast_makes_room_for_the_last_state() {
    let Some((world, disk)) = on_small_disk(48) else { return };
    world.config("disk.min_free = \"2MB\"\ndisk.interval = \"100ms\"\n");
    let go = world.flag("go");
    let rules = format!("1: until={go} say=ok\n*: say=ok");
    let mut run = world.start(world.run_script(&rules, "--max-iterations 2"));
    world.agent_reaches("the first call", |log| log.calls.len() == 1);
    // All at once, to the last page: without ballast nothing could be written any more.
    let filler = disk.fill_to(0);
    run.event("disk_low");
    world.status_reaches("paused", |s| s["session"]["reason"] == "disk_low");
    fs::remove_file(filler).unwrap();
    world.raise("go");
    let ended = run.wait().ok();
    assert_eq!(ended.events_of("iteration_finished").len(), 2);
}

#[test]
fn ep_005_no_free_inodes_pause_too() {
    let Some((world, disk)) = on_small_disk(64) else { return };
    let total = disk.inodes();
    world.config(&format!(
        "disk.min_inodes = {}\ndisk.min_free = \"1MB\"\ndisk.interval = \"100ms\"\n",
        total / 2
    ));
    let many = disk.folder().join("many");
    fs::create_dir(&many).unwrap();
    let go = world.flag("go");
    let mut run =
        world.start(world.run_script(&format!("1: until={go} say=ok\n*: say=ok"), "--max-iterations 2"));
    world.agent_reaches("the first call", |log| log.calls.len() == 1);
    let first = many.join("first");
    fs::write(&first, "").unwrap();
    disk.use_inodes_to(&many, total / 4);
    world.raise("go");
    assert_eq!(run.event("session_paused").text("reason"), "disk_low");
    fs::remove_dir_all(&many).unwrap();
    run.wait().ok();
}

/// A world whose `PATH` holds nothing but the few programs that every system has.
fn bare_path() -> World {
    let mut world = World::new();
    let bin = world.home().join("bin");
    for program in ["/bin/sh", "/usr/bin/env"] {
        symlink(program, bin.join(program.rsplit('/').next().unwrap())).unwrap();
    }
    world.set("PATH", &bin);
    world
}

fn no_session(world: &World) {
    assert_eq!(world.status()["session"], Value::Null);
    assert!(world.events_of("session_started").is_empty());
}

#[test]
fn ep_006_a_missing_cli_is_named_before_any_session() {
    let mut world = bare_path();
    world.set("ANTHROPIC_API_KEY", "sk-ant-is-set");
    let ended = world.run(words("run --provider claude --max-iterations 1")).exits(6);
    ended.tells("claude").tells("@anthropic-ai/claude-code");
    no_session(&world);
    world.run(["run", "--agent", "/nowhere/agent", "--max-iterations", "1"]).exits(6).tells("/nowhere/agent");
    no_session(&world);
}

#[test]
fn ep_006_a_cli_that_cannot_be_run_is_named_too() {
    let world = bare_path();
    let claude = world.home().join("bin/claude");
    fs::write(&claude, "#!/bin/sh\nexit 0\n").unwrap();
    fs::set_permissions(&claude, fs::Permissions::from_mode(0o644)).unwrap();
    world.run(words("run --provider claude --max-iterations 1")).exits(6).tells("claude");
    no_session(&world);
    for code in [126, 127] {
        fs::write(&claude, format!("#!/bin/sh\nexit {code}\n")).unwrap();
        fs::set_permissions(&claude, fs::Permissions::from_mode(0o755)).unwrap();
        world.run(words("run --provider claude --max-iterations 1")).exits(6).tells("claude");
        no_session(&world);
    }
}

#[test]
fn ep_006_a_missing_fallback_is_a_warning() {
    let world = bare_path();
    world.provider("first", "say=ok");
    world.config("provider.name = \"first\"\nprovider.fallback = [\"codex\"]\n");
    let ended = world.run(words("run --json --max-iterations 1")).ok();
    assert!(ended.stderr.contains("codex"), "{}", ended.stderr);
    assert!(
        ended.events().iter().any(|e| e.level() == "warn" && e.0.to_string().contains("codex")),
        "{}",
        ended.stdout
    );
}

#[test]
fn ep_007_an_unknown_template_is_refused_with_the_closest_name() {
    let world = World::new();
    let list: Value = serde_json::from_str(&world.run(words("init --list --json")).ok().stdout).unwrap();
    let names: Vec<_> = list
        .as_array()
        .or(list["templates"].as_array())
        .unwrap()
        .iter()
        .map(|t| t.as_str().or(t["name"].as_str()).unwrap().to_owned())
        .collect();
    assert!(names.len() >= 5, "five useful templates: {names:?}");

    let ended = world.run(words("init -t nonsuch")).exits(2);
    for name in &names {
        assert!(ended.stderr.contains(name.as_str()), "the list lacks {name}: {}", ended.stderr);
    }
    let typo = format!("{}x", names[0]);
    let ended = world.run(["init", "-t", &typo]).exits(2);
    let hint = ended.stderr.lines().find(|l| l.to_lowercase().contains("did you mean")).unwrap_or_default();
    assert!(hint.contains(&names[0]), "{}", ended.stderr);
    assert_eq!(fs::read_dir(world.project()).unwrap().count(), 0, "nothing is written");
}

#[test]
fn ep_010_five_messages_by_file_and_command_arrive_once_in_order() {
    let world = World::new();
    let go = world.flag("go");
    let mut run =
        world.start(world.run_script(&format!("1: until={go} say=ok\n*: say=ok"), "--max-iterations 3"));
    world.agent_reaches("the first call", |log| log.calls.len() == 1);

    let queued = |n: usize| {
        world.journal_has(&format!("message {n} is queued"), |_| world.events_of("message_queued").len() >= n)
    };
    world.write(".longhaul/HUMAN_INPUT.md", "first: mark-1\n");
    queued(1);
    world.run(["say", "second: mark-2"]).ok();
    queued(2);
    // Written again as soon as it was taken.
    world.write(".longhaul/HUMAN_INPUT.md", "third: mark-3\n");
    queued(3);
    world.write(".longhaul/inbox/.part", "fourth: mark-4\n");
    fs::rename(world.state().join("inbox/.part"), world.state().join("inbox/zzz.md")).unwrap();
    queued(4);
    world.run(["say", "fifth: mark-5"]).ok();
    queued(5);
    assert_eq!(world.status()["inbox"]["queued"], 5);
    world.raise("go");

    let mut delivered: Vec<Event> = Vec::new();
    while delivered.len() < 5 {
        let seen: Vec<_> = delivered.iter().map(Event::seq).collect();
        delivered.push(run.event_where("message_delivered", |e| {
            e.kind() == "message_delivered" && !seen.contains(&e.seq())
        }));
    }
    run.wait().ok();
    let log = world.agent_log();
    assert_eq!(log.calls[0].marks, [""; 0], "none before they came");
    assert_eq!(log.calls[1].marks, ["mark-1", "mark-2", "mark-3", "mark-4", "mark-5"]);
    assert_eq!(log.calls[2].marks, [""; 0], "none again");
    assert!(delivered.iter().all(|e| e.iteration() == 2), "{delivered:#?}");
    let prompt = world.prompt(2).to_lowercase();
    assert!(
        prompt.contains("person") && prompt.contains("outrank"),
        "a person's words go before the plan: {prompt}"
    );
}

#[test]
fn ep_010_a_file_that_is_still_being_written_is_not_taken_by_half() {
    let world = World::new();
    let go = world.flag("go");
    let run =
        world.start(world.run_script(&format!("1: until={go} say=ok\n*: say=ok"), "--max-iterations 2"));
    world.agent_reaches("the first call", |log| log.calls.len() == 1);

    let mut file = fs::File::create(world.state().join("HUMAN_INPUT.md")).unwrap();
    file.write_all(b"first half mark-a, ").unwrap();
    // Later messages pass by while the writer is at work.
    for n in 1..=3 {
        world.run(["say", &format!("mark-{n}")]).ok();
    }
    world.journal_has("three messages", |_| world.events_of("message_queued").len() == 3);
    assert!(world.has(".longhaul/HUMAN_INPUT.md"), "it was taken while its writer had it open");
    file.write_all(b"second half mark-b\n").unwrap();
    drop(file);
    world.journal_has("four messages", |_| world.events_of("message_queued").len() == 4);
    assert!(!world.has(".longhaul/HUMAN_INPUT.md"));
    world.raise("go");
    run.wait().ok();
    assert_eq!(world.agent_log().calls[1].marks, ["mark-1", "mark-2", "mark-3", "mark-a", "mark-b"]);
}
