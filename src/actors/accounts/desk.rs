//! Where questions about accounts are answered: with what the project knows and, where it is shared, the host.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::clock::Clock as GovernorClock;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use crate::actors::context::ProjectCtx;
use crate::config::Config;
use crate::domain::accounts::{Admission, Lesson};
use crate::domain::event::Body;
use crate::domain::host_accounts::{Answer, Change, Holder, HostAccounts, Question};
use crate::messages::accounts::{AccountsMsg, Admit, Admitted};
use crate::providers::account::{identity, may_have, with_model};
use crate::store::{HostDb, Mark, Replaced, StoreError};

/// Starts of calls per account and minute. No agent's turn is that short by intention: what comes faster is a loop
/// that went wrong, and it must not burn an account.
const CALLS_PER_MINUTE: u32 = 6000;

/// How long a `host.db` that cannot be used is left alone.
const TRY_AGAIN: Duration = Duration::from_secs(60);

type Bucket = RateLimiter<NotKeyed, InMemoryState, Ticks, NoOpMiddleware<Duration>>;

/// tokio's clock as governor wants it, so that buckets follow simulated time.
#[derive(Debug, Clone)]
struct Ticks(Instant);

/// The desk. Its work may block.
pub struct Desk {
    pub(super) ctx: Arc<ProjectCtx>,
    /// `host.db`; none: not opened yet, or not there.
    pub(super) host: Option<HostDb>,
    /// How far the project's journal is booked in the ledger; none: it has to be asked.
    pub(super) booked: Option<Mark>,
    /// Until then it is not tried again: it could not be used.
    given_up: Option<Instant>,
    /// Why it could not be used the last time: said once.
    said: Option<String>,
    /// The accounts behind the providers, and the settings that they were found with.
    ids: BTreeMap<String, Option<String>>,
    ids_of: Option<Arc<Config>>,
    /// What was known at the last look, with no leases but ours; none: it has not looked yet.
    known: Option<HostAccounts>,
    /// Pace of calls, per provider of the chains seen so far.
    buckets: BTreeMap<String, Bucket>,
}

// === impl Desk ===

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").field("host", &self.host).field("known", &self.known).finish_non_exhaustive()
    }
}

impl Desk {
    /// One that has not looked at anything yet.
    pub fn new(ctx: Arc<ProjectCtx>) -> Self {
        Desk {
            ctx,
            host: None,
            booked: None,
            given_up: None,
            said: None,
            ids: BTreeMap::new(),
            ids_of: None,
            known: None,
            buckets: BTreeMap::new(),
        }
    }

    /// A lease is held that has to be renewed.
    pub fn has_lease(&self) -> bool {
        self.known.as_ref().is_some_and(|known| !known.leases.is_empty())
    }

    /// It needs what others know, or is something for others to know. Looks at no file.
    pub fn needs_host(&self, message: &AccountsMsg) -> bool {
        let shared =
            |name: &String| self.ctx.providers.definition(name).is_some_and(|known| may_have(&known));
        match message {
            AccountsMsg::Admit(Admit { chain, money, .. }) => money.is_some() || chain.iter().any(shared),
            AccountsMsg::Readmit { chain } => chain.iter().any(shared),
            AccountsMsg::Learned { account, lesson } => shared(account) && self.is_news(account, lesson),
            _ => true,
        }
    }

    /// Does what is asked for.
    pub fn work(&mut self, message: AccountsMsg) {
        match message {
            AccountsMsg::Admit(question) => self.admit(question),
            AccountsMsg::Learned { account, lesson } => self.learned(&account, &lesson),
            AccountsMsg::Readmit { chain } => self.readmit(&chain),
            AccountsMsg::Renew => self.renew(),
            AccountsMsg::Release { token } => self.release(token),
            AccountsMsg::BookNow => self.book(/* closing */ false),
            AccountsMsg::Close(reply) => {
                self.book(/* closing */ true);
                // Whoever asked may have stopped waiting.
                let _ = reply.send(());
            }
            AccountsMsg::Book | AccountsMsg::JobDone(_) => {}
            #[cfg(debug_assertions)]
            AccountsMsg::Crash => {}
        }
    }

