//! Bookkeeping while a folder of the private index is compared with the work tree.

use super::index::{File, Folder, SubFolder};

/// Which of a folder's known names were met, and the new ones.
pub(super) struct Seen {
    pub(super) files: Vec<bool>,
    pub(super) folders: Vec<bool>,
    pub(super) new_files: Vec<File>,
    pub(super) new_folders: Vec<SubFolder>,
}

// === impl Seen ===

impl Seen {
    /// Nothing was met yet.
    pub(super) fn new(folder: &Folder) -> Self {
        Seen {
            files: vec![false; folder.files.len()],
            folders: vec![false; folder.folders.len()],
            new_files: Vec::new(),
            new_folders: Vec::new(),
        }
    }

    /// A known file that cannot be looked at now stays as it was. True when that changes the tree.
    pub(super) fn keep_file(&mut self, folder: &mut Folder, known: Result<usize, usize>) -> bool {
        known.is_ok_and(|at| {
            self.files[at] = true;
            folder.files[at].keep()
        })
    }

    /// Takes out what was not met and puts in what is new. True when that changes the tree.
    pub(super) fn apply(self, folder: &mut Folder) -> bool {
        let mut changed = false;
        let mut seen = self.files.into_iter();
        folder.files.retain_mut(|file| {
            if seen.next() == Some(true) || file.pinned {
                return true;
            }
            changed |= std::mem::replace(&mut file.present, false);
            file.tracked
        });
        let mut seen = self.folders.into_iter();
        folder.folders.retain_mut(|sub| {
            if seen.next() != Some(true) {
                changed |= sub.folder.remove_all();
            }
            !sub.folder.files.is_empty() || !sub.folder.folders.is_empty()
        });
        if !self.new_files.is_empty() {
            folder.files.extend(self.new_files);
            folder.files.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        }
        if !self.new_folders.is_empty() {
            folder.folders.extend(self.new_folders);
            folder.folders.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        }
        changed
    }
}
