//! One event of the journal, read from outside.

use std::path::Path;

use serde_json::Value;

/// A line of `events.jsonl` or of `run --json`.
#[derive(Debug, Clone, PartialEq)]
pub struct Event(pub Value);

impl Event {
    /// Reads one line; panics when it is not a JSON object, since nothing else may stand there.
    #[track_caller]
    pub fn parse(line: &str) -> Event {
        let value: Value =
            serde_json::from_str(line).unwrap_or_else(|e| panic!("not a line of JSON ({e}): {line:?}"));
        assert!(value.is_object(), "not an event: {line:?}");
        Event(value)
    }

    /// Every whole line of a project's `events.jsonl` and of its rotated segments, in order of `seq`.
    pub fn read_all(state: &Path) -> Vec<Event> {
        let mut events = Vec::new();
        for folder in [state.to_owned(), state.join("logs"), state.join("journal")] {
            let Ok(entries) = std::fs::read_dir(&folder) else { continue };
            for path in entries.flatten().map(|e| e.path()) {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                if !(name.starts_with("events") && name.ends_with(".jsonl")) {
                    continue;
                }
                let text = std::fs::read(&path).unwrap_or_default();
                let whole = text.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
                let text = std::str::from_utf8(&text[..whole]).expect("the journal is UTF-8");
                events.extend(text.lines().map(Event::parse));
            }
        }
        events.sort_by_key(Event::seq);
        events
    }

    /// Its `type`.
    pub fn kind(&self) -> &str {
        self.0["type"].as_str().unwrap_or_default()
    }

    /// Its number in the journal; 0 when it has none.
    pub fn seq(&self) -> u64 {
        self.0["seq"].as_u64().unwrap_or_default()
    }

    /// Its iteration; 0 when it has none.
    pub fn iteration(&self) -> u64 {
        self.0["iteration"].as_u64().unwrap_or_default()
    }

    /// Its attempt; 0 when it has none.
    pub fn attempt(&self) -> u64 {
        self.0["attempt"].as_u64().unwrap_or_default()
    }

    /// Its level.
    pub fn level(&self) -> &str {
        self.0["level"].as_str().unwrap_or_default()
    }

    /// A field of its `data`; null when it is not there.
    pub fn data(&self, key: &str) -> &Value {
        &self.0["data"][key]
    }

    /// A text field of its `data`; empty when it is not there.
    pub fn text(&self, key: &str) -> &str {
        self.data(key).as_str().unwrap_or_default()
    }

    /// Its `time`, in nanoseconds since 1970.
    pub fn time_ns(&self) -> i128 {
        let time = self.0["time"].as_str().unwrap_or_default();
        time.parse::<jiff::Timestamp>().unwrap_or_else(|e| panic!("a bad time {time:?}: {e}")).as_nanosecond()
    }
}
