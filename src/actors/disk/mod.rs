//! Disk: free bytes and inodes of every file system in use.
//!
//! A local file system is measured on the actor's turn: statvfs takes microseconds and reads nothing. Where a server
//! answers, or writing is to be tried, it is done on a blocking thread, one look per project at a time, so that a
//! server that hangs holds up only its own project.

#[cfg(test)]
mod tests;
mod watched;

use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use self::watched::{Registration, Watched};
use crate::messages::disk::DiskMsg;

pub use self::watched::Seen;

/// Between two looks while nobody has asked for any.
const IDLE: Duration = Duration::from_secs(2);

/// How long somebody who asked for a look waits for a server.
const PATIENCE: Duration = Duration::from_secs(1);

/// The actor.
pub struct DiskActor;

/// What it works with.
#[derive(Default)]
pub struct DiskState {
    watched: Vec<Watched>,
    last_id: u64,
    waiting: Vec<Waiting>,
    /// The timer for the next look.
    next: Option<AbortOnDropHandle<Result<(), ractor::MessagingErr<DiskMsg>>>>,
}

/// Somebody who asked for a look.
struct Waiting {
    reply: RpcReplyPort<()>,
    since: Instant,
    /// The projects that are not through.
    on: Vec<u64>,
}

// === impl DiskActor ===

impl Actor for DiskActor {
    type Msg = DiskMsg;
    type State = DiskState;
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<DiskMsg>, (): ()) -> Result<DiskState, ActorProcessingErr> {
        Ok(DiskState::default())
    }

    async fn post_start(
        &self,
        myself: ActorRef<DiskMsg>,
        state: &mut DiskState,
    ) -> Result<(), ActorProcessingErr> {
        state.tick(&myself);
        Ok(())
    }

    async fn handle(
        &self,
        myself: ActorRef<DiskMsg>,
        message: DiskMsg,
        state: &mut DiskState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            DiskMsg::Watch { paths, limits, tell } => {
                state.watch(Registration { paths, limits, tell });
                state.tick(&myself);
            }
            DiskMsg::Limits(limits) => {
                state.watched.iter_mut().for_each(|watched| watched.registration.limits = limits);
                state.tick(&myself);
            }
            DiskMsg::Look => state.tick(&myself),
            DiskMsg::LookNow(reply) => state.look_now(&myself, reply),
            DiskMsg::WriteFailed => {
                state.watched.iter_mut().for_each(Watched::write_failed);
                state.look(&myself);
            }
            DiskMsg::Looked(seen) => state.looked(&myself, *seen),
            DiskMsg::Overdue => {
                let now = Instant::now();
                state.answer(|waiting| now >= waiting.since + PATIENCE);
            }
            #[cfg(debug_assertions)]
            DiskMsg::Crash => panic!("asked to crash"),
        }
        Ok(())
    }
}

// === impl DiskState ===

impl DiskState {
    fn watch(&mut self, registration: Registration) {
        self.watched.retain(|watched| watched.registration.paths != registration.paths);
        self.last_id += 1;
        self.watched.push(Watched::new(self.last_id, registration));
    }

    /// Looks, and again after the shortest interval that is asked for now.
    fn tick(&mut self, myself: &ActorRef<DiskMsg>) {
        let now = Instant::now();
        self.watched.retain_mut(|watched| watched.is_wanted(now));
        self.look(myself);
        let interval = self.watched.iter().map(|watched| watched.registration.limits.interval).min();
        let next = myself.send_after(interval.unwrap_or(IDLE), || DiskMsg::Look);
        self.next = Some(AbortOnDropHandle::new(next));
    }

    fn look(&mut self, myself: &ActorRef<DiskMsg>) {
        self.watched.iter_mut().for_each(|watched| watched.look(myself, false));
    }

    fn look_now(&mut self, myself: &ActorRef<DiskMsg>, reply: RpcReplyPort<()>) {
        let since = Instant::now();
        self.watched.iter_mut().for_each(|watched| watched.look(myself, true));
        // A server that has not answered for so long is not waited for once more.
        let on: Vec<u64> = self
            .watched
            .iter()
            .filter(|watched| watched.away_since().is_some_and(|began| since < began + PATIENCE))
            .map(|watched| watched.id)
            .collect();
        if !on.is_empty() {
            myself.send_after(PATIENCE, || DiskMsg::Overdue);
        }
        self.waiting.push(Waiting { reply, since, on });
        self.answer(|waiting| waiting.on.is_empty());
    }

    fn looked(&mut self, myself: &ActorRef<DiskMsg>, seen: Seen) {
        let id = seen.id;
        if let Some(watched) = self.watched.iter_mut().find(|watched| watched.id == id) {
            watched.looked(myself, seen);
            if watched.away_since().is_some() {
                // It was asked for another look meanwhile, and whoever waits, waits for that one.
                return;
            }
        }
        self.waiting.iter_mut().for_each(|waiting| waiting.on.retain(|on| *on != id));
        self.answer(|waiting| waiting.on.is_empty());
    }

    fn answer(&mut self, due: impl Fn(&Waiting) -> bool) {
        for waiting in self.waiting.extract_if(.., |waiting| due(waiting)) {
            // Whoever asked may have stopped waiting.
            drop(waiting.reply.send(()));
        }
    }
}
