//! Templates for SPEC.md: built-in ones, and the user's own in `$LONGHAUL_HOME/templates`.
//!
//! A template is Markdown. A first line `<!-- template: … -->` is its summary and is not part of the spec.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::config::{IfThere, write_atomic};

/// Sections that every spec has.
pub const REQUIRED: &[&str] = &["Goal", "Requirements", "Done when"];

/// The built-in templates by name.
const BUILT_IN: &[(&str, &str)] = &[
    ("bugfix", include_str!("../../config/templates/bugfix.md")),
    ("feature", include_str!("../../config/templates/feature.md")),
    ("new-project", include_str!("../../config/templates/new-project.md")),
    ("refactor", include_str!("../../config/templates/refactor.md")),
    ("tests", include_str!("../../config/templates/tests.md")),
];

/// Longest name in bytes: with its ending it fits every file system.
const LONGEST_NAME: usize = 100;

/// Largest template in bytes: larger ones are no templates.
const LARGEST: u64 = 1 << 20;

/// The templates there are.
#[derive(Debug, Clone)]
pub struct Templates {
    /// The user's folder; need not exist.
    folder: Option<PathBuf>,
}

/// One template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// Its name.
    pub name: String,
    /// Its Markdown, summary line and all.
    pub text: String,
    /// Where it came from.
    pub source: Source,
}

/// Where a template came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Part of the program.
    BuiltIn,
    /// The user's folder; it stands before a built-in one of the same name.
    User,
}

/// A spec made from a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// Its Markdown.
    pub text: String,
    /// Required sections that the template lacks: they are in the text, empty. One `template_incomplete`
    /// warning each.
    pub missing: Vec<&'static str>,
}

/// Which rule a template's name breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameRule {
    /// No name.
    #[error("it must not be empty")]
    Empty,
    /// Too long.
    #[error("it has {0} bytes, at most {LONGEST_NAME} are allowed")]
    TooLong(usize),
    /// It would be a path.
    #[error("it must not contain `/` or `\\`")]
    Separator,
    /// NUL, newline and the like.
    #[error("it must not contain NUL or other control characters")]
    Control,
    /// `.`, `..` and hidden files.
    #[error("it must not begin with a dot")]
    Dot,
}

/// Why a template cannot be had or kept.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// Nothing was touched.
    #[error("use {name:?} as a template's name: {rule}")]
    Name {
        /// The name, shortened.
        name: String,
        /// The rule it breaks.
        rule: NameRule,
    },
    /// No template has this name.
    #[error("find a template {name:?}")]
    Unknown {
        /// The name.
        name: String,
        /// The closest one there is.
        closest: Option<String>,
        /// All there are.
        names: Vec<String>,
    },
    /// The user has one of this name.
    #[error("save the template {0:?}: there is one of this name")]
    Exists(String),
    /// There is no folder for the user's templates: neither LONGHAUL_HOME nor HOME is set.
    #[error("find a folder for templates: neither LONGHAUL_HOME nor HOME is set")]
    NoHome,
    /// The file system refused.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// `read` or `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Checks a name before any file is touched.
pub fn check_name(name: &str) -> Result<(), NameRule> {
    match name {
        "" => Err(NameRule::Empty),
        _ if name.len() > LONGEST_NAME => Err(NameRule::TooLong(name.len())),
        _ if name.contains(['/', '\\']) => Err(NameRule::Separator),
        _ if name.contains(char::is_control) => Err(NameRule::Control),
        _ if name.starts_with('.') => Err(NameRule::Dot),
        _ => Ok(()),
    }
}

/// Reads a file that is to become a template.
pub fn read_source(path: &Path) -> Result<String, TemplateError> {
    let read = || {
        // Looked at before it is opened: opening a pipe would wait for a writer.
        let data = std::fs::metadata(path)?;
        if !data.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let mut text = String::new();
        let length = std::fs::File::open(path)?.take(LARGEST + 1).read_to_string(&mut text)?;
        if length as u64 > LARGEST {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than 1 MiB"));
        }
        Ok(text)
    };
    read().map_err(|source| TemplateError::Io { action: "read", path: path.to_owned(), source })
}

// === impl Templates ===

impl Templates {
    /// Those of the program and of `$LONGHAUL_HOME`.
    pub fn new(longhaul_home: Option<&Path>) -> Self {
        Templates { folder: longhaul_home.map(|home| home.join("templates")) }
    }

