//! Gates: runs checks with time limits, one after the other, each as a process tree of its own.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::mpsc;

use super::context::ProjectCtx;
use crate::config::{Gate, GateCommand};
use crate::domain::ids::Token;
use crate::domain::session::{GateReport, Input};
use crate::domain::state::GateResult;
use crate::intake::gates::gates_of;
use crate::messages::gates::GatesMsg;
use crate::messages::session::SessionMsg;
use crate::process::{CallSpec, GateLimits, run_gate};

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
        state.ctx.slots.session.cast(SessionMsg::Input(Box::new(Input::GatesLost)));
        Ok(())
    }

    async fn handle(
        &self,
        myself: ActorRef<GatesMsg>,
        message: GatesMsg,
        state: &mut Gates,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            // Asked twice: by a session that had not heard yet, and by one that had heard, of a restart.
            GatesMsg::Run { token, .. } if state.run.as_ref().is_some_and(|run| run.token == token) => {}
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
            reports.extend(run.left.drain(..).map(|gate| GateReport::cancelled(gate.name)));
            self.run = None;
            let input = Input::GatesEnded { token, reports };
            return self.ctx.slots.session.cast(SessionMsg::Input(Box::new(input)));
        };
        let (end, ending) = mpsc::channel(2);
        run.end = end;
        let (token, iteration) = (run.token, run.iteration);
        let (ctx, myself) = (self.ctx.clone(), myself.clone());
        let ran = tokio::spawn(async move {
            match &ctx.keeper {
                Some(keeper) => {
                    let limits = GateLimits { time: gate.timeout, grace: ctx.config().stop.grace };
                    run_gate(keeper, &gate.name, &spec(&ctx, &gate, iteration), limits, ending).await
                }
                None => GateReport {
                    result: GateResult::CouldNotRun,
                    tail: "no processes in a simulation".to_owned(),
                    ..GateReport::cancelled(gate.name.clone())
                },
            }
        });
        tokio::spawn(async move {
            match ran.await {
                // An actor that died has a successor that is asked again.
                Ok(report) => drop(myself.cast(GatesMsg::Ended { token, report: Box::new(report) })),
                Err(error) => myself.stop(Some(format!("a gate's task ended early: {error}"))),
            }
        });
    }
}

/// What a gate is started with.
fn spec(ctx: &ProjectCtx, gate: &Gate, iteration: u64) -> CallSpec {
    let mut env = ctx.env.clone();
    env.extend(super::lane::marks(ctx, iteration, 0));
    gate_spec(gate, env, &ctx.paths.root)
}

/// What a gate is started with, in the folder `root`. Its own variables come on top of `env`.
pub fn gate_spec(gate: &Gate, mut env: BTreeMap<OsString, OsString>, root: &Path) -> CallSpec {
    let argv: Vec<OsString> = match &gate.command {
        GateCommand::Argv(words) => words.iter().map(OsString::from).collect(),
        GateCommand::Shell(line) => ["/bin/sh", "-c", line].iter().map(OsString::from).collect(),
    };
    env.extend(gate.env.iter().map(|(k, v)| (OsString::from(k), OsString::from(v))));
    CallSpec { argv, env: env.into_iter().collect(), cwd: root.to_owned(), stdin: Vec::new() }
}
