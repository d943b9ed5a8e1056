//! Packing our loose objects, so that weeks of checkpoints neither slow git down nor make it nag.
//!
//! Objects of removed checkpoints are packed with the others and never deleted by us: a user's commit may have
//! come to need the same blob. `git gc` drops them later by its own rules.

use std::fs;

use super::GitError;
use super::backend::Backend;
use super::repo::Place;

/// Checkpoints between two packs.
const CHECKPOINTS: u64 = 500;
/// `gc.auto`: from so many loose objects on git packs them after the next commit, and complains while most of
/// them cannot be reached.
const LOOSE_MAX: u64 = 6700;
/// Packing fewer of ours would not help against the limit above.
const WORTHWHILE: u64 = 1000;

/// See [`super::Repo::pack_if_due`]. The count of checkpoints lives in our folder, so that short runs add up.
pub(super) fn pack_if_due(backend: &mut dyn Backend, place: &Place) -> Result<Option<usize>, GitError> {
    let counter = place.private().join("unpacked");
    let checkpoints = fs::metadata(&counter).map_or(0, |meta| meta.len()) + 1;
    let ours = backend.loose_objects();
    let due =
        checkpoints >= CHECKPOINTS || ours > LOOSE_MAX || (ours > WORTHWHILE && loose(place) > LOOSE_MAX);
    if due {
        let packed = backend.pack()?;
        fs::write(&counter, "").map_err(GitError::file("write", &counter))?;
        return Ok(Some(packed));
    }
    // One byte for each: appending is atomic, and there is nothing to be parsed.
    let file = fs::OpenOptions::new().create(true).append(true).open(&counter);
    file.and_then(|mut file| std::io::Write::write_all(&mut file, b"."))
        .map_err(GitError::file("write", &counter))?;
    Ok(None)
}

/// All loose objects of the repository, estimated as git does: one of the 256 folders stands for all.
fn loose(place: &Place) -> u64 {
    let folder = place.common_dir.join("objects/17");
    fs::read_dir(folder).map_or(0, |entries| entries.count() as u64 * 256)
}
