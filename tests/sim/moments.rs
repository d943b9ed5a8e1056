//! Every actor dies once after every commit of a short run: what a storm hits by chance is here hit for sure.

use std::fs;
use std::time::Duration;

use longhaul::actors::host::Ended;
use longhaul::domain::state::{Phase, Reason};
use tokio::sync::oneshot::Receiver;
use tokio::time::{sleep, timeout};

use crate::scene::{Place, Scene, simulated};
use crate::storm::{ACTORS, dies, some_steps};
use crate::verdict;

const SETTINGS: &str = r#"
durability = "process"
[provider]
name = "rehearsal"
[run]
max_iterations = 2
[backoff]
base = "1s"
[gates]
detect = false
[[gates.commands]]
name = "check"
run = "true"
"#;

/// One attempt fails, so that there is a wait, too.
const SCRIPT: &str = r#"
after = "repeat-last"
[[call]]
steps = [{ append = "calls.log", text = "+{call}\n" }, { fail = "overloaded" }]
[[call]]
steps = [
  { append = "calls.log", text = "+{call}\n" },
  { wait = 1.0 },
  { write = "work-{iteration}.txt", text = "{call}\n" },
  { append = "calls.log", text = "-{call}\n" },
  { say = "Did number {iteration}." },
]
"#;

/// What a person says at the start.
const SAID: &str = "a word";

/// More commits than such a run has.
const COMMITS: u32 = 40;

/// A commit of a short run, and what happens a little after it.
#[derive(Debug, Clone, Copy)]
struct Moment {
    who: &'static str,
    commit: u32,
    /// Turns of the scheduler after the commit: its answer is under way, or has been acted on.
    steps: u8,
    panics: bool,
}

#[test]
fn every_actor_dies_once_after_every_commit() {
    everybody(&[0, 6], death);
}

#[test]
fn stop_is_obeyed_whoever_dies_with_it() {
    everybody(&[3], death_and_stop);
}

#[test]
fn pause_holds_whoever_dies_with_it() {
    everybody(&[3], death_and_pause);
}

#[test]
fn ctrl_c_is_heard_whoever_dies_with_it() {
    everybody(&[3], death_and_interrupt);
}

/// False: the run was over before that commit.
fn everybody(steps: &[u8], at: impl AsyncFn(Moment) -> bool) {
    let mut runs = 0;
    for who in ACTORS {
        for steps in steps.iter().copied() {
            for commit in 1..COMMITS {
                let moment = Moment { who, commit, steps, panics: (commit + u32::from(steps)) % 2 == 0 };
                runs += 1;
                if !simulated().block_on(at(moment)) {
                    break;
                }
            }
        }
    }
    println!("{runs} runs");
}

/// Brings a run to that moment. None: it was over before.
async fn reach(moment: Moment) -> Option<(Place, Scene, Receiver<Ended>)> {
    println!("{moment:?}");
    let mut place = Place::new(SETTINGS, SCRIPT);
    let (scene, mut end) = place.start(u64::from(moment.commit));
    scene.say(SAID);
    let mut committed = scene.ctx.state.subscribe();
    for _ in 0..moment.commit {
        tokio::select! {
            _ = &mut end => return None,
            _ = committed.changed() => {}
        }
    }
    some_steps(moment.steps).await;
    Some((place, scene, end))
}

/// How it ends, within a time that only a hung run takes.
async fn end_of(scene: &Scene, end: Receiver<Ended>) -> u8 {
    match timeout(Duration::from_secs(10_000), end).await {
        Ok(Ok(Ended::Code(code))) => code,
        other => panic!("{other:?}, {}", serde_json::to_string(&*scene.ctx.state()).unwrap()),
    }
}

async fn death(moment: Moment) -> bool {
    let Some((place, scene, end)) = reach(moment).await else { return false };
    dies(&scene, moment.who, moment.panics);
    assert_eq!(end_of(&scene, end).await, 0);
    let ctx = scene.ctx.clone();
    let events = scene.events();
    verdict::check(&place, &events, 2, &[SAID.to_owned()]);
    verdict::one_program(&ctx, &events);
    true
}

async fn death_and_stop(moment: Moment) -> bool {
    let Some((mut place, scene, end)) = reach(moment).await else { return false };
    fs::write(&place.paths.stop, "enough").unwrap();
    dies(&scene, moment.who, moment.panics);
    let code = end_of(&scene, end).await;
    let state = scene.ctx.state();
    let session = state.session.as_ref().unwrap();
    if code == 0 {
        assert_eq!(session.finished, 2, "it came too late");
        return true;
    }
    assert_eq!((code, session.state, &session.open, &session.wait), (3, Phase::Stopped, &None, &None));
    assert!(!place.paths.stop.exists(), "obeyed, and not removed");
    place.now = scene.ctx.now();
    let mut events = scene.events();
    let (scene, end) = place.start(1);
    assert_eq!(end_of(&scene, end).await, 0);
    events.extend(scene.events());
    verdict::check(&place, &events, 2, &[SAID.to_owned()]);
    true
}

async fn death_and_pause(moment: Moment) -> bool {
    let Some((place, scene, end)) = reach(moment).await else { return false };
    fs::write(&place.paths.pause, "").unwrap();
    dies(&scene, moment.who, moment.panics);
    sleep(Duration::from_secs(60)).await;
    let state = scene.ctx.state();
    let session = state.session.as_ref().unwrap();
    if session.ended() {
        return true;
    }
    assert_eq!(
        (session.state, session.reason, &session.open),
        (Phase::Paused, Some(Reason::Requested), &None)
    );
    fs::remove_file(&place.paths.pause).unwrap();
    assert_eq!(end_of(&scene, end).await, 0);
    verdict::check(&place, &scene.events(), 2, &[SAID.to_owned()]);
    true
}

async fn death_and_interrupt(moment: Moment) -> bool {
    let Some((_place, scene, end)) = reach(moment).await else { return false };
    dies(&scene, moment.who, moment.panics);
    some_steps(moment.steps).await;
    scene.ctx.interrupt();
    let code = end_of(&scene, end).await;
    let state = scene.ctx.state();
    let session = state.session.as_ref().unwrap();
    if code != 0 {
        assert_eq!((code, session.state, session.reason), (3, Phase::Stopped, Some(Reason::Interrupted)));
    }
    true
}
