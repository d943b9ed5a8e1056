//! PAUSE, STOP and RESUME on disk: a quick look at which are there. Blocking.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::inbox::InboxPaths;
use super::lease::{Writers, writers};
use super::stamp::Stamp;
use crate::config::ProjectPaths;
use crate::domain::session::{Signals, Stop};
use crate::domain::signal_file::{MAX_READ, SignalFile};
use crate::domain::state::Reason;

/// Name of the file by which `longhaul resume` asks a session that paused by itself to go on.
pub const RESUME: &str = "RESUME";

/// What a look found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sighting {
    /// STOP.
    pub stop: Option<SignalFile>,
    /// PAUSE.
    pub pause: Option<SignalFile>,
    /// RESUME is there.
    pub resume: bool,
    /// One of them is being written at this moment: its content may be half.
    pub unsettled: bool,
    /// There may be messages to take.
    pub mail: bool,
}

// === impl Sighting ===

impl Sighting {
    /// Looks. Makes the folders that should be there: agents run `git clean -fdx`.
    ///
    /// # Errors
    /// The folder cannot be made or looked into: then nothing is known, and what was seen last still holds.
    pub fn look(paths: &ProjectPaths) -> io::Result<Self> {
        let inbox = InboxPaths::new(paths);
        inbox.make()?;
        let mut seen = Sighting::default();
        seen.stop = seen.read(&paths.stop)?;
        seen.pause = seen.read(&paths.pause)?;
        seen.resume = is_there(&resume_path(paths))?;
        seen.mail = inbox.has_mail();
        Ok(seen)
    }

    /// As the state machine wants it. `interrupts` counts Ctrl-C, TERM and HUP: from the second on without grace.
    pub fn signals(&self, interrupts: u32) -> Signals {
        let interrupted = Stop { reason: Reason::Interrupted, detail: String::new(), now: interrupts > 1 };
        let stop = match &self.stop {
            // The file's reason wins: it is this stop that removes the file.
            Some(file) => Some(Stop {
                reason: Reason::Requested,
                detail: file.reason.clone(),
                now: file.now || interrupts > 1,
            }),
            None => (interrupts > 0).then_some(interrupted),
        };
        Signals { stop, pause: self.pause.as_ref().map(|file| file.reason.clone()), resume: self.resume }
    }

    fn read(&mut self, path: &Path) -> io::Result<Option<SignalFile>> {
        if !is_there(path)? {
            return Ok(None);
        }
        // What cannot be read is a signal without a reason.
        let (content, writing) = content(path).unwrap_or_default();
        self.unsettled |= writing;
        Ok(Some(SignalFile::parse(&content)))
    }
}

/// What the names showed in passing: whether anything may have changed.
pub type Glance = [Option<Stamp>; 5];

/// Looks at the names alone: the signal files, the drop-in file, and the folder of messages.
pub fn glance(paths: &ProjectPaths) -> Glance {
    let resume = resume_path(paths);
    [&paths.stop, &paths.pause, &resume, &paths.human_input, &paths.inbox]
        .map(|path| fs::symlink_metadata(path).ok().map(|metadata| Stamp::of(&metadata)))
}

/// The file by which `longhaul resume` speaks.
pub fn resume_path(paths: &ProjectPaths) -> PathBuf {
    paths.dot.join(RESUME)
}

