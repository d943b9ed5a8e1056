//! A project in a temporary folder, and the actors that run it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, Once, PoisonError};

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

/// A project, and what was shown of its run.
pub struct Scene {
    _folder: tempfile::TempDir,
    pub ctx: Arc<ProjectCtx>,
    shown: Arc<Mutex<Vec<Event>>>,
    show: Option<std::thread::JoinHandle<()>>,
    ended: Option<oneshot::Receiver<Ended>>,
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

impl Scene {
    /// A project that plays this script, with these settings.
    pub fn new(settings: &str, script: &str, seed: u64) -> Self {
        // In memory where that is possible: thousands of small files are made and removed.
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let folder = folder.unwrap();
        let paths = ProjectPaths::new(folder.path().canonicalize().unwrap());
        fs::create_dir_all(&paths.dot).unwrap();
        git2::Repository::init(&paths.root).unwrap();
        fs::write(&paths.config, settings).unwrap();
        let shown = Arc::default();
        let (shower, show) = Shower::start(Box::new(Memory(Arc::clone(&shown)))).unwrap();
        let clock = Clock::simulated("2026-11-30T22:00:00Z".parse().unwrap());
        let (ctx, db) = open(paths, script, seed, clock, shower);
        let (ended, end) = oneshot::channel();
        let args = HostArgs { ctx: Arc::clone(&ctx), db, ended };
        tokio::spawn(async move { Actor::spawn(None, HostActor, args).await.unwrap() });
        Scene { _folder: folder, ctx, shown, show: Some(show), ended: Some(end) }
    }

    pub fn root(&self) -> &Path {
        &self.ctx.paths.root
    }

    /// Puts a message in the inbox, as `say` does.
    pub fn say(&self, text: &str) -> MessageId {
        let id = MessageId(self.ctx.id());
        inbox::put(&self.ctx.paths, id, text).unwrap();
        id
    }

    /// How the run will have ended.
    pub fn end(&mut self) -> oneshot::Receiver<Ended> {
        self.ended.take().unwrap()
    }

    /// Every event that was shown, after the end of the run.
    pub fn shown(&mut self) -> Vec<Event> {
        if let Some(show) = self.show.take() {
            self.ctx.shower.as_ref().unwrap().finish();
            show.join().unwrap();
        }
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn open(paths: ProjectPaths, script: &str, seed: u64, clock: Clock, shower: Shower) -> (Arc<ProjectCtx>, Db) {
    let sources = Sources { project: Some(paths.config.clone()), ..Sources::default() };
    let files = sources.read().unwrap();
    let loaded = load(&sources).unwrap();
    let options = OpenOptions { durability: Durability::Process, fresh: false, now: clock.now() };
    let opened = Db::open(&StorePaths::new(&paths.root), options).unwrap();
    let script = Script::parse(Path::new("rehearsal.toml"), script).unwrap();
    let ctx = ProjectCtx::new(ProjectParts {
        paths,
        clock,
        seed: Some(seed),
        sources,
        files,
        loaded,
        state: opened.state,
        request: RunRequest::default(),
        env: BTreeMap::new(),
        providers: ProviderBook::new(Registry::load(&[]).unwrap(), None, &Default::default(), Some(script)),
        keeper: None,
        lock: None,
        shower: Some(shower),
        found: Vec::new(),
    });
    (Arc::new(ctx), opened.db)
}
