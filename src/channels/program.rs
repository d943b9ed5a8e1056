//! A notification for a program: a person's own, or the desktop's.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use tokio::sync::mpsc;

use super::{Failure, PATIENCE};
use crate::domain::notification::Notification;
use crate::domain::outcome::Exit;
use crate::domain::state::GateResult;
use crate::process::{CallSpec, GateLimits, Keeper, run_gate};

/// Most of what a program says of its failure that is kept.
const SAID: usize = 200;

type Env = BTreeMap<OsString, OsString>;

/// Runs a person's program with the notification as JSON on stdin, and its parts in the environment.
pub(super) async fn command(
    words: &[String],
    notification: &Notification,
    env: &Env,
    cwd: &Path,
    keeper: &Keeper,
) -> Result<(), Failure> {
    let mut env = env.clone();
    // Settings of ours, and what the posts are signed with, are none of its business.
    env.retain(|name, _| !name.as_encoded_bytes().starts_with(b"LONGHAUL_NOTIFY__"));
    let parts = [
        ("ID", notification.id.clone()),
        ("KIND", notification.kind.to_string()),
        ("TITLE", notification.title.clone()),
        ("TEXT", notification.text.clone()),
        ("PROJECT", notification.project.clone()),
    ];
    env.extend(parts.map(|(name, value)| (format!("LONGHAUL_NOTIFY_{name}").into(), value.into())));
    let stdin = serde_json::to_vec(notification).unwrap_or_default();
    let spec = CallSpec {
        argv: words.iter().map(OsString::from).collect(),
        env: env.into_iter().collect(),
        cwd: cwd.to_owned(),
        stdin,
    };
    run(spec, keeper).await
}

/// Shows it on the desktop.
pub(super) async fn desktop(
    notification: &Notification,
    env: &Env,
    cwd: &Path,
    keeper: &Keeper,
) -> Result<(), Failure> {
    let argv = ["notify-send", "--app-name=Longhaul", "--", &notification.title, &notification.text];
    let spec = CallSpec {
        argv: argv.iter().map(OsString::from).collect(),
        env: env.clone().into_iter().collect(),
        cwd: cwd.to_owned(),
        stdin: Vec::new(),
    };
    run(spec, keeper).await
}

/// Runs it below the keeper, so that nothing of it outlives us.
async fn run(spec: CallSpec, keeper: &Keeper) -> Result<(), Failure> {
    let program = spec.program().display().to_string();
    let limits = GateLimits { time: PATIENCE, grace: Duration::ZERO };
    let (_end, ending) = mpsc::channel(1);
    let report = run_gate(keeper, &program, &spec, limits, ending).await;
    let last = report.tail.trim().lines().next_back().unwrap_or_default();
    let last: String = last.chars().take(SAID).collect();
    let last = if last.is_empty() { last } else { format!(": {last}") };
    match report.result {
        GateResult::Passed => Ok(()),
        GateResult::Failed => Err(Failure::Again(None, format!("{program} {}{last}", how(report.exit)))),
        GateResult::CouldNotRun => Err(Failure::Final(format!("{program} cannot be run{last}"))),
        GateResult::TimedOut | GateResult::Cancelled => {
            let seconds = PATIENCE.as_secs();
            Err(Failure::Unknown(format!("{program} was ended: it took longer than {seconds} s{last}")))
        }
    }
}

fn how(exit: Option<Exit>) -> String {
    match exit {
        Some(Exit::Code(code)) => format!("ends with code {code}"),
        Some(Exit::Signal(signal)) => format!("is ended by signal {signal}"),
        None => "fails".to_owned(),
    }
}
