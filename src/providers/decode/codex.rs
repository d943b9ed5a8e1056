//! Codex's JSON lines (`codex exec --json`), as recorded from 0.171.0.
//!
//! What to know about the format:
//! * a turn ends with `turn.completed` or `turn.failed`; nothing else is terminal;
//! * an item of type `error` is a notice: one about unknown model metadata stands in successful runs;
//! * `error` «Reconnecting... 2/5 (why)» is progress;
//! * `turn.failed.error.message` may itself be a JSON error body;
//! * `usage` is that of the turn; `input_tokens` include the cached ones; there is no cost.

use serde::Deserialize;

use super::json::{Raw, read, start_of_string, string, text, without_lone_surrogates, word};
use super::tail::Tail;
use super::{Decoder, ErrorEvent, Fact, Pending, SAID_MAX, Terminal, Transcript};
use crate::providers::call::{CallEnd, Stream};
use crate::providers::definition::OutputFormat;

/// Decodes [`OutputFormat::CodexJsonl`].
#[derive(Debug)]
pub(super) struct Codex {
    pending: Pending,
    transcript: Transcript,
    stray: Tail,
    stderr: Tail,
    /// Tool items begun, and ended: some kinds are only ever reported at their end.
    tools: [u64; 2],
}

/// One event, of any type.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow)]
    thread_id: Raw<'a>,
    #[serde(borrow)]
    item: Raw<'a>,
    #[serde(borrow)]
    usage: Raw<'a>,
    /// `turn.failed`, some `error` events.
    #[serde(borrow)]
    error: Raw<'a>,
    #[serde(borrow)]
    status: Raw<'a>,
    /// `error`.
    #[serde(borrow)]
    message: Raw<'a>,
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow)]
    text: Raw<'a>,
    #[serde(borrow)]
    status: Raw<'a>,
}

#[derive(Deserialize)]
struct TurnUsage {
    input_tokens: Option<u64>,
    cached_input_tokens: Option<u64>,
    cache_write_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

/// A JSON error body, as servers send it: `{"error": {...}}`, `{"detail": "..."}`, or the inner part alone.
#[derive(Deserialize)]
struct ErrorBody<'a> {
    #[serde(borrow)]
    error: Raw<'a>,
    #[serde(borrow)]
    detail: Raw<'a>,
    #[serde(borrow)]
    message: Raw<'a>,
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow)]
    code: Raw<'a>,
}

const BEGUN: usize = 0;
const ENDED: usize = 1;

// === impl Codex ===

impl Codex {
    pub(super) fn new() -> Self {
        Codex {
            pending: Pending::default(),
            transcript: Transcript::new(OutputFormat::CodexJsonl),
            stray: Tail::new(16, 48),
            stderr: Tail::new(0, 64),
            tools: [0; 2],
        }
    }

