//! What can be relied on at a place in the file tree: change notices, leases, quick answers.

use std::io;
use std::path::Path;

use rustix::fs::{FsWord, statfs};

/// Who can change files there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystem {
    /// Only this host, through this kernel: every change gives a notice, and calls answer at once.
    Local,
    /// Others as well: changes made elsewhere give no notice, and any call may hang with the server.
    Shared(&'static str),
}

/// File systems by the magic number of statfs(2) that another host, or a program, stands behind
/// (`linux/magic.h`, and each module's own header).
const SHARED: [(u32, &str); 13] = [
    (0x0000_6969, "NFS"),
    (0x0000_517B, "SMB"),
    (0xFF53_4D42, "SMB"),
    (0xFE53_4D42, "SMB"),
    (0x6573_5546, "FUSE"),
    (0x0102_1997, "9p"),
    (0x5346_414F, "AFS"),
    (0x00C3_6400, "Ceph"),
    (0x0116_1970, "GFS2"),
    (0x7461_636F, "OCFS2"),
    (0x0BD0_0BD0, "Lustre"),
    (0x786F_4256, "vboxsf"),
    (0xBACB_ACBC, "vmhgfs"),
];

/// Looks at the file system of `path`, which must exist. Blocks: a server that does not answer holds it up.
///
/// # Errors
/// What statfs says.
pub fn file_system(path: &Path) -> io::Result<FileSystem> {
    Ok(by_magic(statfs(path)?.f_type))
}

fn by_magic(magic: FsWord) -> FileSystem {
    // The numbers have 32 bits; kernels differ in whether they extend the highest.
    let low = magic as u32;
    let known = SHARED.iter().find(|(magic, _)| *magic == low);
    known.map_or(FileSystem::Local, |(_, name)| FileSystem::Shared(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_their_numbers() {
        assert_eq!(by_magic(0xEF53), FileSystem::Local);
        assert_eq!(by_magic(0x0102_1994), FileSystem::Local); // tmpfs, next to 9p
        assert_eq!(by_magic(0x6969), FileSystem::Shared("NFS"));
        assert_eq!(by_magic(0xFF53_4D42), FileSystem::Shared("SMB"));
        assert_eq!(by_magic(i64::from(0xFE53_4D42_u32.cast_signed())), FileSystem::Shared("SMB"));
    }

    #[test]
    fn a_temporary_folder_is_local() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(file_system(dir.path()).unwrap(), FileSystem::Local);
        assert!(file_system(&dir.path().join("nothing")).is_err());
    }
}
