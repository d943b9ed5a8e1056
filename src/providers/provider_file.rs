//! Reads provider files: typed, strict, and with errors that name the file, the line and the key.
//!
//! Every key is optional here, because a user's or project's file may change one key of a built-in provider;
//! [`Layer::over`] puts one on top of another and [`Layer::check`] turns the result into a [`Definition`].

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use regex::bytes::{Regex, RegexBuilder};
use serde::Deserialize;
use toml::Spanned;

use super::definition::{
    Arg, Definition, EnvRules, Flags, Limits, NamePattern, OutcomeKind, OutputFormat, Place, Price, PromptBy,
    Rule, Version, VersionProbe, Where,
};
use crate::domain::outcome::AccountScope;

/// Why a provider file cannot be used; reads after "failed to load a provider: ".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}: {}{problem}", file.display(), if key.is_empty() { String::new() } else { format!("`{key}`: ") })]
pub struct FileError {
    /// The file.
    pub file: PathBuf,
    /// Line, from 1.
    pub line: usize,
    /// Dotted key; empty when the file as a whole is wrong.
    pub key: String,
    /// What is wrong, and what would be right.
    pub problem: String,
}

/// One file, or several put on top of each other.
#[derive(Debug, Clone)]
pub struct Layer {
    file: PathBuf,
    keys: Keys,
}

