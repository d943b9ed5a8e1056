//! `longhaul provider classify`: what a recorded call came to, and why. It reads files and writes nothing.

use std::fs::File;
use std::io;
use std::path::Path;

use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, ZonedDateTime};
use serde_json::json;

use super::args::ClassifyArgs;
use super::error::{CliError, ErrorKind, ExitCode};
use super::output::{Output, Style, plain};
use super::project::Project;
use super::provider::known;
use crate::domain::outcome::{Exit, Outcome, Verdict};
use crate::process::{Line, MAX_LINE, read_lines};
use crate::providers::call::{CallEnd, OurReason, Stream};
use crate::providers::classify::classify as judge;
use crate::providers::decode::{Decoder, DecoderOptions, decoder};

/// Judges the recorded call.
///
/// # Errors
/// No such provider, one that runs in process, a file that cannot be read, a time or zone that is none.
pub(super) fn classify(
    args: &ClassifyArgs,
    project: &Project,
    output: &mut Output,
) -> Result<ExitCode, CliError> {
    let registry = project.registry()?;
    let definition = known(&registry, &args.provider)?;
    let Some(mut decoder) = decoder(definition.output, DecoderOptions::default()) else {
        return Err(CliError::usage(format!("`{}` runs in process and prints nothing", definition.name)));
    };
    let now = now(args, project)?;
    // stderr first: what happened between the two is not recorded, and words on stdout are the later ones mostly.
    for (stream, file) in [(Stream::Stderr, &args.stderr), (Stream::Stdout, &args.stdout)] {
        if let Some(file) = file {
            read(file, stream, decoder.as_mut())?;
        }
    }
    let exit = match (args.exit, args.signal) {
        (_, Some(signal)) => Exit::Signal(signal),
        (code, None) => Exit::Code(code.unwrap_or(0)),
    };
    let end = CallEnd { exit: Ok(exit), ended_by: args.ended_by.map(OurReason::from) };
    let transcript = decoder.finish(&end);
    let verdict = judge(definition, &transcript, &end, args.changed, &now);
    print(&verdict, args.json, &now, output)
}

fn read(file: &Path, stream: Stream, decoder: &mut dyn Decoder) -> Result<(), CliError> {
    let failed = |error: io::Error| {
        CliError::new(ErrorKind::Usage, format!("cannot read {}: {error}", file.display()))
    };
    let mut opened = File::open(file).map_err(failed)?;
    read_lines(&mut opened, MAX_LINE, |line| {
        match line {
            Line::Whole(bytes) => decoder.line(stream, bytes, false),
            Line::TooLong { head, .. } => decoder.line(stream, head, true),
        }
        // Nobody wants to see the progress of what is over.
        drop(decoder.facts());
    })
    .map_err(failed)
}

/// The time at which the call ended, on the clock of the host that made it.
fn now(args: &ClassifyArgs, project: &Project) -> Result<ZonedDateTime, CliError> {
    let at = match args.now.as_deref() {
        None => project.clock.now(),
        Some(text) => time(text).ok_or_else(|| {
            CliError::usage(format!("--now `{text}` is no time"))
                .hinted("write it as 2026-11-30T20:00:00Z, or as seconds since 1970")
        })?,
    };
    let zone = match args.tz.as_deref() {
        None => project.zone.clone(),
        Some(name) => zone(name).ok_or_else(|| {
            CliError::usage(format!("--tz `{name}` is no time zone"))
                .hinted("write its name as in the IANA database, for example Europe/London, or UTC")
        })?,
    };
    Ok(at.to_zoned_datetime(zone))
}

fn time(text: &str) -> Option<Timestamp> {
    let zoned = || text.parse::<ZonedDateTime>().ok().map(|zoned| zoned.timestamp());
    let epoch = || text.parse::<i64>().ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    text.parse::<Timestamp>().ok().or_else(zoned).or_else(epoch)
}

fn zone(name: &str) -> Option<TimeZone> {
    if name.eq_ignore_ascii_case("utc") || name == "Z" {
        return Some(TimeZone::UTC);
    }
    TimeZoneDatabase::bundled().get(name).ok()
}

