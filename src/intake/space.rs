//! Free bytes and inodes where we write: of the very paths, never of a list of disks. In containers such lists have
//! disks twice and miss others (rust-lang/rust#159534). What programs say about full disks is not asked either.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

use super::file_system::{FileSystem, file_system};
use crate::config::UNFINISHED;
use crate::domain::disk::Space;

/// What [`has_room`] asks for, in bytes: more than the ballast file gives back.
const TRY: u64 = 8 * 1024 * 1024;

/// The same where space cannot be reserved without writing.
const TRY_WRITING: usize = 1024 * 1024;

/// A file system in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// A path on it that exists.
    pub path: PathBuf,
    /// Its device number.
    pub device: u64,
    /// Whether it answers at once.
    pub kind: FileSystem,
}

/// The file systems of these paths, each once. Of a path that does not exist yet, that of the nearest folder above
/// it. Blocks as long as a server does.
pub fn places(paths: &[PathBuf]) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    for place in paths.iter().filter_map(|path| place(path)) {
        if places.iter().all(|known| known.device != place.device) {
            places.push(place);
        }
    }
    places
}

fn place(path: &Path) -> Option<Place> {
    path.ancestors().find_map(|path| {
        let device = fs::metadata(path).ok()?.dev();
        let kind = file_system(path).ok()?;
        Some(Place { path: path.to_owned(), device, kind })
    })
}

/// Measures. Answers at once on a local file system.
///
/// # Errors
/// What statvfs says: for one, that the path is gone.
pub fn measure(place: &Place) -> io::Result<Space> {
    let stat = statvfs(&place.path)?;
    Ok(Space {
        path: place.path.display().to_string(),
        // `frsize` is the unit of the counts, `bsize` only a hint for readers; `bavail` is without root's reserve.
        free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
        // btrfs makes inodes as it needs them and says 0 of 0.
        free_inodes: (stat.f_files > 0).then_some(stat.f_favail),
        write_failed: false,
    })
}

/// Tries whether a few megabytes can be had: quotas and reserved blocks do not show in a measurement. False only when
/// it is space that is wanting.
pub fn has_room(place: &Place) -> bool {
    let folder = if place.path.is_dir() { Some(place.path.as_path()) } else { place.path.parent() };
    let file = folder.map(|folder| folder.join(format!("{UNFINISHED}space-{}", std::process::id())));
    let Some(file) = file else { return true };
    let tried = File::create(&file).and_then(|file| take_space(&file));
    // It may not have been made.
    drop(fs::remove_file(&file));
    !tried
        .is_err_and(|error| matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
}

fn take_space(mut file: &File) -> io::Result<()> {
    match fallocate(file, FallocateFlags::empty(), 0, TRY).map_err(io::Error::from) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            file.write_all(&vec![0; TRY_WRITING])?;
            file.sync_data()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_place_for_one_file_system() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("not/there/yet");
        let found = places(&[dir.path().to_owned(), deep.clone(), PathBuf::from("/proc")]);
        assert_eq!(found.len(), 2);
        assert_eq!(places(&[deep]).first().map(|place| place.path.clone()), Some(dir.path().to_owned()));
        let space = measure(found.first().unwrap()).unwrap();
        assert!(space.free_bytes > 0 && space.free_inodes != Some(0));
        assert!(has_room(found.first().unwrap()));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_cannot_be_written_for_other_reasons_is_not_full() {
        let proc = places(&[PathBuf::from("/proc")]);
        assert!(has_room(proc.first().unwrap()));
    }
}
