//! The supervisor is killed again and again, and nothing may be lost, repeated or left behind.
//!
//! The journal is compared with the fake agent's own log. `LONGHAUL_STORM_SEED` repeats a storm,
//! `LONGHAUL_STORM_KILLS` makes it longer or shorter.
#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::{AgentCall, Event, Running, Terminal, World, eventually, fake_agent, longhaul, pass, words};

/// What the agent does in each call: 20 ms of work and a changed file.
const WORK: &str = "work=20 change=work.txt say=ok";
/// Messages that are sent during a storm.
const MESSAGES: usize = 50;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

fn dice() -> fastrand::Rng {
    let seed = setting("LONGHAUL_STORM_SEED", fastrand::u64(..));
    println!("LONGHAUL_STORM_SEED={seed}");
    fastrand::Rng::with_seed(seed)
}

/// A world whose session goes on until it is stopped.
fn stormy_world() -> World {
    let world = World::with_git();
    world.config("stagnation.pause = \"none\"\nbackoff.base = \"1ms\"\nbackoff.cap = \"5ms\"\n");
    world
}

/// Waits until the agent's log has grown by the end of a call, in steps far shorter than a boundary.
fn wait_for_an_end(world: &World, run: &mut Running) {
    let log = world.outside().join("agent.log");
    let ends = |from: u64| {
        let bytes = fs::read(&log).unwrap_or_default();
        let from = usize::try_from(from).unwrap().min(bytes.len());
        String::from_utf8_lossy(&bytes[from..]).contains("\"event\":\"end\"")
    };
    let size = || fs::metadata(&log).map_or(0, |m| m.len());
    let (from, begun) = (size(), Instant::now());
    let mut seen = from;
    while begun.elapsed() < Duration::from_secs(10) && !run.has_ended() {
        if size() != seen {
            seen = size();
            if ends(from) {
                return;
            }
        }
        pass(Duration::from_micros(100));
    }
}

fn assert_alive(run: &mut Running, world: &World, kill: u64) {
    if run.has_ended() {
        panic!("kill {kill}: a restart was refused: {}\n{:?}", run.said(), world.status());
    }
}

/// `status.json` is whole whenever it is there.
fn no_half_file(world: &World) {
    if let Ok(text) = fs::read(world.state().join("status.json")) {
        serde_json::from_slice::<Value>(&text).unwrap();
    }
}

/// Compares the journal with what really happened, and gives the number of iterations.
fn compare(world: &World) -> u64 {
    let events = world.events();
    let seqs: Vec<_> = events.iter().filter(|e| e.kind() != "snapshot").map(Event::seq).collect();
    assert!(seqs.windows(2).all(|w| w[0] < w[1]), "no event twice");
    let finished: Vec<_> = kind(&events, "iteration_finished").map(Event::iteration).collect();
    let last = finished.len() as u64;
    assert_eq!(finished, (1..=last).collect::<Vec<_>>(), "each iteration finishes once, none is skipped");
    assert_eq!(kind(&events, "session_started").count(), 1, "it is one session");

    let log = world.agent_log();
    assert!(log.violations.is_empty(), "two agents in one folder: {:?}", log.violations);
    let place = |c: &AgentCall| (c.iteration, c.attempt);
    assert!(
        log.calls.windows(2).all(|w| place(&w[0]) < place(&w[1])),
        "each call has a number of its own, ascending"
    );
    for n in 1..=last {
        let ended = log.calls.iter().any(|c| c.iteration == n && c.end_ns.is_some());
        assert!(ended, "iteration {n} finished, but no agent of it came to its end");
    }
    deliveries(&events, &log.calls);
    last
}

fn kind<'a>(events: &'a [Event], kind: &'a str) -> impl Iterator<Item = &'a Event> {
    events.iter().filter(move |e| e.kind() == kind)
}

/// Each message is delivered once; its text is in the prompt that delivered it and in no later one; and what it
/// was in before had been cut.
fn deliveries(events: &[Event], calls: &[AgentCall]) {
    let mut ids = BTreeMap::new();
    for queued in kind(events, "message_queued") {
        let mark =
            queued.text("text").split_whitespace().find(|w| w.starts_with("mark-")).unwrap_or_default();
        let before = ids.insert(mark.to_owned(), queued.text("id").to_owned());
        assert_eq!(before, None, "{mark} was taken twice");
    }
    assert_eq!(ids.len(), MESSAGES, "every message that `say` accepted was taken");
    let outcomes: BTreeMap<_, _> =
        kind(events, "attempt_finished").map(|e| ((e.iteration(), e.attempt()), e.text("outcome"))).collect();
    for (mark, id) in &ids {
        let delivered: Vec<_> = kind(events, "message_delivered").filter(|e| e.text("id") == id).collect();
        assert_eq!(delivered.len(), 1, "{mark} is delivered once: {delivered:?}");
        // The attempt whose end delivered it was committed just before.
        let ended = kind(events, "attempt_finished").filter(|e| e.seq() < delivered[0].seq()).last().unwrap();
        let at = (ended.iteration(), ended.attempt());
        assert_eq!(at.0, delivered[0].iteration());
        let held: Vec<_> =
            calls.iter().filter(|c| c.marks.contains(mark)).map(|c| (c.iteration, c.attempt)).collect();
        assert_eq!(
            held.last(),
            Some(&at),
            "{mark} is in no later prompt than the one that delivered it: {held:?}"
        );
        for cut in &held[..held.len() - 1] {
            assert_eq!(
                outcomes.get(cut),
                Some(&"cancelled"),
                "{mark} was repeated after an attempt that was not cut"
            );
        }
    }
}

