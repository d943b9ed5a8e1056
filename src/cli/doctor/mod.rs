//! `longhaul doctor`: looks at the host and the project for what a session needs. Changes nothing.

mod check;
mod host;
mod place;
mod probe;
mod providers;

use serde_json::json;

use super::args::{CheckArgs, JsonArgs};
use super::error::{CliError, ExitCode};
use super::format;
use super::output::{Output, Style, plain};
use super::project::Project;
use super::provider::known;
use crate::config::{self, Config};
use check::{Check, Verdict};

/// Runs the command.
///
/// # Errors
/// Nothing can be printed. What is wrong with the host is a result.
pub fn doctor(arguments: JsonArgs, project: &Project, output: &mut Output) -> Result<ExitCode, CliError> {
    let (config, settings) = settings(project)?;
    let mut checks = place::project(project);
    checks.push(settings);
    checks.extend(host::all(project, &config));
    output.progress("asking the agents for their versions");
    checks.extend(providers::all(project, &config));
    report(&checks, arguments.json, output)
}

/// `longhaul provider check`.
///
/// # Errors
/// A name that is no provider's; settings that cannot be used.
pub(super) fn check_providers(
    arguments: &CheckArgs,
    project: &Project,
    output: &mut Output,
) -> Result<ExitCode, CliError> {
    let config = project.config_or_defaults(output)?;
    let registry = project.registry()?;
    let chain: Vec<String> = config.provider_chain().into_iter().map(str::to_owned).collect();
    let names = if arguments.names.is_empty() { chain } else { arguments.names.clone() };
    let mut checks = Vec::new();
    for name in &names {
        let definition = known(&registry, name)?;
        output.progress(format!("asking {name} for its version"));
        let usable = providers::one(definition, &registry, project, &config);
        let can_run = usable.first().is_some_and(|check| check.verdict != Verdict::Fail);
        checks.extend(usable);
        if arguments.probe && can_run && !definition.in_process() {
            output.progress(format!("waiting for an answer of {name}"));
            checks.push(probe::answers(definition, &registry, project, &config));
        }
    }
    report(&checks, arguments.json, output)
}

fn report(checks: &[Check], as_json: bool, output: &mut Output) -> Result<ExitCode, CliError> {
    let failed = checks.iter().filter(|check| check.verdict == Verdict::Fail).count();
    let warned = checks.iter().filter(|check| check.verdict == Verdict::Warn).count();
    let code = if failed == 0 { ExitCode::Done } else { ExitCode::Failed };
    if as_json {
        output.json(&json!({ "ok": failed == 0, "checks": checks }))?;
        return Ok(code);
    }
    print(checks, output)?;
    let summary = match (failed, warned) {
        (0, 0) => "all is well".to_owned(),
        (0, warned) => format!("ready, with {}", format::count(warned as u64, "warning")),
        (failed, 0) => format!("{} must be mended", format::count(failed as u64, "thing")),
        (failed, warned) => {
            let things = format::count(failed as u64, "thing");
            format!("{things} must be mended; {}", format::count(warned as u64, "warning"))
        }
    };
    output.line("")?;
    output.line(summary)?;
    Ok(code)
}

fn settings(project: &Project) -> Result<(Config, Check), CliError> {
    match config::load(&project.sources()) {
        Ok(loaded) => {
            let file = &project.paths.config;
            let detail = if file.is_file() { file.display().to_string() } else { "defaults".to_owned() };
            Ok((loaded.config, Check::ok("settings", detail)))
        }
        Err(error) => {
            let error = CliError::from(error);
            let hint = error.hints.first().cloned();
            let advice =
                hint.unwrap_or_else(|| "mend the file; `longhaul config check` looks again".to_owned());
            let check = Check::fail("settings", error.message).advised(advice);
            Ok((config::load(&config::Sources::default())?.config, check))
        }
    }
}

