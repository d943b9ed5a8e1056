//! Raw → checked: each rule stands here once, and its message names key, value and rule.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use super::error::{Origin, Problem};
use super::keys::{RawConfig, RawGate, RawNotify, RawProviderTable, in_our_words};
use super::load::Settings;
use super::scalar::{Count, Limit, Number, Size, Time};
use super::secret;
use super::settings::*;
use crate::domain::notification::Kind;

/// Longest name of a provider or gate, in bytes: it stands in events and on screens.
const LONGEST_NAME: usize = 64;

/// Turns merged settings into typed ones. `project` is the project's file, for the order of layers.
pub(super) fn check(settings: &Settings, project: Option<&Path>) -> Result<Config, Vec<Problem>> {
    let raw = RawConfig::deserialize(settings.to_table()).map_err(|error| {
        vec![Problem { origin: Origin::Default, message: in_our_words(error.message()), hint: None }]
    })?;
    let mut check = Check { settings, problems: Vec::new() };
    let config = build(raw, &mut check, project).map_err(|missing| vec![missing])?;
    rules(&config, &mut check);
    if check.problems.is_empty() { Ok(config) } else { Err(check.problems) }
}

struct Check<'a> {
    settings: &'a Settings,
    problems: Vec<Problem>,
}

/// The value of a key that has a default.
macro_rules! need {
    ($raw:ident . $section:ident . $field:ident) => {
        $raw.$section.$field.ok_or_else(|| missing(concat!(stringify!($section), ".", stringify!($field))))?
    };
}

fn missing(key: &str) -> Problem {
    Problem { origin: Origin::Default, message: format!("`{key}` has no default"), hint: None }
}

fn build(raw: RawConfig, check: &mut Check<'_>, project: Option<&Path>) -> Result<Config, Problem> {
    let window_tokens = need!(raw.spec.window_tokens).0;
    let gate_timeout = need!(raw.gates.timeout).0;
    let name = need!(raw.provider.name);
    let model = Some(need!(raw.provider.model)).filter(|model| !model.is_empty());
    let model = model.filter(|_| check.model_is_for(&name, project));
    Ok(Config {
        durability: raw.durability.ok_or_else(|| missing("durability"))?,
        provider: ProviderChoice { name, fallback: need!(raw.provider.fallback), model },
        providers: raw.providers.into_iter().map(|(name, table)| (name, provider(table))).collect(),
        agent: AgentEnvironment { env_keep: need!(raw.agent.env_keep), env_drop: need!(raw.agent.env_drop) },
        run: Run {
            max_iterations: count_limit(need!(raw.run.max_iterations)),
            max_duration: time_limit(need!(raw.run.max_duration)),
            perpetual: need!(raw.run.perpetual),
            wait: need!(raw.run.wait),
            retries: check.small("run.retries", need!(raw.run.retries), 0),
            failover_after: check.small("run.failover_after", need!(raw.run.failover_after), 1),
            resume_conversation: need!(raw.run.resume_conversation),
        },
        limits: Limits {
            first_output: time_limit(need!(raw.limits.first_output)),
            silence: time_limit(need!(raw.limits.silence)),
            total: time_limit(need!(raw.limits.total)),
            line_bytes: usize::try_from(need!(raw.limits.line_bytes).0).unwrap_or(usize::MAX),
            max_rss: need!(raw.limits.max_rss).0.map(|size| size.0),
            tool_calls: count_limit(need!(raw.limits.tool_calls)),
            retrying: time_limit(need!(raw.limits.retrying)),
        },
        backoff: Backoff { base: need!(raw.backoff.base).0, cap: need!(raw.backoff.cap).0 },
        rate_limit: RateLimit {
            probe_min: need!(raw.rate_limit.probe_min).0,
            probe_max: need!(raw.rate_limit.probe_max).0,
        },
        network: Network { max_outage: time_limit(need!(raw.network.max_outage)) },
        stagnation: Stagnation {
            warn: check.small_limit("stagnation.warn", need!(raw.stagnation.warn)),
            pause: check.small_limit("stagnation.pause", need!(raw.stagnation.pause)),
        },
        pause: Pause { mode: need!(raw.pause.mode) },
        stop: Grace { grace: need!(raw.stop.grace).0 },
        disk: Disk {
            min_free: need!(raw.disk.min_free).0,
            resume_factor: need!(raw.disk.resume_factor).0,
            min_inodes: need!(raw.disk.min_inodes).0,
            interval: need!(raw.disk.interval).0,
        },
        gates: Gates {
            detect: need!(raw.gates.detect),
            timeout: gate_timeout,
            commands: check.gates(need!(raw.gates.commands), gate_timeout),
        },
        budget: Budget {
            usd: number_limit(need!(raw.budget.usd)),
            call_usd: number_limit(need!(raw.budget.call_usd)),
            project_usd: number_limit(need!(raw.budget.project_usd)),
            day_usd: number_limit(need!(raw.budget.day_usd)),
            month_usd: number_limit(need!(raw.budget.month_usd)),
            assume_usd_per_call: number_limit(need!(raw.budget.assume_usd_per_call)),
        },
        notify: notify(raw.notify, check)?,
        checkpoint: Checkpoint {
            enabled: need!(raw.checkpoint.enabled),
            keep: check.small("checkpoint.keep", need!(raw.checkpoint.keep), 1) as usize,
        },
        journal: rotation(need!(raw.journal.max_file), need!(raw.journal.max_total)),
        logs: rotation(need!(raw.logs.max_file), need!(raw.logs.max_total)),
        spec: Spec {
            max_tokens: count_limit(need!(raw.spec.max_tokens)).unwrap_or(window_tokens / 4),
            window_tokens,
        },
        supervisor: Supervisor {
            intensity: check.small("supervisor.intensity", need!(raw.supervisor.intensity), 0),
            window: need!(raw.supervisor.window).0,
        },
    })
}

