//! What the actors of one project share. Nothing in it is the truth: that is in the store.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Semaphore, watch};

use super::journal::Shower;
use super::prompting::SpecCache;
use crate::clock::Clock;
use crate::config::{
    Config, ConfigError, Environment, Files, Loaded, Origin, Override, ProjectPaths, Settings, Sources,
};
use crate::domain::backoff::Intensity;
use crate::domain::event::{Body, Draft};
use crate::domain::ids::{EventId, IdSource};
use crate::domain::session::Input;
use crate::domain::spec::SpecWarning;
use crate::domain::state::State;
use crate::domain::status::{Facts, WindowStatus};
use crate::intake::file_system::{FileSystem, file_system};
use crate::intake::signal_files::resume_path;
use crate::intake::stamp::Stamp;
use crate::messages::Slot;
use crate::messages::accounts::AccountsMsg;
use crate::messages::disk::{DiskLimits, DiskMsg};
use crate::messages::gates::GatesMsg;
use crate::messages::journal::JournalMsg;
use crate::messages::notifier::NotifierMsg;
use crate::messages::repo::RepoMsg;
use crate::messages::session::{CommitFailed, SessionMsg};
use crate::messages::signals::SignalsMsg;
use crate::messages::store::{Committed, StoreMsg};
use crate::messages::watcher::{WatchedFolder, WatcherMsg};
use crate::process::Keeper;
use crate::providers::book::ProviderBook;
use crate::store::{Ballast, Durability, Journal, JournalLimits, OpenOptions, ProjectLock, StorePaths};

/// How long a commit may take before the session gives up on the store. A slow disk takes tens of milliseconds; a
/// store that is restarted with its back-off, a second.
const COMMIT_LIMIT: Duration = Duration::from_secs(30);

/// Between two looks at a project that is still.
const STILL: Duration = Duration::from_secs(3600);

/// Where the actors find each other.
#[derive(Debug, Default, Clone)]
pub struct Slots {
    /// Accounts, of the host.
    pub accounts: Slot<AccountsMsg>,
    /// Disk, of the host.
    pub disk: Slot<DiskMsg>,
    /// Notifier, of the host.
    pub notifier: Slot<NotifierMsg>,
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
    /// Settings of the command line, with those that a session that goes on had.
    pub overrides: Vec<crate::domain::state::Override>,
}

/// Shared by the actors of one project.
#[derive(Debug)]
pub struct ProjectCtx {
    /// The project's files.
    pub paths: ProjectPaths,
    /// The same as the store names them.
    pub store_paths: StorePaths,
    /// The clock.
    pub clock: Clock,
    /// See [`ProjectParts::still`].
    still: bool,
    /// Makes ids; shared, so that they ascend over all actors and follow one seed.
    pub ids: Mutex<IdSource>,
    /// Settings in force.
    pub config: watch::Sender<Arc<Config>>,
    /// Where settings come from.
    pub sources: Sources,
    /// What `config` was made from.
    pub in_force: Mutex<InForce>,
    /// Changes of settings that no commit has taken in yet: a restarted Session takes them in anew.
    pub unsaved: Mutex<Vec<Input>>,
    /// State as last committed: what readers see.
    pub state: watch::Sender<Arc<State>>,
    /// Where the actors find each other.
    pub slots: Slots,
    /// What is asked for.
    pub request: RunRequest,
    /// The supervisor's environment as it was at start.
    pub env: BTreeMap<OsString, OsString>,
    /// Where host-wide state lives; none without a home.
    pub home: Option<PathBuf>,
    /// The providers.
    pub providers: ProviderBook,
    /// Starts processes; none in simulations.
    pub keeper: Option<Keeper>,
    /// The session's lock; none in simulations.
    pub lock: Mutex<Option<ProjectLock>>,
    /// Space that is kept for the last commits on a full disk.
    pub ballast: Ballast,
    /// One call at a time works in the project folder: whoever has the permit. It is given back when nothing of the
    /// call is left, whatever became of the actor that owned it.
    pub folder: Arc<Semaphore>,
    /// Shows events while they happen.
    pub shower: Option<Shower>,
    /// Whose commits count. Held during each commit, so that commits, what readers see and what is shown are in the
    /// same order, whatever became of the actor that began them.
    pub writers: Mutex<Writers>,
    /// The journal's files. One job writes at a time: that of a Journal that died is waited for.
    pub journal: Mutex<Journal>,
    /// One operation on the repository at a time: that of a Repo that died is waited for.
    pub repo: Mutex<()>,
    /// There was a Repo before: one that starts now may have to make up for it.
    pub repo_started: AtomicBool,
    /// Things found before the session began, for its first commit.
    pub found: Mutex<Vec<Body>>,
    /// How often this program was told to end (Ctrl-C, TERM, HUP): a restarted Signals must not take that back.
    pub interrupts: AtomicU32,
    /// The spec as last read.
    pub spec: Mutex<SpecCache>,
    /// See [`ProjectCtx::is_local`].
    pub local: OnceLock<bool>,
    /// The settings files as last read.
    pub settings_read: Mutex<SettingsStamps>,
    /// What a first look at the project shows.
    pub facts: Mutex<Vec<String>>,
    /// What the ledger had last of the windows beyond the session.
    pub windows: Mutex<Vec<WindowStatus>>,
    /// It was said that git is not used.
    pub git_said: AtomicBool,
    /// The last `spec_truncated` that was said: once for the same sizes.
    pub truncation_said: Mutex<Option<SpecWarning>>,
}

