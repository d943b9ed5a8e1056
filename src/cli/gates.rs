//! `longhaul gates`: the checks that a claim of completion must pass, with their last results; or run now.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::args::GatesArgs;
use super::error::{CliError, ErrorKind, ExitCode};
use super::format;
use super::output::{Output, Style, plain};
use super::project::Project;
use super::render;
use crate::actors::gates::gate_spec;
use crate::config::{Config, Gate, GateCommand};
use crate::domain::outcome::Exit;
use crate::domain::session::GateReport;
use crate::domain::state::{GateRecord, GateResult};
use crate::intake::gates::gates_of;
use crate::process::{GateLimits, Keeper, run_gate};
use crate::store;

/// Lines of a failed gate's output that are shown; the end is where failures are summed up.
const SHOWN_LINES: usize = 20;

/// Runs the command.
///
/// # Errors
/// The settings or the store cannot be read; with `--run` also: a session runs here, or no process can be started.
pub fn gates(arguments: GatesArgs, project: &Project, output: &mut Output) -> Result<ExitCode, CliError> {
    let config = crate::config::load(&project.sources())?.config;
    let gates = gates_of(&config.gates, &project.paths.root);
    if gates.is_empty() {
        output.notice(
            "there is no gate: a claim of completion counts unverified. `[[gates.commands]]` in \
             .longhaul/config.toml sets one",
        );
    }
    if arguments.run {
        run(&gates, &config, arguments.json, project, output)
    } else {
        list(&gates, &config, arguments.json, project, output)
    }
}

fn list(
    gates: &[Gate],
    config: &Config,
    as_json: bool,
    project: &Project,
    output: &mut Output,
) -> Result<ExitCode, CliError> {
    let found = store::inspect(&project.store_paths()).map_err(CliError::failed_to)?;
    if let Some(problem) = &found.problem {
        output.warn(format!("the store is damaged, results may be old: {problem}"));
    }
    let last = |gate: &Gate| found.state.gates.get(&gate.name);
    if as_json {
        let all: Vec<Value> = gates.iter().map(|gate| as_value(gate, config, last(gate))).collect();
        output.json(&all)?;
        return Ok(ExitCode::Done);
    }
    let width = gates.iter().map(|gate| gate.name.chars().count()).max().unwrap_or(0);
    let now = project.clock.now();
    for gate in gates {
        let (style, result) = match last(gate) {
            Some(record) => (style(record.result), result_words(record, now)),
            None => (Style::Dim, "not run in this session".to_owned()),
        };
        let name = format!("{:width$}", plain(&gate.name));
        let command = format::one_line(&command_line(&gate.command), 100);
        let found = if config.gates.commands.is_empty() { ", found in the project" } else { "" };
        let line = format!(
            "{}  {}  {}",
            output.styled(Style::Bold, &name),
            output.styled(style, &result),
            output.styled(
                Style::Dim,
                &format!("({command}, at most {}{found})", format::duration(gate.timeout))
            ),
        );
        output.line(line)?;
        if let Some(record) = last(gate).filter(|record| record.result != GateResult::Passed) {
            show_tail(&record.tail, output)?;
        }
    }
    Ok(ExitCode::Done)
}

fn run(
    gates: &[Gate],
    config: &Config,
    as_json: bool,
    project: &Project,
    output: &mut Output,
) -> Result<ExitCode, CliError> {
    if let Some(holder) = project.holder() {
        let message = format!(
            "a session runs here (process {}): its agent and these gates would disturb each other",
            holder.pid
        );
        return Err(CliError::new(ErrorKind::AlreadyRunning, message)
            .hinted("`longhaul gates` shows the last results")
            .hinted("`longhaul stop`, then `longhaul gates --run`, then `longhaul run` goes on"));
    }
    let keeper = Keeper::start(None).map_err(CliError::failed_to)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::failed_to(format_args!("start the runtime: {error}")))?;
    let (mut good, mut all) = (true, Vec::new());
    for (at, gate) in gates.iter().enumerate() {
        output.progress(format!("gate {} ({} of {}) runs", gate.name, at + 1, gates.len()));
        let report = runtime.block_on(run_one(&keeper, gate, config.stop.grace, project));
        good &= report.result == GateResult::Passed;
        let record = record(&report, project.clock.now());
        if as_json {
            all.push(as_value(gate, config, Some(&record)));
            continue;
        }
        let time = format::short_duration(report.duration_ms);
        let result = format!("{}{}", render::gate(report.result), exit_words(report.exit));
        let line = format!("{}: {}, {time}", plain(&gate.name), output.styled(style(report.result), &result));
        output.line(line)?;
        if report.result != GateResult::Passed {
            show_tail(&report.tail, output)?;
        }
    }
    if as_json {
        output.json(&all)?;
    }
    Ok(if good { ExitCode::Done } else { ExitCode::Failed })
}

async fn run_one(keeper: &Keeper, gate: &Gate, grace: Duration, project: &Project) -> GateReport {
    let spec = gate_spec(gate, project.env(), &project.paths.root);
    let limits = GateLimits { time: gate.timeout, grace };
    // Ctrl-C ends this program, and the keeper then ends the gate.
    let (_end, ending) = mpsc::channel(1);
    run_gate(keeper, &gate.name, &spec, limits, ending).await
}

fn record(report: &GateReport, time: Timestamp) -> GateRecord {
    let GateReport { result, exit, duration_ms, tail, .. } = report.clone();
    GateRecord { result, tree: None, exit, tail, time, duration_ms }
}

