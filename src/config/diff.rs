//! What changed between two states of the settings, as the `config_changed` event tells it.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

use super::keys::{self, Liveness};
use super::load::Settings;
use super::secret;

/// One changed key. Secrets are masked in both values.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// Dotted key.
    pub key: String,
    /// As it was; `null`: not set.
    pub old: Value,
    /// As it is now; `null`: not set any more.
    pub new: Value,
    /// When it takes effect.
    pub applies: Liveness,
}

/// The keys whose values differ, in their order. A value that only moved to another layer is no change.
pub fn diff(old: &Settings, new: &Settings) -> Vec<Change> {
    let keys: BTreeSet<&str> = old.iter().chain(new.iter()).map(|(key, _)| key).collect();
    let value = |settings: &Settings, key| settings.get(key).map(|setting| setting.value.clone());
    keys.into_iter()
        .filter(|key| value(old, key) != value(new, key))
        .map(|key| Change {
            key: key.to_owned(),
            old: shown(key, value(old, key)),
            new: shown(key, value(new, key)),
            applies: keys::liveness(key),
        })
        .collect()
}

/// A value as JSON, masked where it is a secret.
pub fn shown(key: &str, value: Option<toml::Value>) -> Value {
    value.map_or(Value::Null, |value| as_json(&secret::masked(key, &value)))
}

/// A TOML value as JSON. Settings hold neither dates nor infinite numbers.
pub fn as_json(value: &toml::Value) -> Value {
    match value {
        toml::Value::String(text) => Value::from(text.as_str()),
        toml::Value::Integer(number) => Value::from(*number),
        toml::Value::Float(number) => Value::from(*number),
        toml::Value::Boolean(yes) => Value::from(*yes),
        toml::Value::Datetime(date) => Value::from(date.to_string()),
        toml::Value::Array(items) => Value::Array(items.iter().map(as_json).collect()),
        toml::Value::Table(table) => {
            Value::Object(table.iter().map(|(name, value)| (name.clone(), as_json(value))).collect())
        }
    }
}