/// How the settings files stand: the user's and the project's.
pub type SettingsStamps = [Option<Stamp>; 2];

/// What a project is made from.
#[derive(Debug)]
pub struct ProjectParts {
    /// The project's files.
    pub paths: ProjectPaths,
    /// The clock.
    pub clock: Clock,
    /// Seeds ids and jitter; none: from the host's entropy.
    pub seed: Option<u64>,
    /// Nobody changes the project's files without a hint to Signals: they are not watched, and looks that only make
    /// up for lost notices are an hour apart. For simulations of weeks: change notices come from a thread that
    /// knows nothing of simulated time, and a look every two seconds makes a million of them.
    pub still: bool,
    /// Where settings come from.
    pub sources: Sources,
    /// The settings files as they were read.
    pub files: Files,
    /// The settings made from them.
    pub loaded: Loaded,
    /// State as the open database has it.
    pub state: Arc<State>,
    /// What is asked for.
    pub request: RunRequest,
    /// The supervisor's environment.
    pub env: BTreeMap<OsString, OsString>,
    /// The providers.
    pub providers: ProviderBook,
    /// Starts processes; none in simulations.
    pub keeper: Option<Keeper>,
    /// The session's lock; none in simulations.
    pub lock: Option<ProjectLock>,
    /// Shows events while they happen.
    pub shower: Option<Shower>,
    /// Things found on the way, for the session's first commit.
    pub found: Vec<Body>,
}

/// What `config` was made from.
#[derive(Debug, Clone)]
pub struct InForce {
    /// Settings of the command line that hold.
    pub overrides: Vec<Override>,
    /// What the files held.
    pub files: Files,
    /// Each setting with where it came from.
    pub settings: Settings,
}

/// Whose commits count.
#[derive(Debug, Default)]
pub struct Writers {
    /// The present incarnation of Session. What an earlier one still had on its way is refused: its successor has
    /// decided anew from the state without it.
    pub session: u64,
    /// A Session of this program has committed: one that starts now is a restarted one.
    pub begun: bool,
}

/// Shows committed events as they happen: JSON lines on stdout, or words for a person.
pub trait Show: Send + Sync + std::fmt::Debug {
    /// One event, in order, once.
    fn show(&self, event: &crate::domain::event::Event, line: &str);
}

// === impl ProjectCtx ===

impl ProjectCtx {
    /// Nobody is there yet.
    pub fn new(parts: ProjectParts) -> Self {
        let store_paths = StorePaths::new(&parts.paths.root);
        let journal = &parts.loaded.config.journal;
        let limits = JournalLimits { max_file: journal.max_file, max_total: journal.max_total };
        ProjectCtx {
            journal: Mutex::new(Journal::new(store_paths.clone(), limits)),
            ballast: Ballast::new(&store_paths),
            paths: parts.paths,
            store_paths,
            clock: parts.clock,
            still: parts.still,
            ids: Mutex::new(IdSource::new(parts.seed)),
            config: watch::Sender::new(Arc::new(parts.loaded.config)),
            sources: parts.sources.clone(),
            in_force: Mutex::new(InForce {
                overrides: parts.sources.overrides.clone(),
                files: parts.files,
                settings: parts.loaded.settings,
            }),
            unsaved: Mutex::default(),
            state: watch::Sender::new(parts.state),
            slots: Slots::default(),
            request: parts.request,
            home: parts.env.clone().into_iter().collect::<Environment>().longhaul_home(),
            env: parts.env,
            providers: parts.providers,
            keeper: parts.keeper,
            lock: Mutex::new(parts.lock),
            folder: Arc::new(Semaphore::new(1)),
            shower: parts.shower,
            writers: Mutex::default(),
            repo: Mutex::default(),
            repo_started: AtomicBool::new(false),
            found: Mutex::new(parts.found),
            interrupts: AtomicU32::new(0),
            spec: Mutex::default(),
            local: OnceLock::new(),
            settings_read: Mutex::default(),
            facts: Mutex::default(),
            windows: Mutex::default(),
            git_said: AtomicBool::new(false),
            truncation_said: Mutex::default(),
        }
    }

