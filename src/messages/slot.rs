//! Where to find an actor, through its restarts.

use std::time::Duration;

use ractor::rpc::CallResult;
use ractor::{ActorRef, ActorStatus, Message, RpcReplyPort};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

/// How long after a failed call the next try comes, when no restart is announced meanwhile.
const AGAIN: Duration = Duration::from_millis(5);

/// The present incarnation of an actor. Cheap to clone; its supervisor fills it at each (re)start.
pub struct Slot<M>(watch::Sender<Option<ActorRef<M>>>);

/// The actor did not answer within the limit, nor did any that replaced it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{actor} did not answer within {} s", within.as_secs_f32())]
pub struct Gone {
    /// Which actor.
    pub actor: &'static str,
    /// The limit.
    pub within: Duration,
}

// === impl Slot ===

impl<M> Clone for Slot<M> {
    fn clone(&self) -> Self {
        Slot(self.0.clone())
    }
}

impl<M> std::fmt::Debug for Slot<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Slot")
    }
}

impl<M: Message> Default for Slot<M> {
    fn default() -> Self {
        Slot(watch::Sender::new(None))
    }
}

impl<M: Message> Slot<M> {
    /// A new incarnation is there.
    pub fn fill(&self, actor: ActorRef<M>) {
        self.0.send_replace(Some(actor));
    }

    /// There is none for now.
    pub fn clear(&self) {
        self.0.send_replace(None);
    }

    /// The present incarnation.
    pub fn get(&self) -> Option<ActorRef<M>> {
        self.0.borrow().clone()
    }

    /// Somebody is there, and is not about to end.
    pub fn is_live(&self) -> bool {
        let ends =
            |actor: &ActorRef<M>| matches!(actor.get_status(), ActorStatus::Stopping | ActorStatus::Stopped);
        self.0.borrow().as_ref().is_some_and(|actor| !ends(actor))
    }

    /// Sends a hint. It is lost when nobody is there: whoever comes next looks for itself.
    pub fn cast(&self, message: M) {
        if let Some(actor) = self.get() {
            // A dead actor gives the message back; its successor reads the truth from the store.
            let _ = actor.cast(message);
        }
    }

    /// Asks, and asks again when the actor dies before it has answered. `make` must build the same question each
    /// time, and answering it twice must do no harm.
    ///
    /// # Errors
    /// [`Gone`] when there was no answer within the limit.
    pub async fn call<T: Send + 'static>(
        &self,
        actor: &'static str,
        within: Duration,
        make: impl Fn(RpcReplyPort<T>) -> M,
    ) -> Result<T, Gone> {
        let deadline = Instant::now() + within;
        let gone = Gone { actor, within };
        let mut changes = self.0.subscribe();
        loop {
            let present = changes.borrow_and_update().clone();
            if let Some(present) = present {
                let left = deadline.saturating_duration_since(Instant::now());
                match present.call(&make, Some(left)).await {
                    Ok(CallResult::Success(answer)) => return Ok(answer),
                    Ok(CallResult::Timeout) => return Err(gone),
                    Ok(CallResult::SenderError) | Err(_) => {}
                }
            }
            if Instant::now() >= deadline {
                return Err(gone);
            }
            // Either a new incarnation is announced, or the same one is asked again in a moment.
            let pause = (Instant::now() + AGAIN).min(deadline);
            tokio::select! {
                _ = timeout_at(deadline, changes.changed()) => {}
                () = sleep_until(pause) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
