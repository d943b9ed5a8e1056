//! `pause`, `resume`, `stop` and `say`: files that the supervisor looks for. They need no connection to it, so
//! they work as well while it hangs, and before it is started.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::args::{JsonArgs, ReasonArgs, SayArgs, StopArgs};
use super::error::{CliError, ExitCode};
use super::format;
use super::output::Output;
use super::project::Project;
use crate::domain::ids::{IdSource, MessageId};
use crate::domain::plain_text;
use crate::domain::signal_file::SignalFile;
use crate::domain::state::{Phase, Reason, State};
use crate::intake::inbox::{self, MAX_TEXT};
use crate::intake::signal_files;
use crate::store::{self, Holder};

/// `longhaul pause [REASON]`
///
/// # Errors
/// The signal file cannot be written.
pub fn pause(arguments: &ReasonArgs, project: &Project, output: &mut Output) -> Result<ExitCode, CliError> {
    let file = &project.paths.pause;
    let already = is_there(file);
    let reason = arguments.text();
    // Who was first keeps the word; a new reason replaces an old one.
    if !already || !reason.is_empty() {
        signal(file, &reason, false, output)?;
    }
    let holder = project.holder();
    let what = match (&holder, already) {
        (Some(holder), false) => format!(
            "the session (process {}) pauses; a call in flight may finish first. `longhaul resume` goes on",
            holder.pid
        ),
        (Some(_), true) => "was paused already; `longhaul resume` goes on".to_owned(),
        (None, _) => {
            "no session runs here; the next `longhaul run` begins paused, until `longhaul resume`".to_owned()
        }
    };
    done(arguments.json, json!({ "already": already }), holder.as_ref(), &what, output)
}

/// `longhaul resume`
///
/// # Errors
/// The signal files cannot be changed.
pub fn resume(arguments: JsonArgs, project: &Project, output: &mut Output) -> Result<ExitCode, CliError> {
    let paths = &project.paths;
    let removed = remove(&paths.pause)?;
    let holder = project.holder();
    let state = store::inspect(&project.store_paths()).map(|inspection| inspection.state);
    // A session whose state cannot be read now may be waiting for this.
    let waits = state.as_ref().map_or(holder.is_some(), |state| needs_word(state));
    if waits {
        write(&signal_files::resume_path(paths), b"")?;
    }
    let what = match (&holder, removed || waits) {
        (Some(holder), true) => format!("the session (process {}) goes on", holder.pid),
        (Some(_), false) => "nothing is paused here".to_owned(),
        (None, true) => {
            "no session runs here; the next `longhaul run` goes on where it was paused".to_owned()
        }
        (None, false) => "nothing is paused here, and no session runs; `longhaul run` starts one".to_owned(),
    };
    if is_there(&paths.stop) && holder.is_none() {
        output.warn(format!(
            "STOP is still there: the next `longhaul run` will stop at once, unless you remove {}",
            paths.stop.display()
        ));
    }
    let details = json!({ "pause_removed": removed, "resume_requested": waits });
    done(arguments.json, details, holder.as_ref(), &what, output)
}

/// `longhaul stop [--now] [REASON]`
///
/// # Errors
/// The signal file cannot be written.
pub fn stop(arguments: &StopArgs, project: &Project, output: &mut Output) -> Result<ExitCode, CliError> {
    let file = &project.paths.stop;
    let already = is_there(file);
    let reason = arguments.text();
    if !already || !reason.is_empty() || arguments.now {
        signal(file, &reason, arguments.now, output)?;
    }
    let holder = project.holder();
    let what = match (&holder, arguments.now) {
        (Some(holder), false) => format!(
            "the session (process {}) stops: the call in flight is told to end, and killed if it does not. \
             `longhaul run` goes on from there",
            holder.pid
        ),
        (Some(holder), true) => format!(
            "the session (process {}) stops at once: the call in flight is killed. `longhaul run` goes on from there",
            holder.pid
        ),
        (None, _) => format!(
            "no session runs here; the next `longhaul run` will stop at once, unless you remove {}",
            file.display()
        ),
    };
    done(arguments.json, json!({ "already": already, "now": arguments.now }), holder.as_ref(), &what, output)
}

/// `longhaul say TEXT|-`. `input` is stdin. The message outlives a power cut when this returns.
///
/// # Errors
/// There is no message, it is too long, or it cannot be stored.
pub fn say(
    arguments: &SayArgs,
    project: &Project,
    input: &mut dyn Read,
    output: &mut Output,
) -> Result<ExitCode, CliError> {
    let text = match arguments.message() {
        Some(text) => text,
        None => read_message(input, output)?,
    };
    if text.trim().is_empty() {
        return Err(
            CliError::usage("the message is empty").hinted("longhaul say 'Use SQLite, not Postgres.'")
        );
    }
    if text.len() as u64 > MAX_TEXT {
        return Err(too_long());
    }
    let id = leave(project, &text)?;
    let holder = project.holder();
    let what = match &holder {
        Some(_) => "it goes into the next prompt",
        None => "no session runs here; it goes into the first prompt of the next `longhaul run`",
    };
    if !arguments.json {
        output.line(id)?;
    }
    done(arguments.json, json!({ "id": id }), holder.as_ref(), what, output)
}

