//! Notifier: tells a person who is not looking. One per host. A session neither waits for it nor ends with it.
//!
//! What is to be told follows from the state, so a hint that is lost costs nothing. It is written down in `host.db`
//! under the name of its cause and sent from there, by one round at a time; what a run could not deliver the next one
//! does.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};

use super::context::ProjectCtx;
use crate::channels::Channels;
use crate::config::Notify;
use crate::domain::event::{Body, Event};
use crate::domain::notification::{About, Notification, of_event, of_state};
use crate::messages::notifier::{NotifierMsg, Round};
use crate::store::{Delivery, HostDb, Letter, Post, StoreError};

/// After the start, before what earlier runs have left is looked at.
const SETTLED: Duration = Duration::from_secs(1);

/// After a round that failed as a whole.
const TRY_AGAIN: Duration = Duration::from_secs(60);

/// Names of what is written down that are remembered, so that each is written down once.
const REMEMBERED: usize = 1000;

/// The actor.
pub struct NotifierActor;

/// What it works with. All of it can be rebuilt.
pub struct Notifier {
    ctx: Arc<ProjectCtx>,
    /// To be written down by the next round.
    new: Vec<Notification>,
    /// Written down.
    posted: HashSet<String>,
    /// A round is under way.
    busy: bool,
    /// There is to be another one.
    again: bool,
    /// The next round by itself.
    alarm: Option<JoinHandle<Result<(), ractor::MessagingErr<NotifierMsg>>>>,
    closing: Vec<RpcReplyPort<()>>,
    /// Channels whose failure has been told.
    said: HashSet<String>,
}

// === impl NotifierActor ===

impl Actor for NotifierActor {
    type Msg = NotifierMsg;
    type State = Notifier;
    type Arguments = Arc<ProjectCtx>;

    async fn pre_start(
        &self,
        myself: ActorRef<NotifierMsg>,
        ctx: Arc<ProjectCtx>,
    ) -> Result<Notifier, ActorProcessingErr> {
        ctx.slots.notifier.fill(myself.clone());
        if is_on(&ctx) {
            myself.send_after(SETTLED, || NotifierMsg::Hint(Vec::new()));
        }
        Ok(Notifier {
            ctx,
            new: Vec::new(),
            posted: HashSet::new(),
            busy: false,
            again: false,
            alarm: None,
            closing: Vec::new(),
            said: HashSet::new(),
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<NotifierMsg>,
        message: NotifierMsg,
        state: &mut Notifier,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            NotifierMsg::Hint(events) => {
                let first = events.is_empty();
                state.look(&events);
                state.again |= first || !state.new.is_empty();
            }
            NotifierMsg::Due => state.again = true,
            NotifierMsg::Round(round) => state.round_is_over(round, &myself),
            NotifierMsg::Close(reply) => state.closing.push(reply),
            #[cfg(debug_assertions)]
            NotifierMsg::Crash => panic!("asked to crash"),
        }
        state.go_on(&myself);
        Ok(())
    }
}

// === impl Notifier ===

impl Notifier {
    /// What is new in the state and in these events.
    fn look(&mut self, events: &[Event]) {
        let (config, state) = (self.ctx.config(), self.ctx.state());
        let project = self.ctx.paths.root.display().to_string();
        let about = About { project: &project, long_wait: config.notify.long_wait, now: self.ctx.now() };
        let told = events.iter().filter_map(|event| of_event(event, &state, about));
        for notification in told.chain(of_state(&state, about)) {
            let wanted = config.notify.kinds.contains(&notification.kind);
            if wanted
                && !self.posted.contains(&notification.id)
                && self.new.iter().all(|old| old.id != notification.id)
            {
                self.new.push(notification);
            }
        }
    }

    fn go_on(&mut self, myself: &ActorRef<NotifierMsg>) {
        if self.busy {
            return;
        }
        if std::mem::take(&mut self.again) && is_on(&self.ctx) {
            self.busy = true;
            if let Some(alarm) = self.alarm.take() {
                alarm.abort();
            }
            let (ctx, myself) = (self.ctx.clone(), myself.clone());
            let new = std::mem::take(&mut self.new);
            tokio::spawn(async move {
                let done = round(&ctx, new).await.unwrap_or_else(|error| {
                    tracing::warn!(%error, "cannot use the outbox for notifications");
                    let soon = jiff::SignedDuration::try_from(TRY_AGAIN).unwrap_or_default();
                    Round { next: ctx.now().checked_add(soon).ok(), ..Round::default() }
                });
                // An actor that died has a successor that looks for itself.
                let _ = myself.cast(NotifierMsg::Round(done));
            });
            return;
        }
        for reply in self.closing.drain(..) {
            // Whoever asked may have stopped waiting.
            let _ = reply.send(());
        }
    }

