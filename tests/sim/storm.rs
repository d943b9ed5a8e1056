//! Every actor dies again and again, and nothing is lost, repeated or done twice at once.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use longhaul::actors::host::Ended;
use longhaul::messages::accounts::AccountsMsg;
use longhaul::messages::disk::DiskMsg;
use longhaul::messages::gates::GatesMsg;
use longhaul::messages::journal::JournalMsg;
use longhaul::messages::lane::LaneMsg;
use longhaul::messages::provider::ProviderMsg;
use longhaul::messages::repo::RepoMsg;
use longhaul::messages::session::SessionMsg;
use longhaul::messages::signals::SignalsMsg;
use longhaul::messages::store::StoreMsg;
use longhaul::messages::watcher::WatcherMsg;
use ractor::ActorCell;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use crate::scene::{Scene, simulated};
use crate::verdict;

/// Deaths of one storm.
const DEATHS: u32 = 500;

/// Those after it, while the run comes to its end.
const LAST_DEATHS: u32 = 60;

/// Messages that are sent during a storm.
const MESSAGES: u32 = 60;

const SETTINGS: &str = r#"
durability = "process"
[provider]
name = "rehearsal"
[run]
max_iterations = "none"
retries = 1000
[stagnation]
warn = "none"
pause = "none"
[backoff]
base = "1s"
cap = "20s"
[rate_limit]
probe_min = "5s"
probe_max = "30s"
[journal]
max_file = "200KB"
[supervisor]
intensity = 100000
[gates]
detect = false
[[gates.commands]]
name = "check"
run = "true"
"#;

/// The same as in [`SETTINGS`].
pub const RETRIES: u32 = 1000;

/// Each call says when it begins and when it ends, with its number.
const SCRIPT: &str = r#"
after = "repeat-last"
[[call]]
steps = [
  { append = "calls.log", text = "+{call}\n" },
  { wait = 2.0 },
  { append = "calls.log", text = "={call}\n" },
  { write = "work-{iteration}.txt", text = "{call}\n" },
  { usage = { input_tokens = 1000, output_tokens = 100, cost_usd = 0.01 } },
  { wait = 1.5 },
  { append = "calls.log", text = "-{call}\n" },
  { say = "Did number {iteration}." },
]
[chaos]
seed = 11
delay = [0.0, 2.0]
limit = [5.0, 120.0]
weights = { completed = 75, overloaded = 3, network_down = 3, rate_limited = 3, usage_limited = 2, empty = 2, truncated = 3, crashed = 3, unknown = 2 }
"#;

/// Who can die. The host is the root: with it goes the program.
pub const ACTORS: [&str; 12] = [
    "store", "journal", "signals", "repo", "gates", "session", "lane", "provider", "accounts", "disk",
    "watcher", "project",
];

#[test]
fn actors_die_five_hundred_times_and_nothing_is_lost() {
    let seeds: Vec<u64> = match std::env::var("LONGHAUL_SIM_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => vec![1, 2],
    };
    for seed in seeds {
        println!("LONGHAUL_SIM_SEED={seed}");
        simulated().block_on(storm(seed));
    }
}

async fn storm(seed: u64) {
    let mut scene = Scene::new(SETTINGS, SCRIPT, seed);
    let mut dice = fastrand::Rng::with_seed(seed);
    let mut deaths: BTreeMap<&str, u32> = BTreeMap::new();
    let mut said: Vec<String> = Vec::new();
    let mut count = 0;
    let mut retries = RETRIES;
    while count < DEATHS {
        a_moment(&scene, &mut dice, 12_000).await;
        if said.len() < (count * MESSAGES / DEATHS) as usize {
            said.push(format!("message {} of the storm", said.len()));
            scene.say(&said[said.len() - 1]);
            let steps = dice.u8(..30);
            some_steps(steps).await;
        }
        if dice.u8(..20) == 0 {
            retries += 1;
            settings(&scene, retries, "none");
        }
        count += strike(&scene, &mut dice, &mut deaths);
    }
    let finished = scene.ctx.state().session.as_ref().unwrap().finished;
    let last = finished + 5;
    settings(&scene, retries, &last.to_string());
    // The end is a moment to die, too.
    let mut end = scene.end();
    let ended = timeout(Duration::from_secs(100_000), async {
        for _ in 0..LAST_DEATHS {
            tokio::select! {
                ended = &mut end => return ended.unwrap(),
                () = a_moment(&scene, &mut dice, 4_000) => {}
            }
            // What a closing project has no time for is made up for at the next start.
            if scene.ctx.state().session.as_ref().is_some_and(|s| !s.ended()) {
                strike(&scene, &mut dice, &mut deaths);
            }
        }
        end.await.unwrap()
    });
    let ended = ended.await;
    let state = scene.ctx.state();
    assert_eq!(ended, Ok(Ended::Code(0)), "{}", serde_json::to_string(&*state).unwrap());
    println!("{finished} iterations in the storm, {deaths:?}");
    assert!(deaths.len() == ACTORS.len(), "somebody never died: {deaths:?}");
    let events = verdict::check(scene, last, &said);
    verdict::each_change_of_settings_once(&events, retries);
    verdict::no_restart_is_lost(&events, &deaths);
}

