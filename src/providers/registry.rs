//! All providers: the built-in files, with the user's and the project's on top.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::definition::{Definition, NamePattern};
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

// === impl Registry ===

impl Registry {
    /// Built-in providers, then `NAME.toml` of each folder, later folders on top: the user's
    /// `$XDG_CONFIG_HOME/longhaul/providers`, the project's `.longhaul/providers`. Missing folders are fine.
    pub fn load(folders: &[PathBuf]) -> Result<Self, RegistryError> {
        let mut layers = BTreeMap::new();
        for (name, text) in BUILT_IN {
            layers.insert(name.to_owned(), Layer::parse(Path::new(&format!("built-in {name}.toml")), text)?);
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
        let definitions = layers
            .into_iter()
            .map(|(name, layer)| Ok((name.clone(), layer.check(&name)?)))
            .collect::<Result<BTreeMap<_, Definition>, FileError>>()?;
        Registry { definitions }.with_borrowed_rules()
    }

    /// Appends the rules of `rules_from`; those of the other provider's own file only, so that circles end.
    fn with_borrowed_rules(self) -> Result<Self, RegistryError> {
        let mut definitions = self.definitions.clone();
        for definition in definitions.values_mut() {
            for other in &definition.rules_from {
                let Some(other) = self.definitions.get(other) else {
                    let (name, other) = (definition.name.clone(), other.clone());
                    return Err(RegistryError::RulesFrom { name, other });
                };
                definition.rules.extend(other.rules.iter().cloned());
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
        let program =
            |definition: &Definition| definition.program.as_deref().and_then(base_name).map(str::to_owned);
        let own = program(definition);
        let other =
            |known: &&Definition| known.name != definition.name && (own.is_none() || program(known) != own);
        self.definitions.values().filter(other).flat_map(|known| known.env.keys.iter().cloned()).collect()
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
