//! Small files, written whole or not at all.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// How the names of unfinished files begin. Nothing that begins so is ever listed or read.
pub const UNFINISHED: &str = ".tmp-";

/// What to do when the file is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfThere {
    /// It is replaced; its mode is kept, and a symbolic link stays one.
    Replace,
    /// `AlreadyExists`, and nothing is changed.
    Refuse,
}

/// Writes `path` so that readers see the old content or the new, also after a power cut: temporary file in the
/// same folder, fsync, rename, fsync of the folder.
pub fn write_atomic(path: &Path, content: &[u8], if_there: IfThere) -> io::Result<()> {
    let target = match if_there {
        IfThere::Replace => path.canonicalize().unwrap_or_else(|_| path.to_owned()),
        IfThere::Refuse => path.to_owned(),
    };
    let folder = folder_of(&target);
    // The umask still applies; tempfile's own default would be private to the user.
    let mut new = tempfile::Builder::new()
        .prefix(UNFINISHED)
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(&folder)?;
    new.write_all(content)?;
    if if_there == IfThere::Replace
        && let Ok(old) = std::fs::metadata(&target)
    {
        new.as_file().set_permissions(old.permissions())?;
    }
    new.as_file().sync_all()?;
    match if_there {
        IfThere::Replace => new.persist(&target).map(drop)?,
        IfThere::Refuse => new.persist_noclobber(&target).map(drop)?,
    }
    File::open(&folder)?.sync_all()
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_through_a_link_and_keeps_the_mode() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        std::fs::write(&real, "old").unwrap();
        std::fs::set_permissions(&real, Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        write_atomic(&link, b"new", IfThere::Replace).unwrap();
        assert_eq!(std::fs::read_to_string(&real).unwrap(), "new");
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn refuses_what_is_there_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        write_atomic(&path, b"one", IfThere::Refuse).unwrap();
        let error = write_atomic(&path, b"two", IfThere::Refuse).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).unwrap(), b"one");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
