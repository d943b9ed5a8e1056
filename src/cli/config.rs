//! `longhaul config show|get|set|check`

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::args::ConfigCommand;
use super::error::{CliError, ErrorKind, ExitCode};
use super::output::{Output, Style};
use crate::config::{self, ConfigError, Liveness, Loaded, Origin, Setting, Settings, Sources};

/// Runs one of the commands. Without a project in `sources` only `set` fails.
pub fn config(command: &ConfigCommand, sources: &Sources, output: &mut Output) -> Result<ExitCode, CliError> {
    match command {
        ConfigCommand::Show { origin, json } => show(&config::load(sources)?, *origin, *json, output),
        ConfigCommand::Get { key, json } => get(&config::load(sources)?.settings, key, *json, output),
        ConfigCommand::Set { key, value } => set(sources, key, value, output),
        ConfigCommand::Check { file, json } => check(sources, file.as_deref(), *json, output),
    }
}

fn show(loaded: &Loaded, origin: bool, json: bool, output: &mut Output) -> Result<ExitCode, CliError> {
    let settings: Vec<_> = loaded.settings.iter().collect();
    if json {
        output.json(&as_json(&settings))?;
    } else {
        print_toml(&settings, origin, output)?;
    }
    Ok(ExitCode::Done)
}

fn get(settings: &Settings, key: &str, json: bool, output: &mut Output) -> Result<ExitCode, CliError> {
    if let Some(Setting { value, .. }) = settings.get(key) {
        match value {
            _ if json => output.json(&config::as_json(value))?,
            toml::Value::String(text) => output.line(text)?,
            other => output.line(other)?,
        }
        return Ok(ExitCode::Done);
    }
    let section = format!("{key}.");
    let within: Vec<_> = settings.iter().filter(|(name, _)| name.starts_with(&section)).collect();
    match (within.is_empty(), config::is_key(key)) {
        (false, _) if json => output.json(&as_json(&within))?,
        (false, _) => print_toml(&within, false, output)?,
        (true, true) => return Err(CliError::new(ErrorKind::Failed, format!("`{key}` is not set"))),
        (true, false) => {
            let error = CliError::usage(format!("unknown key `{key}`"));
            return Err(match config::suggest(key) {
                Some(near) => error.hinted(format!("did you mean `{near}`?")),
                None => error.hinted("`longhaul config show` lists all"),
            });
        }
    }
    Ok(ExitCode::Done)
}

fn set(sources: &Sources, key: &str, value: &str, output: &mut Output) -> Result<ExitCode, CliError> {
    let folder = sources.project.as_deref().and_then(Path::parent);
    if !folder.is_some_and(Path::is_dir) {
        return Err(CliError::usage("there is no project here to set it in")
            .hinted("`longhaul init` makes this folder a project; --project names another"));
    }
    let edited = config::set(sources, key, value)?;
    let change = edited.change;
    if let Some(origin) = edited.overridden_by {
        output.warn(format!("written, but {origin} overrides it: `{key}` is still {}", change.new));
    } else if change.old == change.new {
        output.notice(format!("`{key}` was {} already", change.new));
    } else {
        let when = match change.applies {
            Liveness::Live => "applies at the next iteration",
            Liveness::Restart => "applies when the next session starts",
        };
        output.notice(format!("`{key}` is now {} (was {}); {when}", change.new, change.old));
    }
    Ok(ExitCode::Done)
}

fn check(
    sources: &Sources,
    file: Option<&Path>,
    json: bool,
    output: &mut Output,
) -> Result<ExitCode, CliError> {
    let checked = file.map_or_else(|| config::load(sources), config::check_file);
    let error = match checked {
        Ok(_) if json => return output.json(&json!({ "ok": true, "problems": [] })).map(|()| ExitCode::Done),
        Ok(_) => return output.line("ok").map(|()| ExitCode::Done),
        Err(ConfigError::Invalid(problems)) if json => problems,
        Err(error) => return Err(error.into()),
    };
    let problems = error.iter().map(|problem| {
        let mut entry = json!({ "message": problem.message, "hint": problem.hint });
        match &problem.origin {
            Origin::File(place) => {
                entry["file"] = Value::from(place.file.to_string_lossy());
                entry["line"] = Value::from(place.line);
                entry["column"] = Value::from(place.column);
            }
            other => entry["origin"] = Value::from(other.to_string()),
        }
        entry
    });
    output.json(&json!({ "ok": false, "problems": problems.collect::<Vec<_>>() }))?;
    Ok(ExitCode::Usage)
}

/// By dotted key: value and origin, secrets masked.
fn as_json(settings: &[(&str, &Setting)]) -> Value {
    let entry = |(key, setting): &(&str, &Setting)| {
        let value = config::shown(key, Some(setting.value.clone()));
        ((*key).to_owned(), json!({ "value": value, "origin": setting.origin.to_string() }))
    };
    Value::Object(settings.iter().map(entry).collect())
}

