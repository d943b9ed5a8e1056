//! A month of iterations with faults of every class, and what it must be: fast, the same for the same seed, true to the
//! invariants at each step, and within its bounds on the disk.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use longhaul::actors::context::ProjectCtx;
use longhaul::actors::host::Ended;
use longhaul::domain::event::Event;
use longhaul::domain::ids::MessageId;
use longhaul::domain::state::{Phase, Reason, State};
use longhaul::intake::inbox;
use longhaul::intake::signal_files::resume_path;
use longhaul::messages::signals::SignalsMsg;
use tokio::time::{sleep, timeout};

use crate::scene::{Place, simulated};
use crate::verdict;

/// Iterations of a month; `LONGHAUL_SIM_ITERATIONS` takes another number.
const MONTH: u64 = 10_000;

/// US dollars that the person grants at first, and adds whenever they are used up.
const GRANT: u64 = 5;

/// The person says something after so many iterations, again and again.
const SAYS_EVERY: u64 = 40;

/// No moment of anybody else's: what happens at one and the same moment on two threads has no order.
const A_LITTLE_LATER: Duration = Duration::from_micros(137_531);

/// How long it takes the person to come.
const COMES_AFTER: Duration = Duration::from_secs(1800);

/// What the database and the ballast may take, bytes.
const STATE: usize = 16 << 20;

/// All that a call can come to.
const OUTCOMES: [&str; 19] = [
    "completed",
    "empty",
    "rate_limited",
    "usage_limited",
    "quota_exhausted",
    "overloaded",
    "auth_failed",
    "network_down",
    "context_overflow",
    "model_unavailable",
    "refused",
    "cap_reached",
    "truncated",
    "silent_hang",
    "timed_out",
    "crashed",
    "not_runnable",
    "cancelled",
    "unknown",
];

/// What a run came to.
pub struct Run {
    place: Place,
    /// All that was shown.
    pub events: Vec<Event>,
    /// The journal on disk, oldest segment first, byte by byte.
    journal: Vec<(String, Vec<u8>)>,
    /// Files of the project that were open, a few times on the way.
    open_files: Vec<usize>,
}

fn settings(iterations: u64, journal: &str) -> String {
    format!(
        r#"
durability = "process"
[provider]
name = "rehearsal"
fallback = ["second"]
[run]
max_iterations = {iterations}
[disk]
interval = "1h"
[gates]
detect = false
[budget]
usd = {GRANT}
[journal]
{journal}
"#
    )
}

/// Every outcome that a call can come to.
fn script(seed: u64) -> String {
    format!(
        r#"
after = "repeat-last"
[[call]]
steps = [
  {{ write = "work.txt", text = "{{iteration}}\n" }},
  {{ tool = "Edit" }},
  {{ usage = {{ input_tokens = 1000, output_tokens = 100 }} }},
  {{ say = "Did number {{iteration}}." }},
]
[chaos]
seed = {seed}
delay = [1.0, 300.0]
limit = [60.0, 7200.0]
unstated = 0.3
cost_usd = [0.0, 0.1]
weights = {{ completed = 800, empty = 10, rate_limited = 20, usage_limited = 10, quota_exhausted = 3, overloaded = 30, auth_failed = 3, network_down = 30, context_overflow = 10, model_unavailable = 3, refused = 3, cap_reached = 10, truncated = 10, silent_hang = 5, timed_out = 5, crashed = 10, not_runnable = 3, cancelled = 10, unknown = 10 }}
"#
    )
}

/// Runs it to its end. `before`: the project is made anew at the same place, since its path is in the journal.
pub fn run(before: Option<Place>, iterations: u64, seed: u64, journal: &str) -> Run {
    let began = Instant::now();
    let (settings, script) = (settings(iterations, journal), script(seed));
    let mut place = match before {
        Some(place) => place.anew(&settings, &script),
        None => Place::still(&settings, &script),
    };
    let start = place.now;
    let open_files = Arc::default();
    let runtime = simulated();
    let (scene, now) = runtime.block_on(async {
        let (scene, end) = place.start(seed);
        let person = tokio::spawn(person(scene.ctx.clone(), settings, Arc::clone(&open_files)));
        let ended = timeout(Duration::from_secs(10_000_000), end).await;
        let state = scene.ctx.state();
        assert_eq!(ended, Ok(Ok(Ended::Code(0))), "{}", serde_json::to_string(&*state).unwrap());
        person.abort();
        let now = scene.ctx.now();
        (scene, now)
    });
    drop(runtime);
    place.now = now;
    let events = scene.events();
    let journal = journal_of(&place);
    let (days, calls) = (
        now.duration_since(start).as_secs_f64() / 86_400.0,
        verdict::named(&events, "attempt_started").count(),
    );
    let real = began.elapsed();
    println!("seed {seed}: {iterations} iterations, {calls} calls, {days:.1} days in {real:?}");
    let open_files = std::mem::take(&mut *open_files.lock().unwrap());
    Run { place, events, journal, open_files }
}

