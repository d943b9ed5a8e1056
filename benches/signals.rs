//! How long STOP, PAUSE and a message take to have effect, in every state, with change notices and by polling.
//!
//! `cargo bench --bench signals`. The figure is the event's `time` minus the time at which the file that asked for it
//! was made. `LONGHAUL_BENCH_SAMPLES` (20) samples are taken of each kind.
#![expect(clippy::expect_used, reason = "a bench that cannot measure says so by panicking")]

use std::fs::File;
use std::process::ExitCode;
use std::time::Duration;

use testkit::{Event, Report, Running, World, eventually, median, pass, percentile, wall_ns, words};

/// All have to be obeyed within this, in milliseconds.
const LIMIT: f64 = 200.0;

/// What the session is doing when the signal comes.
#[derive(Clone, Copy, PartialEq)]
enum State {
    Calling,
    Gate,
    Waiting,
    Paused,
    Starting,
}

/// What a person asks for.
#[derive(Clone, Copy, PartialEq)]
enum Signal {
    Stop,
    Pause,
    Message,
}

fn main() -> ExitCode {
    let samples = std::env::var("LONGHAUL_BENCH_SAMPLES").ok().and_then(|v| v.parse().ok()).unwrap_or(20);
    let mut report = Report::new("From the signal file to its effect");
    for notices in [true, false] {
        println!(
            "{}",
            if notices {
                "\nwith change notices (inotify)"
            } else {
                "\nby polling (no inotify instance left)"
            }
        );
        for state in [State::Calling, State::Gate, State::Waiting, State::Paused, State::Starting] {
            for signal in [Signal::Stop, Signal::Pause, Signal::Message] {
                if state == State::Paused && signal == Signal::Pause {
                    continue;
                }
                let taken: Vec<f64> = (0..samples).map(|n| sample(state, signal, notices, n)).collect();
                let name = format!("{} {}", signal.name(), state.name());
                report.shows(&format!("{name}, p50"), median(&taken), "ms");
                report.at_most(&format!("{name}, p99"), percentile(&taken, 99.0), LIMIT, "ms");
            }
        }
    }
    report.verdict()
}

// === impl State ===

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Calling => "while an agent works",
            State::Gate => "in a hung gate",
            State::Waiting => "in a wait of hours",
            State::Paused => "while paused",
            State::Starting => "at start, spec of 5 MB",
        }
    }

    /// A world in which a run comes to this state and stays there.
    fn world(self) -> (World, String) {
        let world = World::new();
        let agent = match self {
            State::Calling => "hang",
            State::Gate => {
                world.config("[[gates.commands]]\nname = \"hung\"\nrun = \"sleep 1000\"\n");
                "change=work.txt done"
            }
            State::Waiting => {
                world.config("backoff.base = \"20h\"\nbackoff.cap = \"20h\"\n");
                "err=broken exit=9"
            }
            State::Paused => {
                std::fs::create_dir_all(world.state())
                    .and_then(|()| File::create(world.state().join("PAUSE")))
                    .expect("a pause");
                "say=ok"
            }
            State::Starting => {
                world.write(
                    "SPEC.md",
                    "## A part\n\nDo *this* and that with ümläuts.\n\n- one\n- two\n\n".repeat(80_000),
                );
                "hang"
            }
        };
        let agent = world.agent(agent);
        (world, agent)
    }

    fn reached(self, run: &mut Running) {
        match self {
            State::Calling => drop(run.event("attempt_started")),
            State::Gate => drop(run.event("attempt_finished")),
            State::Waiting => drop(run.event("wait_started")),
            State::Paused => {
                drop(run.event_where("paused", |e| ["session_paused", "session_started"].contains(&e.kind())))
            }
            State::Starting => {}
        }
    }
}

// === impl Signal ===

impl Signal {
    fn name(self) -> &'static str {
        match self {
            Signal::Stop => "STOP",
            Signal::Pause => "PAUSE",
            Signal::Message => "message",
        }
    }

    fn file(self) -> &'static str {
        match self {
            Signal::Stop => ".longhaul/STOP",
            Signal::Pause => ".longhaul/PAUSE",
            Signal::Message => ".longhaul/HUMAN_INPUT.md",
        }
    }

    fn shows_in(self, event: &Event) -> bool {
        match self {
            Signal::Stop => matches!(event.kind(), "session_stopping" | "session_finished"),
            Signal::Pause => event.kind() == "session_paused",
            Signal::Message => event.kind() == "message_queued",
        }
    }
}

/// One run, one signal: milliseconds to its effect.
fn sample(state: State, signal: Signal, notices: bool, n: u64) -> f64 {
    let (world, agent) = state.world();
    let mut args = words("run --json");
    if state == State::Starting {
        args.push("SPEC.md".into());
    }
    args.extend(["--agent".into(), agent.into()]);
    let command = world.command(&args);
    let mut run = Running::spawn(if notices { command } else { world.without_inotify(&command) });
    state.reached(&mut run);
    // At another moment each time, so that no phase of a poll or of the start is always or never hit.
    pass(Duration::from_millis(n * 7 % 150));
    if state == State::Starting {
        eventually("the folder is there", || world.state().is_dir().then_some(()));
    }
    let path = world.project().join(signal.file());
    let message = world.outside().join("message");
    std::fs::write(&message, "look at this\n").expect("a message");
    // Read before the file is there, so the figure errs on the side of being too long: its ctime may be gone with
    // it before it can be read.
    let asked = wall_ns();
    // A message is ready as soon as its name is there; an empty one is none.
    if signal == Signal::Message {
        std::fs::rename(&message, &path).expect("a message");
    } else {
        File::create(&path).expect("a signal file");
    }
    let effect = run.event_where(signal.name(), |e| signal.shows_in(e));
    run.signal(rustix::process::Signal::INT);
    let _ = run.wait();
    (effect.time_ns() - asked.cast_signed()) as f64 / 1e6
}
