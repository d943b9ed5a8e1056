//! The kit itself: a detector that never fires would make every other test worthless.

use testkit::{AgentLog, Running, World, eventually, fake_agent};

/// Runs the fake agent without Longhaul.
fn agent(world: &World, directives: &str) -> Running {
    let log = world.outside().join("agent.log").display().to_string();
    let mut command = world.program(fake_agent());
    command.args(["--log", &log]).args(directives.split(' '));
    Running::spawn(command)
}

#[test]
fn kit_two_agents_in_one_folder_are_noticed() {
    let world = World::new();
    let go = format!("until={}", world.flag("go"));
    let first = agent(&world, &go);
    world.agent_reaches("the first agent", |log| log.calls.len() == 1);
    let second = agent(&world, &go);
    let log = world.agent_reaches("the second agent", |log| log.calls.len() == 2);
    assert_eq!(log.violations.len(), 1);
    world.raise("go");
    first.wait().ok();
    second.wait().ok();
    agent(&world, "say=alone").wait().ok();
    assert_eq!(world.agent_log().violations.len(), 1, "one after the other is fine");
}

#[test]
fn kit_strays_outlive_their_agent_and_are_found() {
    let world = World::new();
    agent(&world, "ignore=term,hup stray=plain stray=setsid stray=double say=bye exit=3").wait().exits(3);
    let log = world.agent_reaches("three strays", |log| log.strays.len() == 3);
    let mut alive: Vec<_> = world.processes().iter().map(|p| p.pid).collect();
    let mut strays = log.strays.clone();
    alive.sort_unstable();
    strays.sort_unstable();
    assert_eq!(alive, strays);
    world.processes().iter().for_each(testkit::Process::kill);
    world.is_quiet();
}

#[test]
fn kit_rules_are_chosen_by_iteration_and_by_call() {
    let mut world = World::new();
    let script = world.outside().join("rules");
    std::fs::write(&script, "2-3: say=range\n7+: say=later\n@2: say=second\n*: say='any other'\n").unwrap();
    let rules = format!("--script {}", script.display());
    let said: Vec<_> = ["1", "1", "3", "9"]
        .into_iter()
        .map(|iteration| {
            world.set("LONGHAUL_ITERATION", iteration);
            agent(&world, &rules).wait().ok().stdout
        })
        .collect();
    assert_eq!(said, ["any other\n", "second\n", "range\n", "later\n"]);
    let log = world.agent_log();
    assert_eq!(log.calls.iter().map(|c| c.iteration).collect::<Vec<_>>(), [1, 1, 3, 9]);
    assert!(log.calls.iter().all(|c| c.end_ns.is_some_and(|end| end >= c.start_ns)));
}

#[test]
fn kit_a_world_takes_everything_down_with_it() {
    let mut other = World::new();
    let log = other.outside().join("agent.log");
    other.set("FAKE_AGENT_LOG", &log);
    let world = World::new();
    let mut command = world.program(fake_agent());
    command.arg("--log").arg(&log).args(["ignore=term", "stray=setsid", "hang"]);
    let run = Running::spawn(command);
    let pids = eventually("agent and stray", || {
        let log = AgentLog::read(&log);
        (log.strays.len() == 1).then(|| [log.calls[0].pid, log.strays[0]])
    });
    drop(world);
    drop(run);
    assert!(pids.iter().all(|pid| testkit::start_time(*pid).is_none_or(|_| is_zombie(*pid))), "{pids:?}");
}

/// An orphan may wait a moment for init to collect it.
fn is_zombie(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.is_empty() || status.contains("State:\tZ")
}
