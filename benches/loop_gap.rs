//! How much time and CPU Longhaul adds to each call, beside a plain bash loop that runs the same agent: one that
//! hands over a prompt, keeps a log and knows when to end.
//!
//! `cargo bench --bench loop_gap`. The contestants take turns within one run, since absolute times drift on
//! shared machines; targets are multiples of the bash loop's own figures. The agent works for 50 ms and changes
//! a file. `LONGHAUL_BENCH_CALLS` (200) calls are measured.
#![expect(clippy::expect_used, reason = "a bench that cannot measure says so by panicking")]

use std::fs::File;
use std::io::Write;
use std::process::{Command, ExitCode};
use std::time::Instant;

use testkit::{
    AgentCall, AgentLog, CpuMeter, Report, Running, World, fake_agent, median, ms, percentile, wall_ns, words,
};

/// How many turns each contestant gets.
const TURNS: usize = 4;
/// Calls of the short run that is subtracted, so that starting and ending do not count as iterations.
const SHORT: usize = 2;
/// Starts that are measured.
const STARTS: usize = 30;

/// One contestant: the world it runs in, and what was measured there.
struct Contestant {
    world: World,
    bash: bool,
    /// Milliseconds between calls.
    gaps: Vec<f64>,
    /// Milliseconds of CPU an iteration, one figure a turn.
    cpu: Vec<f64>,
}

fn main() -> ExitCode {
    let calls = std::env::var("LONGHAUL_BENCH_CALLS").ok().and_then(|v| v.parse().ok()).unwrap_or(200);
    let per_turn = (calls / TURNS).max(SHORT) + 1;
    let mut bash = Contestant::new(World::new(), "", true);
    let mut rivals = [
        Contestant::new(World::new(), "durability = \"process\"\n", false),
        Contestant::new(World::new(), "", false),
        Contestant::new(repository(), "durability = \"process\"\n", false),
        Contestant::new(repository(), "", false),
    ];
    let mut syncs = Vec::new();
    for turn in 0..TURNS {
        bash.turn(turn, per_turn);
        rivals.iter_mut().for_each(|r| r.turn(turn, per_turn));
        syncs.extend(fdatasync_appends(bash.world.outside(), 50));
    }

    let title = format!("Gap between one call's exit and the next call's start, p50 of {}", bash.gaps.len());
    let mut report = Report::new(&title);
    let (base, sync) = (median(&bash.gaps), median(&syncs));
    report.shows("plain bash loop", base, "ms");
    report.shows("fdatasync of a 4 KiB append", sync, "ms");
    let limits = [0.5 * base, 0.5 * base + sync, 0.8 * base, base];
    let names = [
        "no git, durability process",
        "no git, durability power",
        "git, 60 files, process",
        "git, 60 files, power",
    ];
    for ((rival, name), limit) in rivals.iter().zip(names).zip(limits) {
        report.at_most(name, median(&rival.gaps), limit, "ms");
        report.shows(
            &format!("  its p99; times the bash loop: {:.2}", median(&rival.gaps) / base),
            percentile(&rival.gaps, 99.0),
            "ms",
        );
    }
    if !bash.cpu.is_empty() {
        println!("\nCPU of one iteration without the agent's own");
        let base = median(&bash.cpu);
        report.shows("plain bash loop", base, "ms");
        for ((rival, name), limit) in rivals.iter().zip(names).zip([Some(0.5), None, Some(0.9), None]) {
            match limit {
                Some(times) => report.at_most(name, median(&rival.cpu), times * base, "ms"),
                None => report.shows(name, median(&rival.cpu), "ms"),
            }
        }
    }
    starts(&mut report);
    report.verdict()
}

// === impl Contestant ===

impl Contestant {
    fn new(world: World, config: &str, bash: bool) -> Contestant {
        world.config(&format!("{config}stagnation.pause = \"none\"\n"));
        world.write("PROMPT.md", "# Goal\n\nMake the tests pass.\n");
        Contestant { world, bash, gaps: Vec::new(), cpu: Vec::new() }
    }

    /// A long and a short run: gaps from the first, CPU from the difference.
    fn turn(&mut self, turn: usize, calls: usize) {
        let (log, long) = self.run(&format!("long{turn}"), calls);
        let (_, short) = self.run(&format!("short{turn}"), SHORT);
        self.gaps.extend(log.calls.windows(2).map(gap_ms));
        self.cpu.extend(long.zip(short).map(|(long, short)| (long - short) / (calls - SHORT) as f64));
    }

