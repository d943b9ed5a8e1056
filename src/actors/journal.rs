//! Journal: brings committed events to the journal on disk, on a blocking thread. What was committed while it was
//! dead it finds in the database.
//!
//! What is shown is shown from a thread of its own, so that a reader of stdout that does not read holds nothing up.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};

use super::blocking::away;
use super::context::{ProjectCtx, Show};
use crate::domain::event::{Body, Event};
use crate::domain::notification::is_hint;
use crate::domain::state::{Reason, WaitReason};
use crate::messages::journal::JournalMsg;
use crate::messages::notifier::NotifierMsg;
use crate::messages::store::Committed;
use crate::store::{Journal as Files, Reader, replace};

/// Commits that may wait to be shown. A reader that is further behind misses some, and is told.
const SHOW_BACKLOG: usize = 4096;

/// Lines are written this long after their commit, when the next call has its start behind it.
const WRITE_DELAY: Duration = Duration::from_millis(2);

/// `status.json` is written this long after a commit, once for all commits until then: iterations may be short.
const STATUS_DELAY: Duration = Duration::from_millis(200);

/// The actor.
pub struct JournalActor;

/// What it works with.
pub struct Journal {
    ctx: Arc<ProjectCtx>,
    /// Nothing has been written yet: what was committed while nobody was here is in the database.
    first: bool,
    /// A job is away.
    busy: bool,
    waiting: VecDeque<Committed>,
    closing: Vec<RpcReplyPort<()>>,
    /// The timer for writing lines runs.
    writing: bool,
    /// The timer for `status.json` runs.
    armed: bool,
    /// `status.json` is to be written with the next job.
    project: bool,
}

/// Shows commits on a thread of its own.
#[derive(Debug)]
pub struct Shower {
    commits: SyncSender<Option<Committed>>,
}

// === impl JournalActor ===

impl Actor for JournalActor {
    type Msg = JournalMsg;
    type State = Journal;
    type Arguments = Arc<ProjectCtx>;

    async fn pre_start(
        &self,
        myself: ActorRef<JournalMsg>,
        ctx: Arc<ProjectCtx>,
    ) -> Result<Journal, ActorProcessingErr> {
        ctx.slots.journal.fill(myself);
        Ok(Journal {
            ctx,
            first: true,
            busy: false,
            waiting: VecDeque::new(),
            closing: Vec::new(),
            writing: false,
            armed: false,
            project: true,
        })
    }

    async fn post_start(
        &self,
        myself: ActorRef<JournalMsg>,
        state: &mut Journal,
    ) -> Result<(), ActorProcessingErr> {
        state.write(&myself);
        Ok(())
    }

    async fn handle(
        &self,
        myself: ActorRef<JournalMsg>,
        message: JournalMsg,
        state: &mut Journal,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            JournalMsg::Committed(committed) => {
                state.waiting.push_back(committed);
                if !std::mem::replace(&mut state.writing, true) {
                    myself.send_after(WRITE_DELAY, || JournalMsg::Write);
                }
                if !std::mem::replace(&mut state.armed, true) {
                    myself.send_after(STATUS_DELAY, || JournalMsg::ProjectStatus);
                }
            }
            JournalMsg::Write => state.writing = false,
            JournalMsg::ProjectStatus => {
                state.armed = false;
                state.project = true;
            }
            JournalMsg::JobDone => state.busy = false,
            JournalMsg::Close(reply) => {
                state.closing.push(reply);
                state.project |= state.armed;
            }
            #[cfg(debug_assertions)]
            JournalMsg::Crash => panic!("asked to crash"),
        }
        let lines = !state.waiting.is_empty();
        if state.project || (lines && (!state.writing || !state.closing.is_empty())) {
            state.write(&myself);
        } else if !lines && !state.busy {
            for reply in state.closing.drain(..) {
                // Whoever asked may have stopped waiting.
                let _ = reply.send(());
            }
        }
        Ok(())
    }
}

// === impl Journal ===

impl Journal {
    fn write(&mut self, myself: &ActorRef<JournalMsg>) {
        if std::mem::replace(&mut self.busy, true) {
            return;
        }
        let commits = std::mem::take(&mut self.waiting);
        let project = std::mem::take(&mut self.project);
        let first = std::mem::take(&mut self.first);
        let ctx = self.ctx.clone();
        away(myself, move || {
            with_files(&ctx, |files| {
                for committed in &commits {
                    if let Err(error) = files.append(committed) {
                        tracing::warn!(%error, "cannot write the journal; it is caught up later");
                    }
                }
                if files.is_behind() || first && files.last() < ctx.state().seq {
                    catch_up(&ctx, files);
                }
            });
            commits
                .iter()
                .flat_map(|committed| committed.events.iter())
                .for_each(|event| tell_scripts(&ctx, event));
            tell_people(&ctx, &commits);
            if project {
                project_status(&ctx);
            }
            JournalMsg::JobDone
        });
    }
}

