//! Lane: one iteration at a time. It readies the next call while one is in flight, builds the prompt, owns the
//! call, and looks at the tree when it has ended.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::OwnedSemaphorePermit;

use super::context::ProjectCtx;
use super::prompting::{self, Ask};
use super::provider::{ProviderActor, ProviderArgs, Work};
use crate::domain::claim::Claim;
use crate::domain::ids::{LaneId, MessageId, Token};
use crate::domain::outcome::{Outcome, Verdict};
use crate::domain::session::{AttemptReport, EndReason, Input};
use crate::domain::state::checkpoint_ref;
use crate::messages::lane::{Go, LaneMsg};
use crate::messages::provider::{ProviderMsg, ProviderReport, Said};
use crate::messages::repo::{RepoMsg, TreeNow};
use crate::messages::session::SessionMsg;
use crate::process::Prepared;
use crate::providers::call::{CallEnd, StartFailure};
use crate::providers::classify::{classify, not_started};
use crate::providers::definition::Definition;

/// Longest answer that is kept in the journal, characters.
const ANSWER_KEPT: usize = 2000;

/// How long reading the tree may take before the iteration ends without one.
const LOOK_LIMIT: std::time::Duration = std::time::Duration::from_secs(600);

/// The next call's process is asked for this long after a call has begun, so that the two do not share the CPU.
const AHEAD: std::time::Duration = std::time::Duration::from_millis(2);

/// The actor.
pub struct LaneActor;

/// What it starts from.
pub struct LaneArgs {
    /// Which.
    pub id: LaneId,
    /// The project.
    pub ctx: Arc<ProjectCtx>,
}

/// What it works with.
pub struct Lane {
    ctx: Arc<ProjectCtx>,
    next: Next,
    /// The session wants to hear when the next call's process is there.
    asked: bool,
    call: Option<InFlight>,
    /// An attempt that has ended, and waits for the next call's process to be there: its id belongs to the report.
    done: Option<Box<AttemptReport>>,
}

/// The process of the next call.
enum Next {
    None,
    Coming,
    Here(Box<Prepared>),
}

/// An attempt in flight.
struct InFlight {
    token: Token,
    provider: Option<ActorRef<ProviderMsg>>,
    /// Ended before it had begun.
    end: Option<(EndReason, std::time::Duration)>,
    definition: Arc<Definition>,
    messages: Vec<MessageId>,
    tree_before: Option<String>,
}

/// The process of the next call is there, or why not.
#[derive(Debug)]
pub struct PreparedCall(Result<Prepared, String>);

/// A prompt that is built.
pub struct Prompted {
    go: Go,
    ask: Ask,
    folder: OwnedSemaphorePermit,
}

impl std::fmt::Debug for Prompted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prompted").field("go", &self.go).finish_non_exhaustive()
    }
}

/// What a call may have left beside its answer.
#[derive(Debug, Default)]
struct Left {
    /// The text of the file that claims completion.
    claim: Option<String>,
    /// A person, or the call, has changed the settings.
    settings_changed: bool,
    /// Whose conversation it was, where it may be gone on with.
    conversation_home: Option<String>,
}

/// The tree after a call, and the claim that was left in a file.
#[derive(Debug)]
pub struct Looked {
    report: Box<ProviderReport>,
    tree: TreeNow,
    /// The text of `claims/done`.
    claim: Option<String>,
    /// Whose conversation it was, where it may be gone on with.
    conversation_home: Option<String>,
}

// === impl Left ===

impl Left {
    fn look(ctx: &ProjectCtx, definition: &Definition) -> Self {
        let resumes = ctx.config().run.resume_conversation;
        Left {
            conversation_home: resumes.then(|| prompting::conversation_home(ctx, definition)),
            claim: prompting::read_claim(&ctx.paths.claims.join("done")),
            settings_changed: ctx.settings_changed(),
        }
    }
}

// === impl LaneActor ===

impl Actor for LaneActor {
    type Msg = LaneMsg;
    type State = Lane;
    type Arguments = LaneArgs;

