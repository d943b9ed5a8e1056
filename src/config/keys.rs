//! Every key there is, as written in files: the raw form of the settings, one optional field a key.
//!
//! A layer may leave out anything; what it has must be known and well-formed. `checked` turns the merged raw
//! form into [`Config`](super::Config), once.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use toml::Value;

use super::scalar::{Count, Limit, Number, Size, Time};
use super::settings::{Durability, PauseMode};

/// Declares the sections: their raw structs, and the list of keys.
macro_rules! sections {
    ($($section:ident: $raw:ident { $($field:ident: $ty:ty,)* })*) => {
        $(
            #[derive(Debug, Default, Deserialize)]
            #[serde(default, deny_unknown_fields)]
            pub(super) struct $raw { $(pub $field: Option<$ty>,)* }
        )*

        /// The merged layers, before checking.
        #[derive(Debug, Default, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub(super) struct RawConfig {
            pub durability: Option<Durability>,
            pub providers: BTreeMap<String, RawProviderTable>,
            $(pub $section: $raw,)*
        }

        /// Every key; `*` stands for a name that the user chooses.
        pub const KEYS: &[&str] = &[
            "durability",
            "providers.*.model",
            "providers.*.path",
            "providers.*.args",
            "providers.*.env.*",
            $($(concat!(stringify!($section), ".", stringify!($field)),)*)*
        ];
    };
}

sections! {
    provider: RawProvider {
        name: String,
        fallback: Vec<String>,
        model: String,
    }
    agent: RawAgent {
        env_keep: Vec<String>,
        env_drop: Vec<String>,
    }
    run: RawRun {
        max_iterations: Limit<Count>,
        max_duration: Limit<Time>,
        perpetual: bool,
        wait: bool,
        retries: Count,
        failover_after: Count,
        resume_conversation: bool,
    }
    limits: RawLimits {
        first_output: Limit<Time>,
        silence: Limit<Time>,
        total: Limit<Time>,
        line_bytes: Size,
        max_rss: Limit<Size>,
        tool_calls: Limit<Count>,
        retrying: Limit<Time>,
    }
    backoff: RawBackoff {
        base: Time,
        cap: Time,
    }
    rate_limit: RawRateLimit {
        probe_min: Time,
        probe_max: Time,
    }
    network: RawNetwork {
        max_outage: Limit<Time>,
    }
    stagnation: RawStagnation {
        warn: Limit<Count>,
        pause: Limit<Count>,
    }
    pause: RawPause {
        mode: PauseMode,
    }
    stop: RawStop {
        grace: Time,
    }
    disk: RawDisk {
        min_free: Size,
        resume_factor: Number,
        min_inodes: Count,
        interval: Time,
    }
    gates: RawGates {
        detect: bool,
        timeout: Time,
        commands: Vec<RawGate>,
    }
    budget: RawBudget {
        usd: Limit<Number>,
        call_usd: Limit<Number>,
        project_usd: Limit<Number>,
        day_usd: Limit<Number>,
        month_usd: Limit<Number>,
        assume_usd_per_call: Limit<Number>,
    }
    notify: RawNotify {
        webhook: String,
        webhook_secret: String,
        command: String,
        desktop: bool,
        events: Vec<String>,
        long_wait: Time,
    }
    checkpoint: RawCheckpoint {
        enabled: bool,
        keep: Count,
    }
    journal: RawJournal {
        max_file: Size,
        max_total: Size,
    }
    logs: RawLogs {
        max_file: Size,
        max_total: Size,
    }
    spec: RawSpec {
        max_tokens: Limit<Count>,
        window_tokens: Count,
    }
    supervisor: RawSupervisor {
        intensity: Count,
        window: Time,
    }
}

/// `[providers.NAME]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawProviderTable {
    pub model: Option<String>,
    pub path: Option<PathBuf>,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
}

/// One entry of `gates.commands`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawGate {
    pub name: String,
    pub run: Option<String>,
    pub shell: Option<String>,
    pub timeout: Option<Time>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

/// When a change of a key takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Liveness {
    /// At the next iteration of a running session.
    Live,
    /// When the next session starts.
    Restart,
}

/// What a dotted path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    Key,
    Section,
    Nothing,
}

/// When a change of `key` takes effect.
pub fn liveness(key: &str) -> Liveness {
    match key {
        // The database is opened with it.
        "durability" => Liveness::Restart,
        _ => Liveness::Live,
    }
}

/// Whether `key` is one that may be set.
pub fn is_key(key: &str) -> bool {
    named(&key.split('.').collect::<Vec<_>>()) == Named::Key
}

/// What `path` names; `*` in a key matches any one segment.
pub(super) fn named<S: AsRef<str>>(path: &[S]) -> Named {
    let mut found = Named::Nothing;
    for key in KEYS {
        let mut pattern = key.split('.');
        let fits = path.iter().all(|segment| {
            let segment = segment.as_ref();
            let plain = !segment.is_empty() && !segment.contains('.');
            pattern.next().is_some_and(|want| plain && (want == "*" || want == segment))
        });
        match (fits, pattern.next()) {
            (true, None) => return Named::Key,
            (true, Some(_)) => found = Named::Section,
            (false, _) => {}
        }
    }
    found
}

