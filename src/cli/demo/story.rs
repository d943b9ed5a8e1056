//! What happened in the demo, counted from its events.

use jiff::Timestamp;

use crate::cli::format;
use crate::cli::output::{Output, Style};
use crate::domain::event::{Body, Event};
use crate::domain::state::{GateResult, millis_between};

/// What happened, counted.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Story {
    iterations: u64,
    calls: u64,
    /// Time spent waiting, milliseconds.
    waited_ms: u64,
    messages: u64,
    gates_failed: u64,
    gates_passed: u64,
    checkpoints: u64,
    cost_usd: f64,
    /// From the first event to the last, milliseconds.
    took_ms: u64,
}

// === impl Story ===

impl Story {
    pub(super) fn of(events: &[Event]) -> Self {
        let mut story = Story::default();
        let mut waits_since: Option<Timestamp> = None;
        for event in events {
            match &event.body {
                Body::IterationFinished { .. } => story.iterations += 1,
                Body::AttemptStarted { .. } => story.calls += 1,
                Body::AttemptFinished(attempt) => story.cost_usd += attempt.cost_usd.unwrap_or(0.0),
                Body::WaitStarted { .. } => waits_since = Some(event.time),
                Body::WaitEnded { .. } => {
                    story.waited_ms +=
                        waits_since.take().map_or(0, |since| millis_between(since, event.time));
                }
                Body::MessageDelivered { .. } => story.messages += 1,
                Body::GateFinished { result: GateResult::Passed, .. } => story.gates_passed += 1,
                Body::GateFinished { .. } => story.gates_failed += 1,
                Body::CheckpointCreated { .. } => story.checkpoints += 1,
                _ => {}
            }
        }
        if let (Some(first), Some(last)) = (events.first(), events.last()) {
            story.took_ms = millis_between(first.time, last.time);
        }
        story
    }

    pub(super) fn lines(&self, message: &str, output: &Output) -> Vec<String> {
        let heading = format!("What happened in {}:", format::short_duration(self.took_ms));
        let mut lines = vec![String::new(), output.styled(Style::Bold, &heading).into_owned()];
        let (iterations, calls) =
            (format::count(self.iterations, "iteration"), format::count(self.calls, "call"));
        lines.push(format!("  {iterations} of work, {calls} of the agent"));
        if self.waited_ms > 0 {
            let time = format::short_duration(self.waited_ms);
            lines.push(format!("  a usage limit: it waited {time} for the reset, and went on by itself"));
        }
        if self.messages > 0 {
            lines.push(format!("  somebody said “{}”: it was in the next prompt, once", message));
        }
        let failed = format::count(self.gates_failed, "time");
        if self.gates_passed > 0 {
            lines.push(format!("  the gate failed {failed}, then passed: only then did \"done\" count"));
        }
        let checkpoints = format::count(self.checkpoints, "checkpoint");
        lines.push(format!(
            "  {checkpoints} to go back to, {} spent, if it had been real",
            format::usd(self.cost_usd)
        ));
        lines
    }
}
