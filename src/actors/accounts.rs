//! Accounts: limits, cool-downs and fail-over order. One per host; it answers, sessions wait.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::Clock as GovernorClock;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use jiff::{SignedDuration, Timestamp};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::time::Instant;

use crate::clock::Clock;
use crate::domain::accounts::{Admission, admit};
use crate::domain::state::Account;
use crate::messages::accounts::AccountsMsg;

/// Starts of calls per account and minute. No agent's turn is that short by intention: what comes faster is a loop
/// that went wrong, and it must not burn an account.
const CALLS_PER_MINUTE: u32 = 6000;

type Bucket = RateLimiter<NotKeyed, InMemoryState, Ticks, NoOpMiddleware<Duration>>;

/// tokio's clock as governor wants it, so that buckets follow simulated time.
#[derive(Debug, Clone)]
struct Ticks(Instant);

/// The actor.
pub struct AccountsActor;

/// What it knows. All of it can be rebuilt from the store.
pub struct Accounts {
    clock: Clock,
    known: BTreeMap<String, Account>,
    /// Pace of calls, per account of the chains seen so far.
    buckets: BTreeMap<String, Bucket>,
}

// === impl AccountsActor ===

impl Actor for AccountsActor {
    type Msg = AccountsMsg;
    type State = Accounts;
    type Arguments = Clock;

    async fn pre_start(
        &self,
        _: ActorRef<AccountsMsg>,
        clock: Clock,
    ) -> Result<Accounts, ActorProcessingErr> {
        Ok(Accounts { clock, known: BTreeMap::new(), buckets: BTreeMap::new() })
    }

    async fn handle(
        &self,
        _: ActorRef<AccountsMsg>,
        message: AccountsMsg,
        state: &mut Accounts,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            AccountsMsg::Admit { chain, active, known, reply } => {
                // A restart may have fallen between a call's end and its commit.
                for (name, account) in known.into_iter().filter(|(_, account)| account.out) {
                    state.known.entry(name).or_insert(account);
                }
                // A session that is gone asks again when it is back.
                let _ = reply.send(state.admit(&chain, active));
            }
            AccountsMsg::Learned { account, out: Some((until, why)) } => {
                let times = state.known.get(&account).map_or(1, |a| a.times.saturating_add(1));
                state.known.insert(account, Account { until, out: true, why, times });
            }
            AccountsMsg::Learned { account, out: None } => {
                state.known.remove(&account);
            }
            AccountsMsg::Restore(known) => state.known = known,
            #[cfg(debug_assertions)]
            AccountsMsg::Crash => panic!("asked to crash"),
        }
        Ok(())
    }
}

// === impl Accounts ===

impl Accounts {
    fn admit(&mut self, chain: &[String], active: usize) -> Admission {
        let now = self.clock.now();
        let answer = admit(&self.known, chain, active, now);
        let Admission::Granted(at) = answer else { return answer };
        let Some(name) = chain.get(at) else { return answer };
        let bucket = self.buckets.entry(name.clone()).or_insert_with(bucket);
        match bucket.check() {
            Ok(()) => answer,
            Err(early) => {
                let wait = early.wait_time_from(bucket.clock().now());
                Admission::Wait { until: later(now, wait), account: name.clone() }
            }
        }
    }
}

fn bucket() -> Bucket {
    let pace = NonZeroU32::new(CALLS_PER_MINUTE).unwrap_or(NonZeroU32::MIN);
    RateLimiter::direct_with_clock(Quota::per_minute(pace), Ticks(Instant::now()))
}

fn later(now: Timestamp, wait: Duration) -> Timestamp {
    let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX);
    now.saturating_add(wait).unwrap_or(Timestamp::MAX)
}

// === impl Ticks ===

impl GovernorClock for Ticks {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}
