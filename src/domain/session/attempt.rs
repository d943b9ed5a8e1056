//! An attempt: what must hold before it begins, its first commit, and what is done when it is lost.

use std::time::Duration;

use super::boundary::later;
use super::input::{Action, AttemptReport, GateReport};
use super::machine::{Machine, Step};
use super::policy::out_reason;
use crate::domain::accounts::{Admission, Lesson, Outage};
use crate::domain::backoff::Backoff;
use crate::domain::event::Body;
use crate::domain::ids::Token;
use crate::domain::ledger::Money;
use crate::domain::money::MicroUsd;
use crate::domain::outcome::Outcome;
use crate::domain::state::WaitReason;

/// Before an attempt is made again that was lost with its actor.
const LOST: Backoff = Backoff {
    floor: Duration::from_millis(10),
    ..Backoff::new(Duration::from_millis(100), Duration::from_secs(30))
};

/// How long a wait for another session's call is said to last at most. It is looked at every [`LOOK`].
const OTHERS: Duration = Duration::from_secs(300);

/// Between two looks at what another session finds out.
const LOOK: Duration = Duration::from_secs(1);

impl Machine {
    pub(super) fn start_attempt(&mut self) {
        if let Some((until, why, detail)) = self.not_before.clone()
            && until > self.now
        {
            return self.wait(until, why, detail);
        }
        self.not_before = None;
        let provider = self.session().map_or(String::new(), |s| s.provider().to_owned());
        if let Some(exceeded) = self.over_limit(&provider) {
            return self.exceeded(exceeded);
        }
        if self.ready.is_none() {
            self.step = Step::Preparing;
            return self.act(Action::Prepare);
        }
        if !self.base_known {
            self.step = Step::Preparing;
            return;
        }
        let Some(session) = self.session() else { return };
        let (chain, active) = (session.chain.clone(), session.active);
        let lost =
            session.in_iteration() && session.last_outcome.as_deref() == Some(Outcome::NetworkDown.name());
        let known = self.view.accounts.clone();
        self.asks += 1;
        let ask = self.asks;
        let money = self.ask_ledger();
        self.step = Step::Admitting { ask };
        self.actions.push(Action::Admit { ask, chain, active, known, lost, money });
    }

    pub(super) fn admitted(&mut self, admission: Admission, money: Option<Money>) {
        if let Some(exceeded) = self.over_with(&admission) {
            self.turn_down(&admission, money);
            return self.exceeded(exceeded);
        }
        match admission {
            Admission::Granted(at) | Admission::Probe(at) => {
                let mut token = None;
                match money {
                    Some(Money::Exceeded(exceeded)) => return self.exceeded(exceeded),
                    Some(Money::Unusable(why)) => return self.no_ledger(&why),
                    Some(Money::Reserved { token: reserved, ref windows }) => {
                        token = Some(reserved);
                        self.found.clone_from(windows);
                    }
                    None => self.found.clear(),
                }
                let Some(process) = self.ready.take() else {
                    self.turn_down(&admission, money);
                    return self.advance();
                };
                self.probing = matches!(admission, Admission::Probe(_));
                self.end_wait();
                self.begin_attempt(at, process, token);
            }
            Admission::Busy { account } => self.wait_for_others(&account),
            Admission::Wait { until, account } => {
                let detail = format!("all accounts cool down; `{account}` is the first to be back");
                self.wait(until, WaitReason::CoolDown, detail);
            }
            Admission::Out { why } => self.pause(out_reason(&why)),
        }
    }

    /// What sessions of other projects have learned of the same accounts.
    pub(super) fn heard(&mut self, news: Vec<(String, Outage)>) {
        for (account, Outage { until, why, .. }) in news {
            self.push(Body::CoolDown { account, until, why });
        }
    }

    /// An answer that comes too late: what it gives is not used.
    pub(super) fn turn_down(&mut self, admission: &Admission, money: Option<Money>) {
        if let Some(Money::Reserved { token, .. }) = money {
            self.actions.push(Action::Release { token });
        }
        if let Admission::Probe(at) = admission
            && !matches!(self.step, Step::Admitting { .. } | Step::Calling { .. })
            && let Some(account) = self.session().and_then(|s| s.chain.get(*at)).cloned()
        {
            self.actions.push(Action::Learned { account, lesson: Lesson::Nothing });
        }
    }