    /// All, in the order of their names. Files that break the rules for names, and unfinished ones, are not
    /// templates; one that vanishes meanwhile is left out.
    pub fn list(&self) -> Result<Vec<Template>, TemplateError> {
        let built_in = |(name, text): &(&str, &str)| Template {
            name: (*name).to_owned(),
            text: (*text).to_owned(),
            source: Source::BuiltIn,
        };
        let mut found: BTreeMap<String, Template> =
            BUILT_IN.iter().map(|entry| (entry.0.to_owned(), built_in(entry))).collect();
        for name in self.user_names()? {
            match self.read_user(&name) {
                Ok(template) => drop(found.insert(name, template)),
                Err(TemplateError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found.into_values().collect())
    }

    /// The template called `name`.
    pub fn get(&self, name: &str) -> Result<Template, TemplateError> {
        named(name)?;
        match self.read_user(name) {
            Err(TemplateError::NoHome) => {}
            Err(TemplateError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            found => return found,
        }
        let mut all = self.list()?;
        if let Some(at) = all.iter().position(|template| template.name == name) {
            return Ok(all.swap_remove(at));
        }
        let names: Vec<String> = all.into_iter().map(|template| template.name).collect();
        let distance = |other: &&String| strsim::damerau_levenshtein(name, other);
        let closest = names.iter().min_by_key(distance).cloned();
        Err(TemplateError::Unknown { name: name.to_owned(), closest, names })
    }

    /// Keeps `text` as the user's template `name`. Lists show it whole, or not yet.
    pub fn save(&self, name: &str, text: &str, if_there: IfThere) -> Result<PathBuf, TemplateError> {
        named(name)?;
        let path = self.user_path(name)?;
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::AlreadyExists => TemplateError::Exists(name.to_owned()),
            _ => TemplateError::Io { action: "write", path: path.clone(), source },
        };
        path.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(failed)?;
        write_atomic(&path, text.as_bytes(), if_there).map_err(failed)?;
        Ok(path)
    }

    fn user_path(&self, name: &str) -> Result<PathBuf, TemplateError> {
        let folder = self.folder.as_ref().ok_or(TemplateError::NoHome)?;
        Ok(folder.join(format!("{name}.md")))
    }

    fn read_user(&self, name: &str) -> Result<Template, TemplateError> {
        let text = read_source(&self.user_path(name)?)?;
        Ok(Template { name: name.to_owned(), text, source: Source::User })
    }

    fn user_names(&self) -> Result<Vec<String>, TemplateError> {
        let Some(folder) = &self.folder else { return Ok(Vec::new()) };
        let failed = |source| TemplateError::Io { action: "read", path: folder.clone(), source };
        let entries = match std::fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let file = entry.map_err(failed)?.file_name();
            let name = file.to_str().and_then(|file| file.strip_suffix(".md"));
            names.extend(name.filter(|name| check_name(name).is_ok()).map(str::to_owned));
        }
        Ok(names)
    }
}

fn named(name: &str) -> Result<(), TemplateError> {
    check_name(name).map_err(|rule| TemplateError::Name { name: name.chars().take(40).collect(), rule })
}

// === impl Template ===

impl Template {
    /// One line on what it is for: the summary line, else the first heading.
    pub fn summary(&self) -> &str {
        let heading = || self.text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or_default();
        self.summary_line().map_or_else(heading, |(summary, _)| summary).trim()
    }

    /// The spec it makes: without the summary line, with every required section.
    pub fn draft(&self) -> Draft {
        let body = self.summary_line().map_or(self.text.as_str(), |(_, rest)| rest);
        let mut text = body.trim_start_matches(['\u{feff}', '\r', '\n']).to_owned();
        let present = headings(&text);
        let has = |section: &&&str| present.iter().any(|heading| heading.eq_ignore_ascii_case(section));
        let missing: Vec<&'static str> = REQUIRED.iter().filter(|section| !has(section)).copied().collect();
        for section in &missing {
            let gap = if text.is_empty() || text.ends_with("\n\n") {
                ""
            } else if text.ends_with('\n') {
                "\n"
            } else {
                "\n\n"
            };
            text.push_str(&format!("{gap}## {section}\n"));
        }
        Draft { text, missing }
    }

