//! A terminal, so that Ctrl-C reaches the whole foreground group as it does for a user.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::eventually;

/// A program with a pseudo-terminal as its controlling terminal.
#[derive(Debug)]
pub struct Terminal {
    child: Child,
    keyboard: File,
    screen: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// Starts `command` as the foreground of a new terminal. `setsid --ctty` (util-linux) makes it the
    /// terminal's own session and then becomes the program, so the pid stays.
    pub fn start(command: &Command) -> Terminal {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("the terminal is ours");
        let name = ptsname(&master, Vec::new()).expect("the terminal has a name");
        let side = || {
            File::from(
                open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())
                    .expect("it opens"),
            )
        };
        let mut launcher = Command::new("setsid");
        launcher.arg("--ctty").arg(command.get_program()).args(command.get_args());
        launcher.env_clear();
        launcher.envs(command.get_envs().filter_map(|(k, v)| Some((k, v?))));
        if let Some(folder) = command.get_current_dir() {
            launcher.current_dir(folder);
        }
        let child =
            launcher.stdin(Stdio::from(side())).stdout(side()).stderr(side()).spawn().expect("setsid runs");
        let keyboard = File::from(master);
        let mut reader = keyboard.try_clone().expect("a second handle");
        let screen = Arc::new(Mutex::new(Vec::new()));
        let copy = Arc::clone(&screen);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // The read fails with EIO when the last holder of the other side is gone.
            while let Ok(n) = reader.read(&mut buffer)
                && n > 0
            {
                copy.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&buffer[..n]);
            }
        });
        Terminal { child, keyboard, screen }
    }

    /// The program's process id.
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Types these bytes; `\x03` is Ctrl-C.
    pub fn types(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).expect("the terminal takes keys");
    }

    /// All that was shown so far.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    /// Waits for the program's end.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        eventually("the program in the terminal ends", || self.child.try_wait().ok().flatten())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
