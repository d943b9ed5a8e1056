//! Line-end conversion and attributes, by libgit2.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use git2::{AttrCheckFlags, AttrValue, Index, Oid, Repository};

use super::GitError;
use super::open::Opener;

/// A handle of its own for what libgit2 remembers of attribute files and of the user's index: it checks neither
/// closely enough, so the handle is dropped when one of them changes. It is opened only when it is needed, and
/// never writes the index.
pub(super) struct Converter {
    opener: Opener,
    repository: Option<Repository>,
}

// === impl Converter ===

impl Converter {
    /// For the repository that `opener` opens.
    pub(super) fn new(opener: Opener) -> Self {
        Converter { opener, repository: None }
    }

    /// Attributes, configuration or the user's index have changed.
    pub(super) fn forget(&mut self) {
        self.repository = None;
    }

    /// Whether an attribute names a filter or an encoding for this path of the work tree.
    pub(super) fn has_driver(&mut self, path: &Path) -> Result<bool, GitError> {
        let repository = self.repository()?;
        for attribute in ["filter", "working-tree-encoding"] {
            let value = repository.get_attr_bytes(path, attribute, AttrCheckFlags::FILE_THEN_INDEX)?;
            if matches!(AttrValue::from_bytes(value), AttrValue::String(_) | AttrValue::Bytes(_)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the attribute `ident` is set for this path.
    pub(super) fn expands_ident(&mut self, path: &Path) -> Result<bool, GitError> {
        let value = self.repository()?.get_attr_bytes(path, "ident", AttrCheckFlags::FILE_THEN_INDEX)?;
        Ok(AttrValue::from_bytes(value) == AttrValue::True)
    }

    /// Writes the blob of the file at this path of the work tree. `None`: libgit2 refuses it (`core.safecrlf`), or
    /// would not do what git does.
    pub(super) fn blob(&mut self, path: &Path) -> Result<Option<Oid>, GitError> {
        let absolute = self.opener.folder.join(path);
        let repository = self.repository()?;
        if let Some(entry) = repository.index()?.get_path(path, 0) {
            // With `text=auto` git leaves line ends alone when the blob in the index is a text with CRLF; libgit2
            // does so when it is a link, or has a carriage return anywhere.
            let regular = entry.mode & 0o170_000 == 0o100_000;
            let agrees =
                |blob: git2::Blob<'_>| !blob.content().contains(&b'\r') || is_crlf_text(blob.content());
            if !regular || !repository.find_blob(entry.id).is_ok_and(agrees) {
                return Ok(None);
            }
        }
        Ok(repository.blob_path(&absolute).ok())
    }

    fn repository(&mut self) -> Result<&Repository, GitError> {
        let opened = match self.repository.take() {
            Some(repository) => repository,
            None => self.open()?,
        };
        Ok(self.repository.insert(opened))
    }

    fn open(&self) -> Result<Repository, GitError> {
        let repository = self.opener.open()?;
        // libgit2 takes the attributes of the file and then, for what it leaves open, those of the same file in the
        // index. git looks into the index only when there is no file.
        let mut index = Index::open(&repository.path().join("index"))?;
        let folder = &self.opener.folder;
        let doubled: Vec<_> = index
            .iter()
            .filter(|entry| entry.path.ends_with(b".gitattributes"))
            .map(|entry| PathBuf::from(OsStr::from_bytes(&entry.path)))
            .filter(|path| folder.join(path).symlink_metadata().is_ok())
            .collect();
        for path in doubled {
            index.remove_path(&path)?;
        }
        repository.set_index(&mut index)?;
        Ok(repository)
    }
}

/// Whether git surely takes this for text with CRLF line ends: no lone carriage return, nothing unprintable.
fn is_crlf_text(bytes: &[u8]) -> bool {
    let printable = |&b: &u8| !matches!(b, 0..8 | 11 | 14..=26 | 28..32 | 127);
    bytes.iter().all(printable)
        && bytes.iter().enumerate().all(|(at, &b)| b != b'\r' || bytes.get(at + 1) == Some(&b'\n'))
}
