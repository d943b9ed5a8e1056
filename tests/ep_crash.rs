//! Rows EP-008 and EP-015: a damaged store, and death in the middle of a write.
#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use testkit::{Event, World, longhaul, words};

/// A session that did four iterations, one of them at the second attempt, and was then stopped.
fn stopped_after_four(world: &World) -> Vec<Event> {
    world.config("backoff.base = \"10ms\"\nbackoff.cap = \"20ms\"\n");
    let go = world.flag("never");
    let rules = format!("5: until={go}\n@3: exit=9 err=broken\n*: change=work.txt say=ok");
    let mut run = world.start(world.run_script(&rules, ""));
    run.event_where("iteration 5", |e| e.kind() == "attempt_started" && e.iteration() == 5);
    world.run(["say", "remember mark-kept"]).ok();
    world.run(["stop", "--now"]).ok();
    run.wait().exits(3);
    world.events()
}

fn store(world: &World) -> PathBuf {
    world.state().join("state.db")
}

/// Every file of `.longhaul`, with its bytes.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()));
        } else if entry.file_type().unwrap().is_file() {
            found.push((entry.path(), fs::read(entry.path()).unwrap_or_default()));
        }
    }
    found.sort();
    found
}

/// Damages the store, asks `status`, runs on, and compares with what the session had come to.
fn survives(damage: impl Fn(&Path)) {
    let world = World::with_git();
    let before = stopped_after_four(&world);
    assert_eq!(before.iter().filter(|e| e.kind() == "iteration_finished").count(), 4);
    damage(&store(&world));
    let bad = fs::read(store(&world)).unwrap();

    let untouched = files(&world.state());
    let status = world.run(words("status --json"));
    assert!(format!("{}{}", status.stdout, status.stderr).contains("corrupt"), "status says so: {status:?}");
    let after = files(&world.state());
    // SQLite leaves an empty log behind when it reads.
    let new: Vec<_> =
        after.iter().filter(|file| !untouched.contains(file) && !file.1.is_empty()).map(|f| &f.0).collect();
    let gone: Vec<_> = untouched.iter().filter(|file| !after.contains(file)).map(|f| &f.0).collect();
    assert!(new.is_empty() && gone.is_empty(), "status changes nothing: {new:?} {gone:?}");

    let rules = "*: change=work.txt say=ok";
    let ended = world.run(world.run_script(rules, "--max-iterations 6")).ok();
    ended.event("state_corrupt");
    ended.event("state_recovered");
    let kept = files(&world.state()).into_iter().any(|(path, bytes)| path != store(&world) && bytes == bad);
    assert!(kept, "the bad file is kept under another name");
    let finished: Vec<_> = ended.events_of("iteration_finished").iter().map(Event::iteration).collect();
    assert_eq!(finished, [5, 6], "iterations go on where they were");
    let session = |events: &[Event]| events.iter().find_map(|e| e.0["session"].as_str().map(str::to_owned));
    assert_eq!(session(&ended.events()), session(&before), "it is the same session");
    // The attempt that STOP cut was the first of iteration 5, so this is its second.
    assert_eq!(ended.events_of("attempt_started")[0].attempt(), 2);
    let log = world.agent_log();
    let after: Vec<_> = log.calls.iter().rev().take(2).rev().map(|c| c.marks.clone()).collect();
    assert_eq!(after, [vec!["mark-kept".to_owned()], vec![]], "a queued message survives");
}

#[test]
fn ep_008_a_truncated_store_is_rebuilt() {
    survives(|store| fs::write(store, "{\"status\": \"runn").unwrap());
}

#[test]
fn ep_008_a_store_cut_in_the_middle_is_rebuilt() {
    survives(|store| {
        let bytes = fs::read(store).unwrap();
        fs::write(store, &bytes[..bytes.len() / 2 + 100]).unwrap();
    });
}

#[test]
fn ep_008_a_zeroed_page_is_found() {
    survives(|store| {
        let mut bytes = fs::read(store).unwrap();
        let page = usize::from(u16::from_be_bytes([bytes[16], bytes[17]]));
        // Any page but the first that holds something.
        let n = (1..bytes.len() / page)
            .find(|n| bytes[n * page..(n + 1) * page].iter().any(|b| *b != 0))
            .unwrap();
        bytes[n * page..(n + 1) * page].fill(0);
        fs::write(store, bytes).unwrap();
    });
}

#[test]
fn ep_008_a_flipped_byte_inside_a_value_is_found() {
    survives(|store| {
        let mut bytes = fs::read(store).unwrap();
        // Inside the text of the message that waits: no structure of SQLite is hurt.
        let at =
            bytes.windows(9).position(|w| w == b"mark-kept").expect("the text of a message is in the store");
        bytes[at + 5] ^= 1;
        fs::write(store, bytes).unwrap();
    });
}