    fn stdout(&mut self, line: &[u8]) -> bool {
        let (line, repaired) = text(line);
        self.transcript.counts.repaired += u64::from(repaired);
        if let Ok(event) = serde_json::from_str::<Event<'_>>(&line) {
            return self.event(&event);
        }
        let whole = without_lone_surrogates(&line);
        let Ok(event) = serde_json::from_str::<Event<'_>>(&whole) else { return false };
        self.transcript.counts.repaired += 1;
        self.event(&event)
    }

    fn event(&mut self, event: &Event<'_>) -> bool {
        let kind = word(event.kind);
        if kind.is_empty() {
            return false;
        }
        self.transcript.counts.events += 1;
        self.pending.first_output();
        match kind {
            "thread.started" => {
                if let Some(id) = string(event.thread_id) {
                    self.pending.push(Fact::Conversation(id.clone()));
                    self.transcript.conversation = Some(id);
                }
            }
            "item.started" => self.item(event.item, BEGUN),
            "item.completed" => self.item(event.item, ENDED),
            "turn.completed" => self.completed(event.usage),
            "turn.failed" => {
                let error = self.failure(event);
                self.end(Terminal::Failure(error));
            }
            "error" => self.error(event),
            _ => {}
        }
        true
    }

    fn item(&mut self, item: Raw<'_>, phase: usize) {
        let Some(item) = read::<Item<'_>>(item) else { return };
        match word(item.kind) {
            // A notice, neither progress nor failure.
            "error" => return,
            "agent_message" if phase == ENDED => {
                if let Some(said) = start_of_string(item.text, SAID_MAX) {
                    self.pending.progress(Fact::Said(said.replace(['\n', '\r'], " ").trim().to_owned()));
                }
                if let Some(answer) = string(item.text) {
                    self.transcript.set_answer(&answer);
                }
            }
            tool @ ("command_execution" | "file_change" | "mcp_tool_call" | "web_search"
            | "collab_tool_call") => {
                self.tools[phase] += 1;
                // More ends than begins: this kind has no begin.
                if phase == BEGUN || self.tools[ENDED] > self.tools[BEGUN] {
                    self.pending.progress(Fact::Tool(tool.to_owned()));
                }
                if word(item.status) == "declined" && self.transcript.deny(tool) {
                    self.pending.push(Fact::Denied(tool.to_owned()));
                }
            }
            _ => {}
        }
        self.transcript.pending_error = None;
    }

    fn completed(&mut self, usage: Raw<'_>) {
        if let Some(usage) = read::<TurnUsage>(usage) {
            let cached = usage.cached_input_tokens.unwrap_or(0);
            let sum = &mut self.transcript.usage;
            let add = |sum: &mut Option<u64>, more: Option<u64>| {
                if let Some(more) = more {
                    *sum = Some(sum.unwrap_or(0).saturating_add(more));
                }
            };
            add(&mut sum.input_tokens, usage.input_tokens.map(|all| all.saturating_sub(cached)));
            add(&mut sum.cache_read_tokens, usage.cached_input_tokens);
            add(&mut sum.cache_write_tokens, usage.cache_write_input_tokens);
            add(&mut sum.output_tokens, usage.output_tokens);
        }
        self.end(Terminal::Success);
    }

    fn end(&mut self, terminal: Terminal) {
        self.transcript.pending_error = None;
        self.transcript.terminal = Some(terminal);
        self.pending.push(Fact::Terminal);
    }

    fn error(&mut self, event: &Event<'_>) {
        let error = self.failure(event);
        if let Some((attempt, why)) = reconnecting(&error.message) {
            self.pending.progress(Fact::Retrying { attempt, why: super::cut(why, SAID_MAX).to_owned() });
            let error = ErrorEvent::new(error.kinds, status_in(why), why);
            self.transcript.pending_error = Some(error.retrying());
        } else {
            self.transcript.pending_error = Some(error);
        }
    }

    /// The error of an event: its `error.message`, or its own `message`, with what a JSON body in it says.
    fn failure(&self, event: &Event<'_>) -> ErrorEvent {
        let body = body(event.error.map_or("", |raw| raw.get()));
        let (mut kinds, words) = match body {
            Some(found) => found,
            None => (Vec::new(), string(event.message).unwrap_or_default()),
        };
        let message = match self::body(words.trim()) {
            Some((inner, message)) => {
                kinds.extend(inner);
                message
            }
            None => words,
        };
        let status = read(event.status).or_else(|| status_in(&message));
        ErrorEvent::new(kinds, status, &message)
    }
}

impl Decoder for Codex {
    fn line(&mut self, stream: Stream, line: &[u8], truncated: bool) {
        self.transcript.counts.add(stream, line, truncated);
        match stream {
            Stream::Stderr => self.stderr.push(line),
            Stream::Stdout => {
                let line = line.trim_ascii();
                if line.is_empty() {
                    return;
                }
                let cut_event = truncated && line.starts_with(b"{");
                if cut_event || (!truncated && self.stdout(line)) {
                    return;
                }
                self.transcript.counts.not_json += 1;
                self.stray.push(line);
            }
        }
    }

    fn facts(&mut self) -> Vec<Fact> {
        self.pending.take()
    }

    fn finish(self: Box<Self>, _end: &CallEnd) -> Transcript {
        let mut transcript = self.transcript;
        transcript.tools_used = self.tools[BEGUN].max(self.tools[ENDED]);
        transcript.stdout = self.stray.into_lines();
        transcript.stderr = self.stderr.into_lines();
        transcript
    }
}

/// Kinds and message of a JSON error body.
fn body(json: &str) -> Option<(Vec<String>, String)> {
    let outer: ErrorBody<'_> = serde_json::from_str(json).ok()?;
    let inner: Option<ErrorBody<'_>> = read(outer.error);
    let told = inner.as_ref().unwrap_or(&outer);
    let message = string(told.message).or_else(|| string(outer.detail))?;
    let kinds = [told.kind, told.code].into_iter().map(word).filter(|kind| !kind.is_empty());
    Some((kinds.map(str::to_owned).collect(), message))
}

/// Attempt and cause of «Reconnecting... 2/5 (cause)».
fn reconnecting(message: &str) -> Option<(u32, &str)> {
    let rest = message.strip_prefix("Reconnecting")?.trim_start_matches(['.', '…', ' ']);
    let (attempt, rest) = rest.split_once('/')?;
    let why = rest.split_once('(').map_or("", |(_, why)| why.strip_suffix(')').unwrap_or(why));
    Some((attempt.parse().ok()?, why))
}

/// The HTTP status that codex puts in words: «unexpected status 401 Unauthorized», «last status: 429 Too Many…».
fn status_in(message: &str) -> Option<u16> {
    let after = ["unexpected status ", "last status: "];
    let rest = after.iter().find_map(|lead| message.split_once(lead)).map(|(_, rest)| rest)?;
    rest.get(..3)?.parse().ok().filter(|status| (100..600).contains(status))
}
