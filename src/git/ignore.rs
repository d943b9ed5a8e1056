//! Ignore files, read and matched as git does (gitignore(5)).
//!
//! Not libgit2's matcher nor the `ignore` crate's: both differ from git in corners, and a checkpoint must hold
//! the very files that `git add -A` would take. Parents are the caller's business: who walks never asks about
//! what lies in an ignored folder.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::wildmatch;

/// The rules of one ignore file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Rules {
    rules: Vec<Rule>,
}

#[derive(Debug, PartialEq, Eq)]
struct Rule {
    /// Without `!` in front and `/` behind.
    pattern: Box<[u8]>,
    /// Bytes of the pattern before its first special character.
    literal: usize,
    /// `!`: what matches is not ignored.
    negated: bool,
    /// `/` behind: matches folders only.
    folders_only: bool,
    /// No other `/`: matches the name in any depth.
    any_depth: bool,
}

/// The rules that hold in a folder: its own, then those of the folders above, then those of the repository.
#[derive(Clone, Copy)]
pub(super) struct Level<'a> {
    pub(super) rules: &'a Rules,
    /// Length of the path, with its trailing slash, that these rules are relative to; 0 at the top.
    pub(super) base: usize,
    pub(super) above: Option<&'a Level<'a>>,
}

// === impl Level ===

impl Level<'_> {
    /// Whether `path` (from the top of the work tree, no slash at its end) is ignored.
    pub(super) fn ignores(&self, path: &[u8], is_folder: bool) -> bool {
        let mut level = Some(self);
        while let Some(here) = level {
            if let Some(decision) = here.rules.decide(&path[here.base..], is_folder) {
                return decision;
            }
            level = here.above;
        }
        false
    }
}

/// Whether `folder`, from the top of the work tree, or a folder above it is ignored. `level` has the rules of the
/// whole repository; the ignore files on the way are read.
pub(super) fn ignores_below(work_tree: &Path, level: &Level<'_>, folder: &Path) -> bool {
    fn descend(work_tree: &Path, level: &Level<'_>, here: &Path, rest: &[&OsStr]) -> bool {
        let [name, rest @ ..] = rest else { return false };
        let text = std::fs::read(work_tree.join(here).join(".gitignore")).unwrap_or_default();
        let rules = Rules::parse(&text);
        let base = if here.as_os_str().is_empty() { 0 } else { here.as_os_str().len() + 1 };
        let level = Level { rules: &rules, base, above: Some(level) };
        let here = here.join(name);
        level.ignores(here.as_os_str().as_bytes(), true) || descend(work_tree, &level, &here, rest)
    }
    descend(work_tree, level, Path::new(""), &folder.iter().collect::<Vec<_>>())
}

// === impl Rules ===