/// What must hold between values, and the ranges that a type does not give.
fn rules(config: &Config, check: &mut Check<'_>) {
    check.name("provider.name", &config.provider.name);
    for name in &config.provider.fallback {
        check.name("provider.fallback", name);
    }
    for (name, provider) in &config.providers {
        let path = provider.path.as_deref();
        let at = format!("providers.{name}.path");
        check.that(path.is_none_or(|p| !p.as_os_str().is_empty()), &at, "must not be empty");
        check.that(path.is_none_or(|p| !p.starts_with("~")), &at, "must be written out, without `~`");
        for variable in provider.env.keys() {
            check.variable(&format!("providers.{name}.env.{variable}"), variable);
        }
    }
    for (key, names) in
        [("agent.env_keep", &config.agent.env_keep), ("agent.env_drop", &config.agent.env_drop)]
    {
        names.iter().for_each(|name| check.variable(key, name));
    }

    check.between("limits.line_bytes", config.limits.line_bytes as u64, 64 << 10, 1 << 30, "64KiB to 1GiB");
    check.that(
        config.limits.max_rss.is_none_or(|rss| rss >= 16 << 20),
        "limits.max_rss",
        "must be at least 16MiB",
    );

    check.that(!config.backoff.base.is_zero(), "backoff.base", "must be more than 0");
    check.that(config.backoff.cap >= config.backoff.base, "backoff.cap", "must be at least `backoff.base`");
    let second = Duration::from_secs(1);
    check.that(config.rate_limit.probe_min >= second, "rate_limit.probe_min", "must be at least 1s");
    check.that(
        config.rate_limit.probe_max >= config.rate_limit.probe_min,
        "rate_limit.probe_max",
        "must be at least `rate_limit.probe_min`",
    );
    if let (Some(warn), Some(pause)) = (config.stagnation.warn, config.stagnation.pause) {
        check.that(pause >= warn, "stagnation.pause", "must be at least `stagnation.warn`");
    }
    let minutes = |n: u64| Duration::from_secs(60 * n);
    check.that(config.stop.grace <= minutes(10), "stop.grace", "must be at most 10m");

    check.that(
        (1.0..=100.0).contains(&config.disk.resume_factor),
        "disk.resume_factor",
        "must be from 1 to 100",
    );
    check.that(config.disk.interval >= Duration::from_millis(100), "disk.interval", "must be at least 100ms");

    check.that(!config.gates.timeout.is_zero(), "gates.timeout", "must be more than 0");
    for (key, limit) in config.budget.limits() {
        check.that(limit.is_none_or(|usd| usd > 0.0), key, "must be more than 0");
    }
    check.that(
        config.budget.assume_usd_per_call.is_none_or(|usd| usd >= 0.0),
        "budget.assume_usd_per_call",
        "must be at least 0",
    );

    for (section, rotation) in [("journal", &config.journal), ("logs", &config.logs)] {
        let (file, total) = (format!("{section}.max_file"), format!("{section}.max_total"));
        check.that(rotation.max_file >= 64 << 10, &file, "must be at least 64KiB");
        let two_fit = rotation.max_total / 2 >= rotation.max_file;
        check.that(two_fit, &total, &format!("must be at least twice `{file}`"));
    }
    check.between("spec.window_tokens", config.spec.window_tokens, 1000, 100_000_000, "1000 to 100000000");
    check.that(
        (100..=config.spec.window_tokens).contains(&config.spec.max_tokens),
        "spec.max_tokens",
        "must be at least 100 and at most `spec.window_tokens`",
    );
    check.that(config.supervisor.window >= second, "supervisor.window", "must be at least 1s");
}

