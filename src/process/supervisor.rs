//! The supervisor's handle to its keeper.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::call::{Prepared, Refused};
use super::error::ProcessError;
use super::keeper::KEEPER_ARG;
use super::tree::ProcessId;
use super::wire;

/// The keeper of a supervisor: it starts every agent and gate, and ends them when the supervisor is gone.
///
/// A keeper that died is replaced at the next [`Keeper::prepare`]; calls that run have keepers of their own and do
/// not notice. Dropping the handle lets the keeper go once its calls have ended; it does not end them.
#[derive(Debug)]
pub struct Keeper {
    /// This program, for the replacement of a dead keeper.
    program: PathBuf,
    /// `call.lock`, for the same.
    lock: Option<OwnedFd>,
    running: Mutex<Running>,
}

/// One keeper process.
#[derive(Debug)]
struct Running {
    /// Shared with a request that is being sent while the keeper is replaced.
    control: Arc<OwnedFd>,
    /// `None` only while it is being replaced or dropped.
    process: Option<Child>,
}

// === impl Keeper ===

impl Keeper {
    /// Starts a keeper from this very program, which must call [`super::keeper_main`] first thing.
    ///
    /// `call_lock` is the open, locked `call.lock`: the keeper and its call keepers hold it as long as one of them
    /// lives. Blocks for about the time of one `execve`. [`ProcessError::KeeperStart`] when that fails.
    pub fn start(call_lock: Option<&File>) -> Result<Self, ProcessError> {
        Keeper::start_with(Path::new("/proc/self/exe"), call_lock)
    }

    /// The same with the program to start as keeper, for test programs, which are not `longhaul`.
    pub fn start_with(program: &Path, call_lock: Option<&File>) -> Result<Self, ProcessError> {
        let lock = call_lock.map(|f| f.as_fd().try_clone_to_owned()).transpose();
        let lock = lock.map_err(ProcessError::KeeperStart)?;
        let running = Running::start(program, lock.as_ref()).map_err(ProcessError::KeeperStart)?;
        Ok(Keeper { program: program.to_owned(), lock, running: Mutex::new(running) })
    }

    /// Has the next agent process forked. It waits, with its pid and start time known, until [`Prepared::start`].
    ///
    /// Cancel-safe: what was forked for a dropped future ends by itself. Must be called in a tokio runtime with I/O.
    pub async fn prepare(&self) -> Result<Prepared, ProcessError> {
        let control = self.lock().control.clone();
        match Prepared::request(control.as_fd()).await {
            Ok(prepared) => return Ok(prepared),
            Err(Refused::Failed(e)) => return Err(e),
            Err(Refused::KeeperGone) => {}
        }
        let control = self.replace(&control)?;
        Prepared::request(control.as_fd()).await.map_err(|e| match e {
            Refused::Failed(e) => e,
            Refused::KeeperGone => ProcessError::KeeperGone,
        })
    }

    /// The keeper process; `None` when it is gone. For the record of what may have to be swept after a crash.
    pub fn id(&self) -> Option<ProcessId> {
        ProcessId::of(self.lock().process.as_ref()?.id()).filter(|id| id.is_alive())
    }

    /// Puts a new keeper in the place of the dead one, unless somebody else has done so.
    fn replace(&self, dead: &Arc<OwnedFd>) -> Result<Arc<OwnedFd>, ProcessError> {
        let mut running = self.lock();
        if Arc::ptr_eq(&running.control, dead) {
            let new = Running::start(&self.program, self.lock.as_ref()).map_err(ProcessError::KeeperStart)?;
            drop(std::mem::replace(&mut *running, new));
        }
        Ok(running.control.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        // Nothing panics while it is held; if something did, the fields would still be whole.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Running ===

impl Running {
    #[expect(clippy::disallowed_methods, reason = "this is the place that starts programs")]
    fn start(program: &Path, lock: Option<&OwnedFd>) -> io::Result<Running> {
        let (ours, theirs) = wire::socket_pair()?;
        let lock = lock.map(OwnedFd::try_clone).transpose()?;
        // Both descriptors travel as stdio, so that nothing has to run between fork and exec: the standard library
        // then uses posix_spawn, which does not copy the supervisor's page tables.
        let process = std::process::Command::new(program)
            .arg(KEEPER_ARG)
            .env_clear()
            .current_dir("/")
            .stdin(theirs)
            .stdout(lock.map_or_else(Stdio::null, Stdio::from))
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Running { control: Arc::new(ours), process: Some(process) })
    }
}

impl Drop for Running {
    /// Buries the keeper, which ends when the control socket closes and its calls have ended.
    fn drop(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        if !matches!(process.try_wait(), Ok(None)) {
            return;
        }
        // It may be waiting for calls, and nobody may wait for it here. Without a thread it stays a zombie until
        // the supervisor ends, which harms nobody.
        let wait = move || drop(process.wait());
        let _ = std::thread::Builder::new().name("keeper-reaper".into()).spawn(wait);
    }
}
