//! What is read before the first step: the spec, a count of source files, the settings. Blocking.

use std::sync::PoisonError;

use super::context::ProjectCtx;
use crate::config::{Config, Override, PauseMode};
use crate::domain::backoff::Backoff;
use crate::domain::complexity::Complexity;
use crate::domain::event::{Body, Mode};
use crate::domain::money::MicroUsd;
use crate::domain::session::{Begin, Rules};
use crate::domain::spec::{Spec, SpecWarning};
use crate::domain::state::Limits;
use crate::intake::gates::gates_of;
use crate::intake::survey::{Depth, survey as walk};
use crate::providers::account::{self, Credential};

/// What was read.
#[derive(Debug)]
pub struct Survey {
    /// The settings that the rules look at.
    pub rules: Rules,
    /// How to begin; none: the session is this program's own, and only its actor was restarted.
    pub begin: Option<Box<Begin>>,
}

/// Reads all of it. `begun`: the session is this program's own already.
pub fn survey(ctx: &ProjectCtx, begun: bool) -> Survey {
    let config = ctx.config();
    let rules = rules(ctx, &config);
    if begun {
        return Survey { rules, begin: None };
    }
    let mut found = ctx.found.lock().unwrap_or_else(PoisonError::into_inner).clone();
    // What was asked for wins over what the stored session had; a session that goes on keeps its own spec.
    let stored = ctx
        .state()
        .session
        .as_ref()
        .filter(|s| !s.ended() && !ctx.request.fresh)
        .and_then(|s| s.spec.clone());
    let path = ctx.request.spec.as_ref().map(|p| p.display().to_string()).or(stored);
    let (spec, _) = ctx.spec.lock().unwrap_or_else(PoisonError::into_inner).read(path.as_deref());
    let spec = spec.map(|file| file.spec);
    if let (Some(spec), Some(path)) = (&spec, &path) {
        found.extend(spec.warnings.iter().filter_map(|w| warning(w, path)));
    }
    let usable = spec.as_ref().filter(|spec| !spec.is_empty());
    let seen = walk(&ctx.paths.root, Depth::Class);
    ctx.set_facts(seen.facts());
    let complexity = Complexity::of(usable.and_then(Spec::size), seen.source_files);
    let begin = Begin {
        fresh: ctx.request.fresh,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        project: ctx.paths.root.display().to_string(),
        mode: if usable.is_some() { Mode::Spec } else { Mode::Analysis },
        complexity: complexity.name().to_owned(),
        spec: path,
        limits: limits(&config),
        chain: chain(ctx, &config),
        overrides: ctx.request.overrides.clone(),
        agent: ctx.request.agent.clone().unwrap_or_default(),
        found,
    };
    Survey { rules, begin: Some(Box::new(begin)) }
}

/// The provider chain, primary first.
pub fn chain(ctx: &ProjectCtx, config: &Config) -> Vec<String> {
    if ctx.request.agent.is_some() {
        let fallbacks = config.provider.fallback.iter().filter(|name| *name != "command").cloned();
        return std::iter::once("command".to_owned()).chain(fallbacks).collect();
    }
    config.provider_chain().into_iter().map(str::to_owned).collect()
}

/// What a session may use, by the settings.
pub fn limits(config: &Config) -> Limits {
    Limits {
        max_iterations: config.run.max_iterations,
        max_duration_ms: config.run.max_duration.map(|d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX)),
        budget_usd: config.budget.usd,
        perpetual: config.run.perpetual,
    }
}

/// A setting of the command line as the state keeps it.
pub fn stored(typed: Override) -> crate::domain::state::Override {
    crate::domain::state::Override { key: typed.key, value: typed.value, option: typed.option }
}

/// The settings that the rules look at.
pub fn rules(ctx: &ProjectCtx, config: &Config) -> Rules {
    Rules {
        retries: config.run.retries,
        failover_after: config.run.failover_after,
        backoff: Backoff::new(config.backoff.base, config.backoff.cap),
        probe: Backoff {
            base: config.rate_limit.probe_min,
            cap: config.rate_limit.probe_max,
            floor: std::time::Duration::from_secs(5).min(config.rate_limit.probe_min),
        },
        stagnation_warn: config.stagnation.warn.unwrap_or(0),
        stagnation_pause: config.stagnation.pause.unwrap_or(0),
        pause_interrupts: config.pause.mode == PauseMode::Interrupt,
        stop_grace: config.stop.grace,
        max_outage: config.network.max_outage,
        assume_usd: config.budget.assume_usd_per_call,
        call_usd: config.budget.call_usd.and_then(MicroUsd::from_usd),
        capped: capped(ctx, config),
        windows: config.budget.windows(),
        resume_conversation: config.run.resume_conversation,
        credentials: credentials(ctx, config),
        gates: gates_of(&config.gates, &ctx.paths.root).into_iter().map(|gate| gate.name).collect(),
        wait: config.run.wait,
    }
}

/// Providers of the chain whose CLI keeps a limit of cost itself.
fn capped(ctx: &ProjectCtx, config: &Config) -> std::collections::BTreeSet<String> {
    let keeps = |name: &String| ctx.providers.definition(name).is_some_and(|known| known.caps_cost());
    chain(ctx, config).into_iter().filter(keeps).collect()
}

/// What each provider's credential is, and how to renew it.
fn credentials(ctx: &ProjectCtx, config: &Config) -> std::collections::BTreeMap<String, String> {
    let told = |name: &str| {
        let definition = ctx.providers.definition(name)?;
        let credential = account::credential(&definition, &ctx.provider_env(config, name));
        let login = definition.login.clone()?;
        let told = match credential {
            Some(Credential::Variable(name)) => format!(
                "{name} was used, and a new value of it counts from the next `longhaul run` on; {login}"
            ),
            Some(Credential::File(path)) => {
                format!("{} was used; {login}; it goes on by itself when that file changes", path.display())
            }
            None => format!("none was found; {login}"),
        };
        Some((name.to_owned(), told))
    };
    config.provider_chain().into_iter().filter_map(told).collect()
}

/// The event that tells of something odd in the spec.
pub fn warning(warning: &SpecWarning, path: &str) -> Option<Body> {
    let path = path.to_owned();
    Some(match warning {
        SpecWarning::Empty => Body::SpecEmpty { path },
        SpecWarning::Invalid { line, column, message } => {
            Body::SpecInvalid { path, line: *line, column: *column, message: message.clone() }
        }
        SpecWarning::Truncated { from_chars, to_chars } => {
            Body::SpecTruncated { from_chars: *from_chars, to_chars: *to_chars }
        }
        SpecWarning::Dangerous { line_number, line } => {
            Body::SpecDangerous { line: *line_number, text: line.clone() }
        }
    })
}
