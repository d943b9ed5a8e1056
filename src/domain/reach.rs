//! Whose server has to answer before the next call: after a lost network, and before an account that was left for
//! that is taken again.
//!
//! A call that could not reach its server does not tell whether the host is cut off, or that server alone is. Only
//! another account whose own server answers is worth a fail-over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::accounts::Outage;
use super::outcome::Outcome;
use super::state::Account;

/// What the next call is to be decided with.
#[derive(Debug, Clone, Copy)]
pub struct Reach<'a> {
    /// The provider chain, primary first.
    pub chain: &'a [String],
    /// The one in use.
    pub active: usize,
    /// What the project knows, by provider.
    pub known: &'a BTreeMap<String, Account>,
    /// The last call of this iteration could not reach its server.
    pub lost: bool,
}

/// What the answers lead to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reached {
    /// Not to be called now, as long as there is another one.
    pub unreachable: BTreeSet<String>,
    /// Accounts that are left alone because their server does not answer, by provider.
    pub news: Vec<(String, Outage)>,
}

// === impl Reach ===

impl<'a> Reach<'a> {
    /// The providers whose servers have to be asked. Mostly none.
    pub fn to_ask(&self, now: Timestamp) -> Vec<&'a String> {
        if self.chain.len() < 2 {
            return Vec::new();
        }
        let others = || self.chain.iter().filter(|name| Some(*name) != self.chain.get(self.active));
        let usable = |name: &&String| self.known.get(*name).is_none_or(|account| account.is_usable(now));
        if self.lost {
            return self.chain.get(self.active).into_iter().chain(others().filter(usable)).collect();
        }
        others().filter(|name| self.was_left(name)).filter(usable).collect()
    }

    /// It is left alone because its server did not answer.
    fn was_left(&self, name: &str) -> bool {
        self.known.get(name).is_some_and(|account| account.out && account.why == Outcome::NetworkDown.name())
    }

    /// What follows from who answered. Not in `answers`: its server is not known, so nobody can tell. `pause`: how
    /// long an account is left alone before its server is asked again.
    pub fn judge(&self, answers: &BTreeMap<String, bool>, pause: Duration, now: Timestamp) -> Reached {
        let mut reached = Reached::default();
        let asked = self.to_ask(now);
        let silent = |name: &String| answers.get(name) != Some(&true);
        let Some(active) = self.chain.get(self.active) else { return reached };
        let out = |name: &String| {
            let pause = SignedDuration::try_from(pause).unwrap_or(SignedDuration::MAX);
            let until = Some(now.saturating_add(pause).unwrap_or(Timestamp::MAX));
            (name.clone(), Outage { until, why: Outcome::NetworkDown.name().to_owned(), stated: false })
        };
        // One that answers has had a bad moment: it is called again. Where nobody answers, it is as good as any.
        let stays =
            self.lost && (answers.get(active) == Some(&true) || asked.iter().all(|name| silent(name)));
        // Nothing is known against the server of one that nobody can ask: its time has passed, so it is tried.
        let asked = asked
            .into_iter()
            .filter(|name| if self.lost { silent(name) } else { answers.get(*name) == Some(&false) });
        for name in asked {
            if name == active {
                if !stays {
                    reached.news.push(out(name));
                    reached.unreachable.insert(name.clone());
                }
            } else {
                if self.was_left(name) && answers.contains_key(name) {
                    reached.news.push(out(name));
                }
                reached.unreachable.insert(name.clone());
            }
        }
        reached
    }
}

// === impl Reached ===

impl Reached {
    /// This one is called although it does not answer: there is no other.
    pub fn is_called(&mut self, name: &str) {
        self.news.retain(|(silent, _)| silent != name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_secs(300);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn out(why: &str, until: i64) -> Account {
        Account { until: Some(at(until)), out: true, why: why.into(), times: 1, since: Some(at(0)) }
    }

    struct World {
        chain: Vec<String>,
        active: usize,
        known: BTreeMap<String, Account>,
        lost: bool,
    }

    impl World {
        fn new(active: usize, lost: bool, known: &[(&str, Account)]) -> Self {
            let known = known.iter().map(|(name, account)| ((*name).to_owned(), account.clone())).collect();
            World { chain: ["a", "b", "c"].map(String::from).to_vec(), active, known, lost }
        }

        fn reach(&self) -> Reach<'_> {
            Reach { chain: &self.chain, active: self.active, known: &self.known, lost: self.lost }
        }

        fn asks(&self, now: i64) -> Vec<&str> {
            self.reach().to_ask(at(now)).into_iter().map(String::as_str).collect()
        }

        /// Unreachable ones, and those that are left alone until when.
        fn judge(&self, answers: &[(&str, bool)], now: i64) -> (Vec<String>, Vec<(String, i64)>) {
            let answers = answers.iter().map(|(name, yes)| ((*name).to_owned(), *yes)).collect();
            let Reached { unreachable, news } = self.reach().judge(&answers, PAUSE, at(now));
            let news = news.into_iter().map(|(name, o)| (name, o.until.unwrap().as_second())).collect();
            (unreachable.into_iter().collect(), news)
        }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn ep_003_only_a_server_that_answers_is_failed_over_to() {
        let world = World::new(0, true, &[]);
        assert_eq!(world.asks(0), ["a", "b", "c"]);
        let left = (names(&["a", "b"]), vec![("a".to_owned(), 300)]);
        assert_eq!(world.judge(&[("a", false), ("b", false), ("c", true)], 0), left);
        assert_eq!(
            world.judge(&[("a", false), ("c", true)], 0),
            left,
            "whose server is not known does not answer"
        );
    }

    #[test]
    fn ep_003_a_host_that_is_cut_off_stays_with_its_account() {
        let world = World::new(0, true, &[]);
        assert_eq!(world.judge(&[("a", false), ("b", false)], 0), (names(&["b", "c"]), vec![]));
        assert_eq!(world.judge(&[("a", true), ("b", true)], 0), (names(&["c"]), vec![]), "a bad moment");
        let alone = Reach { chain: &world.chain[..1], ..world.reach() };
        assert!(alone.to_ask(at(0)).is_empty(), "nobody to go to");
    }

    #[test]
    fn ep_003_the_primary_is_taken_again_once_its_server_answers() {
        let world = World::new(1, false, &[("a", out("network_down", 10))]);
        assert_eq!(world.asks(9), [""; 0], "it is left alone");
        assert_eq!(world.asks(10), ["a"]);
        assert_eq!(world.judge(&[("a", true)], 10), (vec![], vec![]));
        let again = (names(&["a"]), vec![("a".to_owned(), 310)]);
        assert_eq!(world.judge(&[("a", false)], 10), again);
        let mut reached = world.reach().judge(&BTreeMap::from([("a".to_owned(), false)]), PAUSE, at(10));
        reached.is_called("a");
        assert!(reached.news.is_empty(), "where there is no other, it is called, not left alone");
        assert_eq!(world.judge(&[], 10), (vec![], vec![]), "its server is not known: it is tried");
        let limited = World::new(1, false, &[("a", out("rate_limited", 10))]);
        assert_eq!(limited.asks(10), [""; 0], "nothing says that its server is away");
    }
}
