//! `longhaul accounts [clear ACCOUNT]`: what all projects of this host know about accounts.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;

use super::args::{AccountsArgs, AccountsCommand};
use super::error::{CliError, ErrorKind, ExitCode};
use super::format;
use super::output::{Output, Style, plain};
use super::project::Project;
use super::provider;
use crate::domain::host_accounts::{HostAccounts, Lease, Record};
use crate::providers::account::{identity, with_model};
use crate::store::{HOST_DB, StoreError};

/// An account, and whether it can be called.
#[derive(Debug, Serialize)]
struct Entry {
    /// Its identity.
    id: String,
    /// Its provider.
    provider: String,
    /// `ready`, `cooling`, `out`, `due` (the next call tries it) or `tried` (one does).
    state: &'static str,
    /// When it may be tried again.
    until: Option<Timestamp>,
    /// Why it is out: an outcome's name.
    why: Option<String>,
    /// When that was learned.
    since: Timestamp,
    /// Who tries it.
    tried_by: Option<TriedBy>,
    /// A provider of this project calls it.
    here: bool,
}

/// The session that tries an account.
#[derive(Debug, Serialize)]
struct TriedBy {
    pid: u32,
    project: String,
}

/// Runs the command.
///
/// # Errors
/// `host.db` cannot be used; of `clear`: there is no such account.
pub fn accounts(
    arguments: &AccountsArgs,
    project: &Project,
    output: &mut Output,
) -> Result<ExitCode, CliError> {
    match &arguments.command {
        None => list(arguments.json, project, output),
        Some(AccountsCommand::Clear { account, json }) => clear(account, *json, project, output),
    }
}

fn list(as_json: bool, project: &Project, output: &mut Output) -> Result<ExitCode, CliError> {
    let now = project.clock.now();
    let own = own_accounts(project, output)?;
    let known = match project.host_db().map_err(cannot_use)? {
        Some(mut host) => host.look(now).map_err(cannot_use)?.clone(),
        None => HostAccounts::default(),
    };
    let entries: Vec<Entry> =
        known.records.iter().map(|(id, record)| entry(id, record, known.leases.get(id), &own, now)).collect();
    if as_json {
        output.json(&entries)?;
        return Ok(ExitCode::Done);
    }
    let width = entries.iter().map(|entry| entry.id.len()).max().unwrap_or(0);
    for entry in &entries {
        let mark = if entry.here { "*" } else { " " };
        let id = format!("{:width$}", plain(&entry.id));
        let (style, state) = words(entry, project, now);
        let line = format!("{mark} {}  {}", output.styled(Style::Bold, &id), output.styled(style, &state));
        output.line(line.trim_end())?;
    }
    output.notice(if entries.is_empty() {
        "no account has been at its limit, or refused its credential, as far as is known on this host"
    } else {
        "* is used in this project; `longhaul accounts clear NAME` has one tried again now"
    });
    Ok(ExitCode::Done)
}

fn words(entry: &Entry, project: &Project, now: Timestamp) -> (Style, String) {
    let why = entry.why.as_deref().map_or(String::new(), |why| format!(" ({})", plain(why)));
    match (entry.state, entry.until, &entry.tried_by) {
        ("cooling", Some(until), _) => {
            let (at, left) = (format::time(until, &project.zone, now), format::between(now, until));
            (Style::Dim, format!("left alone until {at}, in {left}{why}"))
        }
        ("out", ..) => (Style::Dim, format!("left alone until a person resumes{why}")),
        ("tried", _, Some(by)) => (
            Style::Dim,
            format!("process {} in {} finds out whether it works again{why}", by.pid, plain(&by.project)),
        ),
        ("due", ..) => (Style::Dim, format!("the next call finds out whether it works again{why}")),
        _ => (Style::Good, format!("works, since {}", format::time(entry.since, &project.zone, now))),
    }
}

fn entry(
    id: &str,
    record: &Record,
    lease: Option<&Lease>,
    own: &[(String, String)],
    now: Timestamp,
) -> Entry {
    let account = &record.account;
    let state = match (account.out, account.until, lease) {
        (false, ..) => "ready",
        (true, None, _) => "out",
        (true, Some(until), _) if until > now => "cooling",
        (true, Some(_), Some(_)) => "tried",
        (true, Some(_), None) => "due",
    };
    let tried_by = lease
        .filter(|_| state == "tried")
        .map(|lease| TriedBy { pid: lease.holder.pid, project: lease.holder.project.clone() });
    Entry {
        id: id.to_owned(),
        provider: provider_of(id).to_owned(),
        state,
        until: account.until.filter(|_| account.out),
        why: account.out.then(|| account.why.clone()),
        since: record.since,
        tried_by,
        here: own.iter().any(|(_, known)| known == id),
    }
}

fn clear(account: &str, as_json: bool, project: &Project, output: &mut Output) -> Result<ExitCode, CliError> {
    let now = project.clock.now();
    let own = own_accounts(project, output)?;
    let mut ids: Vec<&str> =
        own.iter().filter(|(name, _)| name == account).map(|(_, id)| id.as_str()).collect();
    if ids.is_empty() {
        ids.push(account);
    }
    let mut host = project.host_db().map_err(cannot_use)?;
    match &mut host {
        Some(host) => {
            let known = host.look(now).map_err(cannot_use)?;
            ids.retain(|id| known.records.contains_key(*id));
        }
        None => ids.clear(),
    }
    let Some(host) = host.as_mut().filter(|_| !ids.is_empty()) else {
        let nothing = format!("nothing is known about an account `{account}` of this project");
        return Err(
            CliError::usage(nothing).hinted("`longhaul accounts` lists them; their whole name will do")
        );
    };
    let cleared = host.change(now, |known| {
        let changes: Vec<_> = ids.iter().filter_map(|id| known.readmit(id, /* all */ true, now)).collect();
        (!changes.is_empty(), changes)
    });
    let cleared = cleared.map_err(cannot_use)?;
    let message = if cleared {
        format!("the next call of any project finds out whether `{account}` works again")
    } else {
        format!("`{account}` is not left alone: there is nothing to clear")
    };
    if as_json {
        output.json(&json!({ "ok": true, "id": ids.first(), "cleared": cleared, "message": message }))?;
    } else {
        output.notice(message);
    }
    Ok(ExitCode::Done)
}

/// The accounts behind the providers as this project calls them: name and identity.
fn own_accounts(project: &Project, output: &mut Output) -> Result<Vec<(String, String)>, CliError> {
    let config = project.config_or_defaults(output)?;
    let registry = project.registry()?;
    let definitions = registry.names().filter_map(|name| registry.get(name));
    let own = definitions.filter_map(|definition| {
        let env = provider::env(project, &config, &definition.name);
        Some((definition.name.clone(), identity(definition, &env)?))
    });
    let own = own.flat_map(|(name, id)| {
        let model = with_model(&id, config.model_for(&name));
        [(name.clone(), id), (name, model)]
    });
    Ok(own.collect())
}

fn provider_of(id: &str) -> &str {
    let account = id.split_once('#').map_or(id, |(account, _)| account);
    account.rsplit_once(':').map_or(account, |(provider, _)| provider)
}

fn cannot_use(error: StoreError) -> CliError {
    let hint = match &error {
        StoreError::Corrupt { .. } => {
            format!("the next session keeps {HOST_DB} aside and learns limits again")
        }
        _ => "sessions go on without it: each project then knows its own limits".to_owned(),
    };
    CliError::new(ErrorKind::Failed, format!("failed to {error}")).hinted(hint)
}
