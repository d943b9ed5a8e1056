//! Small files that are replaced as a whole: `status.json`, `signals/*`.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use tempfile::NamedTempFile;

/// How our temporary files are recognised.
const PREFIX: &str = ".longhaul-tmp-";

/// How all our temporary files begin: these, and those of settings and signal files.
const OURS: [&str; 2] = [PREFIX, ".tmp-"];

/// A temporary file younger than this may still be in use.
const ORPHAN_AGE: Duration = Duration::from_secs(5 * 60);

/// A new temporary file in `dir`, readable as the umask says; deleted when dropped.
pub(crate) fn temporary(dir: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new().prefix(PREFIX).permissions(Permissions::from_mode(0o666)).tempfile_in(dir)
}

/// Replaces the file at `path` with `content`: a reader sees the old one or the new one, never a part. With `sync`
/// it outlives a power cut once this returns.
pub fn replace(path: &Path, content: &[u8], sync: bool) -> io::Result<()> {
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let mut file = temporary(dir)?;
    file.write_all(content)?;
    if sync {
        file.as_file().sync_data()?;
    }
    file.persist(path).map_err(|error| error.error)?;
    if sync {
        fs::File::open(dir)?.sync_all()?;
    }
    Ok(())
}

/// Deletes temporary files of ours in `dir` that a killed process left more than 5 minutes ago, and says how many.
/// `now` is wall time.
pub fn sweep_temp(dir: &Path, now: Timestamp) -> io::Result<usize> {
    let mut swept = 0;
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        if !OURS.iter().any(|prefix| name.as_encoded_bytes().starts_with(prefix.as_bytes())) {
            continue;
        }
        // Others may delete it at the same moment; then there is nothing left to do.
        let Ok(modified) = entry.metadata().and_then(|meta| meta.modified()) else { continue };
        let Ok(modified) = Timestamp::try_from(modified) else { continue };
        let age = Duration::try_from(now.duration_since(modified)).unwrap_or(Duration::ZERO);
        if age > ORPHAN_AGE && fs::remove_file(entry.path()).is_ok() {
            swept += 1;
        }
    }
    Ok(swept)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::SystemTime;

    use super::*;
    use crate::store::testing::noon;

    #[test]
    fn replaces_as_a_whole_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("status.json");
        for (content, sync) in [("one", false), ("two, longer", true), ("3", false)] {
            replace(&path, content.as_bytes(), sync).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_reader_meets_the_old_content_or_the_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("status.json");
        let contents = ["a".repeat(10), "b".repeat(100_000)];
        replace(&path, contents[0].as_bytes(), false).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..200 {
                    replace(&path, contents[n % 2].as_bytes(), false).unwrap();
                }
            });
            for _ in 0..200 {
                let seen = fs::read_to_string(&path).unwrap();
                assert!(contents.contains(&seen), "{} bytes", seen.len());
            }
        });
    }

    #[test]
    fn a_failed_replacement_leaves_the_old_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("folder");
        fs::create_dir(&path).unwrap();
        assert!(replace(&path, b"x", false).is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn only_old_temporary_files_of_ours_are_swept() {
        let dir = tempfile::tempdir().unwrap();
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(noon().as_second() as u64);
        for (name, age) in [
            (".longhaul-tmp-old", 301),
            (".longhaul-tmp-old-wal", 301),
            (".longhaul-tmp-young", 299),
            (".longhaul-tmp-ahead", 0),
            ("status.json", 10_000),
        ] {
            let file = File::create(dir.path().join(name)).unwrap();
            file.set_modified(now - Duration::from_secs(age)).unwrap();
        }
        assert_eq!(sweep_temp(dir.path(), noon()).unwrap(), 2);
        let mut left: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [".longhaul-tmp-ahead", ".longhaul-tmp-young", "status.json"]);
        assert_eq!(sweep_temp(&dir.path().join("absent"), noon()).unwrap(), 0);
    }
}
