//! What holds for every order of events: thousands of random histories, crashes included.

use proptest::collection::vec;
use proptest::prelude::*;

use super::world::*;
use crate::domain::accounts::Admission;
use crate::domain::event::{Body, Event};
use crate::domain::ledger::WindowLimits;
use crate::domain::money::MicroUsd;
use crate::domain::outcome::{Outcome, Usage};
use crate::domain::session::{AttemptReport, Begin, Input, Rules, Signals, Stop, SwitchRequest};
use crate::domain::state::{GateResult, Limits, Phase, Reason, State};

/// Something that can happen at any time.
#[derive(Debug, Clone)]
enum Happening {
    /// Whoever was asked answers.
    Answer,
    /// The accounts say that it must wait.
    Refuse {
        out: bool,
    },
    /// The call ends.
    Ends {
        outcome: Outcome,
        usd: Option<f64>,
        changed: bool,
        claim: bool,
        blocked: bool,
        next: bool,
    },
    /// The gates end.
    GatesEnd(GateResult),
    /// The signal files are these now.
    Files {
        stop: bool,
        pause: bool,
        resume: bool,
        now: bool,
    },
    Disk(bool),
    Settings {
        gates: bool,
        limits: Option<Limits>,
    },
    Switch(&'static str),
    LaneDies,
    ProviderDies,
    NotReady,
    GatesDie,
    Nudge,
    /// Seconds pass.
    Passes(u64),
    /// The time until the timer passes.
    Wakes,
    /// An earlier call, an earlier question, an earlier timer.
    Late(u8),
    Says,
    /// The supervisor is killed and started again.
    Crash {
        fresh: bool,
    },
    /// The Session actor is restarted.
    Restart,
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let until = prop_oneof![
        Just(None),
        (-10_000_i64..100_000)
            .prop_map(|s| Some(morning().checked_add(jiff::SignedDuration::from_secs(s)).unwrap())),
        Just(Some(morning().checked_add(jiff::SignedDuration::from_hours(1000)).unwrap())),
    ];
    prop_oneof![
        8 => Just(completed()),
        1 => Just(Outcome::CapReached),
        3 => Just(Outcome::Empty),
        2 => until.clone().prop_map(|until| Outcome::RateLimited { until }),
        2 => until.prop_map(|until| Outcome::UsageLimited { until }),
        1 => Just(Outcome::QuotaExhausted { until: None }),
        2 => Just(Outcome::Overloaded),
        1 => Just(Outcome::AuthFailed),
        2 => Just(Outcome::NetworkDown),
        1 => Just(Outcome::ContextOverflow),
        1 => Just(Outcome::ModelUnavailable),
        1 => Just(Outcome::Refused),
        1 => Just(Outcome::Truncated),
        1 => Just(Outcome::SilentHang),
        1 => Just(Outcome::TimedOut),
        3 => Just(Outcome::Crashed { signal: None, code: Some(1) }),
        1 => Just(Outcome::NotRunnable),
        2 => Just(Outcome::Cancelled),
        1 => Just(Outcome::Unknown { code: None, tail: String::new() }),
    ]
}

fn limits() -> impl Strategy<Value = Limits> {
    let iterations = proptest::option::weighted(0.4, 1_u64..12);
    let duration = proptest::option::weighted(0.3, 0_u64..200_000);
    let budget = proptest::option::weighted(0.5, 0.0..20.0_f64);
    (iterations, duration, budget, any::<bool>()).prop_map(
        |(max_iterations, max_duration_ms, budget_usd, perpetual)| Limits {
            max_iterations,
            max_duration_ms,
            budget_usd,
            perpetual,
        },
    )
}

fn rarely() -> impl Strategy<Value = bool> {
    prop::bool::weighted(0.1)
}

fn happening() -> impl Strategy<Value = Happening> {
    let usd = proptest::option::weighted(0.6, 0.0..3.0_f64);
    let ends = (outcome(), usd, any::<bool>(), rarely(), rarely(), prop::bool::weighted(0.8));
    let ends = ends.prop_map(|(outcome, usd, changed, claim, blocked, next)| Happening::Ends {
        outcome,
        usd,
        changed,
        claim,
        blocked,
        next,
    });
    let gates = prop_oneof![
        3 => Just(GateResult::Passed),
        1 => Just(GateResult::Failed),
        1 => Just(GateResult::TimedOut),
        1 => Just(GateResult::CouldNotRun),
        1 => Just(GateResult::Cancelled),
    ];
    let files = (prop::bool::weighted(0.15), prop::bool::weighted(0.3), any::<bool>(), any::<bool>());
    let files = files.prop_map(|(stop, pause, resume, now)| Happening::Files { stop, pause, resume, now });
    prop_oneof![
        30 => Just(Happening::Answer),
        1 => any::<bool>().prop_map(|out| Happening::Refuse { out }),
        20 => ends,
        8 => gates.prop_map(Happening::GatesEnd),
        5 => files,
        2 => any::<bool>().prop_map(Happening::Disk),
        2 => (any::<bool>(), proptest::option::of(limits())).prop_map(|(gates, limits)| Happening::Settings { gates, limits }),
        1 => prop::sample::select(vec!["a", "b", "z"]).prop_map(Happening::Switch),
        2 => Just(Happening::LaneDies),
        2 => Just(Happening::ProviderDies),
        1 => Just(Happening::NotReady),
        1 => Just(Happening::GatesDie),
        2 => Just(Happening::Nudge),
        4 => (0_u64..500).prop_map(Happening::Passes),
        12 => Just(Happening::Wakes),
        2 => any::<u8>().prop_map(Happening::Late),
        3 => Just(Happening::Says),
        2 => rarely().prop_map(|fresh| Happening::Crash { fresh }),
        2 => Just(Happening::Restart),
    ]
}

#[derive(Debug, Clone)]
struct History {
    rules: Rules,
    begin: Begin,
    happenings: Vec<Happening>,
}

fn history() -> impl Strategy<Value = History> {
    let window =
        || proptest::option::weighted(0.2, 0.5..20.0_f64).prop_map(|usd| usd.and_then(MicroUsd::from_usd));
    let windows = (window(), window(), window())
        .prop_map(|(project, day, call)| (WindowLimits { project, day, month: None }, call));
    let rules = (1_u32..8, 0_u32..4, any::<[bool; 5]>(), proptest::option::of(0.0..2.0_f64), windows)
        .prop_map(
            |(
                retries,
                failover_after,
                [gates, wait, interrupts, stagnates, outage],
                assume_usd,
                (windows, call_usd),
            )| Rules {
                windows,
                call_usd,
                retries,
                failover_after,
                gates: if gates { vec!["test".into()] } else { Vec::new() },
                wait,
                pause_interrupts: interrupts,
                stagnation_warn: if stagnates { 2 } else { 0 },
                stagnation_pause: if stagnates { 4 } else { 0 },
                max_outage: outage.then_some(secs(300)),
                assume_usd,
                ..rules()
            },
        );
    let begin = (limits(), prop::sample::select(vec!["a", "a b", "a b c"]))
        .prop_map(|(limits, names)| Begin { limits, ..chain(names) });
    (rules, begin, vec(happening(), 1..150)).prop_map(|(rules, begin, happenings)| History {
        rules,
        begin,
        happenings,
    })
}

/// A world, and what is watched in it.
struct Watch {
    world: World,
    /// Events that have been looked at.
    seen: usize,
    /// The state before them.
    before: State,
    /// What people know to stand in the way.
    disk: bool,
}

impl Watch {
    fn happens(&mut self, happening: Happening) {
        let w = &mut self.world;
        if w.exit.is_some() {
            // Only a new program can change anything.
            if let Happening::Crash { fresh } = happening {
                self.crash(fresh);
            }
            return;
        }
        match happening {
            Happening::Answer => drop(w.answer()),
            Happening::Refuse { out } if w.ask.is_some() => {
                let until = w.now.checked_add(secs(20)).unwrap();
                let wait = Admission::Wait { until, account: "a".into() };
                w.refuse(if out { Admission::Out { why: "auth_failed".into() } } else { wait });
            }
            Happening::Ends { outcome, usd, changed, claim, blocked, next } if w.call.is_some() => {
                let completed = outcome.ends_iteration();
                let mut report = w.report(outcome);
                if !changed {
                    report.tree.clone_from(&w.session().tree);
                }
                report.usage = Usage { cost_usd: usd, ..Usage::default() };
                report.messages = w.state.inbox.queued.iter().map(|message| message.id).collect();
                report.claim = claim.then(|| ("line".to_owned(), String::new())).filter(|_| completed);
                report.blocked = blocked.then(|| "?".to_owned()).filter(|_| completed);
                report.next = report.next.filter(|_| next);
                w.ended(report);
            }
            Happening::GatesEnd(result) if w.gates.is_some() => drop(w.gates_ended(result)),
            Happening::Files { stop, pause, resume, now } => {
                let stop = stop.then(|| Stop { reason: Reason::Requested, detail: String::new(), now });
                w.signal(Signals { stop, pause: pause.then(String::new), resume });
            }
            Happening::Disk(low) => {
                self.disk = low;
                w.input(disk(low));
            }
            Happening::Settings { gates, limits } => {
                let gates = if gates { vec!["test".into()] } else { Vec::new() };
                w.rules = Rules { gates, ..w.rules.clone() };
                let rules = Box::new(w.rules.clone());
                let changes = limits.map(|limits| Body::LimitsChanged { limits, overrides: Vec::new() });
                w.input(Input::Settings { rules, changes: changes.into_iter().collect() });
            }
            Happening::Switch(to) => drop(w.input(Input::Switch(SwitchRequest { to: to.into() }))),
            Happening::LaneDies => {
                w.gone.extend(w.call.take());
                w.preparing = false;
                w.input(Input::LaneLost { token: None, cause: "died".into() });
                w.input(Input::Nudge);
            }
            Happening::ProviderDies if w.call.is_some() => {
                let token = w.call.take();
                w.gone.extend(token);
                w.input(Input::LaneLost { token, cause: "died".into() });
            }
            Happening::NotReady if w.preparing => {
                w.preparing = false;
                w.input(Input::NotReady { cause: "no process".into() });
            }
            Happening::GatesDie => {
                w.gates = None;
                w.input(Input::GatesLost);
            }
            Happening::Nudge => drop(w.input(Input::Nudge)),
            Happening::Passes(seconds) => w.pass(secs(seconds)),
            Happening::Wakes if w.timer.is_some() => w.wake(),
            Happening::Late(which) => self.late(which),
            Happening::Says => drop(w.say("do this")),
            Happening::Crash { fresh } => self.crash(fresh),
            Happening::Restart => {
                w.actor_restarts();
                // Disk is asked anew.
                if w.exit.is_none() {
                    w.input(disk(self.disk));
                }
            }
            _ => {}
        }
    }

