//! The pump: from a call's two pipes to a sink of lines and a log, at memory speed and in flat memory.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use super::call::Output;
use super::lines::{Line, Lines};

/// Longest line that is given whole, unless something else is asked for.
pub const MAX_LINE: usize = 8 * 1024 * 1024;

/// Reads from one pipe before the other one is looked at again.
const BURST: usize = 16;

/// How much is still read from each pipe after a stop: more than a pipe of ours holds, and a bound for an orphan that
/// goes on writing.
const DRAIN_LIMIT: usize = 4 * 1024 * 1024;

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Who takes the lines. Called on the pump's thread; a sink that blocks holds the agent up, which is as it should be.
pub trait LineSink {
    /// One line, in the order of its stream.
    fn line(&mut self, stream: Stream, line: Line<'_>);
}

/// Who takes the bytes as they are.
pub trait RawLog {
    /// Bytes as they were read. After the first error the pump goes on without the log.
    fn write(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()>;
}

/// Signs of life, readable at any time without a message.
#[derive(Debug)]
pub struct Activity {
    start: Instant,
    bytes: AtomicU64,
    lines: AtomicU64,
    /// Milliseconds after `start`.
    last_output: AtomicU64,
}

/// Ends a pump that would wait for an end of file that does not come, because a stranger holds the pipe. Dropping it
/// does so too: keep it for as long as the call has something to say.
#[derive(Debug)]
pub struct PumpStop {
    /// Its closing is the word.
    _end: OwnedFd,
}

/// The pump's side of a [`PumpStop`].
#[derive(Debug)]
pub struct StopSignal(OwnedFd);

/// How one stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnd {
    /// Everybody has closed it.
    EndOfFile,
    /// [`PumpStop`]: what was there has been read.
    Stopped,
    /// Reading failed with this `errno`.
    Failed(i32),
}

/// What a pump did.
#[derive(Debug)]
pub struct Pumped {
    /// How stdout ended.
    pub stdout: StreamEnd,
    /// How stderr ended.
    pub stderr: StreamEnd,
    /// Why the log has not got everything.
    pub log_error: Option<io::Error>,
}

/// One stream being read.
struct Source {
    stream: Stream,
    pipe: OwnedFd,
    lines: Lines,
    end: Option<StreamEnd>,
}

/// Where everything goes.
struct Targets<'a> {
    sink: &'a mut dyn LineSink,
    log: Option<&'a mut dyn RawLog>,
    log_error: Option<io::Error>,
    activity: &'a Activity,
}

/// Reads both streams until both have ended or `stop` is asked for. Blocks: for a blocking thread.
///
/// Lines over `max_line` bytes are told as [`Line::TooLong`]. Memory: two buffers of 256 KiB, growing to about twice
/// `max_line` only while a line is that long.
pub fn pump<'a>(
    output: Output,
    max_line: usize,
    sink: &'a mut dyn LineSink,
    log: Option<&'a mut dyn RawLog>,
    activity: &'a Activity,
    stop: &StopSignal,
) -> Pumped {
    let mut targets = Targets { sink, log, log_error: None, activity };
    let source = |stream, pipe| Source { stream, pipe, lines: Lines::new(max_line), end: None };
    let mut sources = [source(Stream::Stdout, output.stdout), source(Stream::Stderr, output.stderr)];
    while sources.iter().any(|s| s.end.is_none()) {
        let ready = match wait(&sources, stop) {
            Ok(ready) => ready,
            Err(e) => {
                sources.iter_mut().for_each(|s| s.finish(StreamEnd::Failed(e.raw_os_error()), &mut targets));
                break;
            }
        };
        for source in sources.iter_mut().filter(|s| s.end.is_none()) {
            if ready.stop {
                source.read(DRAIN_LIMIT, usize::MAX, &mut targets);
                source.finish(StreamEnd::Stopped, &mut targets);
            } else if ready.has(source.stream) {
                source.read(usize::MAX, BURST, &mut targets);
            }
        }
    }
    let [stdout, stderr] = sources.map(|s| s.end.unwrap_or(StreamEnd::Stopped));
    Pumped { stdout, stderr, log_error: targets.log_error }
}

