//! Editing the project's file: one key, comments kept, checked as a whole before it is written.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use toml_edit::{DocumentMut, Item, Table, TableLike};

use super::atomic::{IfThere, write_atomic};
use super::diff::{Change, shown};
use super::error::{ConfigError, Origin};
use super::keys;
use super::layer;
use super::load::{Files, Settings, Sources, resolve};

/// Locked by whoever edits the settings file beside it.
const EDITORS_LOCK: &str = ".config.lock";

/// What an edit did.
#[derive(Debug)]
pub struct Edited {
    /// The value in force before and after; equal when the edit changes nothing, or something overrides it.
    pub change: Change,
    /// What overrides the edited value, if anything does.
    pub overridden_by: Option<Origin>,
}

/// Sets `key` to what `text` means for it in the project's file of `sources`. Whatever is refused leaves the
/// file as it was. Two editors at once follow one another.
pub fn set(sources: &Sources, key: &str, text: &str) -> Result<Edited, ConfigError> {
    let Some(path) = &sources.project else {
        let source = io::Error::new(io::ErrorKind::NotFound, "no project");
        return Err(ConfigError::Io { action: "write", path: ".longhaul/config.toml".into(), source });
    };
    let failed = |source| ConfigError::Io { action: "write", path: path.clone(), source };
    let origin = Origin::CommandLine("`config set`".to_owned());
    let (_, setting) = layer::from_pair(key, text, origin).map_err(ConfigError::Invalid)?;

    let _lock = lock_beside(path).map_err(failed)?;
    let old_files = sources.read()?;
    let old_text = old_files.project.as_deref().unwrap_or_default();
    let invalid = |error: toml_edit::TomlError| failed(io::Error::new(io::ErrorKind::InvalidData, error));
    let mut document = match old_text.parse::<DocumentMut>() {
        Ok(document) => document,
        Err(error) => {
            // The reader of layers shows the place.
            let problems = layer::from_text(old_text, Some(&Arc::from(path.as_path()))).err();
            return Err(problems.map_or_else(|| invalid(error), ConfigError::Invalid));
        }
    };
    let value = setting.value.to_string().parse::<toml_edit::Value>().map_err(invalid)?;
    put(&mut document, key, value).map_err(failed)?;
    let new_text = document.to_string();

    let new_files = Files { project: Some(new_text.clone()), user: old_files.user.clone() };
    let new = resolve(sources, &new_files)?;
    // What was in force may have been invalid: then there is no old value.
    let old = resolve(sources, &old_files).map_or_else(|_| Settings::default(), |loaded| loaded.settings);
    write_atomic(path, new_text.as_bytes(), IfThere::Replace).map_err(failed)?;

    let value = |settings: &Settings| shown(key, settings.get(key).map(|setting| setting.value.clone()));
    let overridden_by = new
        .settings
        .get(key)
        .map(|setting| setting.origin.clone())
        .filter(|origin| !matches!(origin, Origin::File(place) if *place.file == **path));
    let change = Change {
        key: key.to_owned(),
        old: value(&old),
        new: value(&new.settings),
        applies: keys::liveness(key),
    };
    Ok(Edited { change, overridden_by })
}

/// Holds off other editors while it lives. A file of its own: the settings file is replaced, and the folder's lock
/// is the journal's, for as long as a session runs.
fn lock_beside(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    let file = options.write(true).create(true).truncate(false).open(path.with_file_name(EDITORS_LOCK))?;
    match file.lock() {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => file.lock()?,
        // A file system without locks.
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
        other => other?,
    }
    Ok(file)
}

