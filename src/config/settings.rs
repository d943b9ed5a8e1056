//! The settings in force: checked, typed, complete. See config/default.toml for what each means to a user.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::domain::ledger::WindowLimits;
use crate::domain::money::MicroUsd;
use crate::domain::notification::Kind;

/// All settings. Made by [`load`](super::load()) alone, so each value keeps its rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// What a commit must survive. Needs a restart.
    pub durability: Durability,
    /// Which agent is called.
    pub provider: ProviderChoice,
    /// What the user set for single providers, by provider name.
    pub providers: BTreeMap<String, ProviderSettings>,
    /// The environment of agents.
    pub agent: AgentEnvironment,
    /// When the session ends, and what it does about failures.
    pub run: Run,
    /// When a single call is ended.
    pub limits: Limits,
    /// Pauses after failures.
    pub backoff: Backoff,
    /// Probing of limits that name no reset time.
    pub rate_limit: RateLimit,
    /// Outages of the network.
    pub network: Network,
    /// Iterations that change nothing.
    pub stagnation: Stagnation,
    /// What PAUSE does.
    pub pause: Pause,
    /// What STOP does.
    pub stop: Grace,
    /// Free space.
    pub disk: Disk,
    /// The project's own checks.
    pub gates: Gates,
    /// Money.
    pub budget: Budget,
    /// Who is told when the session needs a person.
    pub notify: Notify,
    /// Copies of the work after each iteration.
    pub checkpoint: Checkpoint,
    /// Rotation of the events file.
    pub journal: Rotation,
    /// Rotation of attempt logs.
    pub logs: Rotation,
    /// The spec's share of a prompt.
    pub spec: Spec,
    /// Restarts of actors.
    pub supervisor: Supervisor,
}

/// What a commit must survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// A power cut.
    Power,
    /// The end of our process.
    Process,
}

/// `[provider]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderChoice {
    /// The provider that is called first.
    pub name: String,
    /// The ones to fail over to, in order.
    pub fallback: Vec<String>,
    /// Model for providers that have none of their own; `None`: the provider's default.
    pub model: Option<String>,
}

/// `[providers.NAME]`
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ProviderSettings {
    /// Model for this provider.
    pub model: Option<String>,
    /// Program to run: an absolute path, or a name to look up in PATH.
    pub path: Option<PathBuf>,
    /// Arguments added to each call.
    pub args: Vec<String>,
    /// Variables set for its calls.
    pub env: BTreeMap<String, String>,
}

/// `[agent]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentEnvironment {
    /// Variables that agents get although they would be removed.
    pub env_keep: Vec<String>,
    /// Variables that agents do not get.
    pub env_drop: Vec<String>,
}

/// `[run]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Iterations of the whole session, all lanes together. At least 1.
    pub max_iterations: Option<u64>,
    /// Time of the whole session, without pauses.
    pub max_duration: Option<Duration>,
    /// Goes on when the goals are met.
    pub perpetual: bool,
    /// Waits for a person where one is needed, else exits with code 5.
    pub wait: bool,
    /// Failures in a row before it pauses with `retries_exhausted`.
    pub retries: u32,
    /// Failures in a row before the next provider is taken. At least 1.
    pub failover_after: u32,
    /// The first call after a restart goes on with the provider's last conversation.
    pub resume_conversation: bool,
}

/// `[limits]`, each for one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// From the start to the first byte of output.
    pub first_output: Option<Duration>,
    /// From one byte of output to the next.
    pub silence: Option<Duration>,
    /// From the start to the end.
    pub total: Option<Duration>,
    /// Bytes of one output line that are kept. 64 KiB to 1 GiB.
    pub line_bytes: usize,
    /// Resident bytes of the call's processes together.
    pub max_rss: Option<u64>,
    /// Tool calls of one call of the agent.
    pub tool_calls: Option<u64>,
    /// Ends a call that has made failed requests again by itself for this long.
    pub retrying: Option<Duration>,
}

/// `[backoff]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backoff {
    /// First pause, above zero.
    pub base: Duration,
    /// Longest pause, at least `base`.
    pub cap: Duration,
}

/// `[rate_limit]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimit {
    /// First probe after this, at least a second: never hot.
    pub probe_min: Duration,
    /// Longest time between probes, at least `probe_min`.
    pub probe_max: Duration,
}

/// `[network]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// Ends the session after an outage of this length.
    pub max_outage: Option<Duration>,
}

/// `[stagnation]`, in iterations without a changed tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stagnation {
    /// The prompt says so after this many.
    pub warn: Option<u32>,
    /// The session pauses after this many, at least `warn`.
    pub pause: Option<u32>,
}

/// `[pause]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    /// What happens to the call in flight.
    pub mode: PauseMode,
}

/// What PAUSE does to the call in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseMode {
    /// It may end.
    Finish,
    /// It is cut.
    Interrupt,
}

/// `[stop]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grace {
    /// Between TERM and KILL; zero: KILL at once.
    pub grace: Duration,
}

/// `[disk]`
#[derive(Debug, Clone, PartialEq)]
pub struct Disk {
    /// Bytes that must be free; 0: not looked at.
    pub min_free: u64,
    /// Times `min_free` that must be free before it goes on. At least 1.
    pub resume_factor: f64,
    /// Inodes that must be free; 0: not looked at.
    pub min_inodes: u64,
    /// Between two looks. At least 100 ms.
    pub interval: Duration,
}

