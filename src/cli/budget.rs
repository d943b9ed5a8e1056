//! `longhaul budget [--by provider|project|day]`: what was spent, what is set aside, and what is left.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;

use super::args::{BudgetArgs, By};
use super::error::{CliError, ErrorKind, ExitCode};
use super::format;
use super::output::{Output, Style, plain};
use super::project::Project;
use crate::config::Config;
use crate::domain::ledger::{Tally, Window};
use crate::domain::money::MicroUsd;
use crate::domain::state::Session;
use crate::domain::status::WindowStatus;
use crate::store::{self, Found, HOST_DB, HostDb, Known, Line, Reader, StoreError};

/// What is printed.
#[derive(Debug, Serialize)]
struct Report {
    /// What one call may cost, US dollars.
    call_limit_usd: Option<f64>,
    windows: Vec<WindowStatus>,
    /// What the calls of this month come to; only when it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<Vec<Share>>,
}

/// A part of this month's calls.
#[derive(Debug, Serialize)]
struct Share {
    /// The provider, the project or the day.
    name: String,
    spent_usd: f64,
    reserved_usd: f64,
    calls: u64,
    unknown_calls: u64,
}

/// Runs the command. What the project's journal has and the ledger has not is booked first.
///
/// # Errors
/// The state of the project or `host.db` cannot be read.
pub fn budget(arguments: &BudgetArgs, project: &Project, output: &mut Output) -> Result<ExitCode, CliError> {
    let config = project.config_or_defaults(output)?;
    if let Err(error) = catch_up(project) {
        output.warn(format!("what was spent last may be missing: failed to {error}"));
    }
    let mut shown = Vec::new();
    if is_project(project) {
        let found = store::inspect(&project.store_paths()).map_err(CliError::failed_to)?;
        shown.push(of_session(found.state.session.as_ref(), &config));
    }
    shown.extend(windows(project, &config).map_err(cannot_use)?);
    let by = arguments.by.map(|by| shares(project, by)).transpose().map_err(cannot_use)?;
    let report = Report { call_limit_usd: config.budget.call_usd, windows: shown, by };
    if arguments.json {
        output.json(&report)?;
    } else {
        print(&report, project, output)?;
    }
    Ok(ExitCode::Done)
}

/// The windows beyond the session: of the project, where there is one, and of the host. Changes nothing.
///
/// # Errors
/// `host.db` cannot be read.
pub(super) fn windows(project: &Project, config: &Config) -> Result<Vec<WindowStatus>, StoreError> {
    let (now, limits) = (project.clock.now(), config.budget.windows());
    let host = project.host_db()?;
    let kept = Window::KEPT.into_iter().filter(|window| *window != Window::Project || is_project(project));
    let shown = kept.map(|window| {
        let tally = match &host {
            Some(host) => host.tally(window, &name(project), &project.zone, now)?,
            None => Tally::default(),
        };
        let limit = limits.of(window).map(MicroUsd::as_usd);
        Ok(WindowStatus::of(window, limit, tally, window.bounds(now, &project.zone)))
    });
    shown.collect()
}

/// The newest session, or what the next one may spend.
fn of_session(session: Option<&Session>, config: &Config) -> WindowStatus {
    let tally = session.map(|session| Tally {
        spent: session.budget.spent,
        reserved: session.budget.reserved,
        calls: session.calls,
        unknown_calls: session.budget.unknown_calls,
    });
    let limit = session.map_or(config.budget.usd, |session| session.limits.budget_usd);
    WindowStatus::of(Window::Session, limit, tally.unwrap_or_default(), None)
}

/// Books calls that have ended since the project's session, or an earlier look, did.
fn catch_up(project: &Project) -> Result<(), StoreError> {
    let Some(home) = project.environment.longhaul_home().filter(|_| is_project(project)) else {
        return Ok(());
    };
    let (now, own) = (project.clock.now(), name(project));
    let host = HostDb::open_sound(&home, now)?;
    let mark = host.as_ref().map(|host| host.booked(&own)).transpose()?.flatten();
    let mut reader = Reader::new(project.store_paths());
    // Before the journal: a call that ends meanwhile is still open here, and not taken for one that never began.
    let known = reader.state()?.and_then(|state| {
        let session = state.session.as_ref()?;
        let open = session.open.as_ref().map(|open| open.token);
        Some(Known { session: session.id, open, closing: false })
    });
    let found = Found::since(mark, &mut reader)?;
    if found.mark.is_none() {
        return Ok(());
    }
    let registry = project.registry().ok();
    let rehearsed = |name: &str| {
        registry.as_ref().and_then(|known| known.get(name)).is_some_and(|known| known.in_process())
    };
    let real = found.bookings.iter().any(|booking| !rehearsed(&booking.provider));
    let host = match host {
        None if real => HostDb::open(&home, /* make */ true, now)?.0,
        host => host,
    };
    let Some(mut host) = host else { return Ok(()) };
    let Some(me) = host.holder(&project.paths.root) else { return Ok(()) };
    host.book(&me, &found, known, |name| (None, rehearsed(name)), now)
}

