//! `longhaul events`: the journal, for people and for programs. Reads it piece by piece, across rotation.

use super::args::EventsArgs;
use super::error::{CliError, ErrorKind, ExitCode};
use super::follow;
use super::output::Output;
use super::project::Project;
use super::render::{Lines, Stamp};
use crate::domain::event::Level;
use crate::domain::ids::EventId;
use crate::store::{self, EventLine, Follower, Reader, StorePaths};

/// Events that the database may have and the journal not yet: a supervisor that was killed leaves a few.
const MISSING: usize = 1000;

/// How events are printed.
#[derive(Debug)]
enum Form {
    Json,
    Words(Lines),
}

/// Runs the command.
///
/// # Errors
/// The journal cannot be read, or has no event with the id of `--since`.
pub fn events(arguments: &EventsArgs, project: &Project, output: &mut Output) -> Result<ExitCode, CliError> {
    let paths = project.store_paths();
    let form = if arguments.json {
        Form::Json
    } else {
        let colours = output.out_has_colours();
        Form::Words(Lines { zone: project.zone.clone(), stamp: Stamp::Full, colours })
    };
    let after = arguments.since.map_or(Ok(0), |id| place(&paths, id))?;
    let mut journal = Follower::new(paths.clone(), after);
    let mut last = print_all(&mut journal, after, &form, output)?;
    let rest = Reader::new(paths).after(last, MISSING).unwrap_or_default();
    last = print(&rest, last, &form, output)?;
    if last == 0 {
        output.notice("nothing has happened here yet");
    }
    if !arguments.follow {
        return Ok(ExitCode::Done);
    }
    loop {
        follow::idle()?;
        last = print_all(&mut journal, last, &form, output)?;
    }
}

/// Prints what the journal has beyond event `last`; gives the last one then.
fn print_all(
    journal: &mut Follower,
    mut last: u64,
    form: &Form,
    output: &mut Output,
) -> Result<u64, CliError> {
    loop {
        let lines =
            journal.poll().map_err(|error| CliError::failed_to(format_args!("read the journal: {error}")))?;
        if lines.is_empty() {
            return Ok(last);
        }
        last = print(&lines, last, form, output)?;
    }
}

fn print(lines: &[EventLine], last: u64, form: &Form, output: &mut Output) -> Result<u64, CliError> {
    let mut text = String::new();
    for line in lines.iter().filter(|line| line.seq > last) {
        match form {
            Form::Json => text.push_str(&line.text),
            Form::Words(lines) => match line.event() {
                // Bookkeeping is for programs.
                Some(event) if event.level == Level::Debug => continue,
                Some(event) => text.push_str(&lines.line(&event)),
                None => text.push_str("(a damaged line)"),
            },
        }
        text.push('\n');
    }
    output.bytes(text.as_bytes())?;
    Ok(lines.last().map_or(last, |line| line.seq.max(last)))
}

/// The place of an event in the journal.
fn place(paths: &StorePaths, id: EventId) -> Result<u64, CliError> {
    let found = store::find(paths, id)
        .map_err(|error| CliError::failed_to(format_args!("read the journal: {error}")))?;
    // It may be in the database alone; a damaged one has nothing to add.
    let stored = || {
        let lines = Reader::new(paths.clone()).tail(MISSING).unwrap_or_default();
        lines.into_iter().find(|line| line.id == id).map(|line| line.seq)
    };
    found.or_else(stored).ok_or_else(|| {
        CliError::new(ErrorKind::Usage, format!("there is no event {id} here")).hinted(
            "the oldest events go when the journal gets too long; without --since all there are are shown",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{Cli, Command};
    use crate::domain::event::{Body, Draft};
    use crate::store::{Db, Journal, JournalLimits, OpenOptions};
    use clap::Parser;

    fn run(project: &Project, line: &str) -> (Result<ExitCode, CliError>, String, String) {
        let words = ["longhaul", "events"].into_iter().chain(line.split_ascii_whitespace());
        let Command::Events(arguments) = Cli::try_parse_from(words).unwrap().command else {
            panic!("events")
        };
        let (mut output, captured) = Output::captured();
        let code = events(&arguments, project, &mut output);
        (code, captured.out(), captured.err())
    }

    /// Commits `notices`, and writes the first `journaled` of them to the journal.
    fn write(project: &Project, notices: usize, journaled: usize, max_file: u64) -> Vec<EventId> {
        let paths = project.store_paths();
        let now = project.clock.now();
        let options = OpenOptions { durability: store::Durability::Process, fresh: false, now };
        let opened = Db::open(&paths, options).unwrap();
        let mut db = opened.db;
        let mut journal = Journal::new(paths.clone(), JournalLimits { max_file, max_total: 1 << 30 });
        journal.catch_up(&opened.state, &mut Reader::live(paths), now).unwrap();
        let mut ids = crate::domain::ids::IdSource::new(Some(1));
        let mut made = Vec::new();
        for n in 0..notices {
            let id = EventId(ids.next(now));
            let body = Body::Notice { code: "n".into(), message: format!("notice {n} {}", "x".repeat(100)) };
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
            let committed = db.commit(vec![draft]).unwrap();
            if n < journaled {
                journal.append(&committed).unwrap();
            }
            made.push(id);
        }
        made
    }

    #[test]
    fn all_of_them_once_across_rotation_and_from_the_database() {
        let dir = tempfile::tempdir().unwrap();
        let project = Project::at(dir.path());
        let ids = write(&project, 60, 50, 4096);
        assert!(std::fs::read_dir(&project.paths.logs).unwrap().count() > 1, "it was rotated");
        let (code, out, _) = run(&project, "--json");
        assert_eq!(code, Ok(ExitCode::Done));
        let seqs: Vec<u64> = out
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["seq"].as_u64().unwrap())
            .collect();
        assert_eq!(seqs, (1..=60).collect::<Vec<_>>());
        for (at, left) in [(0, 59), (40, 19), (55, 4), (59, 0)] {
            let (_, out, _) = run(&project, &format!("--since {}", ids[at]));
            assert_eq!(out.lines().count(), left, "after {at}");
        }
        let (_, out, _) = run(&project, "");
        assert!(out.lines().next().unwrap().contains("   notice 0 x"), "{out}");
        let error = run(&project, "--since 01JABCDEFGHJKMNPQRSTVWXYZ0").0.unwrap_err();
        assert_eq!(error.kind.exit_code(), ExitCode::Usage);
    }

    #[test]
    fn nothing_yet() {
        let dir = tempfile::tempdir().unwrap();
        let (code, out, err) = run(&Project::at(dir.path()), "");
        assert_eq!((code, out.as_str()), (Ok(ExitCode::Done), ""));
        assert_eq!(err, "nothing has happened here yet\n");
    }
}
