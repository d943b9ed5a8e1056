//! Which account a provider's calls go to: what limits belong to, and what projects share.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use super::command_line::credential_files;
use super::definition::{Definition, NamePattern};

/// Bytes of the digest that are kept: enough that no two accounts meet.
const KEPT: usize = 16;

/// The account that calls of this provider go to under this environment: its name, the credential that is in force,
/// and the server. None: no credential is known, so nobody can tell who else calls it.
///
/// The credential is in it as a digest only. Keys in the environment go before files, as the CLIs have it; a file
/// stands for itself, since what is in it is renewed while the account stays the same.
pub fn identity(definition: &Definition, env: &BTreeMap<OsString, OsString>) -> Option<String> {
    if !may_have(definition) {
        return None;
    }
    let keys = named(definition, env, &definition.env.keys);
    let file = if keys.is_empty() { credential_file(definition, env)? } else { PathBuf::new() };
    let servers = named(definition, env, &definition.env.endpoint);
    let mut digest = Sha256::new();
    let mut add = |part: &[u8]| {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    };
    for set in [&keys, &servers] {
        add(&(set.len() as u64).to_le_bytes());
        for (name, value) in set {
            add(name.as_bytes());
            add(value.as_encoded_bytes());
        }
    }
    add(file.as_os_str().as_encoded_bytes());
    let mut id = format!("{}:", definition.name);
    for byte in digest.finalize().iter().take(KEPT) {
        // Writing to a string cannot fail.
        let _ = write!(id, "{byte:02x}");
    }
    Some(id)
}

/// Account `id` with the model that is asked for; none: the CLI's own default.
pub fn with_model(id: &str, model: Option<&str>) -> String {
    format!("{id}#{}", model.unwrap_or_default())
}

/// What calls are allowed by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// A variable of this name.
    Variable(String),
    /// What is in this file.
    File(PathBuf),
}

/// The credential that is in force, by name: never its value.
pub fn credential(definition: &Definition, env: &BTreeMap<OsString, OsString>) -> Option<Credential> {
    let keys = named(definition, env, &definition.env.keys);
    match keys.keys().next() {
        Some(name) => Some(Credential::Variable((*name).to_owned())),
        None => credential_file(definition, env).map(Credential::File),
    }
}

/// How a credential file is now: inode, size and time of the last change.
pub type Stamp = Option<(u64, u64, i64, i64)>;

/// How the files are now that may hold the credential; none: the file is not there.
pub fn stamp(definition: &Definition, env: &BTreeMap<OsString, OsString>) -> Vec<Stamp> {
    let files = credential_files(definition, env).into_iter();
    let now = |file: PathBuf| std::fs::metadata(file).ok();
    files.map(|file| now(file).map(|m| (m.ino(), m.size(), m.mtime(), m.mtime_nsec()))).collect()
}

/// It may have an account that others use, too. Looks at the definition alone.
pub fn may_have(definition: &Definition) -> bool {
    let has_none = definition.env.keys.is_empty() && definition.credential_files.is_empty();
    !(definition.in_process() || has_none)
}

/// The variables of these names that its agents will have, with a value.
pub(super) fn named<'a>(
    definition: &'a Definition,
    env: &'a BTreeMap<OsString, OsString>,
    names: &[NamePattern],
) -> BTreeMap<&'a str, &'a OsStr> {
    let rules = &definition.env;
    let text =
        |set: &'a BTreeMap<String, String>| set.iter().map(|(n, v)| (n.as_str(), OsStr::new(v.as_str())));
    let inherited = env.iter().filter_map(|(name, value)| Some((name.to_str()?, value.as_os_str())));
    let all = text(&rules.set_default).chain(inherited).chain(text(&rules.set));
    let mut found: BTreeMap<_, _> = all.filter(|(name, _)| names.iter().any(|n| n.matches(name))).collect();
    found.retain(|_, value| !value.is_empty());
    found
}

fn credential_file(definition: &Definition, env: &BTreeMap<OsString, OsString>) -> Option<PathBuf> {
    let there = credential_files(definition, env).into_iter().find(|file| file.is_file())?;
    Some(there.canonicalize().unwrap_or(there))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::registry::Registry;

    fn id(provider: &str, variables: &[(&str, &str)]) -> Option<String> {
        let registry = Registry::load(&[]).unwrap();
        let env = variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
        identity(registry.get(provider).unwrap(), &env)
    }

    #[test]
    fn one_credential_is_one_account() {
        let key = ("ANTHROPIC_API_KEY", "sk-secret");
        let one = id("claude", &[key]).unwrap();
        assert!(one.starts_with("claude:") && one.len() == "claude:".len() + 32, "{one}");
        assert_eq!(id("claude", &[key, ("HOME", "/elsewhere"), ("OPENAI_API_KEY", "x")]).unwrap(), one);
        assert_ne!(id("claude", &[("ANTHROPIC_API_KEY", "sk-other")]).unwrap(), one);
        assert_ne!(id("claude", &[("ANTHROPIC_AUTH_TOKEN", "sk-secret")]).unwrap(), one);
        assert_ne!(id("claude", &[key, ("ANTHROPIC_BASE_URL", "http://localhost")]).unwrap(), one);
        assert_ne!(id("aider", &[key]).unwrap(), one);
    }

    #[test]
    fn a_file_counts_where_there_is_no_key() {
        let home = tempfile::tempdir().unwrap();
        let here = ("HOME", home.path().to_str().unwrap());
        assert_eq!(id("claude", &[here]), None, "nobody has logged in");
        std::fs::write(home.path().join(".claude.json"), "{}").unwrap();
        let by_file = id("claude", &[here]).unwrap();
        std::fs::write(home.path().join(".claude.json"), "{\"renewed\": 1}").unwrap();
        assert_eq!(id("claude", &[here]).unwrap(), by_file);
        let key = ("ANTHROPIC_API_KEY", "sk-secret");
        assert_eq!(id("claude", &[here, key]), id("claude", &[key]));
        assert_eq!(
            id("claude", &[here, ("ANTHROPIC_API_KEY", "")]).unwrap(),
            by_file,
            "an empty key is none"
        );
    }

    #[test]
    fn without_a_known_credential_there_is_none() {
        for provider in ["rehearsal", "command"] {
            assert_eq!(id(provider, &[("ANTHROPIC_API_KEY", "x")]), None, "{provider}");
        }
    }
}
