//! What each outcome costs and leads to.

use jiff::{SignedDuration, Timestamp};

use super::world::*;
use crate::domain::accounts::{Admission, Lesson, Outage};
use crate::domain::event::Body;
use crate::domain::outcome::{AccountScope, Outcome};
use crate::domain::session::{Action, Input, Policy, Rules, Signals, policy};
use crate::domain::state::{Reason, WaitReason};

fn all() -> Vec<Outcome> {
    vec![
        completed(),
        Outcome::Empty,
        Outcome::RateLimited { until: None },
        Outcome::UsageLimited { until: None },
        Outcome::QuotaExhausted { until: None },
        Outcome::Overloaded,
        Outcome::AuthFailed,
        Outcome::NetworkDown,
        Outcome::ContextOverflow,
        Outcome::ModelUnavailable,
        Outcome::Refused,
        Outcome::CapReached,
        Outcome::Truncated,
        Outcome::SilentHang,
        Outcome::TimedOut,
        Outcome::Crashed { signal: Some(11), code: None },
        Outcome::NotRunnable,
        Outcome::Cancelled,
        Outcome::Unknown { code: Some(9), tail: "?".into() },
    ]
}

#[test]
fn the_table_of_the_design() {
    let retries =
        ["empty", "truncated", "crashed", "timed_out", "silent_hang", "unknown", "context_overflow"];
    for outcome in all() {
        let name = outcome.name();
        assert_eq!(policy(&outcome).counts(), retries.contains(&name), "{name}");
        // One attempt with a fallback, then what the session does.
        let mut w = World::new(rules(), chain("a b"));
        w.attempt(outcome.clone());
        w.settle();
        let session = w.session();
        assert_eq!(session.retries, u32::from(retries.contains(&name)), "{name}");
        let then = match policy(&outcome) {
            Policy::Done => ("running".to_owned(), "a", 2, 1),
            Policy::Again => ("running".to_owned(), "a", 1, 2),
            Policy::CoolDown | Policy::Out => ("running".to_owned(), "b", 1, 2),
            Policy::Wait(why) => (format!("waiting/{why}"), "a", 1, 1),
            Policy::Retry => ("waiting/back_off".to_owned(), "a", 1, 1),
        };
        let now = (w.phase(), session.provider(), session.iteration, session.attempt);
        assert_eq!(now, then, "{name}");
    }
}

#[test]
fn without_a_fallback_limits_are_waited_for_and_the_rest_asks_for_a_person() {
    for (outcome, phase) in [
        (Outcome::RateLimited { until: None }, "waiting/rate_limited"),
        (Outcome::UsageLimited { until: None }, "waiting/rate_limited"),
        (Outcome::QuotaExhausted { until: None }, "waiting/rate_limited"),
        (Outcome::AuthFailed, "paused/auth_required"),
        (Outcome::ModelUnavailable, "paused/provider_unavailable"),
        (Outcome::NotRunnable, "paused/provider_unavailable"),
        (Outcome::Refused, "paused/refused"),
    ] {
        let mut w = World::new(rules(), begin());
        w.attempt(outcome.clone());
        w.settle();
        assert_eq!((w.phase().as_str(), w.session().retries), (phase, 0), "{outcome:?}");
        if phase.starts_with("paused") {
            assert!(w.session().detail.contains("longhaul resume"), "{}", w.session().detail);
        }
    }
}

#[test]
fn a_limit_is_waited_for_until_its_own_reset_and_a_little_more() {
    let reset: Timestamp = "2026-11-30T15:00:00Z".parse().unwrap();
    for outcome in [Outcome::UsageLimited { until: Some(reset) }, Outcome::RateLimited { until: Some(reset) }]
    {
        let mut w = World::new(rules(), begin());
        w.attempt(outcome);
        w.settle();
        let wait = w.session().wait.clone().unwrap();
        assert_eq!(wait.why, WaitReason::CoolDown);
        assert!(wait.until > reset, "never at the same moment as everybody");
        assert!(wait.until.duration_since(reset) <= SignedDuration::from_secs(2));
        w.mark().call();
        assert!(w.now >= wait.until);
        assert_eq!(w.told(), ["wait_ended", "attempt_started"]);
        assert_eq!((w.session().iteration, w.session().attempt), (1, 2));
    }
}

