//! What a provider file says, checked: from here on nothing in it can be wrong.
//!
//! [`super::provider_file`] reads the file; [`super::registry`] layers built-in, user and project files.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use regex::bytes::{Regex, RegexBuilder};
use regex_syntax::ParserBuilder;
use serde::Deserialize;

use super::pricing::PriceList;
use super::server::Server;
use crate::domain::outcome::{AccountScope, Outcome, Usage};

/// One way to call an agent.
#[derive(Debug, Clone)]
pub struct Definition {
    /// Stable name, as in `--provider claude` and in the journal.
    pub name: String,
    /// Name for people.
    pub title: String,
    /// Program to look up on PATH. `None`: given with `--agent` (`command`), or in process (`rehearsal`).
    pub program: Option<String>,
    /// Arguments after the program, with places for what differs between calls.
    pub args: Vec<Arg>,
    /// How the prompt reaches the program.
    pub prompt: PromptBy,
    /// What it prints.
    pub output: OutputFormat,
    /// What the places in `args` become.
    pub flags: Flags,
    /// Environment rules.
    pub env: EnvRules,
    /// Files that hold the credential; `~/` and a leading `$VAR/` stand for what they stand for in a shell.
    /// A change of one of them is the hint that an `auth_failed` account may work again.
    pub credential_files: Vec<String>,
    /// How to ask for the version.
    pub version: Option<VersionProbe>,
    /// How to install it, for people.
    pub install: Option<String>,
    /// How to log in, for people.
    pub login: Option<String>,
    /// Arguments of the CLI's own log-in; empty: it has none.
    pub login_args: Vec<String>,
    /// Arguments of the CLI's own log-out; empty: it has none.
    pub logout_args: Vec<String>,
    /// False: the CLI exits 0 on failures too, so lines that it prints itself count at any exit code.
    pub exit_code_is_evidence: bool,
    /// Exit codes with a meaning of their own, used when nothing better is known.
    pub exit_codes: BTreeMap<i32, OutcomeKind>,
    /// Known wordings and fields, in the file's order; then those of `rules_from`.
    pub rules: Vec<Arc<Rule>>,
    /// Providers whose rules hold here, too: a text agent mostly passes on what one of them said.
    pub rules_from: Vec<String>,
    /// The server that its calls go to.
    pub server: Option<Server>,
    /// The same, where calls are allowed by a login, not by a key.
    pub server_by_login: Option<Server>,
    /// List prices by model, for providers that tell no cost.
    pub prices: BTreeMap<String, Price>,
    /// List prices of all models, for those that `prices` does not name.
    pub price_list: Arc<PriceList>,
    /// Time limits that fit this CLI, where they differ from the configured ones.
    pub limits: Limits,
}

/// One argument of the template.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Arg {
    /// Passed as it is.
    Text(String),
    /// Becomes zero or more arguments.
    Place(Place),
}

/// A place in the argument template, written `{model}` and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The model flag, when a model is asked for.
    Model,
    /// The resume flags, when a conversation is resumed.
    Resume,
    /// The turn cap, when one is set.
    MaxTurns,
    /// The cost cap, when one is set.
    MaxBudgetUsd,
    /// The prompt.
    Prompt,
}

/// How the prompt is passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PromptBy {
    /// Written to stdin, which is then closed.
    Stdin,
    /// One argument, at `{prompt}`; stdin is `/dev/null`.
    Argument,
}

/// Output formats with a decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutputFormat {
    /// `claude -p --output-format stream-json --verbose`.
    ClaudeStreamJson,
    /// `codex exec --json`.
    CodexJsonl,
    /// `gemini -o stream-json`.
    GeminiStreamJson,
    /// `opencode run --format json`.
    OpencodeJson,
    /// `cline --json`.
    ClineJson,
    /// Plain text: the last non-empty line is the final answer.
    Text,
    /// No program at all: a script played in process.
    Rehearsal,
}

/// What each place becomes; `{}` in an item stands for the value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Flags {
    /// For [`Place::Model`].
    pub model: Vec<String>,
    /// For [`Place::Resume`]; empty: this CLI cannot resume.
    pub resume: Vec<String>,
    /// For [`Place::MaxTurns`]; empty: no such cap.
    pub max_turns: Vec<String>,
    /// For [`Place::MaxBudgetUsd`]; empty: no such cap.
    pub max_budget_usd: Vec<String>,
    /// For [`Place::Prompt`]; empty: the prompt alone.
    pub prompt: Vec<String>,
}

