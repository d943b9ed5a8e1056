//! One run of the program.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use crate::{Event, PATIENCE, eventually};

/// A program that runs, with everything that it has printed so far.
#[derive(Debug)]
pub struct Running {
    child: Child,
    name: String,
    printed: Arc<Printed>,
    readers: Vec<JoinHandle<()>>,
}

/// A program that has ended.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// All of its standard output, invalid UTF-8 replaced.
    pub stdout: String,
    /// All of its standard error, invalid UTF-8 replaced.
    pub stderr: String,
    name: String,
}

#[derive(Debug, Default)]
struct Printed {
    text: Mutex<Text>,
    grown: Condvar,
}

#[derive(Debug, Default)]
struct Text {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

// === impl Running ===

impl Running {
    /// Starts `command` with both outputs piped.
    #[track_caller]
    pub fn spawn(mut command: Command) -> Running {
        let words: Vec<_> = command.get_args().map(|a| a.to_string_lossy()).collect();
        let name = format!("longhaul {}", words.join(" "));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let printed = Arc::new(Printed::default());
        let out = child.stdout.take().expect("stdout is piped");
        let err = child.stderr.take().expect("stderr is piped");
        let readers = vec![
            read_into(&printed, out, |text| &mut text.stdout),
            read_into(&printed, err, |text| &mut text.stderr),
        ];
        Running { child, name, printed, readers }
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// The events that it has printed so far (`run --json`).
    pub fn events(&self) -> Vec<Event> {
        let text = self.printed.lock();
        let whole = text.stdout.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
        String::from_utf8_lossy(&text.stdout[..whole]).lines().map(Event::parse).collect()
    }

    /// Waits for a printed event that `fits`; panics when the program ends first or time is up.
    #[track_caller]
    pub fn event_where(&mut self, what: &str, fits: impl Fn(&Event) -> bool) -> Event {
        let start = Instant::now();
        let (mut seen, mut read) = (0, 0);
        loop {
            let ended = self.child.try_wait().ok().flatten();
            let lines = {
                let text = self.printed.lock();
                let whole = text.stdout.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
                let lines = String::from_utf8_lossy(&text.stdout[read..whole]).into_owned();
                read = whole;
                lines
            };
            for event in lines.lines().map(Event::parse) {
                seen += 1;
                if fits(&event) {
                    return event;
                }
            }
            if let Some(status) = ended {
                self.complain(&format!("it ended with {status} before: {what} ({seen} events)"));
            }
            if start.elapsed() > PATIENCE {
                self.complain(&format!("gave up waiting: {what} ({seen} events)"));
            }
            let text = self.printed.lock();
            if text.stdout.len() == read {
                // Woken by output; looks for the program's end in between.
                let wait = std::time::Duration::from_millis(20);
                drop(self.printed.grown.wait_timeout(text, wait).unwrap_or_else(PoisonError::into_inner));
            }
        }
    }

    /// Waits for a printed event of this type.
    #[track_caller]
    pub fn event(&mut self, kind: &str) -> Event {
        self.event_where(kind, |e| e.kind() == kind)
    }

    /// Waits until standard error holds this text.
    #[track_caller]
    pub fn says(&self, text: &str) {
        eventually(&format!("{} says {text:?}", self.name), || self.said().contains(text).then_some(()));
    }

    /// What it has said on standard error so far.
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&self.printed.lock().stderr).into_owned()
    }

    /// Sends a signal to this process alone.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid()).expect("a child has a pid");
        let _ = kill_process(pid, signal);
    }

    /// Kills this process alone, as the kernel's OOM killer would, and waits until it is gone.
    pub fn kill_9(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().ok().flatten().is_some()
    }

    /// Waits for its end; kills it and panics when it takes too long.
    #[track_caller]
    #[must_use = "assert how it ended"]
    pub fn wait(mut self) -> Finished {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                break status;
            }
            if start.elapsed() > 2 * PATIENCE {
                self.complain("it does not end");
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        };
        // What is left in the pipes is there at once; a stray may hold them open, so do not insist on their end.
        let start = Instant::now();
        while self.readers.iter().any(|r| !r.is_finished()) && start.elapsed().as_secs() < 1 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let text = self.printed.lock();
        Finished {
            status,
            stdout: String::from_utf8_lossy(&text.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&text.stderr).into_owned(),
            name: self.name.clone(),
        }
    }

    #[track_caller]
    fn complain(&self, what: &str) -> ! {
        let text = self.printed.lock();
        let (out, err) = (String::from_utf8_lossy(&text.stdout), String::from_utf8_lossy(&text.stderr));
        panic!("{}: {what}\n--- stdout\n{}\n--- stderr\n{}", self.name, tail(&out), tail(&err));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.child.try_wait().ok().flatten().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn read_into(
    printed: &Arc<Printed>,
    stream: impl Read + Send + 'static,
    field: fn(&mut Text) -> &mut Vec<u8>,
) -> JoinHandle<()> {
    let printed = Arc::clone(printed);
    std::thread::spawn(move || {
        let mut stream = BufReader::with_capacity(65_536, stream);
        while let Ok(bytes) = stream.fill_buf()
            && !bytes.is_empty()
        {
            let n = bytes.len();
            field(&mut printed.lock()).extend_from_slice(bytes);
            printed.grown.notify_all();
            stream.consume(n);
        }
    })
}

// === impl Printed ===

impl Printed {
    fn lock(&self) -> MutexGuard<'_, Text> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Finished ===

impl Finished {
    /// Its exit code; none when a signal ended it.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Asserts its exit code.
    #[track_caller]
    pub fn exits(self, code: i32) -> Finished {
        assert!(
            self.code() == Some(code),
            "{}: exit code {code} expected, got {:?} (signal {:?})\n--- stdout\n{}\n--- stderr\n{}",
            self.name,
            self.code(),
            self.status.signal(),
            tail(&self.stdout),
            tail(&self.stderr)
        );
        self
    }

    /// Asserts success.
    #[track_caller]
    pub fn ok(self) -> Finished {
        self.exits(0)
    }

    /// Asserts that standard error tells the user this (upper and lower case count alike).
    #[track_caller]
    pub fn tells(self, text: &str) -> Finished {
        let said = self.stderr.to_lowercase().contains(&text.to_lowercase());
        assert!(said, "{}: stderr does not say {text:?}\n--- stderr\n{}", self.name, tail(&self.stderr));
        self
    }

    /// The events on its standard output (`run --json`); panics when anything else stands there.
    #[track_caller]
    pub fn events(&self) -> Vec<Event> {
        self.stdout.lines().map(Event::parse).collect()
    }

    /// The printed events of one type.
    #[track_caller]
    pub fn events_of(&self, kind: &str) -> Vec<Event> {
        self.events().into_iter().filter(|e| e.kind() == kind).collect()
    }

    /// The one printed event of this type; panics when there is none or more than one.
    #[track_caller]
    pub fn event(&self, kind: &str) -> Event {
        let mut events = self.events_of(kind);
        let kinds: Vec<_> = self.events().iter().map(|e| e.kind().to_owned()).collect();
        assert!(
            events.len() == 1,
            "{}: {} events of type {kind} in {kinds:?}\n--- stderr\n{}",
            self.name,
            events.len(),
            tail(&self.stderr)
        );
        events.remove(0)
    }
}

/// The last 60 lines: enough to see, and a megabyte of flood stays out of the report.
fn tail(text: &str) -> String {
    let lines: Vec<_> =
        text.lines().rev().take(60).map(|l| l.chars().take(600).collect::<String>()).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}
