//! `longhaul provider list|use|check|login|logout|classify`

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::json;

use super::args::ProviderCommand;
use super::classify::classify;
use super::doctor;
use super::error::{CliError, ErrorKind, ExitCode};
use super::format;
use super::output::{Output, Style, plain};
use super::project::Project;
use crate::config::{self, Config};
use crate::domain::outcome::Exit;
use crate::process::{CallSpec, run_in_terminal};
use crate::providers::command_line::{self, BuildError, Host};
use crate::providers::definition::{Definition, OutputFormat};
use crate::providers::registry::Registry;
use crate::providers::resolve::find_program;
use crate::store;

/// The script that `rehearsal` plays, unless `providers.rehearsal.path` names another.
const SCRIPT: &str = "rehearsal.toml";

/// A provider, and whether it can be used here.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Entry {
    /// Its name.
    pub(super) name: String,
    /// Its name for people.
    pub(super) title: String,
    /// The program to look for; none: it has none of its own.
    pub(super) program: Option<String>,
    /// Where that, or the script of `rehearsal`, is.
    pub(super) found: Option<PathBuf>,
    /// Why it cannot be used.
    pub(super) problem: Option<String>,
    /// What it prints.
    pub(super) format: &'static str,
    /// Its place in the failover chain, from 1.
    pub(super) chain: Option<usize>,
    /// How to install it.
    pub(super) install: Option<String>,
    /// How to log in.
    pub(super) login: Option<String>,
}

/// Runs one of the commands.
///
/// # Errors
/// Settings or provider files that cannot be used; of `use`: the provider cannot be used.
pub fn provider(
    command: &ProviderCommand,
    project: &Project,
    output: &mut Output,
) -> Result<ExitCode, CliError> {
    match command {
        ProviderCommand::List(arguments) => list(arguments.json, project, output),
        ProviderCommand::Use { name, json } => choose(name, *json, project, output),
        ProviderCommand::Check(args) => doctor::check_providers(args, project, output),
        ProviderCommand::Login { name } => credential_command(name, Login::In, project, output),
        ProviderCommand::Logout { name } => credential_command(name, Login::Out, project, output),
        ProviderCommand::Classify(args) => classify(args, project, output),
    }
}

fn list(as_json: bool, project: &Project, output: &mut Output) -> Result<ExitCode, CliError> {
    let config = project.config_or_defaults(output)?;
    let registry = project.registry()?;
    let entries = entries(&registry, &config, project);
    if as_json {
        output.json(&entries)?;
        return Ok(ExitCode::Done);
    }
    let width = entries.iter().map(|entry| entry.name.len()).max().unwrap_or(0);
    let titles = entries.iter().map(|entry| entry.title.chars().count()).max().unwrap_or(0);
    for entry in &entries {
        let mark = match entry.chain {
            Some(1) => "*".to_owned(),
            Some(place) => place.to_string(),
            None => " ".to_owned(),
        };
        let (style, state) = match (&entry.found, &entry.problem) {
            (Some(path), None) => (Style::Good, path.display().to_string()),
            (_, Some(problem)) => (Style::Dim, problem.clone()),
            (None, None) => (Style::Dim, String::new()),
        };
        let name = format!("{:width$}", entry.name);
        let line = format!(
            "{mark} {}  {:titles$}  {}",
            output.styled(Style::Bold, &name),
            plain(&entry.title),
            output.styled(style, &plain(&format::one_line(&state, 200))),
        );
        output.line(line.trim_end())?;
    }
    output.notice(
        "* is called first, a number is its place among the fallbacks; `longhaul provider use NAME` chooses",
    );
    Ok(ExitCode::Done)
}

/// All that are known, by name.
pub(super) fn entries(registry: &Registry, config: &Config, project: &Project) -> Vec<Entry> {
    let chain = config.provider_chain();
    let definitions = registry.names().filter_map(|name| registry.get(name));
    definitions
        .map(|definition| {
            let place = chain.iter().position(|name| *name == definition.name);
            entry(definition, place, config, project)
        })
        .collect()
}

fn entry(definition: &Definition, place: Option<usize>, config: &Config, project: &Project) -> Entry {
    let found = find(definition, config, project);
    let (found, problem) = match found {
        Ok(path) => (Some(path), None),
        Err(problem) => (None, Some(problem)),
    };
    Entry {
        name: definition.name.clone(),
        title: definition.title.clone(),
        program: definition.program.clone(),
        found,
        problem,
        format: format_name(definition.output),
        chain: place.map(|place| place + 1),
        install: definition.install.clone(),
        login: definition.login.clone(),
    }
}