/// `[gates]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gates {
    /// Look for the project's own checks when `commands` is empty.
    pub detect: bool,
    /// Time limit of detected gates; of the others too where they state none.
    pub timeout: Duration,
    /// Gates in the order in which they run; names are unique.
    pub commands: Vec<Gate>,
}

/// One check of the project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gate {
    /// Its name in events and prompts.
    pub name: String,
    /// What is run, in the lane's folder.
    pub command: GateCommand,
    /// Ends it after this long.
    pub timeout: Duration,
    /// Variables set for it.
    pub env: BTreeMap<String, String>,
}

/// What a gate runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateCommand {
    /// Program and arguments; at least the program is there.
    Argv(Vec<String>),
    /// A line for `sh -c`.
    Shell(String),
}

/// `[budget]`
#[derive(Debug, Clone, PartialEq)]
pub struct Budget {
    /// US dollars of the whole session; above zero.
    pub usd: Option<f64>,
    /// US dollars of one call; above zero.
    pub call_usd: Option<f64>,
    /// US dollars of all sessions of the project; above zero.
    pub project_usd: Option<f64>,
    /// US dollars of all projects of the host in a calendar day; above zero.
    pub day_usd: Option<f64>,
    /// US dollars of all projects of the host in a calendar month; above zero.
    pub month_usd: Option<f64>,
    /// US dollars counted for a call of unknown cost; zero is allowed.
    pub assume_usd_per_call: Option<f64>,
}

/// `[notify]`
#[derive(Clone, PartialEq, Eq)]
pub struct Notify {
    /// Where notifications are posted to. Often a secret itself.
    pub webhook: Option<String>,
    /// What the posts are signed with.
    pub secret: Option<String>,
    /// Program and arguments that get them on stdin.
    pub command: Vec<String>,
    /// They are shown on the desktop.
    pub desktop: bool,
    /// Which ones.
    pub kinds: Vec<Kind>,
    /// A wait of at least this is a long one.
    pub long_wait: Duration,
}

/// `[checkpoint]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Make them.
    pub enabled: bool,
    /// Newest ones kept in the project. At least 1.
    pub keep: usize,
}

/// `[journal]` and `[logs]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotation {
    /// Bytes of one file. At least 64 KiB.
    pub max_file: u64,
    /// Bytes of all files together, at least two files' worth.
    pub max_total: u64,
}

/// `[spec]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// Tokens that the spec may take; `spec.max_tokens`, or a quarter of the window.
    pub max_tokens: u64,
    /// The model's context window, in tokens.
    pub window_tokens: u64,
}

/// `[supervisor]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Supervisor {
    /// Restarts allowed within `window`.
    pub intensity: u32,
    /// See `intensity`.
    pub window: Duration,
}

// === impl Config ===

impl Config {
    /// The failover chain: the first provider, then the others, each once.
    pub fn provider_chain(&self) -> Vec<&str> {
        let mut chain = vec![self.provider.name.as_str()];
        for name in &self.provider.fallback {
            if !chain.contains(&name.as_str()) {
                chain.push(name);
            }
        }
        chain
    }

    /// The model to ask `provider` for; `None`: its own default. `provider.model` is for the first provider
    /// alone: a fallback of another maker would not know it.
    pub fn model_for(&self, provider: &str) -> Option<&str> {
        let own = self.providers.get(provider).and_then(|settings| settings.model.as_deref());
        let first = self.provider.model.as_deref().filter(|_| provider == self.provider.name);
        first.or(own)
    }
}

// === impl Notify ===

impl Notify {
    /// Somebody is told.
    pub fn is_on(&self) -> bool {
        (self.webhook.is_some() || !self.command.is_empty() || self.desktop) && !self.kinds.is_empty()
    }
}

impl fmt::Debug for Notify {
    /// Without the address and what it is signed with.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notify")
            .field("webhook", &self.webhook.is_some())
            .field("command", &self.command.first())
            .field("desktop", &self.desktop)
            .field("kinds", &self.kinds)
            .finish_non_exhaustive()
    }
}

// === impl Budget ===

impl Budget {
    /// Anything limits what is spent.
    pub fn is_limited(&self) -> bool {
        self.limits().into_iter().any(|(_, limit)| limit.is_some())
    }

    /// Each limit with its key, US dollars.
    pub fn limits(&self) -> [(&'static str, Option<f64>); 5] {
        [
            ("budget.usd", self.usd),
            ("budget.call_usd", self.call_usd),
            ("budget.project_usd", self.project_usd),
            ("budget.day_usd", self.day_usd),
            ("budget.month_usd", self.month_usd),
        ]
    }

    /// The limits that go beyond a session.
    pub fn windows(&self) -> WindowLimits {
        let micros = |usd: Option<f64>| usd.and_then(MicroUsd::from_usd);
        let (project, day, month) = (self.project_usd, self.day_usd, self.month_usd);
        WindowLimits { project: micros(project), day: micros(day), month: micros(month) }
    }
}

// === impl ProviderSettings ===

impl fmt::Debug for ProviderSettings {
    /// Without the values of variables, which are often keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderSettings")
            .field("model", &self.model)
            .field("path", &self.path)
            .field("args", &self.args.len())
            .field("env", &self.env.keys())
            .finish()
    }
}