    async fn pre_start(&self, _: ActorRef<LaneMsg>, args: LaneArgs) -> Result<Lane, ActorProcessingErr> {
        Ok(Lane { ctx: args.ctx, next: Next::None, asked: false, call: None, done: None })
    }

    async fn handle(
        &self,
        myself: ActorRef<LaneMsg>,
        message: LaneMsg,
        state: &mut Lane,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            LaneMsg::Prepare { chain } => state.prepare_for(&chain, &myself),
            LaneMsg::Prepared(prepared) => state.prepared(prepared.0),
            LaneMsg::Go(go) => state.go(go, &myself),
            LaneMsg::Prompted(prompted) => state.begin(*prompted, &myself).await?,
            LaneMsg::End { why, grace } => state.end(why, grace),
            LaneMsg::CallEnded(report) => state.look(report, &myself),
            LaneMsg::Looked(looked) => state.judge(*looked),
            #[cfg(debug_assertions)]
            LaneMsg::Crash => panic!("asked to crash"),
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<LaneMsg>,
        event: SupervisionEvent,
        state: &mut Lane,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            // The call's actor has died, and the tree dies of that. A clean end has reported before.
            SupervisionEvent::ActorFailed(cell, error) => state.call_lost(&cell, error.to_string()),
            // Without a reason it stopped by itself, after its report: that is in the mailbox, behind this event.
            SupervisionEvent::ActorTerminated(cell, _, Some(reason)) => state.call_lost(&cell, reason),
            _ => {}
        }
        Ok(())
    }
}

// === impl Lane ===

impl Lane {
    fn tell(&self, input: Input) {
        self.ctx.slots.session.cast(SessionMsg::Input(Box::new(input)));
    }

    // --- the next call's process ---

    fn prepare_for(&mut self, chain: &[String], myself: &ActorRef<LaneMsg>) {
        if !self.may_need_process(chain) {
            return self.tell(Input::Ready(None));
        }
        self.asked = true;
        match &self.next {
            Next::Here(_) => self.ready(),
            Next::Coming => {}
            Next::None => self.prepare(std::time::Duration::ZERO, myself),
        }
    }

    fn may_need_process(&self, chain: &[String]) -> bool {
        let process = |name: &String| self.ctx.providers.definition(name).is_none_or(|d| !d.in_process());
        self.ctx.keeper.is_some() && chain.iter().any(process)
    }

    fn prepare(&mut self, delay: std::time::Duration, myself: &ActorRef<LaneMsg>) {
        if self.ctx.keeper.is_none() || !matches!(self.next, Next::None) {
            return;
        }
        self.next = Next::Coming;
        let (ctx, myself) = (self.ctx.clone(), myself.clone());
        tokio::spawn(async move {
            let Some(keeper) = &ctx.keeper else { return };
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            let prepared = keeper.prepare().await.map_err(|error| error.to_string());
            // A lane that died meanwhile has a successor; dropping the message ends the process.
            let _ = myself.cast(LaneMsg::Prepared(Box::new(PreparedCall(prepared))));
        });
    }

    fn prepared(&mut self, prepared: Result<Prepared, String>) {
        self.next = match prepared {
            Ok(prepared) => Next::Here(Box::new(prepared)),
            Err(error) => {
                tracing::error!(%error, "cannot ready the next call");
                Next::None
            }
        };
        if let Some(mut report) = self.done.take() {
            report.next = self.next_id();
            self.tell(Input::AttemptEnded(report));
        }
        if self.asked {
            match self.next {
                Next::Here(_) => self.ready(),
                _ => self.tell(Input::NotReady { cause: "no process could be started".to_owned() }),
            }
        }
    }

    fn ready(&mut self) {
        self.asked = false;
        self.tell(Input::Ready(self.next_id()));
    }

    fn next_id(&self) -> Option<(u32, u64)> {
        match &self.next {
            Next::Here(prepared) => Some((prepared.id().pid, prepared.id().start_time)),
            _ => None,
        }
    }

