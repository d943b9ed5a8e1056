//! Short helper programs, such as a CLI asked for its version: run, capture, give up in time.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::process::{PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};

use super::call::memory_file;
use super::error::StartFailure;
use super::spec::CallSpec;
use super::tree::{self, Member};
use super::wire::Stage;
use crate::domain::outcome::Exit;

/// How much of each stream is kept; the rest is read and dropped.
pub const CAPTURE_LIMIT: usize = 1024 * 1024;

/// How often to look for the end of a child that we have no handle of.
const LOOK: Duration = Duration::from_millis(10);

/// Reads of 16 KiB before the time is looked at again; more than a pipe holds, so that nothing is lost at the end.
const READS: usize = 16;

/// What a helper program said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// How it ended.
    pub exit: Exit,
    /// The first [`CAPTURE_LIMIT`] bytes of its stdout.
    pub stdout: Vec<u8>,
    /// The same of its stderr.
    pub stderr: Vec<u8>,
}

/// Why there is nothing captured.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// It could not be started.
    #[error(transparent)]
    Start(#[from] StartFailure),
    /// It was still running and has been killed with everything below it.
    #[error("run {program}: no end within {} s", limit.as_secs_f32())]
    TimedOut {
        /// The program.
        program: String,
        /// The time it had.
        limit: Duration,
        /// What it had said on stdout and stderr.
        said: [Vec<u8>; 2],
    },
    /// Its pipes could not be read.
    #[error("run {program}: {source}")]
    Read {
        /// The program.
        program: String,
        /// Why.
        source: std::io::Error,
    },
}

/// Runs a helper program to its end, without a keeper. Blocks for `limit` at most: for a blocking thread.
///
/// It runs in a process group of its own; what it leaves in the background after a timely end is left alone.
pub fn run_capture(spec: &CallSpec, limit: Duration) -> Result<Captured, CaptureError> {
    let deadline = Instant::now() + limit;
    let program = spec.program().display().to_string();
    let mut running = Running::start(spec)?;
    let done = running.read_until_exit(deadline);
    match done {
        Ok(true) => {}
        Ok(false) => {
            running.kill_tree();
            let said = running.streams.map(|stream| stream.kept);
            return Err(CaptureError::TimedOut { program, limit, said });
        }
        Err(source) => {
            running.kill_tree();
            return Err(CaptureError::Read { program, source });
        }
    }
    let status = running.child.wait().map_err(|source| CaptureError::Read { program, source })?;
    let exit = status.code().map_or_else(|| Exit::Signal(status.signal().unwrap_or(0)), Exit::Code);
    let [stdout, stderr] = running.streams.map(|s| s.kept);
    Ok(Captured { exit, stdout, stderr })
}

/// Runs a program of the person's in the terminal of the person, to its end: it reads and writes there.
///
/// # Errors
/// It cannot be started.
pub fn run_in_terminal(spec: &CallSpec) -> std::io::Result<Exit> {
    let status = command(spec).status()?;
    Ok(status.code().map_or_else(|| Exit::Signal(status.signal().unwrap_or(0)), Exit::Code))
}

struct Running {
    child: Child,
    /// Readable when the child has ended; `None` where a sandbox gives no such handle.
    handle: Option<OwnedFd>,
    streams: [Captor; 2],
}

/// One stream being captured.
struct Captor {
    pipe: Option<OwnedFd>,
    kept: Vec<u8>,
}

// === impl Running ===

