//! One call: prepared, started, ended.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::pipe::{PipeFlags, pipe_with};

use super::call_keeper::ORPHAN_GRACE;
use super::error::{ProcessError, StartFailure};
use super::link::{Heard, Link};
use super::spec::CallSpec;
use super::sweep::{Targets, sweep};
use super::tree::{ProcessId, TreeUsage};
use super::wire::{self, CallFds, Command};
use crate::domain::outcome::Exit;

/// Wanted size of the pipe for stdout: room for an agent to go on while we are busy. Pipes of this size for some
/// sixty calls stay below the system's default allowance for one user (`pipe-user-pages-soft`, 64 MiB).
const STDOUT_PIPE: usize = 256 * 1024;

/// A process that waits to become an agent. Dropping it ends that process.
#[derive(Debug)]
pub struct Prepared {
    link: Link,
    id: ProcessId,
    /// Pid of the call keeper.
    keeper: u32,
    /// Write end of what the process waits on.
    go: OwnedFd,
    spec: File,
    stdin: File,
    output: Output,
}

/// Read ends of a call's stdout and stderr, non-blocking. For [`super::pump`].
#[derive(Debug)]
pub struct Output {
    /// The program's standard output.
    pub stdout: OwnedFd,
    /// The program's standard error.
    pub stderr: OwnedFd,
}

/// A call that has been started. All methods take `&self`, so that one task can wait for the end while another asks
/// for it. Dropping it ends the whole tree: TERM, one second, KILL.
#[derive(Debug)]
pub struct Call {
    link: Link,
    id: ProcessId,
    /// Pid of the call keeper.
    keeper: u32,
    /// For messages.
    program: PathBuf,
    cwd: PathBuf,
    /// `KEY=VALUE` of the environment by which strays are found if the call keeper is killed.
    markers: Vec<OsString>,
}

/// How a call ended. Nothing of its tree is left, except `survivors`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// How the program itself ended, or why it never ran.
    pub exit: Result<Exit, StartFailure>,
    /// Descendants that outlived the program and were ended.
    pub strays: u32,
    /// Processes that not even KILL has ended within five seconds: the kernel holds them.
    pub survivors: u32,
    /// User and system time of the whole tree.
    pub cpu: Duration,
    /// The call keeper was killed: `exit` is then what that does to the program (KILL), not something seen.
    pub keeper_lost: bool,
}

/// Why a request for a call came to nothing.
#[derive(Debug)]
pub(super) enum Refused {
    /// Worth another try with a new keeper.
    KeeperGone,
    Failed(ProcessError),
}

// === impl Prepared ===

impl Prepared {
    /// Asks the keeper behind `control` for a process.
    pub(super) async fn request(control: BorrowedFd<'_>) -> Result<Self, Refused> {
        let failed = |e: io::Error| Refused::Failed(ProcessError::Prepare(e));
        let parts = Parts::new().map_err(failed)?;
        let link = Link::new(parts.socket).map_err(failed)?;
        wire::send_call(control, &parts.theirs).map_err(|e| match e.raw_os_error() {
            // Too many descriptors of ours under way is no fault of the keeper's; that its queue is full is.
            Some(libc::ETOOMANYREFS | libc::EMFILE | libc::ENFILE) => failed(e),
            _ => Refused::KeeperGone,
        })?;
        drop(parts.theirs);
        let heard = link.hear_until(|h| h.ready.is_some() || h.failed.is_some()).await;
        match (heard.ready, heard.failed) {
            (_, Some((_, errno))) => Err(failed(io::Error::from_raw_os_error(errno))),
            (None, None) => Err(Refused::KeeperGone),
            (Some((id, keeper)), None) => Ok(Prepared {
                link,
                id,
                keeper,
                go: parts.go,
                spec: parts.spec,
                stdin: parts.stdin,
                output: parts.output,
            }),
        }
    }

    /// The process that will become the agent; the same before and after the start.
    pub fn id(&self) -> ProcessId {
        self.id
    }

    /// Lets the process become what `spec` says. Whether that worked is told by [`Call::ended`].
    ///
    /// Blocks only for copying the prompt to memory. [`ProcessError::BadCall`] for a description that cannot be
    /// given to the kernel, [`ProcessError::HandOver`] when there is no memory for it; the process is then ended.
    pub fn start(self, spec: &CallSpec) -> Result<(Output, Call), ProcessError> {
        let encoded = spec.encode()?;
        self.spec.write_all_at(&encoded, 0).map_err(ProcessError::HandOver)?;
        // At an offset: the agent shares this file's position if it cannot open the file anew.
        self.stdin.write_all_at(&spec.stdin, 0).map_err(ProcessError::HandOver)?;
        // The agent finds a prompt that nobody can change any more. A kernel that refuses changes nothing else.
        let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        let _ = rustix::fs::fcntl_add_seals(&self.stdin, seals);
        // A process that has been killed while it waited is an end like others: `ended` tells of it.
        let _ = File::from(self.go).write_all(b"g");
        let call = Call {
            link: self.link,
            id: self.id,
            keeper: self.keeper,
            program: spec.program(),
            cwd: spec.cwd.clone(),
            markers: spec.markers(),
        };
        Ok((self.output, call))
    }
}

