//! `longhaul status`: what the session of a project is doing. Changes nothing, and works beside a running session,
//! without one, and on a damaged store.

mod words;

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::args::JsonArgs;
use super::budget;
use super::error::{CliError, ErrorKind, ExitCode};
use super::output::Output;
use super::project::Project;
use crate::domain::status::{DiskSpace, Facts, Status};
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
        for line in words::words(&report, &project.zone, project.clock.now(), output) {
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
    let config = project.config_or_defaults(output)?;
    let facts = Facts {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        project: paths.root.display().to_string(),
        pid: project.holder().map(|holder| holder.pid),
        problem,
        disk: disk_space(project),
        min_free_bytes: config.disk.min_free,
        // A ledger that cannot be read hides nothing else: `budget` says what is wrong with it.
        windows: budget::windows(project, &config).unwrap_or_default(),
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
