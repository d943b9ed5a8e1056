//! Every actor dies once after every commit of a short run: what a storm hits by chance is here hit for sure.

use std::time::Duration;

use longhaul::actors::host::Ended;
use tokio::time::timeout;

use crate::scene::{Scene, simulated};
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

/// More commits than such a run has.
const COMMITS: u32 = 40;

#[test]
fn every_actor_dies_once_after_every_commit() {
    let mut runs = 0;
    for who in ACTORS {
        // Turns of the scheduler after the commit: the answer is under way, or has been acted on.
        for steps in [0, 6] {
            for commit in 1..COMMITS {
                let panics = (commit + u32::from(steps)) % 2 == 0;
                runs += 1;
                if !simulated().block_on(death(who, commit, steps, panics)) {
                    break;
                }
            }
        }
    }
    println!("{runs} runs");
}

/// False: the run was over before that commit.
async fn death(who: &'static str, commit: u32, steps: u8, panics: bool) -> bool {
    let mut scene = Scene::new(SETTINGS, SCRIPT, u64::from(commit));
    let said = vec!["a word".to_owned()];
    scene.say(&said[0]);
    let ctx = scene.ctx.clone();
    let mut end = scene.end();
    let mut committed = ctx.state.subscribe();
    for _ in 0..commit {
        tokio::select! {
            _ = &mut end => return false,
            _ = committed.changed() => {}
        }
    }
    some_steps(steps).await;
    dies(&scene, who, panics);
    let ended = timeout(Duration::from_secs(10_000), end).await;
    let context =
        format!("{who} {} {steps} steps after commit {commit}", if panics { "panics" } else { "is killed" });
    match ended {
        Ok(Ok(Ended::Code(0))) => {}
        other => panic!("{context}: {other:?}, {}", serde_json::to_string(&*ctx.state()).unwrap()),
    }
    println!("{context}");
    verdict::check(scene, 2, &said);
    true
}
