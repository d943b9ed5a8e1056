//! What the actors of one project share. Nothing in it is the truth: that is in the store.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Semaphore, watch};

use crate::clock::Clock;
use crate::config::{Config, ProjectPaths, Sources};
use crate::domain::event::{Body, Draft};
use crate::domain::ids::{EventId, IdSource};
use crate::domain::state::State;
use crate::messages::accounts::AccountsMsg;
use crate::messages::disk::DiskMsg;
use crate::messages::gates::GatesMsg;
use crate::messages::journal::JournalMsg;
use crate::messages::repo::RepoMsg;
use crate::messages::session::{CommitFailed, SessionMsg};
use crate::messages::signals::SignalsMsg;
use crate::messages::store::{Committed, StoreMsg};
use crate::messages::watcher::WatcherMsg;
use crate::messages::Slot;
use crate::process::Keeper;

/// How long a commit may take before the session gives up on the store. A slow disk takes tens of milliseconds; a
/// store that is restarted with its back-off, a second.
const COMMIT_LIMIT: Duration = Duration::from_secs(30);

/// Where the actors find each other.
#[derive(Debug, Default, Clone)]
pub struct Slots {
    /// Accounts, of the host.
    pub accounts: Slot<AccountsMsg>,
    /// Disk, of the host.
    pub disk: Slot<DiskMsg>,
    /// Watcher, of the host.
    pub watcher: Slot<WatcherMsg>,
    /// Store.
    pub store: Slot<StoreMsg>,
    /// Journal.
    pub journal: Slot<JournalMsg>,
    /// Signals.
    pub signals: Slot<SignalsMsg>,
    /// Repo.
    pub repo: Slot<RepoMsg>,
    /// Gates.
    pub gates: Slot<GatesMsg>,
    /// Session.
    pub session: Slot<SessionMsg>,
}

/// What is asked for on the command line, beside settings.
#[derive(Debug, Clone, Default)]
pub struct RunRequest {
    /// The spec's path as given, made absolute.
    pub spec: Option<PathBuf>,
    /// `--agent`, split into words.
    pub agent: Option<Vec<String>>,
    /// A new session even if the last one could go on.
    pub fresh: bool,
}

/// Shared by the actors of one project.
#[derive(Debug)]
pub struct ProjectCtx {
    /// The project's files.
    pub paths: ProjectPaths,
    /// The clock.
    pub clock: Clock,
    /// Makes ids; shared, so that they ascend over all actors and follow one seed.
    pub ids: Mutex<IdSource>,
    /// Settings in force.
    pub config: watch::Sender<Arc<Config>>,
    /// Where settings come from.
    pub sources: Sources,
    /// State as last committed: what readers see.
    pub state: watch::Sender<Arc<State>>,
    /// Where the actors find each other.
    pub slots: Slots,
    /// What is asked for.
    pub request: RunRequest,
    /// The supervisor's environment as it was at start.
    pub env: BTreeMap<OsString, OsString>,
    /// Starts processes; none in simulations.
    pub keeper: Option<Keeper>,
    /// One call at a time works in the project folder: whoever has the permit. It is given back when nothing of the
    /// call is left, whatever became of the actor that owned it.
    pub folder: Arc<Semaphore>,
    /// The last event that was shown on stdout, so that a restarted Journal neither skips nor repeats one.
    pub shown: AtomicU64,
    /// How committed events are shown while they happen.
    pub show: Option<Box<dyn Show>>,
    /// Things found before the session began, for its first commit.
    pub found: Mutex<Vec<Body>>,
    /// How often this program was told to end (Ctrl-C, TERM, HUP): a restarted Signals must not take that back.
    pub interrupts: AtomicU32,
}

/// Shows committed events as they happen: JSON lines on stdout, or words for a person.
pub trait Show: Send + Sync + std::fmt::Debug {
    /// One event, in order, once.
    fn show(&self, event: &crate::domain::event::Event, line: &str);
}

// === impl ProjectCtx ===

impl ProjectCtx {
    /// Wall-clock time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// State as last committed.
    pub fn state(&self) -> Arc<State> {
        self.state.borrow().clone()
    }

    /// Settings in force.
    pub fn config(&self) -> Arc<Config> {
        self.config.borrow().clone()
    }

    /// A new id.
    pub fn id(&self) -> ulid::Ulid {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).next(self.now())
    }

    /// A generator whose draws follow the project's seed.
    pub fn rng(&self) -> fastrand::Rng {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).rng().fork()
    }

    /// An event of the present session, about no lane in particular.
    pub fn draft(&self, body: Body) -> Draft {
        let state = self.state.borrow();
        let session = state.session.as_ref();
        Draft {
            id: EventId(self.id()),
            time: self.now(),
            session: session.map(|s| s.id),
            lane: None,
            iteration: session.map(|s| s.iteration).filter(|n| *n > 0),
            attempt: None,
            provider: None,
            body,
        }
    }

    /// Commits, through restarts of the store: the same batch is never written twice.
    ///
    /// # Errors
    /// The store's refusal, or its silence.
    pub async fn commit(&self, drafts: Vec<Draft>) -> Result<Committed, CommitFailed> {
        let drafts: Arc<[Draft]> = drafts.into();
        let make = |reply| StoreMsg::Commit { drafts: drafts.clone(), reply };
        match self.slots.store.call("the store", COMMIT_LIMIT, make).await {
            Ok(answer) => answer.map_err(CommitFailed::Store),
            Err(gone) => Err(CommitFailed::Gone(gone)),
        }
    }
}
