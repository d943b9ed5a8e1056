//! Project: supervises everything of one project. It does nothing else.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};

use super::context::ProjectCtx;
use super::gates::GatesActor;
use super::journal::{self, JournalActor};
use super::repo::RepoActor;
use super::session::{SessionActor, SessionArgs};
use super::signals::SignalsActor;
use super::store::{StoreActor, StoreArgs};
use super::supervision::{ChildSpec, Children, Fallen, Strategy};
use crate::domain::event::Body;
use crate::messages::accounts::AccountsMsg;
use crate::messages::host::HostMsg;
use crate::messages::journal::JournalMsg;
use crate::messages::project::ProjectMsg;
use crate::messages::repo::RepoMsg;
use crate::messages::store::StoreMsg;
use crate::store::Db;

/// How long each child may take to finish what it has begun, at the end.
const CLOSING: Duration = Duration::from_secs(5);

/// The actor.
pub struct ProjectActor;

/// What it starts from.
pub struct ProjectArgs {
    /// The project.
    pub ctx: Arc<ProjectCtx>,
    /// Its open database at the first start; after a restart it is opened anew.
    pub db: Option<Db>,
    /// Whom to tell that the run is over.
    pub host: ActorRef<HostMsg>,
}

/// What it works with.
pub struct Project {
    ctx: Arc<ProjectCtx>,
    host: ActorRef<HostMsg>,
    children: Children,
    ended: bool,
}

// === impl ProjectActor ===

impl Actor for ProjectActor {
    type Msg = ProjectMsg;
    type State = Project;
    type Arguments = ProjectArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<ProjectMsg>,
        args: ProjectArgs,
    ) -> Result<Project, ActorProcessingErr> {
        let ProjectArgs { ctx, db, host } = args;
        let specs = children(&ctx, db, &myself);
        let intensity = ctx.intensity();
        let mut children =
            Children::new(Strategy::OneForOne, intensity, super::RESTART_BACKOFF, ctx.rng(), specs);
        children.start_all(&myself.get_cell()).await?;
        Ok(Project { ctx, host, children, ended: false })
    }

    async fn handle(
        &self,
        myself: ActorRef<ProjectMsg>,
        message: ProjectMsg,
        state: &mut Project,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ProjectMsg::Restart { child } => {
                if let Err((child, error)) = state.children.restart(child, &myself.get_cell()).await {
                    let fallen = state.children.not_started(child, &error);
                    state.restart(fallen, &myself)?;
                }
            }
            ProjectMsg::Ended(code) => {
                if !std::mem::replace(&mut state.ended, true) {
                    state.close(&myself).await;
                    // A host that is gone takes us with it.
                    let _ = state.host.cast(HostMsg::ProjectEnded(code));
                }
            }
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<ProjectMsg>,
        event: SupervisionEvent,
        state: &mut Project,
    ) -> Result<(), ActorProcessingErr> {
        let fallen = state.children.fallen(&event);
        state.restart(fallen, &myself)
    }
}

// === impl Project ===

impl Project {
    fn restart(&mut self, fallen: Fallen, myself: &ActorRef<ProjectMsg>) -> Result<(), ActorProcessingErr> {
        match fallen {
            Fallen::Nothing => Ok(()),
            Fallen::Restart { child, after, cause, restarts } => {
                let actor = self.children.name(child).to_owned();
                tracing::warn!(actor, cause, restarts, "an actor died and is started again");
                super::note(&self.ctx, vec![self.ctx.draft(Body::ActorRestarted { actor, cause, restarts })]);
                myself.send_after(after, move || ProjectMsg::Restart { child });
                Ok(())
            }
            Fallen::GiveUp { name, cause } => {
                Err(format!("{name} died too often, the last time of: {cause}").into())
            }
        }
    }

    /// Everything that was begun is finished: what was committed is in the journal, checkpoints have their refs.
    async fn close(&mut self, myself: &ActorRef<ProjectMsg>) {
        // Those that have just died cannot be started again later.
        self.children.start_missing(&["store", "journal", "repo"], &myself.get_cell()).await;
        let slots = &self.ctx.slots;
        // One that does not answer in time is stopped as it is: the next start makes up for it.
        let _ = slots.repo.call("the repository", CLOSING, RepoMsg::Close).await;
        let _ = slots.store.call("the store", CLOSING, StoreMsg::Close).await;
        let _ = slots.journal.call("the journal", CLOSING, JournalMsg::Close).await;
        let _ = slots.accounts.call("accounts", CLOSING, AccountsMsg::Close).await;
        self.children.stop_all("the run is over").await;
        // Whoever died in these last moments has left lines unwritten.
        let ctx = self.ctx.clone();
        let _ = tokio::task::spawn_blocking(move || journal::finish(&ctx)).await;
    }
}

/// In the order in which they start; they stop in reverse.
fn children(ctx: &Arc<ProjectCtx>, db: Option<Db>, project: &ActorRef<ProjectMsg>) -> Vec<ChildSpec> {
    let second = Duration::from_secs(1);
    // The open database is for the first start; a restarted Store opens its own.
    let first = Arc::new(Mutex::new(db));
    let store = {
        let ctx = ctx.clone();
        ChildSpec::new("store", CLOSING, move |supervisor| {
            let (ctx, first) = (ctx.clone(), first.clone());
            async move {
                let db = first.lock().unwrap_or_else(PoisonError::into_inner).take();
                let (store, _) =
                    Actor::spawn_linked(None, StoreActor, StoreArgs { ctx: ctx.clone(), db }, supervisor)
                        .await?;
                ctx.slots.store.fill(store.clone());
                Ok(store.get_cell())
            }
        })
    };
    let session = {
        let (ctx, project) = (ctx.clone(), project.clone());
        ChildSpec::new("session", CLOSING, move |supervisor| {
            let args = SessionArgs { ctx: ctx.clone(), project: project.clone() };
            async move {
                let (session, _) = Actor::spawn_linked(None, SessionActor, args, supervisor).await?;
                Ok(session.get_cell())
            }
        })
    };
    vec![
        store,
        simple("journal", second, ctx, || JournalActor),
        simple("signals", second, ctx, || SignalsActor),
        simple("repo", CLOSING, ctx, || RepoActor),
        simple("gates", second, ctx, || GatesActor),
        session,
    ]
}

/// A child that needs nothing but the project.
fn simple<A>(name: &'static str, shutdown: Duration, ctx: &Arc<ProjectCtx>, make: fn() -> A) -> ChildSpec
where
    A: Actor<Arguments = Arc<ProjectCtx>>,
{
    let ctx = ctx.clone();
    ChildSpec::new(name, shutdown, move |supervisor| {
        let ctx = ctx.clone();
        async move {
            let (actor, _) = Actor::spawn_linked(None, make(), ctx, supervisor).await?;
            Ok(actor.get_cell())
        }
    })
}
