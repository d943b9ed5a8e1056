//! Cases from public bug reports of supervisors and CLIs, as small inputs. Each test is named after what went
//! wrong there.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use jiff::tz::TimeZone;
use jiff::{Timestamp, ZonedDateTime};
use proptest::prelude::*;
use serde::Deserialize;

use super::call::{CallEnd, OurReason, StartFailure, Stream};
use super::classify::classify;
use super::decode::{DecoderOptions, Transcript, decoder};
use super::definition::Definition;
use super::registry::Registry;
use crate::domain::outcome::{AccountScope, Exit, Outcome, Verdict};

fn built_in() -> &'static Registry {
    static BUILT_IN: LazyLock<Registry> = LazyLock::new(|| Registry::load(&[]).unwrap());
    &BUILT_IN
}

const SUCCESS: &str = r#"{"type":"result","subtype":"success","is_error":false,"result":"done"}"#;
const SAID: &str = r#"{"type":"assistant","message":{"content":[{"type":"text","text":"see spec.rb:418-429, 529 bytes, rate limit"}]}}"#;
const TOOL: &str =
    r#"{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Bash","input":{}}]}}"#;

/// A call of `provider` that printed `stdout` and `stderr`.
pub(super) struct Call {
    definition: Definition,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    changed: bool,
    now: &'static str,
}

// === impl Call ===

impl Call {
    pub(super) fn of(provider: &str, stdout: &[&str]) -> Self {
        let definition = built_in().get(provider).unwrap().clone();
        let stdout = stdout.join("\n").into_bytes();
        Call { definition, stdout, stderr: Vec::new(), changed: false, now: "2026-06-09T21:13:00Z" }
    }

    pub(super) fn stderr(mut self, lines: &[&str]) -> Self {
        self.stderr = lines.join("\n").into_bytes();
        self
    }

    fn changed(mut self) -> Self {
        self.changed = true;
        self
    }

    pub(super) fn at(mut self, now: &'static str) -> Self {
        self.now = now;
        self
    }

    fn now(&self) -> ZonedDateTime {
        self.now.parse::<Timestamp>().unwrap().to_zoned_datetime(TimeZone::UTC)
    }

    fn transcript(&self, end: &CallEnd) -> Transcript {
        let mut decoder = decoder(self.definition.output, DecoderOptions::default()).unwrap();
        for (stream, bytes) in [(Stream::Stdout, &self.stdout), (Stream::Stderr, &self.stderr)] {
            for line in bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
                decoder.line(stream, line, false);
            }
        }
        decoder.finish(end)
    }

    pub(super) fn ends(&self, end: CallEnd) -> Verdict {
        classify(&self.definition, &self.transcript(&end), &end, self.changed, &self.now())
    }

    pub(super) fn exits(&self, code: i32) -> Verdict {
        self.ends(CallEnd::exited(Exit::Code(code)))
    }

    fn killed(&self, signal: i32) -> Verdict {
        self.ends(CallEnd::exited(Exit::Signal(signal)))
    }
}

/// The time that words give, as the report tells it.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Hint {
    EpochS { value: i64 },
    Duration { seconds: f64 },
    WallClock { raw: String, tz: Option<String>, date: Option<String> },
    DateTime { raw: String },
}

#[derive(Deserialize)]
struct Wording {
    id: String,
    hint: Option<Hint>,
    provider: String,
    outcome: Option<String>,
    text: String,
    #[expect(dead_code, reason = "where it was reported, for people")]
    source: String,
}

fn wordings() -> Vec<Wording> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/cli/wordings.json");
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

/// The words as the reason of a failed terminal result.
fn as_result(wording: &Wording) -> String {
    let text = &wording.text;
    match wording.provider.as_str() {
        "claude" => {
            serde_json::json!({"type": "result", "subtype": "success", "is_error": true, "result": text})
        }
        "gemini" => {
            serde_json::json!({"type": "result", "status": "error", "error": {"type": "unknown", "message": text}})
        }
        "opencode" => {
            serde_json::json!({"type": "error", "error": {"name": "UnknownError", "data": {"message": text}}})
        }
        "cline" => serde_json::json!({"type": "run_result", "finishReason": "error", "text": text}),
        "codex" => serde_json::json!({"type": "turn.failed", "error": {"message": text}}),
        // Plain text has no other place.
        _ => return text.clone(),
    }
    .to_string()
}