    fn admit(&mut self, Admit { chain, active, known, unreachable, money, reply }: Admit) {
        let (now, ids) = (self.ctx.now(), self.ids(&chain));
        let models = self.models(&ids);
        let question = Question {
            chain: &chain,
            active,
            known: &known,
            ids: &ids,
            models: &models,
            unreachable: &unreachable,
        };
        let on_host = if ids.is_empty() { None } else { self.ask_host(question, now) };
        // Without a host the project knows what it has learned itself.
        let Answer { admission, news, .. } =
            on_host.unwrap_or_else(|| HostAccounts::default().admit(question, &nobody(), now));
        let admission = self.pace(admission, &chain, now);
        let money = self.reserve(money.as_deref(), &admission, &chain);
        // A session that is gone asks again when it is back.
        let _ = reply.send(Admitted { admission, news, money });
    }

    /// Nothing is written as long as nothing is out.
    fn ask_host(&mut self, question: Question<'_>, now: Timestamp) -> Option<Answer> {
        self.with_host(/* make */ false, |host, me| {
            let answer = host.look(now)?.admit(question, me, now);
            if answer.changes.is_empty() {
                return Ok(answer);
            }
            host.change(now, |known| {
                let answer = known.admit(question, me, now);
                let changes = answer.changes.clone();
                (answer, changes)
            })
        })
    }

    pub(super) fn learned(&mut self, account: &str, lesson: &Lesson) {
        let ids = self.ids(&[account.to_owned()]);
        let models = self.models(&ids);
        let (Some(id), Some(model)) = (ids.get(account), models.get(account)) else { return };
        if self.is_news(account, lesson) {
            let make = matches!(lesson, Lesson::Out(_) | Lesson::ModelOut(_));
            // What is said of the one says nothing about the other, but that the call is over.
            let (of_account, of_model) = match lesson {
                Lesson::Out(_) => (lesson, &Lesson::Nothing),
                Lesson::ModelOut(_) => (&Lesson::Nothing, lesson),
                Lesson::Works | Lesson::Failed(_) | Lesson::Nothing => (lesson, lesson),
            };
            self.change(make, |known, me, now| {
                let mut changes = known.learn(id, of_account, me, now);
                changes.extend(known.learn(model, of_model, me, now));
                changes
            });
        }
    }

    /// These accounts with the models that they are asked for, by provider.
    fn models(&self, ids: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let config = self.ctx.config();
        let asked = |(name, id): (&String, &String)| (name.clone(), with_model(id, config.model_for(name)));
        ids.iter().map(asked).collect()
    }

    /// Others have to know of it, as far as can be told without a look.
    fn is_news(&self, account: &str, lesson: &Lesson) -> bool {
        let (Some(known), Some(id)) = (&self.known, self.ids.get(account)) else { return true };
        let Some(id) = id else { return false };
        let model = with_model(id, self.ctx.config().model_for(account));
        let either = |is: &dyn Fn(&str) -> bool| is(id) || is(&model);
        match lesson {
            Lesson::Out(_) | Lesson::ModelOut(_) => true,
            // A call that began while nothing was known against its account says nothing about what was learned since.
            Lesson::Works => either(&|id| known.records.get(id).is_some_and(|record| record.account.out)),
            Lesson::Failed(_) | Lesson::Nothing => either(&|id| known.leases.contains_key(id)),
        }
    }

    fn readmit(&mut self, chain: &[String]) {
        let ids = self.ids(chain);
        if ids.is_empty() {
            return;
        }
        let models = self.models(&ids);
        self.change(/* make */ false, |known, _, now| {
            ids.values()
                .chain(models.values())
                .filter_map(|id| known.readmit(id, /* all */ false, now))
                .collect()
        });
    }

    fn renew(&mut self) {
        if self.has_lease() {
            self.change(/* make */ false, HostAccounts::renew);
        }
    }

    /// Writes what `decide` asks for, if it asks for anything.
    fn change(&mut self, make: bool, decide: impl Fn(&HostAccounts, &Holder, Timestamp) -> Vec<Change>) {
        let now = self.ctx.now();
        self.with_host(make, |host, me| {
            if decide(host.look(now)?, me, now).is_empty() {
                return Ok(());
            }
            host.change(now, |known| ((), decide(known, me, now)))
        });
    }

