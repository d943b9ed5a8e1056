//! The report of `longhaul status` for people.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::{Report, Signals};
use crate::cli::format;
use crate::cli::output::{Output, Style, plain};
use crate::cli::render;
use crate::domain::claim::DONE;
use crate::domain::state::{GateResult, Phase, Reason};
use crate::domain::status::{DiskSpace, GateStatus, SessionStatus, Status};

/// The report for people, in lines.
pub(super) fn words(report: &Report, zone: &TimeZone, now: Timestamp, output: &Output) -> Vec<String> {
    let Report { status, signals } = report;
    let mut lines = Vec::new();
    let mut row = |name: &str, text: String| {
        let name = output.styled(Style::Dim, &format!("{name:<11}")).into_owned();
        lines.push(format!("  {name} {}", plain(&text).replace('\n', " ")));
    };
    let next;
    let heading = match &status.session {
        None => {
            row("project", status.project.clone());
            next = "`longhaul run` starts a session".to_owned();
            format!("{} no session has run here yet", output.styled(Style::Dim, "○"))
        }
        Some(session) => {
            rows(status, session, zone, now, &mut row);
            next = advice(status, session, *signals);
            heading(status, session, now, output)
        }
    };
    if status.inbox.queued > 0 {
        let waiting = if status.running { "for the next prompt" } else { "for the next `longhaul run`" };
        row("messages", format!("{} {waiting}", format::count(status.inbox.queued as u64, "message")));
    }
    if !status.disk.file_systems.is_empty() {
        row("disk", disk(status));
    }
    lines.insert(0, heading);
    let asked = match (signals.stop, signals.pause) {
        (true, _) => Some("STOP"),
        (false, true) => Some("PAUSE"),
        (false, false) => None,
    };
    if let Some(name) = asked.filter(|_| !is_obeyed(status, *signals)) {
        lines.push(format!("  {} {name} is there", output.styled(Style::Warn, "signal     ")));
    }
    if let Some(problem) = &status.problem {
        lines.push(format!("  {} {}", output.styled(Style::Bad, "problem    "), plain(problem)));
    }
    if !next.is_empty() {
        lines.push(String::new());
        lines.push(format!("{} {}", output.styled(Style::Good, "next:"), plain(&next)));
    }
    lines
}

/// Nothing is left to say about the signal file: the state shows it.
fn is_obeyed(status: &Status, signals: Signals) -> bool {
    let session = status.session.as_ref();
    !signals.stop && session.is_some_and(|s| s.state == Phase::Paused && s.reason == Some(Reason::Requested))
}

fn heading(status: &Status, session: &SessionStatus, now: Timestamp, output: &Output) -> String {
    let gone = !status.running && is_live(session.state);
    let (style, mark) = match session.state {
        _ if gone => (Style::Bad, "●"),
        Phase::Starting | Phase::Running => (Style::Good, "●"),
        Phase::Finished => (Style::Good, "○"),
        Phase::Waiting | Phase::Paused | Phase::Stopping => (Style::Warn, "●"),
        Phase::Stopped => (Style::Warn, "○"),
        Phase::Failed => (Style::Bad, "○"),
    };
    let state = if gone { "cut off" } else { render::phase(session.state) };
    let why = match session.reason {
        _ if gone => format!(" (was {})", render::phase(session.state)),
        Some(reason) => format!(" ({})", render::reason(reason)),
        None => String::new(),
    };
    let limit = session.max_iterations.map_or_else(String::new, |limit| format!(" of {limit}"));
    let attempt = if session.attempt > 1 { format!(", attempt {}", session.attempt) } else { String::new() };
    let since = format::between(session.since, now);
    let since = match session.state {
        Phase::Stopped | Phase::Finished | Phase::Failed => format!("{since} ago"),
        _ => format!("for {since}"),
    };
    format!(
        "{} {}{why} {since} · iteration {}{limit}{attempt}",
        output.styled(style, mark),
        output.styled(Style::Bold, state),
        session.iteration,
    )
}

/// A supervisor should be at work in this state.
fn is_live(state: Phase) -> bool {
    matches!(state, Phase::Starting | Phase::Running | Phase::Waiting | Phase::Stopping)
}

