//! What supervisor, keeper and call keeper say to each other: small fixed frames on SOCK_SEQPACKET sockets.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use super::tree::ProcessId;

/// Length of every frame in bytes.
const FRAME: usize = 40;
/// Descriptors that come with a request for a call.
const CALL_FDS: usize = 6;

/// What the keeper needs for one call. Order on the wire is the order of the fields.
#[derive(Debug)]
pub(super) struct CallFds {
    /// The call keeper's end of the call's socket.
    pub(super) socket: OwnedFd,
    /// Where the agent-to-be waits for the go byte.
    pub(super) go: OwnedFd,
    /// memfd that will hold the encoded call.
    pub(super) spec: OwnedFd,
    /// memfd that will hold what the agent reads from stdin.
    pub(super) stdin: OwnedFd,
    /// Write end of the agent's stdout.
    pub(super) stdout: OwnedFd,
    /// Write end of the agent's stderr.
    pub(super) stderr: OwnedFd,
}

/// Supervisor to call keeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    /// TERM to the whole tree now, KILL to what is left after this time.
    Terminate(Duration),
}

/// Where a start failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// `fork`, in the keeper or in the call keeper.
    Fork,
    /// Reading the call's description or setting up its descriptors.
    Setup,
    /// `chdir` to the call's folder.
    Chdir,
    /// `execve`.
    Exec,
    /// `execve` said that a file is missing although the program is there: its interpreter is not.
    Interpreter,
}

/// Call keeper (and, before `execve`, its child) to supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Report {
    /// The agent-to-be exists and waits.
    Ready {
        /// The process that will become the agent.
        agent: ProcessId,
        /// Pid of the call keeper.
        keeper: u32,
    },
    /// The agent could not be started.
    Failed {
        /// What was tried.
        stage: Stage,
        /// Its `errno`.
        errno: i32,
    },
    /// The agent has ended; some of its descendants have not.
    Exited {
        /// Raw wait status.
        status: i32,
        /// CPU time so far.
        cpu: Duration,
    },
    /// Nothing of the call is left; the last report.
    Ended {
        /// Raw wait status of the agent.
        status: i32,
        /// CPU time of all.
        cpu: Duration,
        /// Descendants that had to be ended after the agent.
        strays: u32,
        /// Descendants that not even KILL has ended.
        survivors: u32,
    },
}

