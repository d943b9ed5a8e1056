//! Watches the credential files of a session that is paused because its key was refused: a person who logs in again
//! need not say so.

use std::sync::Arc;
use std::time::Duration;

use ractor::ActorRef;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::context::ProjectCtx;
use crate::domain::session::Input;
use crate::domain::state::{Phase, Reason};
use crate::messages::session::SessionMsg;
use crate::providers::account::{Stamp, stamp};

/// Between two looks.
const LOOK: Duration = Duration::from_secs(2);

/// CLIs write their files for other reasons, too: each change is tried once, and later each time, up to ten minutes.
const TRIES: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(600)];

/// After so long without a try the next change is tried at once again.
const FORGET: Duration = Duration::from_secs(3600);

/// The watch of one session.
#[derive(Debug, Default)]
pub struct CredentialWatch {
    task: Option<AbortOnDropHandle<()>>,
    tries: u32,
    last: Option<Instant>,
    /// The files as they were when the call had ended that was refused.
    refused: Option<JoinHandle<Stamps>>,
}

/// The files of each provider of a chain.
type Stamps = Vec<Vec<Stamp>>;

// === impl CredentialWatch ===

impl CredentialWatch {
    /// A call was refused, and has ended: what its CLI writes at its end is no news.
    pub fn refused(&mut self, ctx: &Arc<ProjectCtx>) {
        let chain = ctx.state().session.as_ref().map(|session| session.chain.clone());
        self.refused = chain.map(|chain| stamps(ctx, &chain));
    }

    /// Begins or ends watching, as the session's state has it.
    pub fn follow(&mut self, ctx: &Arc<ProjectCtx>, session: &ActorRef<SessionMsg>) {
        let state = ctx.state();
        let waits = state
            .session
            .as_ref()
            .filter(|s| s.state == Phase::Paused && s.reason == Some(Reason::AuthRequired))
            .map(|s| s.chain.clone());
        match (waits, &self.task) {
            (None, Some(_)) => self.task = None,
            (Some(chain), None) => {
                if self.last.is_some_and(|last| last.elapsed() > FORGET) {
                    self.tries = 0;
                }
                let pause = TRIES[0].saturating_mul(1 << self.tries.min(16)).min(TRIES[1]);
                self.tries = self.tries.saturating_add(1);
                self.last = Some(Instant::now());
                let before = self.refused.take().unwrap_or_else(|| stamps(ctx, &chain));
                let watch = watch(ctx.clone(), chain, before, pause, session.clone());
                self.task = Some(AbortOnDropHandle::new(tokio::spawn(watch)));
            }
            _ => {}
        }
    }
}

async fn watch(
    ctx: Arc<ProjectCtx>,
    chain: Vec<String>,
    before: JoinHandle<Stamps>,
    pause: Duration,
    session: ActorRef<SessionMsg>,
) {
    let Ok(before) = before.await else { return };
    // Nothing to look at: keys in the environment do not change while we run.
    if before.iter().all(Vec::is_empty) {
        return;
    }
    tokio::time::sleep(pause).await;
    while stamps(&ctx, &chain).await.is_ok_and(|now| now == before) {
        tokio::time::sleep(LOOK).await;
    }
    // A session that died looks for itself when it is back.
    let _ = session.cast(SessionMsg::Input(Box::new(Input::CredentialChanged)));
}

/// Looks, away from the actor: a home folder may be on a server that does not answer.
fn stamps(ctx: &Arc<ProjectCtx>, chain: &[String]) -> JoinHandle<Stamps> {
    let (ctx, chain) = (ctx.clone(), chain.to_vec());
    spawn_blocking(move || {
        let config = ctx.config();
        let of = |name: &String| {
            let definition = ctx.providers.definition(name)?;
            Some(stamp(&definition, &ctx.provider_env(&config, name)))
        };
        chain.iter().map(|name| of(name).unwrap_or_default()).collect()
    })
}