/// Environment of the agent: the supervisor's own, less what is not its business, plus this.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EnvRules {
    /// Always set.
    pub set: BTreeMap<String, String>,
    /// Set only when we run as root.
    pub set_as_root: BTreeMap<String, String>,
    /// Set only when the user's environment has no such variable.
    pub set_default: BTreeMap<String, String>,
    /// Variables that hold this provider's own keys; every other provider's agents lose them.
    pub keys: Vec<NamePattern>,
    /// Variables that say which server is called. Limits of one server say nothing about another.
    pub endpoint: Vec<NamePattern>,
    /// Variables that an agent of this provider never gets, such as the marker of an enclosing session.
    pub remove: Vec<NamePattern>,
}

/// Name of an environment variable; a trailing `*` matches any rest.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct NamePattern(String);

/// A regular expression: ASCII, without regard to case, `.` is one byte.
///
/// Its syntax is checked when a file of a person's is read ([`Pattern::check`]); it is compiled when it is first used,
/// which most runs never do: that of all rules of all providers takes longer than everything else at the start. Providers
/// that share a rule share that, too.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "String")]
pub struct Pattern {
    written: String,
    /// None: it is too large to be compiled, and matches nothing.
    compiled: Arc<OnceLock<Option<Regex>>>,
}

/// How to ask a CLI for its version, and which ones are known to work.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VersionProbe {
    /// Arguments after the program.
    pub args: Vec<String>,
    /// Finds the version in what it prints; group 1, else the whole match.
    pub pattern: Pattern,
    /// Oldest version that works.
    pub min: Option<Version>,
    /// First version that is not known to work.
    pub below: Option<Version>,
    /// The version that the built-in recipe was recorded with.
    pub tested: Option<Version>,
}

/// A dotted version number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Version(pub [u64; 3]);

/// What a version probe found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionCheck {
    /// Within the known range.
    Fits(Version),
    /// Older than the recipe needs.
    TooOld(Version),
    /// Newer than what is known to work: goes on, with a notice.
    Newer(Version),
    /// No version in what it printed.
    Unreadable,
}

/// A known wording or field value.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Stable id, for example `claude.text.usage_limit`.
    pub id: String,
    /// What it means.
    pub outcome: OutcomeKind,
    /// Where it is looked for.
    #[serde(rename = "where")]
    pub places: Places,
    /// What it looks like.
    pub pattern: Pattern,
    /// What it must not look like as well.
    pub unless: Option<Pattern>,
    /// What it means instead when the stated wait is longer than [`Rule::LONG`]: some servers say a used-up day
    /// in the words of a busy minute.
    pub long: Option<OutcomeKind>,
    /// What it means instead when the stated wait is not longer than that.
    pub short: Option<OutcomeKind>,
    /// What the limit applies to, where the outcome's usual scope is wrong.
    pub scope: Option<AccountScope>,
    /// A guess: counts only when nothing else fits.
    #[serde(default)]
    pub weak: bool,
    /// The stored conversation is of no use any more: the next attempt starts a fresh one.
    #[serde(default)]
    pub drop_conversation: bool,
}

impl Rule {
    /// A wait that is longer is no matter of a short window.
    pub const LONG: Duration = Duration::from_secs(300);
}

/// Where a rule looks: at least one place.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<Where>")]
pub struct Places(Vec<Where>);

/// One place where a rule looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Where {
    /// Words of the terminal result that says failure.
    Result,
    /// Machine-readable kind of error, such as claude's `rate_limit` (whole value).
    Kind,
    /// Words of a structured error event other than the terminal one.
    ErrorEvent,
    /// Last lines of stderr.
    Stderr,
    /// Last lines of stdout that are not the format's own.
    Stdout,
    /// The whole final answer of a success without tool use or change: some CLIs print an error as the answer.
    Answer,
}