/// Leaves a message in the inbox of a project.
///
/// # Errors
/// It cannot be stored.
pub fn leave(project: &Project, text: &str) -> Result<MessageId, CliError> {
    let id = MessageId(IdSource::new(None).next(project.clock.now()));
    inbox::put(&project.paths, id, text)
        .map_err(|error| cannot_write(&project.paths.inbox.join(format!("{id}.md")), &error))?;
    Ok(id)
}

fn read_message(input: &mut dyn Read, output: &mut Output) -> Result<String, CliError> {
    if rustix::termios::isatty(rustix::stdio::stdin()) {
        output.notice("type the message; Ctrl-D on a line of its own ends it");
    }
    let mut bytes = Vec::new();
    input
        .take(MAX_TEXT + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| CliError::failed_to(format_args!("read the message from stdin: {error}")))?;
    if bytes.len() as u64 > MAX_TEXT {
        return Err(too_long());
    }
    let text = plain_text::decode(&bytes);
    if text.contains(char::REPLACEMENT_CHARACTER) {
        output.warn("the message is not all text; what is none is replaced");
    }
    Ok(text)
}

fn too_long() -> CliError {
    CliError::usage(format!("the message is longer than {}", format::bytes(MAX_TEXT)))
        .hinted("put it into a file in the project and name that: longhaul say 'Read notes/plan.md first.'")
}

/// Says what was done: for scripts on stdout, for people on stderr.
fn done(
    as_json: bool,
    details: Value,
    holder: Option<&Holder>,
    what: &str,
    output: &mut Output,
) -> Result<ExitCode, CliError> {
    if as_json {
        let mut answer =
            json!({ "ok": true, "running": holder.is_some(), "pid": holder.map(|holder| holder.pid) });
        if let (Value::Object(answer), Value::Object(details)) = (&mut answer, details) {
            answer.extend(details);
            answer.insert("message".to_owned(), Value::from(what));
        }
        output.json(&answer)?;
    } else {
        output.notice(what);
    }
    Ok(ExitCode::Done)
}

// === signal files ===

/// Writes a signal; on a full disk at least its presence, which is all that counts.
fn signal(file: &Path, reason: &str, now: bool, output: &mut Output) -> Result<(), CliError> {
    let content = SignalFile { reason: reason.to_owned(), now }.render();
    match store::replace(file, content.as_bytes(), false) {
        // A folder of that name is the signal, too.
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => Ok(()),
        Err(error) if is_full(&error) => {
            fs::File::create(file).map_err(|error| cannot_write(file, &error))?;
            output.warn("the disk is full: the signal is given, its reason is lost");
            Ok(())
        }
        other => other.map_err(|error| cannot_write(file, &error)),
    }
}

fn write(file: &Path, content: &[u8]) -> Result<(), CliError> {
    store::replace(file, content, false).map_err(|error| cannot_write(file, &error))
}

/// Whether it was there.
fn remove(file: &Path) -> Result<bool, CliError> {
    let there = is_there(file);
    signal_files::remove(file).map_err(|error| {
        CliError::failed_to(format_args!("remove {}: {error}", file.display()))
            .hinted("it holds the session: remove it by hand")
    })?;
    Ok(there)
}

/// Dangling links count: presence is the signal.
fn is_there(file: &Path) -> bool {
    fs::symlink_metadata(file).is_ok()
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn cannot_write(path: &Path, error: &io::Error) -> CliError {
    let failed = CliError::failed_to(format_args!("write {}: {error}", path.display()));
    let folder = path.parent().map_or_else(PathBuf::new, Path::to_owned);
    match error.kind() {
        _ if is_full(error) => failed.hinted("make room on the disk, then say it again: nothing was stored"),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            failed.hinted(format!("{} must be writable for you", folder.display()))
        }
        _ => failed,
    }
}

