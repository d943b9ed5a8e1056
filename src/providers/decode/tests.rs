//! Streams that misbehave.

use proptest::prelude::*;

use super::*;
use crate::domain::claim::Claim;
use crate::domain::outcome::{Exit, Usage};

fn decode(format: OutputFormat, lines: &[&[u8]]) -> Transcript {
    decode_with(format, lines, DecoderOptions::default())
}

fn decode_with(format: OutputFormat, lines: &[&[u8]], options: DecoderOptions) -> Transcript {
    let mut decoder = decoder(format, options).unwrap();
    for line in lines {
        decoder.line(Stream::Stdout, line, false);
    }
    decoder.finish(&CallEnd::exited(Exit::Code(0)))
}

fn claude(lines: &[&[u8]]) -> Transcript {
    decode(OutputFormat::ClaudeStreamJson, lines)
}

fn codex(lines: &[&[u8]]) -> Transcript {
    decode(OutputFormat::CodexJsonl, lines)
}

const SUCCESS: &[u8] = br#"{"type":"result","subtype":"success","is_error":false,"result":"done"}"#;

#[test]
fn b08_a_lone_surrogate_costs_nothing_but_itself() {
    let said = br#"{"type":"assistant","message":{"content":[{"type":"text","text":"x\ud82d y"}]}}"#;
    let result = br#"{"type":"result","is_error":false,"result":"cut \ud83d\nLONGHAUL_DONE"}"#;
    let transcript = claude(&[said, result]);
    assert_eq!(transcript.terminal, Some(Terminal::Success));
    assert_eq!(transcript.answer, "cut \u{fffd}\nLONGHAUL_DONE");
    assert_eq!(transcript.reading.claim, Some(Claim::Done));
    assert_eq!(transcript.counts.not_json, 0);
    let transcript = codex(&[
        br#"{"type":"item.completed","item":{"type":"agent_message","text":"\udc00!"}}"#,
        br#"{"type":"turn.completed","usage":{"input_tokens":1,"output_tokens":2}}"#,
    ]);
    assert_eq!((transcript.answer.as_str(), transcript.terminal), ("\u{fffd}!", Some(Terminal::Success)));
    // Even in a key.
    let transcript = claude(&[br#"{"\ud800":1,"type":"result","is_error":false,"result":"ok"}"#]);
    assert_eq!(transcript.terminal, Some(Terminal::Success));
}

#[test]
fn b07_bytes_that_are_not_utf8_do_not_poison_what_follows() {
    let transcript = claude(&[
        b"ok1",
        b"\xff\xfebad",
        b"{\"type\":\"user\",\"message\":{\"content\":\"\xff\xfe\"}}",
        b"{\"type\":\"result\",\"is_error\":false,\"result\":\"caf\xe9\"}",
    ]);
    assert_eq!(transcript.answer, "caf\u{fffd}");
    assert_eq!(transcript.stdout, ["ok1", "\u{fffd}\u{fffd}bad"]);
    assert_eq!((transcript.counts.not_json, transcript.counts.events), (2, 2));
}

#[test]
fn b04_an_over_long_line_is_one_marker_and_never_an_event() {
    for format in [OutputFormat::ClaudeStreamJson, OutputFormat::CodexJsonl, OutputFormat::Text] {
        let mut decoder = decoder(format, DecoderOptions::default()).unwrap();
        // A head that would be valid JSON.
        decoder.line(Stream::Stdout, SUCCESS, true);
        decoder.line(Stream::Stdout, br#"{"type":"turn.completed"}"#, true);
        let transcript = decoder.finish(&CallEnd::exited(Exit::Code(0)));
        assert_eq!(transcript.counts.over_long, 2);
        assert_eq!((transcript.terminal, transcript.counts.events), (None, 0));
    }
}

#[test]
fn nesting_without_end_is_passed_over() {
    let deep = [
        b"{\"type\":\"user\",\"message\":".to_vec(),
        vec![b'['; 2_000_000],
        vec![b']'; 2_000_000],
        b"}".to_vec(),
    ]
    .concat();
    let open = [b"{\"type\":\"user\",\"message\":".to_vec(), vec![b'['; 2_000_000]].concat();
    let within = [
        b"{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"tool_use\",\"name\":\"Bash\",\"input\":".to_vec(),
        vec![b'['; 5000],
        vec![b']'; 5000],
        b"}]}}".to_vec(),
    ]
    .concat();
    let transcript = claude(&[&deep, &open, &within, SUCCESS]);
    assert_eq!((transcript.counts.events, transcript.counts.not_json, transcript.tools_used), (3, 1, 1));
    assert_eq!(transcript.terminal, Some(Terminal::Success));
}

#[test]
fn the_type_may_stand_anywhere_and_shapes_may_be_odd() {
    let last =
        br#"{"is_error":false,"result":"done","usage":{"nested":{"type":"assistant"}},"type":"result"}"#;
    assert_eq!(claude(&[last]).terminal, Some(Terminal::Success));
    for odd in [
        &br#"{"type":"assistant","message":"words"}"#[..],
        br#"{"type":"assistant","message":{"content":"words"}}"#,
        br#"{"type":"assistant","message":{"content":[1,null,"x"]}}"#,
        br#"{"type":"assistant"}"#,
        br#"{"type":"user","message":17}"#,
        br#"{"type":"system","subtype":{"a":1},"session_id":5}"#,
        br#"{"type":"rate_limit_event","rate_limit_info":"x"}"#,
        br#"{"type":"something_new","payload":{}}"#,
        br#"{"type":"item.completed","item":{"type":"new_kind"}}"#,
        br#"{"type":"item.completed","item":[]}"#,
        br#"{"type":"turn.started","usage":null}"#,
    ] {
        for format in [OutputFormat::ClaudeStreamJson, OutputFormat::CodexJsonl] {
            let transcript = decode(format, &[odd]);
            assert_eq!(
                (transcript.counts.events, transcript.counts.not_json),
                (1, 0),
                "{}",
                odd.escape_ascii()
            );
            assert_eq!(transcript.terminal, None);
        }
    }
    for no_event in [&b"[1,2]"[..], b"17", b"null", b"{}", br#"{"type":7}"#, b"plain words", b"{\"type\""] {
        let transcript = claude(&[no_event]);
        assert_eq!(
            (transcript.counts.events, transcript.counts.not_json),
            (0, 1),
            "{}",
            no_event.escape_ascii()
        );
        assert_eq!(transcript.stdout.len(), 1);
    }
}

#[test]
fn costs_are_this_calls_alone() {
    let result =
        |fields: &str| format!(r#"{{"type":"result","is_error":false,"result":"x",{fields}}}"#).into_bytes();
    let cost = |fields: &str, previous| {
        let options = DecoderOptions { previous_total_usd: previous };
        let transcript = decode_with(OutputFormat::ClaudeStreamJson, &[&result(fields)], options);
        (transcript.usage.cost_usd.map(|usd| (usd * 1e5).round() as u64), transcript.total_cost_usd)
    };
    // The total runs over a resumed conversation: take the difference.
    assert_eq!(cost(r#""total_cost_usd":0.00822"#, Some(0.00411)), (Some(411), Some(0.00822)));
    assert_eq!(cost(r#""total_cost_usd":0.00411"#, None), (Some(411), Some(0.00411)));
    // After a killed call it started anew.
    assert_eq!(cost(r#""total_cost_usd":0.00411"#, Some(0.5)), (Some(411), Some(0.00411)));
    // Its own share is better than any difference; several models add up.
    let share = r#""total_cost_usd":9.0,"model_usage_since_last_result":{"a":{"costUSD":0.001,"inputTokens":1},"b":{"costUSD":0.002,"outputTokens":2}}"#;
    assert_eq!(cost(share, Some(8.0)), (Some(300), Some(9.0)));
    assert_eq!(cost(r#""num_turns":1"#, Some(8.0)), (None, None));
    assert_eq!(cost(r#""total_cost_usd":-1.0"#, None), (None, Some(-1.0)));
}

#[test]
fn unknown_tokens_are_not_zero() {
    assert_eq!(claude(&[SUCCESS]).usage, Usage::default());
    assert_eq!(codex(&[br#"{"type":"turn.completed"}"#]).usage, Usage::default());
}

#[test]
fn memory_and_facts_stay_bounded_however_long_the_stream() {
    let said = format!(
        r#"{{"type":"assistant","message":{{"content":[{{"type":"text","text":"{}"}},{{"type":"tool_use","name":"Bash"}}]}}}}"#,
        "é".repeat(5000)
    );
    for (format, line) in [
        (OutputFormat::ClaudeStreamJson, said.as_str()),
        (OutputFormat::CodexJsonl, r#"{"type":"item.started","item":{"type":"command_execution"}}"#),
        (OutputFormat::Text, "a line of text"),
    ] {
        let mut decoder = decoder(format, DecoderOptions::default()).unwrap();
        for _ in 0..2000 {
            decoder.line(Stream::Stdout, line.as_bytes(), false);
            decoder.line(Stream::Stdout, b"no event", false);
            decoder.line(Stream::Stderr, b"noise", false);
        }
        decoder.line(Stream::Stdout, br#"{"type":"result","is_error":false}"#, false);
        decoder.line(Stream::Stdout, br#"{"type":"turn.completed"}"#, false);
        let facts = decoder.facts();
        assert!(facts.len() <= FACTS_MAX);
        assert_eq!(
            facts.contains(&Fact::Terminal),
            format.has_terminal_event(),
            "{format:?}: it must not be lost"
        );
        let long = |fact: &Fact| matches!(fact, Fact::Said(text) if text.len() > SAID_MAX);
        assert!(!facts.iter().any(long));
        assert_eq!(decoder.facts(), []);
        let transcript = decoder.finish(&CallEnd::exited(Exit::Code(0)));
        assert!(transcript.stdout.len() <= 64 && transcript.stderr.len() <= 64);
    }
}

#[test]
fn a_huge_answer_keeps_its_end_and_its_claim() {
    let text = format!("LONGHAUL_DONE\\n{}end", "x".repeat(2 * ANSWER_MAX));
    let line = format!(r#"{{"type":"result","is_error":false,"result":"{text}"}}"#);
    let transcript = claude(&[line.as_bytes()]);
    assert_eq!(transcript.answer.len(), ANSWER_MAX);
    assert!(transcript.answer.ends_with("end"));
    assert_eq!(transcript.reading.claim, Some(Claim::Done));
}

#[test]
fn codex_reads_error_bodies_and_status_out_of_words() {
    let failed = |message: &str| {
        let event = serde_json::json!({"type": "turn.failed", "error": {"message": message}}).to_string();
        match codex(&[event.as_bytes()]).terminal {
            Some(Terminal::Failure(error)) => error,
            other => panic!("{other:?}"),
        }
    };
    let body = failed(r#"{"error":{"message":"too much","type":"tokens","code":"rate_limit_exceeded"}}"#);
    assert_eq!(
        (body.message.as_str(), body.kinds.join(",").as_str()),
        ("too much", "rate_limit_exceeded,tokens")
    );
    assert_eq!(failed("unexpected status 529 <unknown status code>: Overloaded").status, Some(529));
    assert_eq!(failed("exceeded retry limit, last status: 429 Too Many Requests").status, Some(429));
    assert_eq!(failed("unexpected status of things").status, None);
    assert_eq!(failed("unexpected status é29").status, None);
    let event = br#"{"type":"error","status":400,"error":{"type":"invalid_request_error","message":"no such model"}}"#;
    let error = codex(&[event]).pending_error.unwrap();
    assert_eq!((error.status, error.message.as_str(), error.retrying), (Some(400), "no such model", false));
}

proptest! {
    /// Any bytes, in any cut: no panic, everything counted, and a result at the end is found.
    #[test]
    fn any_bytes_are_survived(
        lines in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..12),
        json in prop::collection::vec("\\{\"type\":\"(assistant|user|result|system|error|item.completed)\",\"[a-z_]{1,12}\":[\\[\\]{}\",:a-z0-9\\\\u]{0,30}\\}", 0..6),
    ) {
        for (format, last) in [
            (OutputFormat::GeminiStreamJson, &br#"{"type":"result","status":"success"}"#[..]),
            (OutputFormat::OpencodeJson, br#"{"type":"step_finish","part":{"reason":"stop"}}"#),
            (OutputFormat::ClineJson, br#"{"type":"run_result","finishReason":"completed","text":""}"#),
            (OutputFormat::ClaudeStreamJson, SUCCESS),
            (OutputFormat::CodexJsonl, &br#"{"type":"turn.completed"}"#[..]),
            (OutputFormat::Text, &b"done"[..]),
        ] {
            let mut decoder = decoder(format, DecoderOptions::default()).unwrap();
            let all: Vec<&[u8]> = lines.iter().map(Vec::as_slice).chain(json.iter().map(String::as_bytes)).collect();
            for line in &all {
                decoder.line(Stream::Stdout, line, false);
                decoder.line(Stream::Stderr, line, false);
            }
            decoder.line(Stream::Stdout, last, false);
            decoder.facts();
            let transcript = decoder.finish(&CallEnd::exited(Exit::Code(0)));
            prop_assert_eq!(transcript.counts.stdout_lines, all.len() as u64 + 1);
            match format {
                OutputFormat::Text => prop_assert_eq!(transcript.answer, "done"),
                _ => prop_assert_eq!(transcript.terminal, Some(Terminal::Success)),
            }
        }
    }
}
