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
        own || !(foreign || unwanted || ours)
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
