//! What an event says, on one line.

use jiff::tz::TimeZone;

use super::names::{gate, phase, reason, wait};
use crate::cli::format::{between, count, one_line, short_duration, time, usd};
use crate::domain::claim::DONE;
use crate::domain::event::{AttemptFinished, Body, Event, Mode, SessionStarted};
use crate::domain::ledger::Window;
use crate::domain::outcome::{Exit, Outcome};
use crate::domain::state::{GateResult, Limits, Phase};

/// Most characters of text from outside: answers, reasons, messages.
const QUOTED: usize = 160;

/// Most characters of a line, whatever is in it.
const LINE: usize = 500;

/// The event in words, on one line. Times in it are shown in `zone`. Text from outside is clipped, and cannot command a
/// terminal.
pub fn words(event: &Event, zone: &TimeZone) -> String {
    one_line(&say(event, zone), LINE)
}

fn say(event: &Event, zone: &TimeZone) -> String {
    let provider = event.provider.as_deref().unwrap_or("the agent");
    let at = |until| time(until, zone, event.time);
    let number = event.iteration.unwrap_or(0);
    match &event.body {
        Body::SessionStarted(started) => session_started(started),
        Body::SessionResumed { from, reason: why, chain, .. } => {
            let why = why.map_or_else(String::new, |why| format!(": {}", reason(why)));
            format!("the session goes on (was {}{why}) with {}", phase(*from), names(chain))
        }
        Body::SessionCrashed { found } => {
            format!("the last supervisor was cut off while the session was {}", phase(*found))
        }
        Body::SessionPaused { reason: why, detail, in_flight } => {
            let later = if *in_flight { ", once the call in flight is over" } else { "" };
            format!("paused{later}: {}{}", reason(*why), after(detail))
        }
        Body::SessionContinued { reason: why } => format!("goes on; it was paused: {}", reason(*why)),
        Body::SessionStopping { reason: why, detail, now } => {
            let how = if *now { "stopping at once" } else { "stopping" };
            format!("{how}: {}{}", reason(*why), after(detail))
        }
        Body::SessionFinished { state, reason: why, detail, iterations, spent_usd } => {
            let spent = if *spent_usd > 0.0 { format!(", {}", usd(*spent_usd)) } else { String::new() };
            let done = count(*iterations, "iteration");
            format!("{}: {} ({done}{spent}){}", phase(*state), reason(*why), after(detail))
        }
        Body::IterationStarted {} => format!("iteration {number}"),
        Body::IterationFinished { changed, duration_ms, .. } => {
            let changed = if *changed { "" } else { "; no file changed" };
            format!("iteration {number} is done, {}{changed}", short_duration(*duration_ms))
        }
        Body::AttemptStarted { model, .. } => {
            let model =
                model.as_ref().map_or_else(String::new, |model| format!(" ({})", one_line(model, 60)));
            let again = event.attempt.filter(|attempt| *attempt > 1);
            let again = again.map_or_else(String::new, |attempt| format!(", attempt {attempt}"));
            format!("{provider}{model} works{again}")
        }
        Body::AttemptFinished(attempt) => attempt_finished(attempt, provider, &at),
        Body::WaitStarted { until, why, detail } => {
            let why = if detail.is_empty() { wait(*why).to_owned() } else { one_line(detail, QUOTED) };
            format!("waits until {} ({}): {why}", at(*until), between(event.time, *until))
        }
        Body::WaitEnded { .. } => "the wait is over".to_owned(),
        Body::GateFinished { name, result, exit, duration_ms, tail, reused, .. } => {
            let time = if *reused { "same files as before".to_owned() } else { short_duration(*duration_ms) };
            let why = if *result == GateResult::Passed { String::new() } else { gate_failure(*exit, tail) };
            format!("gate {} {}, {time}{why}", one_line(name, 60), gate(*result))
        }
        Body::GateTimeout { name, after_ms } => {
            format!(
                "gate {} took longer than {} and was ended",
                one_line(name, 60),
                short_duration(*after_ms)
            )
        }
        Body::CheckpointCreated { number: 0, .. } => "checkpoint of the start".to_owned(),
        Body::CheckpointCreated { number, .. } => format!("checkpoint {number}"),
        Body::MessageQueued { text, .. } => format!("a person says: {}", one_line(text, QUOTED)),
        Body::MessageDelivered { .. } => format!("the message has reached {provider}"),
        Body::ProviderSwitched { from, to } => format!("provider is now {to}, was {from}"),
        Body::Failover { from, to, why } => {
            format!("goes on with {to} instead of {from}: {}", one_line(why, QUOTED))
        }
        Body::CoolDown { account, until, why } => {
            let until = until
                .map_or_else(|| "until a person helps".to_owned(), |until| format!("until {}", at(until)));
            format!("{account} is left alone {until}: {}", why.replace('_', " "))
        }
        Body::ConfigChanged { key, old, new, live } => {
            let later = if *live { "" } else { ", after a restart" };
            let [old, new] = [old, new].map(|value| one_line(&value.to_string(), 60));
            format!("setting {key} is now {new}, was {old}{later}")
        }
        Body::ConfigInvalid { message } => {
            format!("the settings cannot be used, the old ones stay: {}", one_line(message, QUOTED))
        }
        Body::LimitsChanged { limits: new, .. } => format!("limits are now {}", limits(new)),
        Body::CapabilityDegraded { capability, reason, .. } => {
            format!("goes on without {}: {}", one_line(capability, 60), one_line(reason, QUOTED))
        }
        Body::StateCorrupt { why, kept_as } => {
            let kept = kept_as
                .as_ref()
                .map_or_else(String::new, |path| format!("; kept as {}", one_line(path, QUOTED)));
            format!("the store was damaged: {}{kept}", one_line(why, QUOTED))
        }
        Body::StateRecovered { from, last_seq, lag } => {
            format!("state was rebuilt from {from}, up to event {last_seq}{}", after(lag))
        }
        Body::StateRestored { file } => {
            format!("{} had been deleted, and was put back", one_line(file, QUOTED))
        }
        Body::Stagnation { iterations } => format!("no file changed for {}", count(*iterations, "iteration")),
        Body::CompletionClaimed { summary, .. } => {
            format!("the agent says that all is done{}", after(summary))
        }
        Body::CompletionVerified { unverified: true, .. } => {
            "that counts, unverified: there is no gate".to_owned()
        }
        Body::CompletionVerified { gates, .. } => format!("that holds: {} passed", names(gates)),
        Body::CompletionRejected { failed } => format!("that does not hold: {} did not pass", names(failed)),
        Body::BudgetReserved { usd: amount, spent_usd, limit_usd, window, .. } => {
            let (spent, limit, of) = (usd(*spent_usd), usd(*limit_usd), window.name());
            format!("{} reserved, {spent} of {limit} spent in this {of}", usd(*amount))
        }
        Body::BudgetExceeded {
            limit_usd, spent_usd, overshoot_usd, window, reserved_usd, next_usd, ..
        } => {
            let over = if *overshoot_usd > 0.0 {
                format!(", {} over it", usd(*overshoot_usd))
            } else {
                String::new()
            };
            let held = if *reserved_usd > 0.0 {
                format!(", {} set aside for calls in flight", usd(*reserved_usd))
            } else {
                String::new()
            };
            let (limit, spent) = (usd(*limit_usd), usd(*spent_usd));
            match window {
                Window::Call => format!("a call may cost {limit}, and {} is expected", usd(*next_usd)),
                _ => {
                    format!("the {}'s budget of {limit} is used up: {spent} spent{held}{over}", window.name())
                }
            }
        }
        Body::DiskLow { path, limit, .. } => {
            format!("the disk is nearly full at {}: {}", one_line(path, QUOTED), one_line(limit, QUOTED))
        }
        Body::DiskRecovered { path, free_bytes } => {
            let free = crate::cli::format::bytes(*free_bytes);
            format!("there is room again at {}: {free}", one_line(path, QUOTED))
        }
        Body::SpecEmpty { path } => {
            format!("{} says nothing: looks for work in the code instead", one_line(path, QUOTED))
        }
        Body::SpecInvalid { path, line, column, message } => {
            let (path, message) = (one_line(path, QUOTED), one_line(message, QUOTED));
            format!("{path}:{line}:{column}: {message}; it is used as plain text")
        }
        Body::SpecTruncated { from_chars, to_chars } => {
            format!("the spec is too long for the prompt: {to_chars} of {from_chars} characters fit")
        }
        Body::SpecDangerous { line, text } => {
            format!("line {line} of the spec has a command that destroys things: {}", one_line(text, QUOTED))
        }
        Body::SpecChanged { path } => format!("{} has changed", one_line(path, QUOTED)),
        Body::ActorRestarted { actor, cause, restarts } => {
            format!("{actor} died and was started again ({restarts}): {}", one_line(cause, QUOTED))
        }
        Body::OrphanEnded { pid, command } => {
            format!("process {pid} had been left behind and was ended: {}", one_line(command, QUOTED))
        }
        Body::Notice { code, message } if message.trim().is_empty() => code.replace('_', " "),
        Body::Notice { message, .. } => one_line(message, LINE),
        Body::Snapshot(state) => format!("state up to event {}", state.seq),
        Body::Unknown => "something that a later version of Longhaul knows".to_owned(),
    }
}

