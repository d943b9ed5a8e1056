//! Provider: one attempt. A temporary child of its lane: it lives as long as the call.
//!
//! Three tasks belong to a call: the pump reads its output on a blocking thread, the warden waits for the end of its
//! process tree, and the actor watches the limits. The warden outlives the actor: whatever becomes of that, the
//! tree is ended, and the folder is given back only when nothing of it is left.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::Instant;

use super::prompting::ProcessAsk;
use super::rehearsal::{Rehearsal, play};
use super::vital_signs::{Limits, Seen, Sign, VitalSigns};
use crate::domain::ids::Token;
use crate::domain::outcome::Exit;
use crate::messages::lane::LaneMsg;
use crate::messages::provider::{ProviderMsg, ProviderReport, Said};
use crate::process::{
    Activity, AttemptLog, Call, CallSpec, Line, LineSink, Output, Prepared, ProcessError, PumpStop, RawLog,
    StopSignal, pump,
};
use crate::providers::call::{CallEnd, OurReason, StartFailure, Stream};
use crate::providers::decode::{Decoder, Fact};
use crate::providers::rehearsal::Performance;

/// How often to look for signs of life, at most; a shorter limit is looked at more often.
const LOOK: Duration = Duration::from_secs(5);

/// The actor.
pub struct ProviderActor;

/// A call to be made.
pub struct ProviderArgs {
    /// Fencing token of the attempt.
    pub token: Token,
    /// Whom to tell.
    pub lane: ActorRef<LaneMsg>,
    /// Nobody else works in the folder while this is held.
    pub folder: OwnedSemaphorePermit,
    /// What is called.
    pub work: Work,
    /// Time limits.
    pub limits: Limits,
}

/// What is called.
pub enum Work {
    /// A process.
    Process {
        /// It waits.
        prepared: Box<Prepared>,
        /// What it becomes, and who reads it.
        ask: Box<ProcessAsk>,
    },
    /// A script, in process.
    Rehearsal(Box<Rehearsal>),
    /// Nothing: it could not even be asked for.
    Failed(StartFailure),
}

/// A call in flight.
pub struct Provider {
    token: Token,
    lane: ActorRef<LaneMsg>,
    started: Instant,
    vital_signs: VitalSigns,
    /// To the warden; dropped with the actor, which ends the tree.
    warden: mpsc::Sender<Duration>,
    /// The first reason for which we ended it.
    ended_by: Option<OurReason>,
    output: Option<Heard>,
    end: Option<TreeEnd>,
    stop: Option<PumpStop>,
}

/// Part of a call has ended.
pub enum Part {
    /// Nothing of its process tree is left.
    Tree(TreeEnd),
    /// All of its output has been read.
    Output(Heard),
    /// A script hangs: nothing happens until the call is ended.
    Hangs,
    /// A sample of the process tree.
    Sample(crate::process::TreeUsage),
}

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Part::Tree(_) => "Tree",
            Part::Output(_) => "Output",
            Part::Hangs => "Hangs",
            Part::Sample(_) => "Sample",
        })
    }
}

/// The end of a call's process tree.
#[derive(Debug)]
pub struct TreeEnd {
    /// How the program ended, or why it never ran.
    pub exit: Result<Exit, StartFailure>,
    /// Processes that it left behind, which were ended.
    pub strays: u32,
}

/// What was heard, before it is known how the call ended.
pub enum Heard {
    /// A process's output.
    Lines(Box<dyn Decoder>),
    /// A script's steps.
    Steps(Performance),
    /// Nothing: it never ran.
    Nothing,
}

/// Takes lines on the pump's thread.
struct Sink {
    decoder: Box<dyn Decoder>,
    seen: Arc<Seen>,
}

// === impl ProviderActor ===

