//! What is left of a call's output when it is over: small, typed, bounded.

use jiff::Timestamp;

use super::tail::{cut, cut_front};
use crate::domain::claim::{AnswerKind, Reading};
use crate::domain::outcome::Usage;
use crate::providers::call::Stream;
use crate::providers::definition::OutputFormat;

/// The decoded call. Whatever the stream's size, this is at most a few hundred kilobytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Transcript {
    /// The format that was decoded.
    pub format: OutputFormat,
    /// The provider's own name of the conversation, for resuming it.
    pub conversation: Option<String>,
    /// The model that answered, as the provider named it.
    pub model: Option<String>,
    /// The last terminal event. `None` in formats without one, and when the stream was cut before it.
    pub terminal: Option<Terminal>,
    /// The failure that the CLI had reported as an event when its output ended. Cleared by any sign of progress
    /// after it.
    pub pending_error: Option<ErrorEvent>,
    /// The last limit notice that rejects; notices that only warn are facts, not evidence.
    pub limit: Option<LimitNotice>,
    /// The final answer, at most [`ANSWER_MAX`] bytes of its end.
    pub answer: String,
    /// What the whole final answer claims.
    pub reading: Reading,
    /// Tool calls seen.
    pub tools_used: u64,
    /// Tools that were refused, by name, each once.
    pub denied: Vec<String>,
    /// Tokens and money of this call alone.
    pub usage: Usage,
    /// claude's running total of the conversation: give it to the next call that resumes it.
    pub total_cost_usd: Option<f64>,
    /// Last lines of stdout: for text all of them, for JSON formats those that are not JSON (the first of these
    /// are kept too). Clean text, each at most [`super::tail::LINE_MAX`] bytes.
    pub stdout: Vec<String>,
    /// Last lines of stderr.
    pub stderr: Vec<String>,
    /// What was counted.
    pub counts: Counts,
}

/// Most bytes of the final answer that are kept.
pub const ANSWER_MAX: usize = 256 * 1024;

/// The event that ends a turn.
#[derive(Debug, Clone, PartialEq)]
pub enum Terminal {
    /// It says success.
    Success,
    /// It says that a cap of ours ended the turn, with the provider's name of the cap.
    Cap(String),
    /// It says that the turn was interrupted.
    Aborted(String),
    /// It says failure.
    Failure(ErrorEvent),
}

/// A structured error.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ErrorEvent {
    /// The provider's own kind, such as `rate_limit` or `overloaded_error`.
    pub kinds: Vec<String>,
    /// HTTP status.
    pub status: Option<u16>,
    /// Words for people, at most 4 KiB.
    pub message: String,
    /// The CLI was about to try again: progress, and the cause only of an end that nothing else explains.
    pub retrying: bool,
}

/// A notice about a plan's window.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LimitNotice {
    /// Requests are rejected now. Otherwise it only informs.
    pub rejected: bool,
    /// The provider's name of the window, such as `five_hour` or `seven_day_opus`.
    pub window: Option<String>,
    /// When the window resets.
    pub resets_at: Option<Timestamp>,
    /// Used part of the window, 0 to 1.
    pub utilization: Option<f64>,
}

/// Numbers of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Lines of stdout.
    pub stdout_lines: u64,
    /// Lines of stderr.
    pub stderr_lines: u64,
    /// Bytes of both, without line ends.
    pub bytes: u64,
    /// Events decoded.
    pub events: u64,
    /// Non-empty lines on stdout of a JSON format that are no event.
    pub not_json: u64,
    /// Lines that were longer than the reader's limit.
    pub over_long: u64,
}

// === impl Transcript ===

impl Transcript {
    pub(super) fn new(format: OutputFormat) -> Self {
        Transcript {
            format,
            conversation: None,
            model: None,
            terminal: None,
            pending_error: None,
            limit: None,
            answer: String::new(),
            reading: Reading::default(),
            tools_used: 0,
            denied: Vec::new(),
            usage: Usage::default(),
            total_cost_usd: None,
            stdout: Vec::new(),
            stderr: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Takes the whole final answer: reads its claims, keeps its end.
    pub(super) fn set_answer(&mut self, answer: &str) {
        let kind = match self.format {
            OutputFormat::Text => AnswerKind::Text,
            _ => AnswerKind::Message,
        };
        self.reading = Reading::of(answer, kind);
        self.answer.clear();
        self.answer.push_str(cut_front(answer, ANSWER_MAX));
    }

    /// Notes a refused tool, once. Returns whether it is new.
    pub(super) fn deny(&mut self, tool: &str) -> bool {
        let new = self.denied.len() < DENIED_MAX && !self.denied.iter().any(|known| known == tool);
        if new {
            self.denied.push(tool.to_owned());
        }
        new
    }
}

/// Most names of refused tools that are kept.
const DENIED_MAX: usize = 64;

// === impl ErrorEvent ===

impl ErrorEvent {
    /// Most bytes of the message that are kept.
    const MESSAGE_MAX: usize = 4096;

    pub(super) fn new(kinds: Vec<String>, status: Option<u16>, message: &str) -> Self {
        ErrorEvent {
            kinds,
            status,
            message: cut(message.trim(), Self::MESSAGE_MAX).to_owned(),
            retrying: false,
        }
    }

    /// The same, as a notice that the CLI tries again.
    pub(super) fn retrying(self) -> Self {
        ErrorEvent { retrying: true, ..self }
    }
}

// === impl Counts ===

impl Counts {
    pub(super) fn add(&mut self, stream: Stream, line: &[u8], truncated: bool) {
        match stream {
            Stream::Stdout => self.stdout_lines += 1,
            Stream::Stderr => self.stderr_lines += 1,
        }
        self.bytes += line.len() as u64;
        self.over_long += u64::from(truncated);
    }
}