/// A connected pair of SOCK_SEQPACKET sockets, close-on-exec.
pub(super) fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Hands a call's descriptors to the keeper. Does not wait: a keeper that does not read is not a keeper.
pub(super) fn send_call(keeper: BorrowedFd<'_>, fds: &CallFds) -> io::Result<()> {
    let fds = [&fds.socket, &fds.go, &fds.spec, &fds.stdin, &fds.stdout, &fds.stderr].map(AsFd::as_fd);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(CALL_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(keeper, &[IoSlice::new(b"c")], &mut control, flags)?;
    Ok(())
}

/// The next call from the supervisor; `None` when the supervisor is gone.
pub(super) fn receive_call(control: BorrowedFd<'_>) -> io::Result<Option<CallFds>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(CALL_FDS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0_u8; 1];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let got = recvmsg(control, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags)?;
    if got.bytes == 0 {
        return Ok(None);
    }
    let mut fds = ancillary.drain().filter_map(|m| match m {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let mut fds = fds.next().into_iter().flatten();
    let mut next = || fds.next().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData));
    let (socket, go, spec) = (next()?, next()?, next()?);
    let (stdin, stdout, stderr) = (next()?, next()?, next()?);
    Ok(Some(CallFds { socket, go, spec, stdin, stdout, stderr }))
}

/// Sends one frame without waiting.
pub(super) fn send(socket: BorrowedFd<'_>, frame: [u8; FRAME]) -> io::Result<()> {
    rustix::net::send(socket, &frame, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    Ok(())
}

/// Receives one frame without waiting; `None` at end of file.
pub(super) fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<[u8; FRAME]>> {
    let mut frame = [0_u8; FRAME];
    match rustix::net::recv(socket, &mut frame, RecvFlags::DONTWAIT)?.0 {
        0 => Ok(None),
        FRAME => Ok(Some(frame)),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

// === impl Command ===

impl Command {
    pub(super) fn encode(self) -> [u8; FRAME] {
        let Command::Terminate(grace) = self;
        frame(1, 0, [micros(grace), 0, 0, 0])
    }

    pub(super) fn decode(bytes: &[u8; FRAME]) -> Option<Self> {
        let (tag, _, [grace, ..]) = fields(bytes);
        (tag == 1).then_some(Command::Terminate(Duration::from_micros(grace)))
    }
}

// === impl Report ===

impl Report {
    pub(super) fn encode(self) -> [u8; FRAME] {
        match self {
            Report::Ready { agent, keeper } => {
                frame(1, 0, [u64::from(agent.pid), agent.start_time, u64::from(keeper), 0])
            }
            Report::Failed { stage, errno } => frame(2, errno, [stage as u64, 0, 0, 0]),
            Report::Exited { status, cpu } => frame(3, status, [micros(cpu), 0, 0, 0]),
            Report::Ended { status, cpu, strays, survivors } => {
                frame(4, status, [micros(cpu), strays.into(), survivors.into(), 0])
            }
        }
    }

    pub(super) fn decode(bytes: &[u8; FRAME]) -> Option<Self> {
        let (tag, a, [b, c, d, _]) = fields(bytes);
        let small = |n: u64| u32::try_from(n).ok();
        match tag {
            1 => {
                Some(Report::Ready { agent: ProcessId { pid: small(b)?, start_time: c }, keeper: small(d)? })
            }
            2 => Some(Report::Failed { stage: Stage::from_number(b)?, errno: a }),
            3 => Some(Report::Exited { status: a, cpu: Duration::from_micros(b) }),
            4 => Some(Report::Ended {
                status: a,
                cpu: Duration::from_micros(b),
                strays: small(c)?,
                survivors: small(d)?,
            }),
            _ => None,
        }
    }
}

impl Stage {
    fn from_number(n: u64) -> Option<Self> {
        [Stage::Fork, Stage::Setup, Stage::Chdir, Stage::Exec, Stage::Interpreter]
            .into_iter()
            .find(|s| *s as u64 == n)
    }
}

fn micros(d: Duration) -> u64 {
    u64::try_from(d.as_micros()).unwrap_or(u64::MAX)
}

fn frame(tag: u32, a: i32, rest: [u64; 4]) -> [u8; FRAME] {
    let mut bytes = [0; FRAME];
    bytes[..4].copy_from_slice(&tag.to_le_bytes());
    bytes[4..8].copy_from_slice(&a.to_le_bytes());
    for (i, n) in rest.into_iter().enumerate() {
        bytes[8 + 8 * i..16 + 8 * i].copy_from_slice(&n.to_le_bytes());
    }
    bytes
}

fn fields(bytes: &[u8; FRAME]) -> (u32, i32, [u64; 4]) {
    let word = |i: usize| {
        let mut w = [0; 8];
        w.copy_from_slice(&bytes[8 * i..8 * i + 8]);
        u64::from_le_bytes(w)
    };
    let first = word(0).to_le_bytes();
    let [t0, t1, t2, t3, a0, a1, a2, a3] = first;
    (
        u32::from_le_bytes([t0, t1, t2, t3]),
        i32::from_le_bytes([a0, a1, a2, a3]),
        [word(1), word(2), word(3), word(4)],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_as_they_were() {
        let id = |n| ProcessId { pid: n, start_time: u64::from(n) << 33 };
        let cpu = Duration::from_micros(1_234_567);
        let reports = [
            Report::Ready { agent: id(7), keeper: u32::MAX },
            Report::Failed { stage: Stage::Interpreter, errno: 2 },
            Report::Exited { status: -1, cpu },
            Report::Ended { status: 0x1_00, cpu, strays: 3, survivors: u32::MAX },
        ];
        for report in reports {
            assert_eq!(Report::decode(&report.encode()), Some(report));
        }
        let command = Command::Terminate(Duration::from_millis(1500));
        assert_eq!(Command::decode(&command.encode()), Some(command));
        assert_eq!(Report::decode(&[0xff; FRAME]), None);
    }
}
