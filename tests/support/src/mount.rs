//! A disk so small that it can be filled.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A tmpfs of a few MiB, taken down when this value goes.
#[derive(Debug)]
pub struct SmallDisk {
    folder: PathBuf,
}

impl SmallDisk {
    /// Mounts a tmpfs of `megabytes` MiB and 4000 inodes on `folder`; none, with a notice, where that is not allowed.
    pub fn mount(folder: &Path, megabytes: u32) -> Option<SmallDisk> {
        std::fs::create_dir_all(folder).expect("the mount point is made");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={megabytes}m,nr_inodes=4000"), "tmpfs"])
            .arg(folder)
            .output()
            .is_ok_and(|o| o.status.success());
        if !mounted {
            eprintln!("notice: skipped, a tmpfs can be mounted by root alone");
            return None;
        }
        Some(SmallDisk { folder: folder.to_owned() })
    }

    /// Where it is mounted.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Bytes that are free.
    pub fn free(&self) -> u64 {
        let stat = rustix::fs::statvfs(&self.folder).expect("a mounted file system has figures");
        stat.f_bavail * stat.f_frsize
    }

    /// Writes a file that leaves `free` bytes, and gives its path.
    pub fn fill_to(&self, free: u64) -> PathBuf {
        let ballast = self.folder.join("filler");
        let mut file = File::options().create(true).append(true).open(&ballast).expect("a file to fill it");
        let length = file.metadata().expect("an open file has figures").len();
        match self.free().checked_sub(free) {
            Some(more) => {
                let zeros = vec![0u8; usize::try_from(more).expect("a small disk")];
                match file.write_all(&zeros) {
                    // Others have written meanwhile: it is as full as can be.
                    Err(error) if error.kind() == std::io::ErrorKind::StorageFull => {}
                    done => done.expect("a file to fill it"),
                }
            }
            // Never empty in between: whoever looks at the disk would see room.
            None => file.set_len(length.saturating_sub(free - self.free())).expect("it may be cut"),
        }
        ballast
    }

    /// Inodes in all.
    pub fn inodes(&self) -> u64 {
        rustix::fs::statvfs(&self.folder).expect("a mounted file system has figures").f_files
    }

    /// Makes empty files in `folder` until only `free` inodes are left.
    pub fn use_inodes_to(&self, folder: &Path, free: u64) {
        let left = rustix::fs::statvfs(&self.folder).expect("a mounted file system has figures").f_ffree;
        for n in 0..left.saturating_sub(free) {
            std::fs::write(folder.join(n.to_string()), "").expect("an empty file");
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.folder).output();
    }
}
