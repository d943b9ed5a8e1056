//! Response headers, where a CLI prints them: when to come back.

use serde_json::{Map, Value};

/// Headers by their names in small letters.
pub(super) struct Headers(Vec<(String, String)>);

/// Windows that servers count in: of those that have nothing left the last to reset counts.
const WINDOWS: [[&str; 2]; 6] = [
    ["anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"],
    ["anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"],
    ["anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"],
    ["anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"],
    ["x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"],
    ["x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"],
];

// === impl Headers ===

impl Headers {
    pub(super) fn of(headers: &Map<String, Value>) -> Self {
        let text = |value: &Value| match value {
            Value::String(text) => Some(text.trim().to_owned()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let named = |(name, value): (&String, &Value)| Some((name.to_ascii_lowercase(), text(value)?));
        Headers(headers.iter().filter_map(named).collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// When to come back, as words that reset times are read from: what the server asks for, before what its
    /// windows say.
    pub(super) fn wait(&self) -> Option<String> {
        let rejected = self.get("anthropic-ratelimit-unified-status") == Some("rejected");
        let unified = self.get("anthropic-ratelimit-unified-reset").filter(|_| rejected).and_then(words);
        let exact =
            self.get("retry-after-ms").filter(|ms| is_number(ms)).map(|ms| format!("retry after {ms}ms"));
        let used_up = || {
            let windows = WINDOWS.iter().filter(|[left, _]| self.get(left) == Some("0"));
            // ISO dates sort as times do; durations of one server differ in little.
            windows.filter_map(|[_, reset]| words(self.get(reset)?)).max()
        };
        unified
            .or(exact)
            .or_else(|| words(self.get("retry-after")?))
            .or_else(|| words(self.get("x-codex-primary-reset-after-seconds")?))
            .or_else(used_up)
            .or_else(|| words(self.get("x-ratelimit-reset")?))
    }
}

fn is_number(value: &str) -> bool {
    !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit())
}

/// A header's value: a time in Unix seconds or milliseconds, seconds to wait, a duration or a date.
fn words(value: &str) -> Option<String> {
    match value {
        "" => None,
        _ if is_number(value) && value.len() >= 10 => Some(format!("resets at {value}")),
        _ if is_number(value) => Some(format!("retry after {value} seconds")),
        _ => Some(format!("retry after {value}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_s_own_request_comes_before_its_windows() {
        for (headers, wait) in [
            (
                r#"{"retry-after":"20","x-ratelimit-reset-requests":"30s","x-ratelimit-remaining-requests":"0"}"#,
                Some("retry after 20 seconds"),
            ),
            (r#"{"retry-after-ms":"900","retry-after":"1"}"#, Some("retry after 900ms")),
            (
                r#"{"Retry-After":"Mon, 30 Nov 2026 20:17:54 GMT"}"#,
                Some("retry after Mon, 30 Nov 2026 20:17:54 GMT"),
            ),
            (
                r#"{"x-ratelimit-reset-tokens":"6m0s","x-ratelimit-remaining-tokens":"0"}"#,
                Some("retry after 6m0s"),
            ),
            (r#"{"x-ratelimit-reset-tokens":"6m0s","x-ratelimit-remaining-tokens":"17"}"#, None),
            (
                r#"{"anthropic-ratelimit-tokens-remaining":"0","anthropic-ratelimit-tokens-reset":"2026-11-30T20:17:54Z"}"#,
                Some("retry after 2026-11-30T20:17:54Z"),
            ),
            (
                r#"{"anthropic-ratelimit-unified-status":"rejected","anthropic-ratelimit-unified-reset":"1796077900","retry-after":"7200"}"#,
                Some("resets at 1796077900"),
            ),
            (r#"{"X-RateLimit-Reset":"1741305600000"}"#, Some("resets at 1741305600000")),
            (r#"{"content-length":"12"}"#, None),
        ] {
            let headers: Map<String, Value> = serde_json::from_str(headers).unwrap();
            assert_eq!(Headers::of(&headers).wait().as_deref(), wait, "{headers:?}");
        }
    }
}
