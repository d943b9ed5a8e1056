//! From a definition and a request to a program, its arguments, its whole environment and its stdin.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::call::{CallRequest, StartFailure};
use super::definition::{Arg, Definition, NamePattern, Place, PromptBy};
use super::resolve::find_program;

/// Everything that is needed to start a call. The environment is complete: nothing else is inherited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    /// Absolute path of the program.
    pub program: PathBuf,
    /// Arguments after the program.
    pub args: Vec<OsString>,
    /// The whole environment.
    pub env: BTreeMap<OsString, OsString>,
    /// Written to stdin, which is then closed. `None`: stdin is `/dev/null`. Never an open, silent pipe:
    /// codex and opencode wait on that for ever.
    pub stdin: Option<Vec<u8>>,
    /// Folder to work in.
    pub cwd: PathBuf,
}

/// What a command line is built from besides the request.
#[derive(Debug, Clone)]
pub struct Host<'a> {
    /// The supervisor's own environment.
    pub env: &'a BTreeMap<OsString, OsString>,
    /// We run as root.
    pub root: bool,
    /// The project's folder: relative programs are taken from it.
    pub project: &'a Path,
    /// Variables that a person wants to reach the agent, whatever the rules say.
    pub keep: &'a [String],
    /// Keys of all other providers ([`super::registry::Registry::foreign_keys`]).
    pub foreign_keys: &'a [NamePattern],
}

/// Why no command line can be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The program cannot be used.
    #[error("{failure}{}", hint(.install))]
    Program {
        /// Why.
        failure: StartFailure,
        /// How to install it.
        install: Option<String>,
    },
    /// The provider has no program: it runs in process, or needs `--agent CMD`.
    #[error("provider {0} has no program to start; give one with --agent")]
    NoProgram(String),
    /// An argument is longer than Linux takes.
    #[error(
        "the prompt has {bytes} bytes, but {provider} takes it only as an argument, which Linux limits to {max} \
         bytes (E2BIG): make the prompt shorter or use a provider that reads it from stdin"
    )]
    PromptTooLong {
        /// The provider.
        provider: String,
        /// The prompt's size.
        bytes: usize,
        /// The most that fits.
        max: usize,
    },
    /// A NUL byte cannot be passed as an argument or in the environment.
    #[error("{0} has a NUL byte, which cannot be passed to a program")]
    Nul(String),
    /// The provider cannot do what is asked.
    #[error("{provider} cannot resume a conversation")]
    NoResume {
        /// The provider.
        provider: String,
    },
}

/// Longest single argument that we pass. Linux's `MAX_ARG_STRLEN` is 131,072 bytes with the final NUL.
pub const ARGUMENT_MAX: usize = 128 * 1024 - 1;

/// Variables that point git at another repository than the agent's folder, as inside a git hook.
const GIT_POINTERS: [&str; 7] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_OBJECT_DIRECTORY",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
];

/// Builds the command line of one call.
pub fn build(
    definition: &Definition,
    request: &CallRequest,
    host: &Host<'_>,
) -> Result<CommandLine, BuildError> {
    let args = arguments(definition, request)?;
    let env = environment(definition, request, host)?;
    let program = program(definition, &env, host)?;
    let stdin = match definition.prompt {
        PromptBy::Stdin => Some(request.prompt.clone().into_bytes()),
        PromptBy::Argument => None,
    };
    Ok(CommandLine { program, args, env, stdin, cwd: request.cwd.clone() })
}

/// The command that tells the provider's version, with the environment of a call; `None` without a probe.
pub fn version_probe(definition: &Definition, host: &Host<'_>) -> Result<Option<CommandLine>, BuildError> {
    let Some(probe) = &definition.version else { return Ok(None) };
    let request = CallRequest { cwd: host.project.to_owned(), ..CallRequest::default() };
    let env = environment(definition, &request, host)?;
    let program = program(definition, &env, host)?;
    let args = probe.args.iter().map(OsString::from).collect();
    Ok(Some(CommandLine { program, args, env, stdin: None, cwd: request.cwd }))
}

