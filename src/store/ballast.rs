//! Space that is kept on the file system of the state, so that the last commits still fit when it is full.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::paths::StorePaths;

/// Size of the ballast, bytes: some hundred commits, and the journal's lines of them.
pub const SIZE: u64 = 4 << 20;

/// The ballast file. After [`StoreError::Full`](super::StoreError::Full): release it and commit again; restore it
/// when there is room.
#[derive(Debug, Clone)]
pub struct Ballast {
    path: PathBuf,
}

// === impl Ballast ===

impl Ballast {
    /// The ballast of a project; touches nothing yet.
    pub fn new(paths: &StorePaths) -> Self {
        Ballast { path: paths.ballast.clone() }
    }

    /// Makes it whole if it is not: `Ok(true)` when it had to be. Fails on a full disk, and then takes nothing.
    pub fn restore(&self) -> io::Result<bool> {
        match fs::metadata(&self.path) {
            Ok(meta) if meta.len() >= SIZE => return Ok(false),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&self.path)?;
        fill(&mut file).inspect_err(|_| {
            // A part of it is of no use, and the space may be what somebody waits for.
            let _ = fs::remove_file(&self.path);
        })?;
        Ok(true)
    }

    /// Gives its space back: `Ok(false)` when there was none.
    pub fn release(&self) -> io::Result<bool> {
        match fs::remove_file(&self.path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Takes real blocks. Where they cannot be reserved they are written, with content that no file system compresses
/// away.
fn fill(file: &mut File) -> io::Result<()> {
    match rustix::fs::fallocate(&*file, FallocateFlags::empty(), 0, SIZE) {
        Ok(()) => return Ok(()),
        Err(Errno::NOTSUP | Errno::NOSYS | Errno::INVAL) => {}
        Err(error) => return Err(error.into()),
    }
    let mut random = fastrand::Rng::with_seed(SIZE);
    let mut block = vec![0; 64 << 10];
    for _ in 0..SIZE / block.len() as u64 {
        random.fill(&mut block);
        file.write_all(&block)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
