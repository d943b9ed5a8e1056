//! OpenAI Responses: the events of a streamed answer, in the order in which the service sends them.

use serde_json::{Value, json};

use super::tools::{self, ToolCall};
use super::{Answer, Turn};

pub(super) fn answer(turn: &Turn, request: &Value, number: usize) -> Answer {
    let response = |status: &str, output: &[Value], usage: Value| {
        json!({"id": format!("resp_fake{number:06}"), "object": "response", "created_at": 1_790_000_000,
            "status": status, "model": request["model"], "output": output, "error": null,
            "incomplete_details": null, "usage": usage})
    };
    let mut events: Vec<(String, Value)> = vec![];
    let mut event = |kind: &str, mut data: Value| {
        data["type"] = json!(kind);
        data["sequence_number"] = json!(events.len());
        events.push((kind.to_owned(), data));
    };
    let mut output = vec![];
    let started = json!({"response": response("in_progress", &[], Value::Null)});
    event("response.created", started.clone());
    event("response.in_progress", started);
    if !turn.text.is_empty() {
        let id = format!("msg_fake{number:06}");
        let item = |status: &str, content: Value| json!({"id": id, "type": "message", "status": status, "role": "assistant", "content": content});
        let part = json!({"type": "output_text", "text": turn.text, "annotations": []});
        event(
            "response.output_item.added",
            json!({"output_index": 0, "item": item("in_progress", json!([]))}),
        );
        let empty = json!({"type": "output_text", "text": "", "annotations": []});
        event(
            "response.content_part.added",
            json!({"item_id": id, "output_index": 0, "content_index": 0, "part": empty}),
        );
        for word in turn.text.split_inclusive(' ') {
            event(
                "response.output_text.delta",
                json!({"item_id": id, "output_index": 0, "content_index": 0, "delta": word}),
            );
        }
        event(
            "response.output_text.done",
            json!({"item_id": id, "output_index": 0, "content_index": 0, "text": turn.text}),
        );
        let whole = item("completed", json!([part]));
        event("response.output_item.done", json!({"output_index": 0, "item": whole}));
        output.push(whole);
    }
    for call in tools::calls(turn, request) {
        let index = output.len();
        let item = item_of(&call, &format!("fake{number:06}{index:02}"));
        event("response.output_item.added", json!({"output_index": index, "item": item}));
        event("response.output_item.done", json!({"output_index": index, "item": item}));
        output.push(item);
    }
    let usage = json!({"input_tokens": turn.usage.input, "input_tokens_details": {"cached_tokens": turn.usage.cached},
        "output_tokens": turn.usage.output, "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": turn.usage.input + turn.usage.output});
    let whole = response("completed", &output, usage);
    event("response.completed", json!({"response": whole}));
    Answer { events, whole }
}

fn item_of(call: &ToolCall, id: &str) -> Value {
    if let Some(text) = &call.free_text {
        return json!({"id": format!("ctc_{id}"), "type": "custom_tool_call", "status": "completed",
            "call_id": format!("call_{id}"), "name": call.name, "input": text});
    }
    if call.name == "local_shell" {
        return json!({"id": format!("lsc_{id}"), "type": "local_shell_call", "status": "completed",
            "call_id": format!("call_{id}"), "action": {"type": "exec", "command": call.input["command"], "env": {}}});
    }
    json!({"id": format!("fc_{id}"), "type": "function_call", "status": "completed",
        "call_id": format!("call_{id}"), "name": call.name, "arguments": call.input.to_string()})
}
