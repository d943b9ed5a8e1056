//! Plain text: the last non-empty line of stdout is the final answer.

use super::streams::is_tool_result;
use super::tail::{Tail, clean, cut};
use super::{Decoder, Fact, Pending, SAID_MAX, Transcript};
use crate::providers::call::{CallEnd, Stream};
use crate::providers::definition::OutputFormat;

/// Decodes [`OutputFormat::Text`].
#[derive(Debug)]
pub(super) struct Text {
    pending: Pending,
    transcript: Transcript,
    stdout: Tail,
    stderr: Tail,
    /// The last line of stdout that shows anything.
    last: Vec<u8>,
    /// `last` has changed since facts were fetched.
    news: bool,
}

// === impl Text ===

impl Text {
    pub(super) fn new() -> Self {
        Text {
            pending: Pending::default(),
            transcript: Transcript::new(OutputFormat::Text),
            stdout: Tail::new(0, 64),
            stderr: Tail::new(0, 64),
            last: Vec::new(),
            news: false,
        }
    }
}

impl Decoder for Text {
    fn line(&mut self, stream: Stream, line: &[u8], truncated: bool) {
        self.transcript.counts.add(stream, line, truncated);
        self.pending.first_output();
        match stream {
            Stream::Stderr if is_tool_result(line) => {}
            Stream::Stderr => self.stderr.push(line),
            Stream::Stdout => {
                self.stdout.push(line);
                // A line of white space or of escape sequences alone is no answer.
                if line.iter().any(u8::is_ascii_graphic) || !line.is_ascii() {
                    self.news = true;
                    self.last.clear();
                    self.last.extend_from_slice(&line[..line.len().min(64 * 1024)]);
                }
            }
        }
    }

    fn facts(&mut self) -> Vec<Fact> {
        if std::mem::take(&mut self.news) {
            self.pending.progress(|| Fact::Said(cut(&clean(&self.last), SAID_MAX).to_owned()));
        }
        self.pending.take()
    }

    fn finish(self: Box<Self>, _end: &CallEnd) -> Transcript {
        let mut transcript = self.transcript;
        transcript.stdout = self.stdout.into_lines();
        transcript.stderr = self.stderr.into_lines();
        let last = clean(&self.last);
        // A last line of escape sequences alone shows nothing; what is before it is the answer.
        let answer =
            if last.is_empty() { transcript.stdout.last().cloned().unwrap_or_default() } else { last };
        transcript.set_answer(&answer);
        transcript
    }
}
