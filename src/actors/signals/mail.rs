//! Taking messages: claim and read, commit, put away. One round at a time, beside the looks.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ractor::ActorRef;
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::actors::context::ProjectCtx;
use crate::actors::note;
use crate::domain::event::{Body, Draft};
use crate::domain::ids::MessageId;
use crate::intake::file_system::{FileSystem, file_system};
use crate::intake::inbox::{Inbox, Problem};
use crate::messages::session::CommitFailed;
use crate::messages::signals::SignalsMsg;

/// Pause after a round that could not be committed; doubles up to [`LONGEST_PAUSE`].
const PAUSE: Duration = Duration::from_secs(1);

/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Files with problems that are remembered, so that each is told once.
const TOLD: usize = 1000;

/// The taking of messages.
pub(super) struct Mail {
    /// The zero of the inbox's time.
    epoch: Instant,
    /// With us, or away with a round. None at first: it is made where blocking is allowed.
    inbox: Option<Inbox>,
    /// The round under way. It ends with its actor, and the next actor finds on disk how far it came.
    round: Option<AbortOnDropHandle<()>>,
    /// No round before this.
    not_before: Instant,
    pause: Duration,
    /// Files whose problem has been told.
    told: HashSet<PathBuf>,
}

/// What a round came to.
#[derive(Debug)]
pub struct Queued {
    inbox: Inbox,
    /// There is more to take.
    more: bool,
    /// Some may still be written: look again after this.
    again: Option<Duration>,
    problems: Vec<Problem>,
    /// Why the messages could not be committed. They stay claimed.
    failed: Option<CommitFailed>,
}

// === impl Mail ===

impl Mail {
    pub(super) fn new(now: Instant) -> Self {
        Mail { epoch: now, inbox: None, round: None, not_before: now, pause: PAUSE, told: HashSet::new() }
    }

    /// A round is under way.
    pub(super) fn is_away(&self) -> bool {
        self.round.is_some()
    }

    /// Begins a round, unless one is under way or it is too early.
    pub(super) fn collect(&mut self, ctx: &Arc<ProjectCtx>, myself: &ActorRef<SignalsMsg>) {
        if self.round.is_some() || Instant::now() < self.not_before {
            return;
        }
        let round = round(ctx.clone(), self.inbox.take(), self.epoch);
        let myself = myself.clone();
        self.round = Some(AbortOnDropHandle::new(tokio::spawn(async move {
            match round.await {
                Ok(queued) => drop(myself.cast(SignalsMsg::Queued(Box::new(queued)))),
                Err(error) => myself.stop(Some(format!("taking messages ended early: {error}"))),
            }
        })));
    }

    /// Takes in what a round came to; says when to look again.
    pub(super) fn queued(&mut self, ctx: &Arc<ProjectCtx>, queued: Queued) -> Option<Duration> {
        let Queued { inbox, more, again, problems, failed } = queued;
        (self.inbox, self.round) = (Some(inbox), None);
        if let Some(error) = failed {
            tracing::warn!(?error, "cannot record messages; they wait in inbox/taken");
            let pause = self.pause;
            self.not_before = Instant::now() + pause;
            self.pause = (pause * 2).min(LONGEST_PAUSE);
            return Some(pause);
        }
        self.pause = PAUSE;
        if !problems.is_empty() {
            self.not_before = Instant::now() + PAUSE;
            self.tell(ctx, problems);
            return again;
        }
        if more { Some(Duration::ZERO) } else { again }
    }

    fn tell(&mut self, ctx: &Arc<ProjectCtx>, problems: Vec<Problem>) {
        if self.told.len() > TOLD {
            self.told.clear();
        }
        let new = problems.into_iter().filter(|problem| self.told.insert(problem.path.clone()));
        let notices: Vec<Draft> = new
            .map(|problem| {
                let message = format!("cannot {problem}; it stays where it is");
                ctx.draft(Body::Notice { code: "message_not_taken".to_owned(), message })
            })
            .collect();
        if !notices.is_empty() {
            note(ctx, notices);
        }
    }
}

async fn round(ctx: Arc<ProjectCtx>, inbox: Option<Inbox>, epoch: Instant) -> Result<Queued, JoinError> {
    let taker = ctx.clone();
    let (mut inbox, mut round) = spawn_blocking(move || {
        let mut inbox = inbox.unwrap_or_else(|| {
            let leases = file_system(&taker.paths.dot).is_ok_and(|kind| kind == FileSystem::Local);
            Inbox::new(&taker.paths, leases)
        });
        let state = taker.state();
        let known = |id: MessageId| {
            state.inbox.seen.contains(&id) || state.inbox.queued.iter().any(|message| message.id == id)
        };
        let round = inbox.collect(epoch.elapsed(), &known, &mut || taker.id());
        (inbox, round)
    })
    .await?;

    let drafts: Vec<Draft> = round
        .claimed
        .iter_mut()
        .filter_map(|message| {
            let (id, source) = (message.id, message.source.to_owned());
            let text = message.text.take()?;
            Some(ctx.draft(Body::MessageQueued { id, source, text }))
        })
        .collect();
    let failed = if drafts.is_empty() { None } else { ctx.commit(drafts).await.err() };
    if failed.is_none() && !round.claimed.is_empty() {
        (inbox, round) = spawn_blocking(move || {
            round.more |= inbox.archive(&round.claimed, &mut || ctx.id(), &mut round.problems);
            (inbox, round)
        })
        .await?;
    }
    let more = round.more && failed.is_none() && round.problems.is_empty();
    Ok(Queued { inbox, more, again: round.again, problems: round.problems, failed })
}