/// Puts `value` at a dotted key. The key keeps its place and its comments; a new one goes to the end of its
/// section.
fn put(document: &mut DocumentMut, key: &str, mut value: toml_edit::Value) -> io::Result<()> {
    let (sections, name) = key.rsplit_once('.').unwrap_or(("", key));
    // Comments at the end of the file belong to what stands above them, not below a new section.
    let end = document.trailing().as_str().unwrap_or_default().to_owned();
    let mut end_moved = false;
    let mut table: &mut dyn TableLike = document.as_table_mut();
    let mut segments = sections.split('.').filter(|segment| !segment.is_empty()).peekable();
    while let Some(segment) = segments.next() {
        let entry = table.entry(segment).or_insert_with(|| {
            let mut new = Table::new();
            // `[providers.claude]` needs no `[providers]` above it.
            let inner = segments.peek().is_some();
            new.set_implicit(inner);
            if !inner && !end.trim().is_empty() {
                new.decor_mut().set_prefix(format!("{}\n\n", end.trim_end()));
                end_moved = true;
            }
            Item::Table(new)
        });
        table = entry.as_table_like_mut().ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, format!("`{segment}` is not a section"))
        })?;
    }
    match table.get_mut(name) {
        Some(item) => {
            if let Some(old) = item.as_value() {
                *value.decor_mut() = old.decor().clone();
            }
            *item = Item::Value(value);
        }
        None => drop(table.insert(name, Item::Value(value))),
    }
    if end_moved {
        document.set_trailing("");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn project(text: &str) -> (tempfile::TempDir, Sources, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        std::fs::write(&path, text).unwrap();
        (dir, Sources { project: Some(path.clone()), ..Sources::default() }, path)
    }

    #[test]
    fn comments_and_order_stay() {
        let (_dir, sources, path) = project(
            "# mine\n[run]\n# how often\nretries = 3 # few\nwait = true\n\n[provider] # who\nname = 'codex'\n",
        );
        let edited = set(&sources, "run.retries", "7").unwrap();
        assert_eq!((edited.change.old, edited.change.new), (3.into(), 7.into()));
        assert_eq!(edited.overridden_by, None);
        set(&sources, "budget.usd", "12.50").unwrap();
        set(&sources, "providers.codex.model", "gpt-5").unwrap();
        set(&sources, "run.perpetual", "true").unwrap();
        set(&sources, "durability", "process").unwrap();
        assert_eq!(
            std::fs::read_to_string(path).unwrap(),
            "durability = \"process\"\n# mine\n[run]\n# how often\nretries = 7 # few\nwait = true\nperpetual = true\n\n\
             [provider] # who\nname = 'codex'\n\n[budget]\nusd = 12.5\n\n[providers.codex]\nmodel = \"gpt-5\"\n"
        );
    }

    #[test]
    fn comments_at_the_end_stay_above_a_new_section() {
        let (_dir, sources, path) = project("[run]\nretries = 3\n\n# wait = true\n# the end");
        set(&sources, "stop.grace", "2s").unwrap();
        set(&sources, "providers.x.env.A", "1").unwrap();
        assert_eq!(
            std::fs::read_to_string(path).unwrap(),
            "[run]\nretries = 3\n\n# wait = true\n# the end\n\n[stop]\ngrace = \"2s\"\n\n[providers.x.env]\nA = \"1\"\n"
        );
    }

    #[test]
    fn what_is_refused_leaves_the_file_untouched() {
        let text = "[backoff]\nbase = \"5s\"\n";
        let (dir, sources, path) = project(text);
        for (key, value, want) in [
            ("backoff.cap", "1s", "`backoff.cap` must be at least `backoff.base`, not \"1s\""),
            ("backoff.base", "soon", "`backoff.base` must be a duration"),
            ("backof.base", "1s", "unknown key `backof.base`"),
            ("backoff", "1s", "`backoff` is a section"),
        ] {
            let message = set(&sources, key, value).unwrap_err().to_string();
            assert!(message.contains(want), "{message}");
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), text);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "only the editors' lock is beside it");
    }

    #[test]
    fn an_invalid_value_can_be_put_right_but_broken_toml_cannot() {
        let (_dir, sources, path) = project("[run]\nretries = 'x'\n");
        set(&sources, "run.retries", "4").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "[run]\nretries = 4\n");
        std::fs::write(&path, "[run\nretries = 4\n").unwrap();
        let message = set(&sources, "run.retries", "5").unwrap_err().to_string();
        assert!(message.contains("config.toml:1:5: not valid TOML"), "{message}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "[run\nretries = 4\n");
    }

    #[test]
    fn inline_and_dotted_tables_are_edited_in_place() {
        let (_dir, sources, path) = project("run = { retries = 3 }\nstop.grace = '1s'\n");
        set(&sources, "run.wait", "false").unwrap();
        set(&sources, "stop.grace", "2s").unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(text, "run = { retries = 3 , wait = false }\nstop.grace = \"2s\"\n");
    }

    #[test]
    fn editors_at_once_lose_nothing() {
        let (_dir, sources, path) = project("# mine\n");
        let keys = [
            "run.retries",
            "run.failover_after",
            "stagnation.warn",
            "supervisor.intensity",
            "checkpoint.keep",
        ];
        std::thread::scope(|scope| {
            for key in keys {
                let sources = &sources;
                scope.spawn(move || set(sources, key, "4").unwrap());
            }
        });
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(text.matches(" = 4\n").count(), keys.len(), "{text}");
        assert!(text.starts_with("# mine\n"), "{text}");
    }

    #[test]
    fn says_what_overrides_it() {
        let (_dir, mut sources, _path) = project("");
        sources.environment = vec![("LONGHAUL_RUN__RETRIES".into(), "9".into())];
        let edited = set(&sources, "run.retries", "7").unwrap();
        assert_eq!(edited.overridden_by, Some(Origin::Environment("LONGHAUL_RUN__RETRIES".into())));
    }
}
