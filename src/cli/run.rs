//! `run`: one supervised session, from the lock to the exit code.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use ractor::Actor;
use rustix::fs::{FlockOperation, flock};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use super::args::RunArgs;
use super::error::{CliError, ErrorKind, ExitCode};
use super::output::Output;
use super::render::{JsonLines, Words};
use crate::actors::context::{ProjectCtx, ProjectParts, RunRequest, Show};
use crate::actors::host::{Ended, HostActor, HostArgs};
use crate::actors::journal::Shower;
use crate::clock::Clock;
use crate::config::{self, Environment, Loaded, Lookup, Override, ProjectPaths, Sources};
use crate::domain::event::{Body, Draft};
use crate::domain::ids::{EventId, IdSource};
use crate::domain::state::{Phase, Session};
use crate::intake::spec_file::SpecFile;
use crate::process::{self, Keeper, Targets};
use crate::providers::book::{ProviderBook, Unusable};
use crate::providers::registry::Registry;
use crate::providers::rehearsal::Script;
use crate::providers::resolve::split_command;
use crate::store::{
    Committed, Db, Durability, Holder, LockError, OpenOptions, ProjectLock, StoreError, StorePaths,
    sweep_temp,
};

/// How long a new session waits for the end of a dead one's calls.
const CALLS_END: Duration = Duration::from_secs(2);

/// How long the end of the run waits for whoever reads stdout.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// After this long what only starts a session has run, and its code need not stay in memory.
const STARTED: Duration = Duration::from_millis(200);

/// Everything that has been looked at before a session exists.
struct Ready {
    paths: ProjectPaths,
    lock: ProjectLock,
    calls: Keeper,
    db: Db,
    state: Arc<crate::domain::state::State>,
    loaded: Loaded,
    files: config::Files,
    sources: Sources,
    providers: ProviderBook,
    request: RunRequest,
    found: Vec<Body>,
    /// What has been committed on the way, to be shown first.
    told: Option<Committed>,
}

/// Runs a session.
///
/// # Errors
/// What kept it from starting, with the exit code that belongs to it.
pub fn run(
    args: &RunArgs,
    project: Option<&Path>,
    environment: &Environment,
    output: &mut Output,
) -> Result<ExitCode, CliError> {
    process::return_memory();
    let clock = Clock::System;
    let runtime = Builder::new_current_thread()
        .enable_all()
        .thread_keep_alive(Duration::from_secs(30))
        .build()
        .map_err(|error| CliError::failed_to(format!("start the runtime: {error}")))?;
    let ready = runtime.block_on(prepare(args, project, environment, clock, output))?;
    let show: Box<dyn Show> =
        if args.json { Box::new(JsonLines::new(output)) } else { Box::new(Words::new(output)) };
    let (shower, shown) =
        Shower::start(show).map_err(|error| CliError::failed_to(format!("start a thread: {error}")))?;
    if let Some(told) = &ready.told {
        shower.show(told.clone());
    }
    let (ctx, db) = context(ready, environment, clock, shower);
    let ended = runtime.block_on(supervise(ctx.clone(), db));
    if let Some(shower) = &ctx.shower {
        shower.finish();
    }
    wait_for(shown);
    // Blocking work that still runs has nothing to tell any more.
    runtime.shutdown_timeout(Duration::from_millis(100));
    match ended {
        Ended::Code(code) => Ok(ExitCode::from_session(code)),
        Ended::GaveUp(why) => Err(CliError::new(ErrorKind::Failed, format!("the supervisor gave up: {why}"))
            .hinted("`longhaul run` goes on from the last saved state")
            .hinted("`longhaul doctor` looks for what is wrong with the host")),
    }
}