// === words ===

fn as_value(gate: &Gate, config: &Config, last: Option<&GateRecord>) -> Value {
    json!({
        "name": gate.name,
        "command": command_line(&gate.command),
        "timeout_ms": u64::try_from(gate.timeout.as_millis()).unwrap_or(u64::MAX),
        "detected": config.gates.commands.is_empty(),
        "result": last.map(|record| record.result),
        "time": last.map(|record| record.time),
        "duration_ms": last.map(|record| record.duration_ms),
        "exit": last.and_then(|record| record.exit),
        "tree": last.and_then(|record| record.tree.as_deref()),
        "tail": last.map(|record| record.tail.as_str()),
    })
}

fn command_line(command: &GateCommand) -> String {
    match command {
        GateCommand::Shell(line) => line.clone(),
        // A word with NUL cannot be quoted, nor be given to a program.
        GateCommand::Argv(words) => {
            shlex::try_join(words.iter().map(String::as_str)).unwrap_or_else(|_| words.join(" "))
        }
    }
}

fn style(result: GateResult) -> Style {
    match result {
        GateResult::Passed => Style::Good,
        GateResult::Failed | GateResult::TimedOut | GateResult::CouldNotRun => Style::Bad,
        GateResult::Cancelled => Style::Warn,
    }
}

fn result_words(record: &GateRecord, now: Timestamp) -> String {
    let exit = if record.result == GateResult::Passed { String::new() } else { exit_words(record.exit) };
    format!("{}{exit} {} ago", render::gate(record.result), format::between(record.time, now))
}

fn exit_words(exit: Option<Exit>) -> String {
    match exit {
        Some(Exit::Code(0)) | None => String::new(),
        Some(Exit::Code(code)) => format!(" (exit code {code})"),
        Some(Exit::Signal(signal)) => format!(" (signal {signal})"),
    }
}

fn show_tail(tail: &str, output: &mut Output) -> Result<(), CliError> {
    let lines: Vec<&str> = tail.trim_end().lines().collect();
    let left_out = lines.len().saturating_sub(SHOWN_LINES);
    if left_out > 0 {
        output.line(format!("    [{} above]", format::count(left_out as u64, "line")))?;
    }
    for line in lines.iter().skip(left_out) {
        output.line(format!("    {}", plain(line.trim_end())))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{EventId, IdSource};

    const SETTINGS: &str = "[[gates.commands]]\nname = 'unit'\nrun = 'cargo test \"a b\"'\ntimeout = '90s'\n\
                            [[gates.commands]]\nname = 'all'\nshell = 'make && ./check'\n";

    fn run(project: &Project, json: bool) -> (Result<ExitCode, CliError>, String, String) {
        let (mut output, captured) = Output::captured();
        let code = gates(GatesArgs { run: false, json }, project, &mut output);
        (code, captured.out(), captured.err())
    }

    #[test]
    fn last_results_are_shown_with_the_end_of_what_failed() {
        use crate::domain::event::{Body, Draft};
        use crate::store::{Db, Durability, OpenOptions};
        let dir = tempfile::tempdir().unwrap();
        let project = Project::at(dir.path());
        std::fs::write(&project.paths.config, SETTINGS).unwrap();
        let now = project.clock.now();
        let options = OpenOptions { durability: Durability::Process, fresh: false, now };
        let mut db = Db::open(&project.store_paths(), options).unwrap().db;
        let tail: String = (0..30).map(|n| format!("line {n}\n")).collect();
        let body = Body::GateFinished {
            name: "unit".into(),
            result: GateResult::Failed,
            tree: None,
            exit: Some(Exit::Code(101)),
            duration_ms: 1200,
            tail,
            reused: false,
        };
        let id = EventId(IdSource::new(Some(1)).next(now));
        let draft = Draft {
            id,
            time: now,
            session: None,
            lane: None,
            iteration: None,
            attempt: None,
            provider: None,
            body,
        };
        db.commit(vec![draft]).unwrap();
        drop(db);

        let (code, out, err) = run(&project, false);
        assert_eq!((code, err.as_str()), (Ok(ExitCode::Done), ""));
        let lines: Vec<&str> = out.lines().collect();
        assert!(lines[0].starts_with("unit  failed (exit code 101) "), "{out}");
        assert!(lines[0].ends_with("(cargo test 'a b', at most 1m 30s)"), "{out}");
        assert_eq!((lines[1], lines[2]), ("    [10 lines above]", "    line 10"));
        assert_eq!(*lines.last().unwrap(), "all   not run in this session  (make && ./check, at most 5m)");
        let list: Value = serde_json::from_str(&run(&project, true).1).unwrap();
        assert_eq!(
            (&list[0]["result"], &list[0]["exit"]["code"], &list[1]["result"]),
            (&json!("failed"), &json!(101), &json!(null))
        );
    }

    #[test]
    fn without_gates_it_says_what_that_means() {
        let dir = tempfile::tempdir().unwrap();
        let project = Project::at(dir.path());
        let (code, out, err) = run(&project, false);
        assert_eq!((code, out.as_str()), (Ok(ExitCode::Done), ""));
        assert!(err.starts_with("there is no gate: "), "{err}");
        std::fs::write(dir.path().join("go.mod"), "").unwrap();
        assert!(run(&project, false).1.contains("(go test ./..., at most 5m, found in the project)"));
    }
}
