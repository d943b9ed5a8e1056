//! Store: the only writer of `state.db`.
//!
//! Commits run on a blocking thread, one job at a time; what comes in meanwhile is the next job. The answer is sent
//! from that thread, after the commit and after readers can see the new state.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};

use super::blocking::away;
use super::context::ProjectCtx;
use crate::domain::event::{Body, Draft};
use crate::messages::disk::DiskMsg;
use crate::messages::journal::JournalMsg;
use crate::messages::store::{Committed, StoreMsg};
use crate::store::{Db, ProjectLock, StoreError};

/// How often to look whether an agent has deleted the files under us.
const LINK_CHECK: Duration = Duration::from_secs(2);

/// The actor.
pub struct StoreActor;

/// What it works with.
pub struct StoreState {
    ctx: Arc<ProjectCtx>,
    /// With the actor, or away with a job.
    db: Option<Db>,
    waiting: VecDeque<Work>,
    closing: Vec<RpcReplyPort<()>>,
    /// It was told to close, and has: nothing is committed any more.
    closed: bool,
}

/// One thing to do on the blocking thread.
#[derive(Debug)]
pub enum Work {
    /// Write these events together.
    Commit(Arc<[Draft]>, Option<u64>, RpcReplyPort<Result<Committed, Arc<StoreError>>>),
    /// Put back what was deleted under us.
    CheckLink,
}

/// A job that is over: the database comes home.
#[derive(Debug)]
pub struct Job {
    db: Db,
}

/// What it starts from.
pub struct StoreArgs {
    /// The project.
    pub ctx: Arc<ProjectCtx>,
    /// The open database at the first start; after a restart it is opened anew.
    pub db: Option<Db>,
}

// === impl StoreActor ===

impl Actor for StoreActor {
    type Msg = StoreMsg;
    type State = StoreState;
    type Arguments = StoreArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<StoreMsg>,
        args: StoreArgs,
    ) -> Result<StoreState, ActorProcessingErr> {
        let StoreArgs { ctx, db } = args;
        let db = match db {
            Some(db) => db,
            None => {
                let (paths, options) = (ctx.store_paths.clone(), ctx.open_options());
                let opener = ctx.clone();
                let opened = tokio::task::spawn_blocking(move || {
                    // A commit of the Store that died ends first.
                    let _turn = opener.writers.lock().unwrap_or_else(PoisonError::into_inner);
                    let opened = Db::open(&paths, options)?;
                    opener.state.send_replace(opened.state.clone());
                    Ok::<_, StoreError>(opened)
                });
                let opened = opened.await??;
                if let Some(recovery) = &opened.recovery {
                    super::note(&ctx, recovery.events().map(|body| ctx.draft(body)).to_vec());
                }
                opened.db
            }
        };
        // At once, too: the ballast must be there before the disk runs full.
        myself.send_after(Duration::ZERO, || StoreMsg::CheckLink);
        Ok(StoreState { ctx, db: Some(db), waiting: VecDeque::new(), closing: Vec::new(), closed: false })
    }

    async fn handle(
        &self,
        myself: ActorRef<StoreMsg>,
        message: StoreMsg,
        state: &mut StoreState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            StoreMsg::Commit { drafts, session, reply } => {
                state.waiting.push_back(Work::Commit(drafts, session, reply));
            }
            StoreMsg::CheckLink => {
                state.waiting.push_back(Work::CheckLink);
                myself.send_after(state.ctx.unasked(LINK_CHECK), || StoreMsg::CheckLink);
            }
            StoreMsg::JobDone(job) => state.db = Some(job.db),
            StoreMsg::Close(reply) => state.closing.push(reply),
            #[cfg(debug_assertions)]
            StoreMsg::Crash => panic!("asked to crash"),
        }
        state.next(&myself);
        Ok(())
    }
}

// === impl StoreState ===

