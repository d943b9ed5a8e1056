//! Templates for specs: which names they may have, and what every one must hold.

use std::fmt;

/// Longest name, in bytes: with `.md` and a temporary ending it fits every file system.
const MAX_NAME: usize = 100;

/// Headings without which a template says too little.
pub const REQUIRED: [&str; 3] = ["## Goal", "## Requirements", "## Done when"];

/// A name that is safe to make a file name of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TemplateName(String);

/// Which rule a name breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing at all.
    #[error("a template name must not be empty")]
    Empty,
    /// Longer than 100 bytes.
    #[error("a template name has at most {MAX_NAME} bytes, and this one has {bytes}")]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// A path instead of a name.
    #[error("a template name must not hold `/` or `\\`")]
    Separator,
    /// NUL, a line break or another control character.
    #[error("a template name must not hold NUL or another control character")]
    Control,
    /// `.`, `..` or a hidden file.
    #[error("a template name must not begin with a dot")]
    Dot,
}

// === impl TemplateName ===

impl TemplateName {
    /// Checks a name before any file is touched.
    pub fn new(name: &str) -> Result<Self, NameError> {
        if name.is_empty() {
            return Err(NameError::Empty);
        }
        if name.len() > MAX_NAME {
            return Err(NameError::TooLong { bytes: name.len() });
        }
        if name.contains(['/', '\\']) {
            return Err(NameError::Separator);
        }
        if name.chars().any(char::is_control) {
            return Err(NameError::Control);
        }
        if name.starts_with('.') {
            return Err(NameError::Dot);
        }
        Ok(TemplateName(name.to_owned()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TemplateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Makes a spec of a template: required sections that it lacks are added, empty. Second, the headings of the sections
/// that were missing: one `template_incomplete` warning each.
pub fn fill(template: &str) -> (String, Vec<&'static str>) {
    let has = |heading: &str| template.lines().any(|line| line.trim_end().eq_ignore_ascii_case(heading));
    let missing: Vec<&'static str> = REQUIRED.into_iter().filter(|heading| !has(heading)).collect();
    let mut spec = template.trim_end().to_owned();
    for heading in &missing {
        if !spec.is_empty() {
            spec.push_str("\n\n");
        }
        spec.push_str(heading);
        spec.push('\n');
    }
    if !spec.ends_with('\n') {
        spec.push('\n');
    }
    (spec, missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bd_008_a_bad_name_is_refused_by_its_rule() {
        let table = [
            (String::new(), NameError::Empty),
            ("x".repeat(500), NameError::TooLong { bytes: 500 }),
            ("é".repeat(51), NameError::TooLong { bytes: 102 }),
            ("a/b".into(), NameError::Separator),
            ("../a".into(), NameError::Separator),
            ("a\\b".into(), NameError::Separator),
            ("..".into(), NameError::Dot),
            (".hidden".into(), NameError::Dot),
            ("a\0b".into(), NameError::Control),
            ("a\nb".into(), NameError::Control),
            ("a\u{85}b".into(), NameError::Control),
        ];
        for (name, error) in table {
            assert_eq!(TemplateName::new(&name), Err(error), "{name:?}");
        }
        for name in ["web-app", "日本語", "a b", "a..b", &"x".repeat(100)] {
            assert_eq!(TemplateName::new(name).map(|n| n.to_string()), Ok(name.to_owned()));
        }
    }

    #[test]
    fn ec_012_missing_sections_are_added_empty() {
        let (spec, missing) = fill("# App\n\n## Goal\nx\n");
        assert_eq!(spec, "# App\n\n## Goal\nx\n\n## Requirements\n\n\n## Done when\n");
        assert_eq!(missing, ["## Requirements", "## Done when"]);
        assert_eq!(fill("").1.len(), 3);
        assert_eq!(fill("## goal \r\n## REQUIREMENTS\n## Done when\n").1, Vec::<&str>::new());
    }
}
