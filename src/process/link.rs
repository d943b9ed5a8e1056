//! The supervisor's end of a call's socket.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::tree::ProcessId;
use super::wire::{self, Command, Report, Stage};

/// The supervisor's end of a call's socket, and what has been heard on it.
#[derive(Debug)]
pub(super) struct Link {
    socket: AsyncFd<OwnedFd>,
    heard: Mutex<Heard>,
}

#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Heard {
    /// The agent-to-be, and the call keeper's pid.
    pub(super) ready: Option<(ProcessId, u32)>,
    pub(super) failed: Option<(Stage, i32)>,
    /// Raw wait status of the program.
    pub(super) exited: Option<i32>,
    /// Strays, survivors.
    pub(super) ended: Option<(u32, u32)>,
    pub(super) cpu: Duration,
    /// The call keeper is gone.
    pub(super) closed: bool,
}

// === impl Link ===

impl Link {
    pub(super) fn new(socket: OwnedFd) -> io::Result<Self> {
        // SAFETY: an OwnedFd is open and the same descriptor for as long as the AsyncFd owns it.
        let socket = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?;
        Ok(Link { socket, heard: Mutex::default() })
    }

    /// Sends a command. Fails only when the call keeper is gone, and with it the call.
    pub(super) fn tell(&self, command: Command) {
        let _ = wire::send(self.socket.as_fd(), command.encode());
    }

    /// Takes reports until one makes `enough` true, or there will be no more.
    pub(super) async fn hear_until(&self, enough: impl Fn(&Heard) -> bool) -> Heard {
        loop {
            let heard = self.hear();
            if heard.closed || enough(&heard) {
                return heard;
            }
            // Another task may take the report that we wait for: it is then in `heard`, and we are woken like it.
            match self.socket.readable().await {
                Ok(mut guard) => {
                    let heard = self.hear();
                    if heard.closed || enough(&heard) {
                        return heard;
                    }
                    guard.clear_ready();
                }
                // The runtime is shutting down.
                Err(_) => self.heard().closed = true,
            }
        }
    }

    /// Takes what there is without waiting.
    pub(super) fn hear(&self) -> Heard {
        let mut heard = self.heard();
        while !heard.closed {
            match wire::receive(self.socket.as_fd()) {
                Ok(Some(frame)) => heard.note(Report::decode(&frame)),
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => break,
                Ok(None) | Err(_) => heard.closed = true,
            }
        }
        *heard
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        // Nothing panics while it is held; if something did, the fields would still be whole.
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Heard {
    fn note(&mut self, report: Option<Report>) {
        match report {
            Some(Report::Ready { agent, keeper }) => self.ready = Some((agent, keeper)),
            Some(Report::Failed { stage, errno }) => self.failed = Some((stage, errno)),
            Some(Report::Exited { status, cpu }) => {
                self.exited = Some(status);
                self.cpu = cpu;
            }
            Some(Report::Ended { status, cpu, strays, survivors }) => {
                self.exited = Some(status);
                self.cpu = cpu;
                self.ended = Some((strays, survivors));
            }
            // Both ends are the same program: a frame that it does not know cannot come.
            None => {}
        }
    }
}