/// Somebody who comes half an hour after they are needed, and has something to say now and then.
async fn person(ctx: Arc<ProjectCtx>, settings: String, open_files: Arc<Mutex<Vec<usize>>>) {
    let mut state = ctx.state.subscribe();
    let (mut granted, mut said) = (GRANT, 0);
    loop {
        if state.changed().await.is_err() {
            return;
        }
        let now = state.borrow_and_update().session.as_ref().map(|s| (s.state, s.reason, s.finished));
        let Some((phase, reason, finished)) = now else { continue };
        if finished / SAYS_EVERY > said {
            said = finished / SAYS_EVERY;
            sleep(A_LITTLE_LATER).await;
            open_files.lock().unwrap().push(open_files_in(&ctx.paths.root));
            inbox::put(&ctx.paths, MessageId(ctx.id()), &format!("word {said}")).unwrap();
            ctx.slots.signals.cast(SignalsMsg::Hint);
        }
        if phase != Phase::Paused {
            continue;
        }
        sleep(COMES_AFTER + A_LITTLE_LATER).await;
        if reason == Some(Reason::BudgetExceeded) {
            granted += GRANT;
            let raised = settings.replace(&format!("usd = {GRANT}"), &format!("usd = {granted}"));
            let new = ctx.paths.config.with_extension("new");
            fs::write(&new, raised).unwrap();
            fs::rename(new, &ctx.paths.config).unwrap();
        } else {
            fs::write(resume_path(&ctx.paths), "").unwrap();
        }
        ctx.slots.signals.cast(SignalsMsg::Hint);
    }
}

fn journal_of(place: &Place) -> Vec<(String, Vec<u8>)> {
    let logs = place.paths.dot.join("logs");
    let mut files: Vec<_> =
        fs::read_dir(logs).map_or(Vec::new(), |entries| entries.map(|entry| entry.unwrap().path()).collect());
    // Their names end with the number of their first event.
    files.sort_by_key(|path| path.to_string_lossy().rsplit('-').next().map(str::to_owned));
    files.push(place.paths.dot.join("events.jsonl"));
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    files.iter().map(|path| (name(path), fs::read(path).unwrap())).collect()
}

/// Files below `root` that this process has open.
fn open_files_in(root: &Path) -> usize {
    let open = fs::read_dir("/proc/self/fd").unwrap();
    open.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok()).filter(|file| file.starts_with(root)).count()
}

/// Where two journals part, for whoever has to find out why.
fn first_difference(one: &Run, other: &Run) -> Option<String> {
    let names = |run: &Run| run.journal.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let text =
        |run: &Run| run.journal.iter().map(|(_, bytes)| String::from_utf8_lossy(bytes)).collect::<String>();
    if one.journal == other.journal {
        return None;
    }
    let (a, b) = (text(one), text(other));
    let line = a.lines().zip(b.lines()).find(|(a, b)| a != b);
    Some(format!("{:?} and {:?}: {line:#?}", names(one), names(other)))
}