fn session_started(started: &SessionStarted) -> String {
    let work = match (&started.spec, started.mode) {
        (Some(spec), Mode::Spec) => one_line(spec, QUOTED),
        _ => "no spec, it looks for work in the code".to_owned(),
    };
    let limits = limits(&started.limits);
    let limits = if limits == "none" { String::new() } else { format!("; at most {limits}") };
    format!("a session starts with {}: {work} ({}){limits}", names(&started.chain), started.complexity)
}

fn attempt_finished(
    attempt: &AttemptFinished,
    provider: &str,
    at: &dyn Fn(jiff::Timestamp) -> String,
) -> String {
    let mut text = match &attempt.verdict.outcome {
        Outcome::Completed { .. } => {
            format!("{provider} is through, {}", short_duration(attempt.duration_ms))
        }
        Outcome::RateLimited { until: Some(until) }
        | Outcome::UsageLimited { until: Some(until) }
        | Outcome::QuotaExhausted { until: Some(until) } => {
            format!("{provider}: {} until {}", attempt.verdict.outcome, at(*until))
        }
        outcome => format!("{provider}: {outcome}, {}", short_duration(attempt.duration_ms)),
    };
    if attempt.tools > 0 {
        text.push_str(&format!(", {}", count(attempt.tools, "tool use")));
    }
    if let Some(cost) = attempt.cost_usd {
        text.push_str(&format!(", {}", usd(cost)));
    }
    let words = if attempt.verdict.outcome.ends_iteration() {
        &attempt.answer
    } else {
        &attempt.verdict.evidence.text
    };
    text.push_str(&after(words));
    if let Some(warning) = &attempt.verdict.warning {
        text.push_str(&format!("; {}", one_line(warning, QUOTED)));
    }
    text
}