/// Outcomes by name, without their data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeKind {
    /// See [`Outcome::Empty`].
    Empty,
    /// See [`Outcome::RateLimited`].
    RateLimited,
    /// See [`Outcome::UsageLimited`].
    UsageLimited,
    /// See [`Outcome::QuotaExhausted`].
    QuotaExhausted,
    /// See [`Outcome::Overloaded`].
    Overloaded,
    /// See [`Outcome::AuthFailed`].
    AuthFailed,
    /// See [`Outcome::NetworkDown`].
    NetworkDown,
    /// See [`Outcome::ContextOverflow`].
    ContextOverflow,
    /// See [`Outcome::ModelUnavailable`].
    ModelUnavailable,
    /// See [`Outcome::Refused`].
    Refused,
    /// See [`Outcome::CapReached`].
    CapReached,
    /// See [`Outcome::Truncated`].
    Truncated,
    /// See [`Outcome::SilentHang`].
    SilentHang,
    /// See [`Outcome::TimedOut`].
    TimedOut,
    /// See [`Outcome::Crashed`].
    Crashed,
    /// See [`Outcome::NotRunnable`].
    NotRunnable,
    /// See [`Outcome::Cancelled`].
    Cancelled,
    /// See [`Outcome::Unknown`].
    Unknown,
}

/// List price of a model, US dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Input, uncached.
    pub input: f64,
    /// Output.
    pub output: f64,
    /// Input read from a cache; the input price when it is not given.
    pub cache_read: Option<f64>,
    /// Input written to a cache; the input price when it is not given.
    pub cache_write: Option<f64>,
}

/// Time limits that fit a CLI's habits. They stand in for the built-in defaults, never for what a user has
/// configured. `None`: the default is fine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// To the first output.
    pub first_output: Option<Duration>,
    /// Without any output.
    pub silence: Option<Duration>,
    /// For the whole call.
    pub total: Option<Duration>,
    /// Between the terminal result and the exit.
    pub linger: Option<Duration>,
}

// === impl Definition ===

impl Definition {
    /// The same provider with the words of `--agent CMD` in place of its program; its own arguments follow.
    /// `words` come from [`super::resolve::split_command`]; an empty list changes nothing.
    pub fn with_command(&self, words: &[String]) -> Self {
        let mut with = self.clone();
        if let Some((program, rest)) = words.split_first() {
            with.program = Some(program.clone());
            with.args = rest.iter().cloned().map(Arg::Text).chain(self.args.iter().cloned()).collect();
        }
        with
    }

    /// A conversation can be resumed with this CLI.
    pub fn can_resume(&self) -> bool {
        !self.flags.resume.is_empty()
    }

    /// After a verdict by rule `id` the stored conversation must not be resumed again.
    pub fn drops_conversation(&self, id: &str) -> bool {
        self.rules.iter().any(|rule| rule.drop_conversation && rule.id == id)
    }

    /// The price of a model: the provider's own, else the list's.
    pub fn price(&self, model: &str) -> Option<&Price> {
        self.prices.get(model).or_else(|| self.price_list.get(model))
    }

    /// US dollars by list price; `None` without a price for `model` or without token counts.
    pub fn estimate_usd(&self, model: &str, usage: &Usage) -> Option<f64> {
        let price = self.price(model)?;
        let (input, output) = (usage.input_tokens?, usage.output_tokens?);
        let cost = |tokens: u64, per_million: f64| tokens as f64 * per_million / 1e6;
        Some(
            cost(input, price.input)
                + cost(output, price.output)
                + cost(usage.cache_read_tokens.unwrap_or(0), price.cache_read.unwrap_or(price.input))
                + cost(usage.cache_write_tokens.unwrap_or(0), price.cache_write.unwrap_or(price.input)),
        )
    }
}

// === impl OutputFormat ===

impl OutputFormat {
    /// The format has a terminal event: without one the stream was cut, whatever it printed.
    pub fn has_terminal_event(self) -> bool {
        match self {
            OutputFormat::ClaudeStreamJson
            | OutputFormat::CodexJsonl
            | OutputFormat::GeminiStreamJson
            | OutputFormat::OpencodeJson
            | OutputFormat::ClineJson => true,
            OutputFormat::Text | OutputFormat::Rehearsal => false,
        }
    }
}

// === impl Arg ===