/// Looks at everything in the order in which it may be refused: lock (4), settings (2), providers (6).
async fn prepare(
    args: &RunArgs,
    project: Option<&Path>,
    environment: &Environment,
    clock: Clock,
    output: &mut Output,
) -> Result<Ready, CliError> {
    let paths = find_project(project, environment)?;
    // Beside all the rest, since it takes as long.
    let registry = {
        let folders = provider_folders(&paths, environment);
        tokio::task::spawn_blocking(move || Registry::load(&folders))
    };
    let store_paths = StorePaths::new(&paths.root);
    let lock = acquire(&store_paths, clock)?;
    let call_lock = calls_of_the_dead(&paths).await?;
    let calls = Keeper::start(Some(&call_lock)).map_err(CliError::failed_to)?;
    drop(call_lock);
    if args.init_git {
        let variables = environment.iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
        crate::git::init(&paths.root, crate::git::Environment::of(variables))
            .map_err(|error| CliError::failed_to(format!("make a git repository: {error}")))?;
    }
    let typed = args.overrides();
    let sources = Sources::new(environment, Some(&paths), typed.clone());
    let files = sources.read().map_err(CliError::from)?;
    let first = config::resolve(&sources, &files).map_err(CliError::from)?;
    let options = OpenOptions { durability: durability(&first), fresh: args.fresh, now: clock.now() };
    let opened = Db::open(&store_paths, options).map_err(store_error)?;
    let (mut db, mut state, mut told) = (opened.db, opened.state, None);
    sweep_files(&paths, clock);
    let mut found: Vec<Body> = Vec::new();
    let mut noticed = opened.recovery.as_ref().map_or_else(Vec::new, |recovery| recovery.events().to_vec());
    noticed.extend(sweep(state.session.as_ref(), &paths));
    if !noticed.is_empty() {
        // Told at once: whatever keeps the session from starting, this has happened.
        let committed = db.commit(drafts(noticed, &state, clock)).map_err(store_error)?;
        state = committed.state.clone();
        told = Some(committed);
    }
    let goes_on = state.session.as_ref().filter(|session| !args.fresh && !session.ended());
    let overrides = all_overrides(goes_on, typed);
    let (sources, loaded) = if overrides == sources.overrides {
        (sources, first)
    } else {
        let sources = Sources::new(environment, Some(&paths), overrides.clone());
        let loaded = config::resolve(&sources, &files).map_err(CliError::from)?;
        (sources, loaded)
    };
    let agent = agent(args, goes_on)?;
    let registry = registry
        .await
        .map_err(CliError::failed_to)?
        .map_err(|error| CliError::new(ErrorKind::Config, error.to_string()))?;
    let providers = providers(registry, &loaded, &paths, agent.as_deref())?;
    found.extend(preflight(&loaded, &providers, &paths, environment, agent.is_some(), output)?);
    let spec = spec(args, goes_on, &paths)?;
    let request = RunRequest {
        spec,
        agent,
        fresh: args.fresh,
        overrides: overrides.into_iter().map(crate::actors::survey::stored).collect(),
    };
    Ok(Ready {
        paths,
        lock,
        calls,
        db,
        state: state.clone(),
        loaded,
        files,
        sources,
        providers,
        request,
        found,
        told,
    })
}

/// Temporary files of ours that a killed process left; young ones may be in use.
fn sweep_files(paths: &ProjectPaths, clock: Clock) {
    for folder in [&paths.dot, &paths.signals, &paths.inbox] {
        // A folder that is not there has nothing to be swept.
        let _ = sweep_temp(folder, clock.now());
    }
}

fn find_project(project: Option<&Path>, environment: &Environment) -> Result<ProjectPaths, CliError> {
    let current = std::env::current_dir()
        .map_err(|error| CliError::failed_to(format!("find the current folder: {error}")))?;
    let home = environment.longhaul_home();
    let lookup = Lookup { named: project, current: &current, longhaul_home: home.as_deref() };
    lookup.find_or_current().map_err(|error| {
        CliError::usage(format!("the project folder cannot be used: {error}"))
            .hinted("name it with --project DIR, or start longhaul in it")
    })
}

