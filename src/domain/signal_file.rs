//! The format of PAUSE and STOP: what people put into them by hand, and what `longhaul pause` and `stop` write.
//!
//! Presence is the signal; content is optional and cannot be wrong:
//!
//! | content | means |
//! | --- | --- |
//! | nothing | the signal, without a reason |
//! | any text | the reason |
//! | first line `now` (any case), or first word `now` | STOP without grace; the rest is the reason |
//! | `{"now": true, "reason": "..."}` | the same in JSON, which is what the commands write |

use serde_json::{Value, json};

use super::plain_text::{clip, decode};

/// How much of a signal file is read, in bytes.
pub const MAX_READ: u64 = 64 * 1024;

/// How much of a reason is kept, in bytes: it stands in events and on screens.
const MAX_REASON: usize = 2000;

/// A signal file's content.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SignalFile {
    /// What the person wrote; may be empty.
    pub reason: String,
    /// Without grace. Means nothing in PAUSE.
    pub now: bool,
}

// === impl SignalFile ===

impl SignalFile {
    /// Reads any content.
    pub fn parse(content: &[u8]) -> Self {
        let text = decode(content);
        let text = text.trim();
        json_form(text).unwrap_or_else(|| plain_form(text))
    }

    /// The content that [`parse`](Self::parse) reads back.
    pub fn render(&self) -> String {
        let mut line = json!({ "now": self.now, "reason": self.reason }).to_string();
        line.push('\n');
        line
    }
}

fn json_form(text: &str) -> Option<SignalFile> {
    let Value::Object(fields) = serde_json::from_str(text).ok()? else { return None };
    let reason = fields.get("reason").and_then(Value::as_str).unwrap_or_default();
    let now = fields.get("now").and_then(Value::as_bool).unwrap_or(false);
    Some(SignalFile { reason: short(reason), now })
}

fn plain_form(text: &str) -> SignalFile {
    let (line, rest) = text.split_once('\n').unwrap_or((text, ""));
    if line.trim().eq_ignore_ascii_case("now") {
        return SignalFile { reason: short(rest), now: true };
    }
    // Lower case only: "Now that the tests pass, stop." is a reason.
    let word = text.split(char::is_whitespace).next().unwrap_or_default();
    if word.trim_end_matches([':', ',', '.', '!']) == "now" {
        return SignalFile { reason: short(text.get(word.len()..).unwrap_or_default()), now: true };
    }
    SignalFile { reason: short(text), now: false }
}

fn short(reason: &str) -> String {
    clip(reason.trim(), MAX_REASON).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(reason: &str, now: bool) -> SignalFile {
        SignalFile { reason: reason.to_owned(), now }
    }

    #[test]
    fn what_people_write() {
        for (content, expected) in [
            ("", file("", false)),
            ("\n", file("", false)),
            ("lunch\n", file("lunch", false)),
            ("now", file("", true)),
            ("NOW\r\n", file("", true)),
            ("now\nit eats the disk\n", file("it eats the disk", true)),
            ("now: it eats the disk", file("it eats the disk", true)),
            ("now it eats the disk", file("it eats the disk", true)),
            ("Now that the tests pass, stop.", file("Now that the tests pass, stop.", false)),
            ("nowhere left to go", file("nowhere left to go", false)),
            (r#"{"now":true,"reason":"release"}"#, file("release", true)),
            (r#"{"reason":"release"}"#, file("release", false)),
            (r#"{"now":"yes","by":7}"#, file("", false)),
            (r#"{"now":true"#, file(r#"{"now":true"#, false)),
            ("[1]", file("[1]", false)),
            ("\u{FEFF}now", file("", true)),
        ] {
            assert_eq!(SignalFile::parse(content.as_bytes()), expected, "{content:?}");
        }
        assert_eq!(SignalFile::parse(b"\xFF\xFEn\0o\0w\0"), file("", true));
    }

    proptest! {
        #[test]
        fn anything_can_be_read(content in proptest::collection::vec(any::<u8>(), 0..400)) {
            prop_assert!(SignalFile::parse(&content).reason.len() <= MAX_REASON);
        }

        #[test]
        fn what_is_written_is_read_back(reason in "[^\0]{0,40}", now: bool) {
            let written = file(reason.replace('\u{FFFD}', "").trim(), now);
            prop_assert_eq!(SignalFile::parse(written.render().as_bytes()), written);
        }
    }
}