    /// Makes `calls` calls, and gives their log and the CPU time that was not the agents' own, in milliseconds.
    fn run(&self, name: &str, calls: usize) -> (AgentLog, Option<f64>) {
        let log = self.world.outside().join(format!("{name}.log"));
        let agent =
            format!("{} --log {} work=50 change=work.txt say=ok", fake_agent().display(), log.display());
        let command = if self.bash {
            bash_loop(&self.world, &agent, calls)
        } else {
            let mut args = words(&format!("run PROMPT.md --fresh --json --max-iterations {calls}"));
            args.extend(["--agent".into(), agent.into()]);
            self.world.command(args)
        };
        let meter = CpuMeter::new();
        let command = match &meter {
            Some(meter) => meter.metered(&command),
            None => command,
        };
        Running::spawn(command).wait().ok();
        self.world.is_quiet();
        let log = AgentLog::read(&log);
        assert_eq!(log.calls.len(), calls, "each call was made once");
        let own = log.calls.iter().map(|c| c.cpu_ns).sum::<u64>() as f64 / 1e6;
        (log, meter.map(|m| m.used_ms() - own))
    }
}

/// The plain bash loop: it hands over the prompt, keeps a log, and ends when the agent says that all is done, when
/// a STOP file is there, or after so many calls.
fn bash_loop(world: &World, agent: &str, calls: usize) -> Command {
    let script = format!(
        "n=0
         while [ ! -e STOP ] && [ $n -lt {calls} ]; do
           cat PROMPT.md | {agent} 2>&1 | tee -a ../agent.out > ../last.txt
           grep -qx LONGHAUL_DONE ../last.txt && break
           n=$((n + 1))
         done"
    );
    let mut bash = world.program("bash");
    bash.args(["-c", &script]);
    bash
}

fn gap_ms(pair: &[AgentCall]) -> f64 {
    let end = pair[0].end_ns.unwrap_or(pair[1].start_ns);
    pair[1].start_ns.saturating_sub(end) as f64 / 1e6
}

/// A git repository of 60 files.
fn repository() -> World {
    let world = World::with_git();
    for n in 0..60 {
        world.write(&format!("src/part{}/file{n}.rs", n % 6), format!("fn part{n}() {{}}\n").repeat(40));
    }
    world.git("add -A");
    world.git("commit -q -m files");
    world
}

/// What one durable append costs here: 4 KiB at the end of a file, in milliseconds.
fn fdatasync_appends(folder: &std::path::Path, count: usize) -> Vec<f64> {
    let path = folder.join("append");
    let mut file = File::options().create(true).append(true).open(path).expect("a file to append to");
    let one = |_| {
        let begun = Instant::now();
        file.write_all(&[7; 4096]).and_then(|()| file.sync_data()).expect("an append");
        ms(begun.elapsed())
    };
    (0..count).map(one).collect()
}

/// From the start of the program to the start of the first call, and of `--version`.
fn starts(report: &mut Report) {
    println!("\nStart to first call, p50 of {STARTS}, no git");
    let world = World::new();
    world.write("PROMPT.md", "# Goal\n\nMake the tests pass.\n");
    let agent = world.agent("say=ok");
    let bash: Vec<f64> = (0..STARTS).map(|_| first_call(&world, bash_loop(&world, &agent, 1))).collect();
    let fresh: Vec<f64> = (0..STARTS)
        .map(|_| {
            let world = World::new();
            world.write("PROMPT.md", "# Goal\n\nMake the tests pass.\n");
            let mut args = words("run PROMPT.md --json --max-iterations 1");
            args.extend(["--agent".into(), world.agent("say=ok").into()]);
            first_call(&world, world.command(args))
        })
        .collect();
    let mut args = words("run PROMPT.md --json");
    args.extend(["--agent".into(), world.agent("say=ok hang").into()]);
    let resumed: Vec<f64> = (0..=STARTS).map(|_| first_call(&world, world.command(&args))).skip(1).collect();
    let base = median(&bash);
    report.shows("plain bash loop", base, "ms");
    report.at_most("fresh project", median(&fresh), 2.5 * base, "ms");
    report.at_most("resumed session", median(&resumed), 2.0 * base, "ms");

    let version: Vec<f64> = (0..STARTS)
        .map(|_| {
            let begun = Instant::now();
            let status = world.command(["--version"]).output().expect("longhaul runs").status;
            assert!(status.success());
            ms(begun.elapsed())
        })
        .collect();
    report.at_most("--version, start to exit", median(&version), 3.0, "ms");
}

/// Milliseconds from the start of `command` to the start of the agent; then ends it with Ctrl-C's signal.
fn first_call(world: &World, command: Command) -> f64 {
    let before = world.agent_log().calls.len();
    let begun = wall_ns();
    let mut run = Running::spawn(command);
    let log = world.agent_reaches("the first call", |log| log.calls.len() > before);
    if !run.has_ended() {
        run.signal(rustix::process::Signal::INT);
    }
    let _ = run.wait();
    world.is_quiet();
    log.calls[before].start_ns.saturating_sub(begun) as f64 / 1e6
}