fn rows(
    status: &Status,
    session: &SessionStatus,
    zone: &TimeZone,
    now: Timestamp,
    row: &mut dyn FnMut(&str, String),
) {
    row("project", status.project.clone());
    let supervisor = status.pid.map_or_else(String::new, |pid| format!(", process {pid}"));
    let active = std::time::Duration::from_secs(session.active_seconds);
    let started = format::time(session.started, zone, now);
    row("session", format!("{}, {started}, active for {}{supervisor}", session.id, format::duration(active)));
    let spec = session.spec.clone().unwrap_or_else(|| "none: it looks for work in the code".to_owned());
    row("spec", format!("{spec} ({})", session.complexity));
    row("provider", provider(status, session, now));
    if let Some(until) = session.resume_at {
        let why = session.waiting_for.map_or_else(String::new, |why| format!(": {}", render::wait(why)));
        row(
            "waits",
            format!("until {} (in {}){why}", format::time(until, zone, now), format::between(now, until)),
        );
    }
    if !session.detail.is_empty() && session.detail != DONE {
        row("detail", session.detail.clone());
    }
    if session.retries > 0 || session.last_outcome.as_deref().is_some_and(is_failure) {
        let last = session.last_outcome.as_deref().unwrap_or("unknown").replace('_', " ");
        row("failures", format!("{} in a row; the last attempt: {last}", session.retries));
    }
    if session.unchanged > 0 {
        row("unchanged", format!("no file changed for {}", format::count(session.unchanged, "iteration")));
    }
    row("budget", budget(status));
    if !status.gates.is_empty() {
        row("gates", gates(status, now));
    }
    if let Some(checkpoint) = &status.checkpoint {
        let tree: String = checkpoint.tree.chars().take(10).collect();
        row("checkpoint", format!("iteration {}, tree {tree}", checkpoint.number));
    }
}

/// By outcome name.
fn is_failure(outcome: &str) -> bool {
    !matches!(outcome, "completed" | "cancelled")
}

fn provider(status: &Status, session: &SessionStatus, now: Timestamp) -> String {
    let mut text = session.provider.clone();
    for lane in status.lanes.iter().filter(|lane| lane.state == "calling") {
        let since =
            lane.since.map_or_else(String::new, |since| format!(" for {}", format::between(since, now)));
        let pid = lane.pid.map_or_else(String::new, |pid| format!(", process {pid}"));
        text.push_str(&format!(", works{since}{pid}"));
    }
    for account in status.accounts.iter().filter(|account| account.state != "ready") {
        let why = account.why.as_deref().unwrap_or("unknown").replace('_', " ");
        text.push_str(&format!("; {} is {} ({why})", account.account, account.state));
    }
    text
}

fn budget(status: &Status) -> String {
    let budget = &status.budget;
    let limit =
        budget.limit_usd.map_or_else(|| ", no limit".to_owned(), |usd| format!(" of {}", format::usd(usd)));
    let mut text = format!("{} spent{limit}", format::usd(budget.spent_usd));
    if budget.reserved_usd > 0.0 {
        text.push_str(&format!(", {} reserved", format::usd(budget.reserved_usd)));
    }
    if budget.unknown_calls > 0 {
        text.push_str(&format!(", {} of unknown cost", format::count(budget.unknown_calls, "call")));
    }
    for window in &budget.windows {
        let Some(limit) = window.limit_usd else { continue };
        let (spent, limit) = (format::usd(window.spent_usd + window.reserved_usd), format::usd(limit));
        text.push_str(&format!("; {spent} of {limit} this {}", window.window.name()));
    }
    text
}

fn gates(status: &Status, now: Timestamp) -> String {
    let gate = |gate: &GateStatus| {
        format!("{} {} {} ago", gate.name, render::gate(gate.result), format::between(gate.time, now))
    };
    status.gates.iter().map(gate).collect::<Vec<_>>().join(", ")
}

fn disk(status: &Status) -> String {
    let several = status.disk.file_systems.len() > 1;
    let space = |space: &DiskSpace| {
        let at = if several { format!(" at {}", space.path) } else { String::new() };
        let low = if space.free_bytes < status.disk.min_free_bytes { " (low)" } else { "" };
        format!("{} free{at}{low}", format::bytes(space.free_bytes))
    };
    status.disk.file_systems.iter().map(space).collect::<Vec<_>>().join(", ")
}

