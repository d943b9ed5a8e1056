//! Is anybody writing to a file? Asked by way of a read lease (fcntl(2), "Leases"), which is refused while a writer
//! has the file open.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// fcntl(2) command of Linux, the same on every architecture, that the `libc` crate leaves out here.
const F_SETSIG: libc::c_int = 10;

/// Who has a file open for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writers {
    /// Nobody, at the moment of asking.
    None,
    /// Somebody.
    Some,
    /// It cannot be told: not our file, not a regular one, or a file system without leases.
    Unknown,
}

/// Asks for a file that was opened for reading. On network file systems the answer means nothing: other hosts'
/// writers are not seen, and NFS 4 refuses without a delegation.
pub fn writers(file: &File) -> Writers {
    let fd = file.as_raw_fd();
    // A writer that comes while the lease is held is told to us by a signal, and waits for the moment that it takes to
    // give the lease back. By default that signal is SIGIO, which ends a process; SIGURG is ignored by default.
    // SAFETY: fcntl with F_SETSIG takes an integer and touches no memory; `file` keeps `fd` open.
    if unsafe { libc::fcntl(fd, F_SETSIG, libc::SIGURG) } == -1 {
        return Writers::Unknown;
    }
    // SAFETY: fcntl with F_SETLEASE takes an integer and touches no memory; `file` keeps `fd` open.
    if unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_RDLCK) } == -1 {
        let refused = io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN);
        return if refused { Writers::Some } else { Writers::Unknown };
    }
    // SAFETY: as above.
    unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK) };
    Writers::None
}

/// Asks again for a moment before it believes in a writer. A program that is just being started has the writer's
/// descriptor, too, between its fork and its exec; that is over in milliseconds. Blocks for up to 50 ms.
pub fn lasting_writers(file: &File) -> Writers {
    const TRIES: u32 = 25;
    for _ in 0..TRIES {
        match writers(file) {
            Writers::Some => std::thread::sleep(std::time::Duration::from_millis(2)),
            other => return other,
        }
    }
    Writers::Some
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn sees_writers_come_and_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let writer = File::create(&path).unwrap();
        let reader = File::open(&path).unwrap();
        assert_eq!(writers(&reader), Writers::Some);
        let _other_reader = File::open(&path).unwrap();
        drop(writer);
        assert_eq!(lasting_writers(&reader), Writers::None);
        assert_eq!(lasting_writers(&reader), Writers::None);
        let appender = File::options().append(true).open(&path).unwrap();
        assert_eq!(writers(&reader), Writers::Some);
        drop(appender);
        assert_eq!(lasting_writers(&reader), Writers::None);
    }

    #[test]
    fn folders_have_no_leases() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(writers(&File::open(dir.path()).unwrap()), Writers::Unknown);
    }

    /// Writers that open the file in the very moment of asking break the lease: that must not end this process.
    #[test]
    fn survives_writers_that_break_the_lease() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "").unwrap();
        let (done, reader) = (AtomicBool::new(false), File::open(&path).unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..2000 {
                    File::options().append(true).open(&path).unwrap().write_all(b"x").unwrap();
                }
                done.store(true, Ordering::Relaxed);
            });
            while !done.load(Ordering::Relaxed) {
                writers(&reader);
            }
        });
        assert_eq!(lasting_writers(&reader), Writers::None);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 2000);
    }
}
