use std::fs;
use std::path::PathBuf;

use notify::event::CreateKind;
use notify::{Event, EventHandler, EventKind, NullWatcher, RecursiveMode};

use super::*;
use crate::actors::testing::{Heard, listener};

/// A project's folders, and a Signals that listens.
struct Bench {
    _dir: tempfile::TempDir,
    dot: PathBuf,
    watcher: ActorRef<WatcherMsg>,
    signals: Heard<SignalsMsg>,
}

// === impl Bench ===

impl Bench {
    async fn new(args: WatcherArgs) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let dot = dir.path().canonicalize().unwrap().join(".longhaul");
        fs::create_dir_all(dot.join("inbox")).unwrap();
        let (signals, heard) = listener().await;
        let slot = Slot::default();
        slot.fill(signals);
        let (watcher, _) = Actor::spawn(None, WatcherActor, args).await.unwrap();
        watcher.cast(WatcherMsg::Watch { folders: folders(&dot), tell: slot }).unwrap();
        Bench { _dir: dir, dot, watcher, signals: heard }
    }

    async fn notices(&mut self) -> Notices {
        self.signals
            .first(|message| match message {
                SignalsMsg::Notices(notices) => Some(notices),
                _ => None,
            })
            .await
    }

    async fn hint(&mut self) {
        self.signals.first(|message| matches!(message, SignalsMsg::Hint).then_some(())).await;
    }
}

fn folders(dot: &Path) -> Vec<WatchedFolder> {
    vec![
        WatchedFolder { path: dot.to_owned(), names: Some(vec!["STOP".into()]) },
        WatchedFolder { path: dot.join("inbox"), names: None },
    ]
}

/// Everything works but the setting of watches.
#[derive(Debug)]
struct Refusing;

impl notify::Watcher for Refusing {
    fn new<F: EventHandler>(_: F, _: notify::Config) -> notify::Result<Self> {
        Ok(Refusing)
    }

    fn watch(&mut self, _: &Path, _: RecursiveMode) -> notify::Result<()> {
        // What inotify says when max_user_watches is reached, which is no full disk.
        Err(notify::Error::io(std::io::Error::from_raw_os_error(libc::ENOSPC)))
    }

    fn unwatch(&mut self, _: &Path) -> notify::Result<()> {
        Ok(())
    }

    fn kind() -> notify::WatcherKind {
        notify::WatcherKind::NullWatcher
    }
}

#[tokio::test]
async fn hints_once_it_has_proved_itself() {
    let mut bench = Bench::new(WatcherArgs::default()).await;
    assert_eq!(bench.notices().await, Notices::Come);
    assert!(fs::read_dir(&bench.dot).unwrap().count() == 1, "no probe file stays");
    fs::write(bench.dot.join("STOP"), "").unwrap();
    bench.hint().await;
    fs::write(bench.dot.join("inbox/message"), "").unwrap();
    bench.hint().await;
}

#[tokio::test]
async fn no_instance_no_watch_and_no_notice_are_told_with_their_cause() {
    let no_instance =
        WatcherArgs { make: |_| Err(notify::Error::io(std::io::Error::from_raw_os_error(libc::EMFILE))) };
    let none = |notices: Notices| match notices {
        Notices::None(why) => why,
        other => panic!("{other:?}"),
    };
    let why = none(Bench::new(no_instance).await.notices().await);
    assert!(why.starts_with("no inotify instance is left"), "{why}");
    let no_watch = WatcherArgs { make: |_| Ok(Box::new(Refusing)) };
    let why = none(Bench::new(no_watch).await.notices().await);
    assert!(why.starts_with("no inotify watch is left"), "{why}");
    let mute = WatcherArgs { make: |_| Ok(Box::new(NullWatcher)) };
    let why = none(Bench::new(mute).await.notices().await);
    assert!(why.ends_with(".longhaul are not told"), "{why}");
}

