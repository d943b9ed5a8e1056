//! What is wrong with settings, and exactly where.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::secret;

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// config/default.toml, built in.
    Default,
    /// A file.
    File(Place),
    /// This environment variable.
    Environment(String),
    /// This option of the command line, or `config set`.
    CommandLine(String),
}

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: Arc<Path>,
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// The line, and how many characters from `column` on are meant; missing where it could show a secret.
    pub excerpt: Option<(String, usize)>,
}

/// Why there are no settings.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file cannot be read or written.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// `read` or `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something in them is wrong. Never empty.
    #[error("{}", joined(.0))]
    Invalid(Vec<Problem>),
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub origin: Origin,
    /// What, naming key, value and rule.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

// === impl Origin ===

impl Origin {
    /// The layer, from 0 (built in) to 4 (command line): a later one wins. `project` is the project's file.
    pub(super) fn rank(&self, project: Option<&Path>) -> u8 {
        match self {
            Origin::Default => 0,
            Origin::File(place) if Some(&*place.file) != project => 1,
            Origin::File(_) => 2,
            Origin::Environment(_) => 3,
            Origin::CommandLine(_) => 4,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File(place) => write!(f, "{}:{}", place.file.display(), place.line),
            Origin::Environment(name) => write!(f, "environment {name}"),
            Origin::CommandLine(option) => write!(f, "command line {option}"),
        }
    }
}

// === impl Place ===

impl Place {
    /// The place of the bytes `span` of `text`.
    pub(super) fn new(file: &Arc<Path>, text: &str, span: std::ops::Range<usize>) -> Self {
        let before = text.get(..span.start).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = text[line_start..].lines().next().unwrap_or_default();
        let meant = text.get(span).unwrap_or_default().lines().next().unwrap_or_default();
        // A line that does not fit a terminal shows nothing.
        let show = line.chars().count() <= 160 && !secret::in_text(line);
        Place {
            file: Arc::clone(file),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            excerpt: show.then(|| (line.to_owned(), meant.chars().count().max(1))),
        }
    }
}

// === impl Problem ===

impl fmt::Display for Problem {
    /// With line, column and carets, where it is in a file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Origin::File(place) = &self.origin else {
            return write!(f, "{}: {}", self.origin, self.message);
        };
        write!(f, "{}:{}:{}: {}", place.file.display(), place.line, place.column, self.message)?;
        if let Some((line, width)) = &place.excerpt {
            let number = place.line.to_string();
            let margin = " ".repeat(number.len());
            // Tabs stay, so that the carets stand under what they mean.
            let indent: String =
                line.chars().take(place.column - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
            write!(f, "\n{margin} |\n{number} | {line}\n{margin} | {indent}{}", "^".repeat(*width))?;
        }
        Ok(())
    }
}

fn joined(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carets_stand_under_what_is_meant() {
        let file: Arc<Path> = Path::new("config.toml").into();
        let text = "[run]\nmodél = 1\n\twait = 3\n";
        let at = text.find("wait").unwrap();
        let problem = Problem {
            origin: Origin::File(Place::new(&file, text, at..at + 4)),
            message: "no".into(),
            hint: None,
        };
        assert_eq!(problem.to_string(), "config.toml:3:2: no\n  |\n3 | \twait = 3\n  | \t^^^^");
        let at = text.find("= 1").unwrap();
        assert_eq!(Place::new(&file, text, at..at + 1).column, 7, "characters, not bytes");
        assert_eq!(Place::new(&file, text, 999..1000).line, 4, "a span outside the text is its end");
    }

    #[test]
    fn a_line_with_a_secret_is_not_shown() {
        let file: Arc<Path> = Path::new("config.toml").into();
        let place = Place::new(&file, "API_KEY = sk-ant-1234567890abcdef", 0..7);
        assert_eq!(place.excerpt, None);
    }
}
