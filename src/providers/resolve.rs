//! Finds the program of a call, and says exactly why it cannot be used.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::call::StartFailure;

/// Why `--agent CMD` cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// Nothing but white space.
    #[error("the agent's command is empty")]
    Empty,
    /// A quote that is not closed, or a backslash at the end.
    #[error("the agent's command has an open quote or a trailing backslash: {0}")]
    Quoting(String),
}

/// Splits `--agent CMD` by shell words, without a shell: no variables, no globs, no pipes.
pub fn split_command(command: &str) -> Result<Vec<String>, CommandError> {
    let words = shlex::split(command).ok_or_else(|| CommandError::Quoting(command.to_owned()))?;
    match words.first() {
        None => Err(CommandError::Empty),
        Some(first) if first.is_empty() => Err(CommandError::Empty),
        Some(_) => Ok(words),
    }
}

/// The absolute path of `program`. A name with a slash is taken from `base` (the project's folder), any other is
/// looked up in `path`, the `PATH` of the environment that the agent gets; its relative entries are taken from
/// `base` too. When a later entry works, an earlier one that is not executable does not matter.
pub fn find_program(program: &str, path: Option<&OsStr>, base: &Path) -> Result<PathBuf, StartFailure> {
    if program.contains('/') {
        return usable(&base.join(program));
    }
    let mut nearest = StartFailure::NotFound(format!("{program} (on PATH)"));
    for folder in path.unwrap_or_default().as_bytes().split(|b| *b == b':') {
        // An empty entry means the current folder by POSIX; nobody wants that for an agent.
        if folder.is_empty() || program.is_empty() {
            continue;
        }
        match usable(&base.join(OsStr::from_bytes(folder)).join(program)) {
            Ok(found) => return Ok(found),
            Err(StartFailure::NotFound(_)) => {}
            Err(why) if matches!(nearest, StartFailure::NotFound(_)) => nearest = why,
            Err(_) => {}
        }
    }
    Err(nearest)
}

fn usable(file: &Path) -> Result<PathBuf, StartFailure> {
    let shown = file.display().to_string();
    match fs::metadata(file) {
        Err(_) => Err(StartFailure::NotFound(shown)),
        Ok(meta) if meta.is_dir() => Err(StartFailure::IsDirectory(shown)),
        Ok(_) if access(file, Access::EXEC_OK).is_err() => Err(StartFailure::NotExecutable(shown)),
        Ok(_) => Ok(file.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file(path: &Path, mode: u32) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn commands_are_split_by_shell_words_without_a_shell() {
        let split = |command| split_command(command).unwrap();
        assert_eq!(split("./agent.sh --fast"), ["./agent.sh", "--fast"]);
        assert_eq!(
            split(r#"'my agent' -p "a b" c\ d $HOME *"#),
            ["my agent", "-p", "a b", "c d", "$HOME", "*"]
        );
        assert_eq!(split_command("  "), Err(CommandError::Empty));
        assert_eq!(split_command("'' x"), Err(CommandError::Empty));
        for open in ["agent 'x", "agent \"x", "agent x\\"] {
            let error = split_command(open).unwrap_err();
            assert_eq!(error, CommandError::Quoting(open.into()));
            assert!(error.to_string().contains("open quote"));
        }
    }

    #[test]
    fn a_program_is_looked_up_on_the_path_of_the_agents_environment() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path();
        file(&base.join("one/plain"), 0o644);
        file(&base.join("two/plain"), 0o755);
        file(&base.join("two/agent"), 0o755);
        fs::create_dir_all(base.join("one/agent")).unwrap();
        let path = format!("{0}/one::{0}/none:{0}/two:rel", base.display());
        file(&base.join("rel/other"), 0o755);
        let find = |program| find_program(program, Some(OsStr::new(&path)), base);

        assert_eq!(find("plain"), Ok(base.join("two/plain")), "an entry that works later wins");
        assert_eq!(find("agent"), Ok(base.join("two/agent")));
        assert_eq!(find("other"), Ok(base.join("rel/other")), "relative entries are the project's");
        assert_eq!(find("none"), Err(StartFailure::NotFound("none (on PATH)".into())));
        assert_eq!(find(""), Err(StartFailure::NotFound(" (on PATH)".into())));
        assert_eq!(find_program("agent", None, base), Err(StartFailure::NotFound("agent (on PATH)".into())));
    }

    #[test]
    fn the_real_cause_is_named() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path();
        file(&base.join("bin/plain"), 0o644);
        fs::create_dir_all(base.join("bin/folder")).unwrap();
        std::os::unix::fs::symlink("gone", base.join("bin/dangling")).unwrap();
        let path = base.join("bin").into_os_string();
        let shown = |name: &str| base.join("bin").join(name).display().to_string();

        let on_path = |program| find_program(program, Some(&path), base).unwrap_err();
        assert_eq!(on_path("plain"), StartFailure::NotExecutable(shown("plain")));
        assert_eq!(on_path("folder"), StartFailure::IsDirectory(shown("folder")));
        assert_eq!(on_path("dangling"), StartFailure::NotFound("dangling (on PATH)".into()));

        let direct = |program| find_program(program, None, base).unwrap_err();
        assert_eq!(
            direct("./bin/gone"),
            StartFailure::NotFound(base.join("./bin/gone").display().to_string())
        );
        assert_eq!(direct("bin/plain"), StartFailure::NotExecutable(shown("plain")));
        assert_eq!(direct("bin/folder"), StartFailure::IsDirectory(shown("folder")));
    }
}
