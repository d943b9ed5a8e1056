//! What all sessions of the host know about accounts, and what of it counts for one of them.
//!
//! An account that is out is called by nobody. When its time has passed it is half open: one session gets a lease
//! and calls it; the outcome of that call decides for all. Records outlive their sessions, leases do not.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::accounts::{Admission, Lesson, Outage, admit};
use super::state::Account;

/// How long a lease lasts that nobody renews. Whose process can be seen to be gone loses it at once; this is for
/// those that cannot be seen, in other containers or on other hosts.
pub const LEASE: SignedDuration = SignedDuration::from_secs(90);

/// What the host knows of one account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Until when, and why. Not out: it has worked since it was out.
    pub account: Account,
    /// Its `until` is the account's own reset, not a guess of ours.
    pub stated: bool,
    /// When that was learned.
    pub since: Timestamp,
}

/// Who may call an account that is half open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Who that is.
    pub holder: Holder,
    /// It lasts until then unless it is renewed.
    pub expiry: Timestamp,
}

/// A session, as others of the host see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its process.
    pub pid: u32,
    /// When that was started, in clock ticks since boot.
    pub start_time: u64,
    /// Where pids mean the same: this boot and this pid namespace.
    pub space: String,
    /// Its project's folder.
    pub project: String,
}

/// All of it. Leases of the dead are not in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostAccounts {
    /// Accounts that are or were out, by identity.
    pub records: BTreeMap<String, Record>,
    /// Who is calling which of them to find out, by identity.
    pub leases: BTreeMap<String, Lease>,
}

/// One change to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// What is known of this account now.
    Put(String, Record),
    /// This session may call this account.
    Lease(String, Lease),
    /// Nobody is calling this account to find out any more.
    Release(String),
}

/// What a session asks with.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// Its provider chain, primary first.
    pub chain: &'a [String],
    /// The one in use.
    pub active: usize,
    /// What the project knows, by provider.
    pub known: &'a BTreeMap<String, Account>,
    /// The accounts behind the providers; what is not in it is the project's alone.
    pub ids: &'a BTreeMap<String, String>,
    /// The same with the models that they are asked for: a limit may be a model's alone.
    pub models: &'a BTreeMap<String, String>,
    /// Those whose servers do not answer, by provider.
    pub unreachable: &'a BTreeSet<String>,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// May a call begin?
    pub admission: Admission,
    /// Accounts that are out and of which the project did not know it, by provider.
    pub news: Vec<(String, Outage)>,
    /// What has to be written first.
    pub changes: Vec<Change>,
}

// === impl HostAccounts ===

impl HostAccounts {
    /// May this session begin a call? `changes` must be written in the transaction in which `self` was read.
    pub fn admit(&self, question: Question<'_>, me: &Holder, now: Timestamp) -> Answer {
        let Question { chain, active, known, ids: accounts, models, unreachable } = question;
        let ids = self.in_the_way(accounts, models, now);
        let mut accounts = known.clone();
        let (mut tried, mut news) = (BTreeSet::new(), Vec::new());
        for name in chain {
            let Some(&id) = ids.get(name) else { continue };
            let record = self.records.get(id);
            match in_force(known.get(name), record, now) {
                Some(account) => {
                    let heard = known.get(name).is_some_and(|old| old.out && old.until == account.until);
                    if let Some(record) = record.filter(|_| !heard && !account.is_usable(now)) {
                        news.push((name.clone(), record.outage()));
                    }
                    accounts.insert(name.clone(), account);
                }
                None => drop(accounts.remove(name)),
            }
            let half_open = record.is_some_and(|record| record.account.out);
            if half_open && self.leases.get(id).is_some_and(|lease| lease.holder != *me) {
                tried.insert(name.clone());
            }
        }
        let admission = admit(&accounts, &tried, unreachable, chain, active, now);
        let probed = match &admission {
            Admission::Probe(at) => chain.get(*at).and_then(|name| ids.get(name)).copied(),
            _ => None,
        };
        let probed = probed.filter(|id| self.records.get(*id).is_some_and(|record| record.account.out));
        let given_up = self.leases.iter().filter(|(id, l)| l.holder == *me && Some(*id) != probed);
        let mut changes: Vec<Change> = given_up.map(|(id, _)| Change::Release(id.clone())).collect();
        if let Some(id) = probed {
            changes.push(Change::Lease(id.clone(), Lease::new(me, now)));
        }
        Answer { admission, news, changes }
    }

