//! `longhaul init`: SPEC.md from a template, and the project's settings.

use std::io;
use std::path::Path;

use serde_json::json;

use super::args::InitArgs;
use super::error::{CliError, ExitCode};
use super::output::{Output, Style, plain};
use crate::config::{Gate, GateCommand, IfThere, ProjectPaths, write_atomic};
use crate::intake::template::{Source, Template, TemplateError, Templates, read_source};

/// What a project is worked from.
const SPEC: &str = "SPEC.md";

/// Template of a plain `init`.
const USUAL: &str = "feature";

/// What others do for `init`.
pub struct InitHooks<'a> {
    /// Finds the checks that the project has.
    pub detect_gates: &'a dyn Fn(&Path) -> Vec<Gate>,
    /// Makes git ignore `.longhaul/`, without touching the user's files. `Err`: why it could not.
    pub exclude: &'a dyn Fn(&Path) -> Result<(), String>,
}

/// Settings of a new project, before its gates.
const HEAD: &str = r#"# Longhaul's settings for this project. What is not set here keeps its default:
# `longhaul config show --origin` lists all settings, `longhaul config set KEY VALUE` changes one.

[provider]
# name = "claude"            # the agent: see `longhaul provider list`
# fallback = ["codex"]       # go on with these when it is at its limit or keeps failing
# model = ""                 # empty: the agent's own default

[run]
# max_iterations = "none"
# max_duration = "none"      # "8h"

[budget]
# usd = "none"               # 20.0

[gates]
"#;

/// Gates when none were found.
const NO_GATES: &str = r#"# Checks that must pass before "done" counts. None were found; they are looked for at each start.
# [[gates.commands]]
# name = "test"
# run = "make test"
"#;

/// Runs the command in the project `paths`.
pub fn init(
    arguments: &InitArgs,
    paths: &ProjectPaths,
    templates: &Templates,
    hooks: &InitHooks<'_>,
    output: &mut Output,
) -> Result<ExitCode, CliError> {
    if arguments.list {
        return list(templates, arguments.json, output);
    }
    let if_there = if arguments.force { IfThere::Replace } else { IfThere::Refuse };
    match arguments.save.as_deref() {
        Some([name, file]) => save(templates, name, Path::new(file), if_there, output),
        _ => set_up(arguments.template.as_deref(), if_there, paths, templates, hooks, output),
    }
}

fn list(templates: &Templates, json: bool, output: &mut Output) -> Result<ExitCode, CliError> {
    let all = templates.list()?;
    if json {
        let entry = |t: &Template| json!({ "name": t.name, "summary": t.summary(), "source": t.source });
        output.json(&all.iter().map(entry).collect::<Vec<_>>())?;
        return Ok(ExitCode::Done);
    }
    let width = all.iter().map(|template| template.name.chars().count()).max().unwrap_or(0);
    for template in &all {
        let name = format!("{:width$}", template.name);
        let own = if template.source == Source::User { " (yours)" } else { "" };
        let line = format!("{}  {}{own}", output.styled(Style::Bold, &name), plain(template.summary()));
        output.line(line)?;
    }
    Ok(ExitCode::Done)
}

fn save(
    templates: &Templates,
    name: &std::ffi::OsStr,
    file: &Path,
    if_there: IfThere,
    output: &mut Output,
) -> Result<ExitCode, CliError> {
    let name = name.to_str().ok_or_else(|| CliError::usage("a template's name must be valid UTF-8"))?;
    // The name first: a bad one touches no file.
    crate::intake::template::check_name(name).map_err(|rule| {
        let name = name.chars().take(40).collect();
        CliError::from(TemplateError::Name { name, rule })
    })?;
    let text = read_source(file)?;
    let path = templates.save(name, &text, if_there)?;
    let saved = Template { name: name.to_owned(), text, source: Source::User };
    warn_missing(&saved, &saved.draft().missing, output);
    output.notice(format!("saved as {}", path.display()));
    Ok(ExitCode::Done)
}

fn set_up(
    template: Option<&str>,
    if_there: IfThere,
    paths: &ProjectPaths,
    templates: &Templates,
    hooks: &InitHooks<'_>,
    output: &mut Output,
) -> Result<ExitCode, CliError> {
    let chosen = templates.get(template.unwrap_or(USUAL))?;
    let spec = paths.root.join(SPEC);
    let there = std::fs::symlink_metadata(&spec).is_ok();
    // A plain `init` in a project that has a spec only adds settings.
    let write_spec = !there || if_there == IfThere::Replace;
    if !write_spec && template.is_some() {
        return Err(spec_is_there());
    }

    std::fs::create_dir_all(&paths.dot).map_err(|error| cannot_write(&paths.dot, &error))?;
    let settings = settings_text(&(hooks.detect_gates)(&paths.root));
    match write_atomic(&paths.config, settings.as_bytes(), IfThere::Refuse) {
        Ok(()) => output.notice(format!("wrote {}", paths.config.display())),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            output.notice(format!("kept {}", paths.config.display()));
        }
        Err(error) => return Err(cannot_write(&paths.config, &error)),
    }
    if write_spec {
        let draft = chosen.draft();
        match write_atomic(&spec, draft.text.as_bytes(), if_there) {
            Ok(()) => output.notice(format!("wrote {SPEC} from the template `{}`", chosen.name)),
            // It came into being meanwhile.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(spec_is_there()),
            Err(error) => return Err(cannot_write(&spec, &error)),
        }
        warn_missing(&chosen, &draft.missing, output);
    } else {
        output.notice(format!("kept {SPEC}"));
    }
    if let Err(why) = (hooks.exclude)(&paths.root) {
        output.warn(format!("git does not ignore .longhaul/: {why}"));
    }
    output.notice(format!("next: fill in {SPEC}, then `longhaul run`"));
    Ok(ExitCode::Done)
}

