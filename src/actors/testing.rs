//! What tests of single actors stand on: a project in a temporary folder, a store in memory, and a session that only
//! listens.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::context::{ProjectCtx, ProjectParts, RunRequest};
use crate::clock::Clock;
use crate::config::{Files, ProjectPaths, Sources, resolve};
use crate::domain::event::{Body, Event};
use crate::domain::state::State;
use crate::messages::session::SessionMsg;
use crate::messages::store::{Committed, StoreMsg};
use crate::providers::book::ProviderBook;
use crate::providers::registry::Registry;
use crate::store::StoreError;

/// How long a test waits for what must come. Only a failing test takes it.
pub(super) const SOON: Duration = Duration::from_secs(20);

/// A project without a keeper and without a lock, in `root`.
pub(super) fn project(root: &Path) -> Arc<ProjectCtx> {
    let paths = ProjectPaths::new(root.canonicalize().unwrap());
    let sources = Sources { project: Some(paths.config.clone()), ..Sources::default() };
    let files = Files::default();
    let loaded = resolve(&sources, &files).unwrap();
    Arc::new(ProjectCtx::new(ProjectParts {
        paths,
        clock: Clock::System,
        seed: None,
        still: false,
        sources,
        files,
        loaded,
        state: Arc::new(State::default()),
        request: RunRequest::default(),
        env: BTreeMap::new(),
        providers: ProviderBook::new(Registry::load(&[]).unwrap(), None, &Default::default(), None),
        keeper: None,
        lock: None,
        shower: None,
        found: Vec::new(),
    }))
}

/// Commits in memory, or says that the disk is full.
pub(super) struct MemoryStore {
    pub(super) ctx: Arc<ProjectCtx>,
    pub(super) full: Arc<AtomicBool>,
    pub(super) events: mpsc::UnboundedSender<Event>,
}

impl Actor for MemoryStore {
    type Msg = StoreMsg;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<StoreMsg>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(
        &self,
        _: ActorRef<StoreMsg>,
        message: StoreMsg,
        _: &mut (),
    ) -> Result<(), ActorProcessingErr> {
        let StoreMsg::Commit { drafts, reply, .. } = message else { return Ok(()) };
        if self.full.load(Ordering::SeqCst) {
            let full = StoreError::Full { path: self.ctx.paths.state_db.clone(), detail: "test".to_owned() };
            drop(reply.send(Err(Arc::new(full))));
            return Ok(());
        }
        let mut state = (*self.ctx.state()).clone();
        let mut events = Vec::new();
        for draft in drafts.iter() {
            let event = draft.clone().at(state.seq + 1);
            state.apply(&event);
            drop(self.events.send(event.clone()));
            events.push(event);
        }
        let state = Arc::new(state);
        self.ctx.state.send_replace(state.clone());
        drop(reply.send(Ok(Committed { events: events.into(), lines: "".into(), state })));
        Ok(())
    }
}

/// Hands on what it is sent.
pub(super) struct Listener<M>(pub(super) mpsc::UnboundedSender<M>);

impl<M: ractor::Message> Actor for Listener<M> {
    type Msg = M;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<M>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(&self, _: ActorRef<M>, message: M, _: &mut ()) -> Result<(), ActorProcessingErr> {
        drop(self.0.send(message));
        Ok(())
    }
}

/// A listener, and what it hears.
pub(super) async fn listener<M: ractor::Message>() -> (ActorRef<M>, Heard<M>) {
    let (said, heard) = mpsc::unbounded_channel();
    let (actor, _) = Actor::spawn(None, Listener(said), ()).await.unwrap();
    (actor, Heard(heard))
}

/// What a listener hears, or a store commits.
pub(super) struct Heard<T>(pub(super) mpsc::UnboundedReceiver<T>);

impl<T> Heard<T> {
    /// The first that `pick` takes; what it refuses is dropped.
    pub(super) async fn first<U>(&mut self, pick: impl FnMut(T) -> Option<U>) -> U {
        self.within(SOON, pick).await.expect("it does not come")
    }

    /// The same, if it comes in time.
    pub(super) async fn within<U>(
        &mut self,
        limit: Duration,
        mut pick: impl FnMut(T) -> Option<U>,
    ) -> Option<U> {
        let search = async {
            loop {
                if let Some(picked) = pick(self.0.recv().await?) {
                    return Some(picked);
                }
            }
        };
        timeout(limit, search).await.ok().flatten()
    }

    /// What is there by now.
    pub(super) fn rest(&mut self) -> Vec<T> {
        std::iter::from_fn(|| self.0.try_recv().ok()).collect()
    }
}

/// A message as it was queued: `source: text`.
pub(super) fn queued(event: Event) -> Option<String> {
    match event.body {
        Body::MessageQueued { source, text, .. } => Some(format!("{source}: {text}")),
        _ => None,
    }
}

/// The input in a message to the session.
pub(super) fn input(message: SessionMsg) -> Option<crate::domain::session::Input> {
    match message {
        SessionMsg::Input(input) => Some(*input),
        _ => None,
    }
}
