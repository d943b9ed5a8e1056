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

// === impl Definition ===

impl Definition {
    /// It runs within the supervisor and needs no process.
    pub fn in_process(&self) -> bool {
        self.output == OutputFormat::Rehearsal
    }

    /// What a call costs is known: the provider says it, or its prices are known.
    pub fn tells_cost(&self) -> bool {
        matches!(self.output, OutputFormat::ClaudeStreamJson | OutputFormat::Rehearsal)
            || !self.prices.is_empty()
    }
}