fn notify(raw: RawNotify, check: &mut Check<'_>) -> Result<Notify, Problem> {
    let text = |value: Option<String>, key| value.ok_or_else(|| missing(key));
    let filled = |text: String| Some(text).filter(|text| !text.is_empty());
    let webhook = filled(text(raw.webhook, "notify.webhook")?);
    let is_address = |text: &String| {
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        rest.is_some_and(|rest| {
            !rest.is_empty() && !rest.starts_with('/') && !rest.contains(char::is_whitespace)
        })
    };
    check.that(
        webhook.as_ref().is_none_or(is_address),
        "notify.webhook",
        "must be of the form https://HOST/...",
    );
    let command = text(raw.command, "notify.command")?;
    let words = shlex::split(&command);
    check.that(words.is_some(), "notify.command", "must be words; a quote in it is not closed");
    let names = raw.events.ok_or_else(|| missing("notify.events"))?;
    let known = Kind::ALL.map(Kind::name).join(", ");
    let kinds: Vec<Kind> = names.iter().filter_map(|name| Kind::named(name)).collect();
    check.that(kinds.len() == names.len(), "notify.events", &format!("must be some of: {known}"));
    Ok(Notify {
        webhook,
        secret: filled(text(raw.webhook_secret, "notify.webhook_secret")?),
        command: words.unwrap_or_default(),
        desktop: raw.desktop.ok_or_else(|| missing("notify.desktop"))?,
        kinds,
        long_wait: raw.long_wait.ok_or_else(|| missing("notify.long_wait"))?.0,
    })
}

fn provider(table: RawProviderTable) -> ProviderSettings {
    let RawProviderTable { model, path, args, env } = table;
    ProviderSettings { model: model.filter(|model| !model.is_empty()), path, args, env }
}

fn rotation(max_file: Size, max_total: Size) -> Rotation {
    Rotation { max_file: max_file.0, max_total: max_total.0 }
}

fn time_limit(limit: Limit<Time>) -> Option<Duration> {
    limit.0.map(|time| time.0)
}

fn count_limit(limit: Limit<Count>) -> Option<u64> {
    limit.0.map(|count| count.0)
}

fn number_limit(limit: Limit<Number>) -> Option<f64> {
    limit.0.map(|number| number.0)
}

// === impl Check ===

