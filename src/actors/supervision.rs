//! How every supervisor of the tree restarts and stops its children: one shared piece.
//!
//! Modelled on OTP's supervisor (OTP Design Principles, "Supervisor Behaviour"): children start in listed order and
//! stop in reverse; each has a restart intensity of its own, so that single failures of many children do not add
//! up; restarts are delayed by a back-off. Where it differs: a restarted child reloads from the store, never from
//! its predecessor's state, and every restart is told with its cause.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use ractor::{ActorCell, ActorId, SpawnErr, SupervisionEvent};
use tokio::time::{Instant, timeout};

use crate::domain::backoff::{Backoff, Intensity, Restart, RestartLog};

/// A child that is starting.
pub type Starting = Pin<Box<dyn Future<Output = Result<ActorCell, SpawnErr>> + Send>>;

/// How to start a child under this supervisor.
pub type Start = Box<dyn Fn(ActorCell) -> Starting + Send + Sync>;

/// Who else restarts with a child that died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Nobody.
    OneForOne,
    /// Those listed after it: they depend on it.
    RestForOne,
}

/// A child as its supervisor describes it.
pub struct ChildSpec {
    /// For events and logs.
    pub name: &'static str,
    /// Starts it.
    pub start: Start,
    /// How long its orderly stop may take before it is killed.
    pub shutdown: Duration,
}

/// What a supervisor has to do after a child's end.
#[derive(Debug, PartialEq, Eq)]
pub enum Fallen {
    /// Nothing: not one of ours, or it was stopped on purpose.
    Nothing,
    /// Start this child (and, with rest-for-one, those after it) again after the delay.
    Restart {
        /// Its place in the list.
        child: usize,
        /// Back-off.
        after: Duration,
        /// What it died of.
        cause: String,
        /// Restarts within the window, this one included.
        restarts: u32,
    },
    /// It died too often: the failure is the supervisor's now.
    GiveUp {
        /// Its name.
        name: &'static str,
        /// What it died of.
        cause: String,
    },
}

struct Child {
    spec: ChildSpec,
    cell: Option<ActorCell>,
    restarts: RestartLog,
}

/// The children of one supervisor.
pub struct Children {
    strategy: Strategy,
    children: Vec<Child>,
    /// The zero of the restart logs' time.
    epoch: Instant,
    rng: fastrand::Rng,
    stopping: bool,
}

// === impl ChildSpec ===

impl ChildSpec {
    /// A child that may take `shutdown` to stop in order.
    pub fn new<F, Fut>(name: &'static str, shutdown: Duration, start: F) -> Self
    where
        F: Fn(ActorCell) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ActorCell, SpawnErr>> + Send + 'static,
    {
        ChildSpec { name, shutdown, start: Box::new(move |supervisor| Box::pin(start(supervisor))) }
    }
}

// === impl Children ===

impl Children {
    /// None started yet. `rng` jitters the back-off.
    pub fn new(
        strategy: Strategy,
        intensity: Intensity,
        backoff: Backoff,
        rng: fastrand::Rng,
        specs: Vec<ChildSpec>,
    ) -> Self {
        let child = |spec| Child { spec, cell: None, restarts: RestartLog::new(intensity, backoff) };
        Children {
            strategy,
            children: specs.into_iter().map(child).collect(),
            epoch: Instant::now(),
            rng,
            stopping: false,
        }
    }

    /// Starts all, in listed order.
    ///
    /// # Errors
    /// The first child that cannot start; those before it run.
    pub async fn start_all(&mut self, supervisor: &ActorCell) -> Result<(), SpawnErr> {
        for child in &mut self.children {
            child.cell = Some((child.spec.start)(supervisor.clone()).await?);
        }
        Ok(())
    }

    /// Judges an event about a child.
    pub fn fallen(&mut self, event: &SupervisionEvent) -> Fallen {
        let (id, cause) = match event {
            SupervisionEvent::ActorFailed(cell, error) => (cell.get_id(), error.to_string()),
            SupervisionEvent::ActorTerminated(cell, _, reason) => {
                (cell.get_id(), reason.clone().unwrap_or_else(|| "stopped".to_owned()))
            }
            _ => return Fallen::Nothing,
        };
        let Some(at) = self.position(id) else { return Fallen::Nothing };
        if let Some(child) = self.children.get_mut(at) {
            child.cell = None;
        }
        if self.stopping { Fallen::Nothing } else { self.count(at, cause) }
    }

    /// A child could not be started again.
    pub fn not_started(&mut self, child: usize, error: &SpawnErr) -> Fallen {
        self.count(child, format!("could not be started: {error}"))
    }

    /// Starts `child` again and, with rest-for-one, stops and starts those listed after it.
    ///
    /// # Errors
    /// The place of a child that could not start, and why.
    pub async fn restart(&mut self, child: usize, supervisor: &ActorCell) -> Result<(), (usize, SpawnErr)> {
        if self.stopping {
            return Ok(());
        }
        let last = match self.strategy {
            Strategy::OneForOne => child + 1,
            Strategy::RestForOne => self.children.len(),
        };
        for at in (child..last).rev() {
            self.stop(at, "a child it depends on is restarted").await;
        }
        for at in child..last {
            let Some(child) = self.children.get_mut(at) else { break };
            match (child.spec.start)(supervisor.clone()).await {
                Ok(cell) => child.cell = Some(cell),
                Err(error) => return Err((at, error)),
            }
        }
        Ok(())
    }

    /// Starts those of these names that are down, without their back-off: for a supervisor that is about to close.
    pub async fn start_missing(&mut self, names: &[&str], supervisor: &ActorCell) {
        let down = |child: &&mut Child| child.cell.is_none() && names.contains(&child.spec.name);
        for child in self.children.iter_mut().filter(down) {
            match (child.spec.start)(supervisor.clone()).await {
                Ok(cell) => child.cell = Some(cell),
                Err(error) => tracing::warn!(%error, child = child.spec.name, "cannot be started at the end"),
            }
        }
    }

    /// Stops all in reverse order, each within its time.
    pub async fn stop_all(&mut self, why: &str) {
        self.stopping = true;
        for at in (0..self.children.len()).rev() {
            self.stop(at, why).await;
        }
    }

    async fn stop(&mut self, at: usize, why: &str) {
        let Some(child) = self.children.get_mut(at) else { return };
        let Some(cell) = child.cell.take() else { return };
        let limit = child.spec.shutdown;
        let stopped = cell.stop_and_wait(Some(why.to_owned()), Some(limit)).await;
        if stopped.is_err() {
            // A handler that does not come back: its await is cut, what it owns is dropped.
            cell.kill();
            let _ = timeout(limit, cell.wait(None)).await;
        }
    }

    fn count(&mut self, at: usize, cause: String) -> Fallen {
        let now = self.epoch.elapsed();
        let Some(child) = self.children.get_mut(at) else { return Fallen::Nothing };
        match child.restarts.record(now, &mut self.rng) {
            Restart::Allowed { delay } => {
                let restarts = u32::try_from(child.restarts.recent()).unwrap_or(u32::MAX);
                Fallen::Restart { child: at, after: delay, cause, restarts }
            }
            Restart::Exhausted => Fallen::GiveUp { name: child.spec.name, cause },
        }
    }

    /// The name of the child at this place.
    pub fn name(&self, child: usize) -> &'static str {
        self.children.get(child).map_or("", |c| c.spec.name)
    }

    fn position(&self, id: ActorId) -> Option<usize> {
        self.children.iter().position(|c| c.cell.as_ref().is_some_and(|cell| cell.get_id() == id))
    }
}

#[cfg(test)]
mod tests;