#[test]
fn a_reset_that_is_past_or_unknown_is_never_now_and_waits_grow() {
    for until in [None, Some(morning() - secs(3600)), Some(Timestamp::MIN)] {
        let mut w = World::new(rules(), begin());
        let mut longest = SignedDuration::ZERO;
        for times in 0..40 {
            w.call();
            let before = w.now;
            w.attempt(Outcome::RateLimited { until });
            w.settle();
            let wait = w.session().wait.clone().unwrap();
            let left = wait.until.duration_since(before);
            assert!(left >= SignedDuration::from_secs(2), "{until:?}, time {times}: {left:?}");
            assert!(left <= SignedDuration::from_secs(3600), "{left:?}");
            longest = longest.max(left);
        }
        assert!(longest >= SignedDuration::from_secs(60), "{longest:?}");
        assert_eq!(w.session().retries, 0);
    }
    let mut w = World::new(rules(), begin());
    w.attempt(Outcome::UsageLimited { until: Some(Timestamp::MAX) });
    w.settle();
    assert_eq!(w.phase(), "waiting/rate_limited", "nothing overflows");
}

#[test]
fn fails_over_and_comes_back_after_the_reset() {
    let mut w = World::new(rules(), chain("a b"));
    let reset = morning() + secs(600);
    w.attempt(Outcome::UsageLimited { until: Some(reset) });
    w.mark().call();
    assert_eq!(w.session().provider(), "b");
    let Body::Failover { from, to, why } = &w.last("failover").body else { panic!() };
    assert_eq!((from.as_str(), to.as_str(), why.as_str()), ("a", "b", "usage_limited"));
    w.attempt(completed());
    w.call();
    assert_eq!(w.session().provider(), "b", "the reset has not come");
    w.pass(secs(700));
    w.attempt(completed());
    w.call();
    assert_eq!(w.session().provider(), "a");
    w.attempt(completed());
    assert!(w.state.accounts.is_empty(), "it works again");
}

#[test]
fn all_cooling_sleeps_to_the_earliest() {
    let mut w = World::new(rules(), chain("a b"));
    w.attempt(Outcome::UsageLimited { until: Some(morning() + secs(5000)) });
    w.attempt(Outcome::UsageLimited { until: Some(morning() + secs(1000)) });
    w.settle();
    let wait = w.session().wait.clone().unwrap();
    assert!(wait.until >= morning() + secs(1000) && wait.until <= morning() + secs(1010));
    w.call();
    assert_eq!(w.session().provider(), "b");
}

#[test]
fn three_empty_answers_fail_over_or_pause() {
    let mut w = World::new(rules(), chain("a b"));
    for _ in 0..3 {
        w.attempt(Outcome::Empty);
    }
    w.call();
    assert_eq!((w.session().provider(), w.session().iteration, w.session().attempt), ("b", 1, 4));
    for _ in 0..3 {
        w.attempt(Outcome::Empty);
    }
    w.settle();
    assert_eq!((w.phase().as_str(), w.session().retries), ("paused/retries_exhausted", 6));

    let mut w = World::new(rules(), begin());
    for _ in 0..2 {
        w.attempt(Outcome::Empty);
        assert_eq!(w.phase(), "waiting/back_off");
    }
    w.attempt(Outcome::Empty);
    assert_eq!(w.phase(), "paused/retries_exhausted");
    assert_eq!(w.count("iteration_finished"), 0, "never taken for success");
}

#[test]
fn a_success_takes_the_retries_back() {
    let mut w = World::new(rules(), begin());
    for _ in 0..2 {
        w.attempt(Outcome::Empty);
        w.attempt(Outcome::Empty);
        w.attempt(completed());
        assert_eq!((w.session().retries, w.session().retries_here, w.session().backoff), (0, 0, 0));
    }
}

#[test]
fn fifty_failures_in_a_row_pause() {
    let mut w = World::new(rules(), begin());
    for n in 1..=50 {
        w.attempt(Outcome::Crashed { signal: None, code: Some(1) });
        assert_eq!(w.session().retries, n);
    }
    w.settle();
    assert_eq!(w.phase(), "paused/retries_exhausted");
    w.program_starts();
    w.settle();
    assert_eq!((w.phase().as_str(), w.session().retries), ("paused/retries_exhausted", 50));
    w.signal(resume());
    w.call();
    assert_eq!(w.session().retries, 0);
}