impl Arg {
    /// The places as they are written.
    const PLACES: [(&str, Place); 5] = [
        ("{model}", Place::Model),
        ("{resume}", Place::Resume),
        ("{max_turns}", Place::MaxTurns),
        ("{max_budget_usd}", Place::MaxBudgetUsd),
        ("{prompt}", Place::Prompt),
    ];
}

impl TryFrom<String> for Arg {
    type Error = String;

    fn try_from(written: String) -> Result<Self, String> {
        if let Some((_, place)) = Arg::PLACES.iter().find(|(place, _)| *place == written) {
            return Ok(Arg::Place(*place));
        }
        // A mistyped place must not reach the program as an argument.
        let inner = written.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        if inner.is_some_and(|name| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')) {
            let known = Arg::PLACES.map(|(written, _)| written).join(" ");
            return Err(format!("`{written}` is no known place; known are {known}"));
        }
        Ok(Arg::Text(written))
    }
}

// === impl Pattern ===

impl Pattern {
    /// Whether it can be used.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn check(&self) -> Result<(), String> {
        if !self.written.is_ascii() {
            return Err("the pattern must be ASCII; write `.+` where other characters stand".to_owned());
        }
        let mut parser = ParserBuilder::new().unicode(false).utf8(false).case_insensitive(true).build();
        parser.parse(&self.written).map(drop).map_err(|e| format!("not a regular expression: {e}"))
    }

    /// As it stands in the file.
    pub fn written(&self) -> &str {
        &self.written
    }

    fn regex(&self) -> Option<&Regex> {
        let compile = || {
            let built = RegexBuilder::new(&self.written)
                .unicode(false)
                .case_insensitive(true)
                .size_limit(1 << 20)
                .build();
            built
                .inspect_err(|error| tracing::warn!(pattern = self.written, %error, "a rule cannot be used"))
                .ok()
        };
        self.compiled.get_or_init(compile).as_ref()
    }

    /// Whether it is found in `text`.
    pub fn is_match(&self, text: &str) -> bool {
        self.regex().is_some_and(|regex| regex.is_match(text.as_bytes()))
    }

    /// Whether it can be compiled.
    #[cfg(test)]
    pub fn is_usable(&self) -> bool {
        self.regex().is_some()
    }

    /// Where it is found first.
    pub fn find_at(&self, text: &str) -> Option<std::ops::Range<usize>> {
        self.regex().and_then(|regex| regex.find(text.as_bytes())).map(|found| found.range())
    }

    /// Group 1 of the first match, else the whole match.
    pub fn find<'t>(&self, text: &'t str) -> Option<&'t str> {
        let captures = self.regex()?.captures(text.as_bytes())?;
        text.get(captures.get(1).or(captures.get(0))?.range())
    }
}

impl From<String> for Pattern {
    fn from(written: String) -> Self {
        Pattern { written, compiled: Arc::default() }
    }
}

// === impl Places ===

impl Places {
    /// Whether `place` is one of them.
    pub fn contains(&self, place: Where) -> bool {
        self.0.contains(&place)
    }
}

impl TryFrom<Vec<Where>> for Places {
    type Error = &'static str;

    fn try_from(places: Vec<Where>) -> Result<Self, Self::Error> {
        if places.is_empty() { Err("a rule looks in at least one place") } else { Ok(Places(places)) }
    }
}

// === impl NamePattern ===

impl NamePattern {
    /// `name` or `PREFIX*`.
    pub fn new(pattern: impl Into<String>) -> Self {
        NamePattern(pattern.into())
    }

    /// Whether `name` is meant.
    pub fn matches(&self, name: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == self.0,
        }
    }
}

// === impl VersionProbe ===

impl VersionProbe {
    /// Judges what the probe printed.
    pub fn read(&self, output: &str) -> VersionCheck {
        let version = self.pattern.find(output).and_then(Version::parse);
        match version {
            None => VersionCheck::Unreadable,
            Some(version) if self.min.is_some_and(|min| version < min) => VersionCheck::TooOld(version),
            Some(version) if self.below.is_some_and(|below| version >= below) => VersionCheck::Newer(version),
            Some(version) => VersionCheck::Fits(version),
        }
    }
}

// === impl Version ===

