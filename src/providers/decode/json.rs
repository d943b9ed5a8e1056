//! Reading JSON lines fast and without trust: nothing is unescaped before it is known to matter.
//!
//! Events are read as structs of raw values: one pass that allocates nothing, is not stopped by what stands in
//! fields that nobody asked for (lone surrogates, deep nesting), and leaves big tool results alone.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// A field as it is written.
pub(super) type Raw<'a> = Option<&'a RawValue>;

/// Bytes of a line as text; bytes that are not UTF-8 become U+FFFD. The flag says that it was so.
pub(super) fn text(line: &[u8]) -> (Cow<'_, str>, bool) {
    let text = String::from_utf8_lossy(line);
    let repaired = matches!(text, Cow::Owned(_));
    (text, repaired)
}

/// Reads a value that is written in `raw`.
pub(super) fn read<'a, T: Deserialize<'a>>(raw: Raw<'a>) -> Option<T> {
    serde_json::from_str(raw?.get()).ok()
}

/// The word of a field without escapes, such as an event's type; `""` when it is something else.
pub(super) fn word<'a>(raw: Raw<'a>) -> &'a str {
    let written = raw.map_or("", RawValue::get);
    let inner = written.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inner.filter(|inner| !inner.contains('\\')).unwrap_or_default()
}

/// A whole string; lone surrogates in it become U+FFFD.
pub(super) fn string(raw: Raw<'_>) -> Option<String> {
    let written = raw?.get();
    if !written.starts_with('"') {
        return None;
    }
    serde_json::from_str(written).or_else(|_| serde_json::from_str(&without_lone_surrogates(written))).ok()
}

/// The start of a string, made from at most `max` bytes of it as it is written.
pub(super) fn start_of_string(raw: Raw<'_>, max: usize) -> Option<String> {
    let inner = raw?.get().strip_prefix('"')?.strip_suffix('"')?;
    let bytes = inner.as_bytes();
    let mut end = 0;
    while end < bytes.len() {
        let step = match (bytes[end], bytes.get(end + 1)) {
            (b'\\', Some(b'u')) => 6,
            (b'\\', _) => 2,
            _ => 1,
        };
        if end + step > max {
            break;
        }
        end += step;
    }
    let part = &inner[..inner.floor_char_boundary(end)];
    serde_json::from_str(&without_lone_surrogates(&format!("\"{part}\""))).ok()
}

/// JSON text with each surrogate escape that has no partner replaced by `\ufffd`, which serde_json would refuse.
pub(super) fn without_lone_surrogates(json: &str) -> Cow<'_, str> {
    let bytes = json.as_bytes();
    let mut out = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(found) = json[at..].find('\\') {
        let escape = at + found;
        match unit(bytes, escape) {
            Some(0xD800..=0xDBFF) if matches!(unit(bytes, escape + 6), Some(0xDC00..=0xDFFF)) => {
                at = escape + 12
            }
            Some(0xD800..=0xDFFF) => {
                out.push_str(&json[copied..escape]);
                out.push_str("\\ufffd");
                at = escape + 6;
                copied = at;
            }
            Some(_) => at = escape + 6,
            // An escape of two bytes; the second may start a longer character in broken text.
            None => at = json.ceil_char_boundary((escape + 2).min(json.len())),
        }
    }
    if copied == 0 {
        return Cow::Borrowed(json);
    }
    out.push_str(&json[copied..]);
    Cow::Owned(out)
}

/// The UTF-16 unit of an escape `\uXXXX` at `at`.
fn unit(bytes: &[u8], at: usize) -> Option<u32> {
    let escape = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
    u32::from_str_radix(std::str::from_utf8(escape).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    #[test]
    fn lone_surrogates_are_replaced_and_pairs_kept() {
        for (json, read) in [
            (r#""x\ud82d y""#, "x\u{fffd} y"),
            (r#""\udc00\ud83d\ude00\ud83d""#, "\u{fffd}\u{1f600}\u{fffd}"),
            (r#""\\ud82d""#, r"\ud82d"),
            (r#""\ud83d\n""#, "\u{fffd}\n"),
        ] {
            assert_eq!(string(Some(&raw(json))).as_deref(), Some(read), "{json}");
        }
    }

    #[test]
    fn the_start_of_a_string_never_splits_an_escape() {
        let json = raw(r#""aé\n\u00e9\ud83d\ude00z""#);
        let all = "aé\né\u{1f600}z";
        for max in 0..40 {
            let start = start_of_string(Some(&json), max).unwrap();
            let whole = start.trim_end_matches('\u{fffd}');
            assert!(all.starts_with(whole), "{max}: {start:?}");
        }
        assert_eq!(start_of_string(Some(&json), 100).as_deref(), Some(all));
        assert_eq!(start_of_string(Some(&raw("[1]")), 100), None);
    }

    #[test]
    fn words_are_plain_strings_only() {
        assert_eq!(word(Some(&raw(r#""assistant""#))), "assistant");
        for other in [r#""a\nb""#, "17", "null", "{}"] {
            assert_eq!(word(Some(&raw(other))), "");
        }
        assert_eq!(word(None), "");
    }
}
