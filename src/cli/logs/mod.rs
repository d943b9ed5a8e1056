//! `longhaul logs`: what agents printed, attempt by attempt.

mod tail;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::args::LogsArgs;
use super::error::{CliError, ErrorKind, ExitCode};
use super::follow;
use super::output::{Output, Style, plain};
use super::project::Project;
use tail::{Tail, parts};

/// An attempt: iteration, number within it.
type Attempt = (u64, u32);

/// The logs of an attempt, by stream: `stderr`, `stdout`.
type Streams = BTreeMap<&'static str, PathBuf>;

/// Prints pieces of streams with headings between them, as `tail -f` does.
struct Printer<'a> {
    output: &'a mut Output,
    /// Whose piece was printed last.
    last: Option<(Attempt, &'static str)>,
    /// Headings are of use only where there are several streams.
    headings: bool,
    /// A character that is not whole yet.
    part: Vec<u8>,
}

/// Runs the command.
///
/// # Errors
/// The logs cannot be read, or there is none of that iteration or attempt.
pub fn logs(arguments: &LogsArgs, project: &Project, output: &mut Output) -> Result<ExitCode, CliError> {
    let folder = &project.paths.logs;
    if arguments.json {
        return list(arguments, folder, output);
    }
    let mut found = chosen(arguments, folder)?;
    if found.is_empty() {
        not_there(arguments, folder, output)?;
    }
    let headings = output.out_is_terminal() || arguments.follow || found.values().any(|s| s.len() > 1);
    let mut printer = Printer { output, last: None, headings, part: Vec::new() };
    let mut at = None;
    loop {
        if let Some((attempt, _)) = found.pop_last() {
            at = Some(attempt);
            read(attempt, folder, arguments.follow, &mut printer)?;
        }
        if !arguments.follow {
            return Ok(ExitCode::Done);
        }
        follow::idle()?;
        // The oldest of those that came later.
        found = all(folder)?
            .into_iter()
            .filter(|(next, _)| Some(*next) > at && fits(arguments, *next))
            .take(1)
            .collect();
    }
}

/// Prints an attempt; with `follow` until a later one is there.
fn read(attempt: Attempt, folder: &Path, follow: bool, printer: &mut Printer<'_>) -> Result<(), CliError> {
    let mut tails: BTreeMap<&'static str, Tail> = BTreeMap::new();
    loop {
        // Before the last look, so that nothing comes after it.
        let all = all(folder)?;
        let over = !follow || all.keys().next_back().is_some_and(|newest| *newest > attempt);
        for (name, path) in all.get(&attempt).into_iter().flatten() {
            tails.entry(name).or_insert_with(|| Tail::new(path));
        }
        // What was said is of more interest than what went wrong on the way.
        for (name, tail) in tails.iter_mut().rev() {
            loop {
                let piece = tail.read().map_err(|error| cannot_read(&tail.base, &error))?;
                if piece.is_empty() {
                    break;
                }
                printer.print(attempt, name, &piece)?;
            }
        }
        if over {
            return Ok(());
        }
        follow::idle()?;
    }
}

fn list(arguments: &LogsArgs, folder: &Path, output: &mut Output) -> Result<ExitCode, CliError> {
    let mut files = Vec::new();
    for ((iteration, attempt), streams) in all(folder)?.into_iter().filter(|(at, _)| fits(arguments, *at)) {
        for (stream, path) in streams.iter().rev() {
            let bytes: u64 =
                parts(path).iter().filter_map(|part| fs::metadata(part).ok()).map(|meta| meta.len()).sum();
            files.push(json!({
                "iteration": iteration, "attempt": attempt, "stream": stream, "bytes": bytes,
                "path": path.display().to_string(),
            }));
        }
    }
    output.json(&files)?;
    Ok(ExitCode::Done)
}

// === which ===

fn fits(arguments: &LogsArgs, (iteration, attempt): Attempt) -> bool {
    arguments.iteration.is_none_or(|wanted| wanted == iteration)
        && arguments.attempt.is_none_or(|wanted| wanted == attempt)
}

/// The newest attempt that is asked for.
fn chosen(arguments: &LogsArgs, folder: &Path) -> Result<BTreeMap<Attempt, Streams>, CliError> {
    let mut all = all(folder)?;
    // An attempt without an iteration is one of the last iteration.
    let last = all.keys().next_back().map(|(iteration, _)| *iteration);
    let iteration = arguments.iteration.or(last);
    all.retain(|at, _| Some(at.0) == iteration && fits(arguments, *at));
    Ok(all.pop_last().into_iter().collect())
}

fn all(folder: &Path) -> Result<BTreeMap<Attempt, Streams>, CliError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        entries => entries.map_err(|error| cannot_read(folder, &error))?,
    };
    let mut found: BTreeMap<Attempt, Streams> = BTreeMap::new();
    for entry in entries {
        let entry = entry.map_err(|error| cannot_read(folder, &error))?;
        // The file is there before the first byte: what has said nothing has no log.
        let silent = || entry.metadata().is_ok_and(|meta| meta.len() == 0);
        if let Some((attempt, stream)) = entry.file_name().to_str().and_then(parse).filter(|_| !silent()) {
            found.entry(attempt).or_default().insert(stream, entry.path());
        }
    }
    Ok(found)
}

/// `000003-1.stdout.log`
fn parse(name: &str) -> Option<(Attempt, &'static str)> {
    let name = name.strip_suffix(".log")?;
    let (place, stream) = name.split_once('.')?;
    let (iteration, attempt) = place.split_once('-')?;
    let stream = ["stderr", "stdout"].into_iter().find(|known| *known == stream)?;
    Some(((iteration.parse().ok()?, attempt.parse().ok()?), stream))
}

