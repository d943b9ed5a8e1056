//! The agents of the failover chain: program, version, credential.

use std::path::PathBuf;

use super::check::Check;
use super::host::VERSION_LIMIT;
use crate::cli::project::Project;
use crate::cli::provider::{Entry, entries, env, version_probe};
use crate::config::Config;
use crate::process::{CallSpec, run_capture};
use crate::providers::command_line::credential_files;
use crate::providers::definition::{Definition, VersionCheck, VersionProbe};
use crate::providers::registry::Registry;
use crate::providers::rehearsal::Script;

/// Looks at the agents in the order of the chain.
pub(super) fn all(project: &Project, config: &Config) -> Vec<Check> {
    let registry = match project.registry() {
        Ok(registry) => registry,
        Err(error) => {
            return vec![Check::fail("providers", error.message).advised("mend or remove the provider file")];
        }
    };
    let mut chain: Vec<Entry> =
        entries(&registry, config, project).into_iter().filter(|entry| entry.chain.is_some()).collect();
    chain.sort_by_key(|entry| entry.chain);
    let mut checks: Vec<Check> =
        config.provider_chain().into_iter().filter_map(|name| unknown(&registry, name)).collect();
    for entry in chain {
        let Some(definition) = registry.get(&entry.name) else { continue };
        checks.push(program(&entry, definition, project, config));
        if entry.found.is_some() {
            checks.extend(credential(definition, project, config));
        }
    }
    checks
}

/// Looks at one agent, whether it is in the chain or not.
pub(super) fn one(
    definition: &Definition,
    registry: &Registry,
    project: &Project,
    config: &Config,
) -> Vec<Check> {
    let mut entries = entries(registry, config, project).into_iter();
    let Some(entry) = entries.find(|entry| entry.name == definition.name) else { return Vec::new() };
    // Asked for by name, it matters as much as the first of the chain.
    let entry = Entry { chain: Some(1), ..entry };
    let mut checks = vec![program(&entry, definition, project, config)];
    if entry.found.is_some() {
        checks.extend(credential(definition, project, config));
    }
    checks
}

fn unknown(registry: &Registry, name: &str) -> Option<Check> {
    if registry.get(name).is_some() {
        return None;
    }
    let near = registry.suggest(name).map_or_else(String::new, |near| format!(", did you mean `{near}`?"));
    let check = Check::fail(name, format!("there is no such provider{near}"));
    Some(check.advised("`longhaul provider list` shows the ones there are"))
}

fn program(entry: &Entry, definition: &Definition, project: &Project, config: &Config) -> Check {
    let name = entry.name.as_str();
    let Some(found) = &entry.found else {
        let problem = entry.problem.clone().unwrap_or_default();
        let way = entry.install.as_ref().map_or_else(
            || "`longhaul provider use NAME` chooses another".to_owned(),
            |how| format!("install it with: {how}"),
        );
        let check =
            if entry.chain == Some(1) { Check::fail(name, problem) } else { Check::warn(name, problem) };
        return check.advised(way);
    };
    let at = format!("at {}", found.display());
    if definition.in_process() {
        let text = std::fs::read_to_string(found).unwrap_or_default();
        return match Script::parse(found, &text) {
            Ok(_) => Check::ok(name, at),
            Err(error) => Check::fail(name, error.to_string()).advised("mend the script"),
        };
    }
    let Some(probe) = &definition.version else { return Check::ok(name, at) };
    let line = match version_probe(definition, found, config, project) {
        Ok(Some(line)) => line,
        Ok(None) => return Check::ok(name, at),
        Err(error) => return Check::fail(name, error.to_string()),
    };
    let mut argv = vec![line.program.into_os_string()];
    argv.extend(line.args);
    let spec = CallSpec { argv, env: line.env.into_iter().collect(), cwd: line.cwd, stdin: Vec::new() };
    match run_capture(&spec, VERSION_LIMIT) {
        Ok(said) => {
            let said = [said.stdout, said.stderr].concat();
            version(name, probe, &String::from_utf8_lossy(&said), &at)
        }
        Err(error) => Check::fail(name, format!("{at}: failed to {error}"))
            .advised("start it by hand and see what it says; install it again if it is broken"),
    }
}

fn version(name: &str, probe: &VersionProbe, said: &str, at: &str) -> Check {
    let tested = probe.tested.map_or_else(String::new, |tested| format!(" (tested with {tested})"));
    match probe.read(said) {
        VersionCheck::Fits(version) => Check::ok(name, format!("{version} {at}")),
        VersionCheck::Newer(version) => {
            Check::warn(name, format!("{version} {at} is newer than what is known to work{tested}"))
                .advised("watch the first calls with `longhaul logs -f`")
        }
        VersionCheck::TooOld(version) => {
            let min = probe.min.map_or_else(String::new, |min| min.to_string());
            Check::warn(name, format!("{version} {at} is older than {min}, which is needed"))
                .advised("update it")
        }
        VersionCheck::Unreadable => Check::warn(name, format!("it does not tell its version {at}"))
            .advised("start it by hand and see what it says"),
    }
}

/// Where the credential is: names only, never a value.
fn credential(definition: &Definition, project: &Project, config: &Config) -> Option<Check> {
    if definition.credential_files.is_empty() && definition.env.keys.is_empty() {
        return None;
    }
    let name = format!("{} credential", definition.name);
    let env = env(project, config, &definition.name);
    let keys = env.iter().filter(|(_, value)| !value.is_empty()).filter_map(|(key, _)| key.to_str());
    if let Some(key) =
        keys.into_iter().find(|key| definition.env.keys.iter().any(|pattern| pattern.matches(key)))
    {
        return Some(Check::ok(name, format!("{key} is set")));
    }
    let files: Vec<PathBuf> = credential_files(definition, &env);
    if let Some(file) = files.iter().find(|file| file.is_file()) {
        return Some(Check::ok(name, file.display().to_string()));
    }
    let missing = Check::warn(name, "none was found");
    Some(match &definition.login {
        Some(login) => missing.advised(login.clone()),
        None => missing,
    })
}
