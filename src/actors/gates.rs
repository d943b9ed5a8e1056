//! Gates: runs checks with time limits, one after the other, each as a process tree of its own.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::context::ProjectCtx;
use crate::config::{Gate, GateCommand};
use crate::domain::ids::Token;
use crate::domain::outcome::Exit;
use crate::domain::session::{GateReport, Input};
use crate::domain::state::GateResult;
use crate::intake::gates::gates_of;
use crate::messages::gates::GatesMsg;
use crate::messages::session::SessionMsg;
use crate::process::{
    Activity, Call, CallSpec, HeadTail, Line, LineSink, MAX_LINE, PumpStop, StartFailure, Stream, pump,
};

/// What is kept of a gate's output, bytes: its beginning, and its end, where the failures are summed up.
const KEPT_HEAD: usize = 2 * 1024;
const KEPT_TAIL: usize = 8 * 1024;

/// Takes both streams as they come.
struct Tail(HeadTail);

/// The actor.
pub struct GatesActor;

/// What it works with.
pub struct Gates {
    ctx: Arc<ProjectCtx>,
    run: Option<Run>,
}

/// Gates that were asked for together.
struct Run {
    token: Token,
    iteration: u64,
    left: VecDeque<Gate>,
    done: Vec<GateReport>,
    /// Ends the one that runs; dropped with the actor, which ends it too.
    end: mpsc::Sender<Duration>,
    ended: bool,
}

// === impl GatesActor ===

impl Actor for GatesActor {
    type Msg = GatesMsg;
    type State = Gates;
    type Arguments = Arc<ProjectCtx>;

    async fn pre_start(
        &self,
        myself: ActorRef<GatesMsg>,
        ctx: Arc<ProjectCtx>,
    ) -> Result<Gates, ActorProcessingErr> {
        ctx.slots.gates.fill(myself);
        Ok(Gates { ctx, run: None })
    }

    async fn post_start(&self, _: ActorRef<GatesMsg>, state: &mut Gates) -> Result<(), ActorProcessingErr> {
        // Gates that were running died with the last actor: the session asks again.
        state.ctx.slots.session.cast(SessionMsg::GatesRestarted);
        Ok(())
    }

    async fn handle(
        &self,
        myself: ActorRef<GatesMsg>,
        message: GatesMsg,
        state: &mut Gates,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            GatesMsg::Run { token, iteration, names } => {
                let all = gates_of(&state.ctx.config().gates, &state.ctx.paths.root);
                let left = all.into_iter().filter(|gate| names.contains(&gate.name)).collect();
                let (end, _) = mpsc::channel(1);
                state.run = Some(Run { token, iteration, left, done: Vec::new(), end, ended: false });
                state.next(&myself);
            }
            GatesMsg::End { grace } => {
                if let Some(run) = &mut state.run {
                    run.ended = true;
                    // Full: an end is under way, and a second one can only shorten it.
                    let _ = run.end.try_send(grace);
                }
            }
            GatesMsg::Ended { token, report } => {
                if let Some(run) = state.run.as_mut().filter(|run| run.token == token) {
                    run.done.push(*report);
                    state.next(&myself);
                }
            }
            #[cfg(debug_assertions)]
            GatesMsg::Crash => panic!("asked to crash"),
        }
        Ok(())
    }
}

// === impl Gates ===

impl Gates {
    /// Starts the next gate, or says that all are through.
    fn next(&mut self, myself: &ActorRef<GatesMsg>) {
        let Some(run) = &mut self.run else { return };
        let next = if run.ended { None } else { run.left.pop_front() };
        let Some(gate) = next else {
            let (token, mut reports) = (run.token, std::mem::take(&mut run.done));
            reports.extend(run.left.drain(..).map(|gate| unrun(gate.name)));
            self.run = None;
            let input = Input::GatesEnded { token, reports };
            return self.ctx.slots.session.cast(SessionMsg::Input(Box::new(input)));
        };
        let (end, ending) = mpsc::channel(2);
        run.end = end;
        let (token, iteration) = (run.token, run.iteration);
        let (ctx, myself) = (self.ctx.clone(), myself.clone());
        tokio::spawn(async move {
            let report = run_gate(&ctx, &gate, iteration, ending).await;
            // An actor that died has a successor that is asked again.
            let _ = myself.cast(GatesMsg::Ended { token, report: Box::new(report) });
        });
    }
}

impl LineSink for Tail {
    fn line(&mut self, _: Stream, line: Line<'_>) {
        match line {
            Line::Whole(bytes) => self.0.push(bytes),
            Line::TooLong { head, .. } => self.0.push(head),
        }
        self.0.push(b"\n");
    }
}

fn unrun(name: String) -> GateReport {
    let result = GateResult::Cancelled;
    GateReport { name, result, exit: None, duration_ms: 0, timed_out_after: None, tail: String::new() }
}

/// What ended a gate's run.
enum End {
    ByItself(crate::process::Ended),
    Limit,
    Us(Duration),
    /// The actor is gone.
    Orphaned,
}

async fn run_gate(
    ctx: &Arc<ProjectCtx>,
    gate: &Gate,
    iteration: u64,
    mut ending: mpsc::Receiver<Duration>,
) -> GateReport {
    let started = Instant::now();
    let mut report = unrun(gate.name.clone());
    let could_not = |tail: String| GateReport {
        result: GateResult::CouldNotRun,
        tail,
        duration_ms: millis(started),
        ..unrun(gate.name.clone())
    };
    let Some(keeper) = &ctx.keeper else { return could_not("no processes in a simulation".to_owned()) };
    let prepared = match keeper.prepare().await {
        Ok(prepared) => prepared,
        Err(error) => return could_not(error.to_string()),
    };
    let (output, call) = match prepared.start(&spec(ctx, gate, iteration)) {
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
        () = sleep_until(started + gate.timeout) => End::Limit,
        grace = ending.recv() => grace.map_or(End::Orphaned, End::Us),
    };
    let by_us = !matches!(end, End::ByItself(_));
    let exit = match end {
        End::ByItself(ended) => ended.exit,
        End::Limit => {
            report.result = GateResult::TimedOut;
            report.timed_out_after = Some(u64::try_from(gate.timeout.as_millis()).unwrap_or(u64::MAX));
            end_tree(&call, ctx.config().stop.grace, &mut ending).await
        }
        End::Us(grace) => end_tree(&call, grace, &mut ending).await,
        End::Orphaned => end_tree(&call, Duration::ZERO, &mut ending).await,
    };
    stop.stop();
    report.tail = capture.await.unwrap_or_default();
    report.duration_ms = millis(started);
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

fn spec(ctx: &ProjectCtx, gate: &Gate, iteration: u64) -> CallSpec {
    let argv: Vec<OsString> = match &gate.command {
        GateCommand::Argv(words) => words.iter().map(OsString::from).collect(),
        GateCommand::Shell(line) => ["/bin/sh", "-c", line].iter().map(OsString::from).collect(),
    };
    let mut env = ctx.env.clone();
    env.extend(gate.env.iter().map(|(k, v)| (OsString::from(k), OsString::from(v))));
    env.extend(super::lane::marks(ctx, iteration, 0));
    CallSpec { argv, env: env.into_iter().collect(), cwd: ctx.paths.root.clone(), stdin: Vec::new() }
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
