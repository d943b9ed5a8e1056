//! A spec: what a person wants built, as text. Reading it never fails; what is odd about it becomes a
//! [`SpecWarning`], and the text is used all the same.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::complexity::SpecSize;

mod decode;
mod excerpt;
pub mod fence;
mod json;
mod references;
mod scan;

pub use excerpt::{Excerpt, ExcerptBudget};
pub use references::{MAX_REFERENCES, local_references};

/// Dangerous lines that are told one by one; a spec full of them needs no more to be noticed.
pub const MAX_DANGEROUS: usize = 20;

/// Longest quotation of a line in a warning, in characters.
const MAX_QUOTE: usize = 300;

/// A spec, decoded and looked through once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// The whole text: UTF-8 without BOM and NUL, lines ended by `\n`.
    pub text: String,
    /// How the text is structured.
    pub format: Format,
    /// Characters of `text`.
    pub chars: usize,
    /// Words; each ideograph counts as one.
    pub words: usize,
    /// Headings (in JSON: top-level fields).
    pub headings: usize,
    /// List items and headings (in JSON: items of the arrays that list work, and top-level fields).
    pub features: usize,
    /// Where the sections begin, in order. Of a spec with very many headings only the first ones.
    pub outline: Vec<Heading>,
    /// What a person should know about this spec. [`SpecWarning::Truncated`] is not among them: that shows only
    /// when an excerpt is made.
    pub warnings: Vec<SpecWarning>,
    /// Lines with an unchecked checklist item, as byte ranges without line end.
    open_items: Vec<Range<usize>>,
    /// Code blocks with their fences, as byte ranges of whole lines.
    fences: Vec<Range<usize>>,
}

/// How a spec's text is structured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Markdown or plain text: headings, lists and code blocks by CommonMark's rules.
    Text,
    /// Valid JSON.
    Json,
}

/// A heading of the outline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heading {
    /// 1 to 6.
    pub level: u8,
    /// Line number, from 1.
    pub line: usize,
    /// Byte offset of the heading's first line.
    pub start: usize,
    /// The title within the text, as a byte range.
    pub title: Range<usize>,
}

/// What is odd about a spec. Each variant is one event: `spec_empty`, `spec_invalid`, `spec_truncated`,
/// `spec_dangerous`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SpecWarning {
    /// 0 bytes, only white space, or only a BOM: work is derived from the code base.
    #[serde(rename = "spec_empty")]
    Empty,
    /// Not what it should be: broken JSON, invalid UTF-8, NUL characters. It is used as plain text.
    #[serde(rename = "spec_invalid")]
    Invalid {
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// What is wrong there.
        message: String,
    },
    /// Too long for the prompt: an excerpt is shown.
    #[serde(rename = "spec_truncated")]
    Truncated {
        /// Characters of the whole.
        from_chars: usize,
        /// Characters that are shown.
        to_chars: usize,
    },
    /// Holds a command that destroys a system.
    #[serde(rename = "spec_dangerous")]
    Dangerous {
        /// Line, from 1.
        line_number: usize,
        /// The line, clipped if it is very long.
        line: String,
    },
}

// === impl Spec ===

impl Spec {
    /// Reads a spec. `name` is its file name: `.json` says that it should be JSON; other names and `None` let the
    /// content decide. Takes about as much memory as the bytes themselves, which are used in place.
    pub fn parse(bytes: Vec<u8>, name: Option<&str>) -> Self {
        let (text, mut warnings) = decode::decode(bytes);
        let mut scanned = scan::scan(&text);
        let mut format = Format::Text;
        match json::read(&text, name.is_some_and(is_json_name)) {
            json::Reading::Json(json) => {
                format = Format::Json;
                scanned = scan::Scan { dangerous: scanned.dangerous, ..json };
            }
            json::Reading::Broken(warning) => warnings.push(warning),
            json::Reading::Other => {}
        }
        if text.trim().is_empty() {
            warnings = vec![SpecWarning::Empty];
        }
        warnings.append(&mut scanned.dangerous);
        Spec {
            chars: text.chars().count(),
            text,
            format,
            words: scanned.words,
            headings: scanned.headings,
            features: scanned.items.saturating_add(scanned.headings),
            outline: scanned.outline,
            warnings,
            open_items: scanned.open_items,
            fences: scanned.fences,
        }
    }

    /// Nothing is asked for: the session works in analysis mode.
    pub fn is_empty(&self) -> bool {
        self.warnings.contains(&SpecWarning::Empty)
    }

    /// What the job's class depends on; `None` for an empty spec.
    pub fn size(&self) -> Option<SpecSize> {
        let size = SpecSize { words: self.words, features: self.features, headings: self.headings };
        (!self.is_empty()).then_some(size)
    }

    /// The title of a heading of this spec's outline.
    pub fn title(&self, heading: &Heading) -> &str {
        self.text.get(heading.title.clone()).unwrap_or_default()
    }

    /// Fits the spec into `budget`: see [`Excerpt`].
    pub fn excerpt(&self, budget: &ExcerptBudget<'_>) -> Excerpt<'_> {
        excerpt::excerpt(self, budget)
    }
}

// === impl SpecWarning ===

impl SpecWarning {
    /// The type of the event that tells it.
    pub fn event_type(&self) -> &'static str {
        match self {
            SpecWarning::Empty => "spec_empty",
            SpecWarning::Invalid { .. } => "spec_invalid",
            SpecWarning::Truncated { .. } => "spec_truncated",
            SpecWarning::Dangerous { .. } => "spec_dangerous",
        }
    }
}

impl std::fmt::Display for SpecWarning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SpecWarning::Empty => f.write_str("the spec is empty: work is derived from the code base"),
            SpecWarning::Invalid { line, column, message } => {
                write!(
                    f,
                    "the spec is not valid at line {line}, column {column} ({message}): used as plain text"
                )
            }
            SpecWarning::Truncated { from_chars, to_chars } => {
                write!(f, "the spec has {from_chars} characters: the prompt shows {to_chars} and its path")
            }
            SpecWarning::Dangerous { line_number, line } => {
                write!(f, "the spec holds a dangerous command in line {line_number}: {line}")
            }
        }
    }
}

fn is_json_name(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, extension)| extension.eq_ignore_ascii_case("json"))
}

/// The first characters of `line`, with a mark if something is left out.
fn quote(line: &str) -> String {
    let line = line.trim();
    match line.char_indices().nth(MAX_QUOTE) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests;