/// The files that hold the provider's credential under this environment. A file whose variable is not set is
/// left out.
pub fn credential_files(definition: &Definition, env: &BTreeMap<OsString, OsString>) -> Vec<PathBuf> {
    let folder = |name: &str| env.get(OsStr::new(name)).filter(|value| !value.is_empty()).map(PathBuf::from);
    let expand = |written: &String| match written.strip_prefix("~/") {
        Some(rest) => Some(folder("HOME")?.join(rest)),
        None => match written.strip_prefix('$').and_then(|rest| rest.split_once('/')) {
            Some((name, rest)) => Some(folder(name)?.join(rest)),
            None => Some(PathBuf::from(written)),
        },
    };
    definition.credential_files.iter().filter_map(expand).collect()
}

fn program(
    definition: &Definition,
    env: &BTreeMap<OsString, OsString>,
    host: &Host<'_>,
) -> Result<PathBuf, BuildError> {
    let Some(name) = &definition.program else { return Err(BuildError::NoProgram(definition.name.clone())) };
    let path = env.get(OsStr::new("PATH")).map(OsString::as_os_str);
    find_program(name, path, host.project)
        .map_err(|failure| BuildError::Program { failure, install: definition.install.clone() })
}

fn arguments(definition: &Definition, request: &CallRequest) -> Result<Vec<OsString>, BuildError> {
    if request.resume.is_some() && !definition.can_resume() {
        return Err(BuildError::NoResume { provider: definition.name.clone() });
    }
    let flags = &definition.flags;
    let prompt_alone = ["{}".to_owned()];
    let mut args = Vec::new();
    for arg in &definition.args {
        let (items, value) = match arg {
            Arg::Text(text) => {
                args.push(OsString::from(text));
                continue;
            }
            Arg::Place(Place::Model) => (flags.model.as_slice(), request.model.clone()),
            Arg::Place(Place::Resume) => (flags.resume.as_slice(), request.resume.clone()),
            Arg::Place(Place::MaxTurns) => {
                (flags.max_turns.as_slice(), request.caps.max_turns.map(|turns| turns.to_string()))
            }
            Arg::Place(Place::MaxBudgetUsd) => {
                (flags.max_budget_usd.as_slice(), request.caps.max_budget_usd.map(|usd| usd.to_string()))
            }
            Arg::Place(Place::Prompt) => {
                let items = if flags.prompt.is_empty() { &prompt_alone[..] } else { flags.prompt.as_slice() };
                (items, Some(request.prompt.clone()))
            }
        };
        if let Some(value) = value {
            args.extend(items.iter().map(|item| OsString::from(item.replace("{}", &value))));
        }
    }
    for arg in &args {
        if arg.as_encoded_bytes().contains(&0) {
            return Err(BuildError::Nul("the prompt or an argument".to_owned()));
        }
        if arg.len() > ARGUMENT_MAX {
            let (provider, bytes) = (definition.name.clone(), request.prompt.len());
            return Err(BuildError::PromptTooLong { provider, bytes, max: ARGUMENT_MAX });
        }
    }
    Ok(args)
}

