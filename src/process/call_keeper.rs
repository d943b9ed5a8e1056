//! The call keeper: one small process per call, between the keeper and the agent.
//!
//! It is the agent's parent and the reaper of everything below it, so it knows when nothing of the call is left:
//! when `wait4` says that there is no child. It takes commands from the supervisor and ends the call by itself when
//! the supervisor's end of the socket is closed.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::agent::{self, AgentFds};
use super::keeper::{become_subreaper, drain, wait};
use super::sys::{self, Forked, Wait};
use super::tree::{self, ProcessId};
use super::wire::{self, CallFds, Command, Report, Stage};

/// What is left has this long after TERM when the supervisor is gone, or when the agent ended and left it behind.
pub(super) const ORPHAN_GRACE: Duration = Duration::from_secs(1);

/// After KILL a process can only stay while the kernel holds it (a dead network file system); waiting longer than
/// this for it would hold up the session.
const UNKILLABLE: Duration = Duration::from_secs(5);

/// First and longest pause between two rounds of KILL, when no child's end wakes us before.
const ROUND: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// The end of a process costs CPU; it comes this long after the report, when the next call has started.
const LINGER: Duration = Duration::from_millis(5);

struct CallKeeper<'a> {
    /// To the supervisor; `None` once it is gone.
    socket: Option<OwnedFd>,
    /// Readable when a child has ended.
    signals: &'a OwnedFd,
    own: u32,
    agent: u32,
    /// The agent's wait status, once it has ended.
    status: Option<i32>,
    /// CPU time of everything reaped.
    cpu: Duration,
    ending: Ending,
    /// Who was sent TERM, so that nobody gets it twice: programs take a second one for 'at once'.
    termed: Vec<u32>,
    strays: u32,
}

/// How far the end of the call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// Nobody has asked for it.
    No,
    /// TERM has been sent; KILL follows then.
    Kill(Instant),
    /// KILL has been sent and is sent again after `pause`; what lives `until` then is given up.
    Killing { until: Instant, pause: Duration },
}

/// Runs the call keeper in the process that the keeper has just forked. What else it inherited stays open: the lock,
/// so that who waits for it waits for this call, too; and `signals`, which tells each process of its own children.
pub(super) fn run(fds: CallFds, signals: &OwnedFd) -> ! {
    let _ = rustix::process::setsid();
    let CallFds { socket, go, spec, stdin, stdout, stderr } = fds;
    let fail = |errno: Option<i32>| -> ! {
        let report = Report::Failed { stage: Stage::Fork, errno: errno.unwrap_or(0) };
        let _ = wire::send(socket.as_fd(), report.encode());
        sys::exit_now(1)
    };
    if let Err(e) = become_subreaper() {
        fail(e.raw_os_error());
    }
    let own = std::process::id();
    // SAFETY: this process was forked from the single-threaded keeper and has started no thread.
    let agent = match unsafe { sys::fork() } {
        Ok(Forked::Parent(pid)) => pid,
        Ok(Forked::Child) => agent::run(own, AgentFds { socket, go, spec, stdin, stdout, stderr }),
        Err(e) => fail(e.raw_os_error()),
    };
    drop((go, spec, stdin, stdout, stderr));
    let Some(id) = ProcessId::of(agent) else {
        // Without /proc no process can be told from a later one with its pid.
        fail(Some(libc::ENOSYS))
    };
    let _ = wire::send(socket.as_fd(), Report::Ready { agent: id, keeper: own }.encode());
    CallKeeper {
        socket: Some(socket),
        signals,
        own,
        agent,
        status: None,
        cpu: Duration::ZERO,
        ending: Ending::No,
        termed: Vec::new(),
        strays: 0,
    }
    .keep()
}

// === impl CallKeeper ===

