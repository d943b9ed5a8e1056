//! Session: drives the state machine of the run, and owns the lane.
//!
//! One commit at a time: what a decision asks for is done in order, and the next input is looked at when the last
//! decision has been carried out.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ractor::concurrency::JoinHandle;
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio_util::task::AbortOnDropHandle;

use super::context::ProjectCtx;
use super::credential::CredentialWatch;
use super::lane::{LaneActor, LaneArgs};
use super::reach::reach;
use super::supervision::{ChildSpec, Children, Fallen, Strategy};
use super::survey::{self, Survey};
use crate::domain::accounts::Admission;
use crate::domain::event::{Body, Draft};
use crate::domain::ids::{IdSource, LaneId};
use crate::domain::ledger::Reservation;
use crate::domain::outcome::Outcome;
use crate::domain::reach::Reach;
use crate::domain::session::{Action, Input, Machine, Signals};
use crate::domain::state::Account;
use crate::messages::Slot;
use crate::messages::accounts::{AccountsMsg, Admit, Admitted};
use crate::messages::disk::DiskMsg;
use crate::messages::gates::GatesMsg;
use crate::messages::lane::{Go, LaneMsg};
use crate::messages::project::ProjectMsg;
use crate::messages::repo::RepoMsg;
use crate::messages::session::{CommitFailed, SessionMsg};
use crate::messages::signals::SignalsMsg;
use crate::messages::store::Committed;

/// How long an answer of a neighbour may take that only computes.
const ANSWER: Duration = Duration::from_secs(10);

/// How long reading the tree for checkpoint 0 may take: a large repository is hashed whole.
const FIRST_TREE: Duration = Duration::from_secs(3600);

/// Between two tries of a commit that found no room.
const RETRY_COMMIT: Duration = Duration::from_secs(1);

/// The actor.
pub struct SessionActor;

/// What it starts from.
pub struct SessionArgs {
    /// The project.
    pub ctx: Arc<ProjectCtx>,
    /// Whom to tell that the run is over.
    pub project: ActorRef<ProjectMsg>,
}

/// What it works with.
pub struct SessionState {
    ctx: Arc<ProjectCtx>,
    project: ActorRef<ProjectMsg>,
    children: Children,
    lane: Slot<LaneMsg>,
    machine: Option<Machine>,
    /// Needed for the first step: what was read, and the signal files.
    surveyed: Option<Survey>,
    signals: Option<Signals>,
    /// Inputs that wait until the last decision has been carried out.
    inputs: VecDeque<Input>,
    /// What the last decision asks for, still to be done.
    todo: VecDeque<Action>,
    /// A commit is under way: the batch, to be sent again if it found no room.
    committing: Option<Vec<Draft>>,
    /// The last commit found no room.
    stuck: bool,
    /// See [`ProjectCtx::take_over`].
    incarnation: u64,
    commit: Option<AbortOnDropHandle<()>>,
    /// STOP is being removed.
    consumed: Option<JoinHandle<()>>,
    credential: CredentialWatch,
    timer: Option<JoinHandle<Result<(), ractor::MessagingErr<SessionMsg>>>>,
    config: super::reload::Reload,
    ended: bool,
}

/// What is read before the first step.
#[derive(Debug)]
pub struct Surveyed {
    incarnation: u64,
    survey: Survey,
}

/// A question to the accounts.
struct Question {
    ask: u64,
    chain: Vec<String>,
    active: usize,
    known: BTreeMap<String, Account>,
    lost: bool,
    money: Option<Box<Reservation>>,
}

// === impl SessionActor ===