    /// Another session's call finds out whether the account works again. When that will be is not known: the wait is
    /// told once, and looked at often.
    fn wait_for_others(&mut self, account: &str) {
        let told = self.session().and_then(|s| s.wait.as_ref());
        let told = told.filter(|wait| wait.why == WaitReason::CoolDown && wait.until > self.now);
        let until = told.map_or_else(|| later(self.now, OTHERS), |wait| wait.until);
        let detail = format!("another session finds out whether `{account}` works again");
        self.wait_until(until, later(self.now, LOOK), WaitReason::CoolDown, detail);
    }

    fn begin_attempt(&mut self, at: usize, process: Option<(u32, u64)>, token: Option<Token>) {
        let Some(session) = self.session() else { return };
        let from = session.provider().to_owned();
        let provider = session.chain.get(at).cloned().unwrap_or_default();
        if from != provider {
            let why = self.view.accounts.get(&from).map_or_else(
                || {
                    if at == 0 {
                        "back to the primary".to_owned()
                    } else {
                        "too many failures in a row".to_owned()
                    }
                },
                |account| account.why.clone(),
            );
            self.push(Body::Failover { from, to: provider.clone(), why });
        }
        let Some((iteration, attempt)) = self.next_call() else { return };
        let fresh = self.session().is_some_and(|session| !session.in_iteration());
        let at = Some((iteration, attempt, provider.as_str()));
        if fresh {
            self.push_at(Body::IterationStarted {}, Some((iteration, 0, provider.as_str())));
            if let Some(draft) = self.pending.last_mut() {
                draft.attempt = None;
            }
        }
        let reserved = self.reserve(&provider, at);
        let token = token.unwrap_or_else(|| Token(self.ids.next(self.now)));
        let resumes = self.conversation_to_resume(&provider);
        let (pid, start_time) = process.unzip();
        self.push_at(
            Body::AttemptStarted {
                token,
                model: None,
                pid,
                start_time,
                resumes,
                reserved_usd: reserved.map(MicroUsd::as_usd),
            },
            at,
        );
        self.step = Step::Calling { token, ending: None };
        self.act(Action::Go { token, iteration, attempt, provider });
        self.watch_the_time();
    }

    /// The first call after the program was started again goes on with the provider's last conversation, if a person
    /// wants that.
    fn conversation_to_resume(&self, provider: &str) -> Option<String> {
        let session =
            self.session().filter(|session| self.rules.resume_conversation && session.resume_due)?;
        Some(session.conversations.get(provider)?.id.clone())
    }

    // --- what was lost ---

    pub(super) fn lane_lost(&mut self, lost: Option<Token>, cause: &str) {
        self.ready = None;
        match self.step {
            Step::Calling { token, .. } if lost.is_none_or(|lost| lost == token) => {
                self.step = Step::Idle;
                self.close_lost_attempt(token, cause);
                self.hold_off("the call was lost".to_owned());
                self.advance();
            }
            Step::Preparing if lost.is_none() => self.not_ready(cause.to_owned()),
            _ => {}
        }
    }

    pub(super) fn not_ready(&mut self, cause: String) {
        if self.step == Step::Preparing {
            self.hold_off(cause);
            self.advance();
        }
    }

    /// What is lost again and again must not become a hot loop.
    fn hold_off(&mut self, cause: String) {
        let delay = LOST.delay(self.lost, None, self.ids.rng());
        self.lost = self.lost.saturating_add(1);
        self.not_before = Some((later(self.now, delay), WaitReason::BackOff, cause));
    }

    /// The gates that ran are lost with their actor: run again, unless they were being ended.
    pub(super) fn gates_lost(&mut self) {
        match std::mem::replace(&mut self.step, Step::Idle) {
            Step::Gating { report, ending: true } if self.signals.stop.is_some() => {
                self.gates_done(&report, Vec::new());
            }
            Step::Gating { report, .. } => {
                let (token, names) = (report.token, self.due(&report));
                self.step = Step::Gating { report, ending: false };
                self.act(Action::RunGates { token, names });
            }
            other => self.step = other,
        }
    }

    pub(super) fn gates_ended(&mut self, token: Token, reports: Vec<GateReport>) {
        match std::mem::replace(&mut self.step, Step::Idle) {
            Step::Gating { report, .. } if report.token == token => self.gates_done(&report, reports),
            other => self.step = other,
        }
    }

    pub(super) fn attempt_ended(&mut self, report: AttemptReport) {
        match self.step {
            Step::Calling { token, .. } if token == report.token => {
                self.ready = Some(report.next).filter(Option::is_some);
                self.lost = 0;
                self.step = Step::Idle;
                self.judge(report);
            }
            // Late output of an older attempt: fenced off.
            _ => {}
        }
    }
}
