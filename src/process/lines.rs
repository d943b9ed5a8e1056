//! Cutting a byte stream into lines, in linear time and bounded memory, the same for every way it is chunked.

/// How much room there is for each read.
const CHUNK: usize = 64 * 1024;
/// Buffer size between long lines: large enough that a partial line is seldom moved.
const BASE: usize = 4 * CHUNK;
/// How much of a line that is too long is kept, to show which one it was.
pub const LONG_LINE_HEAD: usize = 4096;

/// One line, without its line end (LF or CR LF).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line<'a> {
    /// The line, any bytes.
    Whole(&'a [u8]),
    /// A line over the limit: discarded up to its end. Told once, when the end is there.
    TooLong {
        /// Its first [`LONG_LINE_HEAD`] bytes, or as many as a line may have if that is less.
        head: &'a [u8],
        /// Its whole length in bytes.
        length: u64,
    },
}

/// A buffer that is read into and gives lines.
#[derive(Debug)]
pub(super) struct Lines {
    buffer: Vec<u8>,
    /// `buffer[start..end]` is the line that has begun.
    start: usize,
    end: usize,
    /// Longest line that is given whole, in bytes.
    limit: usize,
    /// The line that has begun is too long.
    skipped: Option<Skipped>,
}

#[derive(Debug)]
struct Skipped {
    head: Vec<u8>,
    /// Bytes so far.
    length: u64,
}

// === impl Lines ===

impl Lines {
    pub(super) fn new(limit: usize) -> Self {
        Lines { buffer: vec![0; BASE], start: 0, end: 0, limit, skipped: None }
    }

    /// Where to read to; at least [`CHUNK`] bytes.
    pub(super) fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.buffer.len() > BASE {
                self.buffer = vec![0; BASE];
            }
        }
        if self.buffer.len() - self.end < CHUNK {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.buffer.len() - self.end < CHUNK {
                // Doubling: a long line is copied a few times at most, however small the reads are.
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
        }
        &mut self.buffer[self.end..]
    }

    /// `count` bytes have been read into [`Lines::space`]. Gives the lines that they complete.
    pub(super) fn advance(&mut self, count: usize, mut give: impl FnMut(Line<'_>)) {
        let mut from = self.end;
        let end = self.end + count;
        for at in memchr::memchr_iter(b'\n', &self.buffer[from..end]) {
            let line_end = self.end + at;
            match self.skipped.take() {
                Some(skipped) => give(skipped.done(&self.buffer[from..line_end])),
                None => give(whole_or_long(&self.buffer[self.start..line_end], self.limit)),
            }
            from = line_end + 1;
            self.start = from;
        }
        self.end = end;
        if let Some(skipped) = &mut self.skipped {
            skipped.length += (end - from) as u64;
            self.start = end;
        } else if end - self.start > self.limit {
            let line = &self.buffer[self.start..end];
            let head = head_of(line, self.limit).to_vec();
            self.skipped = Some(Skipped { head, length: line.len() as u64 });
            self.start = end;
        }
    }

    /// The stream has ended: gives the last line if it has no line end.
    pub(super) fn finish(&mut self, mut give: impl FnMut(Line<'_>)) {
        if let Some(skipped) = self.skipped.take() {
            give(skipped.done(&[]));
        } else if self.start < self.end {
            give(Line::Whole(&self.buffer[self.start..self.end]));
        }
        self.start = self.end;
    }
}

/// A line that is there with its end.
fn whole_or_long(line: &[u8], limit: usize) -> Line<'_> {
    if line.len() > limit {
        return Line::TooLong { head: head_of(line, limit), length: line.len() as u64 };
    }
    Line::Whole(line.strip_suffix(b"\r").unwrap_or(line))
}

/// No longer than what is there whenever a line is found to be over `limit`.
fn head_of(line: &[u8], limit: usize) -> &[u8] {
    &line[..limit.min(LONG_LINE_HEAD).min(line.len())]
}

// === impl Skipped ===

impl Skipped {
    fn done(&self, rest: &[u8]) -> Line<'_> {
        Line::TooLong { head: &self.head, length: self.length + rest.len() as u64 }
    }
}