impl Actor for SessionActor {
    type Msg = SessionMsg;
    type State = SessionState;
    type Arguments = SessionArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<SessionMsg>,
        args: SessionArgs,
    ) -> Result<SessionState, ActorProcessingErr> {
        let SessionArgs { ctx, project } = args;
        let lane = Slot::default();
        let mut children = Children::new(
            Strategy::OneForOne,
            ctx.intensity(),
            super::RESTART_BACKOFF,
            ctx.rng(),
            vec![lane_spec(ctx.clone(), lane.clone())],
        );
        children.start_all(&myself.get_cell()).await?;
        let config = super::reload::Reload::new(&ctx);
        Ok(SessionState {
            ctx,
            project,
            children,
            lane,
            machine: None,
            surveyed: None,
            signals: None,
            inputs: VecDeque::new(),
            todo: VecDeque::new(),
            committing: None,
            stuck: false,
            incarnation: 0,
            commit: None,
            consumed: None,
            timer: None,
            credential: CredentialWatch::default(),
            config,
            ended: false,
        })
    }

    async fn post_start(
        &self,
        myself: ActorRef<SessionMsg>,
        state: &mut SessionState,
    ) -> Result<(), ActorProcessingErr> {
        let ctx = state.ctx.clone();
        ctx.slots.session.fill(myself.clone());
        ctx.slots.signals.cast(SignalsMsg::Repeat);
        // What a session that died had asked for: its gates end, and what is low on space is told anew.
        ctx.slots.gates.cast(GatesMsg::End { grace: ctx.config().stop.grace });
        ctx.slots.disk.cast(ctx.disk_watch());
        tokio::spawn(survey_and_tell(ctx.clone(), myself.clone()));
        tokio::spawn(first_tree(ctx, myself));
        Ok(())
    }

    async fn handle(
        &self,
        myself: ActorRef<SessionMsg>,
        message: SessionMsg,
        state: &mut SessionState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            SessionMsg::Input(input) => state.input(*input, &myself),
            SessionMsg::Begun(surveyed) => {
                let Surveyed { incarnation, survey } = *surveyed;
                state.incarnation = incarnation;
                state.surveyed = Some(survey);
                state.begin_when_ready(&myself);
            }
            SessionMsg::Timer(generation) => state.input(Input::Timer(generation), &myself),
            SessionMsg::Committed(done) => state.committed(done, &myself)?,
            SessionMsg::RetryCommit => state.commit_again(&myself),
            SessionMsg::ConfigHint => state.config.hint(&state.ctx, &myself),
            SessionMsg::Reread(reread) => {
                for input in state.config.take(&state.ctx, *reread) {
                    state.input(input, &myself);
                }
            }
            SessionMsg::RestartLane => {
                if let Err((_, error)) = state.children.restart(0, &myself.get_cell()).await {
                    return Err(error.into());
                }
                state.input(Input::Nudge, &myself);
            }
            #[cfg(debug_assertions)]
            SessionMsg::CrashLane => state.lane.cast(LaneMsg::Crash),
            #[cfg(debug_assertions)]
            SessionMsg::Crash => panic!("asked to crash"),
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<SessionMsg>,
        event: SupervisionEvent,
        state: &mut SessionState,
    ) -> Result<(), ActorProcessingErr> {
        match state.children.fallen(&event) {
            Fallen::Nothing => {}
            Fallen::Restart { after, cause, restarts, .. } => {
                state.lane.clear();
                let actor = "lane".to_owned();
                let restarted =
                    state.ctx.draft(Body::ActorRestarted { actor, cause: cause.clone(), restarts });
                super::note(&state.ctx, vec![restarted]);
                myself.send_after(after, || SessionMsg::RestartLane);
                state.lane_lost(&cause, &myself);
            }
            Fallen::GiveUp { name, cause } => {
                return Err(format!("{name} died too often, the last time of: {cause}").into());
            }
        }
        Ok(())
    }
}

// === impl SessionState ===