fn warn_missing(template: &Template, missing: &[&str], output: &mut Output) {
    for section in missing {
        output.warn(format!(
            "template_incomplete: the template `{}` has no `## {section}`; specs made from it have it empty",
            template.name
        ));
    }
}

fn spec_is_there() -> CliError {
    CliError::usage(format!("{SPEC} is there already; nothing was written"))
        .hinted("--force replaces it; `longhaul init` without -t keeps it")
}

fn cannot_write(path: &Path, error: &io::Error) -> CliError {
    CliError::failed_to(format_args!("write {}: {error}", path.display()))
}

fn settings_text(gates: &[Gate]) -> String {
    let mut text = HEAD.to_owned();
    if gates.is_empty() {
        text.push_str(NO_GATES);
        return text;
    }
    text.push_str("# Checks that must pass before \"done\" counts, as found by `init`.\n");
    text.push_str("# Without any here they are looked for at each start.\n");
    for gate in gates {
        let (key, command) = match &gate.command {
            GateCommand::Shell(line) => ("shell", line.clone()),
            GateCommand::Argv(words) => match shlex::try_join(words.iter().map(String::as_str)) {
                Ok(line) => ("run", line),
                // A word with NUL, which no program can be given.
                Err(_) => continue,
            },
        };
        let [name, command] = [&gate.name, &command].map(|text| toml::Value::from(text.as_str()));
        text.push_str(&format!("\n[[gates.commands]]\nname = {name}\n{key} = {command}\n"));
    }
    text
}

// === errors ===