fn shares(project: &Project, by: By) -> Result<Vec<Share>, StoreError> {
    let Some(host) = project.host_db()? else { return Ok(Vec::new()) };
    let lines = host.lines(Window::Month, &project.zone, project.clock.now())?;
    let mut shares: BTreeMap<String, Tally> = BTreeMap::new();
    for line in lines {
        let share = shares.entry(key(by, &line, &project.zone)).or_default();
        share.spent = share.spent.plus(line.tally.spent);
        share.reserved = share.reserved.plus(line.tally.reserved);
        share.calls += line.tally.calls;
        share.unknown_calls += line.tally.unknown_calls;
    }
    let share = |(name, tally): (String, Tally)| Share {
        name,
        spent_usd: tally.spent.as_usd(),
        reserved_usd: tally.reserved.as_usd(),
        calls: tally.calls,
        unknown_calls: tally.unknown_calls,
    };
    Ok(shares.into_iter().map(share).collect())
}

fn key(by: By, line: &Line, zone: &TimeZone) -> String {
    match by {
        By::Provider => line.provider.clone(),
        By::Project => line.project.clone(),
        By::Day => line.began.to_zoned_datetime(zone.clone()).date().to_string(),
    }
}

// === for people ===

fn print(report: &Report, project: &Project, output: &mut Output) -> Result<(), CliError> {
    let now = project.clock.now();
    let head = ["window", "limit", "spent", "reserved", "left", "calls", "unknown", "resets"];
    let rows = report.windows.iter().map(|window| row(window, &project.zone, now)).collect();
    table(&head.map(str::to_owned), rows, output)?;
    if let Some(shares) = &report.by {
        output.line("")?;
        let head = ["this month", "spent", "reserved", "calls", "unknown"].map(str::to_owned);
        let rows = shares.iter().map(|share| {
            vec![
                plain(&share.name).into_owned(),
                format::usd(share.spent_usd),
                format::usd(share.reserved_usd),
                share.calls.to_string(),
                share.unknown_calls.to_string(),
            ]
        });
        table(&head, rows.collect(), output)?;
    }
    if let Some(limit) = report.call_limit_usd {
        output.notice(format!("a single call may cost {}", format::usd(limit)));
    }
    if report.windows.iter().any(|window| window.unknown_calls > 0) {
        output.notice("calls of unknown cost count with what was assumed or set aside, if anything was");
    }
    output.notice(
        "`longhaul config set budget.usd N` sets the session's limit, `budget.project_usd` the project's; \
         `budget.day_usd` and `budget.month_usd` belong into ~/.config/longhaul/config.toml",
    );
    Ok(())
}

fn row(window: &WindowStatus, zone: &TimeZone, now: Timestamp) -> Vec<String> {
    let amount = |usd: Option<f64>| usd.map_or_else(|| "none".to_owned(), format::usd);
    let left = window.left_usd.map_or_else(String::new, format::usd);
    let resets = window.resets_at.map_or_else(String::new, |at| format::time(at, zone, now));
    vec![
        window.window.name().to_owned(),
        amount(window.limit_usd),
        format::usd(window.spent_usd),
        format::usd(window.reserved_usd),
        left,
        window.calls.to_string(),
        window.unknown_calls.to_string(),
        resets,
    ]
}

/// Names to the left, figures to the right.
fn table(head: &[String], rows: Vec<Vec<String>>, output: &mut Output) -> Result<(), CliError> {
    let all = || std::iter::once(head).chain(rows.iter().map(Vec::as_slice));
    let widths: Vec<usize> = (0..head.len())
        .map(|at| all().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max().unwrap_or(0))
        .collect();
    for (number, row) in all().enumerate() {
        let cells = row.iter().zip(&widths).enumerate().map(|(at, (cell, &width))| {
            if at == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        let line = line.trim_end();
        let line = if number == 0 { output.styled(Style::Dim, line).into_owned() } else { line.to_owned() };
        output.line(line)?;
    }
    Ok(())
}

// === what it is about ===

fn is_project(project: &Project) -> bool {
    project.paths.dot.is_dir()
}

/// The project's name in the ledger.
fn name(project: &Project) -> String {
    project.paths.root.display().to_string()
}

fn cannot_use(error: StoreError) -> CliError {
    let hint = match &error {
        StoreError::Corrupt { .. } => {
            format!("the next session keeps {HOST_DB} aside and begins a new ledger")
        }
        _ => "with a limit beyond the session no call begins until it can be used".to_owned(),
    };
    CliError::new(ErrorKind::Failed, format!("failed to {error}")).hinted(hint)
}
