//! `call.lock`: held by keepers as long as one of them, and so perhaps an agent, lives.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use tokio::time::{Instant, sleep};

use super::error::ProcessError;

/// How often to look: a dead supervisor's keepers need a second at most, usually milliseconds.
const LOOK: Duration = Duration::from_millis(10);

/// Takes `call.lock`, which is made if it is not there; `None` when it is still held after `limit` (2 s).
///
/// Who has it gives it to [`super::Keeper::start`] and may then close it. Who has not must [`super::sweep()`] first
/// and may go on without: a restart is never refused. Cancel-safe; does not block the runtime.
pub async fn wait_for_call_lock(path: &Path, limit: Duration) -> Result<Option<File>, ProcessError> {
    let failed = |source: io::Error| ProcessError::Lock { path: path.to_owned(), source };
    let file =
        File::options().read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
    let deadline = Instant::now() + limit;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(file)),
            Err(e) if e == rustix::io::Errno::WOULDBLOCK || e == rustix::io::Errno::INTR => {}
            Err(e) => return Err(failed(e.into())),
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        sleep(LOOK).await;
    }
}