/// A person edits the settings.
fn settings(scene: &Scene, retries: u32, max_iterations: &str) {
    let text = SETTINGS
        .replace("retries = 1000", &format!("retries = {retries}"))
        .replace("max_iterations = \"none\"", &format!("max_iterations = {max_iterations}"));
    fs::write(&scene.ctx.paths.config, text.replace("= none", "= \"none\"")).unwrap();
}

/// One dies, now and then two at the same moment.
fn strike(scene: &Scene, dice: &mut fastrand::Rng, deaths: &mut BTreeMap<&'static str, u32>) -> u32 {
    let mut count = 0;
    for _ in 0..if dice.u8(..6) == 0 { 2 } else { 1 } {
        let who = ACTORS[dice.usize(..ACTORS.len())];
        if dies(scene, who, dice.bool()) {
            *deaths.entry(who).or_default() += 1;
            count += 1;
        }
    }
    count
}

/// Waits for a moment to strike: some time later, when nothing goes on, or in the middle of a boundary.
async fn a_moment(scene: &Scene, dice: &mut fastrand::Rng, longest_ms: u64) {
    let time = Duration::from_millis(dice.u64(1..longest_ms));
    if dice.bool() {
        sleep(time).await;
    } else {
        let mut committed = scene.ctx.state.subscribe();
        // Nothing is committed during a long wait.
        let _ = timeout(time, committed.changed()).await;
    }
    let steps = dice.u8(..30);
    some_steps(steps).await;
}

/// Lets the actors go on a little, time not counted.
pub async fn some_steps(steps: u8) {
    for _ in 0..steps {
        yield_now().await;
    }
}

/// Kills, or lets panic. False: it is dead already.
pub fn dies(scene: &Scene, who: &str, panics: bool) -> bool {
    let Some(cell) = find(scene, who) else { return false };
    if matches!(cell.get_status(), ractor::ActorStatus::Stopping | ractor::ActorStatus::Stopped) {
        return false;
    }
    if !panics || who == "project" {
        cell.kill();
        return true;
    }
    match who {
        "store" => cell.send_message(StoreMsg::Crash).is_ok(),
        "journal" => cell.send_message(JournalMsg::Crash).is_ok(),
        "signals" => cell.send_message(SignalsMsg::Crash).is_ok(),
        "repo" => cell.send_message(RepoMsg::Crash).is_ok(),
        "gates" => cell.send_message(GatesMsg::Crash).is_ok(),
        "session" => cell.send_message(SessionMsg::Crash).is_ok(),
        "lane" => cell.send_message(LaneMsg::Crash).is_ok(),
        "provider" => cell.send_message(ProviderMsg::Crash).is_ok(),
        "accounts" => cell.send_message(AccountsMsg::Crash).is_ok(),
        "disk" => cell.send_message(DiskMsg::Crash).is_ok(),
        "watcher" => cell.send_message(WatcherMsg::Crash).is_ok(),
        other => panic!("{other}"),
    }
}

fn find(scene: &Scene, who: &str) -> Option<ActorCell> {
    let slots = &scene.ctx.slots;
    let session = || slots.session.get().map(|session| session.get_cell());
    let child = |cell: ActorCell| cell.get_children().into_iter().next();
    match who {
        "store" => slots.store.get().map(|a| a.get_cell()),
        "journal" => slots.journal.get().map(|a| a.get_cell()),
        "signals" => slots.signals.get().map(|a| a.get_cell()),
        "repo" => slots.repo.get().map(|a| a.get_cell()),
        "gates" => slots.gates.get().map(|a| a.get_cell()),
        "accounts" => slots.accounts.get().map(|a| a.get_cell()),
        "disk" => slots.disk.get().map(|a| a.get_cell()),
        "watcher" => slots.watcher.get().map(|a| a.get_cell()),
        "session" => session(),
        "lane" => session().and_then(child),
        "provider" => session().and_then(child).and_then(child),
        "project" => session()?.try_get_supervisor(),
        other => panic!("{other}"),
    }
}
