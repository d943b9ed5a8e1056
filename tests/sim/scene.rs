//! A project in a temporary folder, and the programs that run it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
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
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

/// A project in a temporary folder.
pub struct Place {
    _folder: tempfile::TempDir,
    pub paths: ProjectPaths,
    script: &'static str,
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

/// Remembers what it is shown.
#[derive(Debug)]
struct Memory(Arc<Mutex<Vec<Event>>>);

impl Show for Memory {
    fn show(&self, event: &Event, line: &str) {
        assert!(line.contains(event.body.name()), "{line}");
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event.clone());
    }
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
    /// A project that plays this script, with these settings.
    pub fn new(settings: &str, script: &'static str) -> Self {
        // In memory where that is possible: thousands of small files are made and removed.
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let folder = folder.unwrap();
        let paths = ProjectPaths::new(folder.path().canonicalize().unwrap());
        fs::create_dir_all(&paths.dot).unwrap();
        git2::Repository::init(&paths.root).unwrap();
        fs::write(&paths.config, settings).unwrap();
        let now = "2026-11-30T22:00:00Z".parse().unwrap();
        Place { _folder: folder, paths, script, now, programs: 0 }
    }

    /// Starts a program, in the present runtime. How it will have ended.
    pub fn start(&mut self, seed: u64) -> (Scene, oneshot::Receiver<Ended>) {
        self.programs += 1;
        let shown = Arc::default();
        let (shower, show) = Shower::start(Box::new(Memory(Arc::clone(&shown)))).unwrap();
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
        let script = Script::parse(Path::new("rehearsal.toml"), self.script).unwrap();
        let registry = Registry::load(&[]).unwrap();
        let ctx = ProjectCtx::new(ProjectParts {
            paths: self.paths.clone(),
            clock,
            seed: Some(seed),
            still: false,
            sources,
            files,
            loaded,
            state: opened.state,
            request: RunRequest::default(),
            env: BTreeMap::new(),
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
