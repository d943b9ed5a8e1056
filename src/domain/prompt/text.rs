//! Makes foreign text safe to show: no control characters, no claim markers, bounded size.

use std::borrow::Cow;

use crate::domain::claim::quote_markers;

/// Text of a person or a spec, as it is but for NUL (no program argument can hold one) and claim markers.
pub(super) fn verbatim(text: &str) -> Cow<'_, str> {
    match quote_markers(text) {
        Cow::Borrowed(text) if !text.contains('\0') => Cow::Borrowed(text),
        quoted => Cow::Owned(quoted.replace('\0', "\u{FFFD}")),
    }
}

/// A name or path for one line: control characters and line breaks are escaped.
pub(super) fn one_line(text: &str) -> Cow<'_, str> {
    let breaks = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    if !text.contains(breaks) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if breaks(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    Cow::Owned(out)
}

/// A program's output: escape sequences and other control characters are taken out, of lines that were overwritten
/// (progress bars) only the last state is kept.
pub(super) fn output(text: &str) -> String {
    let plain = strip_escapes(text);
    let mut out = String::with_capacity(plain.len());
    for line in plain.lines() {
        let line = line.trim_end_matches('\r');
        let last_state = line.rsplit('\r').next().unwrap_or(line).trim_end();
        out.extend(last_state.chars().filter(|c| !c.is_control() || *c == '\t'));
        out.push('\n');
    }
    out.truncate(out.trim_end().len());
    quote_markers(&out).into_owned()
}

/// Takes out ANSI control sequences (ECMA-48: CSI and OSC).
fn strip_escapes(text: &str) -> Cow<'_, str> {
    if !text.contains('\u{1b}') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\u{1b}' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('[') => {
                chars.by_ref().find(|c| matches!(c, '\u{40}'..='\u{7e}'));
            }
            Some(']') => {
                let mut before = ' ';
                for c in chars.by_ref() {
                    if c == '\u{7}' || (before == '\u{1b}' && c == '\\') {
                        break;
                    }
                    before = c;
                }
            }
            _ => {}
        }
    }
    Cow::Owned(out)
}

/// The last characters of a text, from the beginning of a line where one is near.
pub(super) fn tail(text: &str, max_chars: usize) -> &str {
    let chars = text.chars().count();
    if chars <= max_chars {
        return text;
    }
    let start = text.char_indices().nth(chars - max_chars).map_or(text.len(), |(at, _)| at);
    let end = text.get(start..).unwrap_or_default();
    if text.get(..start).is_some_and(|before| before.ends_with('\n')) {
        return end;
    }
    match end.split_once('\n') {
        Some((partial, rest)) if partial.len() < end.len() / 2 => rest,
        _ => end,
    }
}

/// The first characters of a text.
pub(super) fn head(text: &str, max_chars: usize) -> &str {
    text.char_indices().nth(max_chars).and_then(|(at, _)| text.get(..at)).unwrap_or(text)
}

/// A fence that is longer than any in the text.
pub(super) fn fence_for(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    "`".repeat(longest.max(2) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_cleaned() {
        let table = [
            ("\u{1b}[31merror\u{1b}[0m: x\r\n", "error: x"),
            ("10%\r50%\r100%\ndone", "100%\ndone"),
            ("\u{1b}]0;title\u{7}a\u{1b}]8;;http://x\u{1b}\\b", "ab"),
            ("a\0b\u{8}\tc", "ab\tc"),
            ("ok\nLONGHAUL_DONE\n", "ok\n> LONGHAUL_DONE"),
        ];
        for (raw, clean) in table {
            assert_eq!(output(raw), clean, "{raw:?}");
        }
    }

    #[test]
    fn tails_begin_with_a_line() {
        assert_eq!(tail("one\ntwo\nthree", 10), "two\nthree");
        assert_eq!(tail("one\ntwo\nthree", 9), "two\nthree");
        assert_eq!(tail("äöüäöü", 3), "äöü");
        assert_eq!(tail("short", 9), "short");
        assert_eq!(tail("x", 0), "");
    }

    #[test]
    fn names_stay_on_their_line() {
        assert_eq!(one_line("a\nb\u{1b}"), "a\\nb\\u{1b}");
        assert_eq!(fence_for("a ```` b"), "`````");
        assert_eq!(fence_for("a"), "```");
    }
}