impl Rules {
    /// Reads an ignore file's text. Any bytes are valid.
    pub(super) fn parse(text: &[u8]) -> Rules {
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        let lines = text.split(|&b| b == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let rules = lines.filter(|line| !line.is_empty() && line[0] != b'#').map(Rule::parse);
        Rules { rules: rules.collect() }
    }

    /// Nothing is ever decided here.
    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// What the last rule that matches says: ignored or not. `path` is relative to the file's folder.
    fn decide(&self, path: &[u8], is_folder: bool) -> Option<bool> {
        self.rules.iter().rev().find(|rule| rule.matches(path, is_folder)).map(|rule| !rule.negated)
    }
}

// === impl Rule ===

impl Rule {
    fn parse(line: &[u8]) -> Rule {
        // git works on C strings here.
        let line = line.split(|&b| b == 0).next().unwrap_or_default();
        let line = without_trailing_spaces(line);
        let (negated, line) = match line.strip_prefix(b"!") {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let (folders_only, pattern) = match line.strip_suffix(b"/") {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let any_depth = !pattern.contains(&b'/');
        let literal = pattern.iter().position(|b| b"*?[\\".contains(b)).unwrap_or(pattern.len());
        Rule { pattern: pattern.into(), literal, negated, folders_only, any_depth }
    }

    fn matches(&self, path: &[u8], is_folder: bool) -> bool {
        if self.folders_only && !is_folder {
            return false;
        }
        if self.any_depth {
            let start = path.iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
            self.matches_name(&path[start..])
        } else {
            self.matches_path(path)
        }
    }

    fn matches_name(&self, name: &[u8]) -> bool {
        match &*self.pattern {
            pattern if self.literal == pattern.len() => pattern == name,
            // `*.o`, the most common kind.
            [b'*', end @ ..] if !end.iter().any(|b| b"*?[\\".contains(b)) => name.ends_with(end),
            pattern => wildmatch::matches(pattern, name, false),
        }
    }

    fn matches_path(&self, path: &[u8]) -> bool {
        let (pattern, literal) = match self.pattern.strip_prefix(b"/") {
            Some(rest) => (rest, self.literal.saturating_sub(1)),
            None => (&*self.pattern, self.literal),
        };
        // The literal start is compared apart, as git does: a `**` right after it then counts as leading.
        let (start, rest) = pattern.split_at(literal);
        match path.strip_prefix(start) {
            None => false,
            Some(left) if rest.is_empty() => left.is_empty(),
            Some(left) => wildmatch::matches(rest, left, true),
        }
    }
}

/// Without trailing spaces, except ones that a backslash keeps.
fn without_trailing_spaces(line: &[u8]) -> &[u8] {
    let mut end = 0;
    let mut at = 0;
    while at < line.len() {
        match line[at] {
            b' ' => at += 1,
            b'\\' if at + 1 == line.len() => return line,
            b'\\' => {
                at += 2;
                end = at;
            }
            _ => {
                at += 1;
                end = at;
            }
        }
    }
    &line[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::testing::Sandbox;

    fn ignored(text: &str, path: &str, is_folder: bool) -> bool {
        let rules = Rules::parse(text.as_bytes());
        Level { rules: &rules, base: 0, above: None }.ignores(path.as_bytes(), is_folder)
    }

    #[test]
    fn follows_the_manual() {
        assert!(ignored("*.o", "a/b.o", false));
        assert!(ignored("*.o\n!keep.o", "a.o", false));
        assert!(!ignored("*.o\n!keep.o", "a/keep.o", false));
        assert!(ignored("/top", "top", false) && !ignored("/top", "a/top", false));
        assert!(ignored("dir/", "dir", true) && !ignored("dir/", "dir", false));
        assert!(ignored("\u{feff}x\r\n", "x", false));
        assert!(ignored("x  ", "x", false) && ignored("x\\ ", "x ", false));
        assert!(!ignored("#x", "#x", false) && ignored("\\#x", "#x", false) && ignored("\\!x", "!x", false));
        assert!(ignored("a/*", "a/b", false) && !ignored("a/*", "a/b/c", false));
    }

    #[test]
    fn inner_rules_beat_outer_ones() {
        let (outer, inner) = (Rules::parse(b"*.log\n"), Rules::parse(b"!a.log\n/x\n"));
        let top = Level { rules: &outer, base: 0, above: None };
        let level = Level { rules: &inner, base: 4, above: Some(&top) };
        assert!(!level.ignores(b"sub/a.log", false));
        assert!(level.ignores(b"sub/b.log", false));
        assert!(level.ignores(b"sub/x", false));
        assert!(!top.ignores(b"x", false));
    }

    /// Random rules on random paths, decided by `git check-ignore`.
    #[test]
    fn decides_as_git_does() {
        let sandbox = Sandbox::new();
        let mut random = fastrand::Rng::with_seed(7);
        let names = ["a", "b", "ab", "a.o", "b.o", "-", "]", "[a]", "a b", "x ", "**", "é"];
        let parts = [
            "a",
            "b",
            "ab",
            "*",
            "**",
            "?",
            "[ab]",
            "[!a]",
            "[^b]",
            "[]-]",
            "[a-",
            "*.o",
            "a*",
            "**a",
            "a**",
            "\\*",
            "\\",
            " ",
            "[[:alpha:]]",
            "é",
            "-",
            "***",
            "[\\]]",
            "x\\ ",
        ];
        for round in 0..60 {
            let mut text = String::new();
            for _ in 0..random.usize(1..8) {
                text += random.choice(["", "", "!", "/", "!/"]).unwrap();
                for n in 0..random.usize(1..4) {
                    text += if n > 0 { random.choice(["/", "/", ""]).unwrap() } else { "" };
                    text += random.choice(parts).unwrap();
                }
                text += random.choice(["\n", "\n", "/\n", " \n", "\r\n"]).unwrap();
            }
            let mut paths: Vec<(String, bool)> = Vec::new();
            for _ in 0..60 {
                let depth = random.usize(1..4);
                let path: Vec<_> = (0..depth).map(|_| *random.choice(names.iter()).unwrap()).collect();
                let path = path.join("/");
                // git asks the file system for the kind of a path.
                let place = sandbox.path().join(&path);
                let folder =
                    if random.bool() { std::fs::create_dir_all(&place).is_ok() } else { place.is_dir() };
                if !folder && place.parent().is_some_and(Path::is_dir) {
                    let _ = std::fs::write(&place, "");
                }
                if folder || place.exists() {
                    paths.push((path, folder));
                }
            }
            std::fs::write(sandbox.path().join(".gitignore"), &text).unwrap();
            let input: String = paths.iter().map(|(path, _)| format!("{path}\0")).collect();
            let answer = sandbox.git_with(
                &["check-ignore", "--no-index", "--stdin", "-z", "-v", "-n"],
                input.as_bytes(),
                &[0, 1],
            );
            let fields: Vec<_> = answer.split(|&b| b == 0).collect();
            let rules = Rules::parse(text.as_bytes());
            let level = Level { rules: &rules, base: 0, above: None };
            for ((path, folder), answer) in paths.iter().zip(fields.chunks(4)) {
                // check-ignore also looks at the folders above.
                let mut expected = None;
                for (end, _) in path.match_indices('/') {
                    if expected.is_none() && level.ignores(&path.as_bytes()[..end], true) {
                        expected = Some(true);
                    }
                }
                let ours = expected.unwrap_or_else(|| level.ignores(path.as_bytes(), *folder));
                let gits = !answer[2].is_empty() && !answer[2].starts_with(b"!");
                let rule = String::from_utf8_lossy(answer[2]);
                assert_eq!(
                    ours, gits,
                    "round {round}: {path:?} folder={folder}, git: {rule:?}, rules: {text:?}"
                );
            }
        }
    }
}
