//! Whether a file is still the one that was looked at.

use std::fs::{Metadata, metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What changes when a file is written or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    inode: u64,
    /// Bytes.
    pub size: u64,
    modified: (i64, i64),
}

// === impl Stamp ===

impl Stamp {
    /// Of a file that was looked at.
    pub fn of(metadata: &Metadata) -> Self {
        Stamp {
            inode: metadata.ino(),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }

    /// Of the file that stands under a name now.
    pub fn of_path(path: &Path) -> Option<Self> {
        metadata(path).ok().map(|metadata| Stamp::of(&metadata))
    }

    /// Modification time, milliseconds since the epoch.
    pub fn milliseconds(&self) -> u64 {
        let (seconds, nanoseconds) = self.modified;
        u64::try_from(seconds.saturating_mul(1000).saturating_add(nanoseconds / 1_000_000)).unwrap_or(0)
    }

    /// One for tests of what works with them.
    #[cfg(test)]
    pub(crate) fn with_size(size: u64) -> Self {
        Stamp { inode: 1, size, modified: (0, 0) }
    }
}
