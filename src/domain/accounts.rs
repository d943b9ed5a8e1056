//! Which account may be called now.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::state::Account;

/// The answer to "may a call begin?".
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// Yes, on this provider of the chain.
    Granted(usize),
    /// Yes, on this provider of the chain, as the one call that finds out whether its account works again.
    Probe(usize),
    /// All of them cool down.
    Wait {
        /// When the first is back.
        until: Timestamp,
        /// Which that is.
        account: String,
    },
    /// Another session is finding out whether an account works again, and no other can be called: ask again soon.
    Busy {
        /// Which that is.
        account: String,
    },
    /// None of them comes back by itself.
    Out {
        /// What the active one is out for: an outcome's name.
        why: String,
    },
}

/// What an attempt showed about the account that it was made on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lesson {
    /// It works: a call went through.
    Works,
    /// It is to be left alone, whoever uses it.
    Out(Outage),
    /// It is to be left alone by whoever asks it for the same model.
    ModelOut(Outage),
    /// The call was to find out whether it works again, and has failed of something else.
    Failed(Outage),
    /// Nothing; the call is over.
    Nothing,
}

/// An account is to be left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outage {
    /// Until then; none: until a person resumes or its credential changes.
    pub until: Option<Timestamp>,
    /// Why: an outcome's name.
    pub why: String,
    /// `until` is the account's own reset, not a guess of ours.
    pub stated: bool,
}

/// The first provider of the chain, from the primary on, whose account is not left alone at `now`.
///
/// `active` stays in use while it can be: an account before it in the chain is taken again only when it was out
/// with a stated end that has passed. An account that was never out is passed over by a fail-over after failures,
/// and stays passed over. An account that was out is called by one session at a time until it works: `tried` are
/// those that another one is calling for that now. `unreachable` are not called as long as there is another one.
pub fn admit(
    accounts: &BTreeMap<String, Account>,
    tried: &BTreeSet<String>,
    unreachable: &BTreeSet<String>,
    chain: &[String],
    active: usize,
    now: Timestamp,
) -> Admission {
    let usable = |name: &String| !tried.contains(name) && accounts.get(name).is_none_or(|a| a.is_usable(now));
    let first = |usable: &dyn Fn(&String) -> bool| {
        let back = chain.iter().take(active).position(|name| accounts.contains_key(name) && usable(name));
        back.or_else(|| Some(active + chain.iter().skip(active).position(usable)?))
            .or_else(|| chain.iter().position(usable))
    };
    let reachable = |name: &String| !unreachable.contains(name) && usable(name);
    if let Some(at) = first(&reachable).or_else(|| first(&usable)) {
        let was_out = chain.get(at).and_then(|name| accounts.get(name)).is_some_and(|a| a.out);
        return if was_out { Admission::Probe(at) } else { Admission::Granted(at) };
    }
    if let Some(account) = chain.iter().find(|name| tried.contains(*name)) {
        return Admission::Busy { account: account.clone() };
    }
    let first = chain.iter().filter_map(|name| Some((accounts.get(name)?.until?, name))).min();
    match first {
        Some((until, account)) => Admission::Wait { until, account: account.clone() },
        None => {
            let why = chain.get(active).and_then(|name| accounts.get(name)).map_or("", |a| a.why.as_str());
            Admission::Out { why: why.to_owned() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn out(until: Option<i64>) -> Account {
        Account { until: until.map(at), out: true, why: "rate_limited".into(), times: 1, since: Some(at(0)) }
    }

    fn ask(accounts: &[(&str, Account)], tried: &[&str], active: usize, now: i64) -> Admission {
        let chain: Vec<String> = ["a", "b", "c"].map(String::from).to_vec();
        let accounts = accounts.iter().map(|(n, a)| ((*n).to_owned(), a.clone())).collect();
        let tried = tried.iter().map(|name| (*name).to_owned()).collect();
        admit(&accounts, &tried, &BTreeSet::new(), &chain, active, at(now))
    }

    #[test]
    fn admits_by_the_chain() {
        let ask = |accounts: &[(&str, Account)], active, now| ask(accounts, &[], active, now);
        assert_eq!(ask(&[], 0, 0), Admission::Granted(0));
        assert_eq!(ask(&[], 1, 0), Admission::Granted(1), "a fail-over after failures sticks");
        assert_eq!(ask(&[("a", out(Some(10)))], 0, 5), Admission::Granted(1));
        assert_eq!(ask(&[("a", out(Some(10)))], 1, 10), Admission::Probe(0), "back after its reset");
        assert_eq!(ask(&[("a", out(Some(10)))], 1, 9), Admission::Granted(1));
        assert_eq!(ask(&[("b", out(Some(10)))], 1, 9), Admission::Granted(2));
        assert_eq!(ask(&[("c", out(Some(10)))], 2, 9), Admission::Granted(0), "rather than wait");
        let all = [("a", out(Some(30))), ("b", out(None)), ("c", out(Some(20)))];
        assert_eq!(ask(&all, 0, 0), Admission::Wait { until: at(20), account: "c".into() });
        let none = [("a", out(None)), ("b", out(None)), ("c", out(None))];
        assert_eq!(ask(&none, 0, 0), Admission::Out { why: "rate_limited".into() });
    }

    #[test]
    fn who_cannot_be_reached_is_the_last_choice() {
        let chain = ["a".to_owned(), "b".to_owned()];
        let ask = |unreachable: &[&str], accounts: &[(&str, Account)]| {
            let unreachable = unreachable.iter().map(|name| (*name).to_owned()).collect();
            let accounts = accounts.iter().map(|(n, a)| ((*n).to_owned(), a.clone())).collect();
            admit(&accounts, &BTreeSet::new(), &unreachable, &chain, 0, at(5))
        };
        assert_eq!(ask(&["a"], &[]), Admission::Granted(1));
        assert_eq!(ask(&["a", "b"], &[]), Admission::Granted(0), "rather than nobody");
        assert_eq!(ask(&["a"], &[("b", out(Some(10)))]), Admission::Granted(0));
    }

    #[test]
    fn one_at_a_time_tries_what_was_out() {
        let due = || ("a", out(Some(10)));
        let all = [due(), ("b", out(Some(30))), ("c", out(None))];
        assert_eq!(ask(&all, &[], 0, 10), Admission::Probe(0));
        let busy = Admission::Busy { account: "a".into() };
        assert_eq!(ask(&all, &["a"], 0, 10), busy, "rather than sleep to 30");
        assert_eq!(ask(&[due()], &["a"], 0, 10), Admission::Granted(1));
        assert_eq!(ask(&[due()], &["a"], 1, 10), Admission::Granted(1), "and stays there meanwhile");
    }
}
