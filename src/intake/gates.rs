//! Which checks a project has: those that are configured, else those that its files suggest.

use std::path::Path;

use crate::config::{Gate, GateCommand, Gates};

/// A file at the top level that suggests a check, and the check.
struct Hint {
    file: &'static str,
    /// The file must hold this, so that the check is there at all.
    holds: Option<&'static str>,
    name: &'static str,
    argv: &'static [&'static str],
}

/// In this order; several may apply.
const HINTS: [Hint; 9] = [
    Hint { file: "Cargo.toml", holds: None, name: "cargo-test", argv: &["cargo", "test", "--quiet"] },
    Hint {
        file: "package.json",
        holds: Some("\"test\""),
        name: "npm-test",
        argv: &["npm", "test", "--silent"],
    },
    Hint { file: "pytest.ini", holds: None, name: "pytest", argv: &["pytest", "-q"] },
    Hint { file: "pyproject.toml", holds: Some("pytest"), name: "pytest", argv: &["pytest", "-q"] },
    Hint { file: "tox.ini", holds: Some("pytest"), name: "pytest", argv: &["pytest", "-q"] },
    Hint { file: "setup.cfg", holds: Some("[tool:pytest]"), name: "pytest", argv: &["pytest", "-q"] },
    Hint { file: "go.mod", holds: None, name: "go-test", argv: &["go", "test", "./..."] },
    Hint { file: "Makefile", holds: Some("\ntest:"), name: "make-test", argv: &["make", "test"] },
    Hint { file: "makefile", holds: Some("\ntest:"), name: "make-test", argv: &["make", "test"] },
];

/// Largest file that is searched for a hint, bytes.
const SEARCHED: u64 = 1 << 20;

/// What npm writes where there is no test: such a gate could never pass.
const NPM_NONE: &str = "no test specified";

/// The gates of the project in `root`, in the order in which they run. Blocking.
pub fn gates_of(gates: &Gates, root: &Path) -> Vec<Gate> {
    if !gates.commands.is_empty() {
        return gates.commands.clone();
    }
    if !gates.detect {
        return Vec::new();
    }
    let mut found: Vec<Gate> = Vec::new();
    for hint in HINTS.iter().filter(|hint| applies(hint, root)) {
        if found.iter().any(|gate| gate.name == hint.name) {
            continue;
        }
        found.push(Gate {
            name: hint.name.to_owned(),
            command: GateCommand::Argv(hint.argv.iter().map(|&word| word.to_owned()).collect()),
            timeout: gates.timeout,
            env: Default::default(),
        });
    }
    found
}

fn applies(hint: &Hint, root: &Path) -> bool {
    let path = root.join(hint.file);
    let Ok(meta) = std::fs::metadata(&path) else { return false };
    if !meta.is_file() {
        return false;
    }
    let Some(holds) = hint.holds else { return true };
    if meta.len() > SEARCHED {
        return false;
    }
    // A line start counts also on the first line.
    let text = std::fs::read(&path)
        .map(|bytes| format!("\n{}", String::from_utf8_lossy(&bytes)))
        .unwrap_or_default();
    text.contains(holds) && !text.contains(NPM_NONE)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    fn detected(files: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let gates = Gates { detect: true, timeout: Duration::from_secs(300), commands: Vec::new() };
        gates_of(&gates, folder.path()).into_iter().map(|gate| gate.name).collect()
    }

    #[test]
    fn detects_what_the_project_uses() {
        assert_eq!(detected(&[]), [""; 0]);
        assert_eq!(detected(&[("Cargo.toml", "")]), ["cargo-test"]);
        assert_eq!(detected(&[("package.json", r#"{"scripts":{"test":"vitest"}}"#)]), ["npm-test"]);
        assert_eq!(
            detected(&[("package.json", r#"{"scripts":{"test":"echo \"Error: no test specified\""}}"#)]),
            [""; 0]
        );
        assert_eq!(detected(&[("package.json", r#"{"scripts":{}}"#)]), [""; 0]);
        assert_eq!(detected(&[("pyproject.toml", "[tool.pytest]"), ("pytest.ini", "")]), ["pytest"]);
        assert_eq!(detected(&[("go.mod", ""), ("Makefile", "test:\n\tgo test\n")]), ["go-test", "make-test"]);
        assert_eq!(detected(&[("Makefile", "latest:\n\techo\n")]), [""; 0]);
    }
}