/// Words that a CLI prints while it goes on: they explain a failed end only.
fn is_progress(text: &str) -> bool {
    ["Reconnecting", "Attempt ", "Retry in", "Switching to"].iter().any(|words| text.contains(words))
}

#[test]
fn every_reported_wording_is_known_wherever_it_stands() {
    let mut wrong = Vec::new();
    for wording in wordings() {
        let Some(expected) = wording.outcome.as_deref() else { continue };
        let mut check = |place: &str, verdict: Verdict| {
            if verdict.outcome.name() != expected {
                wrong.push(format!("{} {place}: expected {expected}, is {verdict:?}", wording.id));
            }
        };
        let failed_only = is_progress(&wording.text) || wording.provider == "command";
        for code in if failed_only { 1..2 } else { 0..2 } {
            // A line of its own, before a lot of output as well as at the end (orch#3256).
            check("line", Call::of(&wording.provider, &[&wording.text]).exits(code));
            let mut lines = vec![wording.text.as_str()];
            lines.extend([r#"{"type":"system","subtype":"status"}"#; 500]);
            if built_in().get(&wording.provider).unwrap().output.has_terminal_event() {
                check("first line", Call::of(&wording.provider, &lines).exits(code));
            }
        }
        if !wording.text.starts_with('{') {
            check("stderr", Call::of(&wording.provider, &["working"]).stderr(&[&wording.text]).exits(1));
        }
        // Events and configuration errors are no words of a result.
        if !wording.text.starts_with('{') && expected != "not_runnable" {
            check("result", Call::of(&wording.provider, &[&as_result(&wording)]).exits(1));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_reported_time_is_understood() {
    let now: Timestamp = "2026-06-09T21:13:00Z".parse().unwrap();
    let mut wrong = Vec::new();
    for wording in wordings() {
        let Some(hint) = &wording.hint else { continue };
        let verdict = Call::of(&wording.provider, &[&wording.text]).exits(1);
        let until = match verdict.outcome {
            Outcome::RateLimited { until }
            | Outcome::UsageLimited { until }
            | Outcome::QuotaExhausted { until } => until,
            // Nothing waits for what these say.
            _ => continue,
        };
        let right = until.is_some_and(|until| match hint {
            // Long past: it is due.
            Hint::EpochS { value } => until == Timestamp::from_second(*value).unwrap().max(now),
            Hint::Duration { seconds } => (until.duration_since(now).as_secs_f64() - seconds).abs() < 0.001,
            Hint::WallClock { raw, tz, date } => {
                let zone = tz
                    .as_deref()
                    .map_or(TimeZone::UTC, |name| jiff::tz::TimeZoneDatabase::bundled().get(name).unwrap());
                let there = until.to_zoned_datetime(zone);
                let clock = if raw.contains(':') { "%-I:%M %p" } else { "%-I %p" };
                let squeezed = |text: &str| text.to_ascii_lowercase().replace(' ', "");
                // A time that has just passed means that it is due.
                let due = until == now;
                let same_time = squeezed(&there.strftime(clock).to_string()) == squeezed(raw);
                let same_date =
                    date.as_ref().is_none_or(|date| there.strftime("%b %-d").to_string() == *date);
                let capped = until.duration_since(now) == crate::domain::reset_time::LONGEST;
                due || capped || (same_time && same_date)
            }
            Hint::DateTime { raw } => {
                let there = until.to_zoned_datetime(TimeZone::UTC);
                let told = there.strftime("%b %-d, %Y %-I:%M %p").to_string();
                raw.replace("th,", ",") == told
            }
        });
        if !right {
            wrong.push(format!("{}: {} gives {until:?}", wording.id, wording.text));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn usage_limits_that_a_text_agent_passes_on_are_known_at_any_exit_code() {
    let of_these = |wording: &&Wording| ["claude", "codex"].contains(&wording.provider.as_str());
    for wording in wordings()
        .iter()
        .filter(of_these)
        .filter(|wording| wording.outcome.as_deref() == Some("usage_limited"))
    {
        // Events, and one that was read off an interactive screen.
        if wording.text.starts_with('{') || wording.text.contains("Some(UsageLimitExceeded)") {
            continue;
        }
        for code in [0, 1] {
            let verdict = Call::of("command", &["working", &wording.text]).exits(code);
            assert_eq!(verdict.outcome.name(), "usage_limited", "{} exit {code}: {verdict:?}", wording.id);
        }
    }
}

/// The words as the agent's own, and a success after them.
fn others(text: &str) -> [(&'static str, String, String); 3] {
    use serde_json::json;
    [
        (
            "gemini",
            json!({"type": "message", "role": "assistant", "content": text}),
            json!({"type": "result", "status": "success"}),
        ),
        (
            "opencode",
            json!({"type": "text", "part": {"text": text}}),
            json!({"type": "step_finish", "part": {"reason": "stop"}}),
        ),
        (
            "cline",
            json!({"type": "agent_event", "event": {"type": "content_end", "contentType": "text", "text": text}}),
            json!({"type": "run_result", "finishReason": "completed", "text": text}),
        ),
    ]
    .map(|(provider, said, success)| (provider, said.to_string(), success.to_string()))
}

#[test]
fn a02_the_agents_own_work_is_no_evidence() {
    for wording in wordings().iter().filter(|wording| wording.outcome.is_none()) {
        let quote = |kind: &str, block: serde_json::Value| {
            serde_json::json!({"type": kind, "message": {"content": [block]}}).to_string()
        };
        let text = &wording.text;
        let said = quote("assistant", serde_json::json!({"type": "text", "text": text}));
        let told = quote("user", serde_json::json!({"type": "tool_result", "content": text}));
        let verdict = Call::of("claude", &[&said, &told, SUCCESS]).exits(0);
        assert_eq!(verdict.outcome.name(), "completed", "{}", wording.id);
        // Nor is it the reason of a stream that was cut.
        let verdict = Call::of("claude", &[&said, &told]).exits(1);
        assert_eq!(verdict.outcome.name(), "truncated", "{}", wording.id);
        let item = serde_json::json!({"type": "item.completed", "item": {
            "type": "command_execution", "aggregated_output": text, "exit_code": 1, "status": "failed"}});
        let verdict = Call::of("codex", &[&item.to_string()]).exits(1);
        assert_eq!(verdict.outcome.name(), "truncated", "{}", wording.id);
        for (provider, said, success) in others(text) {
            let verdict = Call::of(provider, &[&said, &success]).exits(0);
            assert_eq!(verdict.outcome.name(), "completed", "{} {provider}: {verdict:?}", wording.id);
            let verdict = Call::of(provider, &[&said]).exits(1);
            assert_eq!(verdict.outcome.name(), "truncated", "{} {provider}: {verdict:?}", wording.id);
        }
    }
}

#[test]
fn a04_a_persons_words_in_the_transcript_are_no_evidence() {
    let user = r#"{"type":"user","message":{"content":"API rate limit was detected. Try to continue from where you left off."}}"#;
    assert_eq!(Call::of("claude", &[user, TOOL, SUCCESS]).exits(0).outcome.name(), "completed");
    assert_eq!(Call::of("claude", &[user, TOOL]).exits(1).outcome.name(), "truncated");
}

#[test]
fn a05_an_advisory_is_not_the_limit() {
    let advisory = "You've used 90% of your session limit · resets 7:20pm";
    assert_eq!(Call::of("claude", &[advisory, advisory, SAID, SUCCESS]).exits(0).outcome.name(), "completed");
    let blocked = Call::of("claude", &[advisory, SAID, "You've hit your session limit · resets 7:20pm"])
        .at("2026-06-09T10:00:00Z")
        .exits(1);
    let until = Some("2026-06-09T19:20:00Z".parse().unwrap());
    assert_eq!(blocked.outcome, Outcome::UsageLimited { until });
}

#[test]
fn a06_only_a_rejecting_limit_event_blocks() {
    let event = |info: &str| format!(r#"{{"type":"rate_limit_event","rate_limit_info":{{{info}}}}}"#);
    let reset = r#""resetsAt":1781200000"#;
    for info in [
        format!(r#""status":"rejected",{reset},"overageStatus":"rejected","isUsingOverage":false"#),
        format!(r#""status":"denied",{reset},"rateLimitType":"seven_day""#),
        format!(r#""status":"rejected",{reset},"overageStatus":"rejected","isUsingOverage":true"#),
        // Milliseconds.
        r#""status":"rejected","resetsAt":1781200000000"#.to_owned(),
    ] {
        for code in [0, 1] {
            let verdict = Call::of("claude", &[&event(&info)]).exits(code);
            let until = Some("2026-06-11T17:46:40Z".parse().unwrap());
            assert_eq!(verdict.outcome, Outcome::UsageLimited { until }, "{info}");
            assert_eq!(verdict.scope, AccountScope::Account);
        }
    }
    for info in [
        format!(r#""status":"allowed",{reset},"overageStatus":"rejected""#),
        format!(r#""status":"allowed_warning",{reset}"#),
        format!(r#""status":"throttled",{reset}"#),
        format!(r#""status":"paused",{reset}"#),
        format!(r#""status":"rejected",{reset},"overageStatus":"allowed","isUsingOverage":true"#),
        String::new(),
    ] {
        assert_eq!(
            Call::of("claude", &[&event(&info), SAID, SUCCESS]).exits(0).outcome.name(),
            "completed",
            "{info}"
        );
        assert_eq!(Call::of("claude", &[&event(&info)]).exits(1).outcome.name(), "truncated", "{info}");
    }
    assert_eq!(
        Call::of("claude", &[r#"{"type":"rate_limit_event"}"#, SUCCESS]).exits(0).outcome.name(),
        "completed"
    );
}

#[test]
fn a06_of_several_windows_the_rejected_one_counts() {
    let event = r#"{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","rateLimitType":"five_hour","unifiedWindows":{
        "five_hour":{"status":"rejected","resetsAt":1781040000},"seven_day":{"status":"allowed","resetsAt":1781500000}}}}"#;
    let verdict = Call::of("claude", &[&event.replace('\n', "")]).exits(1);
    assert_eq!(
        verdict.outcome,
        Outcome::UsageLimited { until: Some("2026-06-09T21:20:00Z".parse().unwrap()) }
    );
}

#[test]
fn a31_the_structured_reset_wins_over_words_and_a_models_window_is_the_models() {
    let event = r#"{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1781042000,"rateLimitType":"seven_day_opus"}}"#;
    let result = r#"{"type":"result","is_error":true,"result":"You've hit your monthly limit · resets Jul 1, 9am (UTC)"}"#;
    let verdict = Call::of("claude", &[event, result]).exits(1);
    assert_eq!(
        verdict.outcome,
        Outcome::UsageLimited { until: Some("2026-06-09T21:53:20Z".parse().unwrap()) }
    );
    assert_eq!(verdict.scope, AccountScope::Model);
}

#[test]
fn a_limit_that_the_work_went_past_is_over() {
    let event =
        r#"{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1781042000}}"#;
    let lost = r#"{"type":"result","is_error":true,"result":"API Error: Connection dropped (ECONNRESET)"}"#;
    assert_eq!(Call::of("claude", &[event, TOOL, lost]).exits(1).outcome.name(), "network_down");
}

#[test]
fn a18_a_success_before_a_bad_exit_stays_a_success() {
    for (end, warned) in [
        (CallEnd::exited(Exit::Code(0)), false),
        (CallEnd::exited(Exit::Code(1)), true),
        (CallEnd::exited(Exit::Code(127)), true),
        (CallEnd::exited(Exit::Signal(15)), true),
        (CallEnd::exited(Exit::Signal(9)), true),
        (CallEnd::ended(Exit::Signal(9), OurReason::Linger), true),
        (CallEnd::ended(Exit::Signal(15), OurReason::Stop), false),
    ] {
        let verdict = Call::of("claude", &[TOOL, SUCCESS]).ends(end.clone());
        assert_eq!(verdict.outcome.name(), "completed", "{end:?}");
        assert_eq!(verdict.warning.is_some(), warned, "{end:?}");
    }
}

#[test]
fn rt_02_without_a_terminal_result_nothing_is_a_success() {
    let codex =
        r#"{"type":"item.completed","item":{"type":"agent_message","text":"All done.\nLONGHAUL_DONE"}}"#;
    for code in [0, 1, 3] {
        assert_eq!(Call::of("claude", &[SAID, TOOL]).changed().exits(code).outcome.name(), "truncated");
        assert_eq!(
            Call::of("claude", &["All done.", "LONGHAUL_DONE"]).exits(code).outcome.name(),
            "truncated"
        );
        assert_eq!(Call::of("codex", &[codex]).changed().exits(code).outcome.name(), "truncated");
    }
    assert_eq!(
        Call::of("codex", &[codex]).killed(9).outcome,
        Outcome::Crashed { signal: Some(9), code: None }
    );
    let stopped = Call::of("codex", &[codex]).ends(CallEnd::ended(Exit::Signal(15), OurReason::Stop));
    assert_eq!(stopped.outcome, Outcome::Cancelled);
}

#[test]
fn b12_a_result_cut_in_the_middle_is_no_result() {
    for cut in [r#"{"type":"result","subtype":"success","is_error":false,"resu"#, r#"{"type":"#, "{"] {
        assert_eq!(Call::of("claude", &[TOOL, cut]).exits(0).outcome.name(), "truncated", "{cut}");
    }
}

#[test]
fn ec_013_a_success_with_nothing_there_is_empty() {
    for stdout in [
        &[r#"{"type":"result","subtype":"success","is_error":false,"result":"","num_turns":1}"#][..],
        &[r#"{"type":"result","subtype":"success","is_error":false,"result":"  \n "}"#],
        &[],
    ] {
        assert_eq!(Call::of("claude", stdout).exits(0).outcome, Outcome::Empty, "{stdout:?}");
    }
    for stdout in [&[r#"{"type":"turn.completed","usage":{}}"#][..], &[]] {
        assert_eq!(Call::of("codex", stdout).exits(0).outcome, Outcome::Empty, "{stdout:?}");
    }
    for stdout in [&[][..], &["  ", "\x1b[0m"]] {
        assert_eq!(Call::of("command", stdout).exits(0).outcome, Outcome::Empty, "{stdout:?}");
    }
    assert_eq!(Call::of("command", &[]).stderr(&["warning: x"]).exits(0).outcome, Outcome::Empty);
    // A diff is evidence, also of an agent that says nothing.
    let quiet = Call::of("command", &[]).changed().exits(0).outcome;
    assert_eq!(quiet, Outcome::Completed { changed: true, claims_done: false, denied: vec![] });
    let tools = r#"{"type":"result","subtype":"success","is_error":false,"result":""}"#;
    assert_eq!(Call::of("claude", &[TOOL, tools]).exits(0).outcome.name(), "completed");
}

#[test]
fn a20_the_evidence_may_stand_on_stdout_alone() {
    let lines = [
        r#"{"type":"error","message":"Reconnecting... 5/5 (stream disconnected before completion: stream closed before response.completed)"}"#,
        r#"{"type":"turn.failed","error":{"message":"stream disconnected before completion: stream closed before response.completed"}}"#,
    ];
    assert_eq!(Call::of("codex", &lines).exits(1).outcome, Outcome::NetworkDown);
}

#[test]
fn a23_an_error_as_the_whole_answer_is_one_and_within_a_longer_answer_is_none() {
    let answer = |text: &str| {
        serde_json::json!({"type": "result", "subtype": "success", "is_error": false, "result": text})
            .to_string()
    };
    assert_eq!(
        Call::of("claude", &[&answer("Prompt is too long")]).exits(0).outcome,
        Outcome::ContextOverflow
    );
    assert_eq!(Call::of("command", &["Prompt is too long"]).exits(0).outcome, Outcome::ContextOverflow);
    let longer = answer("I made the server answer 'Prompt is too long' above 200k tokens.");
    assert_eq!(Call::of("claude", &[&longer]).exits(0).outcome.name(), "completed");
    // After real work the same words are an answer.
    assert_eq!(
        Call::of("claude", &[TOOL, &answer("Prompt is too long")]).exits(0).outcome.name(),
        "completed"
    );
    assert_eq!(
        Call::of("claude", &[&answer("Prompt is too long")]).changed().exits(0).outcome.name(),
        "completed"
    );
}

#[test]
fn claude_code_79500_an_error_that_says_success_and_exits_0() {
    let synthetic = r#"{"type":"assistant","message":{"model":"<synthetic>","content":[{"type":"text","text":"Your organization has disabled Claude subscription access for Claude Code"}]},"error":"oauth_org_not_allowed","is_api_error_message":true}"#;
    let result = r#"{"type":"result","subtype":"success","is_error":false,"result":"Your organization has disabled Claude subscription access for Claude Code"}"#;
    assert_eq!(Call::of("claude", &[synthetic, result]).exits(0).outcome, Outcome::AuthFailed);
    assert_eq!(Call::of("claude", &[synthetic]).exits(0).outcome, Outcome::AuthFailed);
    // The agent recovered and went on.
    assert_eq!(Call::of("claude", &[synthetic, TOOL, SUCCESS]).exits(0).outcome.name(), "completed");
}

#[test]
fn a25_a_withdrawn_model_beats_the_network() {
    let lines = [
        r#"{"type":"turn.failed","error":{"message":"stream disconnected before completion: The model `gpt-5.1-codex-mini` does not exist or you do not have access to it."}}"#,
    ];
    let verdict = Call::of("codex", &lines).exits(1);
    assert_eq!((verdict.outcome, verdict.scope), (Outcome::ModelUnavailable, AccountScope::Model));
}

#[test]
fn a27_a_status_code_alone_never_decides_about_money() {
    let balance = r#"{"type":"result","is_error":true,"api_error_status":429,"result":"API Error: 429 Insufficient balance"}"#;
    assert_eq!(Call::of("claude", &[balance]).exits(1).outcome, Outcome::QuotaExhausted { until: None });
    let credit =
        r#"{"type":"result","is_error":true,"api_error_status":400,"result":"Credit balance is too low"}"#;
    assert_eq!(Call::of("claude", &[credit]).exits(1).outcome, Outcome::QuotaExhausted { until: None });
}

#[test]
fn a28_retry_notices_are_progress() {
    let retry = r#"{"type":"system","subtype":"api_retry","attempt":1,"max_retries":10,"error_status":529,"error":"overloaded"}"#;
    assert_eq!(
        Call::of("claude", &[retry, retry, retry, TOOL, SUCCESS]).exits(0).outcome.name(),
        "completed"
    );
    assert_eq!(Call::of("claude", &[retry, retry, retry]).exits(1).outcome, Outcome::Overloaded);
    assert_eq!(Call::of("claude", &[retry, TOOL]).exits(1).outcome.name(), "truncated", "it went on");
    assert_eq!(Call::of("claude", &[retry]).exits(0).outcome.name(), "truncated");
    // Killed by somebody while it waited: what it waited for explains it, what it dies of by itself does not.
    assert_eq!(Call::of("claude", &[retry]).killed(9).outcome, Outcome::Overloaded);
    assert_eq!(Call::of("claude", &[retry]).killed(11).outcome.name(), "crashed");
}

#[test]
fn a30_a_timeout_is_a_timeout_whatever_the_prompt_says() {
    let echo = r#"{"type": "user", "message": {"content": [{"type": "tool_result", "content": "if grep -qi \"5.*hour.*limit\" out; then"}]}}"#;
    assert_eq!(Call::of("claude", &[echo]).exits(124).outcome, Outcome::TimedOut);
    let text = Call::of("command", &["You've hit your 5-hour limit", "a", "b", "c", "d"]).exits(124);
    assert_eq!(text.outcome, Outcome::TimedOut);
}

#[test]
fn ends_that_we_made_say_so_unless_there_is_a_better_reason() {
    let killed = |reason| CallEnd::ended(Exit::Signal(9), reason);
    for (reason, outcome) in [
        (OurReason::FirstOutput, Outcome::SilentHang),
        (OurReason::Silence, Outcome::SilentHang),
        (OurReason::Total, Outcome::TimedOut),
        (OurReason::Stop, Outcome::Cancelled),
        (OurReason::Cap, Outcome::CapReached),
    ] {
        assert_eq!(Call::of("claude", &[SAID]).ends(killed(reason)).outcome, outcome);
        assert_eq!(Call::of("command", &["working"]).ends(killed(reason)).outcome, outcome);
        // Also when it managed to exit with 0 on our TERM.
        let polite = CallEnd::ended(Exit::Code(0), reason);
        assert_eq!(Call::of("command", &["working"]).ends(polite).outcome, outcome);
    }
    let retry =
        r#"{"type":"system","subtype":"api_retry","attempt":7,"error_status":null,"error":"unknown"}"#;
    for reason in [OurReason::Silence, OurReason::Retrying] {
        assert_eq!(Call::of("claude", &[retry]).ends(killed(reason)).outcome, Outcome::NetworkDown);
        let polite = CallEnd::ended(Exit::Code(0), reason);
        assert_eq!(Call::of("claude", &[retry]).ends(polite).outcome, Outcome::NetworkDown);
    }
    // Recorded with 0.171.0 without a network: it waits for as long as that takes.
    let waits = r#"{"type":"error","message":"Reconnecting... waiting for network (Connection failed: error sending request)"}"#;
    let waited = Call::of("codex", &[waits; 3]).ends(CallEnd::ended(Exit::Signal(15), OurReason::Retrying));
    assert_eq!(waited.outcome, Outcome::NetworkDown);
    assert_eq!(Call::of("claude", &[retry]).ends(killed(OurReason::Stop)).outcome, Outcome::Cancelled);
    let failed =
        r#"{"type":"result","is_error":true,"api_error_status":529,"result":"API Error: 529 Overloaded"}"#;
    assert_eq!(Call::of("claude", &[failed]).ends(killed(OurReason::Linger)).outcome, Outcome::Overloaded);
}

#[test]
fn text_agents_are_judged_by_exit_and_last_lines() {
    for (stdout, stderr, code, outcome) in [
        (&["done"][..], &[][..], 0, "completed"),
        (&[], &["Traceback:", "KeyError: 'x'"], 1, "unknown"),
        (&["half a line"], &[], 1, "unknown"),
        (&[], &[], 1, "crashed"),
        (&[], &[], 134, "crashed"),
        (&["x"], &["Aborted"], 134, "crashed"),
        (&[], &["sh: agent: not found"], 127, "not_runnable"),
        (&[], &["sh: ./agent: Permission denied"], 126, "not_runnable"),
        (&[], &["API Error: 529 Overloaded"], 1, "overloaded"),
        (&["API Error: 529 Overloaded", "a", "b", "c", "d"], &[], 1, "unknown"),
        (&["I wrote a retry for 'connection refused' errors"], &[], 1, "unknown"),
    ] {
        let verdict = Call::of("command", stdout).stderr(stderr).exits(code);
        assert_eq!(verdict.outcome.name(), outcome, "{stdout:?} {stderr:?} {code}: {verdict:?}");
    }
    let verdict = Call::of("command", &["a"]).stderr(&["KeyError: 'x'"]).exits(7);
    assert_eq!(verdict.outcome, Outcome::Unknown { code: Some(7), tail: "KeyError: 'x'".into() });
    assert_eq!(
        (verdict.evidence.source.as_str(), verdict.evidence.text.as_str()),
        ("stderr", "KeyError: 'x'")
    );
}

#[test]
fn a_cli_that_always_exits_0_is_judged_by_its_lines() {
    let mut call = Call::of("command", &["API Error: 529 Overloaded"]);
    call.definition.exit_code_is_evidence = false;
    assert_eq!(call.exits(0).outcome, Outcome::Overloaded);
    let mut call = Call::of("command", &["Applied edit to hello.txt"]);
    call.definition.exit_code_is_evidence = false;
    assert_eq!(call.exits(0).outcome.name(), "completed");
}

#[test]
fn the_last_line_of_a_text_agent_claims() {
    let done = |lines: &[&str]| match Call::of("command", lines).exits(0).outcome {
        Outcome::Completed { claims_done, .. } => claims_done,
        other => panic!("{other:?}"),
    };
    assert!(done(&["all tests pass", "LONGHAUL_DONE", ""]));
    assert!(done(&["\x1b[32mLONGHAUL_DONE\x1b[0m\r", "\x1b[0m"]));
    assert!(!done(&["LONGHAUL_DONE", "and more"]));
}

#[test]
fn ep_006_what_cannot_start_is_not_runnable() {
    let call = Call::of("claude", &[]);
    for failure in [
        StartFailure::NotFound("claude".into()),
        StartFailure::NotExecutable("/x/claude".into()),
        StartFailure::IsDirectory("/x/claude".into()),
        StartFailure::BadFormat("/x/claude".into()),
        StartFailure::TooLong("/x/claude".into()),
        StartFailure::Folder("/gone".into()),
    ] {
        let verdict = call.ends(CallEnd::not_started(failure.clone()));
        assert_eq!(verdict.outcome, Outcome::NotRunnable, "{failure}");
        assert_eq!(verdict.evidence.text, failure.to_string());
    }
    // A host that is full just now may have room later: that is a retry.
    let busy = call.ends(CallEnd::not_started(StartFailure::Busy("claude".into())));
    assert_eq!(busy.outcome.name(), "unknown");
}

#[test]
fn unknown_failures_keep_their_words() {
    let result =
        r#"{"type":"result","subtype":"error_during_execution","is_error":true,"errors":["something new"]}"#;
    let verdict = Call::of("claude", &[result]).exits(1);
    assert_eq!(verdict.outcome, Outcome::Unknown { code: Some(1), tail: "something new".into() });
    assert_eq!(verdict.evidence.source, "result");
    let failed = r#"{"type":"turn.failed","error":{"message":"a new kind of trouble"}}"#;
    assert_eq!(
        Call::of("codex", &[failed]).exits(1).outcome,
        Outcome::Unknown { code: Some(1), tail: "a new kind of trouble".into() }
    );
}

proptest! {
    /// Whatever is printed and however it ends: one outcome, no panic, short evidence, and no success without a
    /// terminal result or, for text, a clean exit.
    #[test]
    fn any_output_gives_one_outcome(
        provider in prop_oneof![Just("claude"), Just("codex"), Just("command")],
        lines in prop::collection::vec(prop_oneof![
            Just(SAID.as_bytes().to_vec()),
            Just(TOOL.as_bytes().to_vec()),
            Just(br#"{"type":"turn.started"}"#.to_vec()),
            Just(br#"{"type":"error","message":"x"}"#.to_vec()),
            Just(br#"{"type":"system","subtype":"api_retry","error":"overloaded"}"#.to_vec()),
            prop::collection::vec(any::<u8>(), 0..60),
        ], 0..8),
        exit in prop_oneof![(0i32..256).prop_map(Exit::Code), (1i32..16).prop_map(Exit::Signal)],
        ended_by in prop::option::of(prop_oneof![
            Just(OurReason::FirstOutput), Just(OurReason::Silence), Just(OurReason::Total), Just(OurReason::Stop),
        ]),
        changed: bool,
    ) {
        let mut call = Call::of(provider, &[]);
        call.stdout = lines.join(&b'\n');
        call.changed = changed;
        let verdict = call.ends(CallEnd { exit: Ok(exit), ended_by });
        prop_assert!(verdict.evidence.text.len() <= 500);
        prop_assert!(!verdict.rule.is_empty());
        if matches!(verdict.outcome, Outcome::Completed { .. }) {
            prop_assert_eq!(provider, "command");
            prop_assert!(exit.success() && ended_by.is_none());
        }
        if ended_by == Some(OurReason::Stop) {
            prop_assert_eq!(verdict.outcome, Outcome::Cancelled);
        }
    }
}

/// Wordings that were new to the rules when they were written down.
#[test]
fn what_was_not_known_yet_is_judged_by_its_mechanism() {
    let limit = r#"{"type":"result","subtype":"success","is_error":true,"api_error_status":429,"result":"You've reached your Opus limit · resets Dec 2 at 5am (UTC)"}"#;
    let limited = Call::of("claude", &[limit]).at("2026-11-30T20:00:00Z").exits(1);
    let until = Some("2026-12-02T05:00:00Z".parse().unwrap());
    assert_eq!((limited.outcome, limited.scope), (Outcome::UsageLimited { until }, AccountScope::Model));

    for (provider, stderr) in [
        ("claude", "Error: Cannot find module '/usr/lib/node_modules/@anthropic-ai/claude-code/cli.js'"),
        ("gemini", "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'yargs' imported from /usr/lib/x.js"),
        ("codex", "Error: Failed to parse config.toml: TOML parse error at line 3, column 1"),
    ] {
        let verdict = Call::of(provider, &[]).stderr(&[stderr]).exits(1);
        assert_eq!(verdict.outcome, Outcome::NotRunnable, "{provider}: {stderr}");
    }
    let long = r#"sdkerror: Status 400. Body: {"message":"Prompt contains 150000 tokens and 0 draft tokens, too large for model with 131072 maximum context length"}"#;
    assert_eq!(Call::of("command", &[]).stderr(&[long]).exits(1).outcome, Outcome::ContextOverflow);
    let gone = r#"Error: 404 {"error":{"message":"model 'llama9' not found"}}"#;
    assert_eq!(Call::of("command", &[]).stderr(&[gone]).exits(1).outcome, Outcome::ModelUnavailable);
}

#[test]
fn words_that_a_model_was_paid_for_are_no_error_in_disguise() {
    let says = r#"{"type":"item.completed","item":{"id":"i","type":"agent_message","text":"You've hit your usage limit. is the message that we show now."}}"#;
    let paid = r#"{"type":"turn.completed","usage":{"input_tokens":10,"output_tokens":14}}"#;
    let free = r#"{"type":"turn.completed","usage":{"input_tokens":0,"output_tokens":0}}"#;
    assert_eq!(Call::of("codex", &[says, paid]).exits(0).outcome.name(), "completed");
    assert_eq!(Call::of("codex", &[says, free]).exits(0).outcome.name(), "usage_limited");
}