/// Brings the files up to date without the actor: for the end of a run, when it may just have died. Blocking.
pub fn finish(ctx: &ProjectCtx) {
    // A commit whose Store has died ends first.
    drop(ctx.writers.lock());
    with_files(ctx, |files| {
        if files.is_behind() || files.last() < ctx.state().seq {
            catch_up(ctx, files);
        }
    });
}

/// The job of an actor that died may still be writing: then this waits for it.
fn with_files(ctx: &ProjectCtx, write: impl FnOnce(&mut Files)) {
    let mut files = ctx.journal.lock().unwrap_or_else(|poisoned| {
        // What a panic has left half-done is looked at anew.
        ctx.journal.clear_poison();
        let mut files = poisoned.into_inner();
        files.distrust();
        files
    });
    write(&mut files);
}

fn catch_up(ctx: &ProjectCtx, files: &mut Files) {
    let mut reader = Reader::live(ctx.store_paths.clone());
    if let Err(error) = files.catch_up(&ctx.state(), &mut reader, ctx.now()) {
        tracing::warn!(%error, "cannot bring the journal up to date; trying again at the next event");
    }
}

/// `status.json`, for scripts and prompts.
fn project_status(ctx: &ProjectCtx) {
    let status = crate::domain::status::Status::of(&ctx.state(), &ctx.status_facts(), ctx.now());
    let text = serde_json::to_vec(&status).unwrap_or_default();
    if let Err(error) = replace(&ctx.store_paths.status, &text, false) {
        tracing::debug!(%error, "cannot write status.json");
    }
}

/// Hints for Notifier, where somebody wants to be told.
fn tell_people(ctx: &ProjectCtx, commits: &VecDeque<Committed>) {
    if !ctx.config().notify.is_on() {
        return;
    }
    let events = commits.iter().flat_map(|committed| committed.events.iter());
    let hints: Vec<Event> = events.filter(|event| is_hint(event)).map(|event| (*event).clone()).collect();
    if !hints.is_empty() {
        ctx.slots.notifier.cast(NotifierMsg::Hint(hints));
    }
}

/// What a person has to do, for scripts: a file each, there as long as it holds.
fn tell_scripts(ctx: &ProjectCtx, event: &Event) {
    const NEEDS_HUMAN: &str = "NEEDS_HUMAN";
    const BUDGET_EXCEEDED: &str = "BUDGET_EXCEEDED";
    let folder = &ctx.store_paths.signals;
    let put = |name: &str| {
        let text = serde_json::to_vec(event).unwrap_or_default();
        let written =
            std::fs::create_dir_all(folder).and_then(|()| replace(&folder.join(name), &text, false));
        if let Err(error) = written {
            tracing::warn!(%error, name, "cannot tell scripts");
        }
    };
    match &event.body {
        Body::BudgetExceeded { .. } => put(BUDGET_EXCEEDED),
        Body::SessionPaused { reason, .. } if reason.needs_person() && *reason != Reason::Requested => {
            put(NEEDS_HUMAN);
        }
        // Money was set aside for a call: there is room.
        Body::WaitEnded { why: WaitReason::BudgetExceeded } | Body::BudgetReserved { .. } => {
            // Most often there is none.
            let _ = std::fs::remove_file(folder.join(BUDGET_EXCEEDED));
        }
        Body::SessionContinued { .. } | Body::SessionStarted(_) => {
            for name in [NEEDS_HUMAN, BUDGET_EXCEEDED] {
                // Most often there is none.
                let _ = std::fs::remove_file(folder.join(name));
            }
        }
        _ => {}
    }
}

// === impl Shower ===

impl Shower {
    /// Starts the thread; it ends with the last handle, or by [`Shower::finish`].
    ///
    /// # Errors
    /// The system's, when there is no room for a thread.
    pub fn start(show: Box<dyn Show>) -> std::io::Result<(Self, std::thread::JoinHandle<()>)> {
        let (commits, receive) = sync_channel::<Option<Committed>>(SHOW_BACKLOG);
        let thread = std::thread::Builder::new().name("show".to_owned()).spawn(move || {
            let mut shown = 0;
            while let Ok(Some(committed)) = receive.recv() {
                for (event, line) in committed.events.iter().zip(committed.lines.lines()) {
                    let event: &Event = event;
                    // A batch whose answer was lost is committed, and told, again.
                    if event.seq > shown {
                        shown = event.seq;
                        show.show(event, line);
                    }
                }
            }
        })?;
        Ok((Shower { commits }, thread))
    }

    /// Shows what is queued, and ends the thread. A reader that does not read is not waited for.
    pub fn finish(&self) {
        // Full: the reader is stuck, and the thread ends with the program.
        let _ = self.commits.try_send(None);
    }

    /// Queues a commit to be shown; never waits. Store does it as part of the commit, so that each is shown once and
    /// in order, whatever becomes of this actor.
    pub fn show(&self, committed: Committed) {
        if let Err(TrySendError::Full(_)) = self.commits.try_send(Some(committed)) {
            static TOLD: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
            if !TOLD.swap(true, SeqCst) {
                tracing::warn!("stdout is not read: events are missing there; the journal has them all");
            }
        }
    }
}
