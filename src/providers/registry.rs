//! All providers: the built-in files, with the user's and the project's on top.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::definition::{Definition, NamePattern, Rule};
use super::pricing::{PriceList, PricingError};
use super::provider_file::{FileError, Layer};

/// The providers that are known, by name.
#[derive(Debug, Clone)]
pub struct Registry {
    definitions: BTreeMap<String, Definition>,
}

/// Why the providers could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// A file's content.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file or folder that cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// Which one.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A price list.
    #[error(transparent)]
    Pricing(#[from] PricingError),
    /// `rules_from` names a provider that there is not.
    #[error("provider {name}: `rules_from` names `{other}`, which is no provider")]
    RulesFrom {
        /// The provider with the key.
        name: String,
        /// The name in it.
        other: String,
    },
    /// A file whose name is no provider name.
    #[error("{}: a provider's name has only small letters, digits, - and _", path.display())]
    Name {
        /// Which one.
        path: PathBuf,
    },
}

/// The built-in files.
const BUILT_IN: [(&str, &str); 8] = [
    ("aider", include_str!("../../config/providers/aider.toml")),
    ("claude", include_str!("../../config/providers/claude.toml")),
    ("cline", include_str!("../../config/providers/cline.toml")),
    ("codex", include_str!("../../config/providers/codex.toml")),
    ("command", include_str!("../../config/providers/command.toml")),
    ("gemini", include_str!("../../config/providers/gemini.toml")),
    ("opencode", include_str!("../../config/providers/opencode.toml")),
    ("rehearsal", include_str!("../../config/providers/rehearsal.toml")),
];

/// Rules that any provider can name in `rules_from`: what servers say is the same through each CLI.
const SERVERS: (&str, &str) = ("servers", include_str!("../../config/servers.toml"));

// === impl Registry ===

impl Registry {
    /// Built-in providers, then `NAME.toml` of each folder, later folders on top: the user's
    /// `$XDG_CONFIG_HOME/longhaul/providers`, the project's `.longhaul/providers`. Missing folders are fine.
    pub fn load(folders: &[PathBuf]) -> Result<Self, RegistryError> {
        let mut layers = BTreeMap::new();
        for (name, text) in BUILT_IN {
            layers
                .insert(name.to_owned(), Layer::built_in(Path::new(&format!("built-in {name}.toml")), text)?);
        }
        for folder in folders {
            for (name, path) in files(folder)? {
                let text = fs::read_to_string(&path)
                    .map_err(|source| RegistryError::Read { path: path.clone(), source })?;
                let layer = Layer::parse(&path, &text)?;
                let layer = match layers.remove(&name) {
                    Some(below) => layer.over(below),
                    None => layer,
                };
                layers.insert(name, layer);
            }
        }
        let parents: Vec<PathBuf> =
            folders.iter().filter_map(|folder| folder.parent()).map(Path::to_owned).collect();
        let price_list = Arc::new(PriceList::load(&parents)?);
        let definitions = layers
            .into_iter()
            .map(|(name, layer)| {
                let definition = Definition { price_list: price_list.clone(), ..layer.check(&name)? };
                Ok((name, definition))
            })
            .collect::<Result<BTreeMap<_, Definition>, FileError>>()?;
        let (name, text) = SERVERS;
        let servers = Layer::built_in(Path::new("built-in servers.toml"), text)?.check(name)?;
        Registry { definitions }.with_borrowed_rules(&servers)
    }

    /// Appends the rules of `rules_from`; those of the other provider's own file only, so that circles end.
    fn with_borrowed_rules(self, servers: &Definition) -> Result<Self, RegistryError> {
        let own: BTreeMap<String, Vec<Arc<Rule>>> =
            self.definitions.iter().map(|(name, known)| (name.clone(), known.rules.clone())).collect();
        let mut definitions = self.definitions;
        for definition in definitions.values_mut() {
            for other in &definition.rules_from {
                let servers = Some(&servers.rules).filter(|_| servers.name == *other);
                let Some(rules) = own.get(other).or(servers) else {
                    let (name, other) = (definition.name.clone(), other.clone());
                    return Err(RegistryError::RulesFrom { name, other });
                };
                definition.rules.extend(rules.iter().cloned());
            }
        }
        Ok(Registry { definitions })
    }