/// What there is to do.
#[derive(Default)]
struct Ready {
    stdout: bool,
    stderr: bool,
    stop: bool,
}

/// Waits until a stream that has not ended has something, or a stop is asked for.
fn wait(sources: &[Source; 2], stop: &StopSignal) -> Result<Ready, Errno> {
    let mut fds = vec![PollFd::new(&stop.0, PollFlags::IN)];
    let open = || sources.iter().filter(|s| s.end.is_none());
    fds.extend(open().map(|s| PollFd::new(&s.pipe, PollFlags::IN)));
    rustix::io::retry_on_intr(|| rustix::event::poll(&mut fds, None))?;
    let mut has = fds.iter().map(|fd| !fd.revents().is_empty());
    let mut ready = Ready { stop: has.next() == Some(true), ..Ready::default() };
    for (source, has) in open().zip(has) {
        match source.stream {
            Stream::Stdout => ready.stdout = has,
            Stream::Stderr => ready.stderr = has,
        }
    }
    Ok(ready)
}

// === impl Ready ===

impl Ready {
    fn has(&self, stream: Stream) -> bool {
        match stream {
            Stream::Stdout => self.stdout,
            Stream::Stderr => self.stderr,
        }
    }
}

// === impl Source ===

impl Source {
    /// Reads until there is nothing for now, or for at most so many bytes and reads.
    fn read(&mut self, max_bytes: usize, max_reads: usize, targets: &mut Targets<'_>) {
        let mut total = 0;
        for _ in 0..max_reads {
            let space = self.lines.space();
            let room = space.len();
            match rustix::io::read(&self.pipe, space) {
                Ok(0) => return self.finish(StreamEnd::EndOfFile, targets),
                Ok(count) => {
                    targets.log(self.stream, &self.lines.space()[..count]);
                    self.lines_from(count, targets);
                    total += count;
                    // A read that did not fill its room has emptied the pipe: waiting costs less than asking again.
                    if total >= max_bytes || count < room && max_bytes == usize::MAX {
                        return;
                    }
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Err(e) => return self.finish(StreamEnd::Failed(e.raw_os_error()), targets),
            }
        }
    }

    fn lines_from(&mut self, count: usize, targets: &mut Targets<'_>) {
        let mut lines = 0;
        self.lines.advance(count, |line| {
            lines += 1;
            targets.sink.line(self.stream, line);
        });
        targets.activity.note(count as u64, lines);
    }

    fn finish(&mut self, end: StreamEnd, targets: &mut Targets<'_>) {
        if self.end.is_none() {
            self.end = Some(end);
            self.lines.finish(|line| {
                targets.activity.note(0, 1);
                targets.sink.line(self.stream, line);
            });
        }
    }
}

impl Targets<'_> {
    fn log(&mut self, stream: Stream, bytes: &[u8]) {
        if let Some(log) = &mut self.log
            && let Err(e) = log.write(stream, bytes)
        {
            self.log = None;
            self.log_error = Some(e);
        }
    }
}

// === impl Activity ===

impl Activity {
    /// Nothing said yet; silence counts from now.
    #[expect(clippy::new_without_default, reason = "it starts a clock, which a default should not")]
    pub fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Activity { start: Instant::now(), bytes: zero(), lines: zero(), last_output: zero() }
    }

    /// Bytes read from both streams.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Lines given from both streams.
    pub fn lines(&self) -> u64 {
        self.lines.load(Relaxed)
    }

    /// Time since the last byte, to the millisecond.
    pub fn silent_for(&self) -> Duration {
        self.start.elapsed().saturating_sub(Duration::from_millis(self.last_output.load(Relaxed)))
    }

    fn note(&self, bytes: u64, lines: u64) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_output.store(now, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        self.lines.fetch_add(lines, Relaxed);
    }
}

// === impl PumpStop ===

impl PumpStop {
    /// For the owner of the call, and for its pump. Fails when there are no descriptors left.
    pub fn pair() -> io::Result<(PumpStop, StopSignal)> {
        let (signal, end) = pipe_with(PipeFlags::CLOEXEC)?;
        Ok((PumpStop { _end: end }, StopSignal(signal)))
    }

    /// Lets the pump read what is there and then end.
    pub fn stop(self) {}
}