fn acquire(store_paths: &StorePaths, clock: Clock) -> Result<ProjectLock, CliError> {
    let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let holder = Holder {
        pid: std::process::id(),
        since: Some(clock.now()),
        command: words.join(" "),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    ProjectLock::acquire(store_paths, &holder).map_err(|error| match error {
        LockError::Held(held) => {
            CliError::new(ErrorKind::AlreadyRunning, format!("another session already runs here{held}"))
                .hinted("`longhaul status` shows what it does, `longhaul stop` ends it")
        }
        LockError::Io { .. } => CliError::failed_to(error),
    })
}

/// Takes `call.lock`, which the keepers of a dead supervisor hold as long as one of its calls lives.
async fn calls_of_the_dead(paths: &ProjectPaths) -> Result<File, CliError> {
    if let Some(lock) =
        process::wait_for_call_lock(&paths.call_lock, CALLS_END).await.map_err(CliError::failed_to)?
    {
        return Ok(lock);
    }
    // Whoever holds it longer than it takes to end a call does not obey: it is ended by what we know of it.
    let state = crate::store::inspect(&StorePaths::new(&paths.root)).map(|found| found.state);
    let session = state.ok().and_then(|state| Some(state.session.as_ref()?.id));
    let mut markers = vec![project_marker(paths)];
    markers.extend(session.map(|id| OsString::from(format!("LONGHAUL_SESSION={id}"))));
    let targets = Targets { processes: Vec::new(), markers };
    let swept = tokio::task::spawn_blocking(move || process::sweep(&targets, Duration::ZERO)).await;
    tracing::warn!(
        swept = swept.map_or(0, |s| s.len()),
        "calls of an earlier session did not end by themselves"
    );
    let file = File::options().read(true).write(true).create(true).truncate(false).open(&paths.call_lock);
    let file =
        file.map_err(|error| CliError::failed_to(format!("open {}: {error}", paths.call_lock.display())))?;
    // Held or not: a restart is never refused.
    let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
    Ok(file)
}

fn project_marker(paths: &ProjectPaths) -> OsString {
    let mut marker = OsString::from("LONGHAUL_PROJECT=");
    marker.push(&paths.root);
    marker
}

/// Events about the project as it was found.
fn drafts(bodies: Vec<Body>, state: &crate::domain::state::State, clock: Clock) -> Vec<Draft> {
    let (mut ids, now) = (IdSource::new(None), clock.now());
    let session = state.session.as_ref().map(|session| session.id);
    let draft = |body| Draft {
        id: EventId(ids.next(now)),
        time: now,
        session,
        lane: None,
        iteration: None,
        attempt: None,
        provider: None,
        body,
    };
    bodies.into_iter().map(draft).collect()
}

/// Ends what a dead session has left, by recorded process and by environment, never by name.
fn sweep(session: Option<&Session>, paths: &ProjectPaths) -> Vec<Body> {
    let Some(session) = session else { return Vec::new() };
    let died = matches!(session.state, Phase::Starting | Phase::Running | Phase::Waiting | Phase::Stopping);
    if !died && session.open.is_none() {
        return Vec::new();
    }
    let recorded = session.open.as_ref().and_then(|open| Some((open.pid?, open.start_time?)));
    let processes =
        recorded.into_iter().map(|(pid, start_time)| process::ProcessId { pid, start_time }).collect();
    let session_marker = OsString::from(format!("LONGHAUL_SESSION={}", session.id));
    let targets = Targets { processes, markers: vec![project_marker(paths), session_marker] };
    process::sweep(&targets, Duration::from_secs(1))
        .into_iter()
        .map(|swept| Body::OrphanEnded { pid: swept.id.pid, command: swept.command })
        .collect()
}

/// What was said when the session was started holds until it is said otherwise.
fn all_overrides(session: Option<&Session>, typed: Vec<Override>) -> Vec<Override> {
    let kept = session.into_iter().flat_map(|session| &session.overrides);
    let kept = kept.filter(|old| typed.iter().all(|new| new.key != old.key)).map(|old| Override {
        key: old.key.clone(),
        value: old.value.clone(),
        option: old.option.clone(),
    });
    // To wait or not is a matter of this start.
    let mut all: Vec<Override> = kept.filter(|old| old.key != "run.wait").collect();
    all.extend(typed);
    all
}

fn durability(loaded: &Loaded) -> Durability {
    match loaded.config.durability {
        config::Durability::Power => Durability::Power,
        config::Durability::Process => Durability::Process,
    }
}

fn store_error(error: StoreError) -> CliError {
    let hint = match &error {
        StoreError::Unrecoverable { .. } => {
            "`longhaul run --fresh` starts a new session; the damaged files are kept"
        }
        _ if error.is_full() => "make room on the disk, then start again",
        _ => "`longhaul doctor` looks for what is wrong",
    };
    CliError::failed_to(error).hinted(hint)
}

fn agent(args: &RunArgs, session: Option<&Session>) -> Result<Option<Vec<String>>, CliError> {
    if let Some(command) = &args.agent {
        let words = split_command(command).map_err(|error| CliError::usage(format!("--agent: {error}")))?;
        return Ok(Some(words));
    }
    if args.provider.is_some() {
        return Ok(None);
    }
    Ok(session.map(|session| session.agent.clone()).filter(|words| !words.is_empty()))
}

/// The user's and the project's own provider files.
fn provider_folders(paths: &ProjectPaths, environment: &Environment) -> Vec<PathBuf> {
    let user = environment.user_config().and_then(|file| Some(file.parent()?.join("providers")));
    user.into_iter().chain([paths.dot.join("providers")]).collect()
}

fn providers(
    registry: Registry,
    loaded: &Loaded,
    paths: &ProjectPaths,
    agent: Option<&[String]>,
) -> Result<ProviderBook, CliError> {
    let chain = loaded.config.provider_chain();
    let script =
        if agent.is_none() && chain.contains(&"rehearsal") { Some(script(loaded, paths)?) } else { None };
    let own = &loaded.config.providers;
    let paths = own.iter().filter_map(|(name, own)| Some((name.clone(), own.path.clone()?))).collect();
    Ok(ProviderBook::new(registry, agent, &paths, script))
}

/// The script that `rehearsal` plays: `providers.rehearsal.path`, else `.longhaul/rehearsal.toml`.
fn script(loaded: &Loaded, paths: &ProjectPaths) -> Result<Script, CliError> {
    let named = loaded.config.providers.get("rehearsal").and_then(|own| own.path.clone());
    let path = named.map_or_else(|| paths.dot.join("rehearsal.toml"), |path| paths.root.join(path));
    let text = std::fs::read_to_string(&path).map_err(|error| {
        CliError::new(
            ErrorKind::ProviderUnusable,
            format!("provider `rehearsal` has no script: {}: {error}", path.display()),
        )
        .hinted("write one, or name another with `longhaul config set providers.rehearsal.path FILE`")
    })?;
    Script::parse(&path, &text).map_err(|error| CliError::new(ErrorKind::Config, error.to_string()))
}

/// Exit 6 before any session exists when the primary cannot be used; a missing fallback is a warning.
fn preflight(
    loaded: &Loaded,
    providers: &ProviderBook,
    paths: &ProjectPaths,
    environment: &Environment,
    by_agent: bool,
    output: &mut Output,
) -> Result<Vec<Body>, CliError> {
    let env: BTreeMap<OsString, OsString> =
        environment.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let chain = loaded.config.provider_chain();
    let primary = if by_agent { "command" } else { chain.first().copied().unwrap_or_default() };
    let mut found = Vec::new();
    let usable = |name: &str| {
        let mut env = env.clone();
        if let Some(own) = loaded.config.providers.get(name) {
            env.extend(own.env.iter().map(|(key, value)| (OsString::from(key), OsString::from(value))));
        }
        providers.starts(name, &paths.root, &env)
    };
    usable(primary).map_err(|error| match error {
        Unusable::Unknown { .. } => CliError::new(ErrorKind::Config, error.to_string())
            .hinted("`longhaul provider list` shows the ones there are"),
        _ => CliError::new(ErrorKind::ProviderUnusable, error.to_string())
            .hinted("`longhaul provider list` shows what is installed; `--provider NAME` chooses another"),
    })?;
    // With --agent the settings' own provider is not meant.
    let skipped = if by_agent { chain.first().copied() } else { None };
    for name in chain.iter().filter(|name| **name != primary && Some(**name) != skipped) {
        if let Err(error) = usable(name) {
            output.warn(format!("the fallback cannot be used: {error}"));
            found.push(Body::CapabilityDegraded {
                capability: "provider".to_owned(),
                fail_closed: true,
                reason: error.to_string(),
                provider: Some((*name).to_owned()),
                model: None,
                iteration: None,
            });
        }
    }
    let model = loaded.config.model_for(primary);
    let tells_cost = providers.definition(primary).is_some_and(|definition| definition.tells_cost(model));
    let budget = &loaded.config.budget;
    if budget.is_limited() && budget.assume_usd_per_call.is_none() && !tells_cost {
        let message = format!("a budget needs to know what a call costs, and `{primary}` does not tell");
        return Err(CliError::new(ErrorKind::Config, message)
            .hinted("name a model whose price is known: `longhaul config set provider.model NAME`")
            .hinted("say what to count per call: `longhaul config set budget.assume_usd_per_call 0.50`"));
    }
    Ok(found)
}

/// The spec: as given, else as the session had it, else SPEC.md where there is one.
fn spec(
    args: &RunArgs,
    session: Option<&Session>,
    paths: &ProjectPaths,
) -> Result<Option<PathBuf>, CliError> {
    if let Some(given) = &args.spec {
        let path = std::path::absolute(given)
            .map_err(|error| CliError::usage(format!("the spec {}: {error}", given.display())))?;
        SpecFile::check(&path).map_err(|error| CliError::usage(format!("failed to {error}")))?;
        return Ok(Some(path));
    }
    if let Some(session) = session {
        return Ok(session.spec.as_ref().map(PathBuf::from));
    }
    let usual = paths.root.join("SPEC.md");
    Ok(usual.is_file().then_some(usual))
}

fn context(ready: Ready, environment: &Environment, clock: Clock, shower: Shower) -> (Arc<ProjectCtx>, Db) {
    let Ready { paths, lock, calls, db, state, loaded, files, sources, providers, request, found, told: _ } =
        ready;
    let ctx = ProjectCtx::new(ProjectParts {
        paths,
        clock,
        seed: None,
        still: false,
        sources,
        files,
        loaded,
        state,
        request,
        env: environment.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        providers,
        keeper: Some(calls),
        lock: Some(lock),
        shower: Some(shower),
        found,
    });
    (Arc::new(ctx), db)
}

async fn supervise(ctx: Arc<ProjectCtx>, db: Db) -> Ended {
    let (ended, end) = oneshot::channel();
    let args = HostArgs { ctx: ctx.clone(), db, ended };
    if let Err(error) = Actor::spawn(None, HostActor, args).await {
        return Ended::GaveUp(error.to_string());
    }
    #[cfg(debug_assertions)]
    tokio::spawn(crate::actors::crash_hook::watch(ctx.clone()));
    tokio::spawn(async {
        tokio::time::sleep(STARTED).await;
        process::drop_startup_pages();
    });
    tokio::select! {
        end = end => end.unwrap_or_else(|_| Ended::GaveUp("the host actor died".to_owned())),
        never = interrupts(&ctx) => never,
    }
}

/// Ctrl-C, TERM and HUP become STOP: the second time without grace.
async fn interrupts(ctx: &ProjectCtx) -> Ended {
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let mut streams: Vec<_> = kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect();
    loop {
        std::future::poll_fn(|context| {
            let came = streams.iter_mut().any(|stream| stream.poll_recv(context).is_ready());
            if came { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
        ctx.interrupt();
    }
}

/// Waits for the thread that shows events, but not for a reader that does not read.
fn wait_for(shown: std::thread::JoinHandle<()>) {
    let (done, wait) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        // It ends with its channel, or never, when stdout is stuck.
        let _ = shown.join();
        drop(done);
    });
    let waited = wait.recv_timeout(LAST_WORDS);
    debug_assert!(!matches!(waited, Ok(())));
    if matches!(waited, Err(RecvTimeoutError::Timeout)) {
        tracing::warn!("stdout is not read: the last events are missing there");
    }
}