    fn crash(&mut self, fresh: bool) {
        let w = &mut self.world;
        w.begin.fresh = fresh;
        w.program_starts();
        if w.exit.is_none() {
            w.input(disk(self.disk));
        }
    }

    fn late(&mut self, which: u8) {
        let w = &mut self.world;
        let events = w.events.len();
        match which % 3 {
            0 => {
                let Some(token) = w.gone.last().copied() else { return };
                let report = AttemptReport { token, ..w.report(completed()) };
                w.ended(report);
            }
            1 => drop(w.input(Input::Admitted {
                ask: 0,
                admission: Admission::Granted(0),
                news: Vec::new(),
                money: None,
            })),
            _ => drop(w.input(Input::Timer(0))),
        }
        assert_eq!(w.events.len(), events, "something late was heard");
    }

    /// Looks at what has been committed since the last look, and at where things stand.
    fn look(&mut self) {
        let new: Vec<Event> = self.world.events[self.seen..].to_vec();
        for event in new {
            self.committed(&event);
            self.before.apply(&event);
        }
        self.seen = self.world.events.len();
        assert!(self.before == self.world.state, "state is a fold of its events");
        let mut view = self.world.state.clone();
        for draft in &self.world.machine.pending {
            view.apply(&draft.clone().at(view.seq + 1));
        }
        // What others commit it sees at its next input.
        let others = self.world.machine.view.seq < view.seq;
        assert!(others || self.world.machine.view == view, "it sees what is committed and what is decided");
        self.something_is_under_way(&view);
    }

