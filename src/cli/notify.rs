//! `longhaul notify [test|list|retry]`: who is told when nobody looks, and whether it has arrived.

use serde::Serialize;
use serde_json::json;

use super::args::{NotifyArgs, NotifyCommand};
use super::error::{CliError, ErrorKind, ExitCode};
use super::format;
use super::output::{Output, Style, plain};
use super::project::Project;
use crate::channels::Channels;
use crate::config;
use crate::domain::ids::IdSource;
use crate::domain::notification::About;
use crate::process::Keeper;
use crate::store::{Delivery, Entry, Letter, StoreError};

/// Where to begin.
const SET_UP: &str =
    "longhaul config set notify.webhook https://HOST/PATH, or notify.command, or notify.desktop true";

/// What came of a test on one channel.
#[derive(Debug, Serialize)]
struct Tried {
    channel: &'static str,
    ok: bool,
    error: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// No channel is set, one does not work, or `host.db` cannot be used.
pub fn notify(arguments: &NotifyArgs, project: &Project, output: &mut Output) -> Result<ExitCode, CliError> {
    match &arguments.command {
        None => list(arguments.json, project, output),
        Some(NotifyCommand::List { json }) => list(*json, project, output),
        Some(NotifyCommand::Test { json }) => test(*json, project, output),
        Some(NotifyCommand::Retry { id, json, .. }) => retry(id.as_deref(), *json, project, output),
    }
}

fn test(as_json: bool, project: &Project, output: &mut Output) -> Result<ExitCode, CliError> {
    let config = config::load(&project.sources())?.config;
    let now = project.clock.now();
    let channels =
        Channels { notify: config.notify.clone(), env: project.env(), cwd: project.paths.root.clone() };
    let folder = project.paths.root.display().to_string();
    let about = About { project: &folder, long_wait: config.notify.long_wait, now };
    let notification = about.test(format!("test.{}", IdSource::new(None).next(now)));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::failed_to(format_args!("start the runtime: {error}")))?;
    let keeper = Keeper::start(None).map_err(CliError::failed_to)?;
    let mut tried = Vec::new();
    for post in channels.posts() {
        let letter =
            Letter { notification: notification.clone(), channel: post.channel.to_owned(), tries: 1 };
        let error = match runtime.block_on(channels.deliver(
            &letter,
            now,
            &mut fastrand::Rng::new(),
            Some(&keeper),
        )) {
            Delivery::Sent => None,
            Delivery::Again(_, why) | Delivery::Failed(why) | Delivery::Unknown(why) => Some(why),
        };
        tried.push(Tried { channel: post.channel, ok: error.is_none(), error });
    }
    if tried.is_empty() {
        return Err(CliError::usage("nobody is notified: no channel is set").hinted(SET_UP));
    }
    if as_json {
        output.json(&tried)?;
    } else {
        for Tried { channel, error, .. } in &tried {
            let (style, words) = match error {
                None => (Style::Good, "it has arrived".to_owned()),
                Some(why) => (Style::Bad, format!("failed: {}", plain(why))),
            };
            output.line(format!("{channel:8} {}", output.styled(style, &words)))?;
        }
    }
    Ok(if tried.iter().all(|tried| tried.ok) { ExitCode::Done } else { ExitCode::Failed })
}

fn list(as_json: bool, project: &Project, output: &mut Output) -> Result<ExitCode, CliError> {
    let entries = match project.host_db().map_err(cannot_use)? {
        Some(host) => host.notifications().map_err(cannot_use)?,
        None => Vec::new(),
    };
    if as_json {
        output.json(&entries)?;
        return Ok(ExitCode::Done);
    }
    let now = project.clock.now();
    for Entry { notification, channel, state, next, error, .. } in &entries {
        let style = match state.as_str() {
            "sent" => Style::Good,
            "failed" | "unknown" => Style::Bad,
            _ => Style::Dim,
        };
        let at = format::time(notification.time, &project.zone, now);
        let mut line = format!(
            "{at}  {channel:8} {}  {}",
            output.styled(style, &format!("{state:8}")),
            plain(&notification.title)
        );
        if let Some(next) = next.filter(|next| *next > now) {
            line += &format!("; again in {}", format::between(now, next));
        }
        if let Some(error) = error {
            line += &format!(" ({})", plain(error));
        }
        output.line(line)?;
        if matches!(state.as_str(), "failed" | "unknown") {
            output.line(format!("    longhaul notify retry {}", plain(&notification.id)))?;
        }
    }
    if entries.is_empty() {
        let off = !project.config_or_defaults(output)?.notify.is_on();
        let how = if off { format!(", and no channel is set: {SET_UP}") } else { String::new() };
        output.notice(format!("nobody was notified of anything in the last 90 days{how}"));
    }
    Ok(ExitCode::Done)
}

fn retry(
    id: Option<&str>,
    as_json: bool,
    project: &Project,
    output: &mut Output,
) -> Result<ExitCode, CliError> {
    let now = project.clock.now();
    let Some(mut host) = project.host_db().map_err(cannot_use)? else {
        return Err(CliError::usage("there are no notifications on this host"));
    };
    if let Some(id) = id
        && !host.has_notification(id).map_err(cannot_use)?
    {
        return Err(CliError::usage(format!("there is no notification `{id}`"))
            .hinted("`longhaul notify list` shows them"));
    }
    let again = host.send_again(id, now).map_err(cannot_use)?;
    let message = match again {
        0 => "nothing to send again: all have arrived, or are still tried".to_owned(),
        _ => format!("{}: a run in its project sends it again", format::count(again as u64, "notification")),
    };
    if as_json {
        output.json(&json!({ "ok": true, "again": again, "message": message }))?;
    } else {
        output.notice(message);
    }
    Ok(ExitCode::Done)
}

fn cannot_use(error: StoreError) -> CliError {
    CliError::new(ErrorKind::Failed, format!("failed to {error}"))
        .hinted("sessions go on without it; `longhaul doctor` looks for the cause")
}