    fn round_is_over(&mut self, round: Round, myself: &ActorRef<NotifierMsg>) {
        self.busy = false;
        if self.posted.len() > REMEMBERED {
            self.posted.clear();
        }
        self.posted.extend(round.posted);
        for (channel, why) in round.failures {
            // At its end the run has no more journal to say it in; `longhaul notify list` has it.
            if self.closing.is_empty() && self.said.insert(channel.clone()) {
                let message =
                    format!("a notification by {channel} has not arrived: {why}; see `longhaul notify list`");
                let code = "notification_failed".to_owned();
                super::note(&self.ctx, vec![self.ctx.draft(Body::Notice { code, message })]);
            }
        }
        if let Some(next) = round.next {
            let wait = Duration::try_from(next.duration_since(self.ctx.now())).unwrap_or_default();
            if wait.is_zero() {
                self.again = true;
            } else {
                self.alarm = Some(myself.send_after(wait, || NotifierMsg::Due));
            }
        }
    }
}

fn is_on(ctx: &ProjectCtx) -> bool {
    ctx.home.is_some() && ctx.config().notify.is_on()
}

/// The channels that the settings name now.
fn channels(ctx: &ProjectCtx) -> Channels {
    let notify: Notify = ctx.config().notify.clone();
    Channels { notify, env: ctx.env.clone(), cwd: ctx.paths.root.clone() }
}

/// Writes down what is new, and sends what is due.
async fn round(ctx: &Arc<ProjectCtx>, new: Vec<Notification>) -> Result<Round, StoreError> {
    let channels = Arc::new(channels(ctx));
    let posts = channels.posts();
    let posted = new.iter().map(|notification| notification.id.clone()).collect();
    let now = ctx.now();
    let (letters, mut next) = on_host(ctx, move |host, ctx| take(host, ctx, &new, &posts)).await?;
    let mut sending = JoinSet::new();
    for letter in letters {
        let (ctx, channels, mut draw) = (ctx.clone(), channels.clone(), ctx.rng());
        sending.spawn(async move {
            let delivery = channels.deliver(&letter, now, &mut draw, ctx.keeper.as_ref()).await;
            (letter.notification.id, letter.channel, delivery)
        });
    }
    let mut results = Vec::new();
    while let Some(sent) = sending.join_next().await {
        // One whose task has panicked stays as being sent, and is unknown once we are gone.
        results.extend(sent.ok());
    }
    let mut failures = Vec::new();
    for (_, channel, delivery) in &results {
        match delivery {
            Delivery::Sent => {}
            Delivery::Again(at, why) => {
                next = Some(next.map_or(*at, |next| next.min(*at)));
                failures.push((channel.clone(), why.clone()));
            }
            Delivery::Failed(why) | Delivery::Unknown(why) => failures.push((channel.clone(), why.clone())),
        }
    }
    if !results.is_empty() {
        on_host(ctx, move |host, _| host.delivered(&results)).await?;
    }
    Ok(Round { posted, next, failures })
}

fn take(
    host: &mut HostDb,
    ctx: &ProjectCtx,
    new: &[Notification],
    posts: &[Post],
) -> Result<(Vec<Letter>, Option<Timestamp>), StoreError> {
    let now = ctx.now();
    if !new.is_empty() {
        host.post(new, posts, now)?;
    }
    let Some(me) = host.holder(&ctx.paths.root) else { return Ok((Vec::new(), None)) };
    host.take_due(&me, posts, now)
}

/// Uses `host.db` on a blocking thread. It is opened each time: notifications are rare, and memory is dear.
async fn on_host<T: Send + Default + 'static>(
    ctx: &Arc<ProjectCtx>,
    work: impl FnOnce(&mut HostDb, &ProjectCtx) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let ctx = ctx.clone();
    let done = spawn_blocking(move || {
        let Some(home) = &ctx.home else { return Ok(T::default()) };
        match HostDb::open(home, /* make */ true, ctx.now())?.0 {
            Some(mut host) => work(&mut host, &ctx),
            None => Ok(T::default()),
        }
    });
    // It has panicked: nothing was written.
    done.await.unwrap_or_else(|_| Ok(T::default()))
}