    /// One event, with the state before it.
    fn committed(&self, event: &Event) {
        let w = &self.world;
        assert_eq!(event.seq, self.before.seq + 1);
        let Some(session) = &self.before.session else {
            assert!(matches!(event.body, Body::SessionStarted(_) | Body::MessageQueued { .. }), "{event:?}");
            return;
        };
        if session.ended() {
            let allowed = matches!(event.body, Body::SessionStarted(_) | Body::MessageQueued { .. });
            assert!(allowed, "after the end: {event:?}");
        }
        match &event.body {
            Body::SessionStarted(_) => assert_eq!(session.open, None, "an attempt without an end"),
            Body::IterationStarted {} => {
                assert!(!session.in_iteration());
                assert_eq!(event.iteration, Some(session.finished + 1), "none is skipped");
                let max = session.limits.max_iterations;
                assert!(max.is_none_or(|max| session.finished < max), "{max:?}");
            }
            Body::IterationFinished { .. } => {
                assert!(session.in_iteration(), "one end for each number");
                assert_eq!(event.iteration, Some(session.iteration));
            }
            Body::AttemptStarted { reserved_usd, .. } => {
                assert_eq!(session.open, None, "two attempts at once");
                assert_eq!(
                    (event.iteration, event.attempt),
                    (Some(session.iteration), Some(session.attempt + 1))
                );
                assert!(session.in_iteration());
                assert!(session.wait.is_none(), "a call while it waits");
                assert_ne!(session.state, Phase::Paused, "a call while it is paused");
                assert!(w.signals.stop.is_none() && w.signals.pause.is_none() && !self.disk);
                let account = self.before.accounts.get(event.provider.as_deref().unwrap());
                assert!(account.is_none_or(|a| a.is_usable(event.time)), "a hot call: {account:?}");
                let windows = w.machine.rules.windows;
                if let Some(limit) = windows.smallest() {
                    let reserved = reserved_usd.and_then(MicroUsd::from_usd).unwrap_or_default();
                    let after = session.budget.spent.plus(reserved);
                    assert!(after <= limit, "{after} of {limit} in a window");
                }
                if let Some(limit) = session.limits.budget_usd {
                    let after = session
                        .budget
                        .spent
                        .plus(reserved_usd.and_then(MicroUsd::from_usd).unwrap_or_default());
                    assert!(Some(after) <= MicroUsd::from_usd(limit), "{after} of {limit}");
                }
            }
            Body::AttemptFinished(a) => {
                let open = session.open.as_ref().expect("an attempt ends that has not begun");
                assert_eq!(open.token, a.token);
                let mut after = self.before.clone();
                after.apply(event);
                let after = after.session.unwrap();
                let retries = match &a.verdict.outcome {
                    outcome if outcome.ends_iteration() => 0,
                    outcome => session.retries + u32::from(crate::domain::session::policy(outcome).counts()),
                };
                assert_eq!((after.retries, after.budget.reserved), (retries, MicroUsd::ZERO));
            }
            Body::WaitStarted { until, .. } => {
                assert_eq!(session.wait, None, "a wait within a wait");
                assert_eq!(session.open, None);
                assert!(*until > event.time, "a wait that is over before it begins");
            }
            Body::WaitEnded { why } => assert_eq!(session.wait.as_ref().map(|w| w.why), Some(*why)),
            Body::SessionPaused { .. } => assert_eq!(session.wait, None, "a wait without an end"),
            Body::SessionContinued { reason } => {
                assert_eq!((session.state, session.reason), (Phase::Paused, Some(*reason)));
            }
            Body::SessionFinished { iterations, .. } => {
                assert_eq!((&session.wait, &session.open), (&None, &None));
                assert_eq!(*iterations, session.finished);
            }
            Body::MessageDelivered { id } => {
                let first = self.before.inbox.queued.first().map(|message| message.id);
                assert_eq!(first, Some(*id), "once, and in order");
            }
            _ => {}
        }
    }

