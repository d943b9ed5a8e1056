//! A spec in JSON: validated by `serde_json`, then read once without building a tree, so that a long one takes no
//! more memory than its text.

use serde::de::IgnoredAny;

use super::scan::{Scan, words};
use super::{Heading, SpecWarning};

/// Fields whose array lists the work to do, in lower case and without `_`, `-` and spaces. Lists within such an
/// item (acceptance criteria, steps) belong to it.
const WORK: [&str; 16] = [
    "features",
    "tasks",
    "requirements",
    "stories",
    "userstories",
    "items",
    "todo",
    "todos",
    "goals",
    "milestones",
    "steps",
    "epics",
    "issues",
    "deliverables",
    "checklist",
    "acceptancecriteria",
];

/// What a text is, read as JSON.
pub(super) enum Reading {
    /// Valid.
    Json(Scan),
    /// It should be JSON and is not.
    Broken(SpecWarning),
    /// Another text.
    Other,
}

/// `expected`: its name says that it is JSON.
pub(super) fn read(text: &str, expected: bool) -> Reading {
    if text.trim().is_empty() || (!expected && !text.trim_start().starts_with(['{', '['])) {
        return Reading::Other;
    }
    match serde_json::from_str::<IgnoredAny>(text) {
        Ok(_) => Reading::Json(Reader::new(text).read()),
        Err(error) if expected => Reading::Broken(warning(text, &error)),
        Err(_) => Reading::Other,
    }
}

fn warning(text: &str, error: &serde_json::Error) -> SpecWarning {
    // serde_json counts columns in bytes and repeats the place in its message.
    let line = text.lines().nth(error.line().saturating_sub(1)).unwrap_or_default();
    let before = line.get(..line.floor_char_boundary(error.column().saturating_sub(1))).unwrap_or(line);
    let message = error.to_string();
    let message = message.split_once(" at line ").map_or(message.as_str(), |(what, _)| what);
    SpecWarning::Invalid {
        line: error.line().max(1),
        column: before.chars().count() + 1,
        message: message.to_owned(),
    }
}

/// An open bracket.
enum Level {
    /// The key whose value is read says whether it lists work.
    Object { key_is_work: bool, at_value: bool },
    /// An array, and whether its items are work to do.
    Array { work: bool },
}

/// Reads valid JSON, token by token.
struct Reader<'a> {
    text: &'a str,
    at: usize,
    line: usize,
    levels: Vec<Level>,
    /// Arrays of work that are open: only the items of the outermost count.
    within_work: usize,
    scan: Scan,
}

// === impl Reader ===

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Self {
        Reader { text, at: 0, line: 1, levels: Vec::new(), within_work: 0, scan: Scan::default() }
    }

    fn read(mut self) -> Scan {
        while let Some(byte) = self.text.as_bytes().get(self.at).copied() {
            match byte {
                b'"' => {
                    self.string();
                    continue;
                }
                b'{' => {
                    self.value();
                    self.levels.push(Level::Object { key_is_work: false, at_value: false });
                }
                b'[' => {
                    let work = self.lists_work();
                    self.value();
                    self.within_work += usize::from(work);
                    self.levels.push(Level::Array { work });
                }
                b'}' | b']' => {
                    if let Some(Level::Array { work: true }) = self.levels.pop() {
                        self.within_work -= 1;
                    }
                }
                b':' => self.set_at_value(true),
                b',' => self.set_at_value(false),
                b'\n' => self.line += 1,
                b' ' | b'\t' => {}
                _ => {
                    self.value();
                    let rest = &self.text.as_bytes()[self.at..];
                    let end = |b: &u8| matches!(b, b',' | b'}' | b']' | b' ' | b'\n' | b'\t');
                    self.at += rest.iter().position(end).unwrap_or(rest.len());
                    continue;
                }
            }
            self.at += 1;
        }
        self.scan
    }

    /// A key, or a string as a value.
    fn string(&mut self) {
        let start = self.at + 1;
        let bytes = self.text.as_bytes();
        let mut end = start;
        while let Some(byte) = bytes.get(end).filter(|b| **b != b'"') {
            end += if *byte == b'\\' { 2 } else { 1 };
        }
        let content = self.text.get(start..end).unwrap_or_default();
        let depth = self.levels.len();
        if let Some(Level::Object { key_is_work, at_value: false }) = self.levels.last_mut() {
            *key_is_work = is_work(content);
            if depth == 1 {
                self.scan.headings += 1;
                let heading = Heading { level: 1, line: self.line, start: self.at, title: start..end };
                self.scan.outline.push(heading);
            }
        } else {
            self.scan.words += words(content);
            self.value();
        }
        self.at = end + 1;
    }

    /// Counts a value if it is an item of the outermost list of work.
    fn value(&mut self) {
        if self.within_work == 1 && matches!(self.levels.last(), Some(Level::Array { work: true })) {
            self.scan.items += 1;
        }
    }

    /// Whether the array that begins here lists work: below a field of that name, or the whole document.
    fn lists_work(&self) -> bool {
        match self.levels.last() {
            None => true,
            Some(Level::Object { key_is_work, .. }) => *key_is_work,
            Some(Level::Array { .. }) => false,
        }
    }

    fn set_at_value(&mut self, now: bool) {
        if let Some(Level::Object { at_value, .. }) = self.levels.last_mut() {
            *at_value = now;
        }
    }
}

