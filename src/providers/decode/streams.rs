//! What all formats of JSON lines have in common: events on stdout, other words around them, stderr.

use memchr::memmem;

use super::json::{Cursor, field, word};
use super::tail::Tail;
use super::{Decoder, Fact, Pending, Transcript};
use crate::providers::call::{CallEnd, Stream};

/// A format of JSON lines: what all have, and what is special to each.
pub(super) trait JsonLines: Send + Sized {
    /// What all have.
    fn parts(&mut self) -> (&mut Streams, &mut Transcript, &mut Pending);

    /// Takes a line of stdout; `None`: it is no event of this format.
    fn read(&mut self, line: &[u8]) -> Option<()>;

    /// Sees a line of stderr.
    fn told(&mut self, _line: &[u8]) {}

    /// Puts in what is known only at the end.
    fn close(self) -> (Streams, Transcript);
}

impl<F: JsonLines> Decoder for F {
    fn line(&mut self, stream: Stream, line: &[u8], truncated: bool) {
        if stream == Stream::Stderr {
            self.told(line);
        }
        let (streams, transcript, _) = self.parts();
        if let Some(event) = streams.sort(transcript, stream, line, truncated)
            && self.read(event).is_none()
        {
            let (streams, transcript, _) = self.parts();
            streams.no_event(transcript, event);
        }
    }

    fn facts(&mut self) -> Vec<Fact> {
        self.parts().2.take()
    }

    fn finish(self: Box<Self>, _: &CallEnd) -> Transcript {
        let (streams, mut transcript) = self.close();
        transcript.stdout = streams.stray.into_lines();
        transcript.stderr = streams.stderr.into_lines();
        transcript
    }
}

/// Lines that are no events.
#[derive(Debug)]
pub(super) struct Streams {
    /// Lines of stdout that are no event: the CLI's own words.
    stray: Tail,
    stderr: Tail,
}

/// Results of tools that CLIs log on stderr.
const TOOL_RESULTS: [&[u8]; 3] = [b"Error executing tool ", b"codex_core::tools", b"codex_core::exec"];

/// Whether a line of stderr is about a tool: what tools say is no evidence.
pub(super) fn is_tool_result(line: &[u8]) -> bool {
    TOOL_RESULTS.iter().any(|words| memmem::find(line, words).is_some())
}

// === impl Streams ===

impl Streams {
    pub(super) fn new() -> Self {
        Streams { stray: Tail::new(16, 48), stderr: Tail::new(0, 64) }
    }

    /// Counts a line and gives it back when it may be an event.
    fn sort<'a>(
        &mut self,
        transcript: &mut Transcript,
        stream: Stream,
        line: &'a [u8],
        truncated: bool,
    ) -> Option<&'a [u8]> {
        transcript.counts.add(stream, line, truncated);
        if stream == Stream::Stderr {
            if !is_tool_result(line) {
                self.stderr.push(line);
            }
            return None;
        }
        let line = line.trim_ascii();
        if line.is_empty() {
            return None;
        }
        if truncated {
            // The head of an over-long event is no event, and no words of the CLI either.
            if !line.starts_with(b"{") {
                self.no_event(transcript, line);
            }
            return None;
        }
        Some(line)
    }

    /// A line of stdout turned out to be no event.
    fn no_event(&mut self, transcript: &mut Transcript, line: &[u8]) {
        transcript.counts.not_json += 1;
        // An event that was cut in the middle may quote anything.
        if word(field(line, b"type")).is_empty() || Cursor::new(line).skip().is_some() {
            self.stray.push(line);
        }
    }
}