impl Actor for ProviderActor {
    type Msg = ProviderMsg;
    type State = Provider;
    type Arguments = ProviderArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<ProviderMsg>,
        args: ProviderArgs,
    ) -> Result<Provider, ActorProcessingErr> {
        let ProviderArgs { token, lane, folder, work, limits } = args;
        let (warden, orders) = mpsc::channel(4);
        let activity = Arc::new(Activity::new());
        let seen = Arc::new(Seen::default());
        let look = limits.shortest().map_or(LOOK, |shortest| (shortest / 4).clamp(LOOK / 500, LOOK));
        let mut provider = Provider {
            token,
            lane,
            started: Instant::now(),
            vital_signs: VitalSigns::new(limits, activity.clone(), seen.clone()),
            warden,
            ended_by: None,
            output: None,
            end: None,
            stop: None,
        };
        match work {
            Work::Process { prepared, ask } => match begin(*prepared, &ask.spec) {
                Ok((output, call, stop, signal)) => {
                    let ProcessAsk { decoder, log, max_line, .. } = *ask;
                    let sink = Sink { decoder, seen };
                    provider.stop = Some(stop);
                    read(output, sink, log, max_line, activity, signal, myself.clone());
                    let call = Arc::new(call);
                    provider.vital_signs.watch(&call);
                    tokio::spawn(warden_of(call, orders, folder, myself.clone()));
                }
                Err(error) => provider.never_ran(failure(&error)),
            },
            Work::Rehearsal(rehearsal) => {
                tokio::spawn(play(*rehearsal, orders, folder, myself.clone()));
            }
            Work::Failed(failure) => provider.never_ran(failure),
        }
        myself.send_interval(look, || ProviderMsg::Look);
        Ok(provider)
    }

    async fn post_start(
        &self,
        myself: ActorRef<ProviderMsg>,
        state: &mut Provider,
    ) -> Result<(), ActorProcessingErr> {
        state.report_when_over(&myself);
        Ok(())
    }

    async fn handle(
        &self,
        myself: ActorRef<ProviderMsg>,
        message: ProviderMsg,
        state: &mut Provider,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ProviderMsg::End { grace, why: _ } => state.end(OurReason::Stop, grace),
            ProviderMsg::Look => state.look(&myself),
            ProviderMsg::Part(part) => match *part {
                Part::Tree(end) => {
                    // Nobody of the call is left to write: a pipe that is still open is somebody else's.
                    if let Some(stop) = state.stop.take() {
                        stop.stop();
                    }
                    state.end = Some(end);
                }
                Part::Output(heard) => state.output = Some(heard),
                Part::Hangs => state.vital_signs.hangs(),
                Part::Sample(usage) => {
                    if let Some(sign) = state.vital_signs.sampled(usage) {
                        state.give_up(sign);
                    }
                }
            },
            #[cfg(debug_assertions)]
            ProviderMsg::Crash => panic!("asked to crash"),
        }
        state.report_when_over(&myself);
        Ok(())
    }
}

// === impl Provider ===

impl Provider {
    fn never_ran(&mut self, failure: StartFailure) {
        self.output = Some(Heard::Nothing);
        self.vital_signs.over();
        self.end = Some(TreeEnd { exit: Err(failure), strays: 0 });
    }

    fn look(&mut self, myself: &ActorRef<ProviderMsg>) {
        match self.vital_signs.look() {
            Sign::Well => {}
            Sign::Sample(call) => {
                let myself = myself.clone();
                tokio::task::spawn_blocking(move || {
                    // An actor that is gone needs no sample.
                    let _ = myself.cast(ProviderMsg::Part(Box::new(Part::Sample(call.tree_usage()))));
                });
            }
            sign => self.give_up(sign),
        }
    }

    fn give_up(&mut self, sign: Sign) {
        if let Some((reason, grace)) = sign.ends() {
            self.end(reason, grace);
        }
    }

    fn end(&mut self, reason: OurReason, grace: Duration) {
        self.ended_by.get_or_insert(reason);
        // Full: an end is under way already.
        let _ = self.warden.try_send(grace);
    }

    fn report_when_over(&mut self, myself: &ActorRef<ProviderMsg>) {
        if self.end.is_none() || self.output.is_none() {
            return;
        }
        let (Some(ended), Some(heard)) = (self.end.take(), self.output.take()) else { return };
        self.vital_signs.over();
        let strays = ended.strays;
        let end = CallEnd { exit: ended.exit, ended_by: self.ended_by };
        let said = match heard {
            Heard::Lines(decoder) => Said::Decoded(Box::new(decoder.finish(&end))),
            Heard::Steps(performance) => Said::Played(performance),
            Heard::Nothing => Said::Nothing,
        };
        let duration_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let report = ProviderReport { token: self.token, said, end, duration_ms, strays };
        // A lane that died meanwhile has closed the attempt as lost.
        let _ = self.lane.cast(LaneMsg::CallEnded(Box::new(report)));
        myself.stop(None);
    }
}