    /// A new Session takes over: its incarnation, and whether there was one before it. What an earlier one committed
    /// has been committed, and nothing more of it will be. Waits for a commit under way; blocking.
    pub fn take_over(&self) -> (u64, bool) {
        let mut writers = self.writers.lock().unwrap_or_else(PoisonError::into_inner);
        writers.session += 1;
        (writers.session, writers.begun)
    }

    /// These are committed: what they say of settings need not be taken in again.
    pub fn saved(&self, drafts: &[Draft]) {
        let mut unsaved = self.unsaved.lock().unwrap_or_else(PoisonError::into_inner);
        if unsaved.is_empty() {
            return;
        }
        for body in drafts.iter().map(|draft| &draft.body) {
            if let Body::ProviderSwitched { to, .. } = body {
                unsaved.retain(|input| !matches!(input, Input::Switch(asked) if asked.to == *to));
            }
            let change = unsaved.iter_mut().find_map(|input| match input {
                Input::Settings { changes, .. } => Some((changes.iter().position(|c| c == body)?, changes)),
                _ => None,
            });
            if let Some((at, changes)) = change {
                changes.remove(at);
            }
        }
        unsaved.retain(|input| !matches!(input, Input::Settings { changes, .. } if changes.is_empty()));
    }

    /// The program is told to end (Ctrl-C, TERM, HUP). Counted here, so that it reaches a Signals that is being
    /// restarted, too.
    pub fn interrupt(&self) {
        self.interrupts.fetch_add(1, Ordering::Relaxed);
        self.slots.signals.cast(SignalsMsg::Interrupt);
    }

    /// How Store opens its database.
    pub fn open_options(&self) -> OpenOptions {
        let durability = match self.config().durability {
            crate::config::Durability::Power => Durability::Power,
            crate::config::Durability::Process => Durability::Process,
        };
        OpenOptions { durability, fresh: false, now: self.now() }
    }

    /// What Disk is to look at, for this project.
    pub fn disk_watch(&self) -> DiskMsg {
        let mut paths = vec![self.paths.root.clone(), self.paths.dot.clone()];
        let tmp = self.env.get(OsStr::new("TMPDIR")).map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
        paths.push(tmp);
        DiskMsg::Watch { paths, limits: self.disk_limits(), tell: self.slots.session.clone() }
    }

    /// When a file system counts as full.
    pub fn disk_limits(&self) -> DiskLimits {
        let disk = &self.config().disk;
        DiskLimits {
            min_free: disk.min_free,
            min_inodes: disk.min_inodes,
            resume_factor: disk.resume_factor,
            interval: disk.interval,
        }
    }

    /// The project's files are watched; see [`ProjectParts::still`].
    pub fn is_watched(&self) -> bool {
        !self.still
    }

    /// How often to look for what nobody tells: `usual`, but for a project that is still.
    pub fn unasked(&self, usual: Duration) -> Duration {
        if self.still { STILL } else { usual }
    }

    /// What Watcher is to watch, for this project.
    pub fn folder_watch(&self) -> WatcherMsg {
        let paths = &self.paths;
        let name = |path: &Path| path.file_name().map(OsStr::to_owned);
        let ours = [&paths.stop, &paths.pause, &paths.human_input, &paths.inbox, &paths.config];
        let mut names: Vec<OsString> = ours.iter().filter_map(|path| name(path)).collect();
        names.extend(name(&resume_path(paths)));
        let mut folders = vec![
            WatchedFolder { path: paths.dot.clone(), names: Some(names) },
            WatchedFolder { path: paths.inbox.clone(), names: None },
        ];
        let user = self.sources.user.as_ref().and_then(|file| file.parent().zip(name(file)));
        folders.extend(
            user.map(|(folder, file)| WatchedFolder { path: folder.to_owned(), names: Some(vec![file]) }),
        );
        WatcherMsg::Watch { folders, tell: self.slots.signals.clone() }
    }

