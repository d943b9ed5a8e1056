//! The real Claude Code, Codex and Gemini CLI against an API that fails: what Longhaul makes of each failure, when it
//! tries again and with whom. Each run ends well, once the API has been mended.
//!
//! `LONGHAUL_TEST_PEERS=1 cargo test --test real_faults` installs the CLIs first; CI always does.

#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use serde_json::{Value, json};
use testkit::api::{FakeApi, Fault};
use testkit::{Event, Peer, World, wall_ns, words};

/// What happens after a failure.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Next {
    /// The same provider again.
    Again,
    /// The next one of the chain, at once.
    FailOver,
}

use Next::{Again, FailOver};

/// A failure of the API, what it is, and what comes next.
struct Row {
    name: &'static str,
    fault: Fault,
    outcome: &'static str,
    next: Next,
    /// When the limit ends, seconds since 1970, where the CLI passes it on.
    until: Option<i64>,
    env: &'static [(&'static str, &'static str)],
}

fn row(name: &'static str, fault: Fault, outcome: &'static str, next: Next) -> Row {
    Row { name, fault, outcome, next, until: None, env: &[] }
}

fn status(code: u16, message: &'static str) -> Fault {
    Fault::Status(code, message, Vec::new())
}

/// What every protocol has.
fn common() -> Vec<Row> {
    let limited = "This request would exceed your account's rate limit. Please try again later.";
    let later = http_date_in_a_minute();
    vec![
        row("401", status(401, "invalid x-api-key"), "auth_failed", FailOver),
        row(
            "403",
            status(403, "Your organization does not have access to this model."),
            "auth_failed",
            FailOver,
        ),
        row(
            "429 s",
            Fault::Status(429, limited, vec![("retry-after", "30".into())]),
            "rate_limited",
            FailOver,
        ),
        row("429 date", Fault::Status(429, limited, vec![("retry-after", later)]), "rate_limited", FailOver),
        row("529", status(529, "Overloaded"), "overloaded", Again),
        row("500", status(500, "Internal server error"), "overloaded", Again),
        row("cut", Fault::Cut(4), "network_down", Again),
        row("drop", Fault::Drop, "network_down", Again),
        row("stall", Fault::Stall(4), "silent_hang", Again),
        row("truncated", Fault::Truncate(4), "network_down", Again),
        row("empty", Fault::Empty, "empty", Again),
        row(
            "too long",
            status(400, "prompt is too long: 215000 tokens > 200000 maximum"),
            "context_overflow",
            Again,
        ),
        row("model gone", status(404, "model: no-such-model"), "model_unavailable", FailOver),
    ]
}

fn now() -> jiff::Timestamp {
    jiff::Timestamp::from_nanosecond(i128::try_from(wall_ns()).unwrap()).unwrap()
}