    /// Uses `host.db`; none: it is not there, or cannot be used now.
    pub(super) fn with_host<T>(
        &mut self,
        make: bool,
        work: impl Fn(&mut HostDb, &Holder) -> Result<T, StoreError>,
    ) -> Option<T> {
        if self.given_up.is_some_and(|until| Instant::now() < until) {
            return None;
        }
        let mut done = self.try_host(make, &work);
        if matches!(done, Err(StoreError::Corrupt { .. })) {
            // The next one is begun anew.
            done = self.try_host(make, &work);
        }
        done.unwrap_or_else(|error| {
            self.given_up = Some(Instant::now() + TRY_AGAIN);
            self.degraded(format!("failed to {error}"));
            None
        })
    }

    fn try_host<T>(
        &mut self,
        make: bool,
        work: impl Fn(&mut HostDb, &Holder) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        let mut host = match self.host.take().filter(HostDb::is_linked) {
            Some(host) => host,
            None => match self.open(make)? {
                Some(host) => host,
                None => {
                    self.known = Some(HostAccounts::default());
                    return Ok(None);
                }
            },
        };
        let now = self.ctx.now();
        let Some(me) = host.holder(&self.ctx.paths.root) else { return Ok(None) };
        let done = work(&mut host, &me)?;
        let mut known = host.look(now)?.clone();
        known.leases.retain(|_, lease| lease.holder == me);
        self.known = Some(known);
        self.host = Some(host);
        Ok(Some(done))
    }

    fn open(&mut self, make: bool) -> Result<Option<HostDb>, StoreError> {
        let Some(home) = &self.ctx.home else {
            if make {
                self.degraded("neither LONGHAUL_HOME nor HOME is set".to_owned());
            }
            return Ok(None);
        };
        let (host, replaced) = HostDb::open(home, make, self.ctx.now())?;
        if let Some(Replaced { kept_as, why }) = replaced {
            self.degraded(format!(
                "host.db could not be trusted ({why}); it is kept as {}",
                kept_as.display()
            ));
        }
        Ok(host)
    }

    /// Why the host's database cannot be used.
    pub(super) fn why_not(&self) -> String {
        self.said.clone().unwrap_or_else(|| "host.db cannot be used".to_owned())
    }

    /// Said once: limits of other projects are not known here meanwhile.
    fn degraded(&mut self, reason: String) {
        if self.said.as_ref() == Some(&reason) {
            return;
        }
        tracing::warn!(reason, "what other projects know about accounts cannot be used");
        self.said = Some(reason.clone());
        let body = Body::CapabilityDegraded {
            capability: "host_accounts".to_owned(),
            fail_closed: false,
            reason,
            provider: None,
            model: None,
            iteration: None,
        };
        crate::actors::note(&self.ctx, vec![self.ctx.draft(body)]);
    }

    /// The accounts of these providers that others may use, too.
    pub(super) fn ids(&mut self, chain: &[String]) -> BTreeMap<String, String> {
        let config = self.ctx.config();
        if !self.ids_of.as_ref().is_some_and(|old| Arc::ptr_eq(old, &config)) {
            self.ids.clear();
            self.ids_of = Some(config.clone());
        }
        let ctx = &self.ctx;
        let find = |name: &str| {
            let definition = ctx.providers.definition(name)?;
            identity(&definition, &ctx.provider_env(&config, name))
        };
        let ids = chain.iter().filter_map(|name| {
            let id = self.ids.entry(name.clone()).or_insert_with(|| find(name));
            Some((name.clone(), id.clone()?))
        });
        ids.collect()
    }

    fn pace(&mut self, admission: Admission, chain: &[String], now: Timestamp) -> Admission {
        let (Admission::Granted(at) | Admission::Probe(at)) = admission else { return admission };
        let Some(name) = chain.get(at) else { return admission };
        let bucket = self.buckets.entry(name.clone()).or_insert_with(bucket);
        match bucket.check() {
            Ok(()) => admission,
            Err(early) => {
                let wait = early.wait_time_from(bucket.clock().now());
                Admission::Wait { until: later(now, wait), account: name.clone() }
            }
        }
    }
}

/// The project's name in what all projects share.
pub(super) fn lives_here(ctx: &ProjectCtx) -> String {
    ctx.paths.root.display().to_string()
}

/// Who asks where nobody shares anything.
fn nobody() -> Holder {
    Holder { pid: 0, start_time: 0, space: String::new(), project: String::new() }
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