/// What a person can do now; empty: nothing is needed.
fn advice(status: &Status, session: &SessionStatus, signals: Signals) -> String {
    let paused = session.state == Phase::Paused;
    match session.reason {
        _ if !status.running && signals.stop => {
            "the next `longhaul run` stops at once while .longhaul/STOP is there".to_owned()
        }
        _ if !status.running && is_live(session.state) => {
            "its supervisor is gone; `longhaul run` goes on from the last saved state".to_owned()
        }
        Some(Reason::DiskLow) if paused => {
            "make room on the disk; it goes on by itself, with half again the limit free".to_owned()
        }
        Some(Reason::BudgetExceeded) if paused => {
            "`longhaul budget` shows which limit that is; raise it with `longhaul config set KEY N`"
                .to_owned()
        }
        Some(Reason::AuthRequired) if paused => {
            "log in with the provider's own command, then `longhaul resume`".to_owned()
        }
        Some(Reason::Stagnated | Reason::NeedsHuman) if paused => {
            "`longhaul say` what to do, then `longhaul resume`".to_owned()
        }
        Some(Reason::RetriesExhausted | Reason::ProviderUnavailable | Reason::Refused) if paused => {
            "see `longhaul logs`, mend the cause or `longhaul provider use` another, then `longhaul resume`"
                .to_owned()
        }
        _ if paused && status.running => "`longhaul resume` goes on".to_owned(),
        _ if paused || session.state == Phase::Stopped => "`longhaul run` goes on from there".to_owned(),
        _ if session.state == Phase::Failed => {
            "see `longhaul events`; `longhaul run` starts a new session".to_owned()
        }
        _ if status.gates.iter().any(|gate| gate.result == GateResult::CouldNotRun) => {
            "a gate could not be run: see `longhaul gates`".to_owned()
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::event::{Body, SessionStarted};
    use crate::domain::state::WaitReason;
    use crate::domain::status::Facts;
    use crate::store::testing::{Author, fold, noon};
    use jiff::SignedDuration;

    const NONE: Signals = Signals { pause: false, stop: false };

    /// What is shown ten minutes after `bodies` happened to a session.
    fn shown(bodies: Vec<Body>, pid: Option<u32>, signals: Signals) -> String {
        let started = SessionStarted {
            version: "0.1.0".into(),
            project: "/p".into(),
            mode: Default::default(),
            complexity: "simple".into(),
            spec: Some("/p/SPEC.md".into()),
            limits: Default::default(),
            chain: vec!["claude".into()],
            overrides: Vec::new(),
            agent: Vec::new(),
        };
        let bodies = std::iter::once(Body::SessionStarted(Box::new(started))).chain(bodies);
        let drafts = Author::new().batch(bodies).into_iter().zip(1..);
        let events: Vec<_> = drafts.map(|(draft, seq)| draft.at(seq)).collect();
        let now = noon() + SignedDuration::from_mins(10);
        let facts = Facts { pid, project: "/p".into(), ..Facts::default() };
        let report = Report { status: Status::of(&fold(&events), &facts, now), signals };
        let (output, _) = Output::captured();
        words(&report, &TimeZone::UTC, now, &output).join("\n")
    }

    fn paused(reason: Reason) -> Body {
        Body::SessionPaused { reason, detail: "so it is".into(), in_flight: false }
    }

    #[test]
    fn a_wait_says_for_what_and_until_when() {
        let until = noon() + SignedDuration::from_mins(40);
        let wait = Body::WaitStarted { until, why: WaitReason::CoolDown, detail: String::new() };
        let text = shown(vec![Body::IterationStarted {}, wait], Some(7), NONE);
        assert!(text.starts_with("● waiting (rate limit) for 9m"), "{text}");
        assert!(text.contains("(in 30m): all accounts are at their limits"), "{text}");
        assert!(!text.contains("next:"), "nothing is to be done: {text}");
    }

    #[test]
    fn a_pause_says_what_to_do() {
        for (reason, want) in [
            (Reason::Requested, "next: `longhaul resume` goes on"),
            (Reason::AuthRequired, "next: log in with the provider's own command, then `longhaul resume`"),
            (
                Reason::BudgetExceeded,
                "next: `longhaul budget` shows which limit that is; raise it with `longhaul config set KEY N`",
            ),
        ] {
            let text = shown(vec![paused(reason)], Some(7), NONE);
            assert!(text.starts_with("● paused (") && text.contains("so it is"), "{text}");
            assert!(text.ends_with(want), "{text}");
        }
        let text = shown(vec![paused(Reason::Requested)], None, NONE);
        assert!(text.ends_with("next: `longhaul run` goes on from there"), "{text}");
    }

    #[test]
    fn a_dead_supervisor_and_a_waiting_stop_are_told() {
        let text = shown(vec![Body::IterationStarted {}], None, NONE);
        assert!(text.starts_with("● cut off (was running) for 9m"), "{text}");
        assert!(
            text.ends_with("next: its supervisor is gone; `longhaul run` goes on from the last saved state"),
            "{text}"
        );
        let stop = Signals { stop: true, ..NONE };
        let text = shown(vec![Body::IterationStarted {}], Some(7), stop);
        assert!(text.contains("signal      STOP is there"), "{text}");
        let text = shown(vec![paused(Reason::Requested)], Some(7), Signals { pause: true, ..NONE });
        assert!(!text.contains("PAUSE is there"), "it is obeyed: {text}");
    }
}
