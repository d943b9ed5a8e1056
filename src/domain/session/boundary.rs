//! What the end of an attempt leads to: gates, the iteration's end, a retry, a fail-over, a pause.

use jiff::{SignedDuration, Timestamp};

use super::input::{Action, AttemptReport, GateReport};
use super::machine::{Machine, Step};
use super::policy::{Policy, advice, policy, prompt_was_read, was_turned_away};
use crate::domain::accounts::{Lesson, Outage};
use crate::domain::event::{AttemptFinished, Body};
use crate::domain::money::MicroUsd;
use crate::domain::outcome::{AccountScope, Outcome, Usage, Verdict};
use crate::domain::state::{GateRecord, GateResult, Phase, Reason, WaitReason, millis_between};

impl Machine {
    /// The attempt of this report is over; nothing is in flight.
    pub(super) fn judge(&mut self, report: AttemptReport) {
        self.book(&report);
        let verdict = &report.verdict;
        let policy = policy(&verdict.outcome);
        if std::mem::take(&mut self.probing) {
            self.probe_ended(policy, &verdict.outcome);
        }
        match policy {
            Policy::Done => return self.work_done(report),
            Policy::Again => {}
            Policy::CoolDown => self.cool_down(verdict),
            Policy::Out => self.out(None, false, verdict),
            Policy::Wait(why) => self.back_off(why, &verdict.outcome),
            Policy::Retry => {
                if self.failed(&verdict.outcome) {
                    return;
                }
            }
        }
        self.advance();
    }

    /// Books the attempt: its end, and the messages that reached the agent with it.
    fn book(&mut self, report: &AttemptReport) {
        let Some(session) = self.session() else { return };
        let (iteration, attempt) = (session.iteration, session.attempt);
        let open = session.open.clone();
        let provider = open.as_ref().map_or_else(|| session.provider().to_owned(), |o| o.provider.clone());
        let reserved = open.as_ref().and_then(|o| o.reserved_usd);
        let outcome = &report.verdict.outcome;
        let idle = report.usage == Usage::default() && report.tools == 0;
        let (cost_usd, cost_source) = match (report.usage.cost_usd, reserved, self.rules.assume_usd) {
            (Some(cost), ..) => (Some(cost), "provider"),
            // A day of an unreachable server must not eat up the budget.
            (None, ..) if idle && was_turned_away(outcome) => (Some(0.0), "none"),
            (None, Some(reserved), _) if !outcome.ends_iteration() => (Some(reserved), "reservation"),
            (None, _, Some(assumed)) => (Some(assumed), "assumed"),
            (None, Some(reserved), None) => (Some(reserved), "reservation"),
            (None, None, None) => (None, "unknown"),
        };
        let finished = AttemptFinished {
            token: report.token,
            verdict: report.verdict.clone(),
            counts: policy(outcome).counts(),
            usage: report.usage,
            cost_usd,
            cost_source: cost_source.to_owned(),
            duration_ms: report.duration_ms,
            exit: report.exit,
            conversation: report.conversation.clone(),
            conversation_usd: report.conversation_usd,
            conversation_home: report.conversation_home.clone(),
            resumed: report.resumed,
            tools: report.tools,
            answer: report.answer.clone(),
            strays: report.strays,
            tree: report.tree.clone(),
            extra: std::collections::BTreeMap::new(),
        };
        if let Some(open) = &open {
            self.note_booking(open, &finished);
        }
        self.push_at(
            Body::AttemptFinished(Box::new(finished)),
            Some((iteration, attempt, provider.as_str())),
        );
        if outcome.ends_iteration() {
            self.actions.push(Action::Learned { account: provider, lesson: Lesson::Works });
        }
        if prompt_was_read(outcome) {
            for id in &report.messages {
                self.push(Body::MessageDelivered { id: *id });
            }
        }
        self.say_overshoot(reserved.and_then(MicroUsd::from_usd), cost_usd.and_then(MicroUsd::from_usd));
    }

    // --- success ---

    fn work_done(&mut self, report: AttemptReport) {
        if let Some((by, summary)) = report.claim.clone() {
            self.push(Body::CompletionClaimed { by, summary });
        }
        let due = self.due(&report);
        if due.is_empty() || self.signals.stop.is_some() {
            return self.gates_done(&report, Vec::new());
        }
        let token = report.token;
        self.step = Step::Gating { report: Box::new(report), ending: false };
        // Gates take their time: the attempt's end must not wait for them.
        self.act(Action::RunGates { token, names: due });
    }

    /// The gates whose result for this tree is not known.
    pub(super) fn due(&self, report: &AttemptReport) -> Vec<String> {
        self.rules.gates.iter().filter(|name| !self.known(name, report)).cloned().collect()
    }

    /// The gate's last result is about this very tree.
    fn known(&self, name: &str, report: &AttemptReport) -> bool {
        self.view.gates.get(name).is_some_and(|record| holds(record, report.tree.as_deref()))
    }

