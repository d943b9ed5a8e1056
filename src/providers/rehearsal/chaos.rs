//! Seeded faults: the same seed, lane and call always give the same ones.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::script::{Cue, Failure, Step};
use crate::domain::outcome::Usage;
use crate::providers::definition::OutcomeKind;

/// Faults on top of a script.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chaos {
    seed: u64,
    /// Seconds before a call's steps: from, to.
    #[serde(default)]
    delay: [f64; 2],
    /// Relative weights by outcome name; `completed` plays the script as it is.
    weights: BTreeMap<String, u32>,
    /// Seconds that limits last: from, to.
    #[serde(default = "minute_to_hours")]
    limit: [f64; 2],
    /// Which part of the limits does not say when it ends: 0 none, 1 all.
    #[serde(default)]
    unstated: f64,
    /// US dollars that each call costs beside what its steps say: from, to.
    cost_usd: Option<[f64; 2]>,
}

// === impl Chaos ===

impl Chaos {
    pub(super) fn check(&self) -> Result<(), String> {
        let ranges = [
            ("delay", "in seconds", Some(self.delay)),
            ("limit", "in seconds", Some(self.limit)),
            ("cost_usd", "in US dollars", self.cost_usd),
        ];
        for (key, unit, range) in ranges {
            let Some([from, to]) = range else { continue };
            if !(0.0..=1e9).contains(&from) || !(from..=1e9).contains(&to) {
                return Err(format!("`chaos.{key}` must be [from, to] {unit}, from 0 upward"));
            }
        }
        if !(0.0..=1.0).contains(&self.unstated) {
            return Err("`chaos.unstated` must be from 0 to 1".to_owned());
        }
        if let Some(odd) = self.weights.keys().find(|name| kind(name).is_err()) {
            return Err(format!("`chaos.weights.{odd}` is no outcome"));
        }
        if self.weights.values().all(|weight| *weight == 0) {
            return Err("`chaos.weights` has no weight above 0".to_owned());
        }
        Ok(())
    }

    /// Puts a delay in front, and for a fault cuts the call short at a random step.
    pub(super) fn disturb(&self, cue: Cue, steps: &mut Vec<Step>) {
        // Numbers of different calls must give unrelated streams: mix before seeding (splitmix's increments).
        let mixed = self.seed
            ^ cue.call.wrapping_mul(0x9E37_79B9_7F4A_7C15)
            ^ u64::from(cue.lane).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mut rng = fastrand::Rng::with_seed(mixed);
        let delay = between(&mut rng, self.delay);
        if let Some(fault) = self.choose(&mut rng) {
            steps.truncate(rng.usize(0..=steps.len()));
            steps.push(match fault {
                OutcomeKind::SilentHang => Step::Hang,
                kind => {
                    let limit = matches!(kind, OutcomeKind::RateLimited | OutcomeKind::UsageLimited);
                    let after = limit.then(|| between(&mut rng, self.limit));
                    // Drawn only when it is asked for: scripts that do not know it draw as ever.
                    let after = after.filter(|_| self.unstated == 0.0 || rng.f64() >= self.unstated);
                    Step::Fail(Failure {
                        kind,
                        until: None,
                        after,
                        message: "a fault of the rehearsal".to_owned(),
                    })
                }
            });
        }
        if let Some(range) = self.cost_usd {
            // Before the fault: what a call that failed had cost is known as well.
            let usage = Usage { cost_usd: Some(draw(&mut rng, range)), ..Usage::default() };
            steps.insert(0, Step::Usage(usage));
        }
        if !delay.is_zero() {
            steps.insert(0, Step::Wait(delay));
        }
    }

    /// The fault of this call; `None` is `completed`.
    fn choose(&self, rng: &mut fastrand::Rng) -> Option<OutcomeKind> {
        let total: u64 = self.weights.values().map(|weight| u64::from(*weight)).sum();
        let mut left = rng.u64(0..total.max(1));
        for (name, weight) in &self.weights {
            match left.checked_sub(u64::from(*weight)) {
                Some(rest) => left = rest,
                None => return kind(name).unwrap_or(None),
            }
        }
        None
    }
}

/// The outcome of that name; `None` for `completed`.
fn kind(name: &str) -> Result<Option<OutcomeKind>, serde::de::value::Error> {
    use serde::de::IntoDeserializer;
    match name {
        "completed" => Ok(None),
        other => OutcomeKind::deserialize(other.into_deserializer()).map(Some),
    }
}

fn between(rng: &mut fastrand::Rng, range: [f64; 2]) -> Duration {
    Duration::try_from_secs_f64(draw(rng, range)).unwrap_or_default()
}

fn draw(rng: &mut fastrand::Rng, [from, to]: [f64; 2]) -> f64 {
    from + (to - from) * rng.f64()
}

fn minute_to_hours() -> [f64; 2] {
    [60.0, 18_000.0]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(keys: &str) -> Vec<Vec<Step>> {
        let text = format!("seed = 7\nweights = {{ completed = 1, rate_limited = 3 }}\n{keys}");
        let chaos: Chaos = toml::from_str(&text).unwrap();
        chaos.check().unwrap();
        let call = |call| {
            let mut steps = Vec::new();
            chaos.disturb(Cue { call, lane: 1, iteration: call }, &mut steps);
            steps
        };
        (1..400).map(call).collect()
    }

    fn limits(calls: &[Vec<Step>]) -> Vec<Option<Duration>> {
        let limit = |step: &Step| match step {
            Step::Fail(failure) => Some(failure.after),
            _ => None,
        };
        calls.iter().flatten().filter_map(limit).collect()
    }

    #[test]
    fn some_limits_do_not_say_when_they_end() {
        let all = limits(&drawn(""));
        assert!(all.len() > 200 && all.iter().all(Option::is_some));
        let some = limits(&drawn("unstated = 0.5"));
        let unstated = some.iter().filter(|after| after.is_none()).count();
        assert!((some.len() / 3..some.len() * 2 / 3).contains(&unstated), "{unstated} of {}", some.len());
        assert!(some.iter().zip(&all).all(|(some, all)| some.is_none() || some == all), "drawn anew");
        assert!(limits(&drawn("unstated = 1.0")).iter().all(Option::is_none));
    }

    #[test]
    fn calls_cost_what_is_drawn_and_nothing_else_changes() {
        let calls = drawn("cost_usd = [0.1, 0.2]");
        assert_eq!(limits(&calls), limits(&drawn("")));
        for steps in calls {
            let [Step::Usage(usage), ..] = &steps[..] else { panic!("{steps:?}") };
            assert!((0.1..0.2).contains(&usage.cost_usd.unwrap()), "before the fault: {steps:?}");
        }
    }

    #[test]
    fn odd_numbers_are_refused() {
        for odd in ["unstated = 1.5", "cost_usd = [0.2, 0.1]", "delay = [-1.0, 0.0]"] {
            let chaos: Chaos =
                toml::from_str(&format!("seed = 1\nweights = {{ empty = 1 }}\n{odd}")).unwrap();
            assert!(chaos.check().is_err(), "{odd}");
        }
    }
}
