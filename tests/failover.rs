//! A chain in which some providers are processes and some are not.

use testkit::{World, words};

#[test]
fn a_process_takes_over_from_a_script() {
    let world = World::with_git();
    world.provider("fake", "change=a.txt say=ok");
    world.config("[provider]\nname = \"rehearsal\"\nfallback = [\"fake\"]\n");
    let script = "[[call]]\nsteps = [{ fail = \"usage_limited\", after = 18000 }]\n";
    world.write(".longhaul/rehearsal.toml", script);
    let ended = world.run(words("run --max-iterations 3 --json")).ok();
    assert_eq!(ended.event("failover").text("to"), "fake");
    assert_eq!(ended.events_of("iteration_finished").len(), 3);
    assert_eq!(ended.events_of("attempt_finished").len(), 4);
    let log = world.agent_log();
    assert_eq!((log.calls.len(), log.violations.len()), (3, 0));
}