/// The session is paused for a reason of its own, and goes on only when a person says so.
fn needs_word(state: &State) -> bool {
    let session = state.session.as_ref().filter(|session| session.state == Phase::Paused);
    let reason = session.and_then(|session| session.reason);
    reason.is_some_and(|reason| reason.needs_person() && reason != Reason::Requested)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{Cli, Command};
    use clap::Parser;

    /// Exit code or error, stdout, stderr.
    fn run(project: &Project, line: &str, stdin: &[u8]) -> (Result<ExitCode, CliError>, String, String) {
        let words = ["longhaul".to_owned()].into_iter().chain(shlex::split(line).unwrap());
        let (mut output, captured) = Output::captured();
        let mut input = stdin;
        let code = match Cli::try_parse_from(words).unwrap().command {
            Command::Pause(arguments) => pause(&arguments, project, &mut output),
            Command::Resume(arguments) => resume(arguments, project, &mut output),
            Command::Stop(arguments) => stop(&arguments, project, &mut output),
            Command::Say(arguments) => say(&arguments, project, &mut input, &mut output),
            _ => panic!("{line}"),
        };
        (code, captured.out(), captured.err())
    }

    fn project() -> (tempfile::TempDir, Project) {
        let dir = tempfile::tempdir().unwrap();
        let project = Project::at(dir.path());
        (dir, project)
    }

    fn content(path: &Path) -> Value {
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    }

    #[test]
    fn a_pause_is_set_once_and_taken_back() {
        let (_dir, project) = project();
        let (code, out, err) = run(&project, "pause --json 'for lunch'", b"");
        assert_eq!((code, err.as_str()), (Ok(ExitCode::Done), ""));
        let answer: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(
            (&answer["ok"], &answer["running"], &answer["already"]),
            (&json!(true), &json!(false), &json!(false))
        );
        assert_eq!(content(&project.paths.pause), json!({ "now": false, "reason": "for lunch" }));
        assert!(run(&project, "pause", b"").2.starts_with("no session runs here; the next"));
        assert_eq!(content(&project.paths.pause)["reason"], "for lunch", "a pause without a reason keeps it");
        run(&project, "resume", b"").0.unwrap();
        assert!(!project.paths.pause.exists() && !signal_files::resume_path(&project.paths).exists());
        assert!(run(&project, "resume", b"").2.starts_with("nothing is paused here"));
    }

    #[test]
    fn stop_says_what_will_happen() {
        let (_dir, project) = project();
        let (code, out, err) = run(&project, "stop out of time", b"");
        assert_eq!((code, out.as_str()), (Ok(ExitCode::Done), ""));
        assert!(err.starts_with("no session runs here; the next `longhaul run` will stop at once"), "{err}");
        assert_eq!(content(&project.paths.stop)["reason"], "out of time");
        run(&project, "stop --now", b"").0.unwrap();
        assert_eq!(content(&project.paths.stop)["now"], true);
        assert!(run(&project, "resume", b"").2.contains("STOP is still there"));
        fs::remove_file(&project.paths.stop).unwrap();
        fs::create_dir(&project.paths.stop).unwrap();
        assert_eq!(run(&project, "stop --now", b"").0, Ok(ExitCode::Done), "a folder is as good");
    }

    #[test]
    fn a_message_is_stored_under_its_id() {
        let (_dir, project) = project();
        let (code, out, err) = run(&project, "say Use SQLite", b"");
        assert_eq!(code, Ok(ExitCode::Done));
        let file = project.paths.inbox.join(format!("{}.md", out.trim()));
        assert_eq!(fs::read_to_string(file).unwrap(), "Use SQLite");
        assert!(err.contains("first prompt of the next"), "{err}");
        let (_, out, _) = run(&project, "say - --json", "größer\n".as_bytes());
        let id = serde_json::from_str::<Value>(&out).unwrap()["id"].as_str().unwrap().to_owned();
        assert_eq!(fs::read_to_string(project.paths.inbox.join(format!("{id}.md"))).unwrap(), "größer\n");
        assert!(run(&project, "say -", b"caf\xe9").2.contains("not all text"));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let (_dir, project) = project();
        for (line, stdin) in [("say ' '", &b""[..]), ("say -", b" \n"), ("say -", b"")] {
            assert_eq!(run(&project, line, stdin).0.unwrap_err().kind.exit_code(), ExitCode::Usage, "{line}");
        }
        let long = vec![b'x'; (1 << 20) + 1];
        let error = run(&project, "say -", &long).0.unwrap_err();
        assert!(
            error.message.contains("longer than 1.0 MB") && error.hints[0].contains("into a file"),
            "{error}"
        );
        assert!(!project.paths.inbox.exists());
        assert_eq!(run(&project, "say -", &long[1..]).0, Ok(ExitCode::Done));
    }

    #[test]
    fn there_must_be_a_project() {
        let dir = tempfile::tempdir().unwrap();
        let error = Project::required(Some(dir.path()), &Default::default()).unwrap_err();
        assert_eq!(error.kind.exit_code(), ExitCode::Usage);
        assert!(error.message.starts_with("there is no project here: "), "{error}");
        assert!(Project::find(Some(dir.path()), &Default::default()).is_ok());
    }
}