    /// The provider of that name.
    pub fn get(&self, name: &str) -> Option<&Definition> {
        self.definitions.get(name)
    }

    /// All names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.definitions.keys().map(String::as_str)
    }

    /// The known name that is closest to a mistyped one.
    pub fn suggest(&self, name: &str) -> Option<&str> {
        let close = |known: &&str| strsim::jaro_winkler(known, name);
        self.names().filter(|known| close(known) > 0.7).max_by(|a, b| close(a).total_cmp(&close(b)))
    }

    /// Variables that hold keys of other providers than `definition`: its agents must not see them. A provider
    /// with the same program (`--agent "claude -p"` is claude by another way) is not another one.
    pub fn foreign_keys(&self, definition: &Definition) -> Vec<NamePattern> {
        let program = |known: &Definition| known.program.as_deref().and_then(base_name).map(str::to_owned);
        let own_program = program(definition);
        let is_own = |known: &&Definition| {
            known.name == definition.name || (own_program.is_some() && program(known) == own_program)
        };
        let (own, other): (Vec<_>, Vec<_>) = self.definitions.values().partition(is_own);
        // What several providers use, such as a key that aider takes, too, stays with each of them.
        let is_own_key = |key: &&NamePattern| own.iter().any(|known| known.env.keys.contains(key));
        other.iter().flat_map(|known| &known.env.keys).filter(|key| !is_own_key(key)).cloned().collect()
    }
}

fn base_name(program: &str) -> Option<&str> {
    Path::new(program).file_name()?.to_str()
}

