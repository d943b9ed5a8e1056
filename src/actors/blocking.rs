//! Blocking work that belongs to an actor: it runs elsewhere and comes home as a message.

use std::panic::{AssertUnwindSafe, catch_unwind};

use ractor::{ActorRef, Message};
use tokio::task::spawn_blocking;

/// Runs `job` on a blocking thread and sends the actor what it makes of it. A job that panics takes its actor down:
/// what the job had borrowed from it is lost, and its supervisor starts it anew.
pub fn away<M: Message>(actor: &ActorRef<M>, job: impl FnOnce() -> M + Send + 'static) {
    let actor = actor.clone();
    spawn_blocking(move || {
        // Nothing that a panic may have left half-done is used again: it is dropped on the way.
        match catch_unwind(AssertUnwindSafe(job)) {
            // An actor that died meanwhile has a successor that looks for itself.
            Ok(message) => drop(actor.cast(message)),
            Err(_) => actor.stop(Some("its blocking job panicked".to_owned())),
        }
    });
}