/// A minute from now as HTTP writes it.
fn http_date_in_a_minute() -> String {
    let at = now() + jiff::SignedDuration::from_secs(60);
    at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// Each failure of the matrix, one run each.
fn matrix(peer: Peer, rows: Vec<Row>) {
    let Some(program) = peer.find() else { return };
    let only = std::env::var("LONGHAUL_TEST_FAULT").ok();
    let mut wrong = Vec::new();
    for row in rows.into_iter().filter(|row| only.as_deref().is_none_or(|only| only == row.name)) {
        let name = row.name;
        let events = one(peer, &program, &row);
        println!("{} {name}", peer.program());
        wrong.extend(judge(peer, &row, &events));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A run of one iteration that meets the failure first. Its events.
fn one(peer: Peer, program: &std::path::Path, row: &Row) -> Vec<Event> {
    let mut world = World::with_git();
    world.write("SPEC.md", "# Word\n\nSay a word.\n");
    world.provider("spare", "say=ok");
    world.config(&format!(
        "[provider]\nname = \"{}\"\nmodel = \"{}\"\nfallback = [\"spare\"]\n[backoff]\nbase = \"100ms\"\n\
         [limits]\nsilence = \"12s\"\nfirst_output = \"60s\"\n[gates]\ndetect = false\n",
        peer.program(),
        peer.model()
    ));
    peer.installs(&world, program);
    let api = FakeApi::start(Vec::new());
    peer.connects(&mut world, &api);
    for (name, value) in row.env {
        world.set(name, value);
    }
    api.breaks(row.fault.clone());
    let mut run = world.start(words("run SPEC.md --json --max-iterations 1"));
    run.event("attempt_finished");
    api.is_mended();
    let ended = run.wait();
    ended.events()
}

/// What is not as it should be.
fn judge(peer: Peer, row: &Row, events: &[Event]) -> Vec<String> {
    let attempts: Vec<(String, String)> = events
        .iter()
        .filter(|event| event.kind() == "attempt_finished")
        .map(|event| (event.0["provider"].as_str().unwrap().to_owned(), event.text("outcome").to_owned()))
        .collect();
    let second = match row.next {
        Again => peer.program(),
        FailOver => "spare",
    };
    let expected = [(peer.program(), row.outcome), (second, "completed")];
    let seen: Vec<(&str, &str)> = attempts.iter().map(|(who, what)| (who.as_str(), what.as_str())).collect();
    let name = format!("{} {}", peer.program(), row.name);
    let first = events.iter().find(|event| event.kind() == "attempt_finished").map(|event| event.0.clone());
    let mut wrong = Vec::new();
    if seen != expected {
        wrong.push(format!("{name}: {seen:?}, expected {expected:?}; {first:?}"));
    }
    if let Some(reset) = row.until {
        let cool =
            events.iter().find(|event| event.kind() == "cool_down").map(|event| event.data("until").clone());
        let until =
            cool.as_ref().and_then(Value::as_str).and_then(|text| text.parse::<jiff::Timestamp>().ok());
        // Some CLIs cut the time to the minute, and Longhaul adds a little.
        if !until.is_some_and(|until| (reset - 60..=reset + 180).contains(&until.as_second())) {
            wrong.push(format!("{name}: goes on at {until:?}, expected {reset}; {first:?}"));
        }
    }
    if !events.iter().any(|event| event.kind() == "session_finished") {
        wrong.push(format!("{name}: did not finish: {:?}", events.last().map(|event| event.0.clone())));
    }
    wrong
}

#[test]
fn claude_fails_in_every_way() {
    let at = now().as_second() + 7200;
    let reset = at.to_string();
    let unified = [
        ("anthropic-ratelimit-unified-status", "rejected".to_owned()),
        ("anthropic-ratelimit-unified-reset", reset.clone()),
        ("anthropic-ratelimit-unified-representative-claim", "five_hour".to_owned()),
        ("anthropic-ratelimit-unified-5h-status", "rejected".to_owned()),
        ("anthropic-ratelimit-unified-5h-reset", reset),
        ("anthropic-ratelimit-unified-5h-utilization", "1.0".to_owned()),
        ("retry-after", "7200".to_owned()),
    ];
    let fault = Fault::Status(429, "This request would exceed your account's rate limit.", unified.to_vec());
    let mut rows = common();
    // Only a subscription has such limits.
    rows.push(Row {
        until: Some(at),
        env: &[("ANTHROPIC_API_KEY", ""), ("CLAUDE_CODE_OAUTH_TOKEN", "sk-ant-oat01-loopback")],
        ..row("usage limit", fault, "usage_limited", FailOver)
    });
    matrix(Peer::Claude, rows);
}

#[test]
fn codex_fails_in_every_way() {
    let mut rows = common();
    let at = now().as_second() + 7200;
    let body = json!({"error": {"type": "usage_limit_reached", "message": "The usage limit has been reached",
        "plan_type": "plus", "resets_at": at}});
    rows.push(Row {
        until: Some(at),
        ..row("usage limit", Fault::Body(429, body), "usage_limited", FailOver)
    });
    matrix(Peer::Codex, rows);
}

#[test]
fn gemini_fails_in_every_way() {
    let quota = "Quota exceeded for metric: generate_content_free_tier_requests, limit: 250";
    let body = json!({"error": {"code": 429, "message": quota, "status": "RESOURCE_EXHAUSTED", "details": [
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [
            {"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7200s"}]}});
    let mut rows = common();
    // It does not pass on when that ends.
    rows.push(row("day quota", Fault::Body(429, body), "quota_exhausted", FailOver));
    matrix(Peer::Gemini, rows);
}