    /// All gates that had to run have run: the iteration ends.
    pub(super) fn gates_done(&mut self, report: &AttemptReport, reports: Vec<GateReport>) {
        let tree = report.tree.clone();
        let cut = reports.iter().any(|r| r.result == GateResult::Cancelled);
        // Gates that were due and did not run, because of STOP, say nothing about a claim.
        let cut = cut || (self.signals.stop.is_some() && self.due(report).len() > reports.len());
        let ran: Vec<String> = reports.iter().map(|r| r.name.clone()).collect();
        for gate in reports {
            if let Some(after_ms) = gate.timed_out_after {
                self.push(Body::GateTimeout { name: gate.name.clone(), after_ms });
            }
            self.push(Body::GateFinished {
                name: gate.name,
                result: gate.result,
                tree: tree.clone(),
                exit: gate.exit,
                duration_ms: gate.duration_ms,
                tail: gate.tail,
                reused: false,
            });
        }
        self.say_reused(tree.as_deref(), &ran);
        let verified = if report.claim.is_some() && !cut { self.check_claim(tree.as_deref()) } else { false };
        self.end_iteration(report);
        if verified && !self.session().is_some_and(|s| s.limits.perpetual) {
            let summary = report.claim.as_ref().map_or(String::new(), |(_, summary)| summary.clone());
            return self.finish(Phase::Finished, Reason::GoalsMet, summary);
        }
        if let Some(why) = &report.blocked {
            return self.pause_with(Reason::NeedsHuman, why.clone());
        }
        self.advance();
    }

    /// Gates that did not run because their result for this very tree is known.
    fn say_reused(&mut self, tree: Option<&str>, ran: &[String]) {
        let gates = self.rules.gates.iter().filter(|name| !ran.contains(name));
        let known = gates.filter_map(|name| Some((name.clone(), self.view.gates.get(name)?)));
        let reused =
            known.filter(|(_, record)| holds(record, tree)).map(|(name, record)| Body::GateFinished {
                name,
                result: record.result,
                tree: record.tree.clone(),
                exit: record.exit,
                duration_ms: record.duration_ms,
                tail: String::new(),
                reused: true,
            });
        for event in reused.collect::<Vec<_>>() {
            self.push(event);
        }
    }

    /// A claim holds when every gate passed on this tree; without gates it holds unverified.
    fn check_claim(&mut self, tree: Option<&str>) -> bool {
        let passed = |name: &String| {
            let record = self.view.gates.get(name);
            record.is_some_and(|r| r.result == GateResult::Passed && r.tree.as_deref() == tree)
        };
        let (good, failed): (Vec<String>, Vec<String>) = self.rules.gates.iter().cloned().partition(passed);
        if failed.is_empty() {
            let unverified = good.is_empty();
            self.push(Body::CompletionVerified { gates: good, unverified });
            return true;
        }
        self.push(Body::CompletionRejected { failed });
        false
    }

    fn end_iteration(&mut self, report: &AttemptReport) {
        let Some(session) = self.session() else { return };
        let number = session.iteration;
        let duration_ms = session.iteration_started.map_or(0, |since| millis_between(since, self.now));
        let changed = report.tree.is_some() && report.tree != session.tree;
        self.push(Body::IterationFinished { changed, tree: report.tree.clone(), duration_ms });
        if let Some(tree) = report.tree.clone() {
            self.push(Body::CheckpointCreated { number, tree, reference: report.reference.clone() });
            // The ref follows the commit, during the next call.
            self.late.push(Action::Checkpoint { number });
        }
        let unchanged = self.session().map_or(0, |s| s.unchanged);
        if unchanged > 0
            && (unchanged == self.rules.stagnation_warn || unchanged == self.rules.stagnation_pause)
        {
            self.push(Body::Stagnation { iterations: unchanged });
        }
    }

    // --- failure ---

    fn provider_in_use(&self) -> String {
        self.session().map_or(String::new(), |s| s.provider().to_owned())
    }

    /// The call was to find out whether its account works again, and has failed for another reason than the one that
    /// the account was out for. It is left alone for longer each time, or two providers would take turns failing.
    fn probe_ended(&mut self, policy: Policy, outcome: &Outcome) {
        let account = self.provider_in_use();
        match policy {
            // What it has shown is said there.
            Policy::Done | Policy::CoolDown | Policy::Out => {}
            Policy::Again => self.actions.push(Action::Learned { account, lesson: Lesson::Nothing }),
            Policy::Wait(_) | Policy::Retry => {
                let times = self.cool_downs(&account);
                let delay = if self.has_another(&account) {
                    self.rules.probe.delay(times, Some(self.rules.probe.base), self.ids.rng())
                } else {
                    self.rules.backoff.delay(times, None, self.ids.rng())
                };
                let (until, why) = (Some(later(self.now, delay)), outcome.name().to_owned());
                self.leave_alone(account, Outage { until, why, stated: false }, Lesson::Failed);
            }
        }
    }