/// Sends what is left, lets everything arrive, and stops the session.
fn settle(world: &World, mut run: Running, args: &[std::ffi::OsString]) {
    eventually("all messages are delivered", || {
        if run.has_ended() {
            run = world.start(args);
        }
        (world.events_of("message_delivered").len() >= MESSAGES).then_some(())
    });
    world.run(words("stop")).ok();
    run.wait().exits(3);
    world.is_quiet();
}

/// Kills the supervisor `kills` times in one session; `strike` does it.
fn storm(kills: u64, strike: impl Fn(&World, &mut Running)) -> u64 {
    let mut dice = dice();
    let world = stormy_world();
    let args = world.run_agent(WORK, "");
    let mut run = world.start(&args);
    let mut sent = 0;
    let mut saying = Vec::new();
    for kill in 0..kills {
        if sent < MESSAGES && kill >= kills * sent as u64 / MESSAGES as u64 {
            saying.push(world.start(["say", &format!("mark-{sent:02} please")]));
            sent += 1;
        }
        // A third right after an agent's end, a third around the whole boundary that follows, a third anywhere.
        let after_end = [Some(3_000), Some(60_000), None][(kill % 3) as usize];
        if after_end.is_some() {
            wait_for_an_end(&world, &mut run);
        }
        pass(Duration::from_micros(dice.u64(0..after_end.unwrap_or(150_000))));
        assert_alive(&mut run, &world, kill);
        strike(&world, &mut run);
        no_half_file(&world);
        if kill % 20 == 7 {
            nothing_outlives(&world, kill);
        }
        run = world.start(&args);
    }
    for say in saying {
        say.wait().ok();
    }
    while sent < MESSAGES {
        world.run(["say", &format!("mark-{sent:02} please")]).ok();
        sent += 1;
    }
    settle(&world, run, &args);
    compare(&world)
}

/// Two seconds after the supervisor's death no process of a call lives.
fn nothing_outlives(world: &World, kill: u64) {
    let killed = Instant::now();
    let agents = || world.processes().into_iter().filter(|p| p.program == fake_agent()).collect::<Vec<_>>();
    while !agents().is_empty() {
        assert!(
            killed.elapsed() < Duration::from_secs(2),
            "kill {kill}: still there after 2 s: {:?}",
            agents()
        );
        pass(Duration::from_millis(5));
    }
}

#[test]
fn storm_of_sigkills() {
    let kills = setting("LONGHAUL_STORM_KILLS", 200);
    let iterations = storm(kills, |_, run| run.kill_9());
    println!("{kills} kills, {iterations} iterations");
    assert!(iterations >= kills / 8, "the storm must not keep it from getting on: {iterations} iterations");
}

#[test]
fn storm_with_the_keeper_killed_first() {
    let kills = setting("LONGHAUL_STORM_KILLS", 200) / 8;
    storm(kills, |world, run| {
        for keeper in world.processes().iter().filter(|p| p.program == longhaul() && p.parent == run.pid()) {
            keeper.kill();
        }
        run.kill_9();
    });
}

#[test]
fn storm_a_killed_supervisor_takes_stubborn_agents_along() {
    let world = World::new();
    let mut run =
        world.start(world.run_agent("ignore=term,int,hup stray=setsid stray=double stray=plain hang", ""));
    let log = world.agent_reaches("the agent and its strays", |log| log.strays.len() == 3);
    assert_eq!(log.calls.len(), 1);
    run.kill_9();
    nothing_outlives(&world, 0);
    world.is_quiet();
}

#[test]
fn storm_ctrl_c_in_a_terminal() {
    let world = World::new();
    for round in 1..=3 {
        let mut args = vec!["run".into(), "--agent".into()];
        args.push(world.agent("ignore=int stray=setsid stray=double hang").into());
        let args: Vec<std::ffi::OsString> = args;
        let mut terminal = Terminal::start(&world.command(args));
        world.agent_reaches("the agent and its strays", |log| {
            log.calls.len() == round && log.strays.len() == 2 * round
        });
        // The terminal sends INT to its whole foreground group, as it does for a user.
        terminal.types(b"\x03");
        let status = terminal.wait();
        assert_eq!(status.code(), Some(3), "{}", terminal.shown());
        nothing_outlives(&world, 0);
        let status = world.status();
        assert_eq!(
            (&status["session"]["state"], &status["session"]["reason"]),
            (&"stopped".into(), &"interrupted".into())
        );
        assert_eq!(status["session"]["iteration"], 1, "the cut iteration is still to be done");
        world.is_quiet();
    }
    let ended = world.run(world.run_agent("say=ok", "--max-iterations 1")).ok();
    assert_eq!(ended.event("iteration_finished").iteration(), 1);
    assert!(world.agent_log().violations.is_empty());
}
