//! How large a job is: its class decides how much planning and checking it gets.

use serde::{Deserialize, Serialize};

/// More source files than this make any project [`Complexity::Complex`], whatever its spec says.
pub const MANY_FILES: usize = 50;

/// A simple spec has fewer words than this.
const SIMPLE_WORDS: usize = 200;
/// A simple spec has fewer features (list items and headings) than this.
const SIMPLE_FEATURES: usize = 5;
/// A simple spec has fewer headings than this.
const SIMPLE_HEADINGS: usize = 3;

/// The class of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Complexity {
    /// A short spec and a small code base.
    Simple,
    /// Neither simple nor complex.
    Standard,
    /// A large code base.
    Complex,
}

/// How much a spec asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SpecSize {
    /// Words.
    pub words: usize,
    /// List items and headings.
    pub features: usize,
    /// Headings alone.
    pub headings: usize,
}

// === impl Complexity ===

impl Complexity {
    /// The class of a job with this spec (`None` in analysis mode: then the code base alone decides) and this many
    /// source files. A count that was broken off above [`MANY_FILES`] is as good as a whole one.
    pub fn of(spec: Option<SpecSize>, source_files: usize) -> Self {
        let spec = spec.unwrap_or_default();
        if is_certain(source_files) {
            Complexity::Complex
        } else if spec.words < SIMPLE_WORDS
            && spec.features < SIMPLE_FEATURES
            && spec.headings < SIMPLE_HEADINGS
        {
            Complexity::Simple
        } else {
            Complexity::Standard
        }
    }

    /// The name as in the journal.
    pub fn name(self) -> &'static str {
        match self {
            Complexity::Simple => "simple",
            Complexity::Standard => "standard",
            Complexity::Complex => "complex",
        }
    }
}

impl std::fmt::Display for Complexity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// No further file can change the class: counting may stop.
pub fn is_certain(source_files: usize) -> bool {
    source_files > MANY_FILES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ec_003_classes() {
        use Complexity::{Complex, Simple, Standard};
        let spec = |words, features, headings| Some(SpecSize { words, features, headings });
        let table = [
            (spec(199, 4, 2), 50, Simple),
            (spec(200, 4, 2), 50, Standard),
            (spec(199, 5, 2), 50, Standard),
            (spec(199, 4, 3), 50, Standard),
            (spec(199, 4, 2), 51, Complex),
            (spec(9000, 400, 90), 0, Standard),
            (spec(1, 0, 0), 50_000, Complex),
            (None, 0, Simple),
            (None, 50, Simple),
            (None, 51, Complex),
            (None, usize::MAX, Complex),
        ];
        for (spec, files, class) in table {
            assert_eq!(Complexity::of(spec, files), class, "{spec:?} with {files} files");
        }
    }
}