fn gate_failure(exit: Option<Exit>, tail: &str) -> String {
    let exit = match exit {
        Some(Exit::Code(code)) => format!(", exit code {code}"),
        Some(Exit::Signal(signal)) => format!(", signal {signal}"),
        None => String::new(),
    };
    let last = tail.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    format!("{exit}{}", after(last))
}

fn limits(limits: &Limits) -> String {
    let mut parts = Vec::new();
    parts.extend(limits.max_iterations.map(|most| count(most, "iteration")));
    parts.extend(limits.max_duration_ms.map(short_duration));
    parts.extend(limits.budget_usd.map(usd));
    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
}

fn names(names: &[String]) -> String {
    one_line(&names.join(", "), QUOTED)
}

/// `: text`, or nothing. An agent's bare claim says nothing that the event does not.
fn after(text: &str) -> String {
    let text = one_line(text, QUOTED);
    let text = if text == DONE { String::new() } else { text };
    if text.is_empty() { text } else { format!(": {text}") }
}

/// The session ended as it was meant to.
pub(super) fn is_good(body: &Body) -> bool {
    matches!(
        body,
        Body::SessionFinished { state: Phase::Finished, .. }
            | Body::CompletionVerified { .. }
            | Body::GateFinished { result: GateResult::Passed, .. }
    )
}

/// Bad news that is not a warning of the run itself.
pub(super) fn is_bad(body: &Body) -> bool {
    matches!(
        body,
        Body::GateFinished {
            result: GateResult::Failed | GateResult::TimedOut | GateResult::CouldNotRun,
            ..
        }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::EventId;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_event_has_words_on_one_line(body in crate::store::testing::body()) {
            let event = Event {
                id: EventId(ulid::Ulid::nil()),
                seq: 1,
                time: crate::store::testing::noon(),
                level: body.level(),
                session: None,
                lane: None,
                iteration: None,
                attempt: None,
                provider: None,
                body,
            };
            let text = words(&event, &TimeZone::UTC);
            prop_assert!(!text.is_empty() && !text.contains(char::is_control), "{text:?}");
            prop_assert!(text.chars().count() < 600, "{text}");
        }
    }
}