#[test]
fn ep_008_when_nothing_can_be_rebuilt_run_refuses() {
    let world = World::new();
    stopped_after_four(&world);
    fs::write(store(&world), "not a database").unwrap();
    for (path, _) in files(&world.state()) {
        if path.file_name().unwrap().to_string_lossy().starts_with("events") {
            fs::remove_file(path).unwrap();
        }
    }
    let refused = world.run(world.run_agent("say=ok", "--max-iterations 1"));
    assert!(![Some(0), Some(3)].contains(&refused.code()), "{refused:?}");
    refused.tells("--fresh");
    let ended = world.run(world.run_agent("say=ok", "--fresh --max-iterations 1")).ok();
    assert_eq!(ended.event("iteration_finished").iteration(), 1);
}

#[test]
fn ep_015_sigkill_at_any_instant_leaves_a_committed_state() {
    let world = World::with_git();
    let agent = world.run_agent("change=work.txt say=ok", "");
    let mut last = 0;
    for n in 0..12u64 {
        let mut run = world.start(agent.clone());
        let started = run.event_where("an iteration after the last", |e| {
            e.kind() == "iteration_started" && e.iteration() > last
        });
        // Each round dies a little later after the next boundary begins.
        run.event_where("its end", |e| {
            e.kind() == "attempt_finished" && e.iteration() == started.iteration()
        });
        let begun = std::time::Instant::now();
        while begun.elapsed() < Duration::from_micros(n * 400) {
            std::hint::spin_loop();
        }
        run.kill_9();
        let status = world.status();
        let now = status["session"]["iteration"].as_u64().unwrap();
        assert!(now >= started.iteration(), "what was committed is there: {status}");
        last = now;
        // Whatever is listed is whole: git can read each checkpoint to its last blob.
        for line in world.git("for-each-ref --format=%(objectname) refs/longhaul/checkpoints").lines() {
            world.git(&format!("rev-list --objects {line} --not --all --quiet"));
            world.git(&format!("ls-tree -r {line}"));
        }
        world.git("fsck --no-dangling --connectivity-only");
    }
    world.run(words("stop")).ok();
    let mut finished: Vec<_> = world.events_of("iteration_finished").iter().map(Event::iteration).collect();
    let count = finished.len();
    finished.dedup();
    assert_eq!(
        (finished.len(), finished.last().copied()),
        (count, Some(count as u64)),
        "each number once, none skipped"
    );
}

#[test]
fn ep_015_old_temporary_files_are_swept_and_young_ones_left() {
    let world = World::with_git();
    world.run(world.run_agent("say=ok", "--max-iterations 1")).ok();
    // As the store and the settings name what they have not finished.
    for prefix in [".longhaul-tmp-", ".tmp-"] {
        let (old, young) =
            (world.state().join(format!("{prefix}old")), world.state().join(format!("{prefix}young")));
        fs::write(&young, "half").unwrap();
        fs::write(&old, "half").unwrap();
        let file = fs::File::options().write(true).open(&old).unwrap();
        let now = file.metadata().unwrap().modified().unwrap();
        file.set_modified(now - Duration::from_secs(6 * 60)).unwrap();
        world.run(world.run_agent("say=ok", "--max-iterations 1")).ok();
        assert!(!old.exists(), "six minutes old: swept");
        assert!(young.exists(), "young: left alone");
    }
}

#[test]
fn ep_015_agents_left_over_from_a_dead_run_are_ended_by_identity() {
    let world = World::new();
    // An agent that ignores TERM, with a child in a session of its own.
    let mut run = world.start(world.run_agent("ignore=term,hup,int stray=setsid hang", ""));
    let log = world.agent_reaches("the agent hangs", |log| log.calls.len() == 1 && log.strays.len() == 1);
    let (agent, stray) = (log.calls[0].pid, log.strays[0]);
    // Someone else's program of the same name and arguments is none of our business.
    let mut other = World::new();
    other.set("FAKE_AGENT_LOG", other.outside().join("other.log"));
    let mut decoy = other.program(testkit::fake_agent()).arg("hang").spawn().unwrap();

    // The supervisor must not notice that its keepers die, so it is frozen first: nobody is left to end anything.
    run.signal(Signal::STOP);
    for keeper in world.processes().iter().filter(|p| p.program == longhaul() && p.pid != run.pid()) {
        keeper.kill();
    }
    run.kill_9();
    assert!(world.processes().iter().any(|p| p.pid == stray), "the stray outlives them all");

    let ended = world.run(world.run_agent("say=ok", "--max-iterations 1")).ok();
    let alive = |pid: i32| world.processes().iter().any(|p| p.pid == pid);
    assert!(!alive(agent) && !alive(stray), "what the dead run left is ended");
    let events = ended.events();
    let first_call = events.iter().position(|e| e.kind() == "attempt_started").unwrap();
    let ended_first = events[..first_call].iter().any(|e| e.kind() == "orphan_ended");
    assert!(ended_first, "ended before the first call, and told: {events:#?}");
    assert!(decoy.try_wait().unwrap().is_none(), "never by name");
    decoy.kill().unwrap();
    decoy.wait().unwrap();
    assert!(world.agent_log().violations.is_empty());
}
