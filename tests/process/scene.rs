//! What the tests share: a keeper, scripts, and a look at who is alive.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use longhaul::process::{
    Activity, CallSpec, Ended, Keeper, Line, LineSink, MAX_LINE, Output, PumpStop, Stream, pump,
};

/// The program whose `main` can become a keeper.
pub const LONGHAUL: &str = env!("CARGO_BIN_EXE_longhaul");

/// How long a test waits for what must happen; far more than it takes.
const PATIENCE: Duration = Duration::from_secs(20);

pub fn keeper() -> Keeper {
    keeper_with(None)
}

pub fn keeper_with(lock: Option<&File>) -> Keeper {
    Keeper::start_with(Path::new(LONGHAUL), lock).unwrap()
}

/// An environment entry by which the processes of one test are known.
pub struct Mark(pub String);

impl Mark {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Mark(format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    pub fn entry(&self) -> String {
        format!("LONGHAUL_TEST={}", self.0)
    }

    /// Pids of processes that have it and are no zombies (those have no environment).
    pub fn alive(&self) -> Vec<u32> {
        let entry = self.entry();
        let has = |pid: &u32| {
            let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environ.split(|b| *b == 0).any(|e| e == entry.as_bytes())
        };
        pids().filter(has).collect()
    }

    pub fn sh(&self, script: &str) -> CallSpec {
        CallSpec {
            argv: ["/bin/sh", "-c", script].map(Into::into).to_vec(),
            env: vec![
                ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
                ("LONGHAUL_TEST".into(), self.0.clone().into()),
            ],
            cwd: "/tmp".into(),
            stdin: Vec::new(),
        }
    }
}

pub fn pids() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok())
}

/// A script without anything to recognise it by.
pub fn sh(script: &str) -> CallSpec {
    Mark::new().sh(script)
}

/// Polls until `condition` holds; `false` when patience is over.
pub fn until(mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

pub fn kill(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    let _ = rustix::process::kill_process(pid, signal);
}

/// What a program said, line by line.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Said {
    pub stdout: Vec<Vec<u8>>,
    pub stderr: Vec<Vec<u8>>,
    /// Lengths of lines that were too long.
    pub too_long: Vec<u64>,
}

impl LineSink for Said {
    fn line(&mut self, stream: Stream, line: Line<'_>) {
        match (stream, line) {
            (Stream::Stdout, Line::Whole(line)) => self.stdout.push(line.to_vec()),
            (Stream::Stderr, Line::Whole(line)) => self.stderr.push(line.to_vec()),
            (_, Line::TooLong { length, .. }) => self.too_long.push(length),
        }
    }
}

impl Said {
    pub fn text(&self) -> String {
        String::from_utf8(self.stdout.join(&b'\n')).unwrap()
    }
}

/// Reads both streams to their ends.
pub async fn read(output: Output) -> Said {
    let read = || {
        let mut said = Said::default();
        let (_stop, signal) = PumpStop::pair().unwrap();
        pump(output, MAX_LINE, &mut said, None, &Activity::new(), &signal);
        said
    };
    tokio::task::spawn_blocking(read).await.unwrap()
}

/// Runs a call to its end.
pub async fn run(keeper: &Keeper, spec: &CallSpec) -> (Ended, Said) {
    let (output, call) = keeper.prepare().await.unwrap().start(spec).unwrap();
    let said = tokio::spawn(read(output));
    (call.ended().await, said.await.unwrap())
}

/// Reads stdout until it has `bytes`, as they come, so that a test can wait for a script to be where it wants it.
pub fn wait_for(output: &Output, bytes: &[u8]) {
    let mut seen = Vec::new();
    let found = until(|| {
        let mut chunk = [0; 4096];
        let count = rustix::io::read(&output.stdout, &mut chunk).unwrap_or(0);
        seen.extend(&chunk[..count]);
        seen.windows(bytes.len()).any(|w| w == bytes)
    });
    assert!(found, "only saw {:?}", String::from_utf8_lossy(&seen));
}
