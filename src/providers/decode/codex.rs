//! Codex's JSON lines (`codex exec --json`), as recorded from 0.171.0.
//!
//! What to know about the format:
//! * a turn ends with `turn.completed` or `turn.failed`; nothing else is terminal;
//! * an item of type `error` is a notice: one about unknown model metadata stands in successful runs;
//! * `error` «Reconnecting... 2/5 (why)» is progress, and so is «Reconnecting... waiting for network (why)», without end;
//! * `turn.failed.error.message` may itself be a JSON error body;
//! * `usage` is that of the turn; `input_tokens` include the cached ones; there is no cost.

use serde::Deserialize;

use super::body::error_of;
use super::json::{Cursor, Raw, field, pick, read, start, string, word};
use super::streams::{JsonLines, Streams};
use super::tail::cut;
use super::{ErrorEvent, Fact, Pending, SAID_MAX, Terminal, Transcript};
use crate::providers::definition::OutputFormat;

/// Decodes [`OutputFormat::CodexJsonl`].
#[derive(Debug)]
pub(super) struct Codex {
    pending: Pending,
    transcript: Transcript,
    streams: Streams,
    /// The last agent message as it is written: the final answer, once it is known to be the last.
    answer: Vec<u8>,
    /// Tool items begun, and ended: some kinds are only ever reported at their end.
    tools: [u64; 2],
    /// The number of the last try of a failed request.
    retries: u32,
}

/// What is used of an item.
#[derive(Default)]
struct Item<'a> {
    kind: Raw<'a>,
    text: Raw<'a>,
    status: Raw<'a>,
}

#[derive(Deserialize)]
struct TurnUsage {
    input_tokens: Option<u64>,
    cached_input_tokens: Option<u64>,
    cache_write_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

const BEGUN: usize = 0;
const ENDED: usize = 1;

// === impl Item ===

impl<'a> Item<'a> {
    /// One walk over the whole line, whatever its size.
    fn read(line: &'a [u8]) -> Option<Self> {
        let mut item = Item::default();
        let mut cursor = Cursor::new(line);
        cursor.object(|key, cursor| match key {
            b"item" => cursor.object(|key, cursor| match key {
                b"type" => cursor.take(&mut item.kind),
                b"text" => cursor.take(&mut item.text),
                b"status" => cursor.take(&mut item.status),
                _ => cursor.skip(),
            }),
            _ => cursor.skip(),
        })?;
        cursor.at_end().then_some(item)
    }
}

// === impl Codex ===

impl Codex {
    pub(super) fn new() -> Self {
        Codex {
            pending: Pending::default(),
            transcript: Transcript::new(OutputFormat::CodexJsonl),
            streams: Streams::new(),
            answer: Vec::new(),
            tools: [0; 2],
            retries: 0,
        }
    }

    fn event(&mut self, line: &[u8]) -> Option<()> {
        match word(field(line, b"type")) {
            "" => return None,
            "thread.started" => {
                let [id] = pick(line, ["thread_id"])?;
                if let Some(id) = string(id) {
                    self.pending.push(Fact::Conversation(id.clone()));
                    self.transcript.conversation = Some(id);
                }
            }
            "item.started" => self.item(&Item::read(line)?, BEGUN),
            "item.completed" => self.item(&Item::read(line)?, ENDED),
            "turn.completed" => self.completed(line)?,
            "turn.failed" => {
                let error = failure(line)?;
                self.end(Terminal::Failure(error));
            }
            "error" => self.error(failure(line)?),
            // Nothing in them is evidence; a line that was cut in the middle is no event.
            _ if !line.ends_with(b"}") => return None,
            _ => {}
        }
        self.transcript.counts.events += 1;
        self.pending.first_output();
        Some(())
    }

    fn item(&mut self, item: &Item<'_>, phase: usize) {
        self.pending.first_output();
        match word(item.kind) {
            // A notice, neither progress nor failure.
            "error" => return,
            "agent_message" if phase == ENDED => {
                self.pending.said(start(item.text, SAID_MAX));
                self.answer.clear();
                self.answer.extend_from_slice(item.text.unwrap_or_default());
            }
            tool @ ("command_execution" | "file_change" | "mcp_tool_call" | "web_search"
            | "collab_tool_call") => {
                self.tools[phase] += 1;
                // More ends than begins: this kind has no begin.
                if phase == BEGUN || self.tools[ENDED] > self.tools[BEGUN] {
                    self.pending.progress(|| Fact::Tool(tool.to_owned()));
                }
                if word(item.status) == "declined" && self.transcript.deny(tool) {
                    self.pending.push(Fact::Denied(tool.to_owned()));
                }
            }
            _ => {}
        }
        self.transcript.pending_error = None;
    }

    fn completed(&mut self, line: &[u8]) -> Option<()> {
        let [usage] = pick(line, ["usage"])?;
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
        Some(())
    }

    fn end(&mut self, terminal: Terminal) {
        self.transcript.pending_error = None;
        self.transcript.terminal = Some(terminal);
        self.pending.push(Fact::Terminal);
    }

    fn error(&mut self, error: ErrorEvent) {
        let Some((attempt, why)) = reconnecting(&error.message) else {
            self.transcript.pending_error = Some(error);
            return;
        };
        self.retries = attempt.unwrap_or(self.retries.saturating_add(1));
        let attempt = self.retries;
        self.pending.progress(|| Fact::Retrying { attempt, why: cut(why, SAID_MAX).to_owned() });
        let error = ErrorEvent::new(error.kinds, status_in(why), why);
        self.transcript.pending_error = Some(error.retrying());
    }
}

impl JsonLines for Codex {
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
        transcript.tools_used = self.tools[BEGUN].max(self.tools[ENDED]);
        (self.streams, transcript)
    }
}

/// The error of an event: its `error`, or its own `message`, with what a JSON body in it says.
fn failure(line: &[u8]) -> Option<ErrorEvent> {
    let [error, message, status] = pick(line, ["error", "message", "status"])?;
    let told = error.or(message).and_then(error_of).unwrap_or_default();
    let status = read(status).or(told.status).or_else(|| status_in(&told.message));
    Some(ErrorEvent { status, ..told })
}

/// Attempt and cause of «Reconnecting... 2/5 (cause)», or cause alone of «Reconnecting... waiting for network (cause)».
fn reconnecting(message: &str) -> Option<(Option<u32>, &str)> {
    let rest = message.strip_prefix("Reconnecting")?.trim_start_matches(['.', '…', ' ']);
    if rest.starts_with("waiting for network") {
        return Some((None, rest));
    }
    let (attempt, rest) = rest.split_once('/')?;
    let why = rest.split_once('(').map_or("", |(_, why)| why.strip_suffix(')').unwrap_or(why));
    Some((Some(attempt.parse().ok()?), why))
}

/// The HTTP status that codex puts in words: «unexpected status 401 Unauthorized», «last status: 429 Too Many…».
fn status_in(message: &str) -> Option<u16> {
    let after = ["unexpected status ", "last status: "];
    let rest = after.iter().find_map(|lead| message.split_once(lead)).map(|(_, rest)| rest)?;
    rest.get(..3)?.parse().ok().filter(|status| (100..600).contains(status))
}
