//! Layering: defaults < user's file < project's file < environment < command line.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::checked;
use super::environment::Environment;
use super::error::{ConfigError, Origin, Place, Problem};
use super::layer::{self, Layer, Setting};
use super::project::ProjectPaths;
use super::secret;
use super::settings::Config;

/// The defaults, with a comment for each key.
pub const DEFAULTS: &str = include_str!("../../config/default.toml");

/// Largest settings file that is read, in bytes: ours have a few kilobytes.
const LARGEST: u64 = 1 << 20;

/// Where settings come from. The environment and the command line are read once, at start; files again and
/// again.
#[derive(Clone, Default)]
pub struct Sources {
    /// The user's file; need not exist.
    pub user: Option<PathBuf>,
    /// The project's file; need not exist.
    pub project: Option<PathBuf>,
    /// Variables whose names begin with `LONGHAUL_`; others are ignored.
    pub environment: Vec<(OsString, OsString)>,
    /// From the command line; a later one wins.
    pub overrides: Vec<Override>,
}

/// One setting of the command line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Override {
    /// Dotted key.
    pub key: String,
    /// Its value as text.
    pub value: String,
    /// The option that set it, for example `--max-iterations`.
    pub option: String,
}

/// What the files held at one moment; `None`: there is no such file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Files {
    /// The user's.
    pub user: Option<String>,
    /// The project's.
    pub project: Option<String>,
}

/// Settings in force, with where each came from.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// Typed.
    pub config: Config,
    /// As written.
    pub settings: Settings,
}

/// Every setting in force by dotted key, as written, with its origin.
#[derive(Clone, PartialEq, Default)]
pub struct Settings(BTreeMap<String, Setting>);

/// Reads the files of `sources` and brings all layers together.
pub fn load(sources: &Sources) -> Result<Loaded, ConfigError> {
    resolve(sources, &sources.read()?)
}

/// Brings all layers together, with what the files held. Pure.
pub fn resolve(sources: &Sources, files: &Files) -> Result<Loaded, ConfigError> {
    let mut problems = Vec::new();
    let mut merged = Layer::new();
    let mut add = |layer: Result<Layer, Vec<Problem>>| match layer {
        Ok(layer) => merged.extend(layer),
        Err(found) => problems.extend(found),
    };
    add(layer::from_text(DEFAULTS, None));
    for (path, text) in [(&sources.user, &files.user), (&sources.project, &files.project)] {
        if let (Some(path), Some(text)) = (path, text) {
            add(layer::from_text(text, Some(&Arc::from(path.as_path()))));
        }
    }
    let variables =
        sources.environment.iter().filter_map(|(name, value)| Some((name.to_str()?, value.to_str())));
    add(layer::from_environment(variables));
    for Override { key, value, option } in &sources.overrides {
        add(layer::from_pair(key, value, Origin::CommandLine(option.clone())).map(|pair| [pair].into()));
    }
    if !problems.is_empty() {
        return Err(ConfigError::Invalid(problems));
    }
    let settings = Settings(merged);
    let config = checked::check(&settings, sources.project.as_deref()).map_err(ConfigError::Invalid)?;
    Ok(Loaded { config, settings })
}

/// Checks one file by itself, over the defaults.
pub fn check_file(path: &Path) -> Result<Loaded, ConfigError> {
    let sources = Sources { project: Some(path.to_owned()), ..Sources::default() };
    let files = sources.read()?;
    if files.project.is_none() {
        let source = io::Error::from(io::ErrorKind::NotFound);
        return Err(ConfigError::Io { action: "read", path: path.to_owned(), source });
    }
    resolve(&sources, &files)
}

/// Reads a settings file; `None` where there is none.
pub(super) fn read_file(path: &Path) -> Result<Option<String>, ConfigError> {
    let failed = |source| ConfigError::Io { action: "read", path: path.to_owned(), source };
    let odd = |what: &str| failed(io::Error::new(io::ErrorKind::InvalidInput, what));
    // Looked at before it is opened: opening a pipe would wait for a writer.
    match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
        Ok(data) if !data.is_file() => return Err(odd("not a regular file")),
        Ok(_) => {}
    }
    let mut bytes = Vec::new();
    match File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
        Ok(_) if bytes.len() as u64 > LARGEST => return Err(odd("larger than 1 MiB")),
        Ok(_) => {}
    }
    String::from_utf8(bytes).map(Some).map_err(|error| {
        let good =
            String::from_utf8_lossy(&error.as_bytes()[..error.utf8_error().valid_up_to()]).into_owned();
        let place = Place::new(&Arc::from(path), &good, good.len()..good.len());
        ConfigError::Invalid(vec![Problem {
            origin: Origin::File(place),
            message: "not valid UTF-8".to_owned(),
            hint: None,
        }])
    })
}

// === impl Sources ===

impl Sources {
    /// Those of a process: its environment, the project it is about, its options.
    pub fn new(environment: &Environment, project: Option<&ProjectPaths>, overrides: Vec<Override>) -> Self {
        Sources {
            user: environment.user_config(),
            project: project.map(|paths| paths.config.clone()),
            environment: environment.settings(),
            overrides,
        }
    }

    /// Reads the files as they are now.
    pub fn read(&self) -> Result<Files, ConfigError> {
        let read = |path: &Option<PathBuf>| path.as_deref().map_or(Ok(None), read_file);
        Ok(Files { user: read(&self.user)?, project: read(&self.project)? })
    }
}

impl fmt::Debug for Sources {
    /// Without the values of variables, which may be keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.environment.iter().map(|(name, _)| name).collect();
        f.debug_struct("Sources")
            .field("user", &self.user)
            .field("project", &self.project)
            .field("environment", &names)
            .field("overrides", &self.overrides)
            .finish()
    }
}

// === impl Settings ===

impl fmt::Debug for Settings {
    /// Secrets masked.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |(key, setting): (&str, &Setting)| (key.to_owned(), secret::masked(key, &setting.value));
        f.debug_map().entries(self.iter().map(shown)).finish()
    }
}

impl Settings {
    /// The setting at a dotted key.
    pub fn get(&self, key: &str) -> Option<&Setting> {
        self.0.get(key)
    }

    /// All, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Setting)> {
        self.0.iter().map(|(key, setting)| (key.as_str(), setting))
    }

    /// As nested tables.
    pub(super) fn to_table(&self) -> Table {
        let mut root = Table::new();
        for (key, setting) in self.iter() {
            let (sections, name) = key.rsplit_once('.').unwrap_or(("", key));
            let mut table = &mut root;
            for section in sections.split('.').filter(|section| !section.is_empty()) {
                let entry = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
                match entry {
                    Value::Table(inner) => table = inner,
                    // No key is the prefix of another: layers have known keys only.
                    _ => return root,
                }
            }
            table.insert(name.to_owned(), setting.value.clone());
        }
        root
    }
}
