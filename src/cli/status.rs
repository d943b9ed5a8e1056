//! `longhaul status`: what the session of a project is doing. Changes nothing, and works beside a running session,
//! without one, and on a damaged store.

use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;

use super::args::JsonArgs;
use super::error::{CliError, ErrorKind, ExitCode};
use super::format;
use super::output::{Output, Style, plain};
use super::project::Project;
use super::render;
use crate::domain::claim::DONE;
use crate::domain::state::{GateResult, Phase, Reason};
use crate::domain::status::{DiskSpace, Facts, SessionStatus, Status};
use crate::intake::inbox::Waiting;
use crate::intake::space;
use crate::store;

/// What is printed: the projection, and what the signal files say at this moment.
#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    status: Status,
    signals: Signals,
}

/// Signal files that are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Signals {
    pause: bool,
    stop: bool,
}

/// Runs the command.
///
/// # Errors
/// The store cannot be read at all.
pub fn status(arguments: JsonArgs, project: &Project, output: &mut Output) -> Result<ExitCode, CliError> {
    let report = look(project, output)?;
    if arguments.json {
        output.json(&report)?;
    } else {
        for line in words(&report, &project.zone, project.clock.now(), output) {
            output.line(line)?;
        }
    }
    Ok(ExitCode::Done)
}

fn look(project: &Project, output: &mut Output) -> Result<Report, CliError> {
    let paths = &project.paths;
    // Before the state is read.
    let mail = Waiting::list(paths);
    let found = store::inspect(&project.store_paths()).map_err(|error| {
        CliError::new(ErrorKind::Failed, format!("failed to {error}"))
            .hinted("`longhaul events` shows what the journal has, `longhaul doctor` looks for the cause")
    })?;
    let problem = found.problem.as_ref().map(|why| {
        let shown = match &found.rebuilt_from {
            Some(from) => {
                format!("what is shown was rebuilt from {from}; the next `longhaul run` repairs it")
            }
            None => "nothing could be rebuilt; `longhaul run --fresh` starts anew and keeps the bad file"
                .to_owned(),
        };
        format!("the store is corrupt: {why}; {shown}")
    });
    let facts = Facts {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        project: paths.root.display().to_string(),
        pid: project.holder().map(|holder| holder.pid),
        problem,
        disk: disk_space(project),
        min_free_bytes: project.config_or_defaults(output)?.disk.min_free,
    };
    let mut status = Status::of(&found.state, &facts, project.clock.now());
    status.inbox.queued += mail.count(&|id| found.state.inbox.knows(id));
    let there = |path: &Path| fs::symlink_metadata(path).is_ok();
    let signals = Signals { pause: there(&paths.pause), stop: there(&paths.stop) };
    Ok(Report { status, signals })
}

