//! Reading JSON lines fast and without trust.
//!
//! A [`Cursor`] walks a line once and hands out fields as they are written: strings are passed over at the speed
//! of memory, nothing is unescaped, copied or checked before it is known to matter. So a big tool result costs
//! almost nothing, and what stands in fields that nobody asked for (lone surrogates, bytes that are not UTF-8,
//! nesting without end) stops nothing. What is used is then read by serde_json.

use std::borrow::Cow;

use memchr::memchr2;
use serde::Deserialize;

/// A value as it is written; `None`: it is missing, or null.
pub(super) type Raw<'a> = Option<&'a [u8]>;

/// A place in JSON text. Every method leaves it behind what it has read, or returns `None` when the text is no
/// JSON or ends too early.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

// === impl Cursor ===

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Cursor { bytes, at: 0 }
    }

    /// Reads an object; `field` gets each key and must read or skip its value. Any other value is skipped.
    pub(super) fn object(&mut self, mut field: impl FnMut(&'a [u8], &mut Self) -> Option<()>) -> Option<()> {
        if self.peek()? != b'{' {
            return self.skip();
        }
        self.at += 1;
        if self.peek()? == b'}' {
            self.at += 1;
            return Some(());
        }
        loop {
            let key = self.key()?;
            field(key, self)?;
            match self.next()? {
                b',' => {}
                b'}' => return Some(()),
                _ => return None,
            }
        }
    }

    /// Reads an array; `element` must read or skip each element. Any other value is skipped.
    pub(super) fn array(&mut self, mut element: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        if self.peek()? != b'[' {
            return self.skip();
        }
        self.at += 1;
        if self.peek()? == b']' {
            self.at += 1;
            return Some(());
        }
        loop {
            element(self)?;
            match self.next()? {
                b',' => {}
                b']' => return Some(()),
                _ => return None,
            }
        }
    }

    /// The next value as it is written, put into `raw`.
    pub(super) fn take(&mut self, raw: &mut Raw<'a>) -> Option<()> {
        self.peek()?;
        let from = self.at;
        self.skip()?;
        *raw = self.bytes.get(from..self.at).filter(|value| *value != b"null");
        Some(())
    }

    /// Passes over the next value.
    pub(super) fn skip(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => self.string().map(|_| ()),
            b'{' | b'[' => self.nested(),
            _ => {
                // A number or a literal.
                let is_part = |b: &u8| b.is_ascii_alphanumeric() || b"+-.".contains(b);
                let length = self.bytes[self.at..].iter().take_while(|b| is_part(b)).count();
                self.at += length;
                (length > 0).then_some(())
            }
        }
    }

    /// Nothing but white space is left.
    pub(super) fn at_end(&mut self) -> bool {
        self.peek().is_none()
    }

    /// The next byte that is not white space.
    fn peek(&mut self) -> Option<u8> {
        while let Some(byte) = self.bytes.get(self.at) {
            if !byte.is_ascii_whitespace() {
                return Some(*byte);
            }
            self.at += 1;
        }
        None
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn key(&mut self) -> Option<&'a [u8]> {
        if self.peek()? != b'"' {
            return None;
        }
        let key = self.string()?;
        (self.next()? == b':').then_some(key)
    }

    /// What stands between the quotes, not unescaped.
    fn string(&mut self) -> Option<&'a [u8]> {
        let from = self.at + 1;
        self.at = from;
        loop {
            self.at += quote_or_escape(self.bytes.get(self.at..)?)?;
            if self.bytes[self.at] == b'"' {
                self.at += 1;
                return self.bytes.get(from..self.at - 1);
            }
            self.at += 2;
        }
    }

    /// Passes over an object or array, however deep, without recursion.
    fn nested(&mut self) -> Option<()> {
        let mut depth = 0usize;
        loop {
            match self.bytes.get(self.at)? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Some(());
            }
        }
    }
}

/// Where the next `"` or `\` stands. In code and prose escapes are near each other, and a few words are looked
/// through faster than a search is set up; what is far is memchr's.
fn quote_or_escape(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGHS: u64 = ONES << 7;
    // The high bit of each byte that equals `byte`; above the first match other bits may be set, too.
    let equal = |word: u64, byte: u8| {
        let zero = word ^ (ONES * u64::from(byte));
        zero.wrapping_sub(ONES) & !zero & HIGHS
    };
    let (words, _) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().take(NEAR_WORDS).enumerate() {
        let word = u64::from_le_bytes(*word);
        let found = equal(word, b'"') | equal(word, b'\\');
        if found != 0 {
            return Some(index * 8 + found.trailing_zeros() as usize / 8);
        }
    }
    let near = words.len().min(NEAR_WORDS) * 8;
    Some(near + memchr2(b'"', b'\\', &bytes[near..])?)
}