    /// Where nothing holds it, something is in flight or a timer runs: it is never stuck.
    fn something_is_under_way(&self, decided: &State) {
        let w = &self.world;
        if w.exit.is_some() {
            return;
        }
        let session = decided.session.as_ref().unwrap();
        assert!(!session.ended() && session.state != Phase::Stopped, "ended, and the program does not");
        let in_flight = w.call.is_some()
            || w.gates.is_some()
            || w.preparing
            || w.looking
            || w.ask.is_some()
            || w.timer.is_some();
        let held = session.state == Phase::Paused
            && match session.reason.unwrap() {
                Reason::Requested => w.signals.pause.is_some(),
                Reason::DiskLow => self.disk,
                _ => true,
            };
        assert!(in_flight || held, "stuck: {}, {:?}", w.phase(), w.machine.step);
        if session.state == Phase::Paused && session.reason.unwrap().needs_person() && !w.rules.wait {
            assert!(
                w.call.is_some() || w.gates.is_some() || !w.machine.rules.wait,
                "waits for a person who will not come"
            );
        }
        assert_eq!(w.call, session.open.as_ref().map(|open| open.token), "the record of the call in flight");
    }
}

/// More of them by `PROPTEST_CASES`.
fn cases(usual: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig { cases: asked.unwrap_or(usual), failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn every_history_keeps_the_rules(history in history()) {
        let History { rules, begin, happenings } = history;
        let mut world = World::unbegun(rules, begin, Signals::default());
        world.input(disk(false));
        let mut watch = Watch { world, seen: 0, before: State::default(), disk: false };
        watch.look();
        for happening in happenings {
            watch.happens(happening);
            watch.look();
        }
    }

}

proptest! {
    #![proptest_config(cases(300))]

    /// Whatever happened, when people keep out of its way it comes to its end.
    #[test]
    fn every_history_can_be_brought_to_its_end(history in history()) {
        let History { rules, begin, happenings } = history;
        let mut world = World::unbegun(rules, begin, Signals::default());
        world.input(disk(false));
        let mut watch = Watch { world, seen: 0, before: State::default(), disk: false };
        for happening in happenings {
            watch.happens(happening);
            watch.look();
        }
        let limits = Limits { max_iterations: Some(watch.world.session().finished + 3), ..Limits::default() };
        let windows = WindowLimits::default();
        watch.world.rules =
            Rules { wait: true, max_outage: None, windows, call_usd: None, ..watch.world.rules.clone() };
        watch.world.begin.limits = limits;
        watch.world.signals = Signals { resume: true, ..Signals::default() };
        watch.disk = false;
        watch.crash(false);
        for _ in 0..500 {
            if watch.world.exit.is_some() {
                break;
            }
            let w = &mut watch.world;
            if w.session().state == Phase::Paused && w.call.is_none() && w.gates.is_none() {
                w.signal(resume());
            } else if w.call.is_some() {
                w.attempt(completed());
            } else if w.gates.is_some() {
                w.gates_end(GateResult::Passed);
            } else if !w.answer() {
                w.wake();
            }
            watch.look();
        }
        prop_assert_eq!(watch.world.exit, Some(0), "{}", watch.world.phase());
    }
}
