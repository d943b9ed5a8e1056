//! The beginning and the end of a text of any length, for gate results and messages.

/// Keeps the first and the last bytes of what is pushed.
#[derive(Debug, Clone)]
pub struct HeadTail {
    head: Vec<u8>,
    head_size: usize,
    /// Up to twice `tail_size`, so that the older half is dropped seldom.
    tail: Vec<u8>,
    tail_size: usize,
    total: u64,
}

// === impl HeadTail ===

impl HeadTail {
    /// Keeps this many bytes of either end. For gates: 2 KiB and 8 KiB.
    pub fn new(head: usize, tail: usize) -> Self {
        HeadTail { head: Vec::new(), head_size: head, tail: Vec::new(), tail_size: tail, total: 0 }
    }

    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = self.head_size - self.head.len();
        let (to_head, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend(to_head);
        // Of a long piece only its end can stay.
        let rest = &rest[rest.len().saturating_sub(self.tail_size)..];
        self.tail.extend(rest);
        if self.tail.len() > 2 * self.tail_size {
            self.tail.drain(..self.tail.len() - self.tail_size);
        }
    }

    /// Bytes pushed so far.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The text, whole if it fits; else both ends, cut on character borders, and how much is missing between them.
    /// What is not UTF-8 is replaced.
    pub fn text(&self) -> String {
        let tail = &self.tail[self.tail.len().saturating_sub(self.tail_size)..];
        if self.total == (self.head.len() + tail.len()) as u64 {
            return String::from_utf8_lossy(&[&self.head, tail].concat()).into_owned();
        }
        let head = &self.head[..char_floor(&self.head, self.head.len())];
        let tail = &tail[char_ceil(tail, 0)..];
        let missing = self.total - (head.len() + tail.len()) as u64;
        let (head, tail) = (String::from_utf8_lossy(head), String::from_utf8_lossy(tail));
        format!("{head}\n[... {missing} bytes left out ...]\n{tail}")
    }
}

/// The largest index up to `at` at which no UTF-8 character is cut in two, as far as bytes before it tell.
pub(super) fn char_floor(bytes: &[u8], at: usize) -> usize {
    // A lead byte among the last three says how long its character must be.
    for back in 1..=3.min(at) {
        let byte = bytes[at - back];
        if is_continuation(byte) {
            continue;
        }
        let needs = match byte {
            0xc0..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf7 => 4,
            _ => 1,
        };
        return if needs > back { at - back } else { at };
    }
    at
}

/// The smallest index from `at` that does not stand inside a UTF-8 character.
fn char_ceil(bytes: &[u8], at: usize) -> usize {
    let end = bytes.len().min(at + 3);
    (at..end).find(|i| !is_continuation(bytes[*i])).unwrap_or(end)
}

fn is_continuation(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn captured(head: usize, tail: usize, chunks: &[&[u8]]) -> String {
        let mut capture = HeadTail::new(head, tail);
        chunks.iter().for_each(|c| capture.push(c));
        capture.text()
    }

    #[test]
    fn what_fits_is_whole() {
        assert_eq!(captured(3, 4, &[b"ab", b"cde", b"fg"]), "abcdefg");
        assert_eq!(captured(3, 4, &[]), "");
    }

    #[test]
    fn what_does_not_fit_says_how_much_is_missing() {
        assert_eq!(captured(3, 4, &[b"abcdefgh"]), "abc\n[... 1 bytes left out ...]\nefgh");
        assert_eq!(captured(0, 2, &[b"abc", b"def"]), "\n[... 4 bytes left out ...]\nef");
    }

    #[test]
    fn characters_are_not_cut() {
        assert_eq!(captured(4, 4, &["abc😀xyz😀z".as_bytes()]), "abc\n[... 11 bytes left out ...]\nz");
    }

    proptest! {
        #[test]
        fn valid_text_stays_valid_for_every_split(text in "\\PC{0,60}", head in 0_usize..20, tail in 1_usize..20, step in 1_usize..9) {
            let chunks: Vec<&[u8]> = text.as_bytes().chunks(step).collect();
            let got = captured(head, tail, &chunks);
            let replaced = |s: &str| s.contains(char::REPLACEMENT_CHARACTER);
            prop_assert!(replaced(&text) || !replaced(&got));
            prop_assert_eq!(got, captured(head, tail, &[text.as_bytes()]));
        }
    }
}
