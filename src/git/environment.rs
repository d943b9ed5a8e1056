//! The part of the process environment that decides how git behaves, read once and passed on as a value.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Variables that would point git at another repository, index or object store than the one meant, change how
/// paths or attributes are read, or mix trace output into what we parse. They are set, for example, when the
/// supervisor is started from a git hook.
const MISLEADING: &[&str] = &[
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_INDEX_VERSION",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
    "GIT_INTERNAL_SUPER_PREFIX",
    "GIT_QUARANTINE_PATH",
    "GIT_SHALLOW_FILE",
    "GIT_GRAFT_FILE",
    "GIT_REPLACE_REF_BASE",
    "GIT_NO_REPLACE_OBJECTS",
    "GIT_LITERAL_PATHSPECS",
    "GIT_GLOB_PATHSPECS",
    "GIT_NOGLOB_PATHSPECS",
    "GIT_ICASE_PATHSPECS",
    "GIT_ATTR_SOURCE",
    "GIT_EXTERNAL_DIFF",
    "GIT_DIFF_OPTS",
    "GIT_DEFAULT_HASH",
    "GIT_DEFAULT_REF_FORMAT",
    "GIT_REFLOG_ACTION",
    "GIT_ADVICE",
];

/// The environment that git programs get and that decides where git's own files lie.
#[derive(Debug, Clone)]
pub struct Environment {
    variables: BTreeMap<OsString, OsString>,
}

// === impl Environment ===

impl Environment {
    /// This process's environment without the variables that would mislead git.
    pub fn current() -> Self {
        Self::of(std::env::vars_os())
    }

    /// An environment of these variables, without the ones that would mislead git.
    pub fn of(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let misleading = |name: &OsStr| {
            name.to_str().is_some_and(|name| {
                MISLEADING.contains(&name)
                    || name.starts_with("GIT_TRACE")
                    || name.starts_with("GIT_AUTHOR_")
                    || name.starts_with("GIT_COMMITTER_")
            })
        };
        Environment { variables: variables.into_iter().filter(|(name, _)| !misleading(name)).collect() }
    }

    /// All variables, for a child.
    pub(super) fn variables(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.variables.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }

    /// A variable's value; unset and empty are the same.
    pub(super) fn get(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(OsStr::new(name)).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }

    /// Whether a variable is set to what git takes for true.
    pub(super) fn is_true(&self, name: &str) -> bool {
        let value = self.get(name).and_then(OsStr::to_str).map(str::to_ascii_lowercase);
        value.is_some_and(|value| !matches!(value.as_str(), "0" | "false" | "no" | "off"))
    }

    /// The user's home folder.
    pub(super) fn home(&self) -> Option<&Path> {
        self.get("HOME").map(Path::new)
    }

    /// A file of git's XDG folder, for example `ignore` (gitignore(5), `core.excludesFile`).
    pub(super) fn xdg(&self, name: &str) -> Option<PathBuf> {
        let base = match self.get("XDG_CONFIG_HOME") {
            Some(folder) => PathBuf::from(folder),
            None => self.home()?.join(".config"),
        };
        Some(base.join("git").join(name))
    }

    /// Folders above which a repository is not looked for (git(1), `GIT_CEILING_DIRECTORIES`).
    pub(super) fn ceilings(&self) -> Vec<PathBuf> {
        let list = self.get("GIT_CEILING_DIRECTORIES");
        list.map(|list| std::env::split_paths(list).filter(|p| p.is_absolute()).collect()).unwrap_or_default()
    }

    /// Where the program `name` is on PATH.
    pub(super) fn find_program(&self, name: &str) -> Option<PathBuf> {
        use rustix::fs::{Access, access};
        let path = self.get("PATH")?;
        std::env::split_paths(path)
            .map(|folder| folder.join(name))
            .find(|file| file.is_file() && access(file, Access::EXEC_OK).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_what_would_mislead_git_and_keeps_the_rest() {
        let pairs =
            [("GIT_DIR", "/x"), ("GIT_TRACE2_EVENT", "1"), ("GIT_SSH", "ssh"), ("HOME", "/h"), ("PATH", "")];
        let env = Environment::of(pairs.map(|(n, v)| (n.into(), v.into())));
        let names: Vec<_> = env.variables().map(|(name, _)| name.to_str().unwrap()).collect();
        assert_eq!(names, ["GIT_SSH", "HOME", "PATH"]);
        assert_eq!(env.xdg("ignore").unwrap(), Path::new("/h/.config/git/ignore"));
        assert_eq!(env.find_program("git"), None);
    }
}