impl Running {
    fn start(spec: &CallSpec) -> Result<Self, StartFailure> {
        let (program, cwd) = (spec.program(), spec.cwd.clone());
        let failed = |stage, e: std::io::Error| {
            StartFailure::from_report(stage, e.raw_os_error().unwrap_or(0), program.clone(), cwd.clone())
        };
        check_folder(&spec.cwd).map_err(|e| failed(Stage::Chdir, e))?;
        let stdin = stdin_of(spec).map_err(|e| failed(Stage::Setup, e))?;
        let mut child = command(spec)
            .process_group(0)
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| failed(stage_of(&program, &e), e))?;
        let streams = [child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from)];
        let handle = tree::raw_pid(child.id()).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let streams = streams.map(|pipe| Captor { pipe, kept: Vec::new() });
        Ok(Running { child, handle, streams })
    }

    /// `false` when the time is over.
    fn read_until_exit(&mut self, deadline: Instant) -> std::io::Result<bool> {
        for pipe in self.streams.iter().filter_map(|s| s.pipe.as_ref()) {
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            self.wait(left)?;
            let exited = self.child.try_wait()?.is_some();
            // After the exit this reads what is in the pipes, not until an orphan closes them.
            for stream in &mut self.streams {
                stream.read()?;
            }
            if exited || left.is_zero() {
                return Ok(exited);
            }
        }
    }

    /// Waits until there is something to read, the child has ended, or it is time to look.
    fn wait(&self, left: Duration) -> std::io::Result<()> {
        let left = if self.handle.is_some() { left } else { left.min(LOOK) };
        let pipes = self.streams.iter().filter_map(|s| s.pipe.as_ref());
        let mut fds: Vec<PollFd<'_>> =
            pipes.chain(&self.handle).map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        match rustix::event::poll(&mut fds, left.try_into().ok().as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Without a reaper for its orphans the tree must be caught in one go: it is stopped from the top down, so that
    /// nobody in it can fork any more (`fork` fails once a signal is pending), and then killed from the bottom up, so
    /// that nobody becomes an orphan before its turn.
    fn kill_tree(&mut self) {
        let root = self.child.id();
        if let Some(pid) = tree::raw_pid(root) {
            let _ = kill_process(pid, Signal::STOP);
        }
        let mut members: Vec<Member> = tree::children_of(root);
        let mut next = 0;
        while let Some(member) = members.get(next).copied() {
            tree::signal_member(root, member, Signal::STOP);
            members.extend(tree::children_of(member.pid));
            next += 1;
        }
        for member in members.into_iter().rev() {
            tree::signal_member(root, member, Signal::KILL);
        }
        if let Some(group) = tree::raw_pid(root) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

// === impl Captor ===

impl Captor {
    fn read(&mut self) -> std::io::Result<()> {
        let mut chunk = [0_u8; 16 * 1024];
        for _ in 0..READS {
            let Some(pipe) = &self.pipe else { return Ok(()) };
            match rustix::io::read(pipe, &mut chunk) {
                Ok(0) => self.pipe = None,
                Ok(count) => {
                    let room = CAPTURE_LIMIT - self.kept.len();
                    self.kept.extend(&chunk[..count.min(room)]);
                }
                Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }
}

/// Told apart from a missing program here: `posix_spawn` gives one error for both.
fn check_folder(cwd: &Path) -> std::io::Result<()> {
    if std::fs::metadata(cwd)?.is_dir() {
        return Ok(());
    }
    Err(std::io::Error::from_raw_os_error(libc::ENOTDIR))
}

/// A program that is there and yet 'not found' lacks its interpreter.
fn stage_of(program: &Path, error: &std::io::Error) -> Stage {
    if error.kind() == std::io::ErrorKind::NotFound && program.is_file() {
        Stage::Interpreter
    } else {
        Stage::Exec
    }
}

/// A memory file: it needs no writer and cannot block.
fn stdin_of(spec: &CallSpec) -> std::io::Result<Stdio> {
    if spec.stdin.is_empty() {
        return Ok(Stdio::null());
    }
    let file = File::from(memory_file("stdin")?);
    file.write_all_at(&spec.stdin, 0)?;
    Ok(file.into())
}

#[expect(clippy::disallowed_methods, reason = "this is the place that starts programs")]
fn command(spec: &CallSpec) -> std::process::Command {
    let mut command = std::process::Command::new(spec.program());
    command.args(spec.argv.iter().skip(1)).env_clear().envs(spec.env.iter().map(|(k, v)| (k, v)));
    command.current_dir(&spec.cwd);
    command
}