impl StoreState {
    fn next(&mut self, myself: &ActorRef<StoreMsg>) {
        if self.closed {
            // Whoever asks is told by the end of the reply port.
            self.waiting.clear();
        }
        if self.waiting.is_empty() {
            if self.db.is_some() {
                for reply in self.closing.drain(..) {
                    self.closed = true;
                    // Whoever asked may have stopped waiting.
                    let _ = reply.send(());
                }
            }
            return;
        }
        let Some(mut db) = self.db.take() else { return };
        let works = std::mem::take(&mut self.waiting);
        let ctx = self.ctx.clone();
        away(myself, move || {
            for work in works {
                let mut writers = ctx.writers.lock().unwrap_or_else(PoisonError::into_inner);
                match work {
                    Work::Commit(_, Some(session), _) if session != writers.session => {}
                    Work::Commit(drafts, session, reply) => {
                        let done = commit(&ctx, &mut db, &drafts);
                        if session.is_some() && done.is_ok() {
                            writers.begun = true;
                            ctx.saved(&drafts);
                        }
                        let committed = done.as_ref().ok().cloned();
                        // A caller that is gone has been told nothing, so nothing is promised. Whoever waits for the
                        // answer goes on before the world is told.
                        let _ = reply.send(done);
                        committed.into_iter().for_each(|committed| publish(&ctx, committed));
                    }
                    Work::CheckLink => {
                        check_link(&ctx, &mut db);
                        keep_ballast(&ctx);
                    }
                }
            }
            // Nobody waits any more: time to tidy up.
            if let Err(error) = db.maintain() {
                tracing::debug!(%error, "cannot tidy up the state database");
            }
            StoreMsg::JobDone(Box::new(Job { db }))
        });
    }
}

fn commit(ctx: &ProjectCtx, db: &mut Db, drafts: &Arc<[Draft]>) -> Result<Committed, Arc<StoreError>> {
    let mut done = db.commit(drafts.to_vec());
    if done.as_ref().is_err_and(StoreError::is_full) {
        ctx.slots.disk.cast(DiskMsg::WriteFailed);
        if ctx.ballast.release().unwrap_or(false) {
            done = db.commit(drafts.to_vec());
        }
    }
    let committed = done.map_err(Arc::new)?;
    ctx.state.send_replace(committed.state.clone());
    Ok(committed)
}

/// To stdout, and to the journal: in the order of commits, as part of the job, so that both miss nothing while this
/// actor dies.
fn publish(ctx: &ProjectCtx, committed: Committed) {
    if let Some(shower) = &ctx.shower {
        shower.show(committed.clone());
    }
    ctx.slots.journal.cast(JournalMsg::Committed(committed));
}

/// Agents run `git clean -fdx`, which deletes ignored files: ours too.
fn check_link(ctx: &ProjectCtx, db: &mut Db) {
    let mut restored = Vec::new();
    match db.ensure_linked(ctx.now()) {
        Ok(file) => restored.extend(file),
        Err(error) => tracing::warn!(%error, "cannot put the state database back"),
    }
    let mut lock = ctx.lock.lock().unwrap_or_else(PoisonError::into_inner);
    match lock.as_mut().map_or(Ok(None), ProjectLock::ensure_linked) {
        Ok(file) => restored.extend(file),
        Err(error) => tracing::warn!(%error, "cannot put the lock file back"),
    }
    if restored.is_empty() {
        return;
    }
    let drafts: Vec<Draft> =
        restored.into_iter().map(|file| ctx.draft(Body::StateRestored { file: file.to_owned() })).collect();
    match commit(ctx, db, &drafts.into()) {
        Ok(committed) => publish(ctx, committed),
        Err(error) => tracing::warn!(%error, "cannot record that state files were put back"),
    }
}

/// Keeps the ballast whole while there is plenty of room.
fn keep_ballast(ctx: &ProjectCtx) {
    let wanted = ctx.disk_limits();
    let free = rustix::fs::statvfs(&ctx.paths.dot).map_or(0, |fs| fs.f_bavail.saturating_mul(fs.f_frsize));
    if free as f64 > wanted.min_free as f64 * wanted.resume_factor.max(1.0) * 2.0
        && let Err(error) = ctx.ballast.restore()
    {
        tracing::debug!(%error, "cannot make the ballast");
    }
}

#[cfg(test)]
mod tests;
