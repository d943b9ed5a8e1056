//! Opening a repository with libgit2 as git would in the same environment.

use std::path::{Path, PathBuf};
use std::sync::Once;

use git2::{ConfigLevel, Repository};

use super::Environment;

/// A path at which there can never be a file.
const NOWHERE: &str = "/dev/null/none";

/// Opens one repository, as often as needed.
#[derive(Debug, Clone)]
pub(super) struct Opener {
    /// The folder with `.git`: the top of the work tree.
    pub(super) folder: PathBuf,
    pub(super) environment: Environment,
    /// What is written is synced, so that it survives a power cut.
    pub(super) durable: bool,
}

// === impl Opener ===

impl Opener {
    /// Opens the repository in the folder; never one above it.
    pub(super) fn open(&self) -> Result<Repository, git2::Error> {
        static TUNED: Once = Once::new();
        TUNED.call_once(|| {
            // We only write objects whose parts we have written before, and only read what git keeps sound.
            git2::opts::strict_object_creation(false);
            git2::opts::strict_hash_verification(false);
            // Each object is read once: keeping them costs memory and saves nothing.
            git2::opts::enable_caching(false);
        });
        let repository = Repository::open(&self.folder)?;
        use_configuration_of(&self.environment, &repository)?;
        if self.durable {
            sync_writes(&repository)?;
        }
        Ok(repository)
    }
}

/// Our folder in the git directory of the work tree: it is safe there from `git clean -fdx`.
pub(super) fn private_folder(repository: &Repository) -> PathBuf {
    repository.path().join("longhaul")
}

/// libgit2 syncs objects and references only when the configuration says so; this one is read by us alone.
fn sync_writes(repository: &Repository) -> Result<(), git2::Error> {
    let file = private_folder(repository).join("durable.config");
    if !file.exists() {
        let made = std::fs::create_dir_all(private_folder(repository))
            .and_then(|()| std::fs::write(&file, "[core]\n\tfsyncObjectFiles = true\n"));
        made.map_err(|error| git2::Error::from_str(&format!("write {}: {error}", file.display())))?;
    }
    repository.config()?.add_file(&file, ConfigLevel::App, true)
}

/// libgit2 knows nothing of the variables by which git finds its configuration (git-config(1), ENVIRONMENT).
fn use_configuration_of(environment: &Environment, repository: &Repository) -> Result<(), git2::Error> {
    let mut config = repository.config()?;
    if environment.is_true("GIT_CONFIG_NOSYSTEM") {
        config.add_file(Path::new(NOWHERE), ConfigLevel::System, true)?;
    } else if let Some(file) = environment.get("GIT_CONFIG_SYSTEM") {
        config.add_file(Path::new(file), ConfigLevel::System, true)?;
    }
    if let Some(file) = environment.get("GIT_CONFIG_GLOBAL") {
        config.add_file(Path::new(NOWHERE), ConfigLevel::XDG, true)?;
        let file = if file == "/dev/null" { Path::new(NOWHERE) } else { Path::new(file) };
        config.add_file(file, ConfigLevel::Global, true)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::testing::Sandbox;

    #[test]
    fn reads_the_configuration_that_git_reads() {
        let sandbox = Sandbox::new();
        let global = sandbox.path().join("config");
        std::fs::write(&global, "[core]\n\tautocrlf = input\n").unwrap();
        let value = |global: &Path| {
            let environment = sandbox.environment(&[("GIT_CONFIG_GLOBAL", global.to_str().unwrap())]);
            let opener = Opener { folder: sandbox.path(), environment, durable: true };
            let repository = opener.open().unwrap();
            assert!(repository.config().unwrap().get_bool("core.fsyncObjectFiles").unwrap());
            let config = repository.config().unwrap();
            (config.get_string("core.autocrlf").ok(), config.get_string("user.name").ok())
        };
        assert_eq!(value(&global), (Some("input".into()), None));
        assert_eq!(value(Path::new("/dev/null")), (None, None));
    }

    #[test]
    fn never_finds_a_repository_further_up() {
        let sandbox = Sandbox::new();
        std::fs::create_dir(sandbox.path().join("sub")).unwrap();
        let environment = sandbox.environment(&[]);
        let opener = Opener { folder: sandbox.path().join("sub"), environment, durable: false };
        assert!(opener.open().is_err());
    }
}
