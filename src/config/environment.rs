//! The environment, read once at start: changing it elsewhere later does nothing.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A copy of the environment.
#[derive(Debug, Clone, Default)]
pub struct Environment(Vec<(OsString, OsString)>);

// === impl Environment ===

impl Environment {
    /// That of this process.
    pub fn read() -> Self {
        Environment(std::env::vars_os().collect())
    }

    /// The value of `name`; an empty one counts as not set.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        let found = self.0.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_os_str()).filter(|value| !value.is_empty())
    }

    /// All variables.
    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.0.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }

    /// Those that may be settings.
    pub fn settings(&self) -> Vec<(OsString, OsString)> {
        self.0.iter().filter(|(name, _)| name.as_bytes().starts_with(b"LONGHAUL_")).cloned().collect()
    }

    /// The user's settings: `$XDG_CONFIG_HOME/longhaul/config.toml`.
    pub fn user_config(&self) -> Option<PathBuf> {
        Some(self.xdg("XDG_CONFIG_HOME", ".config")?.join("longhaul/config.toml"))
    }

    /// Where host-wide state lives: `$LONGHAUL_HOME`, else `$XDG_STATE_HOME/longhaul`. `None` without a home.
    pub fn longhaul_home(&self) -> Option<PathBuf> {
        match self.get("LONGHAUL_HOME") {
            Some(home) => std::path::absolute(home).ok(),
            None => Some(self.xdg("XDG_STATE_HOME", ".local/state")?.join("longhaul")),
        }
    }

    /// An XDG base folder. Relative values are ignored, as the specification says.
    fn xdg(&self, name: &str, below_home: &str) -> Option<PathBuf> {
        let set = self.get(name).map(Path::new).filter(|path| path.is_absolute());
        let default = || Some(Path::new(self.get("HOME")?).join(below_home));
        set.map(Path::to_owned).or_else(default)
    }
}

impl FromIterator<(OsString, OsString)> for Environment {
    fn from_iter<I: IntoIterator<Item = (OsString, OsString)>>(variables: I) -> Self {
        Environment(variables.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> Environment {
        variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect()
    }

    #[test]
    fn folders_follow_the_xdg_rules() {
        let home = ("HOME", "/h");
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(with(&[home]).user_config(), path("/h/.config/longhaul/config.toml"));
        assert_eq!(with(&[home, ("XDG_CONFIG_HOME", "/c")]).user_config(), path("/c/longhaul/config.toml"));
        assert_eq!(
            with(&[home, ("XDG_CONFIG_HOME", "c")]).user_config(),
            path("/h/.config/longhaul/config.toml"),
            "relative ones are ignored"
        );
        assert_eq!(with(&[home]).longhaul_home(), path("/h/.local/state/longhaul"));
        assert_eq!(with(&[home, ("XDG_STATE_HOME", "/s")]).longhaul_home(), path("/s/longhaul"));
        assert_eq!(with(&[home, ("LONGHAUL_HOME", "/l")]).longhaul_home(), path("/l"));
        assert_eq!(with(&[home, ("LONGHAUL_HOME", "")]).longhaul_home(), path("/h/.local/state/longhaul"));
        assert_eq!(with(&[]).longhaul_home(), None);
    }
}
