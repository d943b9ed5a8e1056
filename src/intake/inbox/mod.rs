//! Messages from people, as files. Blocking.
//!
//! ```text
//! HUMAN_INPUT.md ─┐
//! inbox/NAME ─────┴─ rename ─→ inbox/taken/ULID-NAME ─ commit ─→ rename ─→ inbox/done/ULID-NAME
//! ```
//!
//! The first rename claims a file and gives it its identity; `say` brings one of its own (`inbox/ULID.md`). A file
//! in `taken/` is read and committed under that identity, however often it takes: whether the journal knows it
//! already says whether it is only to be put away. So a message counts exactly once wherever a crash falls.
//!
//! Files in `inbox/` are taken in the order of their names. `HUMAN_INPUT.md` comes before the first of them that
//! arrived later: by its ULID, or else by its time of modification.

mod collect;
mod order;
mod steady;
mod text;
mod waiting;

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ulid::Ulid;

use crate::config::{IfThere, ProjectPaths, UNFINISHED, write_atomic};
use crate::domain::ids::MessageId;

pub use collect::{Claimed, Inbox, Problem, Round};
pub use text::MAX_TEXT;
pub use waiting::Waiting;

/// Endings of files that are not ready or not meant: of downloads, editors and careful writers.
const IGNORED_ENDINGS: [&[u8]; 5] = [b"~", b".tmp", b".swp", b".part", b".crdownload"];

/// The places of messages.
#[derive(Debug, Clone)]
pub struct InboxPaths {
    /// `.longhaul/`
    dot: PathBuf,
    /// `.longhaul/HUMAN_INPUT.md`
    human_input: PathBuf,
    /// `.longhaul/inbox/`
    inbox: PathBuf,
    /// `.longhaul/inbox/taken/`: claimed, perhaps committed.
    taken: PathBuf,
    /// `.longhaul/inbox/done/`: committed.
    done: PathBuf,
}

/// Leaves a message in the inbox of a project. Whole and durable when it returns, also across a power cut.
///
/// # Errors
/// The message is not there.
pub fn put(paths: &ProjectPaths, id: MessageId, text: &str) -> io::Result<()> {
    InboxPaths::new(paths).make()?;
    write_atomic(&paths.inbox.join(format!("{id}.md")), text.as_bytes(), IfThere::Refuse)
}

// === impl InboxPaths ===

impl InboxPaths {
    /// The places in a project.
    pub fn new(paths: &ProjectPaths) -> Self {
        InboxPaths {
            dot: paths.dot.clone(),
            human_input: paths.human_input.clone(),
            taken: paths.inbox.join("taken"),
            done: paths.inbox.join("done"),
            inbox: paths.inbox.clone(),
        }
    }

    /// Makes the folders that are missing. Not the project's own: where that is gone, nothing is made.
    ///
    /// # Errors
    /// One of them is not there and cannot be made.
    pub fn make(&self) -> io::Result<()> {
        if self.taken.is_dir() && self.done.is_dir() {
            return Ok(());
        }
        for folder in [&self.dot, &self.inbox, &self.taken, &self.done] {
            match fs::create_dir(folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// A quick look for files that may be messages, or are, and wait.
    pub fn has_mail(&self) -> bool {
        let written = |path: &Path| fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() > 0);
        let candidate = |entry: io::Result<fs::DirEntry>| {
            entry.is_ok_and(|e| !ignored(&e.file_name()) && e.file_type().is_ok_and(|t| !t.is_dir()))
        };
        let holds_one = |folder| fs::read_dir(folder).is_ok_and(|mut entries| entries.any(candidate));
        written(&self.human_input) || holds_one(&self.inbox) || holds_one(&self.taken)
    }
}

fn ignored(name: &OsStr) -> bool {
    let name = name.as_bytes();
    debug_assert!(UNFINISHED.starts_with('.'), "unfinished files of our own are hidden ones");
    name.starts_with(b".") || IGNORED_ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// The identity in `ULID.md`, as `say` names its files.
fn said(name: &OsStr) -> Option<MessageId> {
    leading_id(name).filter(|_| name.as_bytes().get(ulid::ULID_LEN..) == Some(b".md"))
}

/// The identity at the beginning of the name of a claimed file.
fn leading_id(name: &OsStr) -> Option<MessageId> {
    let id = name.as_bytes().get(..ulid::ULID_LEN)?;
    Ulid::from_string(std::str::from_utf8(id).ok()?).ok().map(MessageId)
}

#[cfg(test)]
mod tests;
