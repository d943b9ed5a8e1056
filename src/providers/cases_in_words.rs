//! What servers and CLIs say in words, wherever and however it stands; and what only looks like it. Each test is
//! named after what went wrong.

use serde_json::json;

use super::call::{CallEnd, OurReason};
use super::cases::Call;
use crate::domain::outcome::{Exit, Outcome, Verdict};

fn until(verdict: &Verdict) -> Option<String> {
    match verdict.outcome {
        Outcome::RateLimited { until }
        | Outcome::UsageLimited { until }
        | Outcome::QuotaExhausted { until } => until.map(|until| until.to_string()),
        _ => None,
    }
}

/// The words as a line of stderr, and as the reason of a failed result.
fn failures(provider: &str, text: &str) -> [Verdict; 2] {
    let result = match provider {
        "claude" => json!({"type": "result", "is_error": true, "result": text}),
        "codex" => json!({"type": "turn.failed", "error": {"message": text}}),
        "gemini" => {
            json!({"type": "result", "status": "error", "error": {"type": "unknown", "message": format!("[API Error: {text}]")}})
        }
        "opencode" => json!({"type": "error", "error": {"name": "UnknownError", "data": {"message": text}}}),
        _ => json!({"type": "run_result", "finishReason": "error", "text": text}),
    };
    let lines: Vec<&str> = text.lines().collect();
    [Call::of(provider, &[]).stderr(&lines).exits(1), Call::of(provider, &[&result.to_string()]).exits(1)]
}