impl Version {
    /// Reads `2`, `2.1` or `2.1.332`; anything after the third number is ignored.
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = [0; 3];
        let mut parts = text.trim().splitn(3, '.');
        numbers[0] = parts.next()?.parse().ok()?;
        for number in numbers.iter_mut().skip(1) {
            let Some(part) = parts.next() else { break };
            let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            *number = part[..digits].parse().ok()?;
        }
        Some(Version(numbers))
    }
}

impl TryFrom<String> for Version {
    type Error = String;

    fn try_from(written: String) -> Result<Self, String> {
        Version::parse(&written).ok_or_else(|| format!("`{written}` is no version"))
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

// === impl OutcomeKind ===

impl OutcomeKind {
    /// How specific a cause is: of several that fit, the highest wins. Model over network, quota over status
    /// code, auth over overload.
    pub fn rank(self) -> u8 {
        match self {
            OutcomeKind::CapReached => 17,
            OutcomeKind::ModelUnavailable => 16,
            OutcomeKind::ContextOverflow => 15,
            OutcomeKind::Refused => 14,
            OutcomeKind::QuotaExhausted => 13,
            OutcomeKind::UsageLimited => 12,
            OutcomeKind::AuthFailed => 11,
            OutcomeKind::NotRunnable => 10,
            OutcomeKind::RateLimited => 9,
            OutcomeKind::Overloaded => 8,
            OutcomeKind::NetworkDown => 7,
            OutcomeKind::Truncated => 6,
            OutcomeKind::Empty => 5,
            OutcomeKind::Cancelled => 4,
            OutcomeKind::TimedOut => 3,
            OutcomeKind::SilentHang => 2,
            OutcomeKind::Crashed => 1,
            OutcomeKind::Unknown => 0,
        }
    }

    /// What the outcome usually applies to.
    pub fn scope(self) -> AccountScope {
        match self {
            OutcomeKind::RateLimited
            | OutcomeKind::UsageLimited
            | OutcomeKind::QuotaExhausted
            | OutcomeKind::Overloaded
            | OutcomeKind::AuthFailed
            | OutcomeKind::NetworkDown => AccountScope::Account,
            OutcomeKind::ModelUnavailable => AccountScope::Model,
            OutcomeKind::ContextOverflow
            | OutcomeKind::Refused
            | OutcomeKind::CapReached
            | OutcomeKind::Empty
            | OutcomeKind::Truncated => AccountScope::Request,
            OutcomeKind::SilentHang
            | OutcomeKind::TimedOut
            | OutcomeKind::Crashed
            | OutcomeKind::NotRunnable
            | OutcomeKind::Cancelled
            | OutcomeKind::Unknown => AccountScope::None,
        }
    }

    /// The outcome with its data. `until` is used by limits and quotas, `code` and `tail` by what has them.
    pub fn outcome(self, until: Option<jiff::Timestamp>, code: Option<i32>, tail: &str) -> Outcome {
        match self {
            OutcomeKind::Empty => Outcome::Empty,
            OutcomeKind::RateLimited => Outcome::RateLimited { until },
            OutcomeKind::UsageLimited => Outcome::UsageLimited { until },
            OutcomeKind::QuotaExhausted => Outcome::QuotaExhausted { until },
            OutcomeKind::Overloaded => Outcome::Overloaded,
            OutcomeKind::AuthFailed => Outcome::AuthFailed,
            OutcomeKind::NetworkDown => Outcome::NetworkDown,
            OutcomeKind::ContextOverflow => Outcome::ContextOverflow,
            OutcomeKind::ModelUnavailable => Outcome::ModelUnavailable,
            OutcomeKind::Refused => Outcome::Refused,
            OutcomeKind::CapReached => Outcome::CapReached,
            OutcomeKind::Truncated => Outcome::Truncated,
            OutcomeKind::SilentHang => Outcome::SilentHang,
            OutcomeKind::TimedOut => Outcome::TimedOut,
            OutcomeKind::Crashed => Outcome::Crashed { signal: None, code },
            OutcomeKind::NotRunnable => Outcome::NotRunnable,
            OutcomeKind::Cancelled => Outcome::Cancelled,
            OutcomeKind::Unknown => Outcome::Unknown { code, tail: tail.to_owned() },
        }
    }
}