#[test]
fn an_outage_uses_no_retries_however_long_it_lasts() {
    let mut w = World::new(rules(), begin());
    w.attempt(completed());
    for _ in 0..300 {
        w.attempt(Outcome::NetworkDown);
        w.settle();
        let wait = w.session().wait.clone().unwrap();
        assert!(wait.until.duration_since(w.now) <= SignedDuration::from_secs(300));
    }
    assert!(w.now.duration_since(morning()) > SignedDuration::from_hours(5));
    assert_eq!((w.session().retries, w.session().iteration), (0, 2));
    w.attempt(completed());
    assert_eq!(w.session().finished, 2);
    assert_eq!(w.session().outage_since, None);
}

#[test]
fn an_outage_may_be_limited() {
    let mut w = World::new(Rules { max_outage: Some(secs(7200)), ..rules() }, begin());
    w.attempt(Outcome::NetworkDown);
    w.attempt(Outcome::Cancelled);
    w.attempt(Outcome::Overloaded);
    w.attempt(completed());
    let began = w.now;
    while !w.is_over() {
        w.attempt(Outcome::NetworkDown);
        if w.timer.is_some() && !w.is_over() {
            w.wake();
        }
    }
    assert_eq!((w.phase().as_str(), w.exit), ("failed/max_outage", Some(1)));
    let lasted = w.now.duration_since(began);
    assert!(
        lasted >= SignedDuration::from_secs(7200) && lasted < SignedDuration::from_secs(8200),
        "{lasted:?}"
    );
}

#[test]
fn two_overflows_in_a_row_pause() {
    let mut w = World::new(rules(), begin());
    w.attempt(Outcome::ContextOverflow);
    w.attempt(Outcome::Truncated);
    w.attempt(Outcome::ContextOverflow);
    assert_eq!(w.phase(), "waiting/back_off");
    w.attempt(Outcome::ContextOverflow);
    assert_eq!(w.phase(), "paused/context_overflow");
    w.signal(resume());
    w.call();
}

#[test]
fn a_lost_call_is_made_again_soon_and_never_hot() {
    let mut w = World::new(rules(), begin());
    w.call();
    let mut slowest = SignedDuration::ZERO;
    for n in 1..60 {
        w.gone.extend(w.call.take());
        let before = w.now;
        w.input(Input::LaneLost { token: None, cause: "the lane died".into() });
        w.call();
        let waited = w.now.duration_since(before);
        slowest = slowest.max(waited);
        assert!(waited >= SignedDuration::from_millis(10), "{waited:?}");
        assert_eq!((w.session().iteration, w.session().attempt, w.session().retries), (1, n + 1, 0));
    }
    assert!(slowest <= SignedDuration::from_secs(30));
    w.attempt(completed());
    w.call();
    let lost = w.gone[0];
    w.mark().input(Input::LaneLost { token: Some(lost), cause: "late".into() });
    assert_eq!(w.told(), [""; 0], "that was another attempt");
}

#[test]
fn a_lane_that_cannot_get_ready_is_asked_again() {
    let mut w = World::new(rules(), begin());
    w.base();
    w.preparing = false;
    w.input(Input::NotReady { cause: "no process".into() });
    assert_eq!(w.phase(), "waiting/back_off");
    w.wake();
    assert!(w.preparing);
    w.ready();
    w.admit();
    assert!(w.input(Input::NotReady { cause: "late".into() }).is_empty());
    assert!(w.call.is_some());
}

#[test]
fn late_reports_are_fenced_off() {
    let mut w = World::new(rules(), begin());
    let first = w.call();
    let late = w.report(completed());
    w.input(Input::LaneLost { token: Some(first), cause: "the provider actor died".into() });
    w.call = None;
    w.call();
    w.mark();
    assert!(w.ended(late.clone()).is_empty());
    w.attempt(completed());
    w.settle();
    assert!(w.ended(late).is_empty());
    assert_eq!(w.session().finished, 1);
}

#[test]
fn answers_to_older_questions_are_ignored() {
    let mut w = World::new(rules(), begin());
    w.base();
    w.ready();
    let old = w.ask.take().unwrap().ask;
    w.input(Input::Nudge);
    let late =
        || Input::Admitted { ask: old, admission: Admission::Granted(0), news: Vec::new(), money: None };
    assert!(w.input(late()).is_empty());
    w.admit();
    assert!(w.call.is_some());
    assert!(w.input(late()).is_empty());
}