/// Where the program of a provider, or the script of `rehearsal`, is; or why it cannot be used.
fn find(definition: &Definition, config: &Config, project: &Project) -> Result<PathBuf, String> {
    let own = config.providers.get(&definition.name);
    let named = own.and_then(|own| own.path.as_deref());
    if definition.in_process() {
        let usual = project.paths.dot.join(SCRIPT);
        let script = named.map_or(usual, |path| project.paths.root.join(path));
        return match script.is_file() {
            true => Ok(script),
            false => Err(format!("it plays a script, and there is none at {}", script.display())),
        };
    }
    let env = env(project, config, &definition.name);
    let program = named.and_then(Path::to_str).or(definition.program.as_deref());
    let Some(program) = program else {
        return Err("it is used with `longhaul run --agent CMD`".to_owned());
    };
    let path = env.get(std::ffi::OsStr::new("PATH")).map(OsString::as_os_str);
    find_program(program, path, &project.paths.root).map_err(|failure| failure.to_string())
}

/// The environment in which a provider is looked for.
pub(super) fn env(project: &Project, config: &Config, name: &str) -> BTreeMap<OsString, OsString> {
    let mut env = project.env();
    let own = config.providers.get(name).into_iter().flat_map(|own| &own.env);
    env.extend(own.map(|(key, value)| (OsString::from(key), OsString::from(value))));
    env
}

/// The command that tells the version of a provider, if it can be asked.
pub(super) fn version_probe(
    definition: &Definition,
    found: &Path,
    config: &Config,
    project: &Project,
) -> Result<Option<command_line::CommandLine>, BuildError> {
    let env = env(project, config, &definition.name);
    let host = Host {
        env: &env,
        root: rustix::process::geteuid().is_root(),
        project: &project.paths.root,
        keep: &[],
        foreign_keys: &[],
    };
    let found = found.to_string_lossy().into_owned();
    let definition = Definition { program: Some(found), ..definition.clone() };
    command_line::version_probe(&definition, &host)
}

fn format_name(format: OutputFormat) -> &'static str {
    match format {
        OutputFormat::ClaudeStreamJson => "claude-stream-json",
        OutputFormat::CodexJsonl => "codex-jsonl",
        OutputFormat::GeminiStreamJson => "gemini-stream-json",
        OutputFormat::OpencodeJson => "opencode-json",
        OutputFormat::ClineJson => "cline-json",
        OutputFormat::Text => "text",
        OutputFormat::Rehearsal => "rehearsal",
    }
}

/// The provider of this name.
///
/// # Errors
/// There is none; what it may have meant, and which there are.
pub(super) fn known<'a>(registry: &'a Registry, name: &str) -> Result<&'a Definition, CliError> {
    registry.get(name).ok_or_else(|| {
        let names = registry.names().collect::<Vec<_>>().join(", ");
        let unknown = CliError::new(ErrorKind::Config, format!("there is no provider `{name}`"));
        let unknown = match registry.suggest(name) {
            Some(near) => unknown.hinted(format!("did you mean `{near}`?")),
            None => unknown,
        };
        unknown.hinted(format!("the providers are: {names}"))
    })
}

// === login, logout ===

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Login {
    In,
    Out,
}

/// Runs the CLI's own command in the terminal of the person.
fn credential_command(
    name: &str,
    way: Login,
    project: &Project,
    output: &mut Output,
) -> Result<ExitCode, CliError> {
    let config = project.config_or_defaults(output)?;
    let registry = project.registry()?;
    let definition = known(&registry, name)?;
    let args = match way {
        Login::In => &definition.login_args,
        Login::Out => &definition.logout_args,
    };
    if args.is_empty() {
        let what = if way == Login::In { "log in" } else { "log out" };
        let none = CliError::usage(format!("`{name}` has no command of its own to {what}"));
        return Err(match (&definition.login, way) {
            (Some(how), Login::In) => none.hinted(format!("instead: {how}")),
            _ => none.hinted("remove its key from your environment, or its credential file"),
        });
    }
    let found = find(definition, &config, project).map_err(|problem| {
        let unusable =
            CliError::new(ErrorKind::ProviderUnusable, format!("`{name}` cannot be used: {problem}"));
        match &definition.install {
            Some(how) => unusable.hinted(format!("install it with: {how}")),
            None => unusable,
        }
    })?;
    let mut argv = vec![found.into_os_string()];
    argv.extend(args.iter().map(OsString::from));
    let env = env(project, &config, name).into_iter().collect();
    let spec = CallSpec { argv, env, cwd: project.paths.root.clone(), stdin: Vec::new() };
    let exit = run_in_terminal(&spec)
        .map_err(|error| CliError::failed_to(format!("run {}: {error}", spec.program().display())))?;
    if !exit.success() {
        let how = match exit {
            Exit::Code(code) => format!("exit code {code}"),
            Exit::Signal(signal) => format!("signal {signal}"),
        };
        return Err(CliError::new(ErrorKind::Failed, format!("{name} ended with {how}")));
    }
    output.notice(match way {
        Login::In => format!("logged in; `longhaul provider check {name} --probe` asks it a question"),
        Login::Out => "logged out".to_owned(),
    });
    Ok(ExitCode::Done)
}

