//! Anthropic Messages: the events of a streamed answer, in the order in which the service sends them.

use serde_json::{Value, json};

use super::{Answer, Turn, tools};

pub(super) fn answer(turn: &Turn, request: &Value, number: usize) -> Answer {
    let calls = tools::calls(turn, request);
    let stop = if calls.is_empty() { "end_turn" } else { "tool_use" };
    let usage = |output: u64| {
        json!({"input_tokens": turn.usage.input, "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": turn.usage.cached, "output_tokens": output, "service_tier": "standard"})
    };
    let message = |content: &[Value], stop: Value, output: u64| {
        json!({"id": format!("msg_fake{number:06}"), "type": "message", "role": "assistant",
            "model": request["model"], "content": content, "stop_reason": stop, "stop_sequence": null,
            "usage": usage(output)})
    };
    let mut events = vec![];
    let mut event = |data: Value| {
        let name = data["type"].as_str().unwrap_or_default().to_owned();
        events.push((name, data));
    };
    let mut content = vec![];
    event(json!({"type": "message_start", "message": message(&[], Value::Null, 1)}));
    if !turn.text.is_empty() {
        event(
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        );
        event(json!({"type": "ping"}));
        for part in turn.text.split_inclusive(' ') {
            event(
                json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": part}}),
            );
        }
        event(json!({"type": "content_block_stop", "index": 0}));
        content.push(json!({"type": "text", "text": turn.text}));
    }
    for call in calls {
        let (index, id) = (content.len(), format!("toolu_fake{number:06}{:02}", content.len()));
        let block = |input: &Value| json!({"type": "tool_use", "id": id, "name": call.name, "input": input});
        event(json!({"type": "content_block_start", "index": index, "content_block": block(&json!({}))}));
        let delta = json!({"type": "input_json_delta", "partial_json": call.input.to_string()});
        event(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        event(json!({"type": "content_block_stop", "index": index}));
        content.push(block(&call.input));
    }
    let output = turn.usage.output;
    event(json!({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": null},
        "usage": {"output_tokens": output}}));
    event(json!({"type": "message_stop"}));
    Answer { events, whole: message(&content, json!(stop), output) }
}