    /// The summary, and the text after its line.
    fn summary_line(&self) -> Option<(&str, &str)> {
        let (line, rest) = self.text.split_once('\n')?;
        let summary = line.trim().strip_prefix("<!-- template:")?.strip_suffix("-->")?;
        Some((summary, rest))
    }
}

/// Titles of the second-level headings outside of code blocks and comments.
fn headings(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut fence: Option<&str> = None;
    let mut in_comment = false;
    for line in text.lines() {
        let trimmed = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| trimmed.starts_with(mark));
        if let Some(open) = fence {
            fence = fence.filter(|_| mark != Some(open));
        } else if in_comment {
            in_comment = !line.contains("-->");
        } else if mark.is_some() {
            fence = mark;
        } else if let Some((_, rest)) = line.split_once("<!--") {
            in_comment = !rest.contains("-->");
        } else if let Some(title) = line.strip_prefix("## ") {
            found.push(title.trim().trim_end_matches('#').trim_end().to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(text: &str) -> Template {
        Template { name: "x".into(), text: text.into(), source: Source::User }
    }

    #[test]
    fn built_in_ones_are_complete_and_have_a_summary() {
        for template in Templates::new(None).list().unwrap() {
            assert!(template.summary().len() > 10, "{}", template.name);
            let draft = template.draft();
            assert_eq!(draft.missing, [""; 0], "{}", template.name);
            assert!(draft.text.starts_with("# "), "{}", template.name);
            assert_eq!(check_name(&template.name), Ok(()));
        }
    }

    #[test]
    fn ec_012_missing_sections_are_added_empty() {
        let draft =
            template("# Mine\n\n## Goal\n\nIt.\n\n```\n## Done when\n```\n<!--\n## Requirements\n-->")
                .draft();
        assert_eq!(draft.missing, ["Requirements", "Done when"]);
        assert!(draft.text.ends_with("-->\n\n## Requirements\n\n## Done when\n"), "{}", draft.text);
        assert_eq!(template("").draft().text, "## Goal\n\n## Requirements\n\n## Done when\n");
        assert_eq!(template("## goal ##\n## REQUIREMENTS\n## Done when  \n").draft().missing, [""; 0]);
    }

    #[test]
    fn bd_008_names_are_refused_before_any_file_is_touched() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home");
        let templates = Templates::new(Some(&home));
        for (name, rule) in [
            ("a".repeat(500).as_str(), NameRule::TooLong(500)),
            ("é".repeat(51).as_str(), NameRule::TooLong(102)),
            ("a/b", NameRule::Separator),
            ("a\\b", NameRule::Separator),
            ("../x", NameRule::Separator),
            ("..", NameRule::Dot),
            (".hidden", NameRule::Dot),
            ("a\0b", NameRule::Control),
            ("a\nb", NameRule::Control),
            ("", NameRule::Empty),
        ] {
            assert_eq!(check_name(name), Err(rule), "{name:?}");
            let error = templates.save(name, "text", IfThere::Replace).unwrap_err();
            assert!(matches!(error, TemplateError::Name { .. }), "{error}");
            assert!(matches!(templates.get(name), Err(TemplateError::Name { .. })));
        }
        assert!(!home.exists());
        assert_eq!(check_name(&"a".repeat(100)), Ok(()));
        assert_eq!(check_name("Später, vielleicht (2)"), Ok(()));
    }

    #[test]
    fn unknown_names_get_the_closest() {
        let Err(TemplateError::Unknown { closest, names, .. }) = Templates::new(None).get("featrue") else {
            panic!("unknown")
        };
        assert_eq!(closest.as_deref(), Some("feature"));
        assert_eq!(names, ["bugfix", "feature", "new-project", "refactor", "tests"]);
    }

    #[test]
    fn own_templates_stand_before_built_in_ones() {
        let dir = tempfile::tempdir().unwrap();
        let templates = Templates::new(Some(dir.path()));
        assert_eq!(templates.list().unwrap().len(), 5, "the folder need not exist");
        templates.save("api", "# An API\n", IfThere::Refuse).unwrap();
        templates.save("feature", "# Mine\n", IfThere::Refuse).unwrap();
        assert!(matches!(templates.save("api", "", IfThere::Refuse), Err(TemplateError::Exists(_))));
        templates.save("api", "# Another\n", IfThere::Replace).unwrap();
        assert_eq!(templates.get("api").unwrap().summary(), "Another");
        assert_eq!(templates.get("feature").unwrap().source, Source::User);
        assert_eq!(templates.list().unwrap().len(), 6);
    }

    #[test]
    fn cu_006_unfinished_and_foreign_files_are_never_listed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("templates");
        std::fs::create_dir(&folder).unwrap();
        for name in [".tmp-abc", ".tmp-abc.md", "notes.txt", ".md"] {
            std::fs::write(folder.join(name), "half").unwrap();
        }
        std::os::unix::fs::symlink("gone", folder.join("dangling.md")).unwrap();
        assert_eq!(Templates::new(Some(dir.path())).list().unwrap().len(), 5);
    }

    #[test]
    fn cu_006_lists_are_whole_while_templates_are_saved() {
        let dir = tempfile::tempdir().unwrap();
        let templates = Templates::new(Some(dir.path()));
        let whole = "x".repeat(100_000);
        std::thread::scope(|scope| {
            let saver = scope.spawn(|| {
                for n in 0..40 {
                    templates.save(&format!("t{n}"), &whole, IfThere::Refuse).unwrap();
                }
            });
            let mut before = 0;
            while !saver.is_finished() {
                let all = templates.list().unwrap();
                let own: Vec<_> = all.iter().filter(|template| template.source == Source::User).collect();
                assert!(own.iter().all(|template| template.text == whole));
                assert!(own.len() >= before, "none that was listed goes missing");
                before = own.len();
            }
        });
        assert_eq!(templates.list().unwrap().len(), 45);
    }

    #[test]
    fn sources_are_small_text_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let message = |path: &Path| read_source(path).unwrap_err().to_string();
        assert!(message(dir.path()).ends_with("not a regular file"));
        std::fs::write(&path, b"\xff").unwrap();
        assert!(message(&path).ends_with("valid UTF-8"), "{}", message(&path));
        std::fs::write(&path, vec![b' '; (1 << 20) + 1]).unwrap();
        assert!(message(&path).ends_with("larger than 1 MiB"));
    }
}