/// The file as it is written.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    name: Option<String>,
    title: Option<String>,
    program: Option<String>,
    args: Option<Spanned<Vec<String>>>,
    prompt: Option<PromptBy>,
    output: Option<OutputFormat>,
    install: Option<String>,
    login: Option<String>,
    exit_code_is_evidence: Option<bool>,
    credential_files: Option<Vec<String>>,
    #[serde(default)]
    flags: FlagKeys,
    #[serde(default)]
    env: EnvKeys,
    version: Option<VersionKeys>,
    #[serde(default)]
    limits: LimitKeys,
    #[serde(default)]
    exit_codes: BTreeMap<Spanned<String>, OutcomeKind>,
    #[serde(default)]
    prices: BTreeMap<String, Price>,
    #[serde(default)]
    rules: Vec<RuleKeys>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FlagKeys {
    model: Option<Vec<String>>,
    resume: Option<Vec<String>>,
    max_turns: Option<Vec<String>>,
    max_budget_usd: Option<Vec<String>>,
    prompt: Option<Vec<String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct EnvKeys {
    #[serde(default)]
    set: BTreeMap<String, String>,
    #[serde(default)]
    set_as_root: BTreeMap<String, String>,
    #[serde(default)]
    set_default: BTreeMap<String, String>,
    keys: Option<Vec<String>>,
    remove: Option<Vec<String>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct VersionKeys {
    args: Vec<String>,
    pattern: Spanned<String>,
    min: Option<Spanned<String>>,
    below: Option<Spanned<String>>,
    tested: Option<Spanned<String>>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitKeys {
    first_output_seconds: Option<u64>,
    silence_seconds: Option<u64>,
    total_seconds: Option<u64>,
    linger_seconds: Option<u64>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleKeys {
    id: String,
    outcome: OutcomeKind,
    #[serde(rename = "where")]
    places: Spanned<Vec<Where>>,
    pattern: Spanned<String>,
    scope: Option<AccountScope>,
    #[serde(default)]
    drop_conversation: bool,
}

/// The places of an argument template as they are written.
const PLACES: [(&str, Place); 5] = [
    ("{model}", Place::Model),
    ("{resume}", Place::Resume),
    ("{max_turns}", Place::MaxTurns),
    ("{max_budget_usd}", Place::MaxBudgetUsd),
    ("{prompt}", Place::Prompt),
];

// === impl Layer ===

impl Layer {
    /// Reads one file's text. What can be judged without the layers below is judged here, where the line is
    /// known.
    pub fn parse(file: &Path, text: &str) -> Result<Self, FileError> {
        let at = |span: Option<Range<usize>>, problem: String| {
            let (line, key) = locate(text, span.map_or(0, |span| span.start));
            FileError { file: file.to_owned(), line, key, problem }
        };
        let keys: Keys = toml::from_str(text).map_err(|e| at(e.span(), e.message().to_owned()))?;

        if let Some(args) = &keys.args
            && let Some(odd) = args.get_ref().iter().find(|arg| is_odd_place(arg))
        {
            let known = PLACES.map(|(written, _)| written).join(" ");
            return Err(at(Some(args.span()), format!("`{odd}` is no known place; known are {known}")));
        }
        for code in keys.exit_codes.keys() {
            if code.get_ref().parse::<i32>().is_err() {
                return Err(at(Some(code.span()), format!("`{}` is no exit code", code.get_ref())));
            }
        }
        if let Some(version) = &keys.version {
            compile(version.pattern.get_ref()).map_err(|e| at(Some(version.pattern.span()), e))?;
            for written in [&version.min, &version.below, &version.tested].into_iter().flatten() {
                if Version::parse(written.get_ref()).is_none() {
                    return Err(at(Some(written.span()), format!("`{}` is no version", written.get_ref())));
                }
            }
        }
        for rule in &keys.rules {
            compile(rule.pattern.get_ref()).map_err(|e| at(Some(rule.pattern.span()), e))?;
            if rule.places.get_ref().is_empty() {
                return Err(at(Some(rule.places.span()), "must name at least one place".to_owned()));
            }
        }
        Ok(Layer { file: file.to_owned(), keys })
    }

    /// This layer on top of `below`: single keys and lists replace, tables merge key by key, rules with the id of
    /// a rule below replace it and new ones come first.
    pub fn over(self, below: Layer) -> Layer {
        let (top, low) = (self.keys, below.keys);
        let mut rules = top.rules;
        let kept = low.rules.into_iter().filter(|rule| !rules.iter().any(|own| own.id == rule.id));
        let kept: Vec<RuleKeys> = kept.collect();
        rules.extend(kept);
        let keys = Keys {
            name: top.name.or(low.name),
            title: top.title.or(low.title),
            program: top.program.or(low.program),
            args: top.args.or(low.args),
            prompt: top.prompt.or(low.prompt),
            output: top.output.or(low.output),
            install: top.install.or(low.install),
            login: top.login.or(low.login),
            exit_code_is_evidence: top.exit_code_is_evidence.or(low.exit_code_is_evidence),
            credential_files: top.credential_files.or(low.credential_files),
            flags: FlagKeys {
                model: top.flags.model.or(low.flags.model),
                resume: top.flags.resume.or(low.flags.resume),
                max_turns: top.flags.max_turns.or(low.flags.max_turns),
                max_budget_usd: top.flags.max_budget_usd.or(low.flags.max_budget_usd),
                prompt: top.flags.prompt.or(low.flags.prompt),
            },
            env: EnvKeys {
                set: merged(low.env.set, top.env.set),
                set_as_root: merged(low.env.set_as_root, top.env.set_as_root),
                set_default: merged(low.env.set_default, top.env.set_default),
                keys: top.env.keys.or(low.env.keys),
                remove: top.env.remove.or(low.env.remove),
            },
            version: top.version.or(low.version),
            limits: LimitKeys {
                first_output_seconds: top.limits.first_output_seconds.or(low.limits.first_output_seconds),
                silence_seconds: top.limits.silence_seconds.or(low.limits.silence_seconds),
                total_seconds: top.limits.total_seconds.or(low.limits.total_seconds),
                linger_seconds: top.limits.linger_seconds.or(low.limits.linger_seconds),
            },
            exit_codes: merged(low.exit_codes, top.exit_codes),
            prices: merged(low.prices, top.prices),
            rules,
        };
        Layer { file: self.file, keys }
    }

    /// The definition of provider `name`, when everything that it needs is there.
    pub fn check(self, name: &str) -> Result<Definition, FileError> {
        let Layer { file, keys } = self;
        let wrong = |key: &str, problem: String| FileError {
            file: file.clone(),
            line: 1,
            key: key.to_owned(),
            problem,
        };
        if let Some(own) = keys.name.as_deref().filter(|own| *own != name) {
            return Err(wrong("name", format!("says `{own}`, but the file's name says `{name}`")));
        }
        let Some(output) = keys.output else {
            return Err(wrong("output", "is missing: claude-stream-json, codex-jsonl or text".to_owned()));
        };
        let prompt = keys.prompt.unwrap_or(PromptBy::Stdin);
        let args: Vec<Arg> =
            keys.args.map(Spanned::into_inner).unwrap_or_default().into_iter().map(read_arg).collect();
        let flags = Flags {
            model: keys.flags.model.unwrap_or_default(),
            resume: keys.flags.resume.unwrap_or_default(),
            max_turns: keys.flags.max_turns.unwrap_or_default(),
            max_budget_usd: keys.flags.max_budget_usd.unwrap_or_default(),
            prompt: keys.flags.prompt.unwrap_or_default(),
        };
        let places = [
            ("model", Place::Model, &flags.model),
            ("resume", Place::Resume, &flags.resume),
            ("max_turns", Place::MaxTurns, &flags.max_turns),
            ("max_budget_usd", Place::MaxBudgetUsd, &flags.max_budget_usd),
        ];
        for (key, place, flag) in places {
            let (placed, given) = (args.contains(&Arg::Place(place)), !flag.is_empty());
            if placed != given {
                let problem =
                    format!("`{{{key}}}` in `args` and `flags.{key}` go together; one of them is missing");
                return Err(wrong(&format!("flags.{key}"), problem));
            }
            if given && !flag.iter().any(|item| item.contains("{}")) {
                return Err(wrong(&format!("flags.{key}"), "has no `{}` for the value".to_owned()));
            }
        }
        if (prompt == PromptBy::Argument) != args.contains(&Arg::Place(Place::Prompt)) {
            let problem =
                "`prompt = \"argument\"` and `{prompt}` in `args` go together; one of them is missing";
            return Err(wrong("prompt", problem.to_owned()));
        }

        let patterns = |names: Option<Vec<String>>| {
            names.unwrap_or_default().into_iter().map(NamePattern::new).collect()
        };
        let seconds = |value: Option<u64>| value.map(Duration::from_secs);
        let version =
            keys.version.map(check_version).transpose().map_err(|problem| wrong("version", problem))?;
        let rules = keys.rules.into_iter().map(check_rule).collect::<Result<Vec<_>, _>>();
        Ok(Definition {
            name: name.to_owned(),
            title: keys.title.unwrap_or_else(|| name.to_owned()),
            program: keys.program,
            args,
            prompt,
            output,
            flags,
            env: EnvRules {
                set: keys.env.set,
                set_as_root: keys.env.set_as_root,
                set_default: keys.env.set_default,
                keys: patterns(keys.env.keys),
                remove: patterns(keys.env.remove),
            },
            credential_files: keys.credential_files.unwrap_or_default(),
            version,
            install: keys.install,
            login: keys.login,
            exit_code_is_evidence: keys.exit_code_is_evidence.unwrap_or(true),
            exit_codes: keys
                .exit_codes
                .into_iter()
                .filter_map(|(code, outcome)| Some((code.into_inner().parse().ok()?, outcome)))
                .collect(),
            rules: rules.map_err(|problem| wrong("rules", problem))?,
            prices: keys.prices,
            limits: Limits {
                first_output: seconds(keys.limits.first_output_seconds),
                silence: seconds(keys.limits.silence_seconds),
                total: seconds(keys.limits.total_seconds),
                linger: seconds(keys.limits.linger_seconds),
            },
        })
    }
}

fn merged<K: Ord, V>(mut low: BTreeMap<K, V>, top: BTreeMap<K, V>) -> BTreeMap<K, V> {
    low.extend(top);
    low
}

fn read_arg(written: String) -> Arg {
    match PLACES.iter().find(|(place, _)| *place == written) {
        Some((_, place)) => Arg::Place(*place),
        None => Arg::Text(written),
    }
}

/// Looks like a place but is none.
fn is_odd_place(arg: &str) -> bool {
    arg.starts_with('{')
        && arg.ends_with('}')
        && arg[1..arg.len() - 1].bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
        && !PLACES.iter().any(|(written, _)| *written == arg)
}

/// Compiles an ASCII pattern: no letter case, `.` is one byte, a size that keeps matching fast.
fn compile(pattern: &str) -> Result<Regex, String> {
    if !pattern.is_ascii() {
        return Err("the pattern must be ASCII; write `.+` where other characters stand".to_owned());
    }
    RegexBuilder::new(pattern)
        .unicode(false)
        .case_insensitive(true)
        .size_limit(1 << 20)
        .build()
        .map_err(|e| format!("not a regular expression: {e}"))
}

fn check_version(keys: VersionKeys) -> Result<VersionProbe, String> {
    let version = |written: Option<Spanned<String>>| written.and_then(|v| Version::parse(v.get_ref()));
    Ok(VersionProbe {
        args: keys.args,
        pattern: compile(keys.pattern.get_ref())?,
        min: version(keys.min),
        below: version(keys.below),
        tested: version(keys.tested),
    })
}

fn check_rule(keys: RuleKeys) -> Result<Rule, String> {
    Ok(Rule {
        pattern: compile(keys.pattern.get_ref())?,
        id: keys.id,
        outcome: keys.outcome,
        places: keys.places.into_inner(),
        scope: keys.scope,
        drop_conversation: keys.drop_conversation,
    })
}

/// Line (from 1) and dotted key at a byte offset.
fn locate(text: &str, offset: usize) -> (usize, String) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count();
    let mut table = String::new();
    let mut key = String::new();
    for written in text.lines().take(line + 1) {
        let written = written.trim();
        if written.starts_with('[') && written.ends_with(']') && !written.contains('=') {
            table = written.trim_matches(['[', ']']).trim().to_owned();
            key.clear();
        } else if let Some((name, _)) =
            written.split_once('=').filter(|_| !written.starts_with(['#', '"', '\'']))
        {
            key = name.trim().to_owned();
        }
    }
    let dot = if table.is_empty() || key.is_empty() { "" } else { "." };
    (line + 1, format!("{table}{dot}{key}"))
}