impl From<TemplateError> for CliError {
    fn from(error: TemplateError) -> Self {
        match error {
            TemplateError::Unknown { name, closest, names } => {
                let unknown = CliError::usage(format!("there is no template `{name}`; nothing was written"))
                    .hinted(format!("the templates are: {}", names.join(", ")));
                match closest {
                    Some(closest) => unknown.hinted(format!("did you mean `{closest}`?")),
                    None => unknown,
                }
            }
            TemplateError::Name { name, rule } => {
                CliError::usage(format!("bad template name {name:?}: {rule}"))
            }
            TemplateError::Exists(name) => {
                CliError::usage(format!("you have a template `{name}` already")).hinted("--force replaces it")
            }
            error @ (TemplateError::NoHome | TemplateError::Io { .. }) => CliError::failed_to(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::time::Duration;

    struct Fixture {
        dir: tempfile::TempDir,
    }

    impl Fixture {
        fn new() -> Self {
            let fixture = Fixture { dir: tempfile::tempdir().unwrap() };
            std::fs::create_dir(fixture.root()).unwrap();
            fixture
        }

        fn root(&self) -> std::path::PathBuf {
            self.dir.path().join("project")
        }

        /// Exit code or error, stdout, stderr.
        fn run(&self, line: &str, gates: &[Gate]) -> (Result<ExitCode, CliError>, String, String) {
            use super::super::args::{Cli, Command};
            let words =
                ["longhaul".to_owned(), "init".to_owned()].into_iter().chain(shlex::split(line).unwrap());
            let Command::Init(arguments) = Cli::try_parse_from(words).unwrap().command else {
                panic!("init")
            };
            let hooks = InitHooks { detect_gates: &|_| gates.to_vec(), exclude: &|_| Ok(()) };
            let (mut output, captured) = Output::captured();
            let templates = Templates::new(Some(&self.dir.path().join("home")));
            let code = init(&arguments, &ProjectPaths::new(self.root()), &templates, &hooks, &mut output);
            (code, captured.out(), captured.err())
        }

        fn spec(&self) -> String {
            std::fs::read_to_string(self.root().join(SPEC)).unwrap()
        }
    }

    fn gate(name: &str, command: GateCommand) -> Gate {
        Gate { name: name.into(), command, timeout: Duration::from_secs(1), env: Default::default() }
    }

    #[test]
    fn ep_007_an_unknown_template_writes_nothing() {
        let fixture = Fixture::new();
        let error = fixture.run("-t nonsuch", &[]).0.unwrap_err();
        assert_eq!(error.kind.exit_code(), ExitCode::Usage);
        assert_eq!(error.hints[0], "the templates are: bugfix, feature, new-project, refactor, tests");
        assert!(error.hints[1].starts_with("did you mean `"), "{}", error.hints[1]);
        assert_eq!(fixture.run("-t featur", &[]).0.unwrap_err().hints[1], "did you mean `feature`?");
        assert_eq!(std::fs::read_dir(fixture.dir.path()).unwrap().count(), 1, "not even our home");
        assert_eq!(std::fs::read_dir(fixture.root()).unwrap().count(), 0);
    }

    #[test]
    fn a_spec_is_never_replaced_unasked() {
        let fixture = Fixture::new();
        assert_eq!(fixture.run("-t bugfix", &[]).0, Ok(ExitCode::Done));
        assert!(fixture.spec().starts_with("# Bug: "));
        std::fs::write(fixture.root().join(SPEC), "mine").unwrap();
        std::fs::remove_dir_all(fixture.root().join(".longhaul")).unwrap();
        assert_eq!(fixture.run("-t feature", &[]).0.unwrap_err().kind.exit_code(), ExitCode::Usage);
        assert!(!fixture.root().join(".longhaul").exists(), "refused as a whole");
        let (code, _, err) = fixture.run("", &[]);
        assert_eq!(code, Ok(ExitCode::Done));
        assert!(err.contains("kept SPEC.md"), "{err}");
        assert_eq!(fixture.spec(), "mine");
        fixture.run("-t feature --force", &[]).0.unwrap();
        assert!(fixture.spec().starts_with("# Feature: "));
    }

    #[test]
    fn settings_are_valid_and_hold_the_gates_found() {
        let argv = |words: &[&str]| GateCommand::Argv(words.iter().map(|word| (*word).to_owned()).collect());
        let gates = [
            gate("test", argv(&["cargo", "test", "a 'b' \"c\""])),
            gate("all", GateCommand::Shell("make && ./check.sh".into())),
        ];
        for gates in [&gates[..], &[]] {
            let fixture = Fixture::new();
            fixture.run("", gates).0.unwrap();
            let path = fixture.root().join(".longhaul/config.toml");
            let config = crate::config::check_file(&path).unwrap().config;
            let found: Vec<_> = config.gates.commands.into_iter().map(|gate| gate.command).collect();
            let want: Vec<_> = gates.iter().map(|gate| gate.command.clone()).collect();
            assert_eq!(found, want);
            // Each commented setting is valid too.
            let text = std::fs::read_to_string(&path).unwrap();
            let uncommented: String = text
                .lines()
                .map(|line| if line.contains(" = ") { line.trim_start_matches("# ") } else { line })
                .map(|line| format!("{line}\n"))
                .collect();
            std::fs::write(&path, uncommented.replace("# [[", "[[")).unwrap();
            crate::config::check_file(&path).unwrap();
            std::fs::write(&path, "[run]\n").unwrap();
            fixture.run("", gates).0.unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "[run]\n", "settings are kept");
        }
    }

    #[test]
    fn saved_templates_are_listed_and_used() {
        let fixture = Fixture::new();
        let file = fixture.dir.path().join("api.md");
        std::fs::write(&file, "# An API\n## Goal\nx\n").unwrap();
        let save = format!("--save api {}", file.display());
        let (code, out, err) = fixture.run(&save, &[]);
        assert_eq!((code, out.as_str()), (Ok(ExitCode::Done), ""));
        assert_eq!(err.matches("warning: template_incomplete: ").count(), 2, "{err}");
        assert_eq!(fixture.run(&save, &[]).0.unwrap_err().hints, ["--force replaces it"]);
        assert_eq!(fixture.run(&format!("{save} --force"), &[]).0, Ok(ExitCode::Done));
        assert!(fixture.run("--list", &[]).1.starts_with("api          An API (yours)\nbugfix       Find"));
        let list: serde_json::Value = serde_json::from_str(&fixture.run("--list --json", &[]).1).unwrap();
        assert_eq!(list[0], json!({ "name": "api", "summary": "An API", "source": "user" }));
        let (_, _, err) = fixture.run("-t api", &[]);
        assert!(err.contains("template_incomplete: the template `api` has no `## Done when`"), "{err}");
        assert_eq!(fixture.spec(), "# An API\n## Goal\nx\n\n## Requirements\n\n## Done when\n");
    }

    #[test]
    fn bd_008_a_bad_name_is_refused_first() {
        let fixture = Fixture::new();
        let long = "a".repeat(500);
        for (name, rule) in
            [(long.as_str(), "at most 100"), ("../x", "`/`"), ("..", "dot"), ("'a\nb'", "control")]
        {
            for line in [format!("-t {name}"), format!("--save {name} /no/such/file")] {
                let error = fixture.run(&line, &[]).0.unwrap_err();
                assert_eq!(error.kind.exit_code(), ExitCode::Usage, "{line}");
                assert!(
                    error.message.starts_with("bad template name") && error.message.contains(rule),
                    "{error}"
                );
            }
        }
        assert_eq!(std::fs::read_dir(fixture.dir.path()).unwrap().count(), 1);
    }
}