#[test]
fn timers_of_earlier_waits_are_ignored() {
    let mut w = World::new(rules(), begin());
    w.attempt(Outcome::Overloaded);
    w.settle();
    let (_, generation) = w.timer.unwrap();
    w.input(Input::Nudge);
    assert!(w.input(Input::Timer(generation)).is_empty());
    assert_eq!(w.phase(), "waiting/overloaded");
    assert_eq!(w.count("wait_started"), 1, "the same wait is told once");
}

#[test]
fn accounts_that_hold_the_session_back_are_waited_for() {
    let mut w = World::new(rules(), begin());
    w.base();
    w.ready();
    let until = w.now + secs(30);
    w.refuse(Admission::Wait { until, account: "a".into() });
    assert_eq!(w.phase(), "waiting/rate_limited");
    w.wake();
    let until = w.now + secs(40);
    w.mark().refuse(Admission::Wait { until, account: "a".into() });
    assert_eq!(w.told(), ["wait_ended", "wait_started"], "each wait has an end");
    w.wake();
    w.mark().refuse(Admission::Out { why: "auth_failed".into() });
    assert_eq!(w.told(), ["wait_ended", "session_paused"]);
    assert_eq!(w.session().reason, Some(Reason::AuthRequired));
}

#[test]
fn a_failed_probe_leaves_the_primary_alone_for_longer_each_time() {
    let mut w = World::new(rules(), chain("a b"));
    w.attempt(Outcome::UsageLimited { until: Some(morning() + secs(600)) });
    w.call();
    let (mut probes, mut longest) = (0, SignedDuration::ZERO);
    for failure in [Outcome::NetworkDown, Outcome::Empty, Outcome::Overloaded].into_iter().cycle().take(12) {
        while w.session().provider() == "b" {
            w.pass(secs(30));
            w.attempt(completed());
            w.call();
        }
        probes += 1;
        let before = w.now;
        w.attempt(failure);
        let until = w.state.accounts["a"].until.unwrap();
        assert!(until.duration_since(before) >= SignedDuration::from_secs(60), "{until}");
        longest = longest.max(until.duration_since(before));
        w.call();
        assert_eq!(w.session().provider(), "b", "no ping-pong");
    }
    assert!(longest > SignedDuration::from_mins(5), "{longest:?}");
    assert_eq!(w.count("cool_down"), probes + 1);
    while w.session().provider() == "b" {
        w.pass(secs(300));
        w.attempt(completed());
        w.call();
    }
    w.attempt(completed());
    assert!(w.state.accounts.is_empty(), "one success clears it");
}

#[test]
fn ep_011_two_limited_providers_are_called_once_a_window_each() {
    let mut w = World::new(rules(), chain("a b"));
    let mut windows = std::collections::BTreeMap::new();
    let mut calls = 0;
    while w.now < morning() + secs(24 * 3600) {
        w.call();
        let provider = w.session().provider().to_owned();
        assert!(windows.get(&provider).is_none_or(|until| *until <= w.now), "a call within a window");
        w.attempt(Outcome::RateLimited { until: None });
        w.settle();
        windows.insert(provider.clone(), w.state.accounts[&provider].until.unwrap());
        calls += 1;
    }
    assert_eq!(windows.len(), 2);
    assert!(calls < 150, "{calls} calls in a day");
    assert_eq!((w.session().retries, w.count("iteration_finished")), (0, 0));
}

#[test]
fn ep_003_a_probe_without_a_fallback_backs_off_as_ever() {
    let mut w = World::new(rules(), begin());
    w.attempt(Outcome::UsageLimited { until: None });
    for _ in 0..20 {
        w.attempt(Outcome::NetworkDown);
        w.settle();
        let wait = w.session().wait.clone().unwrap();
        assert!(wait.until.duration_since(w.now) <= SignedDuration::from_secs(300), "{wait:?}");
    }
    assert_eq!(w.session().retries, 0);
    w.attempt(completed());
    assert!(w.state.accounts.is_empty());
}

