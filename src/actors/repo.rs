//! Repo: owns the git repository; one operation at a time, on a blocking thread.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, PoisonError};

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};

use super::blocking::away;
use super::context::ProjectCtx;
use crate::domain::event::Body;
use crate::domain::ids::SessionId;
use crate::domain::state::State;
use crate::git::{Durability, Environment, Vcs};
use crate::messages::repo::{RepoMsg, TreeNow};

/// The actor.
pub struct RepoActor;

/// What it works with.
pub struct Repo {
    ctx: Arc<ProjectCtx>,
    /// With the actor, or away with a job.
    home: Option<Home>,
    waiting: VecDeque<Work>,
    closing: Vec<RpcReplyPort<()>>,
}

/// One operation.
#[derive(Debug)]
pub enum Work {
    /// Read the tree.
    Snapshot(RpcReplyPort<TreeNow>),
    /// Keep a tree under its ref.
    Checkpoint {
        /// The session.
        session: SessionId,
        /// The iteration.
        number: u64,
        /// Its tree.
        tree: String,
        /// For the commit's message.
        state: String,
    },
}

/// The repository, opened at the first operation.
type Home = Option<Vcs>;

/// A job that is over: the repository comes home.
#[derive(Debug)]
pub struct Job {
    vcs: Home,
}

// === impl RepoActor ===

impl Actor for RepoActor {
    type Msg = RepoMsg;
    type State = Repo;
    type Arguments = Arc<ProjectCtx>;

    async fn pre_start(
        &self,
        myself: ActorRef<RepoMsg>,
        ctx: Arc<ProjectCtx>,
    ) -> Result<Repo, ActorProcessingErr> {
        ctx.slots.repo.fill(myself);
        let mut waiting = VecDeque::new();
        // What was queued died with the last actor: snapshots are asked for again, the last checkpoint is known.
        if ctx.repo_started.swap(true, SeqCst) {
            waiting.extend(last_checkpoint(&ctx.state()));
        }
        Ok(Repo { ctx, home: Some(None), waiting, closing: Vec::new() })
    }

    async fn post_start(
        &self,
        myself: ActorRef<RepoMsg>,
        state: &mut Repo,
    ) -> Result<(), ActorProcessingErr> {
        state.next(&myself);
        Ok(())
    }

    async fn handle(
        &self,
        myself: ActorRef<RepoMsg>,
        message: RepoMsg,
        state: &mut Repo,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            RepoMsg::Snapshot(reply) => state.waiting.push_back(Work::Snapshot(reply)),
            RepoMsg::Checkpoint { number } => {
                let last = last_checkpoint(&state.ctx.state());
                let asked =
                    |work: &Work| matches!(work, Work::Checkpoint { number: of, .. } if *of == number);
                state.waiting.extend(last.filter(asked));
            }
            RepoMsg::JobDone(job) => state.home = Some(job.vcs),
            RepoMsg::Close(reply) => state.closing.push(reply),
            #[cfg(debug_assertions)]
            RepoMsg::Crash => panic!("asked to crash"),
        }
        state.next(&myself);
        Ok(())
    }
}

// === impl Repo ===

impl Repo {
    fn next(&mut self, myself: &ActorRef<RepoMsg>) {
        if self.home.is_some() && self.waiting.is_empty() {
            for reply in self.closing.drain(..) {
                // Whoever asked may have stopped waiting.
                let _ = reply.send(());
            }
            return;
        }
        let Some(mut vcs) = self.home.take() else { return };
        let Some(work) = self.waiting.pop_front() else { return };
        let ctx = self.ctx.clone();
        away(myself, move || {
            // The job of an actor that died ends first.
            let turn = ctx.repo.lock().unwrap_or_else(PoisonError::into_inner);
            let open = open_once(&ctx, &mut vcs);
            match work {
                Work::Snapshot(reply) => {
                    // Whoever asked has died, and asks again.
                    let _ = reply.send(snapshot(&ctx, open));
                }
                Work::Checkpoint { session, number, tree, state } => {
                    if let Err(error) = open.keep(session, number, &tree, &state, ctx.now()) {
                        degraded(&ctx, "checkpoints", error);
                    }
                }
            }
            drop(turn);
            RepoMsg::JobDone(Box::new(Job { vcs }))
        });
    }
}

/// What is to be kept: the state's last checkpoint.
fn last_checkpoint(state: &State) -> Option<Work> {
    let session = state.session.as_ref()?;
    let checkpoint = session.checkpoint.as_ref().filter(|checkpoint| checkpoint.reference.is_some())?;
    Some(Work::Checkpoint {
        session: session.id,
        number: checkpoint.number,
        tree: checkpoint.tree.clone(),
        state: serde_json::to_string(session).unwrap_or_default(),
    })
}

/// Opens the repository at the first operation: opening it takes longer than everything else at the start.
fn open_once<'v>(ctx: &Arc<ProjectCtx>, vcs: &'v mut Option<Vcs>) -> &'v mut Vcs {
    vcs.get_or_insert_with(|| {
        let config = ctx.config();
        let durability = match config.durability {
            crate::config::Durability::Power => Durability::Power,
            crate::config::Durability::Process => Durability::Process,
        };
        let environment = Environment::of(ctx.env.clone());
        let (vcs, problem) = Vcs::open(&ctx.paths.root, environment, durability, config.checkpoint.keep);
        if let Err(error) = vcs.sweep() {
            tracing::warn!(%error, "cannot sweep what an earlier run left in the repository");
        }
        // Once a session: a restarted actor has nothing new to say.
        if let Some(problem) = problem.filter(|_| !ctx.git_said.swap(true, SeqCst)) {
            degraded(ctx, "git", problem);
        }
        vcs
    })
}

fn snapshot(ctx: &Arc<ProjectCtx>, vcs: &mut Vcs) -> TreeNow {
    match vcs.look() {
        Ok(look) => {
            if let Some(left_out) = look.left_out {
                tracing::debug!(left_out, "the checkpoint is not of everything");
            }
            let git = look.git && ctx.config().checkpoint.enabled;
            TreeNow { tree: Some(look.tree), git }
        }
        Err(error) => {
            degraded(ctx, "checkpoints", error);
            TreeNow { tree: None, git: false }
        }
    }
}

fn degraded(ctx: &Arc<ProjectCtx>, capability: &str, reason: String) {
    let capability = capability.to_owned();
    super::note_once_begun(ctx, |state| Body::CapabilityDegraded {
        capability,
        fail_closed: false,
        reason,
        provider: None,
        model: None,
        iteration: state.session.as_ref().map(|s| s.iteration),
    });
}
