//! Gemini CLI's JSON lines (`gemini -o stream-json`), as recorded from 0.61.0.
//!
//! What to know about the format:
//! * only `result` ends a run, and only its `status` tells success from failure: with `error` the exit code may be 0
//!   and an error object missing; what went wrong then stands in the `error` event before it;
//! * `error` of severity `warning` is a notice: «Loop detected» stands in successful runs;
//! * internal retries are told on stderr alone, for minutes: «Attempt 3 failed with status 429. Retrying…»;
//! * the answer comes in pieces (`delta`); it is what was said after the last tool call;
//! * usage is that of the run, `input_tokens` include the cached ones; there is no cost.

use serde::Deserialize;

use super::body::{error_in, error_of};
use super::json::{Raw, field, pick, read, start, string, word};
use super::streams::{JsonLines, Streams};
use super::tail::{clean, cut};
use super::transcript::ANSWER_MAX;
use super::{ErrorEvent, Fact, Pending, SAID_MAX, Terminal, Transcript};
use crate::providers::definition::OutputFormat;

/// Decodes [`OutputFormat::GeminiStreamJson`].
#[derive(Debug)]
pub(super) struct Gemini {
    pending: Pending,
    transcript: Transcript,
    streams: Streams,
    /// What was said since the last tool call.
    answer: String,
    /// The last error event that is no warning.
    error: Option<ErrorEvent>,
}

#[derive(Deserialize)]
struct Stats {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cached: Option<u64>,
}

// === impl Gemini ===

impl Gemini {
    pub(super) fn new() -> Self {
        Gemini {
            pending: Pending::default(),
            transcript: Transcript::new(OutputFormat::GeminiStreamJson),
            streams: Streams::new(),
            answer: String::new(),
            error: None,
        }
    }

    fn event(&mut self, line: &[u8]) -> Option<()> {
        match word(field(line, b"type")) {
            "" => return None,
            "init" => {
                let [id, model] = pick(line, ["session_id", "model"])?;
                if let Some(id) = string(id) {
                    self.pending.push(Fact::Conversation(id.clone()));
                    self.transcript.conversation = Some(id);
                }
                self.model(string(model));
            }
            "message" => {
                let [role, content, delta] = pick(line, ["role", "content", "delta"])?;
                if word(role) == "assistant" {
                    self.said(content, delta == Some(b"true"));
                }
            }
            "tool_use" => {
                let [name] = pick(line, ["tool_name"])?;
                let name = word(name).to_owned();
                self.transcript.tools_used += 1;
                self.transcript.pending_error = None;
                self.answer.clear();
                self.pending.progress(|| Fact::Tool(name));
            }
            "error" => {
                let [severity, message] = pick(line, ["severity", "message"])?;
                if word(severity) != "warning" {
                    self.error = Some(error_in(&string(message).unwrap_or_default()));
                    self.transcript.pending_error.clone_from(&self.error);
                }
            }
            "result" => self.result(line)?,
            _ if !line.ends_with(b"}") => return None,
            _ => {}
        }
        self.transcript.counts.events += 1;
        self.pending.first_output();
        Some(())
    }

    fn model(&mut self, model: Option<String>) {
        if let Some(model) = model.filter(|model| self.transcript.model.as_ref() != Some(model)) {
            self.pending.push(Fact::Model(model.clone()));
            self.transcript.model = Some(model);
        }
    }

    fn said(&mut self, content: Raw<'_>, delta: bool) {
        self.transcript.pending_error = None;
        self.pending.said(start(content, SAID_MAX));
        if !delta {
            self.answer.clear();
        }
        if self.answer.len() < ANSWER_MAX {
            self.answer.push_str(&string(content).unwrap_or_default());
        }
    }

    fn result(&mut self, line: &[u8]) -> Option<()> {
        let [status, error, stats] = pick(line, ["status", "error", "stats"])?;
        if let Some(stats) = read::<Stats>(stats) {
            let usage = &mut self.transcript.usage;
            usage.input_tokens = stats.input_tokens.map(|all| all.saturating_sub(stats.cached.unwrap_or(0)));
            usage.cache_read_tokens = stats.cached;
            usage.output_tokens = stats.output_tokens;
        }
        let terminal = match (word(status), error) {
            ("success", _) => Terminal::Success,
            (_, Some(error)) if word(field(error, b"type")) == "FatalTurnLimitedError" => {
                Terminal::Cap("max_session_turns".to_owned())
            }
            (_, Some(error)) => Terminal::Failure(error_of(error).unwrap_or_default()),
            (_, None) => Terminal::Failure(self.error.take().unwrap_or_default()),
        };
        self.transcript.pending_error = None;
        self.transcript.terminal = Some(terminal);
        self.pending.push(Fact::Terminal);
        Some(())
    }

    /// «Attempt 3 failed with status 429. Retrying with backoff... {body}», «Attempt 1 failed: why. Retrying after…».
    fn retry(&mut self, line: &[u8]) -> Option<()> {
        let text = clean(line);
        let rest = text.strip_prefix("Attempt ")?;
        let (attempt, rest) = rest.split_once(" failed")?;
        let attempt: u32 = attempt.parse().ok()?;
        let told = rest.strip_prefix(" with status ").and_then(|rest| rest.get(..3)?.parse().ok());
        let error = error_in(rest.trim_start_matches([':', '.', ' ']));
        let why = cut(&error.message, SAID_MAX).to_owned();
        self.pending.first_output();
        self.pending.progress(|| Fact::Retrying { attempt, why });
        let error = ErrorEvent { status: told.or(error.status), ..error };
        self.transcript.pending_error = Some(error.retrying());
        Some(())
    }
}

impl JsonLines for Gemini {
    fn parts(&mut self) -> (&mut Streams, &mut Transcript, &mut Pending) {
        (&mut self.streams, &mut self.transcript, &mut self.pending)
    }

    fn read(&mut self, line: &[u8]) -> Option<()> {
        self.event(line)
    }

    fn told(&mut self, line: &[u8]) {
        self.retry(line);
    }

    fn close(self) -> (Streams, Transcript) {
        let mut transcript = self.transcript;
        transcript.set_answer(&self.answer);
        (self.streams, transcript)
    }
}
