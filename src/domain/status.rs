//! The projection of state that scripts and prompts read: `status --json` and `status.json`.

use jiff::Timestamp;
use serde::Serialize;

use super::event::Mode;
use super::ids::{LaneId, SessionId};
use super::ledger::{Tally, Window};
use super::money::MicroUsd;
use super::state::{GateResult, Phase, Reason, State, WaitReason};

/// What is not in the state.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    /// Version of Longhaul.
    pub version: String,
    /// The project's folder.
    pub project: String,
    /// Process id of the supervisor, where one runs.
    pub pid: Option<u32>,
    /// What is wrong with the state database, if anything.
    pub problem: Option<String>,
    /// Free space, by path.
    pub disk: Vec<DiskSpace>,
    /// The limit below which the session pauses, bytes.
    pub min_free_bytes: u64,
    /// Money beyond the session.
    pub windows: Vec<WindowStatus>,
}

/// Free space of a file system in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiskSpace {
    /// A path on it.
    pub path: String,
    /// Free bytes.
    pub free_bytes: u64,
    /// Free inodes; none where the file system has no such limit.
    pub free_inodes: Option<u64>,
}

/// The projection.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    /// Version of Longhaul.
    pub version: String,
    /// The project's folder.
    pub project: String,
    /// A supervisor is at work.
    pub running: bool,
    /// Its process id.
    pub pid: Option<u32>,
    /// What is wrong with the state database, if anything.
    pub problem: Option<String>,
    /// The newest session.
    pub session: Option<SessionStatus>,
    /// Its lanes.
    pub lanes: Vec<LaneStatus>,
    /// Accounts of its provider chain.
    pub accounts: Vec<AccountStatus>,
    /// Money.
    pub budget: BudgetStatus,
    /// Room.
    pub disk: DiskStatus,
    /// Messages.
    pub inbox: InboxStatus,
    /// The last result of each gate.
    pub gates: Vec<GateStatus>,
    /// The last checkpoint.
    pub checkpoint: Option<super::state::Checkpoint>,
    /// The last event.
    pub seq: u64,
}

/// The session.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SessionStatus {
    /// Identity.
    pub id: SessionId,
    /// What it is doing.
    pub state: Phase,
    /// Why.
    pub reason: Option<Reason>,
    /// In words.
    pub detail: String,
    /// Since when.
    pub since: Timestamp,
    /// When it was started.
    pub started: Timestamp,
    /// `spec` or `analysis`.
    pub mode: Mode,
    /// `simple`, `standard` or `complex`.
    pub complexity: String,
    /// The spec's path.
    pub spec: Option<String>,
    /// The iteration in progress, else the last finished one.
    pub iteration: u64,
    /// Iterations finished.
    pub finished: u64,
    /// The attempt of the iteration in progress.
    pub attempt: u32,
    /// The limit, if any.
    pub max_iterations: Option<u64>,
    /// Failures in a row that count.
    pub retries: u32,
    /// Finished iterations in a row without a changed tree.
    pub unchanged: u32,
    /// The provider in use.
    pub provider: String,
    /// When it goes on by itself.
    pub resume_at: Option<Timestamp>,
    /// Why it waits.
    pub waiting_for: Option<WaitReason>,
    /// How the last attempt ended.
    pub last_outcome: Option<String>,
    /// It goes on with new goals.
    pub perpetual: bool,
    /// Time in which it was not paused, seconds.
    pub active_seconds: u64,
}

/// A lane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LaneStatus {
    /// Which.
    pub lane: LaneId,
    /// `calling` or `idle`.
    pub state: &'static str,
    /// The iteration it is in.
    pub iteration: u64,
    /// The call's provider.
    pub provider: Option<String>,
    /// The call's process.
    pub pid: Option<u32>,
    /// Since when.
    pub since: Option<Timestamp>,
}

/// An account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AccountStatus {
    /// Its name.
    pub account: String,
    /// `ready`, `cooling` or `out`.
    pub state: &'static str,
    /// When it may be tried again.
    pub until: Option<Timestamp>,
    /// Why.
    pub why: Option<String>,
}

/// Money, US dollars.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BudgetStatus {
    /// The limit, if any.
    pub limit_usd: Option<f64>,
    /// Booked.
    pub spent_usd: f64,
    /// Set aside for calls in flight.
    pub reserved_usd: f64,
    /// Calls whose cost is not known, and not in `spent_usd`.
    pub unknown_calls: u64,
    /// What goes beyond the session; empty while nothing is known of that.
    pub windows: Vec<WindowStatus>,
}

/// Money of a window, US dollars.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WindowStatus {
    /// Which window.
    pub window: Window,
    /// The limit, if any.
    pub limit_usd: Option<f64>,
    /// Booked.
    pub spent_usd: f64,
    /// Set aside for calls in flight.
    pub reserved_usd: f64,
    /// What is left of the limit.
    pub left_usd: Option<f64>,
    /// Calls.
    pub calls: u64,
    /// Those of them whose cost is not known: they are in `spent_usd` with what was assumed, if anything was.
    pub unknown_calls: u64,
    /// When it begins anew; none: never.
    pub resets_at: Option<Timestamp>,
}

