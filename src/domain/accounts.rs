//! Which account may be called now.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::state::Account;

/// The answer to "may a call begin?".
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// Yes, on this provider of the chain.
    Granted(usize),
    /// All of them cool down.
    Wait {
        /// When the first is back.
        until: Timestamp,
        /// Which that is.
        account: String,
    },
    /// None of them comes back by itself.
    Out {
        /// What the active one is out for: an outcome's name.
        why: String,
    },
}

/// The first provider of the chain, from the primary on, whose account is not left alone at `now`.
///
/// `active` stays in use while it can be: an account before it in the chain is taken again only when it was out
/// with a stated end that has passed. An account that was never out is passed over by a fail-over after failures,
/// and stays passed over.
pub fn admit(
    accounts: &BTreeMap<String, Account>,
    chain: &[String],
    active: usize,
    now: Timestamp,
) -> Admission {
    let usable = |name: &String| accounts.get(name).is_none_or(|a| a.is_usable(now));
    let back = chain.iter().take(active).position(|name| accounts.contains_key(name) && usable(name));
    if let Some(at) = back {
        return Admission::Granted(at);
    }
    if let Some(at) = chain.iter().skip(active).position(usable) {
        return Admission::Granted(active + at);
    }
    if let Some(at) = chain.iter().position(usable) {
        return Admission::Granted(at);
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
        Account { until: until.map(at), out: true, why: "rate_limited".into(), times: 1 }
    }

    #[test]
    fn admits_by_the_chain() {
        let chain: Vec<String> = ["a", "b", "c"].map(String::from).to_vec();
        let admit = |accounts: &[(&str, Account)], active, now| {
            let accounts = accounts.iter().map(|(n, a)| ((*n).to_owned(), a.clone())).collect();
            super::admit(&accounts, &chain, active, at(now))
        };
        assert_eq!(admit(&[], 0, 0), Admission::Granted(0));
        assert_eq!(admit(&[], 1, 0), Admission::Granted(1), "a fail-over after failures sticks");
        assert_eq!(admit(&[("a", out(Some(10)))], 0, 5), Admission::Granted(1));
        assert_eq!(admit(&[("a", out(Some(10)))], 1, 10), Admission::Granted(0), "back after its reset");
        assert_eq!(admit(&[("a", out(Some(10)))], 1, 9), Admission::Granted(1));
        assert_eq!(admit(&[("b", out(Some(10)))], 1, 9), Admission::Granted(2));
        assert_eq!(admit(&[("c", out(Some(10)))], 2, 9), Admission::Granted(0), "rather than wait");
        let all = [("a", out(Some(30))), ("b", out(None)), ("c", out(Some(20)))];
        assert_eq!(admit(&all, 0, 0), Admission::Wait { until: at(20), account: "c".into() });
        let none = [("a", out(None)), ("b", out(None)), ("c", out(None))];
        assert_eq!(admit(&none, 0, 0), Admission::Out { why: "rate_limited".into() });
    }
}
