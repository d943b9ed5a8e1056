use std::fs::{self, File};
use std::io::Write;
use std::sync::atomic::AtomicBool;

use tokio::sync::mpsc;

use super::*;
use crate::actors::testing::{Heard, MemoryStore, SOON, input, listener, project, queued};
use crate::actors::watcher::{WatcherActor, WatcherArgs};
use crate::domain::event::{Draft, Event, Mode, SessionStarted};
use crate::domain::ids::{MessageId, SessionId};
use crate::domain::session::Stop;
use crate::domain::state::{Limits, Reason};
use crate::intake::inbox::put;

/// A project with Signals at work, a session that listens and a store in memory.
struct Bench {
    dir: tempfile::TempDir,
    ctx: Arc<ProjectCtx>,
    signals: ActorRef<SignalsMsg>,
    session: Heard<SessionMsg>,
    events: Heard<Event>,
    full: Arc<AtomicBool>,
}

// === impl Bench ===

impl Bench {
    /// `before` prepares the folder.
    async fn new(watched: bool, before: impl FnOnce(&ProjectCtx)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ctx = project(dir.path());
        let (full, (committed, events)) = (Arc::new(AtomicBool::new(false)), mpsc::unbounded_channel());
        let store = MemoryStore { ctx: ctx.clone(), full: full.clone(), events: committed };
        let (store, _) = Actor::spawn(None, store, ()).await.unwrap();
        ctx.slots.store.fill(store);
        let (session, heard) = listener().await;
        ctx.slots.session.fill(session);
        if watched {
            let (watcher, _) = Actor::spawn(None, WatcherActor, WatcherArgs::default()).await.unwrap();
            ctx.slots.watcher.fill(watcher);
        }
        before(&ctx);
        let (signals, _) = Actor::spawn(None, SignalsActor, ctx.clone()).await.unwrap();
        Bench { dir, ctx, signals, session: heard, events: Heard(events), full }
    }

    async fn told(&mut self) -> Signals {
        self.session
            .first(|message| match input(message) {
                Some(Input::Signals(signals)) => Some(signals),
                _ => None,
            })
            .await
    }

    /// The first word, about a folder without signals.
    async fn quiet(watched: bool) -> Self {
        let mut bench = Bench::new(watched, |_| {}).await;
        assert_eq!(bench.told().await, Signals::default());
        bench
    }

    async fn message(&mut self) -> String {
        self.events.first(queued).await
    }

    fn say(&self, text: &str) {
        put(&self.ctx.paths, MessageId(self.ctx.id()), text).unwrap();
    }
}

fn stop(reason: Reason, detail: &str, now: bool) -> Option<Stop> {
    Some(Stop { reason, detail: detail.to_owned(), now })
}

#[tokio::test]
async fn tells_what_is_there_and_only_changes() {
    for watched in [false, true] {
        let mut bench = Bench::quiet(watched).await;
        fs::write(&bench.ctx.paths.pause, "lunch\n").unwrap();
        assert_eq!(bench.told().await.pause.as_deref(), Some("lunch"));
        fs::remove_file(&bench.ctx.paths.pause).unwrap();
        assert_eq!(bench.told().await, Signals::default());
        fs::write(&bench.ctx.paths.stop, "now\nit eats the disk").unwrap();
        assert_eq!(bench.told().await.stop, stop(Reason::Requested, "it eats the disk", true));
        bench.signals.cast(SignalsMsg::Repeat).unwrap();
        assert_eq!(bench.told().await.stop, stop(Reason::Requested, "it eats the disk", true));
        assert!(bench.session.rest().into_iter().filter_map(input).next().is_none());
    }
}

#[tokio::test]
async fn a_stop_that_is_there_at_the_start_is_the_first_word() {
    let mut bench = Bench::new(false, |ctx| {
        fs::create_dir(&ctx.paths.dot).unwrap();
        fs::write(&ctx.paths.stop, "").unwrap();
        fs::write(&ctx.paths.human_input, "and a message").unwrap();
    })
    .await;
    assert_eq!(bench.told().await.stop, stop(Reason::Requested, "", false));
}

