//! Cline's JSON lines (`cline --json`), as recorded from 3.0.65.
//!
//! What to know about the format:
//! * only `run_result` ends a run; its `text` is the answer, or the words of the failure;
//! * an `error` event before it names the class of the failure; a refused or failed tool makes such events, too, in
//!   runs that go on;
//! * errors before a run begins are JSON lines on stderr;
//! * usage is that of the run, `inputTokens` include the cached ones; a cost of 0 is that of a model without a price.

use serde::Deserialize;

use super::body::error_of;
use super::json::{field, pick, read, start, string, word};
use super::streams::{JsonLines, Streams};
use super::{ErrorEvent, Fact, Pending, SAID_MAX, Terminal, Transcript};
use crate::providers::definition::OutputFormat;

/// Decodes [`OutputFormat::ClineJson`].
#[derive(Debug)]
pub(super) struct Cline {
    pending: Pending,
    transcript: Transcript,
    streams: Streams,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RunUsage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
    total_cost: Option<f64>,
}

// === impl Cline ===

impl Cline {
    pub(super) fn new() -> Self {
        Cline {
            pending: Pending::default(),
            transcript: Transcript::new(OutputFormat::ClineJson),
            streams: Streams::new(),
        }
    }

    fn event(&mut self, line: &[u8]) -> Option<()> {
        match word(field(line, b"type")) {
            "" => return None,
            "agent_event" => {
                let [event] = pick(line, ["event"])?;
                self.agent(event?)?;
            }
            "run_result" => self.result(line)?,
            "error" => self.transcript.pending_error = error_of(line),
            _ if !line.ends_with(b"}") => return None,
            _ => {}
        }
        self.transcript.counts.events += 1;
        self.pending.first_output();
        Some(())
    }

    fn agent(&mut self, event: &[u8]) -> Option<()> {
        let [kind, content, text, tool] = pick(event, ["type", "contentType", "text", "toolName"])?;
        match (word(kind), word(content)) {
            ("content_end", "text") => {
                self.transcript.pending_error = None;
                self.pending.said(start(text, SAID_MAX));
            }
            ("content_start", "tool") => {
                let tool = word(tool).to_owned();
                self.transcript.tools_used += 1;
                self.transcript.pending_error = None;
                self.pending.progress(|| Fact::Tool(tool));
            }
            ("iteration_start", _) => self.transcript.pending_error = None,
            ("error", _) => self.transcript.pending_error = error_of(event),
            _ => {}
        }
        Some(())
    }

    fn result(&mut self, line: &[u8]) -> Option<()> {
        let [reason, usage, text, model] = pick(line, ["finishReason", "usage", "text", "model"])?;
        if let Some(told) = read::<RunUsage>(usage) {
            let usage = &mut self.transcript.usage;
            let cached = told.cache_read_tokens.unwrap_or(0);
            usage.input_tokens = told.input_tokens.map(|all| all.saturating_sub(cached));
            usage.output_tokens = told.output_tokens;
            usage.cache_read_tokens = told.cache_read_tokens;
            usage.cache_write_tokens = told.cache_write_tokens;
            usage.cost_usd = told.total_cost.filter(|cost| *cost > 0.0);
        }
        if let Some(model) = model.and_then(|model| string(field(model, b"id"))) {
            self.pending.push(Fact::Model(model.clone()));
            self.transcript.model = Some(model);
        }
        let text = string(text).unwrap_or_default();
        let before = self.transcript.pending_error.take();
        let terminal = match word(reason) {
            "completed" | "stop" => {
                self.transcript.set_answer(&text);
                Terminal::Success
            }
            reason @ ("max_iterations" | "max_steps" | "mistake_limit") => Terminal::Cap(reason.to_owned()),
            reason @ ("aborted" | "cancelled") => Terminal::Aborted(reason.to_owned()),
            _ => {
                let told = super::body::error_in(&text);
                let error = before.unwrap_or_default();
                let kinds = error.kinds.into_iter().chain(told.kinds).collect();
                Terminal::Failure(ErrorEvent::new(kinds, told.status.or(error.status), &told.message))
            }
        };
        self.transcript.terminal = Some(terminal);
        self.pending.push(Fact::Terminal);
        Some(())
    }
}

impl JsonLines for Cline {
    fn parts(&mut self) -> (&mut Streams, &mut Transcript, &mut Pending) {
        (&mut self.streams, &mut self.transcript, &mut self.pending)
    }

    fn read(&mut self, line: &[u8]) -> Option<()> {
        self.event(line)
    }

    fn close(self) -> (Streams, Transcript) {
        (self.streams, self.transcript)
    }
}