fn environment(
    definition: &Definition,
    request: &CallRequest,
    host: &Host<'_>,
) -> Result<BTreeMap<OsString, OsString>, BuildError> {
    let rules = &definition.env;
    let inherited = |name: &OsStr| {
        let Some(name) = name.to_str() else { return true };
        let own = rules.keys.iter().any(|key| key.matches(name));
        let foreign = host.foreign_keys.iter().any(|key| key.matches(name));
        let unwanted =
            rules.remove.iter().any(|pattern| pattern.matches(name)) || GIT_POINTERS.contains(&name);
        // Our settings may hold secrets; an agent that calls longhaul needs to know only where its home is.
        let ours = name.starts_with("LONGHAUL_") && name != "LONGHAUL_HOME";
        own || host.keep.iter().any(|kept| kept == name) || !(foreign || unwanted || ours)
    };
    let mut env: BTreeMap<OsString, OsString> =
        host.env.iter().filter(|(name, _)| inherited(name)).map(|(n, v)| (n.clone(), v.clone())).collect();

    for (name, value) in &rules.set_default {
        env.entry(name.into()).or_insert_with(|| value.into());
    }
    let as_root = rules.set_as_root.iter().filter(|_| host.root);
    env.extend(rules.set.iter().chain(as_root).map(|(name, value)| (name.into(), value.into())));
    env.extend(request.vars.iter().map(|(name, value)| (name.into(), value.clone())));
    match env.iter().find(|(_, value)| value.as_encoded_bytes().contains(&0)) {
        Some((name, _)) => Err(BuildError::Nul(name.display().to_string())),
        None => Ok(env),
    }
}

