//! Keeping `.longhaul/` out of git, through `info/exclude` and never through the user's `.gitignore`.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::{GitError, Repo};

// === impl Repo ===

impl Repo {
    /// Adds the line that excludes the project's `.longhaul/`, unless it is there. All work trees of the repository
    /// share the file. True when the line was added.
    pub fn exclude_own_folder(&self) -> Result<bool, GitError> {
        let file = self.place().common_dir.join("info/exclude");
        append_line(&file, &pattern(self.folder())).map_err(GitError::file("write", &file))
    }
}

/// `/.longhaul/` from the top of the work tree, through the project's folder. Special characters are escaped.
fn pattern(folder: &Path) -> Vec<u8> {
    let mut pattern = b"/".to_vec();
    for &byte in folder.as_os_str().as_bytes() {
        if b"*?[\\".contains(&byte) {
            pattern.push(b'\\');
        }
        pattern.push(byte);
    }
    if pattern.len() > 1 {
        pattern.push(b'/');
    }
    pattern.extend_from_slice(b".longhaul/");
    pattern
}

fn append_line(file: &Path, line: &[u8]) -> io::Result<bool> {
    let text = match fs::read(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if let Some(folder) = file.parent() {
                fs::create_dir_all(folder)?;
            }
            Vec::new()
        }
        Err(error) => return Err(error),
    };
    let lines = text.split(|&b| b == b'\n').map(|l| l.strip_suffix(b"\r").unwrap_or(l));
    if lines.clone().any(|there| there == line) {
        return Ok(false);
    }
    let end: &[u8] = if text.windows(2).any(|pair| pair == b"\r\n") { b"\r\n" } else { b"\n" };
    let before: &[u8] = if text.is_empty() || text.ends_with(b"\n") { b"" } else { end };
    // One write at the end: nothing that others write meanwhile is lost, and a link, owner and mode stay.
    let addition = [before, line, end].concat();
    OpenOptions::new().create(true).append(true).open(file)?.write_all(&addition)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_the_line_once_and_keeps_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("info/exclude");
        for (before, after) in [
            (None, "/.longhaul/\n"),
            (Some("# mine\n*.o\n"), "# mine\n*.o\n/.longhaul/\n"),
            (Some("*.o"), "*.o\n/.longhaul/\n"),
            (Some("a\r\nb"), "a\r\nb\r\n/.longhaul/\r\n"),
        ] {
            let _ = fs::remove_file(&file);
            if let Some(before) = before {
                fs::write(&file, before).unwrap();
            }
            assert!(append_line(&file, b"/.longhaul/").unwrap());
            assert!(!append_line(&file, b"/.longhaul/").unwrap());
            assert_eq!(fs::read_to_string(&file).unwrap(), after);
        }
    }

    #[test]
    fn the_pattern_names_this_folder_alone() {
        assert_eq!(pattern(Path::new("")), b"/.longhaul/");
        assert_eq!(pattern(Path::new("a b/[x]*")), b"/a b/\\[x]\\*/.longhaul/");
    }
}
