//! What comes from outside: signal files, the disk, settings.

use std::time::Duration;

use super::input::{Action, EndReason, Rules, Signals, Stop};
use super::machine::{Machine, Step};
use crate::domain::disk::DiskReport;
use crate::domain::event::Body;
use crate::domain::ledger::Window;
use crate::domain::state::{Phase, Reason};

impl Machine {
    // --- signals ---

    pub(super) fn signals_changed(&mut self, signals: Signals) {
        let resume = signals.resume;
        self.signals = Signals { resume: false, ..signals };
        if let Some(stop) = self.signals.stop.clone() {
            return self.stop(&stop);
        }
        if resume {
            if let Some(reason) = self.paused_for()
                && reason != Reason::DiskLow
                && self.signals.pause.is_none()
            {
                self.continue_from(reason);
            }
            self.act(Action::ConsumeResume);
        }
        match (self.signals.pause.clone(), self.paused_for()) {
            (Some(detail), reason) if reason != Some(Reason::Requested) => self.pause_requested(detail),
            (None, Some(reason @ Reason::Requested)) => {
                self.continue_from(reason);
                self.settle();
            }
            _ => self.settle(),
        }
    }

    /// Somebody has logged in again, perhaps: one call finds out.
    pub(super) fn credential_changed(&mut self) {
        if self.paused_for() == Some(Reason::AuthRequired) && self.signals.pause.is_none() {
            self.continue_from(Reason::AuthRequired);
        }
        self.settle();
    }

    /// A pause is over. What only a person could mend counts as mended.
    pub(super) fn continue_from(&mut self, reason: Reason) {
        if reason.ends_with_accounts() {
            let chain = self.session().map_or_else(Vec::new, |s| s.chain.clone());
            self.actions.push(Action::Readmit { chain });
        }
        self.push(Body::SessionContinued { reason });
        if matches!(self.step, Step::Calling { .. }) {
            self.watch_the_time();
        }
    }

    fn stop(&mut self, stop: &Stop) {
        let grace = if stop.now { Duration::ZERO } else { self.rules.stop_grace };
        let was_stopping = self.state() == Phase::Stopping;
        match &mut self.step {
            Step::Calling { ending, .. } => {
                let again = *ending == Some(EndReason::Stop);
                *ending = Some(EndReason::Stop);
                if !again || stop.now {
                    // TERM first: the commit may be slow, the person must not wait for it.
                    self.actions.push(Action::EndCall { why: EndReason::Stop, grace });
                }
            }
            Step::Gating { ending, .. } => {
                let again = std::mem::replace(ending, true);
                if !again || stop.now {
                    self.actions.push(Action::EndGates { grace });
                }
            }
            _ => return self.settle(),
        }
        if !was_stopping {
            let (reason, detail, now) = (stop.reason, stop.detail.clone(), stop.now);
            self.push(Body::SessionStopping { reason, detail, now });
        }
    }

    fn pause_requested(&mut self, detail: String) {
        let in_flight = matches!(self.step, Step::Calling { .. } | Step::Gating { .. });
        self.end_wait();
        self.push(Body::SessionPaused { reason: Reason::Requested, detail, in_flight });
        if self.rules.pause_interrupts {
            self.interrupt(EndReason::Pause);
        }
        self.settle();
    }

    /// Ends a call in flight so that its iteration runs again later.
    pub(super) fn interrupt(&mut self, why: EndReason) {
        if let Step::Calling { ending: ending @ None, .. } = &mut self.step {
            *ending = Some(why);
            self.actions.push(Action::EndCall { why, grace: self.rules.stop_grace });
        }
    }

    // --- disk ---

    pub(super) fn disk_changed(&mut self, report: DiskReport) {
        self.disk_known = true;
        match (self.disk.take(), report) {
            (before, DiskReport::Low(body)) => {
                self.disk = Some(body.clone());
                if before.is_none() {
                    self.push(body.clone());
                    self.interrupt(EndReason::Disk);
                    if self.paused_for().is_none() {
                        self.pause_for_disk(&body);
                    }
                }
            }
            (Some(Body::DiskLow { path, .. }), DiskReport::Room { free_bytes }) => {
                self.push(Body::DiskRecovered { path, free_bytes });
                if self.paused_for() == Some(Reason::DiskLow) {
                    self.continue_from(Reason::DiskLow);
                }
            }
            (_, DiskReport::Room { .. }) => {}
        }
        self.settle();
    }

    pub(super) fn pause_for_disk(&mut self, body: &Body) {
        let detail = match body {
            Body::DiskLow { path, limit, .. } => {
                format!("{path}: {limit}; make room, the session goes on by itself")
            }
            _ => String::new(),
        };
        let in_flight = matches!(self.step, Step::Calling { .. } | Step::Gating { .. });
        self.end_wait();
        self.push(Body::SessionPaused { reason: Reason::DiskLow, detail, in_flight });
    }

    // --- settings ---

    pub(super) fn settings(&mut self, rules: Rules, changes: Vec<Body>) {
        let mut said = self.staged.take().map_or_else(Vec::new, |(_, said)| said);
        said.extend(changes);
        self.staged = Some((rules, said));
        self.settle();
    }

    /// New settings and another provider come in where nothing is in flight.
    pub(super) fn take_in_settings(&mut self) {
        if let Some((rules, changes)) = self.staged.take() {
            self.rules = rules;
            for change in changes {
                self.push(change);
            }
        }
        if let Some(to) = self.switch.take()
            && let Some(session) = self.session()
            && session.provider() != to
        {
            let from = session.provider().to_owned();
            self.push(Body::ProviderSwitched { from, to });
            self.not_before = None;
            let elsewhere =
                [Reason::AuthRequired, Reason::ProviderUnavailable, Reason::Refused, Reason::ContextOverflow];
            // Another CLI may keep the limit of one call itself.
            let one_call =
                self.session().and_then(|s| s.over).is_some_and(|over| over.window == Window::Call);
            let ends = |reason: &Reason| {
                elsewhere.contains(reason) || (*reason == Reason::BudgetExceeded && one_call)
            };
            if let Some(reason) = self.paused_for().filter(ends) {
                self.continue_from(reason);
            }
        }
    }
}