impl SessionState {
    fn input(&mut self, input: Input, myself: &ActorRef<SessionMsg>) {
        if self.machine.is_none() {
            return self.before_the_first_step(input, myself);
        }
        if self.stuck && matches!(&input, Input::Signals(signals) if signals.stop.is_some()) {
            return self.stop_without_saving();
        }
        if let Input::AttemptEnded(report) = &input
            && report.verdict.outcome == Outcome::AuthFailed
        {
            self.credential.refused(&self.ctx);
        }
        self.inputs.push_back(input);
        self.go_on(myself);
    }

    // --- the first step ---

    fn before_the_first_step(&mut self, input: Input, myself: &ActorRef<SessionMsg>) {
        match input {
            Input::Signals(signals) => {
                self.signals = Some(signals);
                self.begin_when_ready(myself);
            }
            other => self.inputs.push_back(other),
        }
    }

    fn begin_when_ready(&mut self, myself: &ActorRef<SessionMsg>) {
        let (Some(signals), Some(_), None) = (&self.signals, &self.surveyed, &self.machine) else { return };
        let signals = signals.clone();
        let Some(survey) = self.surveyed.take() else { return };
        let (state, now) = (self.ctx.state(), self.ctx.now());
        let ids = IdSource::new(Some(self.ctx.rng().u64(..)));
        let mut machine = Machine::new(survey.rules, &state, ids, now);
        let actions = match survey.begin {
            Some(begin) => machine.begin(*begin, signals, &state, now),
            None => machine.recover(signals, &state, now),
        };
        self.machine = Some(machine);
        self.todo.extend(actions);
        // All that came so far is among them.
        self.inputs.retain(|input| !is_a_setting(input));
        let unsaved = self.ctx.unsaved.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.inputs.extend(unsaved);
        self.go_on(myself);
    }

    // --- one decision after the other ---

    fn go_on(&mut self, myself: &ActorRef<SessionMsg>) {
        self.work_off(myself);
        self.credential.follow(&self.ctx, myself);
    }

    fn work_off(&mut self, myself: &ActorRef<SessionMsg>) {
        loop {
            while self.committing.is_none() {
                let Some(action) = self.todo.pop_front() else { break };
                self.act(action, myself);
            }
            if self.committing.is_some() || self.ended {
                return;
            }
            let Some(input) = self.inputs.pop_front() else { return };
            let (state, now) = (self.ctx.state(), self.ctx.now());
            if let Some(machine) = &mut self.machine {
                self.todo.extend(machine.handle(input, &state, now));
            }
        }
    }

    fn act(&mut self, action: Action, myself: &ActorRef<SessionMsg>) {
        let slots = &self.ctx.slots;
        match action {
            Action::Commit(drafts) => {
                self.committing = Some(drafts.clone());
                self.commit(drafts, myself);
            }
            Action::Prepare => {
                let chain = self.machine.as_ref().and_then(Machine::session).map(|s| s.chain.clone());
                self.lane.cast(LaneMsg::Prepare { chain: chain.unwrap_or_default() });
            }
            Action::Admit { ask, chain, active, known, lost, money } => {
                let question = Question { ask, chain, active, known, lost, money };
                tokio::spawn(admit_and_tell(self.ctx.clone(), question, myself.clone()));
            }
            Action::Learned { account, lesson } => {
                slots.accounts.cast(AccountsMsg::Learned { account, lesson });
            }
            Action::Release { token } => slots.accounts.cast(AccountsMsg::Release { token }),
            Action::Book => slots.accounts.cast(AccountsMsg::Book),
            Action::Readmit { chain } => slots.accounts.cast(AccountsMsg::Readmit { chain }),
            Action::Go { token, iteration, attempt, provider } => {
                self.lane.cast(LaneMsg::Go(Go { token, iteration, attempt, provider }));
            }
            Action::EndCall { why, grace } => self.lane.cast(LaneMsg::End { why, grace }),
            Action::RunGates { token, names } => {
                let iteration = self.ctx.state().session.as_ref().map_or(0, |s| s.iteration);
                slots.gates.cast(GatesMsg::Run { token, iteration, names });
            }
            Action::EndGates { grace } => slots.gates.cast(GatesMsg::End { grace }),
            Action::Arm { at, generation } => {
                if let Some(timer) = self.timer.take() {
                    timer.abort();
                }
                let wait = self.ctx.clock.nap(at);
                self.timer = Some(myself.send_after(wait, move || SessionMsg::Timer(generation)));
            }
            Action::Checkpoint { number } => slots.repo.cast(RepoMsg::Checkpoint { number }),
            Action::ConsumeStop => {
                let signals = slots.signals.clone();
                self.consumed = Some(tokio::spawn(async move {
                    // A STOP that stays ends the next run as well, which is the safe side.
                    let _ = signals.call("signals", ANSWER, SignalsMsg::ConsumeStop).await;
                }));
            }
            Action::ConsumeResume => slots.signals.cast(SignalsMsg::ConsumeResume),
            Action::Exit(code) => {
                self.ended = true;
                let (project, consumed) = (self.project.clone(), self.consumed.take());
                tokio::spawn(async move {
                    if let Some(consumed) = consumed {
                        // It has no result that would matter.
                        let _ = consumed.await;
                    }
                    // A project that is gone takes us with it.
                    let _ = project.cast(ProjectMsg::Ended(code));
                });
            }
        }
    }

