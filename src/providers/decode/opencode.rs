//! opencode's JSON lines (`opencode run --format json`), as recorded from 1.18.33.
//!
//! What to know about the format:
//! * a run is over when a step has finished for another reason than tool calls and no step follows; nothing says so;
//! * a failure is an `error` event and exit code 1; it may hold the server's status, headers and body;
//! * it compacts on «prompt too long» and tries again without end: steps in between are no progress;
//! * cost and tokens are those of a step; a cost of 0 is that of a model without a known price.

use serde::Deserialize;

use super::body::error_of;
use super::json::{Raw, field, is_true, pick, read, start, string, word};
use super::streams::{JsonLines, Streams};
use super::{ErrorEvent, Fact, Pending, SAID_MAX, Terminal, Transcript};
use crate::providers::definition::OutputFormat;

/// Decodes [`OutputFormat::OpencodeJson`].
#[derive(Debug)]
pub(super) struct Opencode {
    pending: Pending,
    transcript: Transcript,
    streams: Streams,
    /// The last text of the agent, as it is written.
    answer: Vec<u8>,
    /// Why the prompt was too long; kept until a tool is used.
    overflow: Option<ErrorEvent>,
}

#[derive(Deserialize)]
struct Tokens {
    input: Option<u64>,
    output: Option<u64>,
    reasoning: Option<u64>,
    cache: Option<Cache>,
}

#[derive(Deserialize)]
struct Cache {
    read: Option<u64>,
    write: Option<u64>,
}

// === impl Opencode ===

impl Opencode {
    pub(super) fn new() -> Self {
        Opencode {
            pending: Pending::default(),
            transcript: Transcript::new(OutputFormat::OpencodeJson),
            streams: Streams::new(),
            answer: Vec::new(),
            overflow: None,
        }
    }

    fn event(&mut self, line: &[u8]) -> Option<()> {
        match word(field(line, b"type")) {
            "" => return None,
            "error" => {
                let [id, error] = pick(line, ["sessionID", "error"])?;
                self.conversation(id);
                self.error(error_of(error?)?);
            }
            kind @ ("step_start" | "text" | "tool_use" | "step_finish") => {
                let [id, part] = pick(line, ["sessionID", "part"])?;
                self.conversation(id);
                self.part(kind, part?)?;
            }
            _ if !line.ends_with(b"}") => return None,
            _ => {}
        }
        self.transcript.counts.events += 1;
        self.pending.first_output();
        Some(())
    }

    fn conversation(&mut self, id: Raw<'_>) {
        if self.transcript.conversation.is_none()
            && let Some(id) = string(id)
        {
            self.pending.push(Fact::Conversation(id.clone()));
            self.transcript.conversation = Some(id);
        }
    }

    fn part(&mut self, kind: &str, part: &[u8]) -> Option<()> {
        match kind {
            "step_start" => self.transcript.terminal = None,
            "text" => {
                let [text, synthetic] = pick(part, ["text", "synthetic"])?;
                if is_true(synthetic) {
                    // It speaks to itself: another step follows.
                    self.transcript.terminal = None;
                } else {
                    self.transcript.pending_error = None;
                    self.pending.said(start(text, SAID_MAX));
                    self.answer.clear();
                    self.answer.extend_from_slice(text.unwrap_or_default());
                }
            }
            "tool_use" => {
                let [tool] = pick(part, ["tool"])?;
                let tool = word(tool).to_owned();
                self.transcript.tools_used += 1;
                self.transcript.pending_error = None;
                self.overflow = None;
                self.pending.progress(|| Fact::Tool(tool));
            }
            _ => {
                let [reason, tokens, cost] = pick(part, ["reason", "tokens", "cost"])?;
                self.usage(read(tokens), read(cost));
                self.finished(word(reason));
            }
        }
        Some(())
    }

    fn finished(&mut self, reason: &str) {
        self.transcript.terminal = match reason {
            "stop" | "end_turn" => Some(Terminal::Success),
            "length" | "content-filter" => {
                Some(Terminal::Failure(ErrorEvent::new(vec![reason.to_owned()], None, reason)))
            }
            // More follows, or it was cut.
            _ => None,
        };
        if self.transcript.terminal.is_some() {
            self.pending.push(Fact::Terminal);
        }
    }

    fn usage(&mut self, tokens: Option<Tokens>, cost: Option<f64>) {
        let usage = &mut self.transcript.usage;
        let add = |sum: &mut Option<u64>, more: Option<u64>| {
            if let Some(more) = more {
                *sum = Some(sum.unwrap_or(0).saturating_add(more));
            }
        };
        if let Some(tokens) = tokens {
            add(&mut usage.input_tokens, tokens.input);
            add(&mut usage.output_tokens, tokens.output);
            add(&mut usage.output_tokens, tokens.reasoning);
            add(&mut usage.cache_read_tokens, tokens.cache.as_ref().and_then(|cache| cache.read));
            add(&mut usage.cache_write_tokens, tokens.cache.as_ref().and_then(|cache| cache.write));
        }
        if let Some(cost) = cost.filter(|cost| *cost > 0.0) {
            usage.cost_usd = Some(usage.cost_usd.unwrap_or(0.0) + cost);
        }
    }

    fn error(&mut self, error: ErrorEvent) {
        if error.kinds.iter().any(|kind| kind == "ContextOverflowError") {
            self.overflow = Some(error.clone());
        }
        self.transcript.terminal = None;
        self.transcript.pending_error = Some(error);
    }
}

impl JsonLines for Opencode {
    fn parts(&mut self) -> (&mut Streams, &mut Transcript, &mut Pending) {
        (&mut self.streams, &mut self.transcript, &mut self.pending)
    }

    fn read(&mut self, line: &[u8]) -> Option<()> {
        self.event(line)
    }

    fn close(self) -> (Streams, Transcript) {
        let mut transcript = self.transcript;
        if let Some(answer) = string(Some(&self.answer)) {
            transcript.set_answer(&answer);
        }
        if transcript.terminal.is_none() && transcript.pending_error.is_none() {
            transcript.pending_error = self.overflow.map(ErrorEvent::retrying);
        }
        (self.streams, transcript)
    }
}
