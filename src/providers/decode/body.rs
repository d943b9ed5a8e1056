//! Error bodies as servers send them, wherever a CLI quotes one: Anthropic's and OpenAI's `{"error": {...}}`, Google's
//! with `status` and `details` (google.rpc.Status), `{"detail": "..."}`, and any of them as text within another.

use serde_json::{Map, Value};

use super::ErrorEvent;
use super::headers::Headers;
use super::json::string;

/// Bodies within bodies that are looked into.
const DEPTH_MAX: u32 = 8;

/// Braces of a text that are tried as the start of a body.
const BRACES_MAX: usize = 4;

/// Most kinds that are kept.
const KINDS_MAX: usize = 16;

/// A longer word is no kind.
const KIND_MAX: usize = 100;

/// What a body says.
#[derive(Debug, Default)]
struct Body {
    kinds: Vec<String>,
    status: Option<u16>,
    message: String,
    /// When to come back, as words that reset times are read from.
    wait: Option<String>,
    /// Names of the quotas that are used up.
    quotas: Vec<String>,
    /// It has what only errors have; any other object may have a status and a message.
    is_error: bool,
}

/// The error that `text` tells: the first JSON object in it, if that is an error body, else its words alone.
pub(super) fn error_in(text: &str) -> ErrorEvent {
    let mut body = Body::default();
    if !body.read_text(text, 0) {
        return ErrorEvent::new(Vec::new(), None, text);
    }
    body.into_event(text)
}

/// The error body in `text`, if there is one: other objects are none.
pub(in crate::providers) fn body_in(text: &str) -> Option<ErrorEvent> {
    let mut body = Body::default();
    body.read_text(text, 0).then_some(body)?.telling()
}

/// The error body that `text` begins with.
pub(in crate::providers) fn body_at(text: &str) -> Option<ErrorEvent> {
    let mut body = Body::default();
    body.read(&object_at(text)?, 0);
    body.telling()
}

/// The error of an object: a body, or what a CLI puts into an event of its own.
pub(super) fn error_of(raw: &[u8]) -> Option<ErrorEvent> {
    // A lone surrogate somewhere in it must not hide the rest.
    let value = serde_json::from_slice(raw).or_else(|_| {
        let text = String::from_utf8_lossy(raw);
        serde_json::from_str(&super::json::repaired(&text))
    });
    match value.ok()? {
        Value::Object(object) => {
            let mut body = Body::default();
            body.read(&object, 0);
            Some(body.into_event(""))
        }
        Value::String(text) => Some(error_in(&text)),
        _ => string(Some(raw)).map(|text| error_in(&text)),
    }
}

// === impl Body ===

impl Body {
    /// False: there is no body in it.
    fn read_text(&mut self, text: &str, depth: u32) -> bool {
        if depth > DEPTH_MAX {
            return false;
        }
        let before = self.kinds.len();
        for (start, _) in text.match_indices('{').take(BRACES_MAX) {
            if let Some(object) = object_at(&text[start..]) {
                self.read(&object, depth);
                return self.kinds.len() > before || self.status.is_some() || !self.message.is_empty();
            }
        }
        false
    }

    fn read(&mut self, object: &Map<String, Value>, depth: u32) {
        for (key, value) in object {
            match (key.as_str(), value) {
                ("error", Value::Object(inner)) if depth < DEPTH_MAX => {
                    self.is_error = true;
                    self.read(inner, depth + 1);
                }
                ("data" | "cause" | "lastError" | "metadata", Value::Object(inner)) if depth < DEPTH_MAX => {
                    self.read(inner, depth + 1);
                }
                ("error" | "message" | "detail" | "responseBody" | "raw", Value::String(text)) => {
                    self.is_error |= matches!(key.as_str(), "error" | "detail");
                    let quoted = self.read_text(text, depth + 1);
                    if !quoted && self.message.is_empty() && !matches!(key.as_str(), "responseBody" | "raw") {
                        self.message.clone_from(text);
                    }
                    if key == "error" && !quoted && !text.contains(' ') {
                        self.kind(text);
                    }
                }
                ("type" | "code" | "status" | "reason" | "name" | "errorClass", Value::String(kind)) => {
                    self.is_error |= kind == "error";
                    match kind.parse() {
                        Ok(number) => self.status(number),
                        Err(_) => self.kind(kind),
                    }
                }
                ("@type", Value::String(kind)) => self.is_error |= kind.contains("google.rpc."),
                (
                    "code" | "status" | "statusCode" | "status_code" | "api_error_status",
                    Value::Number(number),
                ) => {
                    self.status(number.as_u64().unwrap_or_default());
                }
                // Cline's errors.
                ("providerId" | "modelId", _) => self.is_error |= object.contains_key("message"),
                ("quotaId", Value::String(quota)) => self.quotas.push(quota.clone()),
                ("responseHeaders" | "headers", Value::Object(headers)) => self.headers(headers),
                ("details" | "violations" | "errors", Value::Array(items)) if depth < DEPTH_MAX => {
                    items.iter().filter_map(Value::as_object).for_each(|item| self.read(item, depth + 1));
                }
                ("details", Value::Object(inner)) if depth < DEPTH_MAX => self.read(inner, depth + 1),
                (key, value) => self.wait = self.wait.take().or_else(|| wait_field(key, value)),
            }
        }
    }

