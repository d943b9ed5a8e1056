//! A project in a temporary folder, and the programs that run it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::thread::JoinHandle;

use jiff::Timestamp;
use longhaul::actors::context::{ProjectCtx, ProjectParts, RunRequest, Show};
use longhaul::actors::host::{Ended, HostActor, HostArgs};
use longhaul::actors::journal::Shower;
use longhaul::clock::Clock;
use longhaul::config::{ProjectPaths, Sources, load};
use longhaul::domain::event::Event;
use longhaul::domain::ids::MessageId;
use longhaul::intake::inbox;
use longhaul::providers::book::ProviderBook;
use longhaul::providers::registry::Registry;
use longhaul::providers::rehearsal::Script;
use longhaul::store::{Db, Durability, OpenOptions, StorePaths};
use ractor::Actor;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use crate::invariants::Invariants;

/// A provider with an account of its own that plays the same script.
const SECOND: &str = "output = \"rehearsal\"\n";

/// A project in a temporary folder.
pub struct Place {
    folder: TempDir,
    pub paths: ProjectPaths,
    script: String,
    /// Fed with all that its programs show.
    pub invariants: Arc<Mutex<Invariants>>,
    /// Nobody but who says so changes its files.
    still: bool,
    /// What its host keeps; none: it has no host.
    home: Option<PathBuf>,
    /// Wall time at which the next program starts.
    pub now: Timestamp,
    programs: u64,
}

/// One program that runs it, and what it showed.
pub struct Scene {
    pub ctx: Arc<ProjectCtx>,
    shown: Arc<Mutex<Vec<Event>>>,
    show: JoinHandle<()>,
}

/// Remembers what it is shown, and sees at once that something does not hold.
#[derive(Debug)]
struct Memory {
    shown: Arc<Mutex<Vec<Event>>>,
    invariants: Arc<Mutex<Invariants>>,
}

impl Show for Memory {
    fn show(&self, event: &Event, line: &str) {
        assert!(line.contains(event.body.name()), "{line}");
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).push(event.clone());
        // A second panic would only hide the first.
        if let Ok(mut invariants) = self.invariants.lock()
            && let Err(broken) = invariants.take(event)
        {
            panic!("{broken}");
        }
    }
}

/// In memory where that is possible: thousands of small files are made and removed.
fn memory() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

fn providers(paths: &ProjectPaths) -> PathBuf {
    paths.dot.join("providers")
}

/// A runtime whose clock moves only when there is nothing else to do.
pub fn simulated() -> Runtime {
    expect_panics();
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

/// Actors that are asked to crash do it without a word.
fn expect_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if panic.payload_as_str() != Some("asked to crash") {
                usual(panic);
            }
        }));
    });
}

impl Place {
    /// A git project that plays this script, with these settings.
    pub fn new(settings: &str, script: &str) -> Self {
        let place = Self::at(memory(), settings, script, false);
        git2::Repository::init(&place.paths.root).unwrap();
        place
    }

    /// A plain folder whose simulated time is worth weeks: see `ProjectParts::still`. Beside `rehearsal` it has
    /// `second`, which plays the same script on an account of its own.
    pub fn still(settings: &str, script: &str) -> Self {
        Self::at(memory(), settings, script, true)
    }

    /// The same project from the start: its path is in the journal.
    pub fn anew(self, settings: &str, script: &str) -> Self {
        fs::remove_dir_all(&self.paths.root).unwrap();
        Self::at(self.folder, settings, script, self.still)
    }

    fn at(folder: TempDir, settings: &str, script: &str, still: bool) -> Self {
        let root = folder.path().canonicalize().unwrap().join("project");
        fs::create_dir(&root).unwrap();
        let paths = ProjectPaths::new(root);
        fs::create_dir_all(providers(&paths)).unwrap();
        fs::write(providers(&paths).join("second.toml"), SECOND).unwrap();
        fs::write(&paths.config, settings).unwrap();
        let now = "2026-11-30T22:00:00Z".parse().unwrap();
        let (script, invariants) = (script.to_owned(), Arc::default());
        Place { folder, paths, script, invariants, still, home: None, now, programs: 0 }
    }

    /// The same on a host that keeps its state there.
    pub fn on_host(self, home: &Path) -> Self {
        Place { home: Some(home.to_owned()), ..self }
    }

    /// Starts a program, in the present runtime. How it will have ended.
    pub fn start(&mut self, seed: u64) -> (Scene, oneshot::Receiver<Ended>) {
        self.programs += 1;
        let shown = Arc::default();
        let memory = Memory { shown: Arc::clone(&shown), invariants: Arc::clone(&self.invariants) };
        let (shower, show) = Shower::start(Box::new(memory)).unwrap();
        let (ctx, db) = self.open(seed ^ (self.programs << 32), shower);
        let (ended, end) = oneshot::channel();
        let args = HostArgs { ctx: Arc::clone(&ctx), db, ended };
        tokio::spawn(async move { Actor::spawn(None, HostActor, args).await.unwrap() });
        (Scene { ctx, shown, show }, end)
    }

    fn open(&self, seed: u64, shower: Shower) -> (Arc<ProjectCtx>, Db) {
        let clock = Clock::simulated(self.now);
        let sources = Sources { project: Some(self.paths.config.clone()), ..Sources::default() };
        let files = sources.read().unwrap();
        let loaded = load(&sources).unwrap();
        let options = OpenOptions { durability: Durability::Process, fresh: false, now: self.now };
        let opened = Db::open(&StorePaths::new(&self.paths.root), options).unwrap();
        assert_eq!(opened.recovery, None);
        let script = Script::parse(Path::new("rehearsal.toml"), &self.script).unwrap();
        let registry = Registry::load(&[providers(&self.paths)]).unwrap();
        let ctx = ProjectCtx::new(ProjectParts {
            paths: self.paths.clone(),
            clock,
            seed: Some(seed),
            still: self.still,
            sources,
            files,
            loaded,
            state: opened.state,
            request: RunRequest::default(),
            env: self.home.iter().map(|home| ("LONGHAUL_HOME".into(), home.into())).collect(),
            providers: ProviderBook::new(registry, None, &Default::default(), Some(script)),
            keeper: None,
            lock: None,
            shower: Some(shower),
            found: Vec::new(),
        });
        (Arc::new(ctx), opened.db)
    }
}

impl Scene {
    /// Puts a message in the inbox, as `say` does.
    pub fn say(&self, text: &str) {
        inbox::put(&self.ctx.paths, MessageId(self.ctx.id()), text).unwrap();
    }

    /// Every event that was shown, after the end of the program.
    pub fn events(self) -> Vec<Event> {
        self.ctx.shower.as_ref().unwrap().finish();
        self.show.join().unwrap();
        std::mem::take(&mut *self.shown.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
