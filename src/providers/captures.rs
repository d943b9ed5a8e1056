//! Every recorded run of the real CLIs, decoded and judged. The tables are the expectation.

use std::fs;
use std::path::{Path, PathBuf};

use jiff::tz::TimeZone;
use jiff::{Timestamp, ZonedDateTime};
use serde::Deserialize;

use super::call::{CallEnd, OurReason, Stream};
use super::classify::classify;
use super::decode::{DecoderOptions, Fact, Transcript, decoder};
use super::definition::{Definition, OutputFormat};
use super::registry::Registry;
use crate::domain::outcome::{Exit, Outcome, Usage, Verdict};

/// Scenario, outcome, rule.
type Row = (&'static str, &'static str, &'static str);

const CLAUDE: &[Row] = &[
    ("accept_edits", "completed", "result.success"),
    ("bare_ok", "completed", "result.success"),
    ("cut_mid", "network_down", "claude.kind.connection"),
    ("drop_conn", "network_down", "claude.kind.connection"),
    ("empty", "empty", "result.success.empty"),
    ("fallback_model", "overloaded", "claude.kind.overloaded"),
    ("garbage", "overloaded", "claude.text.overloaded"),
    ("http_401", "auth_failed", "claude.kind.auth"),
    ("http_403", "auth_failed", "claude.kind.auth"),
    ("http_404_model", "model_unavailable", "claude.kind.model"),
    ("http_429_date", "rate_limited", "claude.kind.rate_limit"),
    ("http_429_none", "rate_limited", "claude.kind.rate_limit"),
    ("http_429_once", "completed", "result.success"),
    ("http_429_s", "rate_limited", "claude.kind.rate_limit"),
    ("http_529_once", "completed", "result.success"),
    ("http_html_502", "overloaded", "http.502"),
    ("json_401", "timed_out", "ended.total"),
    ("json_529", "overloaded", "claude.kind.overloaded"),
    ("max_budget", "cap_reached", "claude.result.cap"),
    ("max_tokens", "truncated", "claude.kind.max_output"),
    ("net_trace", "completed", "result.success"),
    ("no_key", "auth_failed", "claude.kind.auth"),
    ("oauth_401", "auth_failed", "claude.kind.auth"),
    ("oauth_usage_limit", "usage_limited", "claude.limit_event.rejected"),
    ("oauth_usage_warning", "completed", "result.success"),
    ("oauth_weekly_limit", "usage_limited", "claude.limit_event.rejected"),
    ("ok_edit", "completed", "result.success"),
    ("partial", "completed", "result.success"),
    ("perm_default", "completed", "result.success"),
    ("perm_shell", "completed", "result.success"),
    ("ping_stall", "silent_hang", "ended.silence"),
    ("r2_cut_mid", "network_down", "claude.text.network"),
    ("r2_drop_conn", "network_down", "claude.text.network"),
    ("r2_empty", "empty", "result.success.empty"),
    ("r2_http_429_none", "rate_limited", "claude.kind.rate_limit"),
    ("r2_http_429_s", "rate_limited", "claude.kind.rate_limit"),
    ("r2_http_500", "overloaded", "http.500"),
    ("r2_http_html_502", "overloaded", "http.502"),
    ("r2_reset_mid", "network_down", "claude.text.network"),
    ("r2_sse_error", "overloaded", "claude.kind.overloaded"),
    ("ra_105", "rate_limited", "claude.kind.rate_limit"),
    ("ra_120", "rate_limited", "claude.kind.rate_limit"),
    ("ra_1200", "rate_limited", "claude.kind.rate_limit"),
    ("ra_1900", "rate_limited", "claude.kind.rate_limit"),
    ("ra_300", "rate_limited", "claude.kind.rate_limit"),
    ("ra_590", "rate_limited", "claude.kind.rate_limit"),
    ("ra_65", "rate_limited", "claude.kind.rate_limit"),
    ("refusal", "refused", "claude.kind.refusal"),
    ("refused_port", "network_down", "claude.kind.connection"),
    ("retries_0_429", "rate_limited", "claude.kind.rate_limit"),
    ("retries_0_529", "overloaded", "claude.kind.overloaded"),
    ("retries_2_429", "rate_limited", "claude.kind.rate_limit"),
    ("retry_after_60", "rate_limited", "claude.kind.rate_limit"),
    ("root_refused", "not_runnable", "claude.text.root"),
    ("session_first", "completed", "result.success"),
    ("session_killed", "crashed", "exit.signal"),
    ("session_resume_after_kill", "completed", "result.success"),
    ("session_resume_unknown", "unknown", "claude.resume.not_found"),
    ("sigint_stream", "cancelled", "ended.stop"),
    ("sigint_tool", "cancelled", "ended.stop"),
    ("sigkill_group", "cancelled", "ended.stop"),
    ("sigkill_tool", "cancelled", "ended.stop"),
    ("sigterm_stream", "cancelled", "ended.stop"),
    ("sigterm_tool", "cancelled", "ended.stop"),
    ("slow_drip", "completed", "result.success"),
    ("sse_error_once", "completed", "result.success"),
    ("stall_first", "silent_hang", "ended.silence"),
    ("stall_mid", "silent_hang", "ended.silence"),
    ("stall_watchdog", "silent_hang", "ended.silence"),
    ("stdin_devnull_argv_prompt", "completed", "result.success"),
    ("stdin_empty", "not_runnable", "claude.text.arguments"),
    ("stream_json_input", "completed", "result.success"),
    ("text_ok", "completed", "exit.success"),
    ("tool_daemon", "completed", "result.success"),
    ("wd_hang_headers", "network_down", "claude.text.network"),
    ("wd_ping_stall", "silent_hang", "ended.silence"),
];

const CODEX: &[Row] = &[
    ("bad_tool", "completed", "result.success"),
    ("cut_mid", "network_down", "codex.text.network"),
    ("cx_context_len", "context_overflow", "codex.text.context"),
    ("cx_http_quota", "quota_exhausted", "codex.text.quota"),
    ("cx_rate_failed", "rate_limited", "codex.text.rate_limit"),
    ("cx_retries_0", "overloaded", "http.529"),
    ("cx_retries_1", "overloaded", "codex.text.overloaded"),
    ("cx_stall_idle", "network_down", "codex.text.network"),
    ("drop_conn", "network_down", "codex.text.network"),
    ("empty", "empty", "result.success.empty"),
    ("garbage", "network_down", "codex.text.network"),
    ("hang_headers", "silent_hang", "ended.silence"),
    ("http_400_billing", "quota_exhausted", "codex.text.quota"),
    ("http_400_toolong", "context_overflow", "codex.text.context"),
    ("http_401", "auth_failed", "http.401"),
    ("http_404_model", "model_unavailable", "codex.text.model"),
    ("http_429_date", "rate_limited", "http.429"),
    ("http_429_none", "rate_limited", "http.429"),
    ("http_429_once", "completed", "result.success"),
    ("http_html_502", "overloaded", "http.502"),
    ("max_tokens", "truncated", "codex.text.max_output"),
    ("nat_sigint_stream", "cancelled", "ended.stop"),
    ("nat_sigkill_stream", "cancelled", "ended.stop"),
    ("nat_sigkill_tool", "cancelled", "ended.stop"),
    ("nat_sigterm_stream", "cancelled", "ended.stop"),
    ("nat_sigterm_tool", "cancelled", "ended.stop"),
    ("net_trace", "completed", "result.success"),
    ("ok_edit", "completed", "result.success"),
    ("perm_default", "completed", "result.success"),
    ("perm_shell", "completed", "result.success"),
    ("quiet_ok", "completed", "result.success"),
    ("refusal", "completed", "result.success"),
    ("reset_mid", "network_down", "codex.text.network"),
    ("reset_mid_once", "completed", "result.success"),
    ("session_killed", "crashed", "exit.signal"),
    ("session_resume_after_kill", "completed", "result.success"),
    ("session_resume_unknown", "unknown", "codex.resume.not_found"),
    ("sigint_tool", "cancelled", "ended.stop"),
    ("sigkill_stream", "cancelled", "ended.stop"),
    ("sigterm_stream", "cancelled", "ended.stop"),
    ("sigterm_tool", "cancelled", "ended.stop"),
    ("stdin_devnull_argv_prompt", "completed", "result.success"),
    ("stdin_open_argv_prompt", "timed_out", "ended.total"),
    ("tool_bgjob", "completed", "result.success"),
    ("tool_daemon", "completed", "result.success"),
    ("truncate_mid", "network_down", "codex.text.network"),
];

const GEMINI: &[Row] = &[
    ("cut_mid", "network_down", "gemini.text.network"),
    ("drop_conn", "network_down", "gemini.text.network"),
    ("gm_400_key", "auth_failed", "gemini.kind.auth"),
    ("gm_max_turns", "cap_reached", "gemini.result.cap"),
    ("http_400_billing", "quota_exhausted", "gemini.text.day_quota"),
    ("http_400_toolong", "context_overflow", "gemini.text.context"),
    ("http_401", "auth_failed", "gemini.kind.auth"),
    ("http_403", "auth_failed", "gemini.kind.auth"),
    ("http_404_model", "model_unavailable", "gemini.text.model"),
    ("http_429_date", "rate_limited", "gemini.kind.rate_limit"),
    ("http_429_long", "rate_limited", "gemini.kind.rate_limit"),
    ("http_429_none", "rate_limited", "gemini.kind.rate_limit"),
    ("http_429_once", "completed", "result.success"),
    ("http_429_s", "rate_limited", "gemini.kind.rate_limit"),
    ("http_500", "overloaded", "gemini.kind.capacity"),
    ("http_503", "overloaded", "gemini.kind.capacity"),
    ("http_529", "overloaded", "gemini.kind.capacity"),
    ("http_html_502", "overloaded", "http.502"),
    ("json_401", "auth_failed", "gemini.exit.145"),
    ("json_529", "overloaded", "gemini.kind.capacity"),
    ("json_ok", "completed", "exit.success"),
    ("max_tokens", "completed", "result.success"),
    ("net_trace", "completed", "result.success"),
    ("norelaunch_sigkill", "cancelled", "ended.stop"),
    ("norelaunch_sigterm", "cancelled", "ended.stop"),
    ("ok_edit", "completed", "result.success"),
    ("ping_stall", "silent_hang", "ended.silence"),
    ("refusal", "completed", "result.success"),
    ("refused_port", "network_down", "gemini.text.network"),
    ("reset_mid", "network_down", "gemini.text.network"),
    ("session_first", "completed", "result.success"),
    ("session_id_reused", "not_runnable", "gemini.exit.42"),
    ("session_killed", "crashed", "exit.signal"),
    ("session_resume", "completed", "result.success"),
    ("sigint_tool", "cancelled", "ended.stop"),
    ("sigkill_group", "cancelled", "ended.stop"),
    ("sigkill_stream", "cancelled", "ended.stop"),
    ("sigterm_group", "cancelled", "ended.stop"),
    ("sigterm_stream", "cancelled", "ended.stop"),
    ("sse_error", "network_down", "gemini.text.network"),
    ("stall_mid", "silent_hang", "ended.silence"),
    ("stdin_devnull_argv_prompt", "completed", "result.success"),
    ("stdin_empty", "not_runnable", "gemini.exit.42"),
    ("stdin_open_argv_prompt", "completed", "result.success"),
    ("text_ok", "completed", "exit.success"),
    ("tool_bgjob", "completed", "result.success"),
    ("tool_daemon", "completed", "result.success"),
];

const OPENCODE: &[Row] = &[
    ("bad_tool", "completed", "result.success"),
    ("cut_mid", "network_down", "opencode.text.network"),
    ("drop_conn", "network_down", "opencode.text.network"),
    ("garbage", "overloaded", "opencode.text.garbage"),
    ("hang_headers", "timed_out", "ended.total"),
    ("http_400_toolong", "context_overflow", "opencode.kind.context"),
    ("http_401", "auth_failed", "codex.kind.auth"),
    ("http_429_date", "rate_limited", "codex.kind.rate_limit"),
    ("http_429_long", "timed_out", "ended.total"),
    ("max_tokens", "truncated", "opencode.kind.max_output"),
    ("no_key", "completed", "result.success"),
    ("ok_edit", "completed", "result.success"),
    ("refusal", "refused", "opencode.kind.refused"),
    ("refused_port", "network_down", "opencode.text.network"),
    ("reset_mid", "network_down", "opencode.text.network"),
    ("session_first", "completed", "result.success"),
    ("session_killed", "crashed", "exit.signal"),
    ("session_resume", "completed", "result.success"),
    ("session_resume_unknown", "unknown", "opencode.resume.not_found"),
    ("sigint_stream", "cancelled", "ended.stop"),
    ("sigkill_tool", "cancelled", "ended.stop"),
    ("sigterm_stream", "cancelled", "ended.stop"),
    ("slow_drip", "completed", "result.success"),
    ("sse_error", "overloaded", "claude.kind.overloaded"),
    ("stdin_empty", "not_runnable", "opencode.text.arguments"),
    ("stdin_prompt", "completed", "result.success"),
    ("tool_daemon", "completed", "result.success"),
];

const CLINE: &[Row] = &[
    ("bad_tool", "completed", "result.success"),
    ("cl_hub", "completed", "result.success"),
    ("cl_retries", "overloaded", "cline.text.overloaded"),
    ("cl_timeout", "silent_hang", "ended.silence"),
    ("cut_mid", "network_down", "cline.text.network"),
    ("drop_conn", "network_down", "cline.text.network"),
    ("empty", "empty", "cline.text.empty"),
    ("garbage", "overloaded", "cline.text.overloaded"),
    ("hang_headers", "silent_hang", "ended.silence"),
    ("http_400_toolong", "context_overflow", "cline.kind.context"),
    ("http_401", "auth_failed", "cline.kind.auth"),
    ("http_403", "auth_failed", "cline.kind.auth"),
    ("http_404_model", "model_unavailable", "cline.text.model"),
    ("http_429_date", "rate_limited", "claude.text.rate_limit"),
    ("http_429_long", "rate_limited", "claude.text.rate_limit"),
    ("http_429_none", "rate_limited", "codex.text.rate_limit"),
    ("http_429_once", "completed", "result.success"),
    ("http_429_s", "rate_limited", "claude.text.rate_limit"),
    ("max_tokens", "truncated", "cline.text.max_output"),
    ("ok_edit", "completed", "result.success"),
    ("refusal", "completed", "result.success"),
    ("refused_port", "network_down", "cline.text.network"),
    ("session_resume", "not_runnable", "cline.text.arguments"),
    ("session_resume_after_kill", "not_runnable", "cline.text.arguments"),
    ("session_resume_stdin", "not_runnable", "cline.text.arguments"),
    ("sigint_stream", "cancelled", "ended.stop"),
    ("sigkill_stream", "cancelled", "ended.stop"),
    ("sigterm_group", "cancelled", "ended.stop"),
    ("sigterm_stream", "cancelled", "ended.stop"),
    ("sigterm_tool", "cancelled", "ended.stop"),
    ("sse_error", "overloaded", "cline.text.overloaded"),
    ("stall_mid", "silent_hang", "ended.silence"),
    ("stdin_devnull_argv_prompt", "completed", "result.success"),
    ("stdin_open_argv_prompt", "timed_out", "ended.total"),
    ("stdin_prompt", "not_runnable", "cline.text.arguments"),
    ("tool_daemon", "completed", "result.success"),
    ("truncate_mid", "network_down", "cline.text.network"),
];

const AIDER: &[Row] = &[
    ("ai_seeded", "completed", "exit.success"),
    ("ai_stream_ok", "completed", "exit.success"),
    ("cut_mid", "network_down", "aider.litellm.network"),
    ("drop_conn", "network_down", "aider.litellm.network"),
    ("http_400_toolong", "context_overflow", "aider.litellm.context"),
    ("http_401", "auth_failed", "aider.litellm.auth"),
    ("http_404_model", "model_unavailable", "aider.litellm.model"),
    ("http_429_once", "completed", "exit.success"),
    ("http_429_s", "rate_limited", "claude.text.rate_limit"),
    ("http_500", "overloaded", "aider.litellm.overloaded"),
    ("http_529", "overloaded", "aider.litellm.overloaded"),
    ("no_key", "auth_failed", "aider.litellm.auth"),
    ("ok_edit", "completed", "exit.success"),
    ("refusal", "completed", "exit.success"),
    ("refused_port", "network_down", "aider.litellm.network"),
    ("sigint_stream", "cancelled", "ended.stop"),
    ("sigkill_stream", "cancelled", "ended.stop"),
    ("sigterm_stream", "cancelled", "ended.stop"),
];

/// The same runs when the signal did not come from us: never a success, never a limit.
const NOT_BY_US: &[(&str, &str, &str)] = &[
    ("claude-2.1.332", "sigint_stream", "crashed"),
    ("claude-2.1.332", "sigint_tool", "truncated"),
    ("claude-2.1.332", "sigkill_group", "crashed"),
    ("claude-2.1.332", "sigkill_tool", "crashed"),
    ("claude-2.1.332", "sigterm_stream", "crashed"),
    ("claude-2.1.332", "sigterm_tool", "crashed"),
    ("codex-0.171.0", "nat_sigint_stream", "truncated"),
    ("codex-0.171.0", "nat_sigkill_stream", "crashed"),
    ("codex-0.171.0", "nat_sigkill_tool", "crashed"),
    ("codex-0.171.0", "nat_sigterm_stream", "crashed"),
    ("codex-0.171.0", "nat_sigterm_tool", "crashed"),
    ("codex-0.171.0", "sigint_tool", "truncated"),
    ("codex-0.171.0", "sigkill_stream", "crashed"),
    ("codex-0.171.0", "sigterm_stream", "crashed"),
    ("codex-0.171.0", "sigterm_tool", "crashed"),
    ("gemini-0.61.0", "norelaunch_sigkill", "crashed"),
    ("gemini-0.61.0", "norelaunch_sigterm", "truncated"),
    ("gemini-0.61.0", "sigkill_stream", "crashed"),
    ("gemini-0.61.0", "sigterm_group", "truncated"),
    ("opencode-1.18.33", "sigkill_tool", "crashed"),
    ("opencode-1.18.33", "sigterm_stream", "crashed"),
    ("cline-3.0.65", "sigint_stream", "truncated"),
    ("cline-3.0.65", "sigterm_tool", "crashed"),
    ("aider-0.86.2", "sigkill_stream", "crashed"),
];

/// A recorded run.
struct Capture {
    folder: PathBuf,
    meta: Meta,
}

#[derive(Deserialize)]
struct Meta {
    argv: Vec<String>,
    exit_code: Option<i32>,
    killed_by_signal: Option<i32>,
    hit_bound: Option<bool>,
    bound_s: Option<f64>,
    /// The signal that the recorder sent.
    signal: Option<serde_json::Value>,
    stdout_t: Option<Vec<f64>>,
    #[serde(default)]
    git_status: String,
}

/// Longer without a line: the recorder's bound stands for our silence limit.
const SILENT_SECONDS: f64 = 100.0;

// === impl Capture ===

impl Capture {
    fn load(cli: &str, scenario: &str) -> Self {
        let folder =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/cli").join(cli).join(scenario);
        let meta = fs::read(folder.join("meta.json")).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        Capture { meta: serde_json::from_slice(&meta).unwrap(), folder }
    }

    fn exit(&self) -> Exit {
        match (self.meta.killed_by_signal, self.meta.exit_code) {
            (Some(signal), _) => Exit::Signal(signal),
            (None, Some(code)) if code < 0 => Exit::Signal(-code),
            (None, code) => Exit::Code(code.unwrap()),
        }
    }

    fn end(&self) -> CallEnd {
        let last = self.meta.stdout_t.as_ref().and_then(|times| times.last().copied());
        let silent = last.is_some_and(|last| self.meta.bound_s.unwrap_or(0.0) - last > SILENT_SECONDS);
        let ended_by = match (&self.meta.signal, self.meta.hit_bound.unwrap_or(false)) {
            (Some(_), _) => Some(OurReason::Stop),
            (None, true) if silent => Some(OurReason::Silence),
            (None, true) => Some(OurReason::Total),
            (None, false) => None,
        };
        CallEnd { exit: Ok(self.exit()), ended_by }
    }

    fn changed(&self) -> bool {
        !self.meta.git_status.trim().is_empty()
    }

    /// The definition, as text where the run was asked for text.
    fn definition(&self, definition: &Definition) -> Definition {
        let mut definition = definition.clone();
        let asked = |pair: &[String]| {
            ["--output-format", "-o"].contains(&pair[0].as_str())
                && ["text", "json"].contains(&pair[1].as_str())
        };
        // A whole JSON document is no format of ours: the exit code is all there is.
        if self.meta.argv.windows(2).any(asked) && definition.name != "claude"
            || self.meta.argv.windows(2).any(|pair| pair == ["--output-format", "text"])
        {
            definition.output = OutputFormat::Text;
        }
        definition
    }

    fn decode(&self, definition: &Definition, options: DecoderOptions) -> (Transcript, Vec<Fact>) {
        let mut decoder = decoder(definition.output, options).unwrap();
        for (stream, name) in [(Stream::Stderr, "stderr"), (Stream::Stdout, "stdout")] {
            let bytes = fs::read(self.folder.join(name)).unwrap();
            for line in bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
                decoder.line(stream, line, false);
            }
        }
        let facts = decoder.facts();
        (decoder.finish(&self.end()), facts)
    }

    fn judge(&self, definition: &Definition, end: &CallEnd) -> Verdict {
        let definition = self.definition(definition);
        let (transcript, _) = self.decode(&definition, DecoderOptions::default());
        classify(&definition, &transcript, end, self.changed(), &now())
    }
}