fn is_work(key: &str) -> bool {
    let bare = |key: &str| -> String {
        key.chars().filter(|c| c.is_alphanumeric()).map(|c| c.to_ascii_lowercase()).collect()
    };
    key.len() < 40 && WORK.contains(&bare(key).as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(text: &str) -> Option<(usize, usize, usize)> {
        match read(text, true) {
            Reading::Json(scan) => Some((scan.items, scan.headings, scan.words)),
            _ => None,
        }
    }

    #[test]
    fn items_of_work_and_top_level_fields_count() {
        let table = [
            (r#"{"name": "a b", "features": ["one", "two three"]}"#, (2, 2, 5)),
            (
                r#"{"userStories": [{"title": "x y", "acceptanceCriteria": ["a", "b"]}, {"title": "z"}]}"#,
                (2, 1, 5),
            ),
            (r#"{"plan": {"to_do": [1, [2, 3], {"a": 4}], "notes": ["n"]}}"#, (3, 1, 1)),
            (r#"["a", "b", {"tasks": ["inner"]}]"#, (3, 0, 3)),
            (r#"{"features": [], "tags": ["a", "b"]}"#, (0, 2, 2)),
            (r#"{"a": "quote \" and \\", "tasks": ["]", "}"]}"#, (2, 2, 6)),
            ("\"only text\"", (0, 0, 2)),
            ("12", (0, 0, 0)),
        ];
        for (text, expected) in table {
            assert_eq!(counts(text), Some(expected), "{text}");
            let pretty: serde_json::Value = serde_json::from_str(text).unwrap();
            assert_eq!(counts(&serde_json::to_string_pretty(&pretty).unwrap()), Some(expected), "{text}");
        }
    }

    #[test]
    fn the_outline_is_the_fields_with_their_lines() {
        let text = "{\n  \"goal\": \"x\",\n  \"tasks\": [\n    \"a\"\n  ]\n}";
        let Reading::Json(scan) = read(text, false) else { panic!("not read as JSON") };
        let seen: Vec<_> = scan.outline.iter().map(|h| (h.line, &text[h.title.clone()])).collect();
        assert_eq!(seen, [(2, "goal"), (3, "tasks")]);
    }

    #[test]
    fn ep_002_broken_json_is_told_with_line_and_column() {
        let table = [
            ("{\n  \"a\": 1,\n}", (3, 1, "key must be a string")),
            ("{\"é\": \"ü\", oops}", (1, 12, "key must be a string")),
            ("{\"a\": [1, 2", (1, 11, "EOF while parsing a list")),
            ("{} x", (1, 4, "trailing characters")),
        ];
        for (text, (line, column, message)) in table {
            let Reading::Broken(found) = read(text, true) else { panic!("{text} was taken") };
            assert_eq!(found, SpecWarning::Invalid { line, column, message: message.into() }, "{text}");
            assert!(matches!(read(text, false), Reading::Other), "not called .json: no complaint");
        }
    }

    #[test]
    fn very_deep_nesting_is_no_crash() {
        let text = "[".repeat(100_000);
        assert!(matches!(read(&text, true), Reading::Broken(_)));
    }
}