impl Check<'_> {
    /// Notes that the value of `key` breaks `rule` unless `holds`.
    fn that(&mut self, holds: bool, key: &str, rule: &str) {
        if holds {
            return;
        }
        let setting = self.settings.get(key);
        let value = setting.map(|setting| secret::masked(key, &setting.value));
        let value = value.map_or_else(String::new, |value| format!(", not {value}"));
        let origin = setting.map_or(Origin::Default, |setting| setting.origin.clone());
        self.problems.push(Problem { origin, message: format!("`{key}` {rule}{value}"), hint: None });
    }

    fn between(&mut self, key: &str, value: u64, low: u64, high: u64, words: &str) {
        self.that((low..=high).contains(&value), key, &format!("must be from {words}"));
    }

    /// A count that fits 31 bits, so that arithmetic on it cannot overflow.
    fn small(&mut self, key: &str, count: Count, low: u32) -> u32 {
        let high = u32::MAX / 2;
        let value = u32::try_from(count.0).unwrap_or(u32::MAX);
        self.that(
            (low..=high).contains(&value),
            key,
            &format!("must be a whole number from {low} to {high}"),
        );
        value
    }

    fn small_limit(&mut self, key: &str, limit: Limit<Count>) -> Option<u32> {
        limit.0.map(|count| self.small(key, count, 1))
    }

    fn name(&mut self, key: &str, name: &str) {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let good = !name.is_empty() && name.len() <= LONGEST_NAME && name.chars().all(plain);
        self.that(good, key, "must be a name of letters, digits, `-` and `_`, at most 64 of them");
    }

    fn variable(&mut self, key: &str, name: &str) {
        let good = !name.is_empty() && !name.contains(['=', '\0']);
        self.that(good, key, "must name environment variables: not empty, without `=` and NUL");
    }

    /// Whether `provider.model` was meant for the provider that is now first. It was not when a later layer
    /// chose another provider, and it gives way to a model that a later or the same layer states for this one.
    fn model_is_for(&self, provider: &str, project: Option<&Path>) -> bool {
        let rank = |key: &str| self.settings.get(key).map(|setting| setting.origin.rank(project));
        let model = rank("provider.model");
        rank("provider.name") <= model && rank(&format!("providers.{provider}.model")) < model
    }

    fn gates(&mut self, raw: Vec<RawGate>, timeout: Duration) -> Vec<Gate> {
        const KEY: &str = "gates.commands";
        let mut names = BTreeSet::new();
        let mut gates = Vec::new();
        for RawGate { name, run, shell, timeout: own, env } in raw {
            let shown = name.chars().take(LONGEST_NAME).collect::<String>();
            let mut that = |holds: bool, rule: &str| {
                self.that_gate(holds, KEY, &shown, rule);
                holds
            };
            let named =
                !name.trim().is_empty() && name.len() <= LONGEST_NAME && !name.contains(char::is_control);
            that(named, "needs a name of at most 64 bytes, without control characters");
            that(names.insert(name.clone()), "is there twice: names must differ");
            that(own.is_none_or(|own| !own.0.is_zero()), "needs a timeout of more than 0");
            let proper = env.keys().all(|name| !name.is_empty() && !name.contains(['=', '\0']));
            that(proper, "names an environment variable that is empty or has `=` or NUL");
            let command = match (run, shell) {
                (Some(line), None) => {
                    shlex::split(&line).filter(|words| !words.is_empty()).map(GateCommand::Argv)
                }
                (None, Some(line)) => Some(line).filter(|l| !l.trim().is_empty()).map(GateCommand::Shell),
                (None, None) | (Some(_), Some(_)) => {
                    that(false, "needs either `run` or `shell`");
                    continue;
                }
            };
            if !that(command.is_some(), "has an empty command, or one with an open quote") {
                continue;
            }
            gates.extend(command.map(|command| Gate {
                name,
                command,
                timeout: own.map_or(timeout, |own| own.0),
                env,
            }));
        }
        gates
    }

    fn that_gate(&mut self, holds: bool, key: &str, gate: &str, rule: &str) {
        if !holds {
            let origin = self.settings.get(key).map_or(Origin::Default, |setting| setting.origin.clone());
            let message = format!("gate {gate:?} of `{key}` {rule}");
            self.problems.push(Problem { origin, message, hint: None });
        }
    }
}
