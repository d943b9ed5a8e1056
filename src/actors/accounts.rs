//! Accounts: limits, cool-downs and fail-over order. One per host; it answers, sessions wait.
//!
//! What is known of accounts that others use, too, is in `host.db`. It is used on a blocking thread, one job at a
//! time; what comes in meanwhile is the next job. The budget ledger is there, too: a call is admitted and its money set
//! aside in one answer, and calls that have ended are booked within a minute, and at the end.

mod desk;
mod ledger;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};

use super::blocking::away;
use super::context::ProjectCtx;
use crate::messages::accounts::{AccountsMsg, Admit};

pub use desk::Desk;

/// How often the lease is renewed of an account that is being tried: well before it ends.
const RENEW: Duration = Duration::from_secs(20);

/// How long calls that have ended wait to be booked: together, and when the next call has begun.
const BOOK: Duration = Duration::from_secs(60);

/// The actor.
pub struct AccountsActor;

/// What it works with. All of it can be rebuilt.
pub struct Accounts {
    /// With the actor, or away with a job.
    desk: Option<Box<Desk>>,
    waiting: VecDeque<AccountsMsg>,
    /// The timer that renews leases runs.
    renewing: bool,
    /// The timer for booking runs.
    booking: bool,
    /// Calls may have ended that are not booked.
    unbooked: bool,
    /// Nowhere is a ledger.
    homeless: bool,
}

// === impl AccountsActor ===

impl Actor for AccountsActor {
    type Msg = AccountsMsg;
    type State = Accounts;
    type Arguments = Arc<ProjectCtx>;

    async fn pre_start(
        &self,
        _: ActorRef<AccountsMsg>,
        ctx: Arc<ProjectCtx>,
    ) -> Result<Accounts, ActorProcessingErr> {
        let homeless = ctx.home.is_none();
        let desk = Some(Box::new(Desk::new(ctx)));
        // What a predecessor was told is not known.
        let unbooked = true;
        Ok(Accounts { desk, waiting: VecDeque::new(), renewing: false, booking: false, unbooked, homeless })
    }

    async fn handle(
        &self,
        myself: ActorRef<AccountsMsg>,
        message: AccountsMsg,
        state: &mut Accounts,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            AccountsMsg::JobDone(desk) => {
                if desk.has_lease() && !std::mem::replace(&mut state.renewing, true) {
                    myself.send_after(RENEW, || AccountsMsg::Renew);
                }
                state.desk = Some(desk);
            }
            AccountsMsg::Book => {
                state.unbooked = true;
                if !state.homeless && !std::mem::replace(&mut state.booking, true) {
                    myself.send_after(BOOK, || AccountsMsg::BookNow);
                }
            }
            AccountsMsg::Close(reply) if state.homeless || (!state.unbooked && state.desk.is_some()) => {
                // Whoever asked may have stopped waiting.
                let _ = reply.send(());
            }
            #[cfg(debug_assertions)]
            AccountsMsg::Crash => panic!("asked to crash"),
            other => {
                state.renewing &= !matches!(other, AccountsMsg::Renew);
                // Money may be set aside for a call that never begins.
                state.unbooked |= matches!(&other, AccountsMsg::Admit(Admit { money: Some(_), .. }));
                if matches!(other, AccountsMsg::BookNow | AccountsMsg::Close(_)) {
                    (state.booking, state.unbooked) = (false, false);
                }
                state.waiting.push_back(other);
            }
        }
        state.next(&myself);
        Ok(())
    }
}

// === impl Accounts ===

impl Accounts {
    fn next(&mut self, myself: &ActorRef<AccountsMsg>) {
        let Some(mut desk) = self.desk.take() else { return };
        // Accounts of this project alone need no host: the answer is at hand.
        while let Some(message) = self.waiting.pop_front_if(|message| !desk.needs_host(message)) {
            desk.work(message);
        }
        if self.waiting.is_empty() {
            self.desk = Some(desk);
            return;
        }
        let messages = std::mem::take(&mut self.waiting);
        away(myself, move || {
            messages.into_iter().for_each(|message| desk.work(message));
            AccountsMsg::JobDone(desk)
        });
    }
}
