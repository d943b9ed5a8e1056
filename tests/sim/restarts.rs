//! The program itself dies again and again, or is stopped, paused and started again: it is one session.

use std::fs;
use std::time::Duration;

use jiff::SignedDuration;
use longhaul::actors::host::Ended;
use longhaul::domain::event::{Body, Event};
use longhaul::domain::state::Phase;
use tokio::time::timeout;

use crate::scene::{Place, Scene, simulated};
use crate::storm::{SCRIPT, SETTINGS, a_moment, some_steps};
use crate::verdict;

/// Programs of one session.
const PROGRAMS: u32 = 60;

#[test]
fn a_session_outlives_sixty_programs() {
    let seed: u64 = std::env::var("LONGHAUL_SIM_SEED").map_or(1, |seed| seed.parse().unwrap());
    println!("LONGHAUL_SIM_SEED={seed}");
    let mut dice = fastrand::Rng::with_seed(seed);
    let mut place = Place::new(SETTINGS, SCRIPT);
    let mut events: Vec<Event> = Vec::new();
    let mut said: Vec<String> = Vec::new();
    for program in 0..PROGRAMS {
        // What runs in it when it is dropped dies with it, at once.
        let runtime = simulated();
        let scene = runtime.block_on(lives(&mut place, seed, &mut dice, &mut said));
        drop(runtime);
        place.now = scene.ctx.now().checked_add(SignedDuration::from_secs(dice.i64(0..5000))).unwrap();
        let new = scene.events();
        how_it_began(&events, &new, program);
        events.extend(new);
    }
    let finished = verdict::named(&events, "iteration_finished").count() as u64;
    let last = finished + 3;
    let settings = SETTINGS.replace("max_iterations = \"none\"", &format!("max_iterations = {last}"));
    fs::write(&place.paths.config, settings).unwrap();
    let runtime = simulated();
    let scene = runtime.block_on(async {
        let (scene, end) = place.start(seed);
        assert_eq!(timeout(Duration::from_secs(100_000), end).await.unwrap(), Ok(Ended::Code(0)));
        scene
    });
    drop(runtime);
    let new = scene.events();
    how_it_began(&events, &new, PROGRAMS);
    events.extend(new);
    println!("{finished} iterations, {} events", events.len());
    verdict::check(&place, &events, last, &said);
}

/// One program, until it dies or is stopped.
async fn lives(place: &mut Place, seed: u64, dice: &mut fastrand::Rng, said: &mut Vec<String>) -> Scene {
    let (scene, end) = place.start(seed);
    for _ in 0..dice.u8(0..4) {
        a_moment(&scene, dice, 20_000).await;
        if dice.bool() {
            said.push(format!("message {} of the storm", said.len()));
            scene.say(&said[said.len() - 1]);
        }
        match dice.u8(0..4) {
            0 => fs::write(&place.paths.pause, "").unwrap(),
            _ => drop(fs::remove_file(&place.paths.pause)),
        }
    }
    let _ = fs::remove_file(&place.paths.pause);
    if dice.u8(..4) == 0 {
        fs::write(&place.paths.stop, "enough").unwrap();
        let ended = timeout(Duration::from_secs(60), end).await;
        assert_eq!(ended, Ok(Ok(Ended::Code(3))), "{}", serde_json::to_string(&*scene.ctx.state()).unwrap());
        assert!(!place.paths.stop.exists(), "obeyed, and not removed");
        let state = scene.ctx.state();
        let session = state.session.as_ref().unwrap();
        assert_eq!((session.state, &session.open, &session.wait), (Phase::Stopped, &None, &None));
    } else {
        a_moment(&scene, dice, 20_000).await;
        let steps = dice.u8(..40);
        some_steps(steps).await;
    }
    scene
}

/// A crash is told for what it was; the first words of a program are about the last one.
fn how_it_began(before: &[Event], new: &[Event], program: u32) {
    let mut found = longhaul::domain::state::State::default();
    before.iter().for_each(|event| found.apply(event));
    let crashed = verdict::named(new, "session_crashed").count();
    let resumed = verdict::named(new, "session_resumed").count();
    let Some(session) = found.session.filter(|_| !new.is_empty()) else { return };
    let died = matches!(session.state, Phase::Starting | Phase::Running | Phase::Waiting | Phase::Stopping);
    // One that dies before its first commit says nothing; messages may be taken before it.
    let begun = new.iter().any(|event| !matches!(event.body, Body::MessageQueued { .. }));
    let expected = (usize::from(died && begun), usize::from(begun));
    assert_eq!((crashed, resumed), expected, "program {program} found {:?}", session.state);
}
