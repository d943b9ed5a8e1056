//! The agent-to-be: everything between fork and `execve`.
//!
//! All that does not depend on the call is done before the go byte, so that between the byte and `execve` there is
//! little more than reading the call's description.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::process::Signal;

use super::spec::ExecSpec;
use super::sys;
use super::wire::{self, Report, Stage};

/// What the agent-to-be was given.
pub(super) struct AgentFds {
    /// For the report of a failed start; closed by `execve`.
    pub(super) socket: OwnedFd,
    pub(super) go: OwnedFd,
    pub(super) spec: OwnedFd,
    pub(super) stdin: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

/// A step that failed, with its `errno`.
struct Failed(Stage, i32);

/// Becomes the agent, or reports why not. `parent` is the call keeper.
pub(super) fn run(parent: u32, fds: AgentFds) -> ! {
    let Err(Failed(stage, errno)) = become_agent(parent, &fds);
    let _ = wire::send(fds.socket.as_fd(), Report::Failed { stage, errno }.encode());
    // What a shell exits with: 127 for 'not found', 126 for 'found and cannot be run'.
    sys::exit_now(if errno == libc::ENOENT { 127 } else { 126 })
}

fn become_agent(parent: u32, fds: &AgentFds) -> Result<std::convert::Infallible, Failed> {
    let setup = |e: std::io::Error| Failed(Stage::Setup, e.raw_os_error().unwrap_or(0));
    // Never fails: a process just forked leads no group.
    let _ = rustix::process::setsid();
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(|e| setup(e.into()))?;
    if rustix::process::getppid().map(|p| p.as_raw_nonzero().get().cast_unsigned()) != Some(parent) {
        // The call keeper ended before the line above: no signal will come.
        sys::exit_now(0);
    }
    sys::set_stdio(&reopen_read_only(&fds.stdin).map_err(setup)?, 0).map_err(setup)?;
    sys::set_stdio(&fds.stdout, 1).map_err(setup)?;
    sys::set_stdio(&fds.stderr, 2).map_err(setup)?;
    sys::unblock_signals();

    wait_for_go(&fds.go);

    let spec = read_spec(&fds.spec).map_err(setup)?;
    if !spec.has_stdin {
        sys::set_stdio(&File::open("/dev/null").map_err(setup)?.into(), 0).map_err(setup)?;
    }
    rustix::process::chdir(&spec.cwd).map_err(|e| Failed(Stage::Chdir, e.raw_os_error()))?;
    sys::cloexec_from_3();
    Err(exec(&spec))
}

/// Waits for the supervisor's word. None comes any more when its end is closed: then there is nothing to become.
fn wait_for_go(go: &OwnedFd) {
    let mut byte = [0_u8; 1];
    loop {
        match rustix::io::read(go, &mut byte) {
            Ok(1) => return,
            Err(rustix::io::Errno::INTR) => {}
            Ok(_) | Err(_) => sys::exit_now(0),
        }
    }
}

/// The same memory file with its own offset (0) and without the right to write. Without `/proc`: the file as it is.
fn reopen_read_only(stdin: &OwnedFd) -> std::io::Result<OwnedFd> {
    match File::open(format!("/proc/self/fd/{}", stdin.as_raw_fd())) {
        Ok(file) => Ok(file.into()),
        Err(_) => stdin.try_clone(),
    }
}

fn read_spec(spec: &OwnedFd) -> std::io::Result<ExecSpec> {
    let file = File::from(spec.try_clone()?);
    let mut bytes = vec![0; usize::try_from(file.metadata()?.len()).unwrap_or(0)];
    file.read_exact_at(&mut bytes, 0)?;
    ExecSpec::decode(&bytes).ok_or_else(|| std::io::Error::from_raw_os_error(libc::EINVAL))
}

/// Tries each candidate as execvp(3) does: what is missing is passed over, what may not be run is remembered.
fn exec(spec: &ExecSpec) -> Failed {
    let mut failed = Failed(Stage::Exec, libc::ENOENT);
    for path in spec.candidates() {
        let errno = sys::exec(&path, &spec.argv, &spec.env).raw_os_error().unwrap_or(0);
        match errno {
            libc::ENOENT | libc::ENOTDIR => {
                if rustix::fs::access(&path, rustix::fs::Access::EXISTS).is_ok() {
                    return Failed(Stage::Interpreter, errno);
                }
            }
            libc::EACCES => failed = Failed(Stage::Exec, errno),
            _ => return Failed(Stage::Exec, errno),
        }
    }
    failed
}
