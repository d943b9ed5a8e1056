//! Waiting for more, for as long as somebody reads it.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::error::{CliError, ErrorKind};

/// Between two looks. Short for a person; a look costs a few system calls.
pub const INTERVAL: Duration = Duration::from_millis(200);

/// Waits for [`INTERVAL`], or until nobody reads our stdout any more.
///
/// # Errors
/// [`ErrorKind::BrokenPipe`]: they have gone.
pub fn idle() -> Result<(), CliError> {
    let stdout = rustix::stdio::stdout();
    // No events are asked for: only a closed pipe or terminal is told.
    let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
    let time = Timespec { tv_sec: 0, tv_nsec: i64::from(INTERVAL.subsec_nanos()) };
    match poll(&mut fds, Some(&time)) {
        Ok(0) | Err(Errno::INTR) => Ok(()),
        Ok(_) => Err(CliError::new(ErrorKind::BrokenPipe, "stdout is closed")),
        Err(error) => Err(CliError::failed_to(format_args!("wait for more: {error}"))),
    }
}
