//! New objects: hashed at once, written when there is time.
//!
//! What the next call must wait for is reading the files; the objects made of them can be written while it runs.
//! Small ones are held back in memory up to a bound, and every object that we write is noted in a list, so that
//! packing takes our own loose objects and no others.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use git2::{ObjectType, Oid, Repository};

use super::GitError;

/// A file up to this size is read whole and may be held back; a larger one is streamed.
pub(super) const WHOLE_MAX: u64 = 256 << 10;
/// Held-back objects use at most this much memory.
const PENDING_MAX: usize = 1 << 20;
/// A line of the list: 40 hex digits and the line end.
const LINE: u64 = 41;

/// Objects that are not written yet, and the list of those that are.
#[derive(Debug)]
pub(super) struct Objects {
    pending: Vec<(ObjectType, Vec<u8>)>,
    pending_bytes: usize,
    /// Written, but not yet noted in the list.
    unlisted: String,
    list: PathBuf,
    /// Everything must survive a power cut before a reference names it.
    durable: bool,
}

// === impl Objects ===

impl Objects {
    /// With the list in `private`, our folder in the git directory.
    pub(super) fn new(private: &Path, durable: bool) -> Self {
        let list = private.join("loose");
        Objects { pending: Vec::new(), pending_bytes: 0, unlisted: String::new(), list, durable }
    }

    /// Names an object. It is written at the next [`Objects::flush`] at the latest.
    pub(super) fn put(
        &mut self,
        repo: &Repository,
        kind: ObjectType,
        data: Vec<u8>,
    ) -> Result<Oid, GitError> {
        let id = Oid::hash_object(kind, &data)?;
        if self.pending_bytes + data.len() > PENDING_MAX {
            self.flush(repo)?;
        }
        self.pending_bytes += cost(&data);
        self.pending.push((kind, data));
        Ok(id)
    }

    /// Writes a blob of exactly `size` bytes while reading it. `None`: the file became shorter meanwhile.
    pub(super) fn stream(
        &mut self,
        repo: &Repository,
        file: &mut File,
        size: u64,
    ) -> Result<Option<Oid>, GitError> {
        let odb = repo.odb()?;
        let mut writer = odb.writer(usize::try_from(size).unwrap_or(usize::MAX), ObjectType::Blob)?;
        let mut buffer = vec![0; 64 << 10];
        let mut left = size;
        while left > 0 {
            let want = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            match file.read(&mut buffer[..want]) {
                Ok(0) => return Ok(None),
                Ok(n) => {
                    writer
                        .write_all(&buffer[..n])
                        .map_err(GitError::file("write an object to", repo.path()))?;
                    left -= n as u64;
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(GitError::file("read a file of", repo.path())(error)),
            }
        }
        let id = writer.finalize()?;
        self.note(id);
        Ok(Some(id))
    }

    /// Notes an object that was written some other way.
    pub(super) fn note(&mut self, id: Oid) {
        self.unlisted += &format!("{id}\n");
    }

    /// Writes everything that was held back. When it fails, what was not written is kept for the next time.
    pub(super) fn flush(&mut self, repo: &Repository) -> Result<(), GitError> {
        if !self.pending.is_empty() {
            let odb = repo.odb()?;
            // Children first, so that an object never stands in the repository without what it names.
            let mut written = 0;
            let result = self.pending.iter().try_for_each(|(kind, data)| {
                let id = odb.write(*kind, data)?;
                if self.durable {
                    sync_loose(repo, id);
                }
                self.unlisted += &format!("{id}\n");
                written += 1;
                Ok::<_, git2::Error>(())
            });
            for (_, data) in self.pending.drain(..written) {
                self.pending_bytes -= cost(&data);
            }
            result?;
        }
        self.write_list()
    }

    fn write_list(&mut self) -> Result<(), GitError> {
        if self.unlisted.is_empty() {
            return Ok(());
        }
        // One write at the end of the file: a cut one leaves a short line, which readers skip.
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.list)
            .and_then(|mut file| file.write_all(self.unlisted.as_bytes()))
            .map_err(GitError::file("write", &self.list))?;
        self.unlisted.clear();
        Ok(())
    }

    /// How many objects are in the list.
    pub(super) fn listed(&self) -> u64 {
        fs::metadata(&self.list).map_or(0, |meta| meta.len() / LINE)
    }

    /// The listed objects that are still loose.
    pub(super) fn loose(&self, repo: &Repository) -> Result<Vec<Oid>, GitError> {
        let text = match fs::read_to_string(&self.list) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(GitError::file("read", &self.list)(error)),
        };
        let mut ids: Vec<_> = text
            .lines()
            .filter(|line| line.len() == 40)
            .filter_map(|line| Oid::from_str(line).ok())
            .collect();
        ids.sort_unstable();
        ids.dedup();
        ids.retain(|id| loose_path(repo, *id).exists());
        Ok(ids)
    }

    /// Starts an empty list.
    pub(super) fn forget_listed(&self) -> Result<(), GitError> {
        match fs::remove_file(&self.list) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(GitError::file("remove", &self.list)(error))
            }
            _ => Ok(()),
        }
    }
}

/// Memory that a held-back object takes.
fn cost(data: &[u8]) -> usize {
    data.len() + size_of::<(ObjectType, Vec<u8>)>()
}

/// Where git keeps this object when it is loose.
fn loose_path(repo: &Repository, id: Oid) -> PathBuf {
    let hex = id.to_string();
    repo.commondir().join("objects").join(&hex[..2]).join(&hex[2..])
}

/// Brings a loose object to the disk that may have been there before: git itself does not sync loose objects.
/// One that is in a pack is synced already, and libgit2 has synced what it wrote.
fn sync_loose(repo: &Repository, id: Oid) {
    if let Ok(file) = File::open(loose_path(repo, id)) {
        let _ = file.sync_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::testing::Sandbox;

    #[test]
    fn holds_back_small_objects_and_streams_large_ones() {
        let sandbox = Sandbox::new();
        let repo = Repository::open(sandbox.path()).unwrap();
        let mut objects = Objects::new(repo.path(), false);
        let id = objects.put(&repo, ObjectType::Blob, b"small".to_vec()).unwrap();
        assert!(!repo.odb().unwrap().exists(id));
        objects.flush(&repo).unwrap();
        assert_eq!(repo.find_blob(id).unwrap().content(), b"small");

        sandbox.write("large", vec![7; 3 << 20]);
        let path = sandbox.path().join("large");
        let mut file = File::open(&path).unwrap();
        let id = objects.stream(&repo, &mut file, 3 << 20).unwrap().unwrap();
        assert_eq!(id.to_string(), sandbox.git(&["hash-object", "large"]));
        let mut file = File::open(&path).unwrap();
        assert_eq!(objects.stream(&repo, &mut file, (3 << 20) + 1).unwrap(), None, "shorter than it was");

        objects.flush(&repo).unwrap();
        assert_eq!((objects.listed(), objects.loose(&repo).unwrap().len()), (2, 2));
        objects.forget_listed().unwrap();
        assert_eq!(objects.listed(), 0);
    }

    #[test]
    fn memory_for_held_back_objects_is_bounded() {
        let sandbox = Sandbox::new();
        let repo = Repository::open(sandbox.path()).unwrap();
        let mut objects = Objects::new(repo.path(), false);
        for n in 0..40_u8 {
            objects.put(&repo, ObjectType::Blob, vec![n; 100 << 10]).unwrap();
            assert!(objects.pending_bytes <= PENDING_MAX + (1 << 10));
        }
        assert!(objects.listed() > 0);
    }
}
