//! What killed runs leave behind in the git directory.
//!
//! Only our own: files in our folder, libgit2's temporary objects, and locks and empty files in our part of the
//! references. What is younger than five minutes may belong to a process that is still at work.

use std::fs;
use std::path::Path;

use super::GitError;
use super::backend::CHECKPOINTS;
use super::checkpoint::reference;
use super::repo::Place;
use super::stat::{FileClock, Moment, Signature};
use crate::domain::ids::SessionId;

/// Seconds.
const AGE: u64 = 300;

/// See [`super::Repo::sweep`].
pub(super) fn sweep(place: &Place) -> Result<usize, GitError> {
    let private = place.private();
    let now = FileClock::in_folder(&private).and_then(|clock| clock.now());
    let now = now.map_err(GitError::file("write in", &private))?;
    let mut swept = 0;
    for_each(&private, &mut |path, name, is_folder| {
        let leftover = match is_folder {
            true => name.starts_with("convert-") || name.starts_with("program-"),
            false => name.ends_with(".lock") || name.ends_with(".new"),
        };
        swept += usize::from(leftover && remove_if_old(path, is_folder, now));
    });
    // libgit2 writes an object under such a name first. git's own are called tmp_obj_.
    for_each(&place.common_dir.join("objects"), &mut |path, name, is_folder| {
        let leftover = !is_folder && name.starts_with("tmp_object_git2_");
        swept += usize::from(leftover && remove_if_old(path, false, now));
    });
    for_each(&place.common_dir.join(CHECKPOINTS), &mut |session, _, is_folder| {
        if !is_folder {
            return;
        }
        for_each(session, &mut |path, name, is_folder| {
            // A power cut can leave a reference without its content; git complains about it for ever.
            let empty = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() == 0);
            let leftover = !is_folder && (name.ends_with(".lock") || empty);
            swept += usize::from(leftover && remove_if_old(path, false, now));
        });
    });
    Ok(swept)
}

/// Removes the lock of one checkpoint's reference, which only a killed process of this project can have left.
pub(super) fn remove_lock(place: &Place, session: SessionId, iteration: u32) {
    let lock = place.common_dir.join(format!("{}.lock", reference(session, iteration)));
    match fs::remove_file(&lock) {
        Ok(()) => tracing::info!(lock = %lock.display(), "removed the lock of a process that was killed"),
        Err(error) => tracing::warn!(lock = %lock.display(), %error, "could not remove a stale lock"),
    }
}

/// Calls `visit` for each entry of a folder, with its name and whether it is a folder. None when it is not there.
fn for_each(folder: &Path, visit: &mut dyn FnMut(&Path, &str, bool)) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        visit(&entry.path(), &entry.file_name().to_string_lossy(), is_folder);
    }
}

fn remove_if_old(path: &Path, is_folder: bool, now: Moment) -> bool {
    let old = Signature::of(path).is_some_and(|signature| signature.mtime().seconds_before(now) > AGE);
    old && if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) }.is_ok()
}