fn now() -> ZonedDateTime {
    "2026-11-30T20:00:00Z".parse::<Timestamp>().unwrap().to_zoned_datetime(TimeZone::UTC)
}

fn check(name: &str, cli: &str, table: &[Row]) {
    let registry = Registry::load(&[]).unwrap();
    let definition = registry.get(name).unwrap();
    let mut recorded: Vec<String> =
        fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/cli").join(cli))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
    recorded.sort();
    assert_eq!(recorded, table.iter().map(|row| row.0).collect::<Vec<_>>(), "each recorded run has one row");

    let mut wrong = Vec::new();
    for (scenario, outcome, rule) in table {
        let capture = Capture::load(cli, scenario);
        let verdict = capture.judge(definition, &capture.end());
        if (verdict.outcome.name(), verdict.rule.as_str()) != (*outcome, *rule) {
            wrong.push(format!("{scenario}: expected {outcome} by {rule}, is {verdict:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn claude() {
    check("claude", "claude-2.1.332", CLAUDE);
}

#[test]
fn codex() {
    check("codex", "codex-0.171.0", CODEX);
}

#[test]
fn gemini() {
    check("gemini", "gemini-0.61.0", GEMINI);
}

#[test]
fn opencode() {
    check("opencode", "opencode-1.18.33", OPENCODE);
}

#[test]
fn cline() {
    check("cline", "cline-3.0.65", CLINE);
}

#[test]
fn aider() {
    check("aider", "aider-0.86.2", AIDER);
}

#[test]
fn killed_by_somebody_else() {
    let registry = Registry::load(&[]).unwrap();
    for (cli, scenario, outcome) in NOT_BY_US {
        let capture = Capture::load(cli, scenario);
        let definition = registry.get(cli.split('-').next().unwrap()).unwrap();
        let verdict = capture.judge(definition, &CallEnd::exited(capture.exit()));
        assert_eq!(verdict.outcome.name(), *outcome, "{cli} {scenario}: {verdict:?}");
    }
}

fn transcript(name: &str, cli: &str, scenario: &str, options: DecoderOptions) -> (Transcript, Vec<Fact>) {
    let registry = Registry::load(&[]).unwrap();
    Capture::load(cli, scenario).decode(registry.get(name).unwrap(), options)
}

fn of_claude(scenario: &str) -> (Transcript, Vec<Fact>) {
    transcript("claude", "claude-2.1.332", scenario, DecoderOptions::default())
}

#[test]
fn claude_tells_usage_and_progress() {
    let (transcript, facts) = of_claude("ok_edit");
    let id = "00000000-0000-4000-8000-000000000001".to_owned();
    assert_eq!(transcript.conversation, Some(id.clone()));
    assert_eq!(transcript.model.as_deref(), Some("claude-sonnet-4-5"));
    assert_eq!(transcript.answer, "Created hello.txt as asked. All done.");
    assert_eq!(transcript.tools_used, 1);
    let usage = Usage {
        input_tokens: Some(3700),
        output_tokens: Some(55),
        cache_read_tokens: Some(1000),
        cache_write_tokens: Some(0),
        cost_usd: Some(0.012225),
    };
    assert_eq!(transcript.usage, usage);
    assert_eq!(transcript.counts.not_json, 0);
    assert_eq!(
        facts,
        [
            Fact::FirstOutput,
            Fact::Conversation(id),
            Fact::Model("claude-sonnet-4-5".into()),
            Fact::Said("I will create the file.".into()),
            Fact::Tool("Write".into()),
            Fact::Said("Created hello.txt as asked. All done.".into()),
            Fact::Terminal,
        ]
    );
}

#[test]
fn claude_counts_a_failed_calls_spending_too() {
    let (transcript, _) = of_claude("max_budget");
    assert_eq!((transcript.usage.input_tokens, transcript.usage.output_tokens), (Some(100_000), Some(1000)));
    assert!((transcript.usage.cost_usd.unwrap() - 0.315).abs() < 1e-9);
    // Four results in one process: the parts add up to the last total.
    let (transcript, _) = of_claude("stream_json_input");
    assert!((transcript.usage.cost_usd.unwrap() - 0.015975).abs() < 1e-9);
    assert_eq!(transcript.total_cost_usd, Some(0.015975));
}

#[test]
fn a_killed_call_has_no_usage() {
    assert_eq!(of_claude("sigkill_tool").0.usage, Usage::default());
}

#[test]
fn claude_says_which_tools_were_refused() {
    for (scenario, tool) in [("perm_default", "Write"), ("perm_shell", "Bash")] {
        let registry = Registry::load(&[]).unwrap();
        let capture = Capture::load("claude-2.1.332", scenario);
        let verdict = capture.judge(registry.get("claude").unwrap(), &capture.end());
        assert_eq!(
            verdict.outcome,
            Outcome::Completed { changed: false, claims_done: false, denied: vec![tool.to_owned()] }
        );
        assert!(of_claude(scenario).1.contains(&Fact::Denied(tool.to_owned())));
    }
}

#[test]
fn a_rejected_window_resets_when_its_notice_says() {
    for scenario in ["oauth_usage_limit", "oauth_weekly_limit"] {
        let (transcript, _) = of_claude(scenario);
        let told = transcript.limit.and_then(|notice| notice.resets_at);
        assert!(told.is_some(), "{scenario}");
        let registry = Registry::load(&[]).unwrap();
        let capture = Capture::load("claude-2.1.332", scenario);
        let verdict = capture.judge(registry.get("claude").unwrap(), &capture.end());
        assert_eq!(verdict.outcome, Outcome::UsageLimited { until: told }, "{scenario}");
    }
    let (transcript, facts) = of_claude("oauth_usage_warning");
    assert_eq!(transcript.limit, None, "a warning blocks nothing");
    let warned = |fact: &Fact| matches!(fact, Fact::Limit(notice) if !notice.rejected && notice.utilization == Some(0.92));
    assert!(facts.iter().any(warned));
}

#[test]
fn codex_tells_usage_without_cached_tokens_and_rates_in_words() {
    let (transcript, facts) =
        transcript("codex", "codex-0.171.0", "http_429_once", DecoderOptions::default());
    assert_eq!(transcript.usage.input_tokens, Some(2700));
    assert_eq!(transcript.usage.cache_read_tokens, Some(1000));
    assert_eq!(transcript.usage.cost_usd, None, "unknown is not 0");
    assert!(facts.iter().any(|fact| matches!(fact, Fact::Retrying { attempt: 1, .. })));
    assert!(facts.contains(&Fact::Tool("command_execution".into())));

    let registry = Registry::load(&[]).unwrap();
    let capture = Capture::load("codex-0.171.0", "cx_rate_failed");
    let verdict = capture.judge(registry.get("codex").unwrap(), &capture.end());
    let until = now().timestamp().checked_add(jiff::SignedDuration::from_millis(3054)).unwrap();
    assert_eq!(verdict.outcome, Outcome::RateLimited { until: Some(until) });
}

#[test]
fn a_lost_conversation_is_dropped() {
    let registry = Registry::load(&[]).unwrap();
    for (name, cli) in [("claude", "claude-2.1.332"), ("codex", "codex-0.171.0")] {
        let definition = registry.get(name).unwrap();
        let capture = Capture::load(cli, "session_resume_unknown");
        let verdict = capture.judge(definition, &capture.end());
        assert!(definition.drops_conversation(&verdict.rule), "{verdict:?}");
        let capture = Capture::load(cli, "ok_edit");
        assert!(!definition.drops_conversation(&capture.judge(definition, &capture.end()).rule));
    }
}
