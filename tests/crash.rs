//! Actors that panic in the middle of a call, in the real program: the same process goes on.
#![expect(clippy::expect_used, reason = "a test says what it expects")]

use std::fs;
use std::path::Path;

use testkit::{Event, Running, World, eventually, status_kb};

/// A run of four iterations, held in the middle of the second: in its call, or in its gate.
struct Held {
    world: World,
    run: Running,
    pid: i32,
}

impl Held {
    fn in_the_call() -> Held {
        let world = World::with_git();
        let go = world.flag("go");
        let rules =
            format!("1: change=a.txt say=ok\n2: change=b.txt until={go} say=ok\n*: change=c.txt say=ok");
        let held = Held::start(world, &rules);
        held.world.agent_reaches("the second call", |log| log.calls.len() == 2);
        held
    }

    fn in_the_gate() -> Held {
        let world = World::with_git();
        let (go, begun) = (world.flag("go"), world.flag("begun"));
        world.config(&format!(
            "[[gates.commands]]\nname = \"check\"\nshell = \"test ! -e b.txt || {{ touch {begun}; while ! test -e {go}; do sleep 0.02; done; }}\"\n"
        ));
        let held =
            Held::start(world, "1: change=a.txt say=ok\n2: change=b.txt say=ok\n*: change=c.txt say=ok");
        eventually("the gate runs", || Path::new(&begun).exists().then_some(()));
        held
    }

    fn start(mut world: World, rules: &str) -> Held {
        let file = world.outside().join("crash");
        world.set("LONGHAUL_CRASH_FILE", &file);
        world.set("RUST_BACKTRACE", "0");
        let run = world.start(world.run_script(rules, "--max-iterations 4"));
        let pid = run.pid();
        Held { world, run, pid }
    }

    /// They panic, each on its own turn.
    fn panic(&mut self, actors: &[&str]) {
        let (whole, file) = (self.world.outside().join("crash-whole"), self.world.outside().join("crash"));
        fs::write(&whole, actors.join("\n"))
            .and_then(|()| fs::rename(&whole, &file))
            .expect("the crash file");
        for actor in actors.iter().filter(|actor| **actor != "provider") {
            self.run
                .event_where("the restart", |e| e.kind() == "actor_restarted" && e.text("actor") == *actor);
        }
        eventually("the file is taken", || (!file.exists()).then_some(()));
        assert!(status_kb(self.pid, "VmRSS").is_some(), "the same process goes on");
    }

    /// Lets go, and looks at the whole run. How many attempts each iteration took.
    fn goes_on(self, deaths: usize) -> Vec<u64> {
        let Held { world, run, .. } = self;
        world.raise("go");
        let ended = run.wait().ok();
        let events = ended.events();
        let numbers: Vec<u64> =
            events.iter().filter(|e| e.kind() == "iteration_finished").map(Event::iteration).collect();
        assert_eq!(numbers, [1, 2, 3, 4], "each number once, none skipped");
        let seqs: Vec<u64> = events.iter().map(Event::seq).collect();
        assert_eq!(
            seqs,
            (1..=seqs.len() as u64).collect::<Vec<_>>(),
            "stdout has every event, once, in order"
        );
        let kept: Vec<u64> =
            world.events().iter().filter(|e| e.kind() != "snapshot").map(Event::seq).collect();
        assert_eq!(kept, seqs, "and so has the journal");
        let restarts = events.iter().filter(|e| e.kind() == "actor_restarted").count();
        assert_eq!(restarts, deaths, "one restart for each death");
        let session = &world.status()["session"];
        assert_eq!(session["iteration"], 4);
        assert_eq!(session["retries"], 0, "a death of ours is no failure of the agent");
        let log = world.agent_log();
        assert!(log.violations.is_empty(), "never two agents in one folder: {:?}", log.violations);
        world.is_quiet();
        let attempts = |n| {
            let started = events.iter().filter(|e| e.kind() == "attempt_started" && e.iteration() == n);
            started.map(|e| e.attempt()).max().unwrap_or(0)
        };
        (1..=4).map(attempts).collect()
    }
}

/// Nobody of the call died: it goes on as if nothing had been.
fn the_call_goes_on(actor: &str) {
    let mut held = Held::in_the_call();
    held.panic(&[actor]);
    assert_eq!(held.goes_on(1), [1, 1, 1, 1]);
}

/// The call is lost with its owner, ended, and made again under its number.
fn the_call_is_made_again(actor: &str, deaths: usize) {
    let mut held = Held::in_the_call();
    held.panic(&[actor]);
    assert_eq!(held.goes_on(deaths), [1, 2, 1, 1]);
}

#[test]
fn crash_of_the_store_in_mid_call() {
    the_call_goes_on("store");
}

#[test]
fn crash_of_the_repo_in_mid_call() {
    the_call_goes_on("repo");
}

#[test]
fn crash_of_the_signals_in_mid_call() {
    the_call_goes_on("signals");
}

#[test]
fn crash_of_the_journal_in_mid_call() {
    the_call_goes_on("journal");
}

#[test]
fn crash_of_the_gates_in_mid_call() {
    the_call_goes_on("gates");
}

#[test]
fn crash_of_what_projects_share_in_mid_call() {
    let mut held = Held::in_the_call();
    held.panic(&["accounts", "disk", "watcher", "notifier"]);
    assert_eq!(held.goes_on(4), [1, 1, 1, 1]);
}

#[test]
fn crash_of_the_lane_in_mid_call() {
    the_call_is_made_again("lane", 1);
}

#[test]
fn crash_of_the_session_in_mid_call() {
    the_call_is_made_again("session", 1);
}

#[test]
fn crash_of_the_call_itself() {
    the_call_is_made_again("provider", 0);
}

#[test]
fn crash_of_many_at_once() {
    let mut held = Held::in_the_call();
    held.panic(&["session", "store", "repo", "signals", "journal"]);
    assert_eq!(held.goes_on(5), [1, 2, 1, 1]);
}

#[test]
fn crash_of_the_gates_in_mid_gate() {
    let mut held = Held::in_the_gate();
    held.panic(&["gates"]);
    assert_eq!(held.goes_on(1), [1, 1, 1, 1], "the gate runs again, the agent does not");
}

#[test]
fn crash_of_the_store_in_mid_gate() {
    let mut held = Held::in_the_gate();
    held.panic(&["store"]);
    assert_eq!(held.goes_on(1), [1, 1, 1, 1]);
}

#[test]
fn crash_of_the_session_in_mid_gate() {
    let mut held = Held::in_the_gate();
    held.panic(&["session"]);
    assert_eq!(held.goes_on(1), [1, 2, 1, 1]);
}
