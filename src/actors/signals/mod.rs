//! Signals: PAUSE, STOP, `resume`, Ctrl-C and messages from people become typed inputs.
//!
//! One look at a time, on a blocking thread; what is asked for meanwhile makes one more. A look follows each hint (from
//! the Watcher, or from [`poll`] where no change notices come) and, as hints may be lost, every 2 s. The Session is
//! told what *is* there, whenever that is something else than it was told last. Messages are taken beside the looks
//! (see [`mail`]), so that STOP never waits for them.

mod mail;
mod poll;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::mail::Mail;
use self::poll::{POLLED, Poller};
use super::blocking::away;
use super::context::{ProjectCtx, SettingsStamps};
use super::note;
use crate::domain::event::Body;
use crate::domain::session::{Input, Signals};
use crate::intake::signal_files::{Sighting, remove, resume_path};
use crate::messages::session::SessionMsg;
use crate::messages::signals::{Notices, SignalsMsg};

pub use self::mail::Queued;

/// Between two looks without a hint: hints may be lost.
const UNASKED: Duration = Duration::from_secs(2);

/// After a look, before a hint makes another: a storm of changes must not become a storm of looks.
const REST: Duration = Duration::from_millis(5);

/// How long a signal file that is being written is waited for: `echo reason > STOP` makes it first and fills it next.
const SETTLE: Duration = Duration::from_millis(50);

/// How long the first word to the Session waits for messages that are there already, so that they are in the first
/// prompt.
const OPENING: Duration = Duration::from_secs(2);

/// The actor.
pub struct SignalsActor;

/// What it works with.
pub struct SignalsState {
    ctx: Arc<ProjectCtx>,
    /// What the last look found; none before the first.
    seen: Option<Sighting>,
    /// What the Session was told last; none: it must be told.
    told: Option<Signals>,
    /// Nothing was told yet: until when that may wait.
    opening: Option<Instant>,
    /// The settings files as last seen: the user's and the project's.
    settings: Option<SettingsStamps>,
    /// A look is under way.
    looking: bool,
    /// What the next one is to do.
    asked: Asked,
    /// No look before this.
    rests_until: Instant,
    /// Since when a signal file is being written.
    unsettled: Option<Instant>,
    /// The next look by itself.
    alarm: Option<(Instant, JoinHandle<()>)>,
    /// The last look failed: told once.
    blind: bool,
    /// Makes the hints where no change notices come.
    poller: Option<Poller>,
    /// Why they do not come, as long as it is not in the journal.
    degraded: Option<String>,
    mail: Mail,
}

/// What a look is asked to do first.
#[derive(Debug, Default)]
struct Asked {
    /// There is to be one.
    look: bool,
    /// Remove STOP, and answer these.
    stop: Vec<RpcReplyPort<()>>,
    /// Remove RESUME.
    resume: bool,
}

/// What a look gave.
#[derive(Debug)]
pub struct Found {
    sighting: io::Result<Sighting>,
    settings: SettingsStamps,
    /// What had been asked for, and is done.
    done: Asked,
}

// === impl SignalsActor ===

impl Actor for SignalsActor {
    type Msg = SignalsMsg;
    type State = SignalsState;
    type Arguments = Arc<ProjectCtx>;

    async fn pre_start(
        &self,
        myself: ActorRef<SignalsMsg>,
        ctx: Arc<ProjectCtx>,
    ) -> Result<SignalsState, ActorProcessingErr> {
        ctx.slots.signals.fill(myself);
        let now = Instant::now();
        Ok(SignalsState {
            mail: Mail::new(now),
            ctx,
            seen: None,
            told: None,
            opening: Some(now + OPENING),
            settings: None,
            looking: false,
            asked: Asked::default(),
            rests_until: now,
            unsettled: None,
            alarm: None,
            blind: false,
            poller: None,
            degraded: None,
        })
    }

    async fn post_start(
        &self,
        myself: ActorRef<SignalsMsg>,
        state: &mut SignalsState,
    ) -> Result<(), ActorProcessingErr> {
        state.look(&myself);
        if state.ctx.is_watched() {
            // Until it is known that notices come.
            state.poll(&myself);
            state.ctx.slots.watcher.cast(state.ctx.folder_watch());
        }
        Ok(())
    }

    async fn handle(
        &self,
        myself: ActorRef<SignalsMsg>,
        message: SignalsMsg,
        state: &mut SignalsState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            SignalsMsg::Hint => state.look(&myself),
            SignalsMsg::Notices(notices) => state.notices_changed(&myself, notices),
            SignalsMsg::Looked(found) => state.looked(&myself, *found),
            SignalsMsg::Queued(queued) => {
                let again = state.mail.queued(&state.ctx, *queued);
                state.tell();
                if let Some(after) = again {
                    state.look_after(&myself, after);
                }
            }
            SignalsMsg::Interrupt => state.tell(),
            SignalsMsg::ConsumeStop(reply) => {
                state.asked.stop.push(reply);
                state.look(&myself);
            }
            SignalsMsg::ConsumeResume => {
                state.asked.resume = true;
                state.look(&myself);
            }
            SignalsMsg::Repeat => {
                state.told = None;
                if state.seen.is_some() {
                    state.tell();
                    // A hint may have been lost with the last Session.
                    state.ctx.slots.session.cast(SessionMsg::ConfigHint);
                }
                state.look(&myself);
            }
            #[cfg(debug_assertions)]
            SignalsMsg::Crash => panic!("asked to crash"),
        }
        Ok(())
    }
}

// === impl SignalsState ===