    /// What was still to be said to the lane that died is not said to the next one.
    fn lane_lost(&mut self, cause: &str, myself: &ActorRef<SessionMsg>) {
        self.todo
            .retain(|action| !matches!(action, Action::Prepare | Action::Go { .. } | Action::EndCall { .. }));
        self.input(Input::LaneLost { token: None, cause: format!("the lane died: {cause}") }, myself);
    }

    // --- commits ---

    fn committed(
        &mut self,
        done: Result<Box<Committed>, CommitFailed>,
        myself: &ActorRef<SessionMsg>,
    ) -> Result<(), ActorProcessingErr> {
        match done {
            Ok(_) => {
                self.committing = None;
                self.settings_are_saved();
                self.stuck = false;
                self.go_on(myself);
            }
            Err(CommitFailed::Store(error)) if error.is_full() => {
                // Nothing is lost: the batch waits for room, and no call begins meanwhile.
                if !std::mem::replace(&mut self.stuck, true) {
                    tracing::warn!(%error, "cannot save the state; trying again until there is room");
                    self.ctx.slots.disk.cast(DiskMsg::WriteFailed);
                }
                if self.inputs.iter().any(|i| matches!(i, Input::Signals(s) if s.stop.is_some())) {
                    self.stop_without_saving();
                } else {
                    myself.send_after(RETRY_COMMIT, || SessionMsg::RetryCommit);
                }
            }
            Err(CommitFailed::Store(error)) => return Err(format!("cannot save the state: {error}").into()),
            Err(CommitFailed::Gone(gone)) => return Err(format!("cannot save the state: {gone}").into()),
        }
        Ok(())
    }

