//! The project that a command is about, and what it finds there.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use jiff::tz::TimeZone;

use super::error::{CliError, ErrorKind};
use super::output::Output;
use crate::clock::Clock;
use crate::config::{self, Config, Environment, Lookup, ProjectPaths, Sources};
use crate::providers::registry::Registry;
use crate::store::{self, Holder, HostDb, StoreError, StorePaths};

/// What a command works with.
#[derive(Debug, Clone)]
pub struct Project {
    /// The project's files.
    pub paths: ProjectPaths,
    /// The environment of this program.
    pub environment: Environment,
    /// The clock.
    pub clock: Clock,
    /// In which times are shown.
    pub zone: TimeZone,
}

// === impl Project ===

impl Project {
    /// For commands that read: the project named or around the current folder, else the current folder, which then
    /// has no session.
    ///
    /// # Errors
    /// `--project` is no folder, or the current folder is gone.
    pub fn find(named: Option<&Path>, environment: &Environment) -> Result<Self, CliError> {
        let current = std::env::current_dir()
            .map_err(|error| CliError::failed_to(format_args!("find the current folder: {error}")))?;
        let home = environment.longhaul_home();
        let lookup = Lookup { named, current: &current, longhaul_home: home.as_deref() };
        let paths = lookup.find_or_current().map_err(|error| {
            let folder = named.unwrap_or(&current).display();
            CliError::usage(format!("the project folder {folder} cannot be used: {error}"))
                .hinted("name another with --project DIR")
        })?;
        Ok(Project {
            paths,
            environment: environment.clone(),
            clock: Clock::System,
            zone: crate::clock::local_zone(),
        })
    }

    /// For commands that change something: as [`find`](Self::find), and it must be a project.
    ///
    /// # Errors
    /// Also: there is no `.longhaul/`.
    pub fn required(named: Option<&Path>, environment: &Environment) -> Result<Self, CliError> {
        let project = Project::find(named, environment)?;
        project.must_exist()?;
        Ok(project)
    }

    /// Refuses a folder without `.longhaul/`.
    ///
    /// # Errors
    /// It has none.
    pub fn must_exist(&self) -> Result<(), CliError> {
        if self.paths.dot.is_dir() {
            return Ok(());
        }
        let root = self.paths.root.display();
        Err(CliError::usage(format!("there is no project here: {root} has no .longhaul/"))
            .hinted("`longhaul run` starts a session in a folder and makes it a project, `longhaul init` sets one up")
            .hinted("--project DIR names another folder"))
    }

    /// The project's files as the store names them.
    pub fn store_paths(&self) -> StorePaths {
        StorePaths::new(&self.paths.root)
    }

    /// Where its settings come from.
    pub fn sources(&self) -> Sources {
        Sources::new(&self.environment, Some(&self.paths), Vec::new())
    }

    /// Its settings; the defaults, with a warning, where they cannot be used: looking must always work.
    ///
    /// # Errors
    /// None that can be expected: the defaults are built in.
    pub fn config_or_defaults(&self, output: &mut Output) -> Result<Config, CliError> {
        match config::load(&self.sources()) {
            Ok(loaded) => Ok(loaded.config),
            Err(error) => {
                output.warn(format!("the settings cannot be used, the defaults are taken here: {error}"));
                Ok(config::load(&Sources::default())?.config)
            }
        }
    }

    /// What all projects of this host share; none: there is nothing yet.
    ///
    /// # Errors
    /// It cannot be read, or cannot be trusted.
    pub fn host_db(&self) -> Result<Option<HostDb>, StoreError> {
        let Some(home) = self.environment.longhaul_home() else { return Ok(None) };
        HostDb::open_sound(&home, self.clock.now())
    }

    /// The session that runs here.
    pub fn holder(&self) -> Option<Holder> {
        store::holder(&self.store_paths())
    }

    /// The environment by name.
    pub fn env(&self) -> BTreeMap<OsString, OsString> {
        self.environment.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    /// Built-in providers with those of the user and the project on top.
    ///
    /// # Errors
    /// A provider file that cannot be used.
    pub fn registry(&self) -> Result<Registry, CliError> {
        let mut folders: Vec<PathBuf> = Vec::new();
        folders
            .extend(self.environment.user_config().and_then(|file| Some(file.parent()?.join("providers"))));
        folders.push(self.paths.dot.join("providers"));
        Registry::load(&folders).map_err(|error| CliError::new(ErrorKind::Config, error.to_string()))
    }
}

#[cfg(test)]
impl Project {
    /// A project in `root` for tests, with times in UTC.
    pub fn at(root: &Path) -> Self {
        std::fs::create_dir_all(root.join(config::DOT)).unwrap();
        Project {
            paths: ProjectPaths::new(root.canonicalize().unwrap()),
            environment: Environment::default(),
            clock: Clock::System,
            zone: TimeZone::UTC,
        }
    }
}