    /// Another provider of the chain can be called meanwhile.
    fn has_another(&self, account: &str) -> bool {
        let usable = |name: &String| self.view.accounts.get(name).is_none_or(|a| a.is_usable(self.now));
        self.session().is_some_and(|s| s.chain.iter().any(|name| name != account && usable(name)))
    }

    /// How often in a row the account was left alone.
    fn cool_downs(&self, account: &str) -> u32 {
        self.view.accounts.get(account).map_or(0, |a| a.times)
    }

    fn cool_down(&mut self, verdict: &Verdict) {
        let times = self.cool_downs(&self.provider_in_use());
        let stated = match &verdict.outcome {
            Outcome::RateLimited { until }
            | Outcome::UsageLimited { until }
            | Outcome::QuotaExhausted { until } => *until,
            _ => None,
        };
        let rules = &self.rules;
        let delay = match stated {
            // A reset that is due, or nearly: never 'now', and longer each time that it did not help.
            Some(until) if until > self.now => {
                let stated =
                    std::time::Duration::try_from(until.duration_since(self.now)).unwrap_or_default();
                let jitter = rules.backoff.delay(0, None, self.ids.rng());
                stated.saturating_add(jitter).max(rules.probe.floor)
            }
            Some(_) => rules.backoff.delay(times, Some(rules.backoff.base), self.ids.rng()),
            None => rules.probe.delay(times, Some(rules.probe.base.min(rules.probe.cap)), self.ids.rng()),
        };
        let until = later(self.now, delay);
        self.out(Some(until), stated.is_some_and(|stated| stated > self.now), verdict);
    }

    fn out(&mut self, until: Option<Timestamp>, stated: bool, verdict: &Verdict) {
        let why = verdict.outcome.name().to_owned();
        let lesson = match verdict.scope {
            AccountScope::Account => Lesson::Out,
            AccountScope::Model if until.is_some() => Lesson::ModelOut,
            // A model that this project may not use, or what it asks for, is no matter of others.
            _ => |_: Outage| Lesson::Nothing,
        };
        self.leave_alone(self.provider_in_use(), Outage { until, why, stated }, lesson);
    }

    fn leave_alone(&mut self, account: String, outage: Outage, lesson: fn(Outage) -> Lesson) {
        let Outage { until, why, .. } = outage.clone();
        self.push(Body::CoolDown { account: account.clone(), until, why });
        self.actions.push(Action::Learned { account, lesson: lesson(outage) });
    }

    fn back_off(&mut self, why: WaitReason, outcome: &Outcome) {
        let failures = self.session().map_or(0, |s| s.backoff.saturating_sub(1));
        let delay = self.rules.backoff.delay(failures, None, self.ids.rng());
        self.not_before = Some((later(self.now, delay), why, outcome.to_string()));
    }

    /// A failure that uses a retry. True when it led to a pause.
    fn failed(&mut self, outcome: &Outcome) -> bool {
        let Some(session) = self.session() else { return false };
        if session.overflows >= 2 {
            self.pause(Reason::ContextOverflow);
            return true;
        }
        if session.retries_here >= self.rules.failover_after && self.rules.failover_after > 0 {
            let from = session.provider().to_owned();
            let accounts = &self.view.accounts;
            let usable = |name: &&String| accounts.get(*name).is_none_or(|a| a.is_usable(self.now));
            if let Some(to) = session.chain.iter().skip(session.active + 1).find(usable).cloned() {
                let why = format!("{} failures in a row, the last one: {outcome}", session.retries_here);
                self.push(Body::Failover { from, to, why });
                return false;
            }
            if *outcome == Outcome::Empty {
                // Nobody to ask instead, and nothing to learn from: a person has to look.
                let provider = self.provider_in_use();
                let detail = format!(
                    "`{provider}` said nothing, again and again; {}",
                    advice(Reason::RetriesExhausted, &provider, None)
                );
                self.pause_with(Reason::RetriesExhausted, detail);
                return true;
            }
        }
        self.back_off(WaitReason::BackOff, outcome);
        false
    }
}

/// A result that can be used again: it was about the same tree, and about the tree only.
fn holds(record: &GateRecord, tree: Option<&str>) -> bool {
    matches!(record.result, GateResult::Passed | GateResult::Failed | GateResult::TimedOut)
        && tree.is_some()
        && record.tree.as_deref() == tree
}

pub(super) fn later(now: Timestamp, delay: std::time::Duration) -> Timestamp {
    let delay = SignedDuration::try_from(delay).unwrap_or(SignedDuration::MAX);
    now.saturating_add(delay).unwrap_or(Timestamp::MAX)
}