// === impl Call ===

impl Call {
    /// The program's process.
    pub fn id(&self) -> ProcessId {
        self.id
    }

    /// Sends TERM to every process of the call now and KILL to what is left after `grace`; zero: KILL now.
    /// A second call can only shorten the time.
    pub fn terminate(&self, grace: Duration) {
        self.link.tell(Command::Terminate(grace));
    }

    /// Sends KILL to every process of the call now.
    pub fn kill(&self) {
        self.terminate(Duration::ZERO);
    }

    /// Waits until the program itself has ended; descendants may still be there. Cancel-safe.
    pub async fn exited(&self) -> Result<Exit, StartFailure> {
        let heard = self.link.hear_until(|h| h.exited.is_some()).await;
        self.exit(&heard)
    }

    /// Waits until nothing of the call is left. Cancel-safe; may be called again and by several tasks.
    pub async fn ended(&self) -> Ended {
        let heard = self.link.hear_until(|h| h.ended.is_some()).await;
        let exit = self.exit(&heard);
        if let Some((strays, survivors)) = heard.ended {
            return Ended { exit, strays, survivors, cpu: heard.cpu, keeper_lost: false };
        }
        // The call keeper was killed. The program dies of that and the keeper takes care of the rest, unless it was
        // killed, too: then the rest is found by the environment that we gave it.
        let targets = Targets { processes: vec![self.id], markers: self.markers.clone() };
        let swept =
            tokio::task::spawn_blocking(move || sweep(&targets, ORPHAN_GRACE)).await.unwrap_or_default();
        let survivors = swept.iter().filter(|p| !p.gone).count();
        Ended {
            exit,
            strays: count(swept.len()),
            survivors: count(survivors),
            cpu: heard.cpu,
            keeper_lost: true,
        }
    }

    /// What the call's processes use now; all zero once it has ended. Blocks for some 50 µs a process.
    pub fn tree_usage(&self) -> TreeUsage {
        let heard = self.link.hear();
        // Afterwards the call keeper's pid may be somebody else's.
        if heard.closed || heard.ended.is_some() {
            return TreeUsage::default();
        }
        TreeUsage::below(self.keeper)
    }

    fn exit(&self, heard: &Heard) -> Result<Exit, StartFailure> {
        if let Some((stage, errno)) = heard.failed {
            return Err(StartFailure::from_report(stage, errno, self.program.clone(), self.cwd.clone()));
        }
        let status = ExitStatus::from_raw(heard.exited.unwrap_or(libc::SIGKILL));
        Ok(status.code().map_or_else(|| Exit::Signal(status.signal().unwrap_or(0)), Exit::Code))
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

// === parts of a call ===

/// Everything that is made for a call before the keeper is asked.
struct Parts {
    socket: OwnedFd,
    go: OwnedFd,
    spec: File,
    stdin: File,
    output: Output,
    theirs: CallFds,
}

impl Parts {
    fn new() -> io::Result<Self> {
        let (socket, their_socket) = wire::socket_pair()?;
        let (their_go, go) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stdout, their_stdout) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stderr, their_stderr) = pipe_with(PipeFlags::CLOEXEC)?;
        for fd in [&stdout, &stderr] {
            rustix::io::ioctl_fionbio(fd, true)?;
        }
        // Refused when the user's pipes hold too much already: then it is slower, no more.
        let _ = rustix::pipe::fcntl_setpipe_size(&stdout, STDOUT_PIPE);
        let (spec, stdin) = (memory_file("call")?, memory_file("prompt")?);
        let theirs = CallFds {
            socket: their_socket,
            go: their_go,
            spec: spec.try_clone()?,
            stdin: stdin.try_clone()?,
            stdout: their_stdout,
            stderr: their_stderr,
        };
        let (spec, stdin) = (spec.into(), stdin.into());
        Ok(Parts { socket, go, spec, stdin, output: Output { stdout, stderr }, theirs })
    }
}

/// An empty file in memory, for a description or a prompt.
pub(super) fn memory_file(name: &str) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know NOEXEC_SEAL; later ones complain in their log without it.
    Ok(rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL)
        .or_else(|_| rustix::fs::memfd_create(name, flags))?)
}
