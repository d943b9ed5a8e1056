//! List prices by model, as data: built in (`config/pricing.toml`), then the user's, then the project's.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::definition::Price;

/// Prices of models.
#[derive(Debug, Clone, Default)]
pub struct PriceList {
    models: BTreeMap<String, Price>,
}

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PricingError {
    /// It cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// Which one.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Its content.
    #[error("{}: {source}", path.display())]
    Content {
        /// Which one.
        path: PathBuf,
        /// Where, and what is wrong.
        source: Box<toml::de::Error>,
    },
    /// A price below zero, or none at all.
    #[error("{}: the price of `{model}` must be a number from 0 upward", path.display())]
    Value {
        /// Which one.
        path: PathBuf,
        /// The model.
        model: String,
    },
}

const BUILT_IN: &str = include_str!("../../config/pricing.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    models: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[expect(dead_code, reason = "for people; the file must say it")]
    as_of: String,
    input: f64,
    output: f64,
    cache_read: Option<f64>,
    cache_write: Option<f64>,
}

// === impl PriceList ===

impl PriceList {
    /// The built-in list, then `pricing.toml` of each folder; later ones replace. Missing files are fine.
    ///
    /// # Errors
    /// A file that cannot be read or understood.
    pub fn load(folders: &[PathBuf]) -> Result<Self, PricingError> {
        let mut list = PriceList::default();
        list.add(Path::new("built-in pricing.toml"), BUILT_IN)?;
        for path in folders.iter().map(|folder| folder.join("pricing.toml")) {
            match fs::read_to_string(&path) {
                Ok(text) => list.add(&path, &text)?,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(source) => return Err(PricingError::Read { path, source }),
            }
        }
        Ok(list)
    }

    fn add(&mut self, path: &Path, text: &str) -> Result<(), PricingError> {
        let file: File = toml::from_str(text)
            .map_err(|source| PricingError::Content { path: path.to_owned(), source: Box::new(source) })?;
        for (model, entry) in file.models {
            let Entry { input, output, cache_read, cache_write, .. } = entry;
            let all = [Some(input), Some(output), cache_read, cache_write];
            if all.into_iter().flatten().any(|price| !price.is_finite() || price < 0.0) {
                return Err(PricingError::Value { path: path.to_owned(), model });
            }
            self.models.insert(model, Price { input, output, cache_read, cache_write });
        }
        Ok(())
    }

    /// The price of a model: that of its name, else of the longest beginning that is listed. A path such as
    /// `openai/gpt-5.1` is looked up by its last part, too.
    pub fn get(&self, model: &str) -> Option<&Price> {
        let short = model.rsplit('/').next().unwrap_or(model);
        [model, short].into_iter().find_map(|name| {
            self.models.get(name).or_else(|| {
                let fits = |(listed, _): &(&String, &Price)| {
                    listed.strip_suffix('*').is_some_and(|start| name.starts_with(start))
                };
                self.models.iter().filter(fits).max_by_key(|(listed, _)| listed.len()).map(|(_, price)| price)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_that_fits_counts_and_later_files_replace() {
        let folder = tempfile::tempdir().unwrap();
        let text = "[models.\"gpt-5.1*\"]\nas_of = \"2026-11-30\"\ninput = 9.0\noutput = 99.0\n\
                    [models.mine]\nas_of = \"2026-11-30\"\ninput = 0\noutput = 0\n";
        fs::write(folder.path().join("pricing.toml"), text).unwrap();
        let built_in = PriceList::load(&[]).unwrap();
        let own = PriceList::load(&[folder.path().to_owned(), "/no/such/folder".into()]).unwrap();
        let input = |list: &PriceList, model: &str| list.get(model).map(|price| price.input);
        assert_eq!(input(&built_in, "gpt-5.1-codex"), Some(1.25));
        assert_eq!(input(&built_in, "gpt-5.4-mini-2026"), Some(0.75));
        assert_eq!(input(&built_in, "openai/gpt-5.4"), Some(2.5));
        assert_eq!(input(&built_in, "some-model"), None);
        assert_eq!(input(&own, "gpt-5.1-codex"), Some(9.0));
        assert_eq!(input(&own, "mine"), Some(0.0));
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pricing.toml");
        for (text, words) in [
            ("[models.a]\ninput = 1.0\n", "as_of"),
            ("[models.a]\nas_of = \"2026-11-30\"\ninput = -1.0\noutput = 1.0\n", "the price of `a` must be"),
            ("[model.a]\n", "unknown field"),
        ] {
            fs::write(&file, text).unwrap();
            let error = PriceList::load(&[folder.path().to_owned()]).unwrap_err().to_string();
            assert!(error.contains("pricing.toml: ") && error.contains(words), "{error}");
        }
    }
}
