//! Reads the SPEC from disk: bounded, never blocking, and cheap when nothing has changed.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use git2::{ObjectType, Oid};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::domain::spec::Spec;

/// A larger file is no spec. 64 MiB.
pub const MAX_BYTES: u64 = 64 << 20;

/// Tries to read a file that is being written. After that the last state is taken: the next look notices the rest.
const MAX_READS: usize = 3;

/// A spec as it was when it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecFile {
    /// The path as it was given.
    pub path: PathBuf,
    /// The spec.
    pub spec: Spec,
    /// Which content this is.
    pub version: SpecVersion,
}

/// Which content a spec file had. Kept in the state, to notice a change also across restarts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpecVersion {
    /// Id of the bytes as a git blob (SHA-1, as `git hash-object` prints it).
    pub hash: String,
    stamp: Stamp,
}

/// What changes whenever a file is written or replaced. A write that keeps the size within the same tick of the file
/// system's clock can escape it; the next look at another stamp finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    changed: (i64, i64),
}

/// Why a spec cannot be read. Each says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum SpecFileError {
    /// There is no such file.
    #[error(
        "read the spec: {path} does not exist; check the path, or leave SPEC out to let the work be derived from the code"
    )]
    NotFound {
        /// The path as it was given.
        path: PathBuf,
    },
    /// It is a folder.
    #[error("read the spec: {path} is a folder; name a file in it{}", hint(.found))]
    Directory {
        /// The path as it was given.
        path: PathBuf,
        /// A file in it that looks like a spec.
        found: Option<PathBuf>,
    },
    /// It is a pipe, socket or device.
    #[error(
        "read the spec: {path} is a {kind}, and a spec is read again at each iteration; save it as a file first"
    )]
    NotAFile {
        /// The path as it was given.
        path: PathBuf,
        /// What it is instead.
        kind: &'static str,
    },
    /// The user may not read it.
    #[error(
        "read the spec: no permission to read {path}; try `chmod u+r` on it, or on its folders `chmod u+x`"
    )]
    Permission {
        /// The path as it was given.
        path: PathBuf,
    },
    /// It is longer than [`MAX_BYTES`].
    #[error("read the spec: {path} has more than {} MiB; split it, and refer to the parts from a shorter one", MAX_BYTES >> 20)]
    TooLarge {
        /// The path as it was given.
        path: PathBuf,
    },
    /// Any other failure.
    #[error("read the spec {path}: {source}")]
    Io {
        /// The path as it was given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

fn hint(found: &Option<PathBuf>) -> String {
    found.as_ref().map(|file| format!(", such as {}", file.display())).unwrap_or_default()
}

// === impl SpecVersion ===

impl SpecVersion {
    /// The file at `path` has not been touched since. One `stat`.
    pub fn is_of(&self, path: &Path) -> bool {
        std::fs::metadata(path).is_ok_and(|meta| Stamp::of(&meta) == self.stamp)
    }
}

// === impl SpecFile ===

impl SpecFile {
    /// Whether there is something at `path` that can be read as a spec, without reading it.
    ///
    /// # Errors
    /// Those of [`SpecFile::read`].
    pub fn check(path: &Path) -> Result<(), SpecFileError> {
        open(path).map(drop)
    }

    /// Reads and parses the spec at `path`.
    pub fn read(path: &Path) -> Result<Self, SpecFileError> {
        let (bytes, stamp) = read(path)?;
        let version = SpecVersion { hash: hash(path, &bytes)?, stamp };
        Ok(Self::parse(path, bytes, version))
    }

    /// Reads the spec again if it is not the version that `known` names. `None`: it is; `known` then holds its newest
    /// stamp, so that the next look is cheap again (one `stat`).
    pub fn read_if_changed(path: &Path, known: &mut SpecVersion) -> Result<Option<Self>, SpecFileError> {
        let fail = |error| classify(path, error);
        let stamp = Stamp::of(&std::fs::metadata(path).map_err(fail)?);
        if stamp == known.stamp {
            return Ok(None);
        }
        let (bytes, stamp) = read(path)?;
        let version = SpecVersion { hash: hash(path, &bytes)?, stamp };
        let same = version.hash == known.hash;
        *known = version.clone();
        Ok((!same).then(|| Self::parse(path, bytes, version)))
    }

    fn parse(path: &Path, bytes: Vec<u8>, version: SpecVersion) -> Self {
        let name = path.file_name().map(|name| name.to_string_lossy());
        SpecFile { path: path.to_owned(), spec: Spec::parse(bytes, name.as_deref()), version }
    }
}

// === impl Stamp ===

impl Stamp {
    fn of(meta: &Metadata) -> Self {
        Stamp {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

/// The bytes and the stamp that they belong to.
fn read(path: &Path) -> Result<(Vec<u8>, Stamp), SpecFileError> {
    let fail = |error| classify(path, error);
    let mut bytes = Vec::new();
    for _ in 0..MAX_READS {
        let (file, before) = open(path)?;
        read_bounded(&file, before.len(), &mut bytes).map_err(fail)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(SpecFileError::TooLarge { path: path.to_owned() });
        }
        let stamp = Stamp::of(&file.metadata().map_err(fail)?);
        if stamp == Stamp::of(&before) {
            return Ok((bytes, stamp));
        }
    }
    let stamp = Stamp::of(&std::fs::metadata(path).map_err(fail)?);
    // Its size is not what was read: the next look finds another stamp and reads again.
    Ok((bytes, Stamp { size: u64::MAX, ..stamp }))
}

fn open(path: &Path) -> Result<(File, Metadata), SpecFileError> {
    let fail = |error| classify(path, error);
    // Without NONBLOCK the opening of a pipe that nobody writes to would never return.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(fail)?;
    let meta = file.metadata().map_err(fail)?;
    check_kind(path, &meta)?;
    Ok((file, meta))
}

fn read_bounded(file: &File, size: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
    bytes.clear();
    bytes.reserve_exact(usize::try_from(size.min(MAX_BYTES)).unwrap_or(0));
    file.take(MAX_BYTES + 1).read_to_end(bytes)?;
    Ok(())
}

fn check_kind(path: &Path, meta: &Metadata) -> Result<(), SpecFileError> {
    let kind = meta.file_type();
    if kind.is_file() {
        return match meta.len() > MAX_BYTES {
            true => Err(SpecFileError::TooLarge { path: path.to_owned() }),
            false => Ok(()),
        };
    }
    if kind.is_dir() {
        let names = ["SPEC.md", "spec.md", "PRD.md", "prd.json", "README.md"];
        let found = names.iter().map(|name| path.join(name)).find(|file| file.is_file());
        return Err(SpecFileError::Directory { path: path.to_owned(), found });
    }
    let kind = match kind {
        k if k.is_fifo() => "pipe",
        k if k.is_socket() => "socket",
        _ => "device",
    };
    Err(SpecFileError::NotAFile { path: path.to_owned(), kind })
}

fn classify(path: &Path, source: io::Error) -> SpecFileError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => SpecFileError::NotFound { path },
        io::ErrorKind::PermissionDenied => SpecFileError::Permission { path },
        // Opening a socket.
        _ if source.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => {
            SpecFileError::NotAFile { path, kind: "socket" }
        }
        _ => SpecFileError::Io { path, source },
    }
}

fn hash(path: &Path, bytes: &[u8]) -> Result<String, SpecFileError> {
    let id = Oid::hash_object(ObjectType::Blob, bytes);
    id.map(|id| id.to_string())
        .map_err(|error| SpecFileError::Io { path: path.to_owned(), source: io::Error::other(error) })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::domain::spec::SpecWarning;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn a_spec_is_read_with_its_version() {
        let dir = folder();
        let path = dir.path().join("spéc ☃.md");
        fs::write(&path, "# Goal\n\n- one\n").unwrap();
        let file = SpecFile::read(&path).unwrap();
        assert_eq!((file.spec.headings, file.spec.features), (1, 2));
        // `printf '# Goal\n\n- one\n' | git hash-object --stdin`
        assert_eq!(file.version.hash, "50f3b9aa75c6d8d1c9ba1fd94c22126ea237bec3");
    }

    #[test]
    fn ep_001_an_empty_file_is_an_empty_spec() {
        let dir = folder();
        let path = dir.path().join("SPEC.md");
        for content in [&b""[..], b"\xEF\xBB\xBF", b" \r\n\t\n"] {
            fs::write(&path, content).unwrap();
            assert_eq!(SpecFile::read(&path).unwrap().spec.warnings, [SpecWarning::Empty], "{content:?}");
        }
    }

    #[test]
    fn a_change_of_the_content_is_noticed_and_only_that() {
        let dir = folder();
        let path = dir.path().join("SPEC.md");
        fs::write(&path, "one").unwrap();
        let mut known = SpecFile::read(&path).unwrap().version;
        assert_eq!(SpecFile::read_if_changed(&path, &mut known).unwrap(), None);

        // Replaced by the same content, as editors do.
        let other = dir.path().join("new");
        fs::write(&other, "one").unwrap();
        fs::rename(&other, &path).unwrap();
        assert_eq!(SpecFile::read_if_changed(&path, &mut known).unwrap(), None);
        let stamp = Stamp::of(&fs::metadata(&path).unwrap());
        assert_eq!(known.stamp, stamp, "the next look is one stat");

        fs::write(&path, "other").unwrap();
        let stored = serde_json::to_string(&known).unwrap();
        let mut known: SpecVersion = serde_json::from_str(&stored).unwrap();
        let changed = SpecFile::read_if_changed(&path, &mut known).unwrap().unwrap();
        assert_eq!((changed.spec.text.as_str(), &changed.version), ("other", &known));
    }

    #[test]
    fn what_is_no_readable_file_is_refused_with_a_way_out() {
        let dir = folder();
        let missing = SpecFile::read(&dir.path().join("none.md")).unwrap_err();
        assert!(matches!(missing, SpecFileError::NotFound { .. }), "{missing}");

        fs::write(dir.path().join("SPEC.md"), "x").unwrap();
        let below = SpecFile::read(&dir.path().join("SPEC.md/x")).unwrap_err();
        assert!(matches!(below, SpecFileError::NotFound { .. }), "{below}");
        let directory = SpecFile::read(dir.path()).unwrap_err();
        assert!(directory.to_string().contains("SPEC.md"), "{directory}");

        let pipe = dir.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
        let error = SpecFile::read(&pipe).unwrap_err();
        assert!(matches!(error, SpecFileError::NotAFile { kind: "pipe", .. }), "{error}");

        let socket = dir.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let error = SpecFile::read(&socket).unwrap_err();
        assert!(matches!(error, SpecFileError::NotAFile { kind: "socket", .. }), "{error}");
        let error = SpecFile::read(Path::new("/dev/null")).unwrap_err();
        assert!(matches!(error, SpecFileError::NotAFile { kind: "device", .. }), "{error}");

        let large = dir.path().join("large.md");
        File::create(&large).unwrap().set_len(MAX_BYTES + 1).unwrap();
        let error = SpecFile::read(&large).unwrap_err();
        assert!(matches!(error, SpecFileError::TooLarge { .. }), "{error}");

        if !rustix::process::geteuid().is_root() {
            let path = dir.path().join("SPEC.md");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
            let error = SpecFile::read(&path).unwrap_err();
            assert!(matches!(error, SpecFileError::Permission { .. }), "{error}");
        }
    }
}
