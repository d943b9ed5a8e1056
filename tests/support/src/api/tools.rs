//! From what the script asks for to the tools that a client offers.

use serde_json::{Value, json};

use super::{Call, Turn};

/// Tools that write a file, best first.
const WRITERS: [&str; 3] = ["Write", "write_file", "apply_patch"];
/// Tools that run a command, best first.
const SHELLS: [&str; 6] =
    ["Bash", "exec_command", "shell_command", "shell", "local_shell", "run_shell_command"];

/// A call by the client's own name.
pub(super) struct ToolCall {
    pub(super) name: String,
    pub(super) input: Value,
    /// The client declared this tool as free text rather than JSON.
    pub(super) free_text: Option<String>,
}

/// The names of all tools that a request offers.
pub(super) fn names(body: &Value) -> Vec<&str> {
    declared(body).filter_map(|t| t["name"].as_str().or(t["type"].as_str())).collect()
}

/// Each tool's declaration; Gemini's stand one level deeper.
fn declared(body: &Value) -> impl Iterator<Item = &Value> {
    let tools = body["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
    tools.iter().flat_map(|tool| match tool["functionDeclarations"].as_array() {
        Some(inner) => inner.as_slice(),
        None => std::slice::from_ref(tool),
    })
}

/// The calls of a turn, in the client's terms.
pub(super) fn calls(turn: &Turn, body: &Value) -> Vec<ToolCall> {
    turn.calls.iter().filter_map(|call| map(call, body)).collect()
}

fn map(call: &Call, body: &Value) -> Option<ToolCall> {
    let offered = names(body);
    let first = |wanted: &[&str]| wanted.iter().find(|w| offered.contains(*w)).map(|w| (*w).to_owned());
    match call {
        Call::Write { path, content } => match first(&WRITERS) {
            Some(name) if name == "apply_patch" => {
                let lines: String = content.lines().map(|l| format!("+{l}\n")).collect();
                let patch = format!("*** Begin Patch\n*** Add File: {path}\n{lines}*** End Patch\n");
                let free = tool(body, &name)["type"] == json!("custom");
                Some(ToolCall { input: json!({"input": patch}), free_text: free.then_some(patch), name })
            }
            Some(name) => {
                let fields = &schema(tool(body, &name))["properties"];
                let key =
                    ["file_path", "path"].into_iter().find(|k| fields.get(k).is_some()).unwrap_or("path");
                Some(ToolCall { input: json!({key: path, "content": content}), free_text: None, name })
            }
            None => {
                map(&Call::Shell(format!("printf %s '{}' > '{path}'", content.replace('\'', r"'\''"))), body)
            }
        },
        Call::Shell(command) => {
            let name = first(&SHELLS)?;
            let fields = &schema(tool(body, &name))["properties"];
            let list = name == "local_shell" || fields["command"]["type"] == json!("array");
            let input = if list {
                json!({"command": ["bash", "-lc", command]})
            } else if fields.get("cmd").is_some() {
                json!({"cmd": command})
            } else {
                json!({"command": command, "description": "run"})
            };
            Some(ToolCall { name, input, free_text: None })
        }
    }
}

fn tool<'a>(body: &'a Value, name: &str) -> &'a Value {
    declared(body).find(|t| t["name"].as_str() == Some(name)).unwrap_or(&Value::Null)
}

/// What a tool takes; each protocol has its own name for that.
fn schema(tool: &Value) -> &Value {
    let names = ["input_schema", "parametersJsonSchema", "parameters"];
    names.iter().map(|name| &tool[*name]).find(|schema| schema.is_object()).unwrap_or(&Value::Null)
}