/// Reads a recorded stream to its end, as lines of at most `limit` bytes.
///
/// # Errors
/// Those of reading.
pub fn read_lines(
    source: &mut impl std::io::Read,
    limit: usize,
    mut give: impl FnMut(Line<'_>),
) -> std::io::Result<()> {
    let mut lines = Lines::new(limit);
    loop {
        match source.read(lines.space()) {
            Ok(0) => break,
            Ok(count) => lines.advance(count, &mut give),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    lines.finish(give);
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone, PartialEq, Eq)]
    enum Given {
        Whole(Vec<u8>),
        TooLong(Vec<u8>, u64),
    }

    fn given(line: Line<'_>) -> Given {
        match line {
            Line::Whole(line) => Given::Whole(line.to_vec()),
            Line::TooLong { head, length } => Given::TooLong(head.to_vec(), length),
        }
    }

    fn cut(limit: usize, chunks: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Vec<Given> {
        let mut lines = Lines::new(limit);
        let mut out = Vec::new();
        for chunk in chunks {
            for part in chunk.as_ref().chunks(CHUNK) {
                lines.space()[..part.len()].copy_from_slice(part);
                lines.advance(part.len(), |l| out.push(given(l)));
            }
        }
        lines.finish(|l| out.push(given(l)));
        out
    }

    /// What the lines of `text` are, said as simply as possible.
    fn expected(limit: usize, text: &[u8]) -> Vec<Given> {
        let mut lines: Vec<(&[u8], bool)> = text.split(|b| *b == b'\n').map(|l| (l, true)).collect();
        if let Some(last) = lines.last_mut() {
            last.1 = false;
        }
        if lines.last().is_some_and(|l| l.0.is_empty()) {
            lines.pop();
        }
        let one = |(line, ended): (&[u8], bool)| {
            if line.len() > limit {
                Given::TooLong(line[..limit].to_vec(), line.len() as u64)
            } else {
                let stripped = if ended { line.strip_suffix(b"\r").unwrap_or(line) } else { line };
                Given::Whole(stripped.to_vec())
            }
        };
        lines.into_iter().map(one).collect()
    }

    proptest! {
        /// B04: an over-long line must not look different, or worse, valid, for another split of the same bytes.
        #[test]
        fn every_split_gives_the_same_lines(
            chunks in prop::collection::vec(prop::collection::vec(prop::sample::select(b"ab\r\n\xff\0".to_vec()), 0..9), 0..12),
            limit in 1_usize..10,
        ) {
            let text = chunks.concat();
            prop_assert_eq!(cut(limit, &chunks), expected(limit, &text));
            prop_assert_eq!(cut(limit, text.chunks(1)), expected(limit, &text));
        }
    }

    #[test]
    fn a_line_at_the_limit_is_whole_and_one_above_is_told_once() {
        let limit = 3 * BASE;
        for split in [0, 1, CHUNK, 2 * BASE + 7, limit - 64, limit] {
            for (length, whole) in [(limit, true), (limit + 1, false), (4 * limit, false)] {
                let mut text = vec![b'a'; length];
                text.extend(b"\nnext\n");
                let got = cut(limit, [&text[..split], &text[split..]]);
                assert_eq!(got.len(), 2);
                assert_eq!(got[1], Given::Whole(b"next".to_vec()));
                assert_eq!(matches!(got[0], Given::Whole(_)), whole);
                if !whole {
                    assert_eq!(got[0], Given::TooLong(vec![b'a'; LONG_LINE_HEAD], length as u64));
                }
            }
        }
    }

    #[test]
    fn memory_is_given_back_after_a_long_line() {
        let mut lines = Lines::new(64 * BASE);
        for _ in 0..40 {
            lines.space()[..CHUNK].fill(b'x');
            lines.advance(CHUNK, |_| {});
        }
        assert!(lines.buffer.len() > BASE);
        lines.space()[0] = b'\n';
        lines.advance(1, |_| {});
        lines.space();
        assert_eq!(lines.buffer.len(), BASE);
    }
}