/// Words of 8 bytes that count as near.
const NEAR_WORDS: usize = 6;

/// The value of a top-level field, found without looking at what follows it.
pub(super) fn field<'a>(object: &'a [u8], name: &[u8]) -> Raw<'a> {
    let mut found = None;
    // `None` stops the walk.
    let _ = Cursor::new(object).object(|key, cursor| {
        if key != name {
            return cursor.skip();
        }
        cursor.take(&mut found)?;
        None
    });
    found
}

/// Several top-level fields of a whole object; `None` when the text is no JSON or goes on after it.
pub(super) fn pick<'a, const N: usize>(object: &'a [u8], names: [&str; N]) -> Option<[Raw<'a>; N]> {
    let mut found = [None; N];
    let mut cursor = Cursor::new(object);
    cursor.object(|key, cursor| match names.iter().position(|name| name.as_bytes() == key) {
        Some(index) => cursor.take(&mut found[index]),
        None => cursor.skip(),
    })?;
    cursor.at_end().then_some(found)
}

/// Reads a value.
pub(super) fn read<'a, T: Deserialize<'a>>(raw: Raw<'a>) -> Option<T> {
    serde_json::from_slice(raw?).ok()
}

/// The word of a field without escapes, such as an event's type; `""` when it is something else.
pub(super) fn word<'a>(raw: Raw<'a>) -> &'a str {
    let inner = inner(raw).filter(|inner| !inner.contains(&b'\\'));
    inner.and_then(|inner| std::str::from_utf8(inner).ok()).unwrap_or_default()
}

/// Whether the value is `true`.
pub(super) fn is_true(raw: Raw<'_>) -> bool {
    raw == Some(b"true")
}

/// A whole string; lone surrogates and bytes that are not UTF-8 become U+FFFD.
pub(super) fn string(raw: Raw<'_>) -> Option<String> {
    inner(raw)?;
    let written = String::from_utf8_lossy(raw?);
    serde_json::from_str(&written).or_else(|_| serde_json::from_str(&repaired(&written))).ok()
}

/// The first bytes of a string as they are written, at most `max`, not in the middle of an escape.
pub(super) fn start(raw: Raw<'_>, max: usize) -> &[u8] {
    let inner = inner(raw).unwrap_or_default();
    let mut end = 0;
    while end < inner.len() {
        let step = match (inner[end], inner.get(end + 1)) {
            (b'\\', Some(b'u')) => 6,
            (b'\\', _) => 2,
            _ => 1,
        };
        if end + step > max {
            break;
        }
        end += step;
    }
    &inner[..end.min(inner.len())]
}

/// Unescapes what [`start`] gave; a character that was cut is left out.
pub(super) fn unescaped(start: &[u8]) -> String {
    let quoted = [b"\"", start, b"\""].concat();
    string(Some(&quoted)).unwrap_or_default().trim_end_matches('\u{fffd}').to_owned()
}

fn inner<'a>(raw: Raw<'a>) -> Option<&'a [u8]> {
    raw?.strip_prefix(b"\"")?.strip_suffix(b"\"")
}