#[test]
fn others_that_find_out_are_waited_for_and_told_once() {
    let mut w = World::new(rules(), begin());
    w.base();
    w.ready();
    let busy = || Admission::Busy { account: "a".into() };
    w.refuse(busy());
    assert_eq!(w.phase(), "waiting/rate_limited");
    for _ in 0..10 {
        let before = w.now;
        w.wake();
        assert!(w.now.duration_since(before) <= SignedDuration::from_secs(1), "it looks again soon");
        w.refuse(busy());
    }
    assert_eq!(w.count("wait_started"), 1);
    w.mark().wake();
    w.admit();
    assert_eq!(w.told(), ["wait_ended", "iteration_started", "attempt_started"]);
}

#[test]
fn what_others_learned_is_journaled() {
    let mut w = World::new(rules(), chain("a b"));
    w.base();
    w.ready();
    let ask = w.ask.take().unwrap().ask;
    let until = Some(w.now + secs(600));
    let outage = Outage { until, why: "usage_limited".into(), stated: true };
    let news = vec![("a".to_owned(), outage)];
    w.mark().input(Input::Admitted { ask, admission: Admission::Granted(1), news, money: None });
    assert_eq!(w.told(), ["cool_down", "failover", "iteration_started", "attempt_started"]);
    let Body::Failover { why, .. } = &w.last("failover").body else { panic!() };
    assert_eq!((why.as_str(), w.state.accounts["a"].until), ("usage_limited", until));
}

#[test]
fn an_answer_that_is_not_used_is_given_back() {
    let mut w = World::new(rules(), begin());
    w.base();
    w.ready();
    let ask = w.ask.take().unwrap().ask;
    w.signal(pause());
    let probe = || Input::Admitted { ask, admission: Admission::Probe(0), news: Vec::new(), money: None };
    let back = Action::Learned { account: "a".into(), lesson: Lesson::Nothing };
    assert_eq!(w.input(probe()), [back]);
    w.signal(Signals::default());
    w.call();
    assert_eq!(w.input(probe()), [], "a later answer is in use");
    let report = w.report(Outcome::Cancelled);
    let nothing = |a: &Action| matches!(a, Action::Learned { .. });
    assert!(!w.ended(report).iter().any(nothing), "that call was no probe");
}

#[test]
fn a_probe_that_is_cut_says_nothing() {
    let mut w = World::new(rules(), begin());
    w.attempt(Outcome::RateLimited { until: None });
    w.call();
    let report = w.report(Outcome::Cancelled);
    let nothing = Action::Learned { account: "a".into(), lesson: Lesson::Nothing };
    assert!(w.ended(report).contains(&nothing));
    assert_eq!(w.count("cool_down"), 1);
    w.call = None;
    w.call();
    let lost = w.input(Input::LaneLost { token: None, cause: "the lane died".into() });
    assert!(lost.contains(&nothing), "{lost:?}");
}

#[test]
fn a_clock_that_is_set_back_makes_no_wait_longer() {
    let mut w = World::new(rules(), begin());
    w.attempt(Outcome::Overloaded);
    w.settle();
    w.now -= SignedDuration::from_hours(24);
    w.input(Input::Nudge);
    let wait = w.session().wait.clone().unwrap();
    assert!(wait.until.duration_since(w.now) <= SignedDuration::from_secs(300), "{wait:?}");
    w.wake();
    w.settle();
    assert!(w.call.is_some());
}

#[test]
fn what_an_attempt_showed_is_told_before_the_next_admission() {
    let mut w = World::new(rules(), chain("a b"));
    w.call();
    let mut report = w.report(Outcome::AuthFailed);
    report.verdict.scope = AccountScope::Account;
    let actions = w.ended(report);
    let learned = actions
        .iter()
        .position(|a| matches!(a, Action::Learned { lesson: Lesson::Out(Outage { until: None, .. }), .. }));
    let asked = actions.iter().position(|a| matches!(a, Action::Admit { known, .. } if known["a"].out));
    assert!(learned.unwrap() < asked.unwrap());
}

#[test]
fn what_is_no_matter_of_the_account_is_not_told_to_others() {
    for scope in [AccountScope::Model, AccountScope::Request, AccountScope::None] {
        let mut w = World::new(rules(), begin());
        w.call();
        let mut report = w.report(Outcome::Refused);
        report.verdict.scope = scope;
        let nothing = Action::Learned { account: "a".into(), lesson: Lesson::Nothing };
        assert!(w.ended(report).contains(&nothing), "{scope:?}");
        w.settle();
        assert!(w.state.accounts["a"].out, "the project knows it");
    }
}
