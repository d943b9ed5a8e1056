//! One started git: feeding it, draining it, and ending it as a group.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

/// What TERM gets before KILL: git needs a moment to remove its lock files.
const GRACE: Duration = Duration::from_secs(2);
/// How long output may stay open after git itself has ended: background children inherit the pipes.
const LINGER: Duration = Duration::from_millis(200);
/// More output than this is an error. Lists of a million paths fit.
const STDOUT_MAX: usize = 256 << 20;
/// The rest of a flood on stderr is dropped.
const STDERR_MAX: usize = 64 << 10;

/// A started git. Dropped before it has ended, its group is killed and the child is reaped.
pub(super) struct Running {
    child: Child,
    group: Pid,
    /// Readable when the child has ended.
    ended: OwnedFd,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    reaped: bool,
}

/// How a conversation ended.
pub(super) enum End {
    /// It exited; its output is complete.
    Exited(ExitStatus),
    /// The deadline passed first.
    TimedOut,
    /// It printed more than is kept.
    TooMuch,
}

// === impl Running ===

impl Running {
    /// Takes charge of it.
    pub(super) fn new(mut child: Child) -> io::Result<Self> {
        let opened = Pid::from_raw(child.id() as i32)
            .ok_or_else(|| io::Error::other("the child has no process id"))
            .and_then(|pid| Ok((pid, pidfd_open(pid, PidfdFlags::empty())?)));
        match opened {
            Ok((group, ended)) => {
                Ok(Running { child, group, ended, stdout: Vec::new(), stderr: Vec::new(), reaped: false })
            }
            Err(error) => {
                // Without a handle it could not be ended in time: end it now.
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Feeds and drains it until it has ended and its output is closed, or the deadline has passed.
    pub(super) fn converse(&mut self, mut input: &[u8], deadline: Instant) -> io::Result<End> {
        let mut stdin = self.child.stdin.take();
        let mut stdout = self.child.stdout.take();
        let mut stderr = self.child.stderr.take();
        for fd in [
            stdin.as_ref().map(AsFd::as_fd),
            stdout.as_ref().map(AsFd::as_fd),
            stderr.as_ref().map(AsFd::as_fd),
        ]
        .into_iter()
        .flatten()
        {
            rustix::io::ioctl_fionbio(fd, true)?;
        }
        let mut exited: Option<(ExitStatus, Instant)> = None;
        let mut buffer = vec![0; 64 << 10];
        loop {
            if let Some((status, _)) = exited
                && stdout.is_none()
                && stderr.is_none()
            {
                return Ok(End::Exited(status));
            }
            let until = exited.map_or(deadline, |(_, linger)| linger);
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(exited.map_or(End::TimedOut, |(status, _)| End::Exited(status)));
            }
            self.wait_for_any(left, exited.is_some(), stdin.as_ref(), stdout.as_ref(), stderr.as_ref())?;

            if let Some(pipe) = &mut stdin {
                match pipe.write(input) {
                    Ok(n) => input = &input[n..],
                    Err(error) if would_block(&error) => {}
                    // It ended or closed its input without reading all: its exit code says what that means.
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => input = &[],
                    Err(error) => return Err(error),
                }
                if input.is_empty() {
                    stdin = None;
                }
            }
            if drain(&mut stdout, &mut buffer, &mut self.stdout, STDOUT_MAX)? == Drained::TooMuch {
                return Ok(End::TooMuch);
            }
            drain(&mut stderr, &mut buffer, &mut self.stderr, STDERR_MAX)?;
            if exited.is_none()
                && let Some(status) = self.child.try_wait()?
            {
                self.reaped = true;
                exited = Some((status, Instant::now() + LINGER));
            }
        }
    }

    fn wait_for_any(
        &self,
        left: Duration,
        exited: bool,
        stdin: Option<&impl AsFd>,
        stdout: Option<&impl AsFd>,
        stderr: Option<&impl AsFd>,
    ) -> io::Result<()> {
        let mut fds = Vec::with_capacity(4);
        if !exited {
            fds.push(PollFd::new(&self.ended, PollFlags::IN));
        }
        fds.extend(stdin.map(|fd| PollFd::new(fd, PollFlags::OUT)));
        fds.extend(stdout.map(|fd| PollFd::new(fd, PollFlags::IN)));
        fds.extend(stderr.map(|fd| PollFd::new(fd, PollFlags::IN)));
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.reaped {
            return;
        }
        // TERM lets git remove its lock files; what is left of the group after the grace is killed.
        let _ = kill_process_group(self.group, Signal::TERM);
        if let Ok(timeout) = Timespec::try_from(GRACE) {
            let _ = poll(&mut [PollFd::new(&self.ended, PollFlags::IN)], Some(&timeout));
        }
        let _ = kill_process_group(self.group, Signal::KILL);
        let _ = self.child.wait();
    }
}

#[derive(PartialEq, Eq)]
enum Drained {
    Fits,
    TooMuch,
}

/// Reads what is there into `kept`; closes the pipe at its end. What exceeds `max` is read and dropped.
fn drain(
    pipe: &mut Option<impl Read>,
    buffer: &mut [u8],
    kept: &mut Vec<u8>,
    max: usize,
) -> io::Result<Drained> {
    while let Some(reader) = pipe {
        match reader.read(buffer) {
            Ok(0) => *pipe = None,
            Ok(n) => {
                let room = max.saturating_sub(kept.len());
                kept.extend_from_slice(&buffer[..n.min(room)]);
                if n > room {
                    return Ok(Drained::TooMuch);
                }
            }
            Err(error) if would_block(&error) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(Drained::Fits)
}

fn would_block(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