fn print(checks: &[Check], output: &mut Output) -> Result<(), CliError> {
    let width = checks.iter().map(|check| check.name.chars().count()).max().unwrap_or(0);
    for check in checks {
        let (style, word) = match check.verdict {
            Verdict::Ok => (Style::Good, "ok  "),
            Verdict::Warn => (Style::Warn, "warn"),
            Verdict::Fail => (Style::Bad, "FAIL"),
        };
        let name = format!("{:width$}", plain(&check.name));
        let detail = format::one_line(&check.detail, 300);
        let line = format!("{}  {}  {detail}", output.styled(style, word), output.styled(Style::Bold, &name));
        output.line(line)?;
        if let Some(advice) = &check.advice {
            let advice = format!("{:width$}  {}", "", plain(advice));
            let line = format!("      {}", output.styled(Style::Dim, &advice));
            output.line(line)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Environment;
    use serde_json::Value;
    use std::os::unix::fs::PermissionsExt;

    /// A project with an agent of its own on PATH.
    fn project(version: &str) -> (tempfile::TempDir, Project) {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        std::fs::write(bin.join("claude"), format!("#!/bin/sh\necho '{version}'\n")).unwrap();
        std::fs::set_permissions(bin.join("claude"), PermissionsExt::from_mode(0o755)).unwrap();
        let path = format!("{}:/usr/bin:/bin", bin.display());
        let mut project = Project::at(dir.path());
        let home = dir.path().join("home");
        let variables =
            [("PATH", path), ("HOME", home.display().to_string()), ("ANTHROPIC_API_KEY", "sk-1".into())];
        project.environment = Environment::from_iter(variables.map(|(k, v)| (k.into(), v.into())));
        (dir, project)
    }

    fn run(project: &Project) -> (ExitCode, Value) {
        let (mut output, captured) = Output::captured();
        let code = doctor(JsonArgs { json: true }, project, &mut output).unwrap();
        (code, serde_json::from_str(&captured.out()).unwrap())
    }

    fn find<'a>(report: &'a Value, name: &str) -> &'a Value {
        report["checks"].as_array().unwrap().iter().find(|check| check["name"] == name).unwrap()
    }

    #[test]
    fn a_good_project() {
        let (_dir, project) = project("2.1.300 (Claude Code)");
        let (code, report) = run(&project);
        assert_eq!(code, ExitCode::Done, "{report:#}");
        assert_eq!(find(&report, "claude")["detail"].as_str().unwrap().split(' ').next(), Some("2.1.300"));
        assert_eq!(find(&report, "claude credential")["detail"], "ANTHROPIC_API_KEY is set");
        assert!(!report.to_string().contains("sk-1"), "values are never shown");
        assert_eq!(find(&report, "repository")["verdict"], "warn");
        assert_eq!(std::fs::read_dir(&project.paths.dot).unwrap().count(), 0, "nothing is left behind");
    }

    #[test]
    fn what_is_wrong_is_named_with_a_way_out() {
        let (_dir, project) = project("1.0.3");
        std::fs::write(&project.paths.state_db, "{\"status\": \"runn").unwrap();
        std::fs::write(&project.paths.stop, "").unwrap();
        std::fs::write(&project.paths.config, "[provider]\nfallback = ['codex']\n").unwrap();
        let (code, report) = run(&project);
        assert_eq!((code, &report["ok"]), (ExitCode::Failed, &json!(false)));
        assert_eq!(find(&report, "store")["verdict"], "fail");
        assert_eq!(find(&report, "signals")["verdict"], "warn");
        assert_eq!(find(&report, "claude")["verdict"], "warn");
        let codex = find(&report, "codex");
        assert_eq!(codex["verdict"], "warn", "a missing fallback is no failure");
        assert_eq!(codex["advice"], "install it with: npm install -g @openai/codex");
        std::fs::write(&project.paths.config, "nonsense = 1").unwrap();
        let (_, report) = run(&project);
        assert_eq!(find(&report, "settings")["verdict"], "fail");
    }

    #[test]
    fn words_for_people() {
        let (_dir, project) = project("2.1.300");
        let (mut output, captured) = Output::captured();
        doctor(JsonArgs { json: false }, &project, &mut output).unwrap();
        let out = captured.out();
        assert!(out.lines().any(|line| line.starts_with("warn  repository")), "{out}");
        assert!(out.lines().last().unwrap().starts_with("ready, with "), "{out}");
    }

    fn check(project: &Project, line: &str) -> (Result<ExitCode, CliError>, Value) {
        use clap::Parser;
        let words = ["longhaul", "provider", "check", "--json"].into_iter().chain(line.split_whitespace());
        let parsed = crate::cli::args::Cli::try_parse_from(words).unwrap();
        let crate::cli::args::Command::Provider(crate::cli::args::ProviderCommand::Check(args)) =
            parsed.command
        else {
            panic!("check")
        };
        let (mut output, captured) = Output::captured();
        let code = check_providers(&args, project, &mut output);
        (code, serde_json::from_str(&captured.out()).unwrap_or_default())
    }

    /// The agent's program, answering with `line` to any prompt.
    fn answering(line: &str, code: i32) -> (tempfile::TempDir, Project) {
        let (dir, project) = project("");
        let script = format!(
            "#!/bin/sh\ncase $1 in --version) echo '2.1.300 (Claude Code)';; *) cat >/dev/null; echo '{line}'; exit {code};; esac\n"
        );
        std::fs::write(dir.path().join("bin/claude"), script).unwrap();
        (dir, project)
    }

    #[test]
    fn a_probe_tells_whether_an_agent_can_really_answer() {
        let result =
            r#"{"type":"result","subtype":"success","is_error":false,"result":"OK","total_cost_usd":0.004}"#;
        let (_dir, project) = answering(result, 0);
        let (code, report) = check(&project, "claude");
        assert_eq!(code, Ok(ExitCode::Done));
        let names: Vec<_> = report["checks"].as_array().unwrap().iter().map(|c| c["name"].clone()).collect();
        assert_eq!(names, ["claude", "claude credential"], "no question without being told to ask");
        let (code, report) = check(&project, "claude --probe");
        assert_eq!(code, Ok(ExitCode::Done), "{report:#}");
        let answer = find(&report, "claude answer")["detail"].as_str().unwrap();
        assert!(answer.starts_with("came after ") && answer.ends_with(", $0.0040"), "{answer}");

        let refused =
            r#"{"type":"result","is_error":true,"api_error_status":401,"result":"Invalid API key"}"#;
        let (_dir, project) = answering(refused, 1);
        let (code, report) = check(&project, "claude --probe");
        assert_eq!(code, Ok(ExitCode::Failed));
        let answer = find(&report, "claude answer");
        assert!(answer["detail"].as_str().unwrap().starts_with("auth failed ("), "{answer}");
        assert!(answer["advice"].as_str().unwrap().contains("/login"), "{answer}");
        assert!(check(&project, "claud").0.unwrap_err().hints[0].contains("claude"));
    }
}