    /// Of each account and its model the one that holds a call back for longer, by provider.
    fn in_the_way<'a>(
        &self,
        accounts: &'a BTreeMap<String, String>,
        models: &'a BTreeMap<String, String>,
        now: Timestamp,
    ) -> BTreeMap<&'a String, &'a String> {
        // Without an end is longest, then what is not due; of two that work the newer word counts.
        let weight = |id: &String| {
            let record = self.records.get(id)?;
            let Account { out, until, .. } = record.account;
            Some((!record.account.is_usable(now), out, until.is_none(), until.filter(|_| out), record.since))
        };
        let worse = |model: &&String, account: &String| weight(model) > weight(account);
        let chosen = |(name, account): (&'a String, &'a String)| {
            (name, models.get(name).filter(|model| worse(model, account)).unwrap_or(account))
        };
        accounts.iter().map(chosen).collect()
    }

    /// What an attempt of this session showed about account `id`, or about it and a model.
    pub fn learn(&self, id: &str, lesson: &Lesson, me: &Holder, now: Timestamp) -> Vec<Change> {
        let mut changes = Vec::new();
        let leased = self.leases.get(id).is_some_and(|lease| lease.holder == *me);
        let old = self.records.get(id).filter(|record| record.account.out);
        match lesson {
            Lesson::Works if old.is_some() => changes.push(Change::Put(id.to_owned(), Record::works(now))),
            Lesson::Out(outage) | Lesson::ModelOut(outage) => {
                changes.push(Change::Put(id.to_owned(), Record::out(old, outage, now)))
            }
            // Where it was not tried for all, it says something about this project.
            Lesson::Failed(outage) if leased => {
                changes.push(Change::Put(id.to_owned(), Record::out(old, outage, now)));
            }
            Lesson::Works | Lesson::Failed(_) | Lesson::Nothing => {}
        }
        if leased {
            changes.push(Change::Release(id.to_owned()));
        }
        changes
    }

    /// A person says that account `id` works: whoever asks next finds out. `all`: also one that comes back by itself.
    pub fn readmit(&self, id: &str, all: bool, now: Timestamp) -> Option<Change> {
        let record = self.records.get(id).filter(|record| record.account.out)?;
        if record.account.is_usable(now) || (record.account.until.is_some() && !all) {
            return None;
        }
        let account = Account { until: Some(now), since: Some(now), ..record.account.clone() };
        Some(Change::Put(id.to_owned(), Record { account, stated: false, since: now }))
    }

    /// The leases of this session, for as long again.
    pub fn renew(&self, me: &Holder, now: Timestamp) -> Vec<Change> {
        let own = self.leases.iter().filter(|(_, lease)| lease.holder == *me);
        own.map(|(id, _)| Change::Lease(id.clone(), Lease::new(me, now))).collect()
    }
}

/// What counts for a session whose project knows this and whose host knows that: the newer of both. What the host
/// cannot know (content that was refused, a program that does not start) counts as long as it holds.
fn in_force(known: Option<&Account>, host: Option<&Record>, now: Timestamp) -> Option<Account> {
    match (known, host) {
        (Some(known), _) if known.is_the_projects_own() && !known.is_usable(now) => Some(known.clone()),
        (Some(known), Some(host)) if known.since > Some(host.since) => Some(known.clone()),
        (_, Some(host)) if host.account.out => Some(host.account.clone()),
        // It works for others: this project, which had turned away from it, tries it.
        (Some(known), Some(host)) if known.out => Some(Account { until: Some(host.since), ..known.clone() }),
        (known, _) => known.cloned(),
    }
}

// === impl Record ===

impl Record {
    fn works(now: Timestamp) -> Self {
        let account = Account { until: None, out: false, why: String::new(), times: 0, since: Some(now) };
        Record { account, stated: false, since: now }
    }

    /// A later end that the account itself has stated stays, whoever says less meanwhile.
    fn out(old: Option<&Record>, new: &Outage, now: Timestamp) -> Self {
        let times = old.map_or(0, |record| record.account.times).saturating_add(1);
        let longer =
            old.filter(|record| record.stated && new.until.is_some() && record.account.until > new.until);
        let (until, why, stated) = match longer {
            Some(old) => (old.account.until, old.account.why.clone(), true),
            None => (new.until, new.why.clone(), new.stated),
        };
        let account = Account { until, out: true, why, times, since: Some(now) };
        Record { account, stated, since: now }
    }

    fn outage(&self) -> Outage {
        let Account { until, why, .. } = self.account.clone();
        Outage { until, why, stated: self.stated }
    }
}

// === impl Lease ===