    /// What `status.json` says beside the state.
    pub fn status_facts(&self) -> Facts {
        Facts {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            project: self.paths.root.display().to_string(),
            pid: Some(std::process::id()),
            problem: None,
            disk: Vec::new(),
            min_free_bytes: self.config().disk.min_free,
            windows: self.windows.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// The environment that a provider's agents get: ours, without our own settings, with what the settings say.
    pub fn provider_env(&self, config: &Config, provider: &str) -> BTreeMap<OsString, OsString> {
        let mut env = self.env.clone();
        let named = |names: &[String], key: &OsStr| names.iter().any(|name| OsStr::new(name) == key);
        env.retain(|key, _| {
            let ours = key.as_encoded_bytes().starts_with(b"LONGHAUL_") && key != "LONGHAUL_HOME";
            (!ours || named(&config.agent.env_keep, key)) && !named(&config.agent.env_drop, key)
        });
        if let Some(own) = config.providers.get(provider) {
            env.extend(own.env.iter().map(|(key, value)| (OsString::from(key), OsString::from(value))));
        }
        env
    }

    /// A time limit: a person's word, else the provider's own, else the built-in default.
    pub fn limit(&self, key: &str, set: Option<Duration>, provider: Option<Duration>) -> Option<Duration> {
        let in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        let built_in =
            in_force.settings.get(key).is_none_or(|setting| matches!(setting.origin, Origin::Default));
        if built_in { provider.or(set) } else { set }
    }

    /// The project is on a file system of this host: a look at a file does not wait for others.
    pub fn is_local(&self) -> bool {
        *self.local.get_or_init(|| matches!(file_system(&self.paths.root), Ok(FileSystem::Local)))
    }

    /// The settings files as they stand now: the user's and the project's.
    pub fn settings_stamps(&self) -> SettingsStamps {
        [&self.sources.user, &self.sources.project].map(|file| file.as_deref().and_then(Stamp::of_path))
    }

    /// Reads the settings files. Blocks.
    ///
    /// # Errors
    /// One of them cannot be read.
    pub fn read_settings(&self) -> Result<Files, ConfigError> {
        // Before they are read: what is written meanwhile is read again.
        *self.settings_read.lock().unwrap_or_else(PoisonError::into_inner) = self.settings_stamps();
        self.sources.read()
    }

    /// The settings files are others than those that were last read. Blocks.
    pub fn settings_changed(&self) -> bool {
        self.settings_stamps() != *self.settings_read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a first look at the project shows.
    pub fn facts(&self) -> Vec<String> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The same, newly seen.
    pub fn set_facts(&self, facts: Vec<String>) {
        *self.facts.lock().unwrap_or_else(PoisonError::into_inner) = facts;
    }

    /// Whether this is news.
    pub fn is_new_truncation(&self, truncated: &SpecWarning) -> bool {
        let mut said = self.truncation_said.lock().unwrap_or_else(PoisonError::into_inner);
        said.replace(truncated.clone()).as_ref() != Some(truncated)
    }

    /// How often a child may be restarted.
    pub fn intensity(&self) -> Intensity {
        let supervisor = &self.config().supervisor;
        Intensity { max: supervisor.intensity, within: supervisor.window }
    }

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
        self.commit_as(None, drafts).await
    }

    /// The same for this incarnation of Session; see [`Writers`].
    ///
    /// # Errors
    /// The store's refusal, or its silence.
    pub async fn commit_as(
        &self,
        session: Option<u64>,
        drafts: Vec<Draft>,
    ) -> Result<Committed, CommitFailed> {
        let drafts: Arc<[Draft]> = drafts.into();
        let make = |reply| StoreMsg::Commit { drafts: drafts.clone(), session, reply };
        match self.slots.store.call("the store", COMMIT_LIMIT, make).await {
            Ok(answer) => answer.map_err(CommitFailed::Store),
            Err(gone) => Err(CommitFailed::Gone(gone)),
        }
    }
}
