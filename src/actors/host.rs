//! Host: the root of the tree. One per process; it holds what projects share.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::oneshot;

use super::accounts::AccountsActor;
use super::context::ProjectCtx;
use super::disk::DiskActor;
use super::notifier::NotifierActor;
use super::project::{ProjectActor, ProjectArgs};
use super::supervision::{ChildSpec, Children, Fallen, Strategy};
use super::watcher::{WatcherActor, WatcherArgs};
use crate::channels::PATIENCE;
use crate::domain::state::Phase;
use crate::messages::host::HostMsg;
use crate::messages::notifier::NotifierMsg;
use crate::store::Db;

/// The child that the run can do without.
const NOTIFIER: &str = "notifier";

/// How long somebody who stops the session waits for what is being sent.
const STOPPED: Duration = Duration::from_secs(1);

/// The actor.
pub struct HostActor;

/// What it starts from.
pub struct HostArgs {
    /// The project to run.
    pub ctx: Arc<ProjectCtx>,
    /// Its open database.
    pub db: Db,
    /// Told how it ended.
    pub ended: oneshot::Sender<Ended>,
}

/// How the run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// With this exit code.
    Code(u8),
    /// Something died too often.
    GaveUp(String),
}

/// What it works with.
pub struct Host {
    ctx: Arc<ProjectCtx>,
    children: Children,
    ended: Option<oneshot::Sender<Ended>>,
}

// === impl HostActor ===

impl Actor for HostActor {
    type Msg = HostMsg;
    type State = Host;
    type Arguments = HostArgs;

    async fn pre_start(&self, myself: ActorRef<HostMsg>, args: HostArgs) -> Result<Host, ActorProcessingErr> {
        let HostArgs { ctx, db, ended } = args;
        let specs = children(&ctx, db, &myself);
        // The top gives up soon: what it cannot mend, the service manager can.
        let intensity = ctx.intensity();
        let mut children =
            Children::new(Strategy::OneForOne, intensity, super::RESTART_BACKOFF, ctx.rng(), specs);
        children.start_all(&myself.get_cell()).await?;
        Ok(Host { ctx, children, ended: Some(ended) })
    }

    async fn handle(
        &self,
        myself: ActorRef<HostMsg>,
        message: HostMsg,
        state: &mut Host,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            HostMsg::Restart { child } => {
                if let Err((child, error)) = state.children.restart(child, &myself.get_cell()).await {
                    let fallen = state.children.not_started(child, &error);
                    state.restart(fallen, &myself).await;
                }
            }
            HostMsg::ProjectEnded(code) => state.end(Ended::Code(code), &myself).await,
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<HostMsg>,
        event: SupervisionEvent,
        state: &mut Host,
    ) -> Result<(), ActorProcessingErr> {
        let fallen = state.children.fallen(&event);
        state.restart(fallen, &myself).await;
        Ok(())
    }
}

// === impl Host ===

impl Host {
    async fn restart(&mut self, fallen: Fallen, myself: &ActorRef<HostMsg>) {
        match fallen {
            Fallen::Nothing => {}
            Fallen::Restart { child, after, cause, restarts } => {
                let actor = self.children.name(child);
                tracing::warn!(actor, cause, restarts, "an actor died and is started again");
                let body =
                    crate::domain::event::Body::ActorRestarted { actor: actor.to_owned(), cause, restarts };
                super::note(&self.ctx, vec![self.ctx.draft(body)]);
                myself.send_after(after, move || HostMsg::Restart { child });
            }
            Fallen::GiveUp { name, cause } if name == NOTIFIER => {
                // It never ends a run.
                tracing::error!(cause, "nobody is notified any more: the notifier died too often");
            }
            Fallen::GiveUp { name, cause } => {
                self.end(Ended::GaveUp(format!("{name} died too often, the last time of: {cause}")), myself)
                    .await;
            }
        }
    }

    async fn end(&mut self, how: Ended, myself: &ActorRef<HostMsg>) {
        let Some(ended) = self.ended.take() else { return };
        if self.ctx.config().notify.is_on() {
            // What has not arrived by then is sent by the next run.
            let stopped = self.ctx.state().session.as_ref().is_some_and(|s| s.state == Phase::Stopped);
            let limit = if stopped { STOPPED } else { PATIENCE + STOPPED };
            let _ = self.ctx.slots.notifier.call("the notifier", limit, NotifierMsg::Close).await;
        }
        self.children.stop_all("the run is over").await;
        // Main waits for it as long as it lives.
        let _ = ended.send(how);
        myself.stop(None);
    }
}

/// In the order in which they start; they stop in reverse.
fn children(ctx: &Arc<ProjectCtx>, db: Db, host: &ActorRef<HostMsg>) -> Vec<ChildSpec> {
    let second = Duration::from_secs(1);
    let accounts = {
        let ctx = ctx.clone();
        ChildSpec::new("accounts", second, move |supervisor| {
            let ctx = ctx.clone();
            async move {
                let (accounts, _) = Actor::spawn_linked(None, AccountsActor, ctx.clone(), supervisor).await?;
                ctx.slots.accounts.fill(accounts.clone());
                Ok(accounts.get_cell())
            }
        })
    };
    let disk = {
        let ctx = ctx.clone();
        ChildSpec::new("disk", second, move |supervisor| {
            let ctx = ctx.clone();
            async move {
                let (disk, _) = Actor::spawn_linked(None, DiskActor, (), supervisor).await?;
                // Its truth is the file systems; what to look at is asked for again.
                let _ = disk.cast(ctx.disk_watch());
                ctx.slots.disk.fill(disk.clone());
                Ok(disk.get_cell())
            }
        })
    };
    let watcher = {
        let ctx = ctx.clone();
        ChildSpec::new("watcher", second, move |supervisor| {
            let ctx = ctx.clone();
            async move {
                let (watcher, _) =
                    Actor::spawn_linked(None, WatcherActor, WatcherArgs::default(), supervisor).await?;
                if ctx.is_watched() {
                    let _ = watcher.cast(ctx.folder_watch());
                }
                ctx.slots.watcher.fill(watcher.clone());
                Ok(watcher.get_cell())
            }
        })
    };
    let first = Arc::new(Mutex::new(Some(db)));
    let project = {
        let (ctx, host) = (ctx.clone(), host.clone());
        ChildSpec::new("project", Duration::from_secs(20), move |supervisor| {
            let (ctx, host, first) = (ctx.clone(), host.clone(), first.clone());
            async move {
                let db = first.lock().unwrap_or_else(PoisonError::into_inner).take();
                let args = ProjectArgs { ctx, db, host };
                let (project, _) = Actor::spawn_linked(None, ProjectActor, args, supervisor).await?;
                Ok(project.get_cell())
            }
        })
    };
    let notifier = {
        let ctx = ctx.clone();
        ChildSpec::new(NOTIFIER, second, move |supervisor| {
            let ctx = ctx.clone();
            async move {
                let (notifier, _) = Actor::spawn_linked(None, NotifierActor, ctx, supervisor).await?;
                Ok(notifier.get_cell())
            }
        })
    };
    vec![accounts, disk, watcher, notifier, project]
}
