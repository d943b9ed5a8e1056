//! Memory and CPU of one session while it waits and while it runs, and what 1 GB of agent output costs.
//!
//! `cargo bench --bench memory`. `LONGHAUL_BENCH_OUTPUT_MB` (1024) sets the size of the output.
#![expect(clippy::expect_used, reason = "a bench that cannot measure says so by panicking")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use testkit::{Report, Running, World, cpu_ns, longhaul, pass, status_kb, words};

/// The line that the fake agent repeats for `ndjson`.
const CLAUDE_TEXT: &str = include_str!("../tests/helpers/claude_text.jsonl");
/// How long the CPU of a waiting session is watched.
const WATCHED: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let mut report = Report::new("One session");
    running(&mut report);
    waiting(&mut report, true);
    waiting(&mut report, false);
    output(&mut report);
    report.verdict()
}

/// Resident memory of the supervisor after 50 iterations, in a git repository.
fn running(report: &mut Report) {
    let world = World::with_git();
    let rules = "51: hang\n*: work=5 change=work.txt say=ok";
    let mut run = world.start(world.run_script(rules, ""));
    run.event_where("iteration 51", |e| e.kind() == "attempt_started" && e.iteration() == 51);
    report.at_most("VmRSS while it runs, after 50 iterations", resident_mb(&run), 13.0, "MB");
    report.at_most("PSS of its keepers", keepers_mb(&world, &run), 3.0, "MB");
    world.run(words("stop --now")).ok();
    let _ = run.wait();
}

/// Resident memory and CPU of a supervisor that waits for hours.
fn waiting(report: &mut Report, notices: bool) {
    let world = World::new();
    world.config("backoff.base = \"20h\"\nbackoff.cap = \"20h\"\n");
    let command = world.command(world.run_agent("err=broken exit=9", ""));
    let mut run = Running::spawn(if notices { command } else { world.without_inotify(&command) });
    run.event("wait_started");
    // What the start left to do is done first.
    pass(Duration::from_secs(2));
    let ours = || -> Vec<i32> {
        world.processes().iter().filter(|p| p.program == longhaul()).map(|p| p.pid).collect()
    };
    let used = || ours().into_iter().map(cpu_ns).sum::<u64>() as f64;
    let (before, begun) = (used(), Instant::now());
    pass(WATCHED);
    let share = (used() - before) / begun.elapsed().as_nanos() as f64 * 100.0;
    let how = if notices { "" } else { ", polling" };
    report.at_most(&format!("VmRSS while it waits{how}"), resident_mb(&run), 13.0, "MB");
    report.at_most(
        &format!("share of a core while it waits{how}"),
        share,
        if notices { 0.1 } else { 0.25 },
        "%",
    );
    run.signal(rustix::process::Signal::INT);
    let _ = run.wait();
}

/// A flood of Claude Code's stream-json lines through decoder and log, beside bare `serde_json`.
fn output(report: &mut Report) {
    let megabytes: u64 =
        std::env::var("LONGHAUL_BENCH_OUTPUT_MB").ok().and_then(|v| v.parse().ok()).unwrap_or(1024);
    let bytes = megabytes << 20;
    let line = CLAUDE_TEXT.as_bytes();
    let lines = bytes / line.len() as u64;
    let begun = Instant::now();
    for _ in 0..lines {
        let value: serde_json::Value =
            serde_json::from_slice(std::hint::black_box(line)).expect("a line of JSON");
        std::hint::black_box(value);
    }
    let bare = megabytes as f64 / begun.elapsed().as_secs_f64();

    let mut world = World::new();
    world.impersonate(
        "claude",
        "2.1.332 (Claude Code)",
        &format!("1: ndjson={} result=ok\n*: hang", lines * line.len() as u64),
    );
    let mut run = world.start(words("run --json --provider claude"));
    let ended = run.event("attempt_finished");
    assert_eq!(ended.text("outcome"), "completed", "{ended:?}");
    let seconds = ended.data("duration_ms").as_f64().unwrap_or(f64::INFINITY) / 1000.0;
    let peak = status_kb(run.pid(), "VmHWM").unwrap_or_default() as f64 / 1024.0;
    println!("\n{megabytes} MB of agent output");
    report.shows("bare serde_json", bare, "MB/s");
    report.at_least("through decoder and log", megabytes as f64 / seconds, bare / 2.0, "MB/s");
    report.at_most("highest VmRSS", peak, 40.0, "MB");
    run.signal(rustix::process::Signal::INT);
    let _ = run.wait();
}

fn resident_mb(run: &Running) -> f64 {
    status_kb(run.pid(), "VmRSS").unwrap_or_default() as f64 / 1024.0
}

/// Proportional memory of the program's other processes.
fn keepers_mb(world: &World, run: &Running) -> f64 {
    let pss = |pid: i32| -> u64 {
        let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        let line = rollup.lines().find(|l| l.starts_with("Pss:")).unwrap_or_default();
        line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or_default()
    };
    let keepers = world.processes().into_iter().filter(|p| p.program == longhaul() && p.pid != run.pid());
    keepers.map(|k| pss(k.pid)).sum::<u64>() as f64 / 1024.0
}
