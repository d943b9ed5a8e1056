//! From output lines to facts, and at the end to a [`Transcript`].

mod body;
mod claude;
mod cline;
mod codex;
mod gemini;
mod headers;
mod json;
mod opencode;
mod streams;
mod tail;
#[cfg(test)]
mod tests;
mod text;
mod transcript;

pub(super) use body::{body_at, body_in};
pub use tail::LINE_MAX;
pub(crate) use tail::cut;
pub use transcript::{ANSWER_MAX, Counts, ErrorEvent, LimitNotice, Terminal, Transcript};

use super::call::{CallEnd, Stream};
use super::definition::OutputFormat;

/// Reads one call's output. Lines come in the order they were read; each stream's lines without their `\n`.
/// Memory is bounded whatever comes.
pub trait Decoder: Send {
    /// Takes one line. `truncated` says that the line was longer than the reader's limit and this is its head;
    /// the last line of a stream may lack its line end and is a line like any other.
    fn line(&mut self, stream: Stream, line: &[u8], truncated: bool);

    /// Facts since the last call of this, oldest first; at most [`FACTS_MAX`].
    fn facts(&mut self) -> Vec<Fact>;

    /// Ends the call.
    fn finish(self: Box<Self>, end: &CallEnd) -> Transcript;
}

/// Most facts that wait to be fetched; progress beyond that is dropped, the rest is small in number.
pub const FACTS_MAX: usize = 256;

/// Most bytes of [`Fact::Said`].
pub const SAID_MAX: usize = 200;

/// What is known while a call runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Fact {
    /// The agent has started to work: its first event, or for text its first line.
    FirstOutput,
    /// The provider's name of the conversation.
    Conversation(String),
    /// The model that answers, also when it changes in the middle.
    Model(String),
    /// A tool is called, by name.
    Tool(String),
    /// A tool was refused, by name.
    Denied(String),
    /// What the agent last said, one line, at most [`SAID_MAX`] bytes; for progress display only.
    Said(String),
    /// The CLI retries a failed request by itself. Counts as a sign of life; the number is the attempt's.
    Retrying {
        /// Attempt, from 1.
        attempt: u32,
        /// Why.
        why: String,
    },
    /// A notice about a plan's window, also when it only informs.
    Limit(LimitNotice),
    /// The terminal result was seen: the process should exit soon.
    Terminal,
}

/// What a decoder must be told beforehand.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DecoderOptions {
    /// The conversation's running cost as of the last call ([`Transcript::total_cost_usd`]), when resuming.
    pub previous_total_usd: Option<f64>,
}

/// The decoder of a format; `None` for what runs in process.
pub fn decoder(format: OutputFormat, options: DecoderOptions) -> Option<Box<dyn Decoder>> {
    match format {
        OutputFormat::ClaudeStreamJson => Some(Box::new(claude::Claude::new(options))),
        OutputFormat::CodexJsonl => Some(Box::new(codex::Codex::new())),
        OutputFormat::GeminiStreamJson => Some(Box::new(gemini::Gemini::new())),
        OutputFormat::OpencodeJson => Some(Box::new(opencode::Opencode::new())),
        OutputFormat::ClineJson => Some(Box::new(cline::Cline::new())),
        OutputFormat::Text => Some(Box::new(text::Text::new())),
        OutputFormat::Rehearsal => None,
    }
}

/// Facts that wait to be fetched.
#[derive(Debug, Default)]
struct Pending {
    facts: Vec<Fact>,
    started: bool,
    /// The start of what was said last, as it is written in JSON: most of it is never asked for.
    said: Vec<u8>,
}

// === impl Pending ===

impl Pending {
    fn first_output(&mut self) {
        if !self.started {
            self.started = true;
            self.facts.push(Fact::FirstOutput);
        }
    }

    /// Something was said; `start` is the start of a JSON string without its quotes.
    fn said(&mut self, start: &[u8]) {
        if !start.is_empty() {
            self.said.clear();
            self.said.extend_from_slice(start);
        }
    }

    /// Progress: dropped while too much of it waits.
    fn progress(&mut self, fact: impl FnOnce() -> Fact) {
        self.flush();
        if self.facts.len() < FACTS_MAX - RESERVED {
            self.facts.push(fact());
        }
    }

    /// What must not be lost.
    fn push(&mut self, fact: Fact) {
        self.flush();
        if self.facts.len() < FACTS_MAX {
            self.facts.push(fact);
        }
    }

    fn take(&mut self) -> Vec<Fact> {
        self.flush();
        std::mem::take(&mut self.facts)
    }

    /// Puts what was said in its place among the facts.
    fn flush(&mut self) {
        if self.said.is_empty() {
            return;
        }
        if self.facts.len() < FACTS_MAX - RESERVED {
            let said = json::unescaped(&self.said).replace(['\n', '\r'], " ");
            self.facts.push(Fact::Said(cut(said.trim(), SAID_MAX).to_owned()));
        }
        self.said.clear();
    }
}

/// Places kept free for facts that are not progress.
const RESERVED: usize = 64;
