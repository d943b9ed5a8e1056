//! What the repository's configuration means for us, and noticing when it changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use git2::{Config, Repository};

use super::Environment;
use super::content::Conversion;
use super::ignore::Rules;
use super::stat::Signature;

/// Ignore and attribute files beyond this size are not read.
const TEXT_MAX: u64 = 4 << 20;

/// What was read from the configuration, the repository-wide ignore files and the attribute files outside the
/// work tree.
#[derive(Debug)]
pub(super) struct Settings {
    /// `core.fileMode`.
    pub(super) file_mode: bool,
    /// What `core.autocrlf` and the attribute files outside the work tree ask for.
    pub(super) conversion: Conversion,
    /// `info/exclude`.
    pub(super) exclude: Arc<Rules>,
    /// `core.excludesFile`.
    pub(super) global_exclude: Arc<Rules>,
    /// Why libgit2 would not do what git does here.
    pub(super) unsupported: Option<String>,
    /// All files that the above came from.
    sources: Vec<(PathBuf, Option<Signature>)>,
}

// === impl Settings ===

impl Settings {
    /// Reads them. `repository` must have been opened after their last change.
    pub(super) fn read(repository: &Repository, environment: &Environment) -> Result<Self, git2::Error> {
        let config = repository.config()?.snapshot()?;
        let common = repository.commondir();
        let excludes = config.get_path("core.excludesFile").ok().or_else(|| environment.xdg("ignore"));
        let attributes =
            config.get_path("core.attributesFile").ok().or_else(|| environment.xdg("attributes"));

        let exclude = common.join("info/exclude");
        let attribute_files =
            [Some(common.join("info/attributes")), attributes, Some(PathBuf::from("/etc/gitattributes"))];
        let attribute_files: Vec<_> = attribute_files.into_iter().flatten().collect();

        let mut sources = config_files(repository, environment);
        sources.push(exclude.clone());
        sources.extend(excludes.clone());
        sources.extend(attribute_files.iter().cloned());
        // Looked at before they are read: a change in between shows next time.
        let sources =
            sources.into_iter().map(|path| (Signature::of(&path), path)).map(|(s, p)| (p, s)).collect();

        let auto = config.get_string("core.autocrlf").is_ok_and(|value| !is_false(&value));
        let conversion = attribute_files
            .iter()
            .filter_map(|path| read_text(path))
            .map(|text| Conversion::asked_by(&text))
            .fold(if auto { Conversion::LineEnds } else { Conversion::None }, Conversion::max);

        Ok(Settings {
            file_mode: config.get_bool("core.fileMode").unwrap_or(true),
            conversion,
            exclude: rules(&exclude),
            global_exclude: excludes.map_or_else(Arc::default, |path| rules(&path)),
            unsupported: unsupported(&config),
            sources,
        })
    }

    /// Whether one of the files has changed since it was read.
    pub(super) fn are_outdated(&self) -> bool {
        self.sources.iter().any(|(path, signature)| Signature::of(path) != *signature)
    }
}

/// The files that hold the configuration. Files that these include are not watched.
fn config_files(repository: &Repository, environment: &Environment) -> Vec<PathBuf> {
    let mut files = vec![repository.commondir().join("config"), repository.path().join("config.worktree")];
    match environment.get("GIT_CONFIG_GLOBAL") {
        Some(file) => files.push(file.into()),
        None => {
            files.extend(environment.home().map(|home| home.join(".gitconfig")));
            files.extend(environment.xdg("config"));
        }
    }
    if !environment.is_true("GIT_CONFIG_NOSYSTEM") {
        files.push(
            environment.get("GIT_CONFIG_SYSTEM").map_or_else(|| "/etc/gitconfig".into(), PathBuf::from),
        );
    }
    files
}

/// Settings under which we would not take the same files as git does.
fn unsupported(config: &Config) -> Option<String> {
    let is = |name: &str, value: bool| config.get_bool(name).is_ok_and(|found| found == value);
    let table = [
        ("core.ignoreCase", true, "names that differ only in case are the same"),
        ("core.precomposeUnicode", true, "names are rewritten"),
        ("core.symlinks", false, "links are plain files"),
        ("core.sparseCheckout", true, "the checkout is sparse"),
    ];
    let found = table.iter().find(|(name, value, _)| is(name, *value));
    found.map(|(name, value, meaning)| format!("{name} = {value}: {meaning}"))
}

fn rules(path: &Path) -> Arc<Rules> {
    Arc::new(read_text(path).map(|text| Rules::parse(&text)).unwrap_or_default())
}

fn read_text(path: &Path) -> Option<Vec<u8>> {
    let meta = std::fs::metadata(path).ok()?;
    (meta.is_file() && meta.len() <= TEXT_MAX).then(|| std::fs::read(path).ok())?
}

fn is_false(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "" | "false" | "no" | "off" | "0")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::open::Opener;
    use crate::git::testing::Sandbox;

    fn read(sandbox: &Sandbox) -> Settings {
        let environment = sandbox.environment(&[]);
        let opener = Opener { folder: sandbox.path(), environment: environment.clone(), durable: false };
        Settings::read(&opener.open().unwrap(), &environment).unwrap()
    }

    #[test]
    fn a_plain_repository_needs_nothing_special() {
        let settings = read(&Sandbox::new());
        assert!(settings.file_mode && settings.unsupported.is_none());
        assert_eq!(settings.conversion, Conversion::None);
    }

    #[test]
    fn notices_what_changes_the_result() {
        let sandbox = Sandbox::new();
        let before = read(&sandbox);
        assert!(!before.are_outdated());
        sandbox.git(&["config", "core.autocrlf", "input"]);
        assert!(before.are_outdated());
        let after = read(&sandbox);
        assert_eq!(after.conversion, Conversion::LineEnds);
        sandbox.write(".git/info/attributes", "*.png filter=lfs\n");
        assert!(after.are_outdated());
        assert_eq!(read(&sandbox).conversion, Conversion::Drivers);
        sandbox.git(&["config", "core.ignoreCase", "true"]);
        assert!(read(&sandbox).unsupported.unwrap().contains("core.ignoreCase"));
    }
}
