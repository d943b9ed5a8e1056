//! The demo: the main job, as somebody sees it who has just built Longhaul.

use testkit::{Event, World};

#[test]
fn the_demo_shows_a_real_session_and_where_it_is() {
    let world = World::new();
    let scratch = world.outside().join("scratch");
    let at = scratch.display().to_string();
    let ended = world.run(["demo", "--dir", &at]).ok();
    for part in [
        "a usage limit: it waited",
        "it was in the next prompt, once",
        "the gate failed 2 times, then passed",
        &format!("The scratch repository is in {at}."),
        "longhaul run --agent",
    ] {
        assert!(ended.stdout.contains(part), "{part}: {}", ended.stdout);
    }
    let events = Event::read_all(&scratch.join(".longhaul"));
    let count = |kind| events.iter().filter(|event| event.kind() == kind).count();
    for (kind, times) in [
        ("iteration_finished", 3),
        ("attempt_finished", 4),
        ("cool_down", 1),
        ("message_delivered", 1),
        ("completion_verified", 1),
    ] {
        assert_eq!(count(kind), times, "{kind}");
    }
    assert_eq!(events.last().map(|event| event.text("reason").to_owned()), Some("goals_met".to_owned()));
    world.run(["status", "--project", &at]).ok();
    world.run(["demo", "--dir", &at]).exits(2).tells("is not empty");
}