impl Lease {
    fn new(holder: &Holder, now: Timestamp) -> Self {
        let expiry = now.saturating_add(LEASE).unwrap_or(Timestamp::MAX);
        Lease { holder: holder.clone(), expiry }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "claude:1";

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn session(pid: u32) -> Holder {
        Holder { pid, start_time: 7, space: "here".into(), project: format!("/p{pid}") }
    }

    fn limit(until: i64, stated: bool) -> Lesson {
        let why = "usage_limited".to_owned();
        Lesson::Out(Outage { until: Some(at(until)), why, stated })
    }

    /// The host, and two sessions with one account.
    #[derive(Default)]
    struct World(HostAccounts);

    impl World {
        fn write(&mut self, changes: Vec<Change>) {
            for change in changes {
                match change {
                    Change::Put(id, record) => drop(self.0.records.insert(id, record)),
                    Change::Lease(id, lease) => drop(self.0.leases.insert(id, lease)),
                    Change::Release(id) => drop(self.0.leases.remove(&id)),
                }
            }
        }

        fn learn(&mut self, pid: u32, lesson: &Lesson, now: i64) {
            let changes = self.0.learn(ID, lesson, &session(pid), at(now));
            self.write(changes);
        }

        fn ask_with(&mut self, pid: u32, known: Option<Account>, now: i64) -> Answer {
            self.ask_for("opus", pid, known, now)
        }

        fn ask_for(&mut self, model: &str, pid: u32, known: Option<Account>, now: i64) -> Answer {
            let chain = ["claude".to_owned()];
            let known = known.map(|account| ("claude".to_owned(), account)).into_iter().collect();
            let ids = [("claude".to_owned(), ID.to_owned())].into();
            let models = [("claude".to_owned(), format!("{ID}#{model}"))].into();
            let unreachable = BTreeSet::new();
            let question = Question {
                chain: &chain,
                active: 0,
                known: &known,
                ids: &ids,
                models: &models,
                unreachable: &unreachable,
            };
            let answer = self.0.admit(question, &session(pid), at(now));
            self.write(answer.changes.clone());
            answer
        }

        fn ask(&mut self, pid: u32, now: i64) -> Admission {
            self.ask_with(pid, None, now).admission
        }
    }

    fn wait(until: i64) -> Admission {
        Admission::Wait { until: at(until), account: "claude".into() }
    }

    fn busy() -> Admission {
        Admission::Busy { account: "claude".into() }
    }

    #[test]
    fn one_session_finds_out_for_all() {
        let mut w = World::default();
        assert_eq!((w.ask(1, 0), w.ask(2, 0)), (Admission::Granted(0), Admission::Granted(0)));
        assert!(w.0.leases.is_empty(), "nothing is out: nobody needs a lease");
        w.learn(1, &limit(100, true), 1);
        assert_eq!((w.ask(1, 99), w.ask(2, 99)), (wait(100), wait(100)));
        assert_eq!(
            (w.ask(2, 100), w.ask(1, 100), w.ask(2, 101)),
            (Admission::Probe(0), busy(), Admission::Probe(0))
        );
        w.learn(2, &limit(300, false), 110);
        assert_eq!((w.ask(1, 299), w.ask(2, 299)), (wait(300), wait(300)), "a failure extends it for all");
        assert_eq!((w.ask(1, 300), w.ask(2, 300)), (Admission::Probe(0), busy()));
        w.learn(
            1,
            &Lesson::Failed(Outage { until: Some(at(305)), why: "crashed".into(), stated: false }),
            301,
        );
        assert_eq!((w.ask(2, 304), w.ask(1, 305)), (wait(305), Admission::Probe(0)), "for whatever reason");
        w.learn(1, &Lesson::Nothing, 310);
        assert_eq!((w.ask(2, 311), w.ask(1, 311)), (Admission::Probe(0), busy()), "a cut call says nothing");
        w.learn(2, &Lesson::Works, 320);
        assert_eq!((w.ask(1, 320), w.ask(2, 320)), (Admission::Granted(0), Admission::Granted(0)));
        assert!(w.0.leases.is_empty());
    }

    #[test]
    fn a_models_limit_holds_back_who_asks_for_that_model() {
        let mut w = World::default();
        let Lesson::Out(outage) = limit(100, true) else { return };
        let opus = format!("{ID}#opus");
        let changes = w.0.learn(&opus, &Lesson::ModelOut(outage), &session(1), at(1));
        w.write(changes);
        let ask = |w: &mut World, model: &str, now| w.ask_for(model, 2, None, now).admission;
        assert_eq!((ask(&mut w, "opus", 2), ask(&mut w, "sonnet", 2)), (wait(100), Admission::Granted(0)));
        w.learn(1, &limit(50, true), 3);
        assert_eq!((ask(&mut w, "opus", 4), ask(&mut w, "sonnet", 4)), (wait(100), wait(50)));
        assert_eq!(ask(&mut w, "opus", 60), wait(100), "the account is due, the model is not");
        assert_eq!(ask(&mut w, "opus", 100), Admission::Probe(0));
        w.learn(2, &Lesson::Works, 101);
        let changes = w.0.learn(&opus, &Lesson::Works, &session(2), at(101));
        w.write(changes);
        let known = Account {
            until: Some(at(5000)),
            out: true,
            why: "usage_limited".into(),
            times: 1,
            since: Some(at(1)),
        };
        assert_eq!(w.ask_for("opus", 1, Some(known), 102).admission, Admission::Probe(0), "it works again");
    }

    #[test]
    fn a_stated_reset_is_never_shortened_but_by_a_success() {
        let mut w = World::default();
        w.learn(1, &limit(1000, true), 0);
        w.learn(2, &limit(50, true), 1);
        w.learn(2, &limit(60, false), 2);
        assert_eq!(w.ask(1, 500), wait(1000));
        w.learn(2, &limit(2000, false), 3);
        assert_eq!(w.ask(1, 1500), wait(2000), "a longer one counts");
        w.learn(2, &limit(1800, true), 4);
        assert_eq!(w.ask(1, 1500), wait(1800), "what was a guess gives way to a statement");
        w.learn(2, &Lesson::Works, 5);
        w.learn(1, &limit(50, false), 6);
        assert_eq!(w.ask(1, 7), wait(50));
        assert_eq!(w.0.records[ID].account.times, 1, "counted from the success on");
    }

    #[test]
    fn the_newer_word_counts_between_project_and_host() {
        let known = |since, until| Account {
            until: Some(at(until)),
            out: true,
            why: "rate_limited".into(),
            times: 1,
            since: Some(at(since)),
        };
        let mut w = World::default();
        assert_eq!(w.ask_with(1, Some(known(5, 60)), 10).admission, wait(60), "the host's was lost");
        w.learn(2, &limit(100, true), 20);
        let answer = w.ask_with(1, Some(known(5, 60)), 30);
        assert_eq!(answer.admission, wait(100));
        assert_eq!(answer.news.len(), 1, "and the project is told");
        let answer = w.ask_with(1, Some(known(31, 100)), 40);
        assert_eq!((answer.admission, answer.news), (wait(100), Vec::new()), "once");
        w.learn(2, &Lesson::Works, 50);
        assert_eq!(w.ask_with(1, Some(known(31, 100)), 60).admission, Admission::Probe(0), "back to it");
        assert!(w.0.leases.is_empty(), "while all others go on");
        w.learn(
            1,
            &Lesson::Failed(Outage { until: Some(at(200)), why: "crashed".into(), stated: false }),
            61,
        );
        assert_eq!(w.ask(2, 62), Admission::Granted(0), "its own failure is no matter of theirs");
        let refused = Account { until: None, why: "refused".into(), ..known(5, 0) };
        let out = Admission::Out { why: "refused".into() };
        assert_eq!(w.ask_with(1, Some(refused), 60).admission, out, "no matter of the account");
    }

    #[test]
    fn a_person_may_have_it_tried_again() {
        let mut w = World::default();
        w.learn(1, &Lesson::Out(Outage { until: None, why: "auth_failed".into(), stated: false }), 0);
        assert_eq!(w.ask(2, 1), Admission::Out { why: "auth_failed".into() });
        let change = w.0.readmit(ID, /* all */ false, at(2)).unwrap();
        w.write(vec![change]);
        assert_eq!((w.ask(2, 2), w.ask(1, 2)), (Admission::Probe(0), busy()), "by one");
        w.learn(2, &limit(100, true), 3);
        assert_eq!(w.0.readmit(ID, false, at(4)), None, "it comes back by itself");
        let change = w.0.readmit(ID, true, at(4)).unwrap();
        w.write(vec![change]);
        assert_eq!(w.ask(1, 4), Admission::Probe(0));
    }

    #[test]
    fn a_lease_is_renewed_and_given_up_when_it_is_not_used() {
        let mut w = World::default();
        w.learn(1, &limit(10, true), 0);
        w.ask(1, 10);
        let renewed = w.0.renew(&session(1), at(60));
        assert!(matches!(&renewed[..], [Change::Lease(_, lease)] if lease.expiry == at(150)), "{renewed:?}");
        assert_eq!(w.0.renew(&session(2), at(60)), []);
        w.write(vec![w.0.readmit(ID, true, at(60)).map_or(Change::Release("x".into()), |c| c)]);
        w.learn(2, &limit(500, true), 61);
        assert_eq!(w.ask(1, 62), wait(500), "it ran out again, as another call showed");
        assert!(w.0.leases.is_empty());
    }
}