/// The file systems in use, each once.
pub(super) fn disk_space(project: &Project) -> Vec<DiskSpace> {
    let temporary = project.environment.get("TMPDIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    let paths = [project.paths.root.clone(), project.paths.dot.clone(), temporary];
    let places = space::places(&paths);
    let spaces = places.iter().filter_map(|place| space::measure(place).ok());
    spaces.map(|s| DiskSpace { path: s.path, free_bytes: s.free_bytes, free_inodes: s.free_inodes }).collect()
}

// === words ===

/// The report for people, in lines.
fn words(report: &Report, zone: &TimeZone, now: Timestamp, output: &Output) -> Vec<String> {
    let Report { status, signals } = report;
    let mut lines = Vec::new();
    let mut row = |name: &str, text: String| {
        let name = output.styled(Style::Dim, &format!("{name:<11}")).into_owned();
        lines.push(format!("  {name} {}", plain(&text).replace('\n', " ")));
    };
    let next;
    let heading = match &status.session {
        None => {
            row("project", status.project.clone());
            next = "`longhaul run` starts a session".to_owned();
            format!("{} no session has run here yet", output.styled(Style::Dim, "○"))
        }
        Some(session) => {
            rows(status, session, zone, now, &mut row);
            next = advice(status, session, *signals);
            heading(status, session, now, output)
        }
    };
    if status.inbox.queued > 0 {
        let waiting = if status.running { "for the next prompt" } else { "for the next `longhaul run`" };
        row("messages", format!("{} {waiting}", format::count(status.inbox.queued as u64, "message")));
    }
    row("disk", disk(status));
    lines.insert(0, heading);
    let asked = match (signals.stop, signals.pause) {
        (true, _) => Some("STOP"),
        (false, true) => Some("PAUSE"),
        (false, false) => None,
    };
    if let Some(name) = asked.filter(|_| !is_obeyed(status, *signals)) {
        lines.push(format!("  {} {name} is there", output.styled(Style::Warn, "signal     ")));
    }
    if let Some(problem) = &status.problem {
        lines.push(format!("  {} {}", output.styled(Style::Bad, "problem    "), plain(problem)));
    }
    if !next.is_empty() {
        lines.push(String::new());
        lines.push(format!("{} {}", output.styled(Style::Good, "next:"), plain(&next)));
    }
    lines
}

/// Nothing is left to say about the signal file: the state shows it.
fn is_obeyed(status: &Status, signals: Signals) -> bool {
    let session = status.session.as_ref();
    !signals.stop && session.is_some_and(|s| s.state == Phase::Paused && s.reason == Some(Reason::Requested))
}

fn heading(status: &Status, session: &SessionStatus, now: Timestamp, output: &Output) -> String {
    let gone = !status.running && is_live(session.state);
    let (style, mark) = match session.state {
        _ if gone => (Style::Bad, "●"),
        Phase::Starting | Phase::Running => (Style::Good, "●"),
        Phase::Finished => (Style::Good, "○"),
        Phase::Waiting | Phase::Paused | Phase::Stopping => (Style::Warn, "●"),
        Phase::Stopped => (Style::Warn, "○"),
        Phase::Failed => (Style::Bad, "○"),
    };
    let state = if gone { "cut off" } else { render::phase(session.state) };
    let why = match session.reason {
        _ if gone => format!(" (was {})", render::phase(session.state)),
        Some(reason) => format!(" ({})", render::reason(reason)),
        None => String::new(),
    };
    let limit = session.max_iterations.map_or_else(String::new, |limit| format!(" of {limit}"));
    let attempt = if session.attempt > 1 { format!(", attempt {}", session.attempt) } else { String::new() };
    let since = format::between(session.since, now);
    let since = match session.state {
        Phase::Stopped | Phase::Finished | Phase::Failed => format!("{since} ago"),
        _ => format!("for {since}"),
    };
    format!(
        "{} {}{why} {since} · iteration {}{limit}{attempt}",
        output.styled(style, mark),
        output.styled(Style::Bold, state),
        session.iteration,
    )
}

/// A supervisor should be at work in this state.
fn is_live(state: Phase) -> bool {
    matches!(state, Phase::Starting | Phase::Running | Phase::Waiting | Phase::Stopping)
}

fn rows(
    status: &Status,
    session: &SessionStatus,
    zone: &TimeZone,
    now: Timestamp,
    row: &mut dyn FnMut(&str, String),
) {
    row("project", status.project.clone());
    let supervisor = status.pid.map_or_else(String::new, |pid| format!(", process {pid}"));
    let active = std::time::Duration::from_secs(session.active_seconds);
    let started = format::time(session.started, zone, now);
    row("session", format!("{}, {started}, active for {}{supervisor}", session.id, format::duration(active)));
    let spec = session.spec.clone().unwrap_or_else(|| "none: it looks for work in the code".to_owned());
    row("spec", format!("{spec} ({})", session.complexity));
    row("provider", provider(status, session, now));
    if let Some(until) = session.resume_at {
        let why = session.waiting_for.map_or_else(String::new, |why| format!(": {}", render::wait(why)));
        row(
            "waits",
            format!("until {} (in {}){why}", format::time(until, zone, now), format::between(now, until)),
        );
    }
    if !session.detail.is_empty() && session.detail != DONE {
        row("detail", session.detail.clone());
    }
    if session.retries > 0 || session.last_outcome.as_deref().is_some_and(|outcome| outcome != "completed") {
        let last = session.last_outcome.as_deref().unwrap_or("unknown").replace('_', " ");
        row("failures", format!("{} in a row; the last attempt: {last}", session.retries));
    }
    if session.unchanged > 0 {
        row("unchanged", format!("no file changed for {}", format::count(session.unchanged, "iteration")));
    }
    row("budget", budget(status));
    if !status.gates.is_empty() {
        row("gates", gates(status, now));
    }
    if let Some(checkpoint) = &status.checkpoint {
        let tree: String = checkpoint.tree.chars().take(10).collect();
        row("checkpoint", format!("iteration {}, tree {tree}", checkpoint.number));
    }
}

fn provider(status: &Status, session: &SessionStatus, now: Timestamp) -> String {
    let mut text = session.provider.clone();
    for lane in status.lanes.iter().filter(|lane| lane.state == "calling") {
        let since =
            lane.since.map_or_else(String::new, |since| format!(" for {}", format::between(since, now)));
        let pid = lane.pid.map_or_else(String::new, |pid| format!(", process {pid}"));
        text.push_str(&format!(", works{since}{pid}"));
    }
    for account in status.accounts.iter().filter(|account| account.state != "ready") {
        let why = account.why.as_deref().unwrap_or("unknown").replace('_', " ");
        text.push_str(&format!("; {} is {} ({why})", account.account, account.state));
    }
    text
}

fn budget(status: &Status) -> String {
    let budget = &status.budget;
    let limit =
        budget.limit_usd.map_or_else(|| ", no limit".to_owned(), |usd| format!(" of {}", format::usd(usd)));
    let mut text = format!("{} spent{limit}", format::usd(budget.spent_usd));
    if budget.reserved_usd > 0.0 {
        text.push_str(&format!(", {} reserved", format::usd(budget.reserved_usd)));
    }
    if budget.unknown_calls > 0 {
        text.push_str(&format!(", {} of unknown cost", format::count(budget.unknown_calls, "call")));
    }
    text
}

fn gates(status: &Status, now: Timestamp) -> String {
    let gate = |gate: &crate::domain::status::GateStatus| {
        format!("{} {} {} ago", gate.name, render::gate(gate.result), format::between(gate.time, now))
    };
    status.gates.iter().map(gate).collect::<Vec<_>>().join(", ")
}

fn disk(status: &Status) -> String {
    let several = status.disk.file_systems.len() > 1;
    let space = |space: &DiskSpace| {
        let at = if several { format!(" at {}", space.path) } else { String::new() };
        let low = if space.free_bytes < status.disk.min_free_bytes { " (low)" } else { "" };
        format!("{} free{at}{low}", format::bytes(space.free_bytes))
    };
    status.disk.file_systems.iter().map(space).collect::<Vec<_>>().join(", ")
}

/// What a person can do now; empty: nothing is needed.
fn advice(status: &Status, session: &SessionStatus, signals: Signals) -> String {
    let paused = session.state == Phase::Paused;
    match session.reason {
        _ if !status.running && signals.stop => {
            "the next `longhaul run` stops at once while .longhaul/STOP is there".to_owned()
        }
        _ if !status.running && is_live(session.state) => {
            "its supervisor is gone; `longhaul run` goes on from the last saved state".to_owned()
        }
        Some(Reason::DiskLow) if paused => {
            "make room on the disk; it goes on by itself, with half again the limit free".to_owned()
        }
        Some(Reason::BudgetExceeded) if paused => {
            "raise it with `longhaul config set budget.usd N`".to_owned()
        }
        Some(Reason::AuthRequired) if paused => {
            "log in with the provider's own command, then `longhaul resume`".to_owned()
        }
        Some(Reason::Stagnated | Reason::NeedsHuman) if paused => {
            "`longhaul say` what to do, then `longhaul resume`".to_owned()
        }
        Some(Reason::RetriesExhausted | Reason::ProviderUnavailable | Reason::Refused) if paused => {
            "see `longhaul logs`, mend the cause or `longhaul provider use` another, then `longhaul resume`"
                .to_owned()
        }
        _ if paused && status.running => "`longhaul resume` goes on".to_owned(),
        _ if paused || session.state == Phase::Stopped => "`longhaul run` goes on from there".to_owned(),
        _ if session.state == Phase::Failed => {
            "see `longhaul events`; `longhaul run` starts a new session".to_owned()
        }
        _ if status.gates.iter().any(|gate| gate.result == GateResult::CouldNotRun) => {
            "a gate could not be run: see `longhaul gates`".to_owned()
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn run(project: &Project, json: bool) -> (String, String) {
        let (mut output, captured) = Output::captured();
        assert_eq!(status(JsonArgs { json }, project, &mut output), Ok(ExitCode::Done));
        (captured.out(), captured.err())
    }

    #[test]
    fn without_a_session() {
        let dir = tempfile::tempdir().unwrap();
        let project = Project::at(dir.path());
        let (out, err) = run(&project, true);
        let status: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(status["session"], Value::Null);
        assert_eq!(status["project"], project.paths.root.to_str().unwrap());
        assert!(status["disk"]["file_systems"][0]["free_bytes"].as_u64().is_some());
        assert_eq!(err, "");
        let (out, _) = run(&project, false);
        assert!(out.starts_with("○ no session has run here yet\n  project     /"), "{out}");
        assert!(out.ends_with("\nnext: `longhaul run` starts a session\n"), "{out}");
        assert_eq!(fs::read_dir(&project.paths.dot).unwrap().count(), 0, "nothing was made");
    }

    #[test]
    fn messages_on_disk_count() {
        let dir = tempfile::tempdir().unwrap();
        let project = Project::at(dir.path());
        fs::write(&project.paths.human_input, "one").unwrap();
        let (out, _) = run(&project, false);
        assert!(out.contains("  messages    1 message for the next `longhaul run`\n"), "{out}");
    }

    #[test]
    fn bad_settings_hide_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let project = Project::at(dir.path());
        fs::write(&project.paths.config, "nonsense = 1").unwrap();
        let (out, err) = run(&project, true);
        assert!(out.contains("\"min_free_bytes\":100000000"), "{out}");
        assert!(err.contains("warning: the settings cannot be used"), "{err}");
    }
}