    /// Changes of settings that had nothing to say need not be repeated.
    fn settings_are_saved(&self) {
        if self.machine.as_ref().is_some_and(Machine::is_up_to_date) && !self.inputs.iter().any(is_a_setting)
        {
            self.ctx.unsaved.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }

    fn commit_again(&mut self, myself: &ActorRef<SessionMsg>) {
        if let Some(drafts) = self.committing.clone().filter(|_| self.stuck) {
            self.commit(drafts, myself);
        }
    }

    /// One at a time; it ends with us.
    fn commit(&mut self, drafts: Vec<Draft>, myself: &ActorRef<SessionMsg>) {
        let commit = commit_and_tell(self.ctx.clone(), self.incarnation, drafts, myself.clone());
        self.commit = Some(AbortOnDropHandle::new(tokio::spawn(commit)));
    }

    /// STOP while nothing can be saved: the call ends with us, and the next start finds the last saved state.
    fn stop_without_saving(&mut self) {
        tracing::error!("stopped although the last state could not be saved: no room on the disk");
        self.ended = true;
        // A project that is gone takes us with it.
        let _ = self.project.cast(ProjectMsg::Ended(1));
    }
}

fn is_a_setting(input: &Input) -> bool {
    matches!(input, Input::Settings { .. } | Input::Switch(_))
}

fn lane_spec(ctx: Arc<ProjectCtx>, slot: Slot<LaneMsg>) -> ChildSpec {
    ChildSpec::new("lane", Duration::from_secs(2), move |supervisor| {
        let (ctx, slot) = (ctx.clone(), slot.clone());
        async move {
            let args = LaneArgs { id: LaneId(1), ctx };
            let (lane, _) = Actor::spawn_linked(None, LaneActor, args, supervisor).await?;
            slot.fill(lane.clone());
            Ok(lane.get_cell())
        }
    })
}

async fn commit_and_tell(
    ctx: Arc<ProjectCtx>,
    incarnation: u64,
    drafts: Vec<Draft>,
    session: ActorRef<SessionMsg>,
) {
    let done = ctx.commit_as(Some(incarnation), drafts).await.map(Box::new);
    // A session that died reloads from the store.
    let _ = session.cast(SessionMsg::Committed(done));
}

async fn admit_and_tell(ctx: Arc<ProjectCtx>, question: Question, session: ActorRef<SessionMsg>) {
    let Question { ask, chain, active, known, lost, money } = question;
    let mut reached = reach(&ctx, Reach { chain: &chain, active, known: &known, lost }).await;
    let make = |reply| {
        let (chain, known, unreachable) = (chain.clone(), known.clone(), reached.unreachable.clone());
        AccountsMsg::Admit(Admit { chain, active, known, unreachable, money: money.clone(), reply })
    };
    // The disk is looked at before every iteration; what it finds reaches the session before the admission does.
    let disk = ctx.slots.disk.call("disk", ANSWER, DiskMsg::LookNow);
    let (_, answer) = tokio::join!(disk, ctx.slots.accounts.call("accounts", ANSWER, make));
    // They are being restarted; a moment later they are back.
    let again = || {
        let account = chain.get(active).cloned().unwrap_or_default();
        Admitted { admission: Admission::Wait { until: ctx.now(), account }, news: Vec::new(), money: None }
    };
    let Admitted { admission, mut news, money } = answer.unwrap_or_else(|_| again());
    if let Admission::Granted(at) | Admission::Probe(at) = admission
        && let Some(name) = chain.get(at)
    {
        reached.is_called(name);
    }
    news.extend(reached.news);
    // A session that died asks again.
    let _ = session.cast(SessionMsg::Input(Box::new(Input::Admitted { ask, admission, news, money })));
}

async fn survey_and_tell(ctx: Arc<ProjectCtx>, session: ActorRef<SessionMsg>) {
    let survey = tokio::task::spawn_blocking(move || {
        let (incarnation, begun) = ctx.take_over();
        Surveyed { incarnation, survey: survey::survey(&ctx, begun) }
    });
    match survey.await {
        // A session that died surveys again.
        Ok(surveyed) => drop(session.cast(SessionMsg::Begun(Box::new(surveyed)))),
        Err(error) => session.stop(Some(format!("the survey ended early: {error}"))),
    }
}

/// Reads the tree before the first call, for checkpoint 0 and to tell later what has changed.
async fn first_tree(ctx: Arc<ProjectCtx>, session: ActorRef<SessionMsg>) {
    let known = ctx.slots.repo.call("the repository", FIRST_TREE, RepoMsg::Snapshot).await.ok();
    let (tree, git) = known.map_or((None, false), |now| (now.tree, now.git));
    // A session that died asks again.
    let _ = session.cast(SessionMsg::Input(Box::new(Input::Base { tree, git })));
}