impl SignalsState {
    /// Looks now, or as soon as it may.
    fn look(&mut self, myself: &ActorRef<SignalsMsg>) {
        self.asked.look = true;
        if self.looking {
            return;
        }
        let rest = self.rests_until.saturating_duration_since(Instant::now());
        if !rest.is_zero() && self.asked.stop.is_empty() {
            return self.look_after(myself, rest);
        }
        self.looking = true;
        let (ctx, asked) = (self.ctx.clone(), std::mem::take(&mut self.asked));
        away(myself, move || SignalsMsg::Looked(Box::new(Found::look(&ctx, asked))));
    }

    /// Looks after this time at the latest.
    fn look_after(&mut self, myself: &ActorRef<SignalsMsg>, after: Duration) {
        let (now, due) = (Instant::now(), Instant::now() + after);
        if let Some((earlier, _)) = &self.alarm
            && *earlier > now
            && *earlier <= due
        {
            return;
        }
        let myself = myself.clone();
        let alarm = tokio::spawn(async move {
            tokio::time::sleep_until(due).await;
            drop(myself.cast(SignalsMsg::Hint));
        });
        if let Some((_, replaced)) = self.alarm.replace((due, alarm)) {
            replaced.abort();
        }
    }

    fn looked(&mut self, myself: &ActorRef<SignalsMsg>, found: Found) {
        let now = Instant::now();
        self.looking = false;
        self.rests_until = now + REST;
        self.take_in(found);
        self.report_degraded();
        if self.seen.as_ref().is_some_and(|seen| seen.mail) {
            self.mail.collect(&self.ctx, myself);
        }
        let writing = self.seen.as_ref().is_some_and(|seen| seen.unsettled);
        let since = *self.unsettled.get_or_insert(now);
        if !writing {
            self.unsettled = None;
        }
        if writing && self.poller.is_none() && now < since + SETTLE {
            self.look_after(myself, REST);
        } else if self.seen.is_some() {
            self.tell();
        }
        if self.asked.look {
            self.look(myself);
        } else {
            self.look_after(myself, self.ctx.unasked(UNASKED));
        }
    }

    fn take_in(&mut self, found: Found) {
        for reply in found.done.stop {
            // A session that is gone needs no answer.
            drop(reply.send(()));
        }
        if found.done.resume
            && let Some(told) = &mut self.told
        {
            // The next one is another one.
            told.resume = false;
        }
        // At the first look, too: they may have changed while nobody looked.
        if self.settings.replace(found.settings) != Some(found.settings) {
            self.ctx.slots.session.cast(SessionMsg::ConfigHint);
        }
        match found.sighting {
            Ok(seen) => (self.seen, self.blind) = (Some(seen), false),
            Err(error) if !self.blind => {
                self.blind = true;
                tracing::warn!(%error, folder = %self.ctx.paths.dot.display(), "cannot look for signal files");
            }
            Err(_) => {}
        }
    }

    /// Tells the Session what is there, if it is something else than it was told.
    fn tell(&mut self) {
        let interrupts = self.ctx.interrupts.load(Ordering::Relaxed);
        let signals = self.seen.clone().unwrap_or_default().signals(interrupts);
        if let Some(until) = self.opening
            && (self.mail.is_away() && Instant::now() < until && signals.stop.is_none())
        {
            return;
        }
        self.opening = None;
        if self.told.as_ref() != Some(&signals) {
            self.told = Some(signals.clone());
            self.ctx.slots.session.cast(SessionMsg::Input(Box::new(Input::Signals(signals))));
        }
    }

    fn notices_changed(&mut self, myself: &ActorRef<SignalsMsg>, notices: Notices) {
        if notices == Notices::Come {
            self.poller = None;
        } else {
            self.poll(myself);
        }
        self.degraded = match notices {
            Notices::None(why) => Some(why),
            Notices::Come | Notices::Paused => None,
        };
        self.report_degraded();
        // Also what changed before notices came.
        self.look(myself);
    }

    fn poll(&mut self, myself: &ActorRef<SignalsMsg>) {
        if self.poller.is_none() {
            self.poller = Poller::start(self.ctx.clone(), myself.clone())
                .inspect_err(|error| tracing::warn!(%error, "signal files are looked for every 2 s only"))
                .ok();
        }
    }

    /// Not before the session has begun: its first event comes first.
    fn report_degraded(&mut self) {
        if self.ctx.state.borrow().session.is_none() {
            return;
        }
        let Some(why) = self.degraded.take() else { return };
        let body = Body::CapabilityDegraded {
            capability: "watch".to_owned(),
            fail_closed: false,
            reason: format!("{why}; signal files are looked for every {} ms", POLLED.as_millis()),
            provider: None,
            model: None,
            iteration: None,
        };
        note(&self.ctx, vec![self.ctx.draft(body)]);
    }
}

impl Drop for SignalsState {
    fn drop(&mut self) {
        if let Some((_, alarm)) = self.alarm.take() {
            alarm.abort();
        }
    }
}

// === impl Found ===

impl Found {
    fn look(ctx: &ProjectCtx, asked: Asked) -> Self {
        let paths = &ctx.paths;
        let stop = (!asked.stop.is_empty()).then(|| paths.stop.clone());
        let resume = asked.resume.then(|| resume_path(paths));
        for path in stop.iter().chain(&resume) {
            if let Err(error) = remove(path) {
                // Said and gone on: a STOP that stays ends the next run as well, which is the safe side.
                tracing::warn!(%error, path = %path.display(), "cannot remove a signal file that was obeyed");
            }
        }
        Found { sighting: Sighting::look(paths), settings: ctx.settings_stamps(), done: asked }
    }
}
