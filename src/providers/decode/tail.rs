//! Bounded memory of a stream's lines, and their cleaning.

use std::borrow::Cow;
use std::collections::VecDeque;

/// Most bytes of a line that are kept.
pub const LINE_MAX: usize = 2000;

/// The first and the last lines of a stream. Buffers are reused, so that a long stream allocates nothing.
#[derive(Debug)]
pub(super) struct Tail {
    head: Vec<Vec<u8>>,
    head_max: usize,
    last: VecDeque<Vec<u8>>,
    last_max: usize,
}

// === impl Tail ===

impl Tail {
    /// Keeps the first `head_max` and the last `last_max` lines.
    pub(super) fn new(head_max: usize, last_max: usize) -> Self {
        Tail { head: Vec::new(), head_max, last: VecDeque::with_capacity(last_max), last_max }
    }

    /// Takes a line; blank ones are not kept.
    pub(super) fn push(&mut self, line: &[u8]) {
        let line = &line[..line.len().min(LINE_MAX)];
        if line.trim_ascii().is_empty() {
            return;
        }
        if self.head.len() < self.head_max {
            self.head.push(line.to_vec());
            return;
        }
        let mut buffer =
            if self.last.len() >= self.last_max { self.last.pop_front() } else { None }.unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(line);
        self.last.push_back(buffer);
    }

    /// The kept lines, clean, oldest first.
    pub(super) fn into_lines(self) -> Vec<String> {
        let lines = self.head.into_iter().chain(self.last);
        lines.map(|line| clean(&line)).filter(|line| !line.is_empty()).collect()
    }
}

/// A line as a person would see it: escape sequences gone, only what follows the last carriage return, bytes
/// that are not UTF-8 replaced, no white space at the ends.
pub(super) fn clean(line: &[u8]) -> String {
    let line = line.trim_ascii_end();
    let line = line.rsplit(|b| *b == b'\r').next().unwrap_or(line);
    let text = String::from_utf8_lossy(line);
    without_escapes(&text).trim().to_owned()
}

/// Text without ANSI escape sequences (CSI, OSC, two-character ones) and other control characters.
fn without_escapes(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|b| b < 0x20 && b != b'\t' && b != b'\n') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => match chars.next() {
                Some('[') => while chars.next().is_some_and(|c| !('@'..='~').contains(&c)) {},
                Some(']') => {
                    while let Some(c) = chars.next() {
                        if c == '\u{7}' || (c == '\u{1b}' && chars.next_if_eq(&'\\').is_some()) {
                            break;
                        }
                    }
                }
                _ => {}
            },
            '\t' | '\n' => out.push(c),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// At most `max` bytes of the text's start, cut between characters.
pub(crate) fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// At most `max` bytes of the text's end, cut between characters.
pub(crate) fn cut_front(text: &str, max: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(max))..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_first_and_the_last_lines() {
        let mut tail = Tail::new(2, 3);
        for n in 0..1000 {
            tail.push(format!("line {n}").as_bytes());
            tail.push(b"   ");
        }
        assert_eq!(tail.into_lines(), ["line 0", "line 1", "line 997", "line 998", "line 999"]);
    }

    #[test]
    fn a_line_is_cut_to_its_limit_without_breaking_a_character() {
        let mut tail = Tail::new(0, 1);
        tail.push("é".repeat(LINE_MAX).as_bytes());
        assert_eq!(tail.into_lines(), ["é".repeat(LINE_MAX / 2)]);
        assert_eq!(cut("aé", 2), "a");
        assert_eq!(cut_front("éa", 2), "a");
        assert_eq!(cut_front("éa", 10), "éa");
    }

    #[test]
    fn lines_are_cleaned_as_a_terminal_would_show_them() {
        for (raw, seen) in [
            (&b"\x1b[31merror:\x1b[0m no \xff route\r"[..], "error: no \u{fffd} route"),
            (b"10%\r50%\rdone\r\n", "done"),
            (b"\x1b]0;title\x07ok\x1b]8;;http://x\x1b\\link", "oklink"),
            (b"\x1b[0m", ""),
            (b"a\x00b\tc", "ab\tc"),
        ] {
            assert_eq!(clean(raw), seen);
        }
    }
}
