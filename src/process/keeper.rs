//! The keeper: a small single-threaded process that outlives nothing but its supervisor's calls.
//!
//! It is this same program, started again with [`KEEPER_ARG`]. Its stdin is the control socket, its stdout the
//! lock that says 'agents may still run here'. For each request it forks a call keeper and forgets the call.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;

use super::call_keeper;
use super::sys::{self, Forked, Wait};
use super::tree::{self, Member};
use super::wire::{self, CallFds, Report, Stage};

/// First argument of a keeper's command line.
pub(super) const KEEPER_ARG: &str = "__keeper";

/// How long the keeper waits for its call keepers once the supervisor is gone. They need their grace and, at worst,
/// their time for processes that not even KILL ends.
const LAST_WAIT: Duration = Duration::from_secs(10);

struct Keeper {
    /// Requests come here; end of file means that the supervisor is gone.
    control: Option<OwnedFd>,
    /// Keeps `call.lock` held while this process lives; call keepers inherit it.
    _lock: OwnedFd,
    /// Readable when a child has ended.
    signals: OwnedFd,
    /// Pids of the call keepers. Any other child is a stray of a call keeper that was killed.
    calls: Vec<u32>,
    /// A call keeper did not end as it should, so there may be strays among our children.
    suspect: bool,
    /// When to stop waiting for call keepers.
    give_up: Option<Instant>,
}

/// This process was started to be a keeper: `main` must call [`keeper_main`] before anything else.
pub fn is_keeper_invocation() -> bool {
    std::env::args_os().nth(1).is_some_and(|arg| arg == KEEPER_ARG)
}

/// Runs the keeper. Never returns; exit code 2 when not started by a supervisor.
pub fn keeper_main() -> ! {
    let code = match Keeper::from_stdio() {
        Ok(keeper) => {
            keeper.run();
            0
        }
        Err(_) => 2,
    };
    sys::exit_now(code)
}

// === impl Keeper ===

impl Keeper {
    fn from_stdio() -> std::io::Result<Self> {
        let control = sys::dup_stdio(0)?;
        // Fails unless it is a socket: somebody typed the argument by hand.
        rustix::net::sockopt::socket_type(&control)?;
        let lock = sys::dup_stdio(1)?;
        let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
        let null = OwnedFd::from(null);
        for fd in 0..=2 {
            sys::set_stdio(&null, fd)?;
        }
        drop(null);
        sys::cloexec_from_3();
        let signals = sys::keeper_signals()?;
        // Fails only for a process group leader; then the signals above are all that protects it.
        let _ = rustix::process::setsid();
        become_subreaper()?;
        sys::drop_startup_pages();
        Ok(Keeper {
            control: Some(control),
            _lock: lock,
            signals,
            calls: Vec::new(),
            suspect: false,
            give_up: None,
        })
    }

    fn run(mut self) {
        while self.control.is_some() || !self.calls.is_empty() {
            let left = self.give_up.map(|at| at.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return;
            }
            let ready = wait(self.control.as_ref(), &self.signals, left);
            if ready.child {
                self.reap();
            }
            if ready.socket {
                self.serve();
            }
        }
    }

    /// Forks a call keeper for each request that waits.
    fn serve(&mut self) {
        while let Some(control) = &self.control {
            match wire::receive_call(control.as_fd()) {
                Ok(Some(fds)) => self.start_call(fds),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return,
                // A request without its descriptors (the limit of open files): its call sees end of file.
                Err(e) if e.kind() == std::io::ErrorKind::InvalidData => {}
                Ok(None) | Err(_) => {
                    self.control = None;
                    self.give_up = Some(Instant::now() + LAST_WAIT);
                }
            }
        }
    }

    fn start_call(&mut self, fds: CallFds) {
        // SAFETY: the keeper never starts a thread.
        match unsafe { sys::fork() } {
            Ok(Forked::Parent(pid)) => self.calls.push(pid),
            Ok(Forked::Child) => {
                self.control = None;
                call_keeper::run(fds, &self.signals)
            }
            Err(e) => {
                let errno = e.raw_os_error().unwrap_or(0);
                let report = Report::Failed { stage: Stage::Fork, errno };
                // The supervisor is told by the closing socket if not by this.
                let _ = wire::send(fds.socket.as_fd(), report.encode());
            }
        }
    }

    /// Buries call keepers.
    fn reap(&mut self) {
        drain(&self.signals);
        loop {
            match sys::wait_any() {
                Wait::Reaped(child) => {
                    let ours = self.calls.iter().position(|pid| *pid == child.pid);
                    if let Some(at) = ours {
                        self.calls.swap_remove(at);
                    }
                    self.suspect |= ours.is_none() || child.status != 0;
                }
                Wait::Alive => break,
                Wait::Childless => {
                    self.calls.clear();
                    self.suspect = false;
                    return;
                }
            }
        }
        if self.suspect {
            self.end_strays();
        }
    }

    /// Ends what a killed call keeper left: with it gone, its descendants are our children. KILL at once, since the
    /// call is lost already; each death brings us back here until there is nobody left.
    fn end_strays(&mut self) {
        let own = std::process::id();
        let strays: Vec<Member> =
            tree::children_of(own).into_iter().filter(|m| !self.calls.contains(&m.pid)).collect();
        self.suspect = !strays.is_empty();
        for stray in strays {
            for below in tree::descendants(stray.pid) {
                tree::signal_member(own, below, Signal::KILL);
            }
            sys::kill(stray.pid, libc::SIGKILL);
        }
    }
}

// === shared with the call keeper ===

/// Orphans below this process become its children instead of init's.
pub(super) fn become_subreaper() -> std::io::Result<()> {
    // Any pid means 'on'; rustix asks for one where prctl(2) asks for a truth value.
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::Pid::INIT))?)
}

/// What there is to do.
#[derive(Default)]
pub(super) struct Ready {
    /// The socket has something, or has been closed.
    pub(super) socket: bool,
    /// A child has ended.
    pub(super) child: bool,
}

/// Waits until there is something to do, or the time is over.
pub(super) fn wait(socket: Option<&OwnedFd>, signals: &OwnedFd, limit: Option<Duration>) -> Ready {
    let limit = limit.and_then(|d| d.try_into().ok());
    let signals = PollFd::new(signals, PollFlags::IN);
    let mut fds = match socket {
        Some(socket) => vec![signals, PollFd::new(socket, PollFlags::IN)],
        None => vec![signals],
    };
    // Interrupted (by SIGCONT after a stop): there is nothing to do yet, and who called looks again.
    if rustix::event::poll(&mut fds, limit.as_ref()).is_err() {
        return Ready::default();
    }
    let ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
    Ready { socket: ready(1), child: ready(0) }
}

/// Empties the signal descriptor. Standard signals do not queue: one read is all there is.
pub(super) fn drain(signals: &OwnedFd) {
    let mut info = [0_u8; size_of::<libc::signalfd_siginfo>()];
    let _ = rustix::io::read(signals, &mut info);
}