fn not_there(arguments: &LogsArgs, folder: &Path, output: &mut Output) -> Result<(), CliError> {
    if arguments.follow {
        return Ok(());
    }
    let all = all(folder)?;
    let (Some((first, _)), Some((last, _))) = (all.keys().next(), all.keys().next_back()) else {
        output.notice("no agent has printed anything here yet");
        return Ok(());
    };
    Err(CliError::new(ErrorKind::Failed, "there is no log of that attempt")
        .hinted(format!("there are logs of iterations {first} to {last}; the oldest go at logs.max_total"))
        .hinted("`longhaul logs --json` lists them"))
}

fn cannot_read(path: &Path, error: &io::Error) -> CliError {
    CliError::failed_to(format_args!("read {}: {error}", path.display()))
}

// === impl Printer ===

impl Printer<'_> {
    fn print(&mut self, attempt: Attempt, stream: &'static str, piece: &[u8]) -> Result<(), CliError> {
        if self.last != Some((attempt, stream)) {
            self.part.clear();
            if self.headings {
                let gap = if self.last.is_some() { "\n" } else { "" };
                let heading = format!("==> iteration {}, attempt {}, {stream} <==", attempt.0, attempt.1);
                let heading = self.output.styled(Style::Bold, &heading).into_owned();
                self.output.line(format!("{gap}{heading}"))?;
            }
            self.last = Some((attempt, stream));
        }
        if !self.output.out_is_terminal() {
            return self.output.bytes(piece);
        }
        self.part.extend_from_slice(piece);
        let text = take_text(&mut self.part);
        self.output.bytes(plain(&text.replace("\r\n", "\n")).as_bytes())
    }
}

/// Takes the text out of `bytes`, up to a last character that is not whole.
fn take_text(bytes: &mut Vec<u8>) -> String {
    let whole = match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => bytes.len(),
    };
    // A bad byte before the last character: all but a possible start of a character at the end is taken.
    let incomplete = bytes.utf8_chunks().last().map_or(0, |chunk| {
        let bad = chunk.invalid();
        if std::str::from_utf8(bad).is_err_and(|error| error.error_len().is_none()) { bad.len() } else { 0 }
    });
    let end = whole.min(bytes.len() - incomplete);
    let rest = bytes.split_off(end);
    let text = String::from_utf8_lossy(bytes).into_owned();
    *bytes = rest;
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{Cli, Command};
    use clap::Parser;

    fn run(project: &Project, line: &str) -> (Result<ExitCode, CliError>, String, String) {
        let words = ["longhaul", "logs"].into_iter().chain(line.split_ascii_whitespace());
        let Command::Logs(arguments) = Cli::try_parse_from(words).unwrap().command else { panic!("logs") };
        let (mut output, captured) = Output::captured();
        let code = logs(&arguments, project, &mut output);
        (code, captured.out(), captured.err())
    }

    fn project(files: &[(&str, &str)]) -> (tempfile::TempDir, Project) {
        let dir = tempfile::tempdir().unwrap();
        let project = Project::at(dir.path());
        fs::create_dir_all(&project.paths.logs).unwrap();
        for (name, text) in files {
            fs::write(project.paths.logs.join(name), text).unwrap();
        }
        (dir, project)
    }

    #[test]
    fn the_newest_attempt_unless_another_is_named() {
        let (_dir, project) = project(&[
            ("000002-1.stdout.log", "two\n"),
            ("000010-1.stdout.log", "ten one\n"),
            ("000010-2.stdout.log", "ten two\n"),
            ("000010-2.stderr.log", "oops\n"),
            ("events-2026-08-22-000000000001.jsonl", "{}"),
        ]);
        let both = "==> iteration 10, attempt 2, stdout <==\nten two\n\n==> iteration 10, attempt 2, stderr <==\noops\n";
        assert_eq!(run(&project, "").1, both);
        assert_eq!(run(&project, "--iteration 2").1, "two\n", "one stream is printed as it is");
        assert_eq!(run(&project, "--attempt 1").1, "ten one\n");
        assert_eq!(run(&project, "--iteration 10 --attempt 2").1, both);
        let error = run(&project, "--iteration 7").0.unwrap_err();
        assert_eq!(error.kind.exit_code(), ExitCode::Failed);
        assert!(error.hints[0].starts_with("there are logs of iterations 2 to 10;"), "{error:?}");
        let (_, out, _) = run(&project, "--json --iteration 10");
        let list: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(list.as_array().unwrap().len(), 3);
        assert_eq!((&list[2]["stream"], &list[2]["bytes"]), (&json!("stderr"), &json!(5)));
    }

    #[test]
    fn nothing_yet() {
        for files in [&[][..], &[("000001-1.stdout.log", "")]] {
            let (_dir, project) = project(files);
            assert_eq!(run(&project, "").2, "no agent has printed anything here yet\n");
            assert_eq!(run(&project, "--json").1, "[]\n");
        }
    }

    #[test]
    fn characters_are_not_cut() {
        let text = "aé😀\u{1b}[2J".as_bytes();
        for cut in 0..text.len() {
            let mut part = text[..cut].to_vec();
            let mut shown = take_text(&mut part);
            part.extend(&text[cut..]);
            shown.push_str(&take_text(&mut part));
            assert_eq!(shown.as_bytes(), text);
        }
        let mut part = b"a\xffb\xc3".to_vec();
        assert_eq!((take_text(&mut part).as_str(), part.as_slice()), ("a\u{fffd}b", &b"\xc3"[..]));
    }
}