fn begin(prepared: Prepared, spec: &CallSpec) -> Result<(Output, Call, PumpStop, StopSignal), ProcessError> {
    let (stop, signal) = PumpStop::pair().map_err(ProcessError::HandOver)?;
    let (output, call) = prepared.start(spec)?;
    Ok((output, call, stop, signal))
}

fn failure(error: &ProcessError) -> StartFailure {
    StartFailure::Other(error.to_string())
}

fn failure_of(failure: crate::process::StartFailure) -> StartFailure {
    use crate::process::StartFailure as Process;
    let name = |program: std::path::PathBuf| program.display().to_string();
    match failure {
        Process::NotFound { program } => StartFailure::NotFound(name(program)),
        Process::InterpreterNotFound { program } | Process::NotAProgram { program } => {
            StartFailure::BadFormat(name(program))
        }
        Process::NotExecutable { program } => StartFailure::NotExecutable(name(program)),
        Process::TooLong { program } => StartFailure::TooLong(name(program)),
        Process::Folder { cwd, .. } => StartFailure::Folder(name(cwd)),
        other => StartFailure::Other(other.to_string()),
    }
}

fn read(
    output: Output,
    mut sink: Sink,
    mut log: AttemptLog,
    max_line: usize,
    activity: Arc<Activity>,
    stop: StopSignal,
    myself: ActorRef<ProviderMsg>,
) {
    tokio::task::spawn_blocking(move || {
        // Fails again with the first byte, and is told then.
        let _ = log.open();
        let pumped = pump(output, max_line, &mut sink, Some(&mut log as &mut dyn RawLog), &activity, &stop);
        if let Some(error) = pumped.log_error {
            tracing::warn!(%error, "the attempt's log is not complete");
        }
        if let Err(error) = log.finish() {
            tracing::warn!(%error, "the attempt's log is not complete");
        }
        // An actor that died has no use for it.
        let _ = myself.cast(ProviderMsg::Part(Box::new(Part::Output(Heard::Lines(sink.decoder)))));
    });
}

/// Waits for the end of the tree and obeys; ends it when the actor is gone.
async fn warden_of(
    call: Arc<Call>,
    mut orders: mpsc::Receiver<Duration>,
    folder: OwnedSemaphorePermit,
    provider: ActorRef<ProviderMsg>,
) {
    let mut orphaned = false;
    let ended = loop {
        tokio::select! {
            ended = call.ended() => break ended,
            order = orders.recv(), if !orphaned => match order {
                Some(grace) => call.terminate(grace),
                None => {
                    orphaned = true;
                    call.terminate(Duration::from_secs(1));
                }
            },
        }
    };
    drop(folder);
    let end = TreeEnd { exit: ended.exit.map_err(failure_of), strays: ended.strays };
    // An actor that died has no use for it.
    let _ = provider.cast(ProviderMsg::Part(Box::new(Part::Tree(end))));
}

// === impl Sink ===

impl LineSink for Sink {
    fn line(&mut self, stream: crate::process::Stream, line: Line<'_>) {
        let stream = match stream {
            crate::process::Stream::Stdout => Stream::Stdout,
            crate::process::Stream::Stderr => Stream::Stderr,
        };
        match line {
            Line::Whole(bytes) => self.decoder.line(stream, bytes, false),
            Line::TooLong { head, .. } => self.decoder.line(stream, head, true),
        }
        for fact in self.decoder.facts() {
            match fact {
                Fact::Terminal => self.seen.terminal.store(true, Relaxed),
                // It goes on, after a compaction or for its own reasons.
                Fact::Said(_) => {
                    self.seen.terminal.store(false, Relaxed);
                    self.seen.goes_on();
                }
                Fact::Retrying { .. } => self.seen.retries(),
                Fact::Tool(_) => {
                    self.seen.terminal.store(false, Relaxed);
                    self.seen.goes_on();
                    self.seen.tools.fetch_add(1, Relaxed);
                }
                _ => {}
            }
        }
    }
}