    /// `None`: it is no error.
    fn telling(self) -> Option<ErrorEvent> {
        let telling = self.is_error || (self.status.is_some() && !self.message.is_empty());
        telling.then(|| self.into_event(""))
    }

    fn status(&mut self, number: u64) {
        let status = u16::try_from(number).ok().filter(|n| (100..600).contains(n));
        self.status = self.status.or(status);
    }

    fn headers(&mut self, headers: &Map<String, Value>) {
        let told = Headers::of(headers);
        if told.get("anthropic-ratelimit-unified-status").is_some_and(|status| status == "rejected") {
            self.kind("unified_limit_rejected");
        }
        if let Some(wait) = told.wait() {
            self.wait = Some(wait);
        }
    }

    fn kind(&mut self, kind: &str) {
        let known = self.kinds.iter().any(|other| other == kind);
        if !kind.is_empty() && kind.len() <= KIND_MAX && !known && self.kinds.len() < KINDS_MAX {
            self.kinds.push(kind.to_owned());
        }
    }

    /// `text`: where the body stood; its own words count when the body has none.
    fn into_event(self, text: &str) -> ErrorEvent {
        let mut message = if self.message.is_empty() { text.to_owned() } else { self.message };
        for more in self.quotas.iter().chain(&self.wait) {
            if !message.contains(more.as_str()) {
                message = format!("{} ({more})", message.trim_end());
            }
        }
        ErrorEvent::new(self.kinds, self.status, &message)
    }
}

/// The object at the start of `text`: JSON, or the same as Python writes it.
fn object_at(text: &str) -> Option<Map<String, Value>> {
    let first = |text: &str| {
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        match values.next() {
            Some(Ok(Value::Object(object))) => Some(object),
            _ => None,
        }
    };
    first(text).or_else(|| {
        let python = text.starts_with("{'").then(|| {
            let quotes = text.replace('\'', "\"").replace(": None", ": null");
            quotes.replace(": True", ": true").replace(": False", ": false")
        })?;
        first(&python)
    })
}

/// A field that says when a limit ends, in words that reset times are read from.
fn wait_field(key: &str, value: &Value) -> Option<String> {
    let number = || value.as_f64().map(|number| number.to_string());
    match key {
        "retryDelay" | "quotaResetDelay" => Some(format!("retry after {}", value.as_str()?)),
        "resets_at" | "resetsAt" | "reset_at" | "quotaResetTimeStamp" => {
            Some(format!("resets at {}", value.as_str().map(str::to_owned).or_else(number)?))
        }
        "resets_in_seconds" | "retry_after" | "retry_after_seconds" | "retryAfter" => {
            Some(format!("retry after {} seconds", number()?))
        }
        "retry_after_ms" | "retryAfterMs" => Some(format!("retry after {}ms", number()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_of_all_servers_are_read_wherever_they_stand() {
        for (text, kinds, status, message) in [
            (
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":null}"#,
                &["overloaded_error", "error"][..],
                None,
                "Overloaded",
            ),
            (
                r#"[API Error: {"error":{"code":401,"message":"invalid x-api-key","status":"UNAUTHENTICATED"}}]"#,
                &["UNAUTHENTICATED"],
                Some(401),
                "invalid x-api-key",
            ),
            (
                r#"Attempt 2 failed. _ApiError: {"error":{"message":"{\n \"error\": {\"code\": 429, \"message\": \"No quota\", \"details\": [{\"violations\":[{\"quotaId\":\"PerDay\"}]},{\"retryDelay\":\"34s\"}]}}","code":429,"status":"Too Many Requests"}}"#,
                &["Too Many Requests"],
                Some(429),
                "No quota (PerDay) (retry after 34s)",
            ),
            (r#"{"detail":"not supported"}"#, &[], None, "not supported"),
            ("plain words {not json}", &[], None, "plain words {not json}"),
            ("Unable to connect", &[], None, "Unable to connect"),
        ] {
            let event = error_in(text);
            let mut expected = kinds.to_vec();
            expected.sort_unstable();
            let mut found = event.kinds.clone();
            found.sort_unstable();
            assert_eq!(
                (found, event.status, event.message.as_str()),
                (expected.iter().map(|k| (*k).to_owned()).collect(), status, message),
                "{text}"
            );
        }
    }

    #[test]
    fn a_header_tells_when_to_come_back() {
        let raw = br#"{"name":"APIError","data":{"message":"slow","statusCode":429,"responseHeaders":{"retry-after":"60"},"responseBody":"{\"error\":{\"message\":\"slow down\",\"code\":\"rate_limit_exceeded\"}}"}}"#;
        let event = error_of(raw).unwrap();
        assert_eq!((event.status, event.message.as_str()), (Some(429), "slow (retry after 60 seconds)"));
        assert!(event.kinds.contains(&"rate_limit_exceeded".to_owned()), "{event:?}");
    }

    #[test]
    fn nesting_without_end_is_given_up() {
        let mut text = "{\"message\":\"x\"}".to_owned();
        for _ in 0..20 {
            text = serde_json::json!({ "message": text }).to_string();
        }
        assert!(!error_in(&text).message.is_empty());
    }
}
