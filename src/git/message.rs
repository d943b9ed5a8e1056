//! What a checkpoint's commit message says. It is the format that a later Longhaul must be able to read.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde_json::Value;

use super::GitError;
use crate::domain::ids::SessionId;

/// The format that this program writes, and the newest that it reads.
const FORMAT: u32 = 1;

/// What a checkpoint's message tells. Trailers, one a line: `git interpret-trailers` reads them too.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Message {
    pub(super) session: SessionId,
    pub(super) iteration: u32,
    /// Which of the repository's work trees and folders the project is; see [`project_key`].
    pub(super) project: String,
    /// The project's state, for a rebuild without the database.
    pub(super) state: Value,
}

/// Names a project among those that share a repository: `.` for the top of the main work tree, else
/// `worktree:NAME` and the folder below, with bytes that are not plain percent-encoded.
pub(super) fn project_key(git_dir: &Path, common_dir: &Path, folder: &Path) -> String {
    let linked = git_dir != common_dir;
    let name = linked.then(|| git_dir.file_name()).flatten();
    let worktree = name.map(|name| format!("worktree:{}", encode(name.as_bytes())));
    let folder = (!folder.as_os_str().is_empty()).then(|| encode(folder.as_os_str().as_bytes()));
    match (worktree, folder) {
        (None, None) => ".".to_owned(),
        (Some(worktree), None) => worktree,
        (None, Some(folder)) => folder,
        (Some(worktree), Some(folder)) => format!("{worktree}/{folder}"),
    }
}

fn encode(bytes: &[u8]) -> String {
    let mut text = String::new();
    for &byte in bytes {
        match byte {
            b'/' | b'-' | b'_' | b'.' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => text.push(byte.into()),
            // Writing to a String cannot fail.
            _ => drop(write!(text, "%{byte:02X}")),
        }
    }
    text
}

// === impl Message ===

impl Message {
    /// As it stands in the commit.
    pub(super) fn write(&self) -> String {
        format!(
            "longhaul: checkpoint of iteration {iteration}\n\n\
             Longhaul-Format: {FORMAT}\n\
             Longhaul-Session: {session}\n\
             Longhaul-Iteration: {iteration}\n\
             Longhaul-Project: {project}\n\
             Longhaul-State: {state}\n",
            iteration = self.iteration,
            session = self.session,
            project = self.project,
            state = self.state,
        )
    }

    /// Reads the message of the commit that `reference` names. Unknown trailers are left alone, and a missing
    /// state is null.
    pub(super) fn read(reference: &str, text: &str) -> Result<Self, GitError> {
        let trailer = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix("Longhaul-")?.strip_prefix(name)?.strip_prefix(": "))
        };
        let wrong = |why: String| GitError::NotACheckpoint { reference: reference.to_owned(), why };
        let needed = |name: &str| trailer(name).ok_or_else(|| wrong(format!("it has no Longhaul-{name}")));
        let format: u32 =
            needed("Format")?.parse().map_err(|_| wrong("its format is not a number".to_owned()))?;
        if format > FORMAT {
            return Err(GitError::NewerFormat {
                reference: reference.to_owned(),
                found: format,
                known: FORMAT,
            });
        }
        Ok(Message {
            session: needed("Session")?.parse().map_err(|error| wrong(format!("its session: {error}")))?,
            iteration: needed("Iteration")?
                .parse()
                .map_err(|error| wrong(format!("its iteration: {error}")))?,
            project: trailer("Project").unwrap_or(".").to_owned(),
            state: match trailer("State") {
                Some(text) => {
                    serde_json::from_str(text).map_err(|error| wrong(format!("its state: {error}")))?
                }
                None => Value::Null,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ulid::Ulid;

    #[test]
    fn refuses_newer_and_foreign_messages() {
        let newer = "x\n\nLonghaul-Format: 2\n";
        assert!(matches!(Message::read("r", newer), Err(GitError::NewerFormat { found: 2, .. })));
        assert!(matches!(Message::read("r", "fix: typo\n"), Err(GitError::NotACheckpoint { .. })));
    }

    /// Written by the first release: it must be readable for ever.
    #[test]
    fn reads_format_1() {
        let text = "longhaul: checkpoint of iteration 7\n\nLonghaul-Format: 1\n\
                    Longhaul-Session: 01ARZ3NDEKTSV4RRFFQ69G5FAV\nLonghaul-Iteration: 7\nLonghaul-Project: .\n\
                    Longhaul-Later: ?\nLonghaul-State: {\"retries\":2}\n";
        let message = Message::read("r", text).unwrap();
        assert_eq!((message.iteration, message.state["retries"].as_u64()), (7, Some(2)));
    }

    #[test]
    fn tells_projects_of_one_repository_apart() {
        let key =
            |git: &str, folder: &str| project_key(Path::new(git), Path::new("/r/.git"), Path::new(folder));
        assert_eq!(key("/r/.git", ""), ".");
        assert_eq!(key("/r/.git", "a b/ü"), "a%20b/%C3%BC");
        assert_eq!(key("/r/.git/worktrees/w", ""), "worktree:w");
        assert_eq!(key("/r/.git/worktrees/w", "sub"), "worktree:w/sub");
    }

    proptest! {
        #[test]
        fn any_state_survives(iteration: u32, text: String, number: i64) {
            let state = serde_json::json!({ "text": text, "number": number, "none": null });
            let message = Message { session: SessionId(Ulid::nil()), iteration, project: ".".into(), state };
            prop_assert_eq!(Message::read("r", &message.write()).unwrap(), message);
        }
    }
}