/// JSON text with each surrogate escape that has no partner replaced by `\ufffd`, which serde_json would refuse,
/// and without raw control characters.
pub(super) fn repaired(json: &str) -> Cow<'_, str> {
    let bytes = json.as_bytes();
    let mut out = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(found) = json[at..].find(|c: char| c == '\\' || c < ' ') {
        let escape = at + found;
        let (replacement, end) = match unit(bytes, escape) {
            _ if bytes[escape] != b'\\' => (" ", escape + 1),
            Some(0xD800..=0xDBFF) if matches!(unit(bytes, escape + 6), Some(0xDC00..=0xDFFF)) => {
                ("", escape + 12)
            }
            Some(0xD800..=0xDFFF) => ("\\ufffd", escape + 6),
            Some(_) => ("", escape + 6),
            // An escape of two bytes; the second may start a longer character in broken text.
            None => ("", json.ceil_char_boundary((escape + 2).min(json.len()))),
        };
        if !replacement.is_empty() {
            out.push_str(&json[copied..escape]);
            out.push_str(replacement);
            copied = end;
        }
        at = end;
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
    use proptest::prelude::*;

    use super::*;

    fn fields(json: &str) -> Option<Vec<(String, String)>> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut found = Vec::new();
        let mut cursor = Cursor::new(json.as_bytes());
        cursor.object(|key, cursor| {
            let mut raw = None;
            cursor.take(&mut raw)?;
            found.push((text(key), raw.map(text).unwrap_or_default()));
            Some(())
        })?;
        cursor.at_end().then_some(found)
    }

    #[test]
    fn fields_come_as_they_are_written() {
        let json = r#" { "a" : "x\"}" , "b":[1,{"c":"]"}], "d":null,"e" :-1.5e+3 , "f":{} } "#;
        let found = fields(json).unwrap();
        let expected =
            [("a", r#""x\"}""#), ("b", r#"[1,{"c":"]"}]"#), ("d", ""), ("e", "-1.5e+3"), ("f", "{}")];
        assert_eq!(found, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
        assert_eq!(fields("{}"), Some(vec![]));
        for broken in [
            "",
            "{",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1"#,
            r#"{"a":1,}"#,
            r#"{"a":"x}"#,
            r#"{"a":[}"#,
            "{}x",
            r#"{,}"#,
        ] {
            assert_eq!(fields(broken), None, "{broken}");
        }
    }

    #[test]
    fn a_field_is_found_without_reading_on() {
        assert_eq!(field(br#"{"x":{"type":1},"type":"user","rest":"#, b"type"), Some(&br#""user""#[..]));
        assert_eq!(field(br#"{"x":1}"#, b"type"), None);
        assert_eq!(field(b"[1]", b"type"), None);
    }

    #[test]
    fn lone_surrogates_are_replaced_and_pairs_kept() {
        for (json, read) in [
            (r#""x\ud82d y""#, "x\u{fffd} y"),
            (r#""\udc00\ud83d\ude00\ud83d""#, "\u{fffd}\u{1f600}\u{fffd}"),
            (r#""\\ud82d""#, r"\ud82d"),
            (r#""\ud83d\n""#, "\u{fffd}\n"),
            ("\"a\tb\"", "a b"),
        ] {
            assert_eq!(string(Some(json.as_bytes())).as_deref(), Some(read), "{json}");
        }
    }

    #[test]
    fn the_start_of_a_string_never_splits_an_escape() {
        let json = r#""aé\n\u00e9\ud83d\ude00z""#.as_bytes();
        let all = "aé\né\u{1f600}z";
        for max in 0..40 {
            let start = unescaped(start(Some(json), max));
            assert!(all.starts_with(&start), "{max}: {start:?}");
        }
        assert_eq!(unescaped(start(Some(json), 100)), all);
        assert_eq!(unescaped(start(Some(b"[1]"), 100)), "");
    }

    #[test]
    fn words_are_plain_strings_only() {
        assert_eq!(word(Some(br#""assistant""#)), "assistant");
        for other in [&br#""a\nb""#[..], b"17", b"null", b"{}", b"\"", b"\"\xff\""] {
            assert_eq!(word(Some(other)), "");
        }
        assert_eq!(word(None), "");
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            "\\PC{0,12}".prop_map(Into::into),
            "[\"\\\\{}\\[\\],:\n]{0,8}".prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
                prop::collection::hash_map("[a-z\"\\\\]{0,6}", inner, 0..6)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// The cursor delimits values as serde_json does.
        #[test]
        fn values_are_delimited_as_by_serde(value in json(), pretty: bool) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
            let mut raw = None;
            let mut cursor = Cursor::new(text.as_bytes());
            prop_assert!(cursor.take(&mut raw).is_some() && cursor.at_end());
            prop_assert_eq!(read::<serde_json::Value>(raw).unwrap_or_default(), value.clone());
            if let serde_json::Value::Object(map) = &value {
                let mut cursor = Cursor::new(text.as_bytes());
                let mut count = 0;
                cursor.object(|_, cursor| {
                    count += 1;
                    cursor.skip()
                });
                prop_assert_eq!(count, map.len());
            }
            // A value that is cut is none, except a number.
            if matches!(value, serde_json::Value::Object(_) | serde_json::Value::Array(_) | serde_json::Value::String(_)) {
                let cut = &text[..text.floor_char_boundary(text.len() - 1)];
                prop_assert!(Cursor::new(cut.as_bytes()).skip().is_none());
            }
        }

        /// Any bytes: no panic.
        #[test]
        fn any_bytes_are_walked(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Cursor::new(&bytes).skip();
            let _ = field(&bytes, b"type");
            let _ = string(Some(&bytes));
            let _ = unescaped(start(Some(&bytes), 50));
        }
    }
}
