//! A gate: a command with a time limit, run as a process tree of its own, and judged by how it ends.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::call::{Call, Ended};
use super::capture::HeadTail;
use super::error::StartFailure;
use super::lines::Line;
use super::output::{Activity, LineSink, MAX_LINE, PumpStop, Stream, pump};
use super::spec::CallSpec;
use super::supervisor::Keeper;
use crate::domain::outcome::Exit;
use crate::domain::session::GateReport;
use crate::domain::state::GateResult;

/// What is kept of a gate's output, bytes: its beginning, and its end, where the failures are summed up.
const KEPT_HEAD: usize = 2 * 1024;
const KEPT_TAIL: usize = 8 * 1024;

/// How long a gate may take.
#[derive(Debug, Clone, Copy)]
pub struct GateLimits {
    /// Until it is ended.
    pub time: Duration,
    /// Between TERM and KILL then.
    pub grace: Duration,
}

/// Takes both streams as they come.
struct Tail(HeadTail);

/// What ended a gate's run.
enum End {
    ByItself(Ended),
    Limit,
    Us(Duration),
    /// Whoever could ask for its end is gone.
    Orphaned,
}

/// Runs the gate `name` to its end. A time sent to `ending` ends it: TERM, and KILL after that time; so does the
/// dropping of the sender, without grace.
pub async fn run_gate(
    keeper: &Keeper,
    name: &str,
    spec: &CallSpec,
    limits: GateLimits,
    mut ending: mpsc::Receiver<Duration>,
) -> GateReport {
    let started = Instant::now();
    let mut report = GateReport::cancelled(name.to_owned());
    let could_not = |tail: String| GateReport {
        result: GateResult::CouldNotRun,
        tail,
        duration_ms: millis(started.elapsed()),
        ..GateReport::cancelled(name.to_owned())
    };
    let prepared = match keeper.prepare().await {
        Ok(prepared) => prepared,
        Err(error) => return could_not(error.to_string()),
    };
    let (output, call) = match prepared.start(spec) {
        Ok(started) => started,
        Err(error) => return could_not(error.to_string()),
    };
    let (stop, signal) = match PumpStop::pair() {
        Ok(pair) => pair,
        Err(error) => return could_not(error.to_string()),
    };
    let capture = tokio::task::spawn_blocking(move || {
        let mut tail = Tail(HeadTail::new(KEPT_HEAD, KEPT_TAIL));
        pump(output, MAX_LINE, &mut tail, None, &Activity::new(), &signal);
        tail.0.text()
    });
    let end = tokio::select! {
        ended = call.ended() => End::ByItself(ended),
        () = sleep_until(started + limits.time) => End::Limit,
        grace = ending.recv() => grace.map_or(End::Orphaned, End::Us),
    };
    let by_us = !matches!(end, End::ByItself(_));
    let exit = match end {
        End::ByItself(ended) => ended.exit,
        End::Limit => {
            report.result = GateResult::TimedOut;
            report.timed_out_after = Some(millis(limits.time));
            end_tree(&call, limits.grace, &mut ending).await
        }
        End::Us(grace) => end_tree(&call, grace, &mut ending).await,
        End::Orphaned => end_tree(&call, Duration::ZERO, &mut ending).await,
    };
    stop.stop();
    report.tail = capture.await.unwrap_or_default();
    report.duration_ms = millis(started.elapsed());
    judge(&mut report, exit, by_us);
    report
}

/// Ends the whole tree; a second request without grace ends it at once.
async fn end_tree(
    call: &Call,
    grace: Duration,
    ending: &mut mpsc::Receiver<Duration>,
) -> Result<Exit, StartFailure> {
    call.terminate(grace);
    loop {
        tokio::select! {
            ended = call.ended() => return ended.exit,
            Some(grace) = ending.recv() => call.terminate(grace),
        }
    }
}

fn judge(report: &mut GateReport, exit: Result<Exit, StartFailure>, by_us: bool) {
    match exit {
        Ok(exit) => {
            report.exit = Some(exit);
            match exit {
                // Timed out, or cancelled: whatever it says now.
                _ if by_us => {}
                Exit::Code(0) => report.result = GateResult::Passed,
                // A shell's way to say that there is no such program, or that it may not be run.
                Exit::Code(126 | 127) => report.result = GateResult::CouldNotRun,
                Exit::Code(_) | Exit::Signal(_) => report.result = GateResult::Failed,
            }
        }
        Err(failure) => {
            report.result = GateResult::CouldNotRun;
            report.tail = failure.to_string();
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

// === impl Tail ===

impl LineSink for Tail {
    fn line(&mut self, _: Stream, line: Line<'_>) {
        match line {
            Line::Whole(bytes) => self.0.push(bytes),
            Line::TooLong { head, .. } => self.0.push(head),
        }
        self.0.push(b"\n");
    }
}