#[tokio::test]
async fn a_signals_that_starts_anew_is_told_again_and_a_watcher_that_dies_says_so() {
    let mut bench = Bench::new(WatcherArgs::default()).await;
    assert_eq!(bench.notices().await, Notices::Come);
    let (signals, heard) = listener().await;
    let tell = Slot::default();
    tell.fill(signals);
    bench.signals = heard;
    bench.watcher.cast(WatcherMsg::Watch { folders: folders(&bench.dot), tell }).unwrap();
    assert_eq!(bench.notices().await, Notices::Come);
    bench.watcher.cast(WatcherMsg::Crash).unwrap();
    assert_eq!(bench.notices().await, Notices::Paused);
}

#[tokio::test]
async fn a_storm_makes_one_message() {
    let board = Arc::new(Board::default());
    board.want([(PathBuf::from("/p"), None)].into());
    let (actor, mut heard) = listener::<WatcherMsg>().await;
    let mut pen = Pen::new(board.clone(), actor);
    for n in 0..100_000 {
        pen.handle_event(Ok(
            Event::new(EventKind::Create(CreateKind::File)).add_path(format!("/p/{n}").into())
        ));
    }
    heard.first(|message| matches!(message, WatcherMsg::Changed).then_some(())).await;
    assert!(heard.rest().is_empty());
    assert_eq!(board.read().folders.len(), 1);
    pen.handle_event(Ok(Event::new(EventKind::Create(CreateKind::File)).add_path("/p/x".into())));
    heard.first(|message| matches!(message, WatcherMsg::Changed).then_some(())).await;
}

/// The inode of a deleted folder is often used again at once for the next one.
#[tokio::test]
async fn a_folder_that_was_made_again_is_watched_again() {
    let dir = tempfile::tempdir().unwrap();
    let dot = dir.path().canonicalize().unwrap().join(".longhaul");
    let board = Arc::new(Board::default());
    let (actor, mut heard) = listener::<WatcherMsg>().await;
    let mut arranger = Arranger::new(inotify, actor, board.clone());
    let plans = vec![Plan { id: 1, folders: folders(&dot), skip: false }];
    let (moved, mut arranged) = (BTreeSet::new(), |moved: &BTreeSet<PathBuf>| {
        let done = arranger.arrange(&plans, moved).pop().unwrap();
        (done.armed, done.notices)
    });
    assert_eq!(arranged(&moved), (true, Proof::Unknown), "its parent is there");
    let mut until = async |what: &dyn Fn(&Changes) -> bool| {
        let mut seen = Changes::default();
        while !what(&seen) {
            heard.first(|message| matches!(message, WatcherMsg::Changed).then_some(())).await;
            let mut new = board.read();
            seen.folders.append(&mut new.folders);
            seen.moved.append(&mut new.moved);
        }
        seen.moved
    };
    for _ in 0..5 {
        fs::create_dir_all(dot.join("inbox")).unwrap();
        assert_eq!(arranged(&moved), (true, Proof::Come));
        assert_eq!(arranged(&moved), (false, Proof::Come));
        fs::write(dot.join("STOP"), "").unwrap();
        until(&|seen| seen.folders.contains(&dot)).await;
        fs::remove_dir_all(&dot).unwrap();
        until(&|seen| seen.moved.contains(&dot)).await;
        assert_eq!(arranged(&moved), (false, Proof::Unknown));
    }
    // Deleted and made again between two looks: only the notice tells.
    fs::create_dir_all(dot.join("inbox")).unwrap();
    assert_eq!(arranged(&moved), (true, Proof::Come));
    fs::remove_dir_all(&dot).unwrap();
    fs::create_dir_all(dot.join("inbox")).unwrap();
    let moved = until(&|seen| seen.moved.contains(&dot)).await;
    assert_eq!(arranged(&moved), (true, Proof::Come));
    fs::write(dot.join("STOP"), "").unwrap();
    until(&|seen| seen.folders.contains(&dot)).await;
}