#[test]
fn ec_009_a_month_of_ten_thousand_iterations_keeps_the_invariants_and_stays_within_its_bounds() {
    let iterations = std::env::var("LONGHAUL_SIM_ITERATIONS").map_or(MONTH, |n| n.parse().unwrap());
    let run = run(None, iterations, 1, "max_file = \"256KiB\"\nmax_total = \"2MiB\"");
    let (max_file, max_total) = (256 << 10, 2 << 20);
    let outcomes = run.place.invariants.lock().unwrap().outcomes.clone();
    println!("{outcomes:?}");
    let missing: Vec<_> = OUTCOMES.iter().filter(|name| !outcomes.contains_key(**name)).collect();
    assert!(missing.is_empty() || iterations < MONTH, "faults that never came: {missing:?}");
    let finished: Vec<_> =
        verdict::named(&run.events, "iteration_finished").map(|e| e.iteration.unwrap()).collect();
    assert_eq!(finished, (1..=iterations).collect::<Vec<_>>());

    let sizes: Vec<usize> = run.journal.iter().map(|(_, bytes)| bytes.len()).collect();
    println!("{} segments, {} bytes", sizes.len(), sizes.iter().sum::<usize>());
    assert!(sizes.iter().all(|size| *size <= max_file), "{sizes:?}");
    // The current one grows until it is finished; then there is room made for the next.
    assert!(sizes.iter().sum::<usize>() <= max_total + max_file, "{sizes:?}");
    for (name, bytes) in &run.journal {
        a_segment_is_of_one_day_and_begins_with_a_snapshot(name, bytes);
    }
    let first: Event = first_event(&run.journal[0].1);
    assert!(first.seq > 1 || iterations < MONTH, "nothing is gone: the test shows nothing");
    let all = bytes_below(&run.place.paths.dot);
    println!(
        "{all} bytes in all; open files on the way: {:?}",
        run.open_files.iter().collect::<BTreeSet<_>>()
    );
    assert!(all < (max_total + max_file + STATE) as u64, "{all} bytes in .longhaul");
    let (early, late) = run.open_files.split_at(run.open_files.len() / 2);
    assert!(late.iter().max() <= early.iter().max(), "{:?}", run.open_files);

    let mut state = State::default();
    run.events.iter().for_each(|event| state.apply(event));
    verdict::the_files_say_the_same(&run.place, &state);
}

#[test]
fn the_same_seed_gives_the_same_journal_to_the_byte() {
    let one = run(None, 200, 1, "max_file = \"64KiB\"");
    let Run { place, events, journal, open_files } = one;
    let again = run(Some(place), 200, 1, "max_file = \"64KiB\"");
    let one = Run { place: Place::still("", "after = \"done\""), events, journal, open_files };
    assert_eq!(first_difference(&one, &again), None);
    let Run { place, events, journal, open_files } = again;
    let other = run(Some(place), 200, 2, "max_file = \"64KiB\"");
    let again = Run { place: Place::still("", "after = \"done\""), events, journal, open_files };
    assert!(first_difference(&again, &other).is_some(), "another seed gives the same night");
}

#[test]
fn a_hundred_seeds_keep_the_invariants() {
    let seeds = match std::env::var("LONGHAUL_SIM_SEED") {
        Ok(seed) => seed.parse().unwrap()..=seed.parse().unwrap(),
        Err(_) => 1..=100,
    };
    for seed in seeds {
        let run = run(None, 40, seed, "max_file = \"64KiB\"");
        let mut state = State::default();
        run.events.iter().for_each(|event| state.apply(event));
        let session = state.session.as_ref().unwrap();
        assert_eq!((session.state, session.finished), (Phase::Finished, 40));
        verdict::the_files_say_the_same(&run.place, &state);
    }
}

/// All that is in it happened on one UTC day; it begins with the state before that.
fn a_segment_is_of_one_day_and_begins_with_a_snapshot(name: &str, bytes: &[u8]) {
    let text = std::str::from_utf8(bytes).unwrap();
    let mut events = text.lines().map(|line| serde_json::from_str::<Event>(line).unwrap());
    assert_eq!(events.next().unwrap().body.name(), "snapshot", "{name}");
    let days: BTreeSet<String> = events.map(|event| event.time.strftime("%F").to_string()).collect();
    assert!(days.len() <= 1, "{name}: {days:?}");
}

fn first_event(bytes: &[u8]) -> Event {
    serde_json::from_str(std::str::from_utf8(bytes).unwrap().lines().nth(1).unwrap()).unwrap()
}

fn bytes_below(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let size = |entry: fs::DirEntry| match entry.metadata().unwrap() {
        meta if meta.is_dir() => bytes_below(&entry.path()),
        meta => meta.len(),
    };
    entries.map(size).sum()
}
