use std::ffi::{CString, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::*;
use crate::actors::testing::{Heard, SOON, input, listener};
use crate::domain::disk::{DiskLimits, DiskReport};
use crate::domain::event::Body;
use crate::domain::session::Input;
use crate::messages::Slot;
use crate::messages::session::SessionMsg;

/// Looks only when asked.
const LIMITS: DiskLimits =
    DiskLimits { min_free: 0, min_inodes: 0, resume_factor: 1.5, interval: Duration::from_secs(3600) };

/// A Disk that looks at one folder, and a session that listens.
struct Bench {
    slot: Slot<DiskMsg>,
    session: Slot<SessionMsg>,
    heard: Heard<SessionMsg>,
    path: PathBuf,
}

// === impl Bench ===

impl Bench {
    async fn new(path: &Path, limits: DiskLimits) -> Self {
        let (slot, session) = (Slot::default(), Slot::default());
        let (actor, heard) = listener().await;
        session.fill(actor);
        let (disk, _) = Actor::spawn(None, DiskActor, ()).await.unwrap();
        slot.fill(disk);
        let bench = Bench { slot, session, heard, path: path.to_owned() };
        bench.watch(limits);
        bench
    }

    fn watch(&self, limits: DiskLimits) {
        self.slot.cast(DiskMsg::Watch { paths: vec![self.path.clone()], limits, tell: self.session.clone() });
    }

    /// What the session hears while a look is asked for: it has heard it when the answer comes.
    async fn look(&mut self) -> Vec<DiskReport> {
        self.slot.call("disk", SOON, DiskMsg::LookNow).await.unwrap();
        // A message of our own behind them says that all before it were heard.
        self.session.cast(SessionMsg::ConfigHint);
        let mut told = Vec::new();
        self.heard
            .first(|message| match message {
                SessionMsg::ConfigHint => Some(()),
                other => {
                    told.extend(disk(other));
                    None
                }
            })
            .await;
        told
    }

    async fn told(&mut self) -> DiskReport {
        self.heard.first(disk).await
    }
}

fn disk(message: SessionMsg) -> Option<DiskReport> {
    match input(message) {
        Some(Input::Disk(report)) => Some(report),
        _ => None,
    }
}

fn limit(report: DiskReport) -> String {
    match report {
        DiskReport::Low(Body::DiskLow { limit, .. }) => limit,
        other => panic!("{other:?}"),
    }
}

/// The free bytes that are told where all have room.
fn room(report: DiskReport) -> u64 {
    match report {
        DiskReport::Room { free_bytes } => free_bytes,
        DiskReport::Low(body) => panic!("{body:?}"),
    }
}

/// A tmpfs that is unmounted at the end. None where that is not allowed.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    fn new(options: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        if mount(dir.path(), options, 0) {
            return Some(Tmpfs(dir));
        }
        eprintln!("skipped: no file system can be mounted here");
        None
    }

    fn resize(&self, options: &str) {
        assert!(mount(self.0.path(), options, libc::MS_REMOUNT));
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let path = c_string(self.0.path().as_os_str());
        // SAFETY: the path is a string that ends with NUL and lives through the call.
        unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
    }
}

fn mount(path: &Path, options: &str, flags: libc::c_ulong) -> bool {
    let (path, kind, options) = (c_string(path.as_os_str()), c"tmpfs", c_string(options.as_ref()));
    let (path, kind) = (path.as_ptr(), kind.as_ptr());
    // SAFETY: all are strings that end with NUL and live through the call.
    unsafe { libc::mount(kind, path, kind, flags, options.as_ptr().cast()) == 0 }
}

fn c_string(text: &OsStr) -> CString {
    CString::new(text.as_bytes()).unwrap()
}

#[tokio::test]
async fn tells_at_once_and_again_only_changes() {
    let dir = tempfile::tempdir().unwrap();
    let mut bench = Bench::new(dir.path(), LIMITS).await;
    // A session may know of a shortage that is over.
    assert_ne!(room(bench.told().await), 0);
    assert!(bench.look().await.is_empty());
    bench.slot.cast(DiskMsg::Limits(DiskLimits { min_free: 1 << 60, ..LIMITS }));
    assert!(limit(bench.told().await).contains("less than disk.min_free"));
    bench.slot.cast(DiskMsg::Look);
    let heard = bench.look().await;
    assert_eq!(heard.len(), 1, "whoever asks may not know: {heard:?}");
    bench.slot.cast(DiskMsg::Limits(LIMITS));
    assert_ne!(room(bench.told().await), 0);
}