    // --- the call ---

    fn go(&mut self, go: Go, myself: &ActorRef<LaneMsg>) {
        let state = self.ctx.state();
        let Some(definition) = self.ctx.providers.definition(&go.provider) else {
            let cause = format!("no provider `{}`", go.provider);
            return self.tell(Input::LaneLost { token: Some(go.token), cause });
        };
        if let Some(provider) = self.call.take().and_then(|call| call.provider) {
            // The session gave its attempt up: its tree ends with its actor.
            provider.kill();
        }
        self.call = Some(InFlight {
            token: go.token,
            provider: None,
            end: None,
            definition,
            messages: Vec::new(),
            tree_before: state.session.as_ref().and_then(|s| s.tree.clone()),
        });
        let (ctx, myself) = (self.ctx.clone(), myself.clone());
        tokio::spawn(async move {
            let build = {
                let (ctx, go, state) = (ctx.clone(), go.clone(), state.clone());
                move || prompting::ask(&ctx, &go, &state)
            };
            // A hop to another thread takes longer than what is mostly to be done.
            let ask = if prompting::is_quick(&ctx, &state) {
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(build))
                    .map_err(|_| "it panicked".to_owned())
            } else {
                tokio::task::spawn_blocking(build).await.map_err(|error| error.to_string())
            };
            let ask = match ask {
                Ok(ask) => ask,
                Err(error) => return myself.stop(Some(format!("building the prompt ended early: {error}"))),
            };
            // What an earlier call of this folder has left must be gone before this one works.
            let Ok(folder) = ctx.folder.clone().acquire_owned().await else { return };
            // A lane that died meanwhile has closed the attempt as lost.
            let _ = myself.cast(LaneMsg::Prompted(Box::new(Prompted { go, ask, folder })));
        });
    }

    async fn begin(
        &mut self,
        prompted: Prompted,
        myself: &ActorRef<LaneMsg>,
    ) -> Result<(), ActorProcessingErr> {
        let Prompted { go, ask, folder } = prompted;
        let in_process = matches!(ask.work, prompting::AskWork::Rehearsal(_));
        let Some(call) = self.call.as_mut().filter(|call| call.token == go.token) else { return Ok(()) };
        call.messages.clone_from(&ask.messages);
        let end = call.end;
        let next = if in_process { Next::None } else { std::mem::replace(&mut self.next, Next::None) };
        let prepared = match next {
            Next::Here(prepared) => Some(prepared),
            _ => None,
        };
        let args = ProviderArgs {
            token: go.token,
            lane: myself.clone(),
            folder,
            work: work(ask.work, prepared),
            limits: ask.limits,
        };
        let (provider, _) = Actor::spawn_linked(None, ProviderActor, args, myself.get_cell()).await?;
        if let Some((why, grace)) = end {
            // Its mailbox cannot be closed yet.
            let _ = provider.cast(ProviderMsg::End { why, grace });
        }
        if let Some(call) = &mut self.call {
            call.provider = Some(provider);
        }
        if !in_process {
            self.prepare(AHEAD, myself);
        }
        Ok(())
    }

    fn end(&mut self, why: EndReason, grace: std::time::Duration) {
        let Some(call) = &mut self.call else { return };
        match &call.provider {
            // A call that has just ended says so by itself.
            Some(provider) => drop(provider.cast(ProviderMsg::End { why, grace })),
            None => call.end = Some((why, grace)),
        }
    }

    fn call_lost(&mut self, cell: &ractor::ActorCell, cause: String) {
        let lost = self.call.as_ref().and_then(|call| call.provider.as_ref());
        if lost.is_some_and(|provider| provider.get_id() == cell.get_id()) {
            let token = self.call.take().map(|call| call.token);
            self.tell(Input::LaneLost { token, cause: format!("the provider actor died: {cause}") });
        }
    }

    // --- after the call ---

    fn look(&mut self, report: Box<ProviderReport>, myself: &ActorRef<LaneMsg>) {
        let Some(call) = self.call.as_mut().filter(|call| call.token == report.token) else { return };
        // From here on its actor may go.
        call.provider = None;
        let definition = call.definition.clone();
        let (ctx, myself) = (self.ctx.clone(), myself.clone());
        tokio::spawn(async move {
            let left = async {
                match ctx.is_local() {
                    // Most often there is nothing, which takes microseconds to find out.
                    true => Left::look(&ctx, &definition),
                    false => {
                        let ctx = ctx.clone();
                        let look = move || Left::look(&ctx, &definition);
                        tokio::task::spawn_blocking(look).await.unwrap_or_default()
                    }
                }
            };
            let tree = ctx.slots.repo.call("the repository", LOOK_LIMIT, RepoMsg::Snapshot);
            let (Left { claim, settings_changed, conversation_home }, tree) = tokio::join!(left, tree);
            if settings_changed {
                let reader = ctx.clone();
                if let Ok(files) = tokio::task::spawn_blocking(move || reader.read_settings()).await {
                    // Before the attempt's end, so that they are in force at the next iteration.
                    ctx.slots.session.cast(SessionMsg::Reread(Box::new(files)));
                }
            }
            let tree = tree.unwrap_or(TreeNow { tree: None, git: false });
            // A lane that died meanwhile has closed the attempt as lost.
            let _ = myself.cast(LaneMsg::Looked(Box::new(Looked { report, tree, claim, conversation_home })));
        });
    }

    fn judge(&mut self, looked: Looked) {
        let Looked { report, tree, claim, conversation_home } = looked;
        let Some(call) = self.call.take_if(|call| call.token == report.token) else { return };
        let changed = tree.tree.is_some() && tree.tree != call.tree_before;
        let told = self.told(&call.definition, &report, changed);
        let verdict = with_claim(told.verdict, claim.is_some());
        let completed = verdict.outcome.ends_iteration();
        let claimed = match claim {
            Some(text) => Some(("file".to_owned(), clip(text.trim(), ANSWER_KEPT))),
            None if told.claim == Some(Claim::Done) => {
                Some(("line".to_owned(), clip(told.answer.trim(), ANSWER_KEPT)))
            }
            None => None,
        };
        let blocked = match told.claim {
            Some(Claim::Blocked { why }) => Some(why),
            _ => None,
        };
        let state = self.ctx.state();
        let (session, number) = state.session.as_ref().map_or((None, 0), |s| (Some(s.id), s.iteration));
        let resumes =
            state.session.as_ref().and_then(|s| s.open.as_ref()).and_then(|open| open.resumes.clone());
        let resumed = resumes.map(|id| told.conversation.as_deref() == Some(id.as_str()));
        let verdict = with_resumption(verdict, resumed);
        let reference = session.filter(|_| tree.git).map(|id| checkpoint_ref(id, number));
        let has_conversation = told.conversation.is_some();
        let report = AttemptReport {
            token: report.token,
            verdict,
            usage: told.usage,
            exit: report.end.exit.as_ref().ok().copied(),
            duration_ms: report.duration_ms,
            conversation: told.conversation,
            conversation_usd: told.conversation_usd,
            conversation_home: conversation_home.filter(|_| has_conversation),
            resumed,
            tools: told.tools,
            answer: clip(told.answer.trim(), ANSWER_KEPT),
            strays: report.strays,
            messages: call.messages,
            claim: claimed.filter(|_| completed),
            blocked: blocked.filter(|_| completed),
            tree: tree.tree,
            reference,
            next: self.next_id(),
        };
        if matches!(self.next, Next::Coming) {
            self.done = Some(Box::new(report));
        } else {
            self.tell(Input::AttemptEnded(Box::new(report)));
        }
    }

    fn told(&self, definition: &Definition, report: &ProviderReport, changed: bool) -> Told {
        let CallEnd { ended_by, .. } = &report.end;
        match &report.said {
            Said::Decoded(transcript) => {
                let now = self.ctx.now().to_zoned_datetime(crate::clock::local_zone());
                let mut usage = transcript.usage;
                if usage.cost_usd.is_none() {
                    let config = self.ctx.config();
                    let asked = config.model_for(&definition.name);
                    let model = transcript.model.as_deref().or(asked).unwrap_or_default();
                    usage.cost_usd = definition.estimate_usd(model, &usage);
                }
                Told {
                    verdict: classify(definition, transcript, &report.end, changed, &now),
                    usage,
                    conversation: transcript.conversation.clone(),
                    conversation_usd: transcript.total_cost_usd,
                    tools: u32::try_from(transcript.tools_used).unwrap_or(u32::MAX),
                    answer: transcript.answer.clone(),
                    claim: transcript.reading.claim.clone(),
                }
            }
            Said::Nothing => Told {
                verdict: match &report.end.exit {
                    Err(failure) => not_started(failure, *ended_by),
                    Ok(_) => not_started(&StartFailure::Busy("the call".to_owned()), *ended_by),
                },
                usage: crate::domain::outcome::Usage::default(),
                conversation: None,
                conversation_usd: None,
                tools: 0,
                answer: String::new(),
                claim: None,
            },
            Said::Played(performance) => Told {
                verdict: performance.verdict(*ended_by, changed, self.ctx.now()),
                usage: performance.usage,
                conversation: None,
                conversation_usd: None,
                tools: u32::try_from(performance.tools_used).unwrap_or(u32::MAX),
                answer: performance.answer.clone(),
                claim: performance.claim.clone(),
            },
        }
    }
}

