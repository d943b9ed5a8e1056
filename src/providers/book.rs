//! The providers of one run: the known ones, with `--agent CMD` in the place of `command`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::call::CallRequest;
use super::command_line::{self, BuildError, Host};
use super::definition::{Definition, NamePattern, OutputFormat};
use super::registry::Registry;
use super::rehearsal::Script;
use crate::domain::outcome::Exit;
use crate::process::{CallSpec, run_capture};

/// The providers of one run.
#[derive(Debug)]
pub struct ProviderBook {
    registry: Registry,
    /// Shared, so that what a definition compiles at first use is compiled once.
    definitions: BTreeMap<String, Arc<Definition>>,
    script: Option<Script>,
}

/// Why a provider cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// There is none of this name.
    #[error("there is no provider `{name}`{}", .suggestion.as_ref().map(|s| format!(", did you mean `{s}`?")).unwrap_or_default())]
    Unknown {
        /// The name.
        name: String,
        /// The closest known one.
        suggestion: Option<String>,
    },
    /// Its program cannot be started.
    #[error("provider `{name}` cannot be used: {error}")]
    Program {
        /// The provider.
        name: String,
        /// Why.
        error: BuildError,
    },
    /// Its program refuses to start.
    #[error("provider `{name}` cannot be used: {program} ends at once with code {code}: it, or what it needs, cannot be run{}", .install.as_ref().map(|how| format!("; install it with: {how}")).unwrap_or_default())]
    Refuses {
        /// The provider.
        name: String,
        /// Its program.
        program: String,
        /// Its exit code: 126 or 127.
        code: i32,
        /// How to install it.
        install: Option<String>,
    },
    /// It plays a script, and there is none.
    #[error("provider `rehearsal` plays a script, and there is none")]
    NoScript,
}

// === impl ProviderBook ===

impl ProviderBook {
    /// `agent`: the words of `--agent CMD`. `paths`: programs that the settings name, by provider. `script`: what
    /// `rehearsal` plays.
    pub fn new(
        registry: Registry,
        agent: Option<&[String]>,
        paths: &BTreeMap<String, PathBuf>,
        script: Option<Script>,
    ) -> Self {
        let mut definitions = BTreeMap::new();
        for name in registry.names() {
            let Some(known) = registry.get(name) else { continue };
            let mut definition = known.clone();
            if let Some(path) = paths.get(name).filter(|_| !known.in_process()) {
                definition.program = Some(path.display().to_string());
            }
            if let Some(words) = agent.filter(|_| name == "command") {
                definition = definition.with_command(words);
            }
            definitions.insert(name.to_owned(), Arc::new(definition));
        }
        ProviderBook { registry, definitions, script }
    }

    /// The provider of that name.
    pub fn definition(&self, name: &str) -> Option<Arc<Definition>> {
        self.definitions.get(name).cloned()
    }

    /// The script that `rehearsal` plays.
    pub fn script(&self) -> Option<&Script> {
        self.script.as_ref()
    }

    /// Variables that hold keys of other providers.
    pub fn foreign_keys(&self, definition: &Definition) -> Vec<NamePattern> {
        self.registry.foreign_keys(definition)
    }

    /// Says why provider `name` cannot be used here. Looks for its program; starts nothing.
    ///
    /// # Errors
    /// What is missing, and how to get it.
    pub fn usable(
        &self,
        name: &str,
        project: &Path,
        env: &BTreeMap<OsString, OsString>,
    ) -> Result<(), Unusable> {
        let Some(definition) = self.definition(name) else {
            let suggestion = self.registry.suggest(name).map(str::to_owned);
            return Err(Unusable::Unknown { name: name.to_owned(), suggestion });
        };
        if definition.in_process() {
            return self.script.as_ref().map(|_| ()).ok_or(Unusable::NoScript);
        }
        let request = CallRequest { cwd: project.to_owned(), ..CallRequest::default() };
        let root = rustix::process::geteuid().is_root();
        let host = Host { env, root, project, keep: &[], foreign_keys: &[] };
        let built = command_line::build(&definition, &request, &host);
        built.map(|_| ()).map_err(|error| Unusable::Program { name: name.to_owned(), error })
    }
}

impl ProviderBook {
    /// The same as [`ProviderBook::usable`], and starts the program once to ask for its version, where it has one.
    /// Blocks for up to ten seconds: whoever does not answer by then is not known to be unusable.
    ///
    /// # Errors
    /// What is missing, and how to get it.
    pub fn starts(
        &self,
        name: &str,
        project: &Path,
        env: &BTreeMap<OsString, OsString>,
    ) -> Result<(), Unusable> {
        const LIMIT: std::time::Duration = std::time::Duration::from_secs(10);
        self.usable(name, project, env)?;
        let Some(definition) = self.definition(name) else { return Ok(()) };
        let root = rustix::process::geteuid().is_root();
        let host = Host { env, root, project, keep: &[], foreign_keys: &[] };
        let unusable = |error| Unusable::Program { name: name.to_owned(), error };
        let Some(line) = command_line::version_probe(&definition, &host).map_err(unusable)? else {
            return Ok(());
        };
        let program = line.program.display().to_string();
        let mut argv = vec![line.program.into_os_string()];
        argv.extend(line.args);
        let spec = CallSpec { argv, env: line.env.into_iter().collect(), cwd: line.cwd, stdin: Vec::new() };
        match run_capture(&spec, LIMIT).map(|said| said.exit) {
            // What a shell says where there is no such program, or it may not be run.
            Ok(Exit::Code(code @ (126 | 127))) => {
                let install = definition.install.clone();
                Err(Unusable::Refuses { name: name.to_owned(), program, code, install })
            }
            _ => Ok(()),
        }
    }
}

// === impl Definition ===

impl Definition {
    /// It runs within the supervisor and needs no process.
    pub fn in_process(&self) -> bool {
        self.output == OutputFormat::Rehearsal
    }

    /// Its CLI ends a call that passes a limit of cost.
    pub fn caps_cost(&self) -> bool {
        !self.flags.max_budget_usd.is_empty()
    }

    /// What a call costs is known: the provider says it, or it tells tokens and the price of `model` is known.
    pub fn tells_cost(&self, model: Option<&str>) -> bool {
        matches!(
            self.output,
            OutputFormat::ClaudeStreamJson | OutputFormat::OpencodeJson | OutputFormat::Rehearsal
        ) || (self.output != OutputFormat::Text && model.is_some_and(|model| self.price(model).is_some()))
            || !self.prices.is_empty()
    }
}