#[tokio::test]
async fn a_reason_that_is_still_being_written_is_waited_for() {
    let mut bench = Bench::quiet(true).await;
    // Notices must come, or the wait would be too long for a poll.
    bench.signals.cast(SignalsMsg::Notices(Notices::Come)).unwrap();
    let mut writer = File::create(&bench.ctx.paths.pause).unwrap();
    bench.signals.cast(SignalsMsg::Hint).unwrap();
    writer.write_all(b"because").unwrap();
    drop(writer);
    assert_eq!(bench.told().await.pause.as_deref(), Some("because"));
    // But not for ever.
    let _writer = File::create(&bench.ctx.paths.stop).unwrap();
    assert_eq!(bench.told().await.stop, stop(Reason::Requested, "", false));
}

#[tokio::test]
async fn obeyed_signals_are_removed() {
    let mut bench = Bench::quiet(true).await;
    fs::write(&bench.ctx.paths.stop, "").unwrap();
    assert!(bench.told().await.stop.is_some());
    bench.ctx.slots.signals.call("signals", SOON, SignalsMsg::ConsumeStop).await.unwrap();
    assert!(!bench.ctx.paths.stop.exists());
    assert_eq!(bench.told().await, Signals::default());

    let resume = resume_path(&bench.ctx.paths);
    for _ in 0..3 {
        fs::write(&resume, "").unwrap();
        while !bench.told().await.resume {}
        bench.signals.cast(SignalsMsg::ConsumeResume).unwrap();
        while resume.exists() {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn ctrl_c_twice_takes_the_grace_and_a_restart_takes_nothing_back() {
    let mut bench = Bench::quiet(false).await;
    bench.ctx.interrupt();
    assert_eq!(bench.told().await.stop, stop(Reason::Interrupted, "", false));
    bench.signals.cast(SignalsMsg::Crash).unwrap();
    Actor::spawn(None, SignalsActor, bench.ctx.clone()).await.unwrap();
    assert_eq!(bench.told().await.stop, stop(Reason::Interrupted, "", false));
    bench.ctx.interrupt();
    assert_eq!(bench.told().await.stop, stop(Reason::Interrupted, "", true));
}

#[tokio::test]
async fn five_messages_at_once_come_once_each() {
    let mut bench = Bench::quiet(true).await;
    bench.say("1");
    fs::write(bench.ctx.paths.inbox.join("zz"), "2").unwrap();
    fs::write(&bench.ctx.paths.human_input, "3").unwrap();
    let mut told = vec![bench.message().await, bench.message().await, bench.message().await];
    fs::write(&bench.ctx.paths.human_input, "4").unwrap();
    told.push(bench.message().await);
    fs::write(&bench.ctx.paths.human_input, "5").unwrap();
    told.push(bench.message().await);
    assert_eq!(told.get(3..).unwrap(), ["file: 4", "file: 5"]);
    told.sort_unstable();
    assert_eq!(told, ["file: 3", "file: 4", "file: 5", "inbox: 2", "say: 1"]);
    assert_eq!(bench.ctx.state().inbox.queued.len(), 5);
}

#[tokio::test]
async fn messages_that_are_there_come_before_the_first_word() {
    let mut bench = Bench::new(false, |ctx| put(&ctx.paths, MessageId(ctx.id()), "first").unwrap()).await;
    bench.told().await;
    assert_eq!(bench.ctx.state().inbox.queued.len(), 1);
}

#[tokio::test]
async fn what_a_dead_actor_had_claimed_is_taken_under_the_same_id() {
    let mut bench = Bench::quiet(false).await;
    bench.full.store(true, Ordering::SeqCst);
    bench.say("patience");
    let taken = bench.ctx.paths.inbox.join("taken");
    while fs::read_dir(&taken).unwrap().next().is_none() {
        tokio::task::yield_now().await;
    }
    bench.signals.cast(SignalsMsg::Crash).unwrap();
    bench.full.store(false, Ordering::SeqCst);
    Actor::spawn(None, SignalsActor, bench.ctx.clone()).await.unwrap();
    assert_eq!(bench.message().await, "say: patience");
    assert_eq!(bench.ctx.state().inbox.queued.len(), 1);
}

#[tokio::test]
async fn a_full_disk_delays_a_message_and_loses_none() {
    let mut bench = Bench::quiet(true).await;
    bench.full.store(true, Ordering::SeqCst);
    bench.say("one");
    let taken = bench.ctx.paths.inbox.join("taken");
    while fs::read_dir(&taken).unwrap().next().is_none() {
        tokio::task::yield_now().await;
    }
    bench.full.store(false, Ordering::SeqCst);
    bench.say("two");
    assert_eq!(bench.message().await, "say: one");
    assert_eq!(bench.message().await, "say: two");
}

#[tokio::test]
async fn a_deleted_folder_is_made_again_and_still_heard() {
    let mut bench = Bench::quiet(true).await;
    for _ in 0..3 {
        // It is being made again while it is being deleted.
        while fs::remove_dir_all(&bench.ctx.paths.dot).is_err() {}
        while !bench.ctx.paths.inbox.join("done").exists() {
            tokio::task::yield_now().await;
        }
        fs::write(&bench.ctx.paths.pause, "").unwrap();
        assert!(bench.told().await.pause.is_some());
        bench.say("still there?");
        assert_eq!(bench.message().await, "say: still there?");
        fs::remove_file(&bench.ctx.paths.pause).unwrap();
        assert!(bench.told().await.pause.is_none());
    }
}

#[tokio::test]
async fn a_folder_that_was_moved_away_stops_nothing() {
    let mut bench = Bench::quiet(true).await;
    let old = bench.dir.path().join("old");
    fs::rename(&bench.ctx.paths.dot, &old).unwrap();
    fs::write(old.join("STOP"), "").unwrap();
    while !bench.ctx.paths.inbox.join("done").exists() {
        tokio::task::yield_now().await;
    }
    fs::write(&bench.ctx.paths.pause, "the real one").unwrap();
    let told = bench.told().await;
    assert_eq!((told.pause.as_deref(), told.stop), (Some("the real one"), None));
}

#[tokio::test]
async fn a_changed_settings_file_is_told() {
    let mut bench = Bench::quiet(true).await;
    fs::write(&bench.ctx.paths.config, "durability = \"process\"\n").unwrap();
    bench.session.first(|message| matches!(message, SessionMsg::ConfigHint).then_some(())).await;
}

#[tokio::test]
async fn a_message_that_cannot_be_taken_is_told_once() {
    let mut bench = Bench::quiet(false).await;
    // Nothing can be renamed onto a folder that is a file.
    let taken = bench.ctx.paths.inbox.join("taken");
    fs::remove_dir(&taken).unwrap();
    std::os::unix::fs::symlink("/proc", &taken).unwrap();
    fs::write(&bench.ctx.paths.human_input, "hello?").unwrap();
    let notice = |event: Event| match event.body {
        Body::Notice { code, message } => Some((code, message)),
        _ => None,
    };
    let (code, message) = bench.events.first(notice).await;
    assert_eq!(code, "message_not_taken");
    assert!(message.contains("HUMAN_INPUT.md"), "{message}");
    assert!(bench.ctx.paths.human_input.exists());
}

#[tokio::test]
async fn polling_is_an_event_once_the_session_has_begun() {
    let mut bench = Bench::quiet(false).await;
    bench.signals.cast(SignalsMsg::Notices(Notices::None("no inotify instance is left".to_owned()))).unwrap();
    let started = SessionStarted {
        version: String::new(),
        project: String::new(),
        mode: Mode::Spec,
        complexity: String::new(),
        spec: None,
        limits: Limits::default(),
        chain: Vec::new(),
        overrides: Vec::new(),
        agent: Vec::new(),
    };
    let session = Some(SessionId(bench.ctx.id()));
    let started = Draft { session, ..bench.ctx.draft(Body::SessionStarted(Box::new(started))) };
    bench.ctx.commit(vec![started]).await.unwrap();
    let degraded = |event: Event| match event.body {
        Body::CapabilityDegraded { capability, reason, fail_closed, .. } => {
            Some((capability, reason, fail_closed))
        }
        _ => None,
    };
    let (capability, reason, fail_closed) = bench.events.first(degraded).await;
    assert_eq!((capability.as_str(), fail_closed), ("watch", false));
    assert_eq!(reason, "no inotify instance is left; signal files are looked for every 150 ms");
}