/// What a call said, of whatever kind it was.
struct Told {
    verdict: Verdict,
    usage: crate::domain::outcome::Usage,
    conversation: Option<String>,
    conversation_usd: Option<f64>,
    tools: u32,
    answer: String,
    claim: Option<Claim>,
}

fn work(ask: prompting::AskWork, prepared: Option<Box<Prepared>>) -> Work {
    match (ask, prepared) {
        (prompting::AskWork::Process(ask), Some(prepared)) => Work::Process { prepared, ask },
        (prompting::AskWork::Process(_), None) => Work::Failed(StartFailure::Busy("the call".to_owned())),
        (prompting::AskWork::Rehearsal(rehearsal), _) => Work::Rehearsal(rehearsal),
        (prompting::AskWork::Failed(failure), _) => Work::Failed(failure),
    }
}

/// A claim left in a file is as good as one in the answer.
fn with_claim(mut verdict: Verdict, claimed: bool) -> Verdict {
    if let Outcome::Completed { claims_done, .. } = &mut verdict.outcome {
        *claims_done |= claimed;
    }
    verdict
}

/// A conversation that was to go on and has not is something to know: the agent began without its memory.
fn with_resumption(mut verdict: Verdict, resumed: Option<bool>) -> Verdict {
    if resumed == Some(false) && verdict.outcome.ends_iteration() && verdict.warning.is_none() {
        verdict.warning =
            Some("it did not go on with the last conversation, but began a fresh one".to_owned());
    }
    verdict
}

/// The first characters of `text`.
fn clip(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// What every process of ours carries, so that it can be found again after a crash.
pub(super) fn marks(ctx: &ProjectCtx, iteration: u64, attempt: u32) -> BTreeMap<OsString, OsString> {
    let session = ctx.state().session.as_ref().map(|s| s.id.to_string()).unwrap_or_default();
    let pairs = [
        ("LONGHAUL_PROJECT", ctx.paths.root.clone().into_os_string()),
        ("LONGHAUL_SESSION", session.into()),
        ("LONGHAUL_LANE", "1".into()),
        ("LONGHAUL_ITERATION", iteration.to_string().into()),
        ("LONGHAUL_ATTEMPT", attempt.to_string().into()),
    ];
    pairs.into_iter().map(|(key, value)| (OsString::from(key), value)).collect()
}
