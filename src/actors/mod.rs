//! The actors: thin; they do the effects that `domain/` decides.
//!
//! ```text
//! Host
//! ├─ Accounts   limits, cool-downs, fail-over order
//! ├─ Disk       free bytes and inodes per file system in use
//! ├─ Watcher    one inotify instance per process; only hints
//! └─ Project
//!    ├─ Store      the only writer of state.db
//!    ├─ Journal    fans committed events out
//!    ├─ Signals    PAUSE, STOP, inbox → typed inputs
//!    ├─ Repo       trees and checkpoints
//!    ├─ Gates      runs checks
//!    └─ Session    the state machine; owns the lanes
//!       └─ Lane       one iteration at a time
//!          └─ Provider   one attempt
//! ```

pub mod accounts;
pub mod blocking;
pub mod context;
#[cfg(debug_assertions)]
pub mod crash_hook;
mod credential;
pub mod disk;
pub mod gates;
pub mod host;
pub mod journal;
pub mod lane;
pub mod notifier;
pub mod preflight;
pub mod project;
pub mod prompting;
pub mod provider;
pub mod reach;
pub mod rehearsal;
pub mod reload;
pub mod repo;
pub mod session;
pub mod signals;
pub mod store;
pub mod supervision;
pub mod survey;
#[cfg(test)]
mod testing;
pub mod vital_signs;
pub mod watcher;

use std::time::Duration;

use crate::domain::backoff::Backoff;
use crate::domain::event::{Body, Draft};
use crate::domain::state::State;

use context::ProjectCtx;

/// Between an actor's death and its restart.
const RESTART_BACKOFF: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(2));

/// Commits events that nobody waits for. What cannot be recorded is logged: it must never break the run.
fn note(ctx: &std::sync::Arc<ProjectCtx>, drafts: Vec<Draft>) {
    let ctx = ctx.clone();
    tokio::spawn(async move {
        if let Err(error) = ctx.commit(drafts).await {
            tracing::warn!(?error, "an event could not be recorded");
        }
    });
}

/// The same for what may be noticed before the session has begun: its first event comes first, and this one belongs
/// to it.
fn note_once_begun(ctx: &std::sync::Arc<ProjectCtx>, body: impl FnOnce(&State) -> Body + Send + 'static) {
    let ctx = ctx.clone();
    tokio::spawn(async move {
        // It cannot close: the context has it.
        let _ = ctx.state.subscribe().wait_for(|state| state.session.is_some()).await;
        let draft = ctx.draft(body(&ctx.state()));
        note(&ctx, vec![draft]);
    });
}
