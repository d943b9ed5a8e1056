//! What the fake agent wrote about its own calls.

use std::path::Path;

use serde_json::Value;

/// The fake agent's log, one entry a call.
#[derive(Debug, Default)]
pub struct AgentLog {
    /// Calls in the order in which they started.
    pub calls: Vec<AgentCall>,
    /// Agents that found another one at work in their folder.
    pub violations: Vec<Value>,
    /// Processes that an agent left behind on purpose.
    pub strays: Vec<i32>,
}

/// One call of the fake agent.
#[derive(Debug, Clone)]
pub struct AgentCall {
    /// Its process id.
    pub pid: i32,
    /// Its folder.
    pub cwd: String,
    /// `LONGHAUL_SESSION`.
    pub session: String,
    /// `LONGHAUL_ITERATION`; 0 when it is not set.
    pub iteration: u64,
    /// `LONGHAUL_ATTEMPT`; 0 when it is not set.
    pub attempt: u64,
    /// Words of its prompt that start with `mark-`.
    pub marks: Vec<String>,
    /// Bytes of its prompt.
    pub prompt_bytes: u64,
    /// When it started, in nanoseconds since 1970.
    pub start_ns: u128,
    /// When it ended; none when it was killed.
    pub end_ns: Option<u128>,
    /// Its own CPU time in nanoseconds; 0 when it was killed.
    pub cpu_ns: u64,
    /// All `LONGHAUL_` variables.
    pub env: Value,
}

impl AgentLog {
    /// Reads the log; an empty one when there is none yet.
    pub fn read(path: &Path) -> AgentLog {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let mut log = AgentLog::default();
        for line in text.lines() {
            let record: Value =
                serde_json::from_str(line).unwrap_or_else(|e| panic!("agent log ({e}): {line}"));
            let pid = i32::try_from(record["pid"].as_i64().unwrap_or_default()).unwrap_or_default();
            match record["event"].as_str() {
                Some("start") => log.calls.push(AgentCall::started(pid, &record)),
                Some("end") => {
                    if let Some(call) = log.calls.iter_mut().rev().find(|c| c.pid == pid) {
                        call.end_ns = nanoseconds(&record["wall_ns"]);
                        call.cpu_ns = record["cpu_ns"].as_u64().unwrap_or_default();
                    }
                }
                Some("stray") => log.strays.push(pid),
                _ => log.violations.push(record),
            }
        }
        log
    }

    /// How many calls ended by themselves.
    pub fn ended(&self) -> usize {
        self.calls.iter().filter(|c| c.end_ns.is_some()).count()
    }
}

impl AgentCall {
    fn started(pid: i32, record: &Value) -> AgentCall {
        let env = &record["env"];
        let text = |key: &str| env[key].as_str().unwrap_or_default().to_owned();
        AgentCall {
            pid,
            cwd: record["cwd"].as_str().unwrap_or_default().to_owned(),
            session: text("LONGHAUL_SESSION"),
            iteration: text("LONGHAUL_ITERATION").parse().unwrap_or_default(),
            attempt: text("LONGHAUL_ATTEMPT").parse().unwrap_or_default(),
            marks: record["marks"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
            prompt_bytes: record["prompt_bytes"].as_u64().unwrap_or_default(),
            start_ns: nanoseconds(&record["wall_ns"]).unwrap_or_default(),
            end_ns: None,
            cpu_ns: 0,
            env: env.clone(),
        }
    }
}

fn nanoseconds(value: &Value) -> Option<u128> {
    value.as_u64().map(u128::from)
}