/// Removes a signal file, whatever stands under its name. One that is not there is fine.
///
/// # Errors
/// It is still there.
pub fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => fs::remove_dir(path),
        other => other,
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Dangling links count: presence is the signal.
fn is_there(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The beginning of a regular file, and whether somebody is writing it.
fn content(path: &Path) -> io::Result<(Vec<u8>, bool)> {
    let mut content = Vec::new();
    // Opening a pipe or a device can block, or do things.
    if !fs::metadata(path)?.is_file() {
        return Ok((content, false));
    }
    let file = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    let writing = writers(&file) == Writers::Some;
    file.take(MAX_READ).read_to_end(&mut content)?;
    Ok((content, writing))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn project() -> (tempfile::TempDir, ProjectPaths) {
        let dir = tempfile::tempdir().unwrap();
        let paths = ProjectPaths::new(dir.path().canonicalize().unwrap());
        (dir, paths)
    }

    #[test]
    fn presence_is_the_signal() {
        let (_dir, paths) = project();
        assert_eq!(Sighting::look(&paths).unwrap(), Sighting::default());
        fs::write(&paths.pause, "lunch\n").unwrap();
        fs::create_dir(&paths.stop).unwrap();
        std::os::unix::fs::symlink("nowhere", resume_path(&paths)).unwrap();
        let seen = Sighting::look(&paths).unwrap();
        assert_eq!(seen.pause.as_ref().unwrap().reason, "lunch");
        assert_eq!(seen.stop, Some(SignalFile::default()));
        assert!(seen.resume && !seen.unsettled && !seen.mail);
        for path in [&paths.stop, &paths.pause, &resume_path(&paths)] {
            remove(path).unwrap();
            remove(path).unwrap();
        }
        assert_eq!(Sighting::look(&paths).unwrap(), Sighting::default());
    }

    #[test]
    fn strange_things_under_the_names() {
        let (_dir, paths) = project();
        Sighting::look(&paths).unwrap();
        let fifo = paths.stop.as_path();
        rustix::fs::mknodat(rustix::fs::CWD, fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &paths.pause).unwrap();
        let seen = Sighting::look(&paths).unwrap();
        assert_eq!((seen.stop, seen.pause), (Some(SignalFile::default()), Some(SignalFile::default())));
        remove(&paths.stop).unwrap();
        fs::write(&paths.stop, vec![b'x'; 1 << 20]).unwrap();
        assert!(Sighting::look(&paths).unwrap().stop.unwrap().reason.len() < 4096);
    }

    #[test]
    fn a_glance_shows_every_change_that_matters() {
        let (_dir, paths) = project();
        Sighting::look(&paths).unwrap();
        let mut last = glance(&paths);
        for path in
            [&paths.stop, &paths.pause, &resume_path(&paths), &paths.human_input, &paths.inbox.join("x")]
        {
            fs::write(path, "").unwrap();
            let seen = glance(&paths);
            assert_ne!(seen, last, "{}", path.display());
            last = seen;
        }
        fs::write(&paths.human_input, "words").unwrap();
        assert_ne!(glance(&paths), last);
    }

    #[test]
    fn a_writer_at_work_is_seen() {
        let (_dir, paths) = project();
        Sighting::look(&paths).unwrap();
        let mut writer = File::create(&paths.stop).unwrap();
        assert!(Sighting::look(&paths).unwrap().unsettled);
        writer.write_all(b"now").unwrap();
        drop(writer);
        let seen = Sighting::look(&paths).unwrap();
        assert!(!seen.unsettled && seen.stop.unwrap().now);
    }

    #[test]
    fn a_deleted_folder_is_made_again_and_a_deleted_project_is_an_error() {
        let (dir, paths) = project();
        Sighting::look(&paths).unwrap();
        fs::remove_dir_all(&paths.dot).unwrap();
        Sighting::look(&paths).unwrap();
        assert!(paths.inbox.is_dir());
        drop(dir);
        assert!(Sighting::look(&paths).is_err());
    }

    #[test]
    fn a_file_beats_ctrl_c_and_a_second_ctrl_c_takes_the_grace() {
        let stop = |file: Option<&str>, interrupts| {
            let stop = file.map(|content| SignalFile::parse(content.as_bytes()));
            Sighting { stop, ..Sighting::default() }.signals(interrupts).stop
        };
        let expected = |reason, detail: &str, now| Some(Stop { reason, detail: detail.to_owned(), now });
        assert_eq!(stop(None, 0), None);
        assert_eq!(stop(None, 1), expected(Reason::Interrupted, "", false));
        assert_eq!(stop(None, 2), expected(Reason::Interrupted, "", true));
        assert_eq!(stop(Some("lunch"), 1), expected(Reason::Requested, "lunch", false));
        assert_eq!(stop(Some("lunch"), 2), expected(Reason::Requested, "lunch", true));
        assert_eq!(stop(Some("now"), 0), expected(Reason::Requested, "", true));
    }
}
