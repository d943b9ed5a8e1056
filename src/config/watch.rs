//! Re-reading: what the files hold now, judged against what is in force. Pure; the Watcher brings the news.

use super::diff::{Change, diff};
use super::error::ConfigError;
use super::load::{Files, Loaded, Settings, Sources, resolve};

/// The settings in force, and what was last seen of the files.
#[derive(Debug)]
pub struct Reloader {
    sources: Sources,
    in_force: Settings,
    seen: Seen,
    /// Seen once and not yet believed: a file may be caught while an editor writes it.
    doubtful: Option<Seen>,
}

/// What the files held, or why they could not be read.
type Seen = Result<Files, String>;

/// What a re-read came to.
#[derive(Debug)]
pub enum Reread {
    /// Nothing new.
    Unchanged,
    /// A file is invalid, unreadable, empty or gone, for the first time: read again in 200 ms.
    Unsettled,
    /// New settings; no changes where only comments or origins differ.
    Changed {
        /// What is in force now.
        loaded: Box<Loaded>,
        /// For `config_changed`.
        changes: Vec<Change>,
    },
    /// Refused: what was in force stays. Said once for the same content.
    Invalid(ConfigError),
}

// === impl Reloader ===

impl Reloader {
    /// `files` are what `in_force` was made from.
    pub fn new(sources: Sources, files: Files, in_force: Settings) -> Self {
        Reloader { sources, in_force, seen: Ok(files), doubtful: None }
    }

    /// Where the settings come from.
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Judges what [`Sources::read`] has just given.
    pub fn judge(&mut self, read: Result<Files, ConfigError>) -> Reread {
        let now = read.as_ref().map(Files::clone).map_err(ConfigError::to_string);
        if now == self.seen {
            self.doubtful = None;
            return Reread::Unchanged;
        }
        let resolved = read.and_then(|files| resolve(&self.sources, &files));
        if (resolved.is_err() || self.lost_one(&now)) && self.doubtful.as_ref() != Some(&now) {
            self.doubtful = Some(now);
            return Reread::Unsettled;
        }
        self.doubtful = None;
        self.seen = now;
        match resolved {
            Err(error) => Reread::Invalid(error),
            Ok(loaded) => {
                let changes = diff(&self.in_force, &loaded.settings);
                self.in_force = loaded.settings.clone();
                Reread::Changed { loaded: Box::new(loaded), changes }
            }
        }
    }

    /// A file that had content has none now.
    fn lost_one(&self, now: &Seen) -> bool {
        let empty = |text: &Option<String>| text.as_ref().is_none_or(|text| text.trim().is_empty());
        match (now, &self.seen) {
            (Ok(now), Ok(seen)) => {
                (empty(&now.user) && !empty(&seen.user)) || (empty(&now.project) && !empty(&seen.project))
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(text: &str) -> Files {
        Files { user: None, project: Some(text.to_owned()) }
    }

    fn reloader(text: &str) -> Reloader {
        let sources = Sources { project: Some("/p/config.toml".into()), ..Sources::default() };
        let loaded = resolve(&sources, &files(text)).unwrap();
        Reloader::new(sources, files(text), loaded.settings)
    }

    #[test]
    fn a_change_is_told_once_key_by_key() {
        let mut reloader = reloader("[run]\nretries = 3\n");
        assert!(matches!(reloader.judge(Ok(files("[run]\nretries = 3\n"))), Reread::Unchanged));
        let text = "durability = 'process'\n[run]\nretries = 4\n[providers.x.env]\nMY_TOKEN = 'abc'\n";
        let Reread::Changed { loaded, changes } = reloader.judge(Ok(files(text))) else { panic!("changed") };
        assert_eq!(loaded.config.run.retries, 4);
        assert_eq!(
            serde_json::to_value(&changes).unwrap(),
            serde_json::json!([
                { "key": "durability", "old": "power", "new": "process", "applies": "restart" },
                { "key": "providers.x.env.MY_TOKEN", "old": null, "new": "********", "applies": "live" },
                { "key": "run.retries", "old": 3, "new": 4, "applies": "live" },
            ])
        );
        assert!(matches!(reloader.judge(Ok(files(text))), Reread::Unchanged));
        let Reread::Changed { changes, .. } = reloader.judge(Ok(files(&format!("# hi\n{text}")))) else {
            panic!("changed")
        };
        assert_eq!(changes, [], "comments change nothing");
    }

    #[test]
    fn an_invalid_file_keeps_the_old_settings_and_is_told_once() {
        let mut reloader = reloader("[run]\nretries = 3\n");
        let bad = files("[run]\nretries = \n");
        assert!(matches!(reloader.judge(Ok(bad.clone())), Reread::Unsettled), "it may be half-written");
        let Reread::Invalid(error) = reloader.judge(Ok(bad.clone())) else { panic!("invalid") };
        assert!(error.to_string().starts_with("/p/config.toml:2:"), "{error}");
        assert!(matches!(reloader.judge(Ok(bad)), Reread::Unchanged));
        let Reread::Changed { changes, .. } = reloader.judge(Ok(files("[run]\nretries = 5\n"))) else {
            panic!("changed")
        };
        assert_eq!(changes[0].old, 3, "measured against what is in force");
    }

    #[test]
    fn an_unreadable_file_is_told_once_too() {
        let mut reloader = reloader("");
        let read = || Err(crate::config::load::read_file(std::path::Path::new("/")).unwrap_err());
        assert!(matches!(reloader.judge(read()), Reread::Unsettled));
        assert!(matches!(reloader.judge(read()), Reread::Invalid(_)));
        assert!(matches!(reloader.judge(read()), Reread::Unchanged));
    }

    #[test]
    fn a_file_caught_between_truncation_and_writing_is_not_believed() {
        let mut reloader = reloader("[run]\nretries = 3\n");
        assert!(matches!(reloader.judge(Ok(files(""))), Reread::Unsettled));
        assert!(matches!(reloader.judge(Ok(files("[run]\nretries = 3\n"))), Reread::Unchanged));
        assert!(matches!(reloader.judge(Ok(Files::default())), Reread::Unsettled));
        let Reread::Changed { changes, .. } = reloader.judge(Ok(Files::default())) else { panic!("gone") };
        assert_eq!(changes.len(), 1);
    }
}