/// Room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiskStatus {
    /// Below this the session pauses, bytes.
    pub min_free_bytes: u64,
    /// File systems in use.
    pub file_systems: Vec<DiskSpace>,
}

/// Messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InboxStatus {
    /// Not yet delivered.
    pub queued: usize,
    /// Delivered so far.
    pub delivered: u64,
}

/// A gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GateStatus {
    /// Its name.
    pub name: String,
    /// How it ended.
    pub result: GateResult,
    /// When.
    pub time: Timestamp,
    /// Milliseconds.
    pub duration_ms: u64,
}

// === impl Status ===

impl Status {
    /// Of `state` as it is at `now`.
    pub fn of(state: &State, facts: &Facts, now: Timestamp) -> Self {
        let session = state.session.as_ref();
        Status {
            version: facts.version.clone(),
            project: facts.project.clone(),
            running: facts.pid.is_some(),
            pid: facts.pid,
            problem: facts.problem.clone(),
            session: session.map(|s| SessionStatus {
                id: s.id,
                state: s.state,
                reason: s.reason,
                detail: s.detail.clone(),
                since: s.since,
                started: s.started,
                mode: s.mode,
                complexity: s.complexity.clone(),
                spec: s.spec.clone(),
                iteration: s.iteration,
                finished: s.finished,
                attempt: s.attempt,
                max_iterations: s.limits.max_iterations,
                retries: s.retries,
                unchanged: s.unchanged,
                provider: s.provider().to_owned(),
                resume_at: s.wait.as_ref().map(|w| w.until),
                waiting_for: s.wait.as_ref().map(|w| w.why),
                last_outcome: s.last_outcome.clone(),
                perpetual: s.limits.perpetual,
                active_seconds: s.active_time_ms(now) / 1000,
            }),
            lanes: session.map(lane).into_iter().collect(),
            accounts: session
                .map_or_else(Vec::new, |s| s.chain.iter().map(|name| account(name, state, now)).collect()),
            budget: BudgetStatus {
                limit_usd: session.and_then(|s| s.limits.budget_usd),
                spent_usd: session.map_or(0.0, |s| s.budget.spent.as_usd()),
                reserved_usd: session.map_or(0.0, |s| s.budget.reserved.as_usd()),
                unknown_calls: session.map_or(0, |s| s.budget.unknown_calls),
                windows: facts.windows.clone(),
            },
            disk: DiskStatus { min_free_bytes: facts.min_free_bytes, file_systems: facts.disk.clone() },
            inbox: InboxStatus { queued: state.inbox.queued.len(), delivered: state.inbox.delivered },
            gates: state
                .gates
                .iter()
                .map(|(name, gate)| GateStatus {
                    name: name.clone(),
                    result: gate.result,
                    time: gate.time,
                    duration_ms: gate.duration_ms,
                })
                .collect(),
            checkpoint: session.and_then(|s| s.checkpoint.clone()),
            seq: state.seq,
        }
    }
}

impl WindowStatus {
    /// Of a window with these bounds, if it has any.
    pub fn of(
        window: Window,
        limit_usd: Option<f64>,
        tally: Tally,
        bounds: Option<(Timestamp, Timestamp)>,
    ) -> Self {
        let limit = limit_usd.and_then(MicroUsd::from_usd);
        WindowStatus {
            window,
            limit_usd,
            spent_usd: tally.spent.as_usd(),
            reserved_usd: tally.reserved.as_usd(),
            left_usd: limit.map(|limit| limit.minus(tally.spent.plus(tally.reserved)).as_usd()),
            calls: tally.calls,
            unknown_calls: tally.unknown_calls,
            resets_at: bounds.map(|(_, end)| end),
        }
    }
}

fn lane(session: &super::state::Session) -> LaneStatus {
    let open = session.open.as_ref();
    LaneStatus {
        lane: open.map_or(LaneId(1), |o| o.lane),
        state: if open.is_some() { "calling" } else { "idle" },
        iteration: session.iteration,
        provider: open.map(|o| o.provider.clone()),
        pid: open.and_then(|o| o.pid),
        since: open.map(|o| o.started),
    }
}

fn account(name: &str, state: &State, now: Timestamp) -> AccountStatus {
    let known = state.accounts.get(name).filter(|a| a.out && a.until.is_none_or(|until| until > now));
    AccountStatus {
        account: name.to_owned(),
        state: match known {
            None => "ready",
            Some(a) if a.until.is_some() => "cooling",
            Some(_) => "out",
        },
        until: known.and_then(|a| a.until),
        why: known.map(|a| a.why.clone()),
    }
}