fn print(
    verdict: &Verdict,
    as_json: bool,
    now: &ZonedDateTime,
    output: &mut Output,
) -> Result<ExitCode, CliError> {
    let until = match verdict.outcome {
        Outcome::RateLimited { until }
        | Outcome::UsageLimited { until }
        | Outcome::QuotaExhausted { until } => until,
        _ => None,
    };
    if as_json {
        output.json(&json!({
            "outcome": verdict.outcome.name(),
            "until": until.map(|until| until.to_string()),
            "account_scope": verdict.scope,
            "evidence": verdict.evidence,
            "rule": verdict.rule,
        }))?;
        return Ok(ExitCode::Done);
    }
    output.line(output.styled(Style::Bold, &verdict.outcome.to_string()))?;
    if let Some(until) = until {
        let there = until.to_zoned_datetime(now.time_zone().clone());
        output.line(format!("  until     {until} ({})", there.strftime("%a %-d %b %H:%M %Z")))?;
    }
    let scope = serde_json::to_value(verdict.scope).ok();
    let scope = scope.as_ref().and_then(|scope| scope.as_str()).unwrap_or("none");
    output.line(format!("  concerns  {scope}"))?;
    output.line(format!("  rule      {}", verdict.rule))?;
    let said = verdict.evidence.text.replace('\n', " ");
    output.line(format!("  evidence  {}: {}", verdict.evidence.source, plain(&said)).trim_end())?;
    if let Some(warning) = &verdict.warning {
        output.line(format!("  warning   {}", plain(warning)))?;
    }
    Ok(ExitCode::Done)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::args::{Cli, Command, ProviderCommand};

    fn run(line: &str) -> (Result<ExitCode, CliError>, String) {
        let dir = tempfile::tempdir().unwrap();
        let project = Project::at(dir.path());
        let words = ["longhaul", "provider", "classify"].into_iter().chain(line.split_ascii_whitespace());
        let Command::Provider(ProviderCommand::Classify(args)) = Cli::try_parse_from(words).unwrap().command
        else {
            panic!("classify")
        };
        let (mut output, captured) = Output::captured();
        let code = classify(&args, &project, &mut output);
        let written: Vec<_> = std::fs::read_dir(&project.paths.dot).unwrap().collect();
        assert!(written.is_empty(), "it never writes: {written:?}");
        (code, captured.out())
    }

    fn fixture(name: &str) -> String {
        format!("{}/tests/fixtures/cli/{name}", env!("CARGO_MANIFEST_DIR"))
    }

    #[test]
    fn a_recorded_limit_is_told_with_its_time_scope_evidence_and_rule() {
        let stdout = fixture("opencode-1.18.33/http_429_date/stdout");
        let line =
            format!("--provider opencode --exit 1 --stdout {stdout} --now 2026-11-30T20:00:00Z --json");
        let (code, out) = run(&line);
        assert_eq!(code, Ok(ExitCode::Done));
        let told: serde_json::Value = serde_json::from_str(&out).unwrap();
        let keys: Vec<_> = told.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["account_scope", "evidence", "outcome", "rule", "until"]);
        assert_eq!(told["outcome"], "rate_limited");
        assert_eq!(
            (&told["until"], &told["account_scope"]),
            (&json!("2026-11-30T20:17:54Z"), &json!("account"))
        );
        assert_eq!(
            (&told["rule"], &told["evidence"]["source"]),
            (&json!("codex.kind.rate_limit"), &json!("event"))
        );
    }

    #[test]
    fn times_without_a_zone_are_on_the_clock_of_the_host_that_made_the_call() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("out");
        std::fs::write(&file, "You've hit your usage limit. Try again at 3:42 PM.\n").unwrap();
        for (zone, until) in [("UTC", "2026-06-09T15:42:00Z"), ("America/New_York", "2026-06-09T19:42:00Z")] {
            let line = format!(
                "--provider codex --exit 1 --stdout {} --now 2026-06-09T12:00:00Z --tz {zone} --json",
                file.display()
            );
            let told: serde_json::Value = serde_json::from_str(&run(&line).1).unwrap();
            assert_eq!(
                (&told["outcome"], &told["until"]),
                (&json!("usage_limited"), &json!(until)),
                "{zone}"
            );
        }
    }

    #[test]
    fn how_it_ended_counts() {
        let told = |line: &str| run(&format!("--provider claude {line}")).1;
        assert!(told("--signal 9").starts_with("crashed\n"));
        assert!(told("--signal 9 --ended-by silence").starts_with("silent hang\n"));
        assert!(told("--exit 0").starts_with("empty\n"));
        assert!(told("--exit 127").starts_with("not runnable\n"));
    }

    #[test]
    fn bad_input_is_refused_with_a_way_out() {
        for (line, words, hint) in [
            ("--provider claud --exit 1", "no provider `claud`", "did you mean `claude`?"),
            ("--provider claude --exit 1 --now soon", "`soon` is no time", "2026-11-30T20:00:00Z"),
            ("--provider claude --exit 1 --tz Mars/Olympus", "no time zone", "Europe/London"),
        ] {
            let error = run(line).0.unwrap_err();
            assert!(error.message.contains(words) && error.hints[0].contains(hint), "{error:?}");
            assert_eq!(error.kind.exit_code(), ExitCode::Usage);
        }
        let error = run("--provider claude --exit 1 --stdout /no/such/file").0.unwrap_err();
        assert!(error.message.starts_with("cannot read /no/such/file: No such file"), "{error:?}");
        assert!(run("--provider rehearsal --exit 0").0.unwrap_err().message.contains("in process"));
    }
}