fn hint(install: &Option<String>) -> String {
    install.as_ref().map(|how| format!("; install it with: {how}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::call::Caps;
    use crate::providers::registry::Registry;

    /// A folder with programs, and an environment around it.
    struct World {
        folder: tempfile::TempDir,
        registry: Registry,
        env: BTreeMap<OsString, OsString>,
    }

    // === impl World ===

    impl World {
        fn new(extra: &[(&str, &str)]) -> Self {
            use std::os::unix::fs::PermissionsExt;
            let folder = tempfile::tempdir().unwrap();
            for program in ["claude", "codex", "gemini", "opencode", "cline", "aider"] {
                let file = folder.path().join(program);
                std::fs::write(&file, "#!/bin/sh\n").unwrap();
                std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
            }
            let mut env: BTreeMap<OsString, OsString> =
                extra.iter().map(|(name, value)| (name.into(), value.into())).collect();
            env.insert("PATH".into(), folder.path().into());
            World { folder, registry: Registry::load(&[]).unwrap(), env }
        }

        fn build(&self, definition: &Definition, request: &CallRequest) -> Result<CommandLine, BuildError> {
            self.build_as(definition, request, /* root */ false)
        }

        fn build_as(
            &self,
            definition: &Definition,
            request: &CallRequest,
            root: bool,
        ) -> Result<CommandLine, BuildError> {
            let foreign_keys = self.registry.foreign_keys(definition);
            build(
                definition,
                request,
                &Host {
                    env: &self.env,
                    root,
                    project: self.folder.path(),
                    keep: &[],
                    foreign_keys: &foreign_keys,
                },
            )
        }

        fn args(&self, provider: &str, request: &CallRequest) -> String {
            let line = self.build(self.registry.get(provider).unwrap(), request).unwrap();
            let args: Vec<_> = line.args.iter().map(|arg| arg.to_str().unwrap()).collect();
            args.join(" ")
        }
    }

    fn request(prompt: &str) -> CallRequest {
        CallRequest { prompt: prompt.into(), cwd: "/lane".into(), ..CallRequest::default() }
    }

    fn full() -> CallRequest {
        CallRequest {
            model: Some("m1".into()),
            resume: Some("id-7".into()),
            caps: Caps { max_turns: Some(30), max_budget_usd: Some(2.5) },
            ..request("go")
        }
    }

    /// Verified with the real CLIs.
    #[test]
    fn argument_lists_are_the_recorded_recipes() {
        let world = World::new(&[]);
        for (provider, bare, all) in [
            (
                "claude",
                "-p --output-format stream-json --verbose --dangerously-skip-permissions",
                Some(
                    "-p --output-format stream-json --verbose --dangerously-skip-permissions --model m1 --resume id-7 \
                     --max-turns 30 --max-budget-usd 2.5",
                ),
            ),
            (
                "codex",
                "exec --json --dangerously-bypass-approvals-and-sandbox --skip-git-repo-check --disable plugins \
                 --disable shell_snapshot",
                Some(
                    "exec resume id-7 --json --dangerously-bypass-approvals-and-sandbox --skip-git-repo-check \
                     --disable plugins --disable shell_snapshot --model m1",
                ),
            ),
            (
                "gemini",
                "--approval-mode yolo -o stream-json",
                Some("--approval-mode yolo -o stream-json -m m1 --resume id-7"),
            ),
            ("opencode", "run --format json --auto", Some("run --format json --auto --model m1 -s id-7")),
            ("cline", "--json go", None),
        ] {
            assert_eq!(world.args(provider, &request("go")), bare, "{provider}");
            if let Some(all) = all {
                assert_eq!(world.args(provider, &full()), all, "{provider}");
            }
        }
        let aider = world.args("aider", &request("go"));
        assert!(aider.contains("--yes-always") && aider.ends_with("--message go"), "{aider}");
    }

    #[test]
    fn a_prompt_goes_to_stdin_or_is_one_argument() {
        let world = World::new(&[]);
        let prompt = "say \"hi\"\n{model} 'x' $HOME é";
        let by_stdin = world.build(world.registry.get("claude").unwrap(), &request(prompt)).unwrap();
        assert_eq!(by_stdin.stdin.as_deref(), Some(prompt.as_bytes()));
        assert!(!by_stdin.args.contains(&prompt.into()));
        assert_eq!((by_stdin.program, by_stdin.cwd), (world.folder.path().join("claude"), "/lane".into()));
        let by_argument = world.build(world.registry.get("cline").unwrap(), &request(prompt)).unwrap();
        assert_eq!((by_argument.stdin, by_argument.args), (None, vec!["--json".into(), prompt.into()]));
    }

    #[test]
    fn a_prompt_that_does_not_fit_an_argument_is_told_before_the_kernel_does() {
        let world = World::new(&[]);
        let cline = world.registry.get("cline").unwrap();
        assert!(world.build(cline, &request(&"x".repeat(ARGUMENT_MAX))).is_ok());
        let error = world.build(cline, &request(&"x".repeat(ARGUMENT_MAX + 1))).unwrap_err();
        assert!(error.to_string().contains("E2BIG"), "{error}");
        assert!(world.build(world.registry.get("claude").unwrap(), &request(&"x".repeat(5_000_000))).is_ok());
        let nul = world.build(cline, &request("a\0b")).unwrap_err();
        assert!(nul.to_string().contains("NUL"), "{nul}");
        assert!(
            world.build(world.registry.get("claude").unwrap(), &request("a\0b")).is_ok(),
            "stdin takes any byte"
        );
    }

    #[test]
    fn c16_an_agent_gets_its_own_keys_and_nobody_elses() {
        let mut world = World::new(&[
            ("ANTHROPIC_API_KEY", "a"),
            ("OPENAI_API_KEY", "o"),
            ("GEMINI_API_KEY", "g"),
            ("LONGHAUL_TOKEN", "t"),
            ("LONGHAUL_NOTIFY__WEBHOOK", "secret"),
            ("LONGHAUL_HOME", "/h"),
            ("LONGHAUL_SESSION", "outer"),
            ("CLAUDECODE", "1"),
            ("CLAUDE_CODE_ENTRYPOINT", "cli"),
            ("GIT_DIR", "/elsewhere/.git"),
            ("DISABLE_TELEMETRY", "0"),
            ("DISABLE_AUTOUPDATER", "0"),
            ("EDITOR", "vi"),
        ]);
        world.env.insert("BYTES".into(), std::os::unix::ffi::OsStringExt::from_vec(vec![0xff]));
        let vars = vec![("LONGHAUL_SESSION".to_owned(), OsString::from("mine"))];
        let request = CallRequest { vars, ..request("go") };
        let claude = world.registry.get("claude").unwrap();
        let line = world.build(claude, &request).unwrap();
        let get =
            |name: &str| line.env.get(OsStr::new(name)).map(|value| value.to_string_lossy().into_owned());
        for (name, value) in [
            ("ANTHROPIC_API_KEY", Some("a")),
            ("OPENAI_API_KEY", None),
            ("GEMINI_API_KEY", None),
            ("LONGHAUL_TOKEN", None),
            ("LONGHAUL_NOTIFY__WEBHOOK", None),
            ("LONGHAUL_HOME", Some("/h")),
            ("LONGHAUL_SESSION", Some("mine")),
            ("CLAUDECODE", None),
            ("CLAUDE_CODE_ENTRYPOINT", None),
            ("GIT_DIR", None),
            ("DISABLE_TELEMETRY", Some("0")),
            ("DISABLE_AUTOUPDATER", Some("1")),
            ("EDITOR", Some("vi")),
            ("IS_SANDBOX", None),
        ] {
            assert_eq!(get(name).as_deref(), value, "{name}");
        }
        assert!(line.env.contains_key(OsStr::new("BYTES")));
        let root = world.build_as(claude, &request, true).unwrap();
        assert_eq!(root.env.get(OsStr::new("IS_SANDBOX")), Some(&"1".into()));
    }

    #[test]
    fn an_agent_command_of_a_known_program_keeps_that_programs_keys() {
        let world = World::new(&[("ANTHROPIC_API_KEY", "a"), ("OPENAI_API_KEY", "o")]);
        let command = world.registry.get("command").unwrap();
        let keys = |program: &str| {
            let agent = command.with_command(&[program.to_owned(), "-x".to_owned()]);
            let line = world.build(&agent, &request("go")).unwrap();
            assert_eq!(line.args, ["-x"]);
            ["ANTHROPIC_API_KEY", "OPENAI_API_KEY"].map(|name| line.env.contains_key(OsStr::new(name)))
        };
        assert_eq!(keys("./claude"), [true, false]);
        assert_eq!(keys("codex"), [false, true]);
        assert_eq!(keys("cline"), [false, false]);
        assert!(matches!(world.build(command, &request("go")), Err(BuildError::NoProgram(_))));
    }

    #[test]
    fn a_missing_program_says_how_to_install_it() {
        let mut world = World::new(&[]);
        world.env.insert("PATH".into(), "/nowhere".into());
        let error =
            world.build(world.registry.get("codex").unwrap(), &request("go")).unwrap_err().to_string();
        assert_eq!(error, "codex (on PATH) was not found; install it with: npm install -g @openai/codex");
    }

    #[test]
    fn what_a_cli_cannot_do_is_an_error() {
        let world = World::new(&[]);
        let resumed = CallRequest { resume: Some("x".into()), ..request("go") };
        let error = world.build(world.registry.get("cline").unwrap(), &resumed).unwrap_err();
        assert_eq!(error.to_string(), "cline cannot resume a conversation");
        // A cap that a CLI has no flag for is ours to enforce.
        let capped =
            CallRequest { caps: Caps { max_turns: Some(1), max_budget_usd: Some(1.0) }, ..request("go") };
        assert!(!world.args("codex", &capped).contains('1'));
    }

    #[test]
    fn probes_and_credential_files() {
        let world = World::new(&[("HOME", "/home/u"), ("CLAUDE_CONFIG_DIR", "/cfg"), ("CODEX_HOME", "")]);
        let host =
            Host { env: &world.env, root: false, project: world.folder.path(), keep: &[], foreign_keys: &[] };
        let probe = version_probe(world.registry.get("claude").unwrap(), &host).unwrap().unwrap();
        assert_eq!((probe.args, probe.stdin), (vec!["--version".into()], None));
        assert_eq!(version_probe(world.registry.get("rehearsal").unwrap(), &host), Ok(None));
        let files = |provider| credential_files(world.registry.get(provider).unwrap(), &world.env);
        let claude = ["/cfg/.credentials.json", "/home/u/.claude/.credentials.json", "/home/u/.claude.json"];
        assert_eq!(files("claude"), claude.map(PathBuf::from));
        assert_eq!(files("codex"), [PathBuf::from("/home/u/.codex/auth.json")]);
    }
}