// === use ===

fn choose(name: &str, as_json: bool, project: &Project, output: &mut Output) -> Result<ExitCode, CliError> {
    project.must_exist()?;
    let sources = project.sources();
    let before = config::load(&sources)?.config;
    let registry = project.registry()?;
    let definition = known(&registry, name)?;
    if let Err(problem) = find(definition, &before, project) {
        let message = format!("provider `{name}` cannot be used: {problem}; nothing was changed");
        let unusable = CliError::new(ErrorKind::ProviderUnusable, message);
        let unusable = match &definition.install {
            Some(how) => unusable.hinted(format!("install it with: {how}")),
            None => unusable,
        };
        return Err(unusable.hinted("`longhaul provider list` shows what can be used here"));
    }
    // First the model: what was meant for the old provider must never be asked of the new one.
    let clears_model = before.provider.name != name && before.provider.model.is_some();
    if clears_model {
        config::set(&sources, "provider.model", "")?;
    }
    let edited = config::set(&sources, "provider.name", name)?;
    if let Some(origin) = &edited.overridden_by {
        output.warn(format!("written, but {origin} overrides it"));
    }
    let when = when(project);
    if as_json {
        let old = &before.provider.name;
        output.json(&json!({ "ok": true, "from": old, "to": name, "model_cleared": clears_model, "takes_effect": when }))?;
        return Ok(ExitCode::Done);
    }
    let model = if clears_model { ", with its own default model" } else { "" };
    output.notice(match before.provider.name == name {
        true => format!("`{name}` was the provider already"),
        false => format!("the provider is now `{name}` (was `{}`){model}; {when}", before.provider.name),
    });
    if let Some(login) = &definition.login {
        output.notice(format!("not logged in yet? {login}"));
    }
    Ok(ExitCode::Done)
}