#[test]
fn kinds_and_statuses_of_servers_count_through_any_cli() {
    for (text, outcome) in [
        (
            r#"{"error":{"message":"The server had an error","type":"server_error","code":null}}"#,
            "overloaded",
        ),
        (
            r#"{"error":{"message":"x","type":"insufficient_quota","code":"insufficient_quota"}}"#,
            "quota_exhausted",
        ),
        (r#"{"error":{"code":504,"message":"Deadline expired","status":"DEADLINE_EXCEEDED"}}"#, "overloaded"),
        (
            r#"{"error":{"code":403,"message":"x","status":"PERMISSION_DENIED","details":[{"reason":"BILLING_DISABLED"}]}}"#,
            "quota_exhausted",
        ),
        (r#"{"error":{"message":"x","code":"model_not_found"}}"#, "model_unavailable"),
        (r#"{"error":{"message":"x","code":"invalid_prompt"}}"#, "refused"),
        (r#"{"type":"error","error":{"type":"request_too_large","message":"x"}}"#, "context_overflow"),
        (
            "Error code: 401 - {'error': {'message': 'x', 'code': 'invalid_api_key', 'param': None}}",
            "auth_failed",
        ),
        ("API Error: 429 Too Many Requests", "rate_limited"),
        ("API Error: 402 Payment Required", "quota_exhausted"),
        ("unexpected status 403 Forbidden: Country, region, or territory not supported", "auth_failed"),
        ("exceeded retry limit, last status: 503 Service Unavailable", "overloaded"),
    ] {
        for provider in ["claude", "codex", "gemini", "opencode", "cline"] {
            for verdict in failures(provider, text) {
                assert_eq!(verdict.outcome.name(), outcome, "{provider} {text}: {verdict:?}");
            }
        }
    }
}

#[test]
fn a_429_without_room_is_no_limit_of_the_account() {
    let body = r#"{"error":{"code":429,"message":"No capacity available for model x on the server","status":"RESOURCE_EXHAUSTED","details":[{"reason":"MODEL_CAPACITY_EXHAUSTED"}]}}"#;
    for provider in ["gemini", "opencode"] {
        for verdict in failures(provider, body) {
            assert_eq!(verdict.outcome, Outcome::Overloaded, "{provider} {verdict:?}");
        }
    }
}

#[test]
fn current_quota_is_a_minutes_or_a_months_as_the_stated_wait_says() {
    for (text, outcome) in [
        ("You exceeded your current quota. Please retry in 5.2s.", "rate_limited"),
        ("You exceeded your current quota. Please retry in 5h10m.", "quota_exhausted"),
        ("You exceeded your current quota, please check your plan and billing details.", "quota_exhausted"),
    ] {
        for verdict in failures("gemini", text) {
            assert_eq!(verdict.outcome.name(), outcome, "{text}: {verdict:?}");
        }
    }
    let retry =
        "Attempt 2 failed: You exceeded your current quota. Please retry in 5.2s.. Retrying after 5200ms...";
    let end = CallEnd::ended(Exit::Signal(9), OurReason::Total);
    let verdict = Call::of("gemini", &[]).stderr(&[retry]).ends(end);
    assert_eq!(until(&verdict).as_deref(), Some("2026-06-09T21:13:05.2Z"), "{verdict:?}");
}

#[test]
fn a_message_that_a_terminal_wrapped_or_framed_keeps_its_time() {
    let lines = [
        "■ You've hit your usage limit. Upgrade to Pro",
        "(https://openai.com/chatgpt/pricing), visit https://chatgpt.com/codex/settings",
        "to purchase more credits or try again at 11:30 PM.",
    ];
    let framed: Vec<String> =
        ["╭────╮"].into_iter().chain(lines).chain(["╰────╯"]).map(|line| format!("│ {line} │")).collect();
    let framed: Vec<&str> = framed.iter().map(String::as_str).collect();
    for lines in [&lines[..], &framed] {
        for call in
            [Call::of("codex", &[]).stderr(lines), Call::of("codex", lines), Call::of("command", lines)]
        {
            let verdict = call.exits(1);
            assert_eq!(verdict.outcome.name(), "usage_limited", "{lines:?}");
            assert_eq!(until(&verdict).as_deref(), Some("2026-06-09T23:30:00Z"), "{verdict:?}");
        }
    }
    let headers = ["HTTP/1.1 429 Too Many Requests", "retry-after: 30"];
    let verdict = Call::of("command", &["working"]).stderr(&headers).exits(1);
    assert_eq!(until(&verdict).as_deref(), Some("2026-06-09T21:13:30Z"), "{verdict:?}");
    let litellm = [
        "litellm.BadRequestError: OpenAIException - Your credit balance is too low to ",
        "access the API. Please go to Plans & Billing to upgrade or purchase credits.",
    ];
    assert_eq!(Call::of("aider", &litellm).exits(0).outcome.name(), "quota_exhausted");
}

#[test]
fn times_in_fields_and_headers_of_a_body_count() {
    for (body, expected) in [
        (
            json!({"error": {"type": "usage_limit_reached", "message": "x", "resets_in_seconds": 7200}}),
            "2026-06-09T23:13:00Z",
        ),
        (
            json!({"error": {"type": "usage_limit_reached", "message": "x", "resets_at": 1_781_049_600}}),
            "2026-06-10T00:00:00Z",
        ),
        (
            json!({"error": {"type": "rate_limit_error", "message": "x", "retry_after": 20}}),
            "2026-06-09T21:13:20Z",
        ),
    ] {
        for verdict in failures("codex", &format!("unexpected status 429 Too Many Requests: {body}")) {
            assert_eq!(until(&verdict).as_deref(), Some(expected), "{body}: {verdict:?}");
        }
    }
    for (headers, expected) in [
        (
            json!({"retry-after": "20", "x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "30s"}),
            "2026-06-09T21:13:20Z",
        ),
        (
            json!({"anthropic-ratelimit-tokens-remaining": "0", "anthropic-ratelimit-tokens-reset": "2026-06-09T21:14:00Z"}),
            "2026-06-09T21:14:00Z",
        ),
    ] {
        let event = json!({"type": "error", "error": {"name": "APIError", "data": {"message": "slow", "statusCode": 429, "responseHeaders": headers}}});
        let verdict = Call::of("opencode", &[&event.to_string()]).exits(1);
        assert_eq!(until(&verdict).as_deref(), Some(expected), "{verdict:?}");
    }
}

#[test]
fn an_exit_code_does_not_hide_what_stderr_says() {
    for (code, line, outcome) in [
        (130, "FatalCancellationError: Authentication cancelled by user.", "auth_failed"),
        (130, "", "cancelled"),
        (173, "[API Error: You have exhausted your daily quota on this model.]", "quota_exhausted"),
        (173, "", "rate_limited"),
        (124, "API Error: Rate limit reached", "timed_out"),
    ] {
        let verdict = Call::of("gemini", &[]).stderr(&[line]).exits(code);
        assert_eq!(verdict.outcome.name(), outcome, "{code} {line}: {verdict:?}");
    }
}

#[test]
fn talk_about_limits_in_a_text_agents_output_is_no_evidence() {
    for text in [
        "Rate limit exceeded errors are now retried.",
        "429 responses are now retried with backoff.",
        "HTTP 503 is mapped to RetryLater",
        "Errors with status 500 are logged now.",
        "Usage limit reached banner is now shown in the UI.",
        "You've hit your rate limit handling bug: fixed in lib.rs",
        "You've used 90% of your session limit · resets 7:20pm…",
        "Not logged in users are redirected to /login now.",
        "Invalid API key handling was added.",
        "Connection refused errors are now retried.",
        "- Retry on rate limit exceeded",
        "│ Rate limit exceeded │ 3 │",
        "test rate_limit_exceeded ... ok",
        r#"+    "rate_limit_error" => Kind::RateLimit,"#,
        "The model `User` does not exist in the schema, so I created it.",
        "src/http.rs:429: fn too_many_requests()",
    ] {
        for provider in ["command", "aider"] {
            let verdict = Call::of(provider, &["I changed it.", text]).exits(0);
            assert_eq!(verdict.outcome.name(), "completed", "{provider} {text}: {verdict:?}");
        }
        let verdict = Call::of("command", &["I changed it.", text]).exits(1);
        assert_eq!(verdict.outcome.name(), "unknown", "{text}: {verdict:?}");
        let answer = json!({"type": "result", "is_error": false, "result": text}).to_string();
        assert_eq!(Call::of("claude", &[&answer]).exits(0).outcome.name(), "completed", "{text}");
    }
}

#[test]
fn an_event_cut_in_the_middle_and_a_tools_log_line_are_no_evidence() {
    let cut = r#"{"type":"assistant","message":{"content":[{"type":"text","text":"You've hit your limit · resets 3pm"#;
    assert_eq!(Call::of("claude", &[cut]).exits(1).outcome.name(), "truncated");
    for line in [
        "2026-11-30T19:43:07Z ERROR codex_core::tools::router: error=unexpected status 429",
        "Error executing tool run_shell_command: rate limit exceeded (429 Too Many Requests)",
    ] {
        for provider in ["codex", "gemini"] {
            let verdict = Call::of(provider, &[r#"{"type":"x"}"#]).stderr(&[line]).exits(1);
            assert_eq!(verdict.outcome.name(), "truncated", "{line}: {verdict:?}");
        }
    }
}
