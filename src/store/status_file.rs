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
        if !entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
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
