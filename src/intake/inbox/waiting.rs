//! Messages that wait on disk, for whoever counts them beside the session.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{InboxPaths, ignored, leading_id};
use crate::config::ProjectPaths;
use crate::domain::ids::MessageId;

/// Messages on disk, committed or not.
#[derive(Debug, Default)]
pub struct Waiting {
    /// With an identity.
    named: HashSet<MessageId>,
    /// Without one yet.
    unnamed: Vec<PathBuf>,
}

// === impl Waiting ===

impl Waiting {
    /// Looks. Do so before the state is read: what is committed in between is then known by its identity.
    pub fn list(paths: &ProjectPaths) -> Self {
        let inbox = InboxPaths::new(paths);
        let mut waiting = Waiting::default();
        for folder in [&inbox.inbox, &inbox.taken] {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                if ignored(&entry.file_name()) || !is_written(&entry.path()) {
                    continue;
                }
                match leading_id(&entry.file_name()) {
                    Some(id) => drop(waiting.named.insert(id)),
                    None => waiting.unnamed.push(entry.path()),
                }
            }
        }
        waiting.unnamed.extend(Some(inbox.human_input).filter(|path| is_written(path)));
        waiting
    }

    /// How many of them the journal does not know. `known` says it of one.
    pub fn count(&self, known: &dyn Fn(MessageId) -> bool) -> usize {
        let named = self.named.iter().filter(|id| !known(**id)).count();
        // One that has gone meanwhile was taken.
        named + self.unnamed.iter().filter(|path| is_written(path)).count()
    }
}

fn is_written(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counts_once() {
        let dir = tempfile::tempdir().unwrap();
        let paths = ProjectPaths::new(dir.path().to_owned());
        assert_eq!(Waiting::list(&paths).count(&|_| false), 0);
        InboxPaths::new(&paths).make().unwrap();
        fs::write(&paths.human_input, "one").unwrap();
        let (id, taken) = ("01JABCDEFGHJKMNPQRSTVWXYZ0", "taken/01JABCDEFGHJKMNPQRSTVWXYZ1-a.md");
        for name in ["two.txt", &format!("{id}.md"), taken, ".hidden", "x.tmp", "done/y"] {
            fs::write(paths.inbox.join(name), "text").unwrap();
        }
        fs::write(paths.inbox.join("empty"), "").unwrap();
        let waiting = Waiting::list(&paths);
        assert_eq!(waiting.count(&|_| false), 4);
        fs::remove_file(&paths.human_input).unwrap();
        let id = MessageId(id.parse().unwrap());
        assert_eq!(waiting.count(&|known| known == id), 2);
    }
}
