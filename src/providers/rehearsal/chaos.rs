//! Seeded faults: the same seed, lane and call always give the same ones.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::script::{Cue, Failure, Step};
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
}

// === impl Chaos ===

impl Chaos {
    pub(super) fn check(&self) -> Result<(), String> {
        for (key, [from, to]) in [("delay", self.delay), ("limit", self.limit)] {
            if !(0.0..=1e9).contains(&from) || !(from..=1e9).contains(&to) {
                return Err(format!("`chaos.{key}` must be [from, to] in seconds, from 0 upward"));
            }
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
                OutcomeKind::SilentHang | OutcomeKind::TimedOut => Step::Hang,
                kind => {
                    let limit = matches!(kind, OutcomeKind::RateLimited | OutcomeKind::UsageLimited);
                    let after = limit.then(|| between(&mut rng, self.limit));
                    Step::Fail(Failure {
                        kind,
                        until: None,
                        after,
                        message: "a fault of the rehearsal".to_owned(),
                    })
                }
            });
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

fn between(rng: &mut fastrand::Rng, [from, to]: [f64; 2]) -> Duration {
    Duration::try_from_secs_f64(from + (to - from) * rng.f64()).unwrap_or_default()
}

fn minute_to_hours() -> [f64; 2] {
    [60.0, 18_000.0]
}