/// The known key or section closest to an unknown one, if any is close.
pub fn suggest(unknown: &str) -> Option<String> {
    let segments: Vec<&str> = unknown.split('.').collect();
    let mut best: Option<(f64, String)> = None;
    let mut offer = |score: f64, name: String| {
        if score >= 0.65 && best.as_ref().is_none_or(|(top, _)| score > *top) {
            best = Some((score, name));
        }
    };
    for key in KEYS {
        let pattern: Vec<&str> = key.split('.').collect();
        // A misspelt section counts as itself, not as each of its keys.
        for length in 1..=pattern.len() {
            let name: Vec<&str> = pattern[..length]
                .iter()
                .enumerate()
                .map(|(i, want)| if *want == "*" { segments.get(i).copied().unwrap_or("NAME") } else { want })
                .collect();
            let name = name.join(".");
            if length == segments.len() || length == pattern.len() {
                offer(strsim::normalized_damerau_levenshtein(unknown, &name), name);
            }
        }
        // The right key in the wrong section.
        if let (Some(given), Some(want)) = (segments.last(), pattern.last())
            && *want != "*"
            && pattern[0] != "providers"
        {
            offer(strsim::normalized_damerau_levenshtein(given, want) * 0.9, (*key).to_owned());
        }
    }
    best.map(|(_, name)| name)
}

/// Whether `value` is well-formed for `key`; the message reads after the key's name.
pub(super) fn check_value(key: &str, value: &Value) -> Result<(), String> {
    let mut nested = value.clone();
    for segment in key.rsplit('.') {
        nested = Value::Table(toml::Table::from_iter([(segment.to_owned(), nested)]));
    }
    RawConfig::deserialize(nested).map(drop).map_err(|error| in_our_words(error.message()))
}

/// The value that `text` means for `key`: a TOML value, else plain text, else a list with commas, whichever
/// the key takes first. The message reads after the key's name.
pub(super) fn value_of(key: &str, text: &str) -> Result<Value, String> {
    let as_toml = text.trim().parse::<Value>().ok();
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    let candidates = as_toml.into_iter().chain([
        Value::String(text.to_owned()),
        Value::Array(words.map(|word| Value::String(word.to_owned())).collect()),
    ]);
    let mut first_message = None;
    for candidate in candidates {
        match check_value(key, &candidate) {
            Ok(()) => return Ok(candidate),
            Err(message) => first_message = first_message.or(Some(message)),
        }
    }
    Err(first_message.unwrap_or_default())
}

/// serde's wording, as a phrase that reads after the key's name.
pub(super) fn in_our_words(message: &str) -> String {
    let message = message.trim();
    let parts = ["invalid type: ", "invalid value: ", "unknown variant "]
        .iter()
        .find_map(|start| message.strip_prefix(start))
        .and_then(|rest| rest.split_once(", expected "));
    match parts {
        Some((given, "a sequence")) => format!("must be a list, not {given}"),
        Some((given, expected)) => format!("must be {}, not {given}", expected.trim_start_matches("one of ")),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_keys_sections_or_nothing() {
        for (path, want) in [
            ("run.retries", Named::Key),
            ("durability", Named::Key),
            ("run", Named::Section),
            ("providers.claude", Named::Section),
            ("providers.claude.model", Named::Key),
            ("providers.claude.env.HTTPS_PROXY", Named::Key),
            ("providers.claude.env", Named::Section),
            ("providers.claude.nonsense", Named::Nothing),
            ("run.retries.more", Named::Nothing),
            ("nonsense", Named::Nothing),
            ("run.", Named::Nothing),
        ] {
            assert_eq!(named(&path.split('.').collect::<Vec<_>>()), want, "{path}");
        }
        assert_eq!(named(&["providers", "a.b", "model"]), Named::Nothing);
    }

    #[test]
    fn unknown_keys_get_the_closest_known_one() {
        for (unknown, want) in [
            ("run.max_iteration", Some("run.max_iterations")),
            ("max_iterations", Some("run.max_iterations")),
            ("limits.retries", Some("run.retries")),
            ("rum", Some("run")),
            ("gate", Some("gates")),
            ("providers.claude.modle", Some("providers.claude.model")),
            ("durabilty", Some("durability")),
            ("zzz.qqq", None),
        ] {
            assert_eq!(suggest(unknown).as_deref(), want, "{unknown}");
        }
    }

    #[test]
    fn text_becomes_what_the_key_takes() {
        for (key, text, want) in [
            ("run.max_iterations", "5", Value::Integer(5)),
            ("run.max_iterations", "none", Value::String("none".into())),
            ("run.max_duration", "1h 30m", Value::String("1h 30m".into())),
            ("run.wait", "false", Value::Boolean(false)),
            ("provider.model", "5", Value::String("5".into())),
            ("provider.model", "true", Value::String("true".into())),
            ("provider.model", "\"opus\"", Value::String("opus".into())),
            ("provider.model", "", Value::String(String::new())),
            ("budget.usd", "12.5", Value::Float(12.5)),
            ("provider.fallback", "codex, gemini", Value::Array(vec!["codex".into(), "gemini".into()])),
            ("provider.fallback", "[\"codex\"]", Value::Array(vec!["codex".into()])),
            ("provider.fallback", "", Value::Array(vec![])),
        ] {
            assert_eq!(value_of(key, text), Ok(want), "{key} {text}");
        }
    }

    #[test]
    fn messages_name_the_rule_and_the_value() {
        for (key, text, want) in [
            ("run.wait", "perhaps", "must be a boolean, not string \"perhaps\""),
            ("run.retries", "-1", "must be a whole number of at least 0, not -1"),
            ("pause.mode", "never", "must be `finish` or `interrupt`, not `never`"),
            ("run.retries", "5\nx = 1", "must be a whole number of at least 0, not \"5\\nx = 1\""),
        ] {
            assert_eq!(value_of(key, text).unwrap_err(), want);
        }
    }
}
