//! Where no change notices come: a glance every 150 ms, and a hint when it differs from the last.
//!
//! On a thread of its own: waking a task for a timer costs several times what the glance does.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use ractor::ActorRef;

use crate::actors::context::ProjectCtx;
use crate::intake::signal_files::{Glance, glance};
use crate::messages::signals::SignalsMsg;

/// Between two glances. STOP is to be obeyed within 200 ms.
pub(super) const POLLED: Duration = Duration::from_millis(150);

/// Enough for a few paths and system calls, in bytes.
const STACK: usize = 128 * 1024;

/// Polls until it is dropped.
pub(super) struct Poller {
    ended: Arc<AtomicBool>,
    thread: Thread,
}

// === impl Poller ===

impl Poller {
    /// Begins.
    ///
    /// # Errors
    /// There can be no more threads.
    pub(super) fn start(ctx: Arc<ProjectCtx>, signals: ActorRef<SignalsMsg>) -> io::Result<Self> {
        let ended = Arc::new(AtomicBool::new(false));
        let end = ended.clone();
        let poll = move || {
            let mut last: Option<Glance> = None;
            loop {
                thread::park_timeout(POLLED);
                if end.load(Ordering::Acquire) {
                    return;
                }
                let seen = glance(&ctx.paths);
                if last != Some(seen) {
                    last = Some(seen);
                    // An actor that died takes its poller with it.
                    drop(signals.cast(SignalsMsg::Hint));
                }
            }
        };
        let thread = thread::Builder::new().name("signals".to_owned()).stack_size(STACK).spawn(poll)?;
        Ok(Poller { ended, thread: thread.thread().clone() })
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