/// The provider files of a folder by provider name, sorted.
fn files(folder: &Path) -> Result<BTreeMap<String, PathBuf>, RegistryError> {
    let failed = |source| RegistryError::Read { path: folder.to_owned(), source };
    let entries = match fs::read_dir(folder) {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(BTreeMap::new());
        }
        entries => entries.map_err(failed)?,
    };
    let mut found = BTreeMap::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
        if name.is_empty() || !name.bytes().all(plain) {
            return Err(RegistryError::Name { path });
        }
        found.insert(name, path);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::outcome::Usage;
    use crate::providers::definition::{OutcomeKind, OutputFormat, Pattern, Version, VersionCheck};

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    fn error(files: &[(&str, &str)]) -> String {
        let folder = folder(files);
        Registry::load(&[folder.path().to_owned()]).unwrap_err().to_string()
    }

    #[test]
    fn built_in_patterns_can_be_used() {
        for (name, text) in BUILT_IN.into_iter().chain([SERVERS]) {
            Layer::parse(Path::new(name), text).unwrap();
        }
        let registry = Registry::load(&[]).unwrap();
        for rule in registry.names().filter_map(|name| registry.get(name)).flat_map(|known| &known.rules) {
            assert!(rule.pattern.is_usable(), "{}", rule.id);
            assert!(rule.unless.as_ref().is_none_or(Pattern::is_usable), "{}", rule.id);
        }
    }

    #[test]
    fn built_in_providers_load() {
        let registry = Registry::load(&[]).unwrap();
        let names: Vec<_> = registry.names().collect();
        assert_eq!(
            names,
            ["aider", "claude", "cline", "codex", "command", "gemini", "opencode", "rehearsal"]
        );
        for definition in names.iter().filter_map(|name| registry.get(name)) {
            let in_process = definition.output == OutputFormat::Rehearsal;
            assert_eq!(
                definition.program.is_none(),
                in_process || definition.name == "command",
                "{}",
                definition.name
            );
            if definition.program.is_some() {
                assert!(definition.install.is_some() && definition.version.is_some(), "{}", definition.name);
            }
            for rule in definition
                .rules
                .iter()
                .filter(|rule| definition.name == rule.id.split('.').next().unwrap_or(""))
            {
                let same = definition.rules.iter().filter(|other| other.id == rule.id).count();
                assert_eq!(same, 1, "rule ids are unique: {}", rule.id);
            }
        }
        assert_eq!(registry.suggest("claud"), Some("claude"));
        assert_eq!(registry.suggest("xyz"), None);
    }

    #[test]
    fn later_folders_are_on_top_and_missing_ones_are_fine() {
        let user = folder(&[
            ("codex.toml", "title = \"Mine\"\nprogram = \"codex-user\"\n"),
            ("notes.txt", "not a provider"),
        ]);
        let project = folder(&[
            ("codex.toml", "program = \"codex-project\"\n"),
            (
                "my-agent.toml",
                "program = \"my-agent\"\noutput = \"claude-stream-json\"\nrules_from = [\"claude\"]\n",
            ),
        ]);
        let missing = user.path().join("none");
        let folders = [missing, user.path().to_owned(), project.path().to_owned()];
        let registry = Registry::load(&folders).unwrap();
        let codex = registry.get("codex").unwrap();
        assert_eq!((codex.title.as_str(), codex.program.as_deref()), ("Mine", Some("codex-project")));
        assert!(!codex.rules.is_empty(), "the rest is still the built-in file's");
        // A CLI with a known format needs no code.
        let mine = registry.get("my-agent").unwrap();
        assert_eq!(mine.title, "my-agent");
        assert!(mine.rules.iter().any(|rule| rule.outcome == OutcomeKind::UsageLimited));
    }

    #[test]
    fn errors_name_what_is_wrong_and_where() {
        let wrong = error(&[("codex.toml", "program = 7\n")]);
        assert!(wrong.contains("codex.toml:1: `program`: invalid type"), "{wrong}");
        assert!(error(&[("My Agent.toml", "")]).contains("only small letters"));
        let missing = error(&[("x.toml", "program = \"x\"\n")]);
        assert!(missing.contains("x.toml:1: `output`: is missing"), "{missing}");
        let from = error(&[("x.toml", "output = \"text\"\nrules_from = [\"nobody\"]\n")]);
        assert_eq!(from, "provider x: `rules_from` names `nobody`, which is no provider");
    }

    #[test]
    fn versions_are_judged_by_the_known_range() {
        let registry = Registry::load(&[]).unwrap();
        let probe = registry.get("claude").unwrap().version.as_ref().unwrap();
        assert_eq!(probe.read("2.1.332 (Claude Code)\n"), VersionCheck::Fits(Version([2, 1, 332])));
        assert_eq!(probe.read("1.0.99 (Claude Code)"), VersionCheck::TooOld(Version([1, 0, 99])));
        assert_eq!(probe.read("3.0.0"), VersionCheck::Newer(Version([3, 0, 0])));
        assert_eq!(probe.read("command not found"), VersionCheck::Unreadable);
        assert_eq!(Version::parse("2.1-beta"), Some(Version([2, 1, 0])));
        assert_eq!(Version::parse("2.1.5rc1"), Some(Version([2, 1, 5])));
        assert_eq!(Version::parse("x"), None);
    }

    #[test]
    fn list_prices_are_per_million_tokens() {
        let prices = "[prices.\"m-1\"]\ninput = 2.0\noutput = 10.0\ncache_read = 0.5\n";
        let folder = folder(&[("codex.toml", prices)]);
        let registry = Registry::load(&[folder.path().to_owned()]).unwrap();
        let codex = registry.get("codex").unwrap();
        let usage = Usage {
            input_tokens: Some(1_000_000),
            output_tokens: Some(100_000),
            cache_read_tokens: Some(2_000_000),
            cache_write_tokens: None,
            cost_usd: None,
        };
        assert_eq!(codex.estimate_usd("m-1", &usage), Some(2.0 + 1.0 + 1.0));
        assert_eq!(codex.estimate_usd("m-2", &usage), None);
        assert_eq!(codex.estimate_usd("m-1", &Usage::default()), None, "unknown tokens have no price");
    }
}