/// When a change of the provider takes effect.
fn when(project: &Project) -> String {
    if project.holder().is_none() {
        return "it is called by the next `longhaul run`".to_owned();
    }
    // What was said on the command line of a session holds for all of it.
    let state = store::inspect(&project.store_paths()).ok().map(|found| found.state);
    let session = state.as_ref().and_then(|state| state.session.as_ref());
    let fixed = session.and_then(|session| {
        let option = session
            .overrides
            .iter()
            .find(|over| over.key == "provider.name")
            .map(|over| over.option.as_str());
        option.or((!session.agent.is_empty()).then_some("--agent"))
    });
    match fixed {
        Some(option) => format!("the session that runs was started with {option}, and keeps that"),
        None => "the session that runs calls it from its next iteration on".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{Cli, Command};
    use crate::config::Environment;
    use clap::Parser;
    use std::os::unix::fs::PermissionsExt;

    /// A project with `claude` on PATH.
    fn project() -> (tempfile::TempDir, Project) {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        std::fs::write(bin.join("claude"), "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(bin.join("claude"), PermissionsExt::from_mode(0o755)).unwrap();
        let mut project = Project::at(dir.path());
        project.environment = Environment::from_iter([("PATH".into(), bin.into_os_string())]);
        (dir, project)
    }

    fn run(project: &Project, line: &str) -> (Result<ExitCode, CliError>, String, String) {
        let words = ["longhaul", "provider"].into_iter().chain(line.split_ascii_whitespace());
        let Command::Provider(command) = Cli::try_parse_from(words).unwrap().command else {
            panic!("provider")
        };
        let (mut output, captured) = Output::captured();
        let code = provider(&command, project, &mut output);
        (code, captured.out(), captured.err())
    }

    #[test]
    fn the_list_says_what_can_be_used() {
        let (_dir, project) = project();
        std::fs::write(&project.paths.config, "[provider]\nfallback = ['codex']\n").unwrap();
        let (code, out, _) = run(&project, "list --json");
        assert_eq!(code, Ok(ExitCode::Done));
        let list: serde_json::Value = serde_json::from_str(&out).unwrap();
        let by_name =
            |name: &str| list.as_array().unwrap().iter().find(|p| p["name"] == name).unwrap().clone();
        let (claude, codex) = (by_name("claude"), by_name("codex"));
        assert!(claude["found"].as_str().unwrap().ends_with("/bin/claude"));
        assert_eq!((&claude["chain"], &claude["problem"]), (&json!(1), &json!(null)));
        assert_eq!((&codex["chain"], &codex["found"]), (&json!(2), &json!(null)));
        assert_eq!(codex["problem"], "codex (on PATH) was not found");
        let (_, out, _) = run(&project, "list");
        assert!(out.lines().any(|line| line.starts_with("* claude     Claude Code")), "{out}");
        assert!(
            out.lines().any(|line| line.starts_with("2 codex ") && line.ends_with("was not found")),
            "{out}"
        );
    }

    #[test]
    fn ep_006_what_cannot_be_used_is_refused_with_how_to_install_it() {
        let (_dir, project) = project();
        let error = run(&project, "use codex").0.unwrap_err();
        assert_eq!(error.kind.exit_code(), ExitCode::ProviderUnusable);
        assert!(error.message.contains("codex (on PATH) was not found; nothing was changed"), "{error}");
        assert_eq!(error.hints[0], "install it with: npm install -g @openai/codex");
        let error = run(&project, "use claud").0.unwrap_err();
        assert_eq!(
            (error.kind.exit_code(), error.hints[0].as_str()),
            (ExitCode::Usage, "did you mean `claude`?")
        );
        assert_eq!(run(&project, "use command").0.unwrap_err().kind.exit_code(), ExitCode::ProviderUnusable);
        assert_eq!(
            run(&project, "use rehearsal").0.unwrap_err().kind.exit_code(),
            ExitCode::ProviderUnusable
        );
        assert!(!project.paths.config.exists());
    }

    #[test]
    fn the_model_of_the_old_one_goes() {
        let (_dir, project) = project();
        std::fs::write(&project.paths.config, "[provider]\nname = 'codex' # for now\nmodel = 'gpt-5.1'\n")
            .unwrap();
        let (code, out, err) = run(&project, "use claude");
        assert_eq!((code, out.as_str()), (Ok(ExitCode::Done), ""));
        assert!(
            err.starts_with("the provider is now `claude` (was `codex`), with its own default model; "),
            "{err}"
        );
        assert_eq!(
            std::fs::read_to_string(&project.paths.config).unwrap(),
            "[provider]\nname = \"claude\" # for now\nmodel = \"\"\n"
        );
        assert!(run(&project, "use claude").2.starts_with("`claude` was the provider already"));
        std::fs::write(project.paths.dot.join(SCRIPT), "").unwrap();
        assert_eq!(run(&project, "use rehearsal").0, Ok(ExitCode::Done));
    }

    #[test]
    fn log_in_and_out_are_the_clis_own() {
        let (dir, project) = project();
        let said = dir.path().join("said");
        let script = format!("#!/bin/sh\necho \"$@\" >> {}\n[ \"$2\" = login ]\n", said.display());
        std::fs::write(dir.path().join("bin/claude"), script).unwrap();
        assert_eq!(run(&project, "login claude").0, Ok(ExitCode::Done));
        let error = run(&project, "logout claude").0.unwrap_err();
        assert_eq!(
            (error.kind.exit_code(), error.message.as_str()),
            (ExitCode::Failed, "claude ended with exit code 1")
        );
        assert_eq!(std::fs::read_to_string(said).unwrap(), "auth login\nauth logout\n");
        let error = run(&project, "login gemini").0.unwrap_err();
        assert!(error.message.contains("no command of its own") && error.hints[0].contains("GEMINI_API_KEY"));
        let error = run(&project, "login codex").0.unwrap_err();
        assert_eq!(error.kind.exit_code(), ExitCode::ProviderUnusable);
    }
}