/// As a settings file, secrets masked.
fn print_toml(settings: &[(&str, &Setting)], origin: bool, output: &mut Output) -> Result<(), CliError> {
    let mut sections: BTreeMap<&str, Vec<(String, String)>> = BTreeMap::new();
    for (key, setting) in settings {
        // The empty section comes first, as TOML needs it.
        let (section, name) = key.rsplit_once('.').unwrap_or(("", key));
        let line = format!("{name} = {}", config::masked(key, &setting.value));
        sections.entry(section).or_default().push((line, setting.origin.to_string()));
    }
    for (at, (section, lines)) in sections.into_iter().enumerate() {
        if at > 0 {
            output.line("")?;
        }
        if !section.is_empty() {
            let heading = format!("[{section}]");
            let heading = output.styled(Style::Bold, &heading).into_owned();
            output.line(heading)?;
        }
        let width = lines.iter().map(|(line, _)| line.chars().count()).max().unwrap_or(0).min(50);
        for (line, from) in lines {
            if origin {
                let from = format!("# {from}");
                let from = output.styled(Style::Dim, &from).into_owned();
                output.line(format!("{line:width$}  {from}"))?;
            } else {
                output.line(line)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixture {
        _dir: tempfile::TempDir,
        sources: Sources,
    }

    fn project(text: &str) -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        std::fs::write(&path, text).unwrap();
        Fixture { _dir: dir, sources: Sources { project: Some(path), ..Sources::default() } }
    }

    /// Exit code or error, stdout, stderr.
    fn run(fixture: &Fixture, line: &str) -> (Result<ExitCode, CliError>, String, String) {
        use super::super::args::{Cli, Command};
        use clap::Parser;
        let words =
            ["longhaul".to_owned(), "config".to_owned()].into_iter().chain(shlex::split(line).unwrap());
        let Command::Config(command) = Cli::try_parse_from(words).unwrap().command else { panic!("config") };
        let (mut output, captured) = Output::captured();
        let code = config(&command, &fixture.sources, &mut output);
        (code, captured.out(), captured.err())
    }

    #[test]
    fn what_show_prints_is_a_settings_file() {
        let fixture = project("[run]\nretries = 7\n[providers.x.env]\nA_TOKEN = 'abc'\n");
        for line in ["show", "show --origin"] {
            let (code, out, _) = run(&fixture, line);
            assert_eq!(code, Ok(ExitCode::Done));
            assert!(!out.contains("abc"), "secrets are masked");
            let table: toml::Table = toml::from_str(&out).unwrap();
            assert_eq!(table["run"]["retries"].as_integer(), Some(7));
            assert_eq!(table["durability"].as_str(), Some("power"));
        }
        let (_, out, _) = run(&fixture, "show --origin");
        assert!(out.lines().any(|l| l.starts_with("retries = 7 ") && l.ends_with("config.toml:2")), "{out}");
        assert!(out.lines().any(|l| l.starts_with("wait = true ") && l.ends_with("  # default")), "{out}");
        let (_, out, _) = run(&fixture, "show --json");
        let all: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(all["run.wait"], json!({ "value": true, "origin": "default" }));
        assert_eq!(all["providers.x.env.A_TOKEN"]["value"], "********");
    }

    #[test]
    fn get_prints_the_bare_value() {
        let fixture = project("[providers.x]\nmodel = 'm'\n");
        assert_eq!(run(&fixture, "get backoff.cap").1, "5m\n");
        assert_eq!(run(&fixture, "get backoff.cap --json").1, "\"5m\"\n");
        assert_eq!(run(&fixture, "get run.retries").1, "50\n");
        assert_eq!(run(&fixture, "get provider.fallback").1, "[]\n");
        assert_eq!(run(&fixture, "get backoff").1, "[backoff]\nbase = \"2s\"\ncap = \"5m\"\n");
        assert_eq!(run(&fixture, "get providers.x").1, "[providers.x]\nmodel = \"m\"\n");
        let error = run(&fixture, "get providers.y.model").0.unwrap_err();
        assert_eq!(
            (error.kind.exit_code(), error.message.as_str()),
            (ExitCode::Failed, "`providers.y.model` is not set")
        );
        let error = run(&fixture, "get run.retry").0.unwrap_err();
        assert_eq!(
            (error.kind.exit_code(), error.hints[0].as_str()),
            (ExitCode::Usage, "did you mean `run.retries`?")
        );
    }

    #[test]
    fn set_says_when_it_applies() {
        let mut fixture = project("");
        let (code, out, err) = run(&fixture, "set run.retries 7");
        assert_eq!((code, out.as_str()), (Ok(ExitCode::Done), ""));
        assert_eq!(err, "`run.retries` is now 7 (was 50); applies at the next iteration\n");
        assert_eq!(run(&fixture, "set run.retries 7").2, "`run.retries` was 7 already\n");
        assert!(
            run(&fixture, "set durability process").2.ends_with("applies when the next session starts\n")
        );
        fixture.sources.environment = vec![("LONGHAUL_RUN__RETRIES".into(), "9".into())];
        let (_, _, err) = run(&fixture, "set run.retries 8");
        assert!(
            err.contains("environment LONGHAUL_RUN__RETRIES overrides it: `run.retries` is still 9"),
            "{err}"
        );
        fixture.sources.project = None;
        assert_eq!(run(&fixture, "set run.retries 8").0.unwrap_err().kind.exit_code(), ExitCode::Usage);
    }

    #[test]
    fn check_shows_line_and_column() {
        let fixture = project("[run]\nretrys = 7\n");
        let error = run(&fixture, "check").0.unwrap_err();
        assert_eq!(
            (error.kind.exit_code(), error.hints[0].as_str()),
            (ExitCode::Usage, "did you mean `run.retries` instead of `run.retrys`?")
        );
        assert!(error.message.contains("config.toml:2:1: unknown key `run.retrys`"), "{}", error.message);
        let (code, out, _) = run(&fixture, "check --json");
        let report: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(code, Ok(ExitCode::Usage));
        assert_eq!((&report["ok"], &report["problems"][0]["line"]), (&json!(false), &json!(2)));
        assert_eq!(run(&project("[run]\nretries = 7\n"), "check").1, "ok\n");
        assert_eq!(run(&fixture, "check /no/such/file").0.unwrap_err().kind.exit_code(), ExitCode::Usage);
    }
}