#[tokio::test]
async fn a_new_disk_and_a_new_session_learn_it_all() {
    let dir = tempfile::tempdir().unwrap();
    let low = DiskLimits { min_free: 1 << 60, ..LIMITS };
    let mut bench = Bench::new(dir.path(), low).await;
    limit(bench.told().await);
    let (session, heard) = listener().await;
    bench.session.fill(session);
    bench.heard = heard;
    limit(bench.look().await.pop().unwrap());
    bench.slot.cast(DiskMsg::Crash);
    let (disk, _) = Actor::spawn(None, DiskActor, ()).await.unwrap();
    bench.slot.fill(disk);
    bench.watch(LIMITS);
    assert_ne!(room(bench.told().await), 0);
}

#[tokio::test]
async fn bytes_run_out_and_come_back() {
    let Some(tmpfs) = Tmpfs::new("size=4m") else { return };
    let root = tmpfs.0.path();
    let mut bench = Bench::new(root, DiskLimits { min_free: 2 << 20, ..LIMITS }).await;
    assert_ne!(room(bench.told().await), 0);
    fs::write(root.join("a"), vec![0; 1 << 20]).unwrap();
    fs::write(root.join("b"), vec![0; 3 << 19]).unwrap();
    assert_eq!(
        limit(bench.look().await.pop().unwrap()),
        "1.6 MB free, less than disk.min_free = 2.1 MB; it goes on at 3.1 MB"
    );
    fs::remove_file(root.join("a")).unwrap();
    assert_eq!(bench.look().await.len(), 1, "2.6 MB is not enough");
    fs::remove_file(root.join("b")).unwrap();
    assert_eq!(room(bench.look().await.pop().unwrap()), 4 << 20);
}

#[tokio::test(start_paused = true)]
async fn it_looks_as_often_as_is_asked_for_from_the_start() {
    let Some(tmpfs) = Tmpfs::new("size=4m") else { return };
    let interval = Duration::from_millis(100);
    let limits = DiskLimits { min_free: 2 << 20, interval, ..LIMITS };
    let mut bench = Bench::new(tmpfs.0.path(), limits).await;
    assert_ne!(room(bench.told().await), 0);
    fs::write(tmpfs.0.path().join("a"), vec![0; 3 << 20]).unwrap();
    let filled = Instant::now();
    limit(bench.told().await);
    assert!(filled.elapsed() <= interval + Duration::from_millis(2), "{:?}", filled.elapsed());
}

#[tokio::test]
async fn inodes_run_out_while_there_is_space() {
    let Some(tmpfs) = Tmpfs::new("size=1m,nr_inodes=20") else { return };
    let root = tmpfs.0.path();
    let mut bench = Bench::new(root, DiskLimits { min_inodes: 4, ..LIMITS }).await;
    assert_ne!(room(bench.told().await), 0);
    let mut made = 0;
    while fs::write(root.join(made.to_string()), "").is_ok() {
        made += 1;
    }
    let low = bench.look().await.pop().unwrap();
    assert!(
        matches!(low, DiskReport::Low(Body::DiskLow { free_inodes: Some(0), free_bytes: 1_000_000.., .. })),
        "{low:?}"
    );
    assert!(limit(low).starts_with("0 inodes free"));
    for n in 0..5 {
        fs::remove_file(root.join(n.to_string())).unwrap();
    }
    assert_eq!(bench.look().await.len(), 1, "5 of 6");
    fs::remove_file(root.join("5")).unwrap();
    assert_ne!(room(bench.look().await.pop().unwrap()), 0);
}

#[tokio::test]
async fn a_failed_write_counts_until_one_succeeds() {
    let Some(tmpfs) = Tmpfs::new("size=4m") else { return };
    let mut bench = Bench::new(tmpfs.0.path(), LIMITS).await;
    assert_ne!(room(bench.told().await), 0);
    bench.slot.cast(DiskMsg::WriteFailed);
    assert!(
        limit(bench.told().await).starts_with("writing fails for want of space although 4.2 MB are free")
    );
    assert_eq!(bench.look().await.len(), 1);
    tmpfs.resize("size=64m");
    assert_ne!(room(bench.look().await.pop().unwrap()), 0);
    assert_eq!(fs::read_dir(tmpfs.0.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn two_paths_of_one_file_system_are_one() {
    let dir = tempfile::tempdir().unwrap();
    let low = DiskLimits { min_free: 1 << 60, ..LIMITS };
    let mut bench = Bench::new(dir.path(), low).await;
    limit(bench.told().await);
    let paths = vec![dir.path().to_owned(), dir.path().join("deeper/still")];
    bench.slot.cast(DiskMsg::Watch { paths, limits: low, tell: bench.session.clone() });
    let DiskReport::Low(Body::DiskLow { path, .. }) = bench.told().await else { panic!("another event") };
    assert_eq!(Path::new(&path), dir.path());
}