impl CallKeeper<'_> {
    fn keep(mut self) -> ! {
        let mut limit = None;
        loop {
            let ready = wait(self.socket.as_ref(), self.signals, limit);
            if ready.child {
                let running = self.status.is_none();
                if !self.reap() {
                    self.finish(0);
                }
                if running && self.status.is_some() {
                    self.agent_ended();
                }
            }
            if ready.socket {
                self.obey();
            }
            limit = self.press(Instant::now());
        }
    }

    /// Buries what has ended. `false` when nothing is left.
    fn reap(&mut self) -> bool {
        drain(self.signals);
        loop {
            match sys::wait_any() {
                Wait::Alive => return true,
                Wait::Childless => return false,
                Wait::Reaped(child) => {
                    self.cpu += child.cpu;
                    self.termed.retain(|pid| *pid != child.pid);
                    if child.pid == self.agent {
                        self.status = Some(child.status);
                    }
                }
            }
        }
    }

    /// The agent has ended and left something behind.
    fn agent_ended(&mut self) {
        let Some(status) = self.status else { return };
        self.report(Report::Exited { status, cpu: self.cpu });
        self.strays = u32::try_from(tree::descendants(self.own).len()).unwrap_or(u32::MAX);
        self.end_within(ORPHAN_GRACE);
    }

    /// Commands, and the closing of the socket.
    fn obey(&mut self) {
        while let Some(socket) = &self.socket {
            match wire::receive(socket.as_fd()) {
                Ok(Some(frame)) => {
                    if let Some(Command::Terminate(grace)) = Command::decode(&frame) {
                        self.end_within(grace);
                    }
                }
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return,
                Ok(None) | Err(_) => {
                    self.socket = None;
                    self.end_within(ORPHAN_GRACE);
                }
            }
        }
    }

    /// TERM to everything now, KILL after `grace` unless it is due earlier.
    fn end_within(&mut self, grace: Duration) {
        let at = Instant::now() + grace;
        self.ending = match self.ending {
            Ending::No => Ending::Kill(at),
            Ending::Kill(earlier) => Ending::Kill(earlier.min(at)),
            killing @ Ending::Killing { .. } => killing,
        };
        if !grace.is_zero() {
            self.term_all();
        }
    }

    fn term_all(&mut self) {
        for member in tree::descendants(self.own) {
            if !self.termed.contains(&member.pid) && tree::signal_member(self.own, member, Signal::TERM) {
                self.termed.push(member.pid);
            }
        }
    }

    /// Does what is due and says how long to wait for the next thing to do.
    fn press(&mut self, now: Instant) -> Option<Duration> {
        let (until, pause) = match self.ending {
            Ending::No => return None,
            Ending::Kill(at) if now < at => return Some(at - now),
            Ending::Kill(_) => (now + UNKILLABLE, ROUND.0),
            Ending::Killing { until, pause } => (until, pause),
        };
        // What KILL ends leaves its children to us, so each round sees a flatter tree: this catches also what forks
        // faster than one walk.
        let members = tree::descendants(self.own);
        for member in &members {
            if member.parent == self.own {
                // A child that we have not reaped: its pid is its own.
                sys::kill(member.pid, libc::SIGKILL);
            } else {
                tree::signal_member(self.own, *member, Signal::KILL);
            }
        }
        if now >= until {
            self.finish(members.len());
        }
        self.ending = Ending::Killing { until, pause: (pause * 2).min(ROUND.1) };
        Some(pause)
    }

    fn report(&self, report: Report) {
        if let Some(socket) = &self.socket {
            // If this fails the supervisor has closed its end, which is read as such.
            let _ = wire::send(socket.as_fd(), report.encode());
        }
    }

    fn finish(&self, survivors: usize) -> ! {
        let survivors = u32::try_from(survivors).unwrap_or(u32::MAX);
        // Given up on an agent that KILL did not end: told as killed, with itself among the survivors.
        let status = self.status.unwrap_or(libc::SIGKILL);
        self.report(Report::Ended { status, cpu: self.cpu, strays: self.strays, survivors });
        if self.socket.is_some() {
            std::thread::sleep(LINGER);
        }
        // Not 0: the keeper, whose children the survivors become, looks after them.
        sys::exit_now(i32::from(survivors > 0))
    }
}
