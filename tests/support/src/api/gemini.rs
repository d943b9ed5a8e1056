//! Gemini's generateContent: the chunks of a streamed answer, as the service sends them with `alt=sse`.

use serde_json::{Value, json};

use super::{Answer, Turn, tools};

pub(super) fn answer(turn: &Turn, request: &Value, number: usize) -> Answer {
    let usage = json!({"promptTokenCount": turn.usage.input, "candidatesTokenCount": turn.usage.output,
        "totalTokenCount": turn.usage.input + turn.usage.output, "cachedContentTokenCount": turn.usage.cached});
    let chunk = |parts: &[Value], finish: Option<&str>| {
        let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
        if let Some(finish) = finish {
            candidate["finishReason"] = json!(finish);
        }
        json!({"candidates": [candidate], "usageMetadata": usage, "modelVersion": "fake-model",
            "responseId": format!("resp_fake{number:06}")})
    };
    let mut events = Vec::new();
    let mut parts = Vec::new();
    for word in turn.text.split_inclusive(' ') {
        events.push(chunk(&[json!({"text": word})], None));
    }
    if !turn.text.is_empty() {
        parts.push(json!({"text": turn.text}));
    }
    for call in tools::calls(turn, request) {
        let part = json!({"functionCall": {"name": call.name, "args": call.input}});
        events.push(chunk(std::slice::from_ref(&part), None));
        parts.push(part);
    }
    events.push(chunk(&[json!({"text": ""})], Some("STOP")));
    let whole = chunk(&parts, Some("STOP"));
    Answer { events: events.into_iter().map(|data| (String::new(), data)).collect(), whole }
}
