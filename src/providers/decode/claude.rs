//! Claude Code's stream-json (`-p --output-format stream-json --verbose`), as recorded from 2.1.332.
//!
//! What to know about the format:
//! * a failure is `result.is_error`, not `subtype`, which says `success` on every API error;
//! * the kind of an API error stands in the synthetic `assistant` event before the result, not in the result;
//! * `total_cost_usd` runs over the whole conversation, also over `--resume`; `usage` of `assistant` events is
//!   that of a message's start; `model_usage_since_last_result` is this result's share, sub-agents included;
//! * `type` need not be the first key of an event.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::json::{Raw, read, start_of_string, string, text, without_lone_surrogates, word};
use super::tail::Tail;
use super::{
    Decoder, DecoderOptions, ErrorEvent, Fact, LimitNotice, Pending, SAID_MAX, Terminal, Transcript,
};
use crate::domain::outcome::Usage;
use crate::providers::call::{CallEnd, Stream};
use crate::providers::definition::OutputFormat;

/// Decodes [`OutputFormat::ClaudeStreamJson`].
#[derive(Debug)]
pub(super) struct Claude {
    pending: Pending,
    transcript: Transcript,
    /// Lines of stdout that are no events.
    stray: Tail,
    stderr: Tail,
    /// The last API error that an `assistant` event reported, and whether the agent has spoken since.
    api_error: Option<ErrorEvent>,
    /// Cost of the conversation when the last result came, or before this call.
    previous_total_usd: Option<f64>,
    /// The attempt number of the last retry notice: notices repeat while the CLI waits.
    last_retry: Option<u32>,
}

/// One event, of any type.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow)]
    subtype: Raw<'a>,
    #[serde(borrow)]
    session_id: Raw<'a>,
    /// `assistant`, `user`.
    #[serde(borrow)]
    message: Raw<'a>,
    /// `assistant`, `system/api_retry`: kind of error.
    #[serde(borrow)]
    error: Raw<'a>,
    /// `assistant`, `result`.
    #[serde(borrow)]
    api_error_status: Raw<'a>,
    #[serde(borrow)]
    api_error_type: Raw<'a>,
    /// `assistant`: the CLI speaks, not the model.
    #[serde(borrow)]
    is_api_error_message: Raw<'a>,
    /// `system/init`.
    #[serde(borrow)]
    model: Raw<'a>,
    /// `system/model_fallback`.
    #[serde(borrow)]
    fallback_model: Raw<'a>,
    /// `system/permission_denied`.
    #[serde(borrow)]
    tool_name: Raw<'a>,
    /// `system/api_retry`.
    #[serde(borrow)]
    attempt: Raw<'a>,
    #[serde(borrow)]
    error_status: Raw<'a>,
    /// `rate_limit_event`.
    #[serde(borrow)]
    rate_limit_info: Raw<'a>,
    /// `result`.
    #[serde(borrow)]
    is_error: Raw<'a>,
    #[serde(borrow)]
    result: Raw<'a>,
    #[serde(borrow)]
    errors: Raw<'a>,
    #[serde(borrow)]
    terminal_reason: Raw<'a>,
    #[serde(borrow)]
    permission_denials: Raw<'a>,
    #[serde(borrow)]
    usage: Raw<'a>,
    #[serde(borrow)]
    model_usage_since_last_result: Raw<'a>,
    #[serde(borrow)]
    total_cost_usd: Raw<'a>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    model: Raw<'a>,
    #[serde(borrow)]
    stop_reason: Raw<'a>,
    #[serde(borrow, default)]
    content: Content<'a>,
}

/// What an assistant message holds.
#[derive(Default)]
struct Content<'a> {
    /// The last text, as it is written.
    text: Raw<'a>,
    /// Tool calls.
    calls: u64,
    /// Names of the first [`TOOLS_NAMED`] tools called.
    tools: Vec<&'a str>,
}

#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow)]
    text: Raw<'a>,
    #[serde(borrow)]
    name: Raw<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RateLimitInfo<'a> {
    #[serde(borrow)]
    status: Raw<'a>,
    #[serde(borrow)]
    resets_at: Raw<'a>,
    #[serde(borrow)]
    rate_limit_type: Raw<'a>,
    #[serde(borrow)]
    overage_status: Raw<'a>,
    #[serde(borrow)]
    is_using_overage: Raw<'a>,
    #[serde(borrow)]
    utilization: Raw<'a>,
    #[serde(borrow)]
    unified_windows: Raw<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Window<'a> {
    #[serde(borrow)]
    status: Raw<'a>,
    #[serde(borrow)]
    resets_at: Raw<'a>,
}

/// `error.error` of an error body.
#[derive(Deserialize)]
struct ErrorBody<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow)]
    message: Raw<'a>,
}

#[derive(Deserialize)]
struct Denial<'a> {
    #[serde(borrow)]
    tool_name: Raw<'a>,
}

/// `result.usage`.
#[derive(Deserialize)]
struct ResultUsage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
}

/// One model's share in `result.model_usage_since_last_result`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ModelUsage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    #[serde(rename = "costUSD")]
    cost_usd: Option<f64>,
}

/// Tools of one message that are reported by name; further ones are only counted.
const TOOLS_NAMED: usize = 32;

// === impl Claude ===

impl Claude {
    pub(super) fn new(options: DecoderOptions) -> Self {
        Claude {
            pending: Pending::default(),
            transcript: Transcript::new(OutputFormat::ClaudeStreamJson),
            stray: Tail::new(16, 48),
            stderr: Tail::new(0, 64),
            api_error: None,
            previous_total_usd: options.previous_total_usd,
            last_retry: None,
        }
    }

    /// Reads one line of stdout; false when it is no event.
    fn stdout(&mut self, line: &[u8]) -> bool {
        let (line, repaired) = text(line);
        self.transcript.counts.repaired += u64::from(repaired);
        if line.starts_with('{') {
            return self.json(&line);
        }
        // `--output-format json` prints all events as one array at the end.
        match serde_json::from_str::<Vec<&serde_json::value::RawValue>>(&line) {
            Ok(events) => events.iter().filter(|event| self.json(event.get())).count() > 0,
            Err(_) => false,
        }
    }

    fn json(&mut self, line: &str) -> bool {
        if let Ok(event) = serde_json::from_str::<Event<'_>>(line) {
            return self.event(&event);
        }
        // Raw values let lone surrogates pass, so this is a last resort for what breaks a key.
        let whole = without_lone_surrogates(line);
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
        if self.transcript.conversation.is_none()
            && let Some(id) = string(event.session_id).filter(|id| !id.is_empty())
        {
            self.pending.push(Fact::Conversation(id.clone()));
            self.transcript.conversation = Some(id);
        }
        match kind {
            "assistant" => self.assistant(event),
            "user" | "stream_event" => self.transcript.pending_error = None,
            "system" => self.system(event),
            "rate_limit_event" => self.rate_limit(event),
            "result" => self.result(event),
            "error" => self.bare_error(event),
            _ => {}
        }
        true
    }

    fn system(&mut self, event: &Event<'_>) {
        match word(event.subtype) {
            "init" => self.model(event.model),
            "model_fallback" => self.model(event.fallback_model),
            "permission_denied" => self.denied(event.tool_name),
            "api_retry" => self.retry(event),
            _ => {}
        }
    }

    fn model(&mut self, model: Raw<'_>) {
        let Some(model) = string(model).filter(|model| !model.is_empty() && model != "<synthetic>") else {
            return;
        };
        if self.transcript.model.as_ref() != Some(&model) {
            self.pending.push(Fact::Model(model.clone()));
            self.transcript.model = Some(model);
        }
    }

    fn denied(&mut self, tool: Raw<'_>) {
        if let Some(tool) = string(tool)
            && self.transcript.deny(&tool)
        {
            self.pending.push(Fact::Denied(tool));
        }
    }

    fn retry(&mut self, event: &Event<'_>) {
        let attempt = read(event.attempt).unwrap_or(0);
        let status = read(event.error_status);
        let mut kind = word(event.error);
        if kind == "unknown" && status.is_none() {
            // No answer came at all: refused, reset, cut, timed out.
            kind = "connection";
        }
        if self.last_retry.replace(attempt) != Some(attempt) {
            self.pending.progress(Fact::Retrying { attempt, why: kind.to_owned() });
        }
        let message = format!("api_retry: {kind}");
        let error = ErrorEvent::new(vec![kind.to_owned()], status, &message);
        self.transcript.pending_error = Some(error.retrying());
    }

    fn assistant(&mut self, event: &Event<'_>) {
        let message: Option<Message<'_>> = read(event.message);
        if word_is_true(event.is_api_error_message) || !word(event.error).is_empty() {
            let said = message.as_ref().and_then(|message| string(message.content.text)).unwrap_or_default();
            let mut kinds = vec![word(event.error).to_owned(), word(event.api_error_type).to_owned()];
            if message.is_some_and(|message| word(message.stop_reason) == "refusal") {
                kinds.push("refusal".to_owned());
            }
            kinds.retain(|kind| !kind.is_empty());
            let error = ErrorEvent::new(kinds, read(event.api_error_status), &said);
            self.transcript.pending_error = Some(error.clone());
            self.api_error = Some(error);
            return;
        }
        self.api_error = None;
        self.last_retry = None;
        self.transcript.pending_error = None;
        self.transcript.limit = None;
        let Some(message) = message else { return };
        self.model(message.model);
        self.transcript.tools_used += message.content.calls;
        for tool in message.content.tools {
            self.pending.progress(Fact::Tool(tool.to_owned()));
        }
        if let Some(said) = start_of_string(message.content.text, SAID_MAX) {
            self.pending.progress(Fact::Said(said.replace(['\n', '\r'], " ").trim().to_owned()));
        }
    }

    /// The server's error body, which some failures print as a line of its own.
    fn bare_error(&mut self, event: &Event<'_>) {
        let Some(body) = read::<ErrorBody<'_>>(event.error) else { return };
        let kinds = vec![word(body.kind).to_owned()];
        let error = ErrorEvent::new(kinds, None, &string(body.message).unwrap_or_default());
        self.transcript.pending_error = Some(error);
    }

    fn rate_limit(&mut self, event: &Event<'_>) {
        let Some(info) = read::<RateLimitInfo<'_>>(event.rate_limit_info) else { return };
        let using_overage = word_is_true(info.is_using_overage);
        let rejected = match using_overage {
            true => is_rejected(info.overage_status),
            false => is_rejected(info.status),
        };
        // The notice's own time is that of the window it names; further rejected windows must pass, too.
        let windows: BTreeMap<String, Window<'_>> = read(info.unified_windows).unwrap_or_default();
        let of_windows =
            windows.values().filter(|window| is_rejected(window.status)).map(|window| window.resets_at);
        let resets_at = match rejected {
            true => std::iter::once(info.resets_at).chain(of_windows).filter_map(epoch).max(),
            false => epoch(info.resets_at),
        };
        let window = Some(word(info.rate_limit_type).to_owned()).filter(|window| !window.is_empty());
        let notice = LimitNotice { rejected, window, resets_at, utilization: read(info.utilization) };
        self.transcript.limit = rejected.then(|| notice.clone());
        self.pending.push(Fact::Limit(notice));
    }

    fn result(&mut self, event: &Event<'_>) {
        self.usage(event);
        for denial in read::<Vec<Denial<'_>>>(event.permission_denials).unwrap_or_default() {
            self.denied(denial.tool_name);
        }
        self.transcript.pending_error = None;
        let answer = string(event.result).unwrap_or_default();
        let reason = word(event.terminal_reason);
        let subtype = word(event.subtype);
        let failed = event.is_error.map_or(subtype != "success", |raw| raw.get() == "true");
        // An API error that is passed off as the answer is still the CLI's own words.
        let api_error = self.api_error.take();
        let disguised =
            api_error.as_ref().is_some_and(|error| !answer.is_empty() && error.message == answer.trim());

        let terminal = if matches!(subtype, "error_max_turns" | "error_max_budget_usd")
            || matches!(reason, "max_turns" | "budget_exhausted")
        {
            Terminal::Cap(if subtype == "success" { reason } else { subtype }.to_owned())
        } else if failed && reason.starts_with("aborted") {
            Terminal::Aborted(reason.to_owned())
        } else if failed || disguised {
            let errors: Vec<String> = read(event.errors).unwrap_or_default();
            let message = if answer.is_empty() { errors.join("\n") } else { answer.clone() };
            let error = api_error.unwrap_or_default();
            let mut kinds = error.kinds;
            let own = [word(event.api_error_type), reason, subtype];
            kinds.extend(
                own.into_iter().filter(|kind| !kind.is_empty() && *kind != "success").map(str::to_owned),
            );
            Terminal::Failure(ErrorEvent::new(kinds, read(event.api_error_status).or(error.status), &message))
        } else {
            Terminal::Success
        };
        if terminal == Terminal::Success {
            self.transcript.set_answer(&answer);
        }
        self.transcript.terminal = Some(terminal);
        self.pending.push(Fact::Terminal);
    }

    fn usage(&mut self, event: &Event<'_>) {
        let models: BTreeMap<String, ModelUsage> =
            read(event.model_usage_since_last_result).unwrap_or_default();
        let mut share = Usage::default();
        for model in models.values() {
            add(&mut share.input_tokens, model.input_tokens);
            add(&mut share.output_tokens, model.output_tokens);
            add(&mut share.cache_read_tokens, model.cache_read_input_tokens);
            add(&mut share.cache_write_tokens, model.cache_creation_input_tokens);
            add_usd(&mut share.cost_usd, model.cost_usd);
        }
        if models.is_empty()
            && let Some(usage) = read::<ResultUsage>(event.usage)
        {
            share.input_tokens = usage.input_tokens;
            share.output_tokens = usage.output_tokens;
            share.cache_read_tokens = usage.cache_read_input_tokens;
            share.cache_write_tokens = usage.cache_creation_input_tokens;
        }
        let total: Option<f64> = read(event.total_cost_usd);
        if share.cost_usd.is_none() {
            // A total below the last one has started anew, as after a killed process.
            share.cost_usd = total.map(|total| match self.previous_total_usd {
                Some(previous) if previous <= total => total - previous,
                _ => total,
            });
        }
        self.previous_total_usd = total.or(self.previous_total_usd);
        self.transcript.total_cost_usd = total.or(self.transcript.total_cost_usd);
        let sum = &mut self.transcript.usage;
        add(&mut sum.input_tokens, share.input_tokens);
        add(&mut sum.output_tokens, share.output_tokens);
        add(&mut sum.cache_read_tokens, share.cache_read_tokens);
        add(&mut sum.cache_write_tokens, share.cache_write_tokens);
        add_usd(&mut sum.cost_usd, share.cost_usd);
    }
}

impl Decoder for Claude {
    fn line(&mut self, stream: Stream, line: &[u8], truncated: bool) {
        self.transcript.counts.add(stream, line, truncated);
        match stream {
            Stream::Stderr => self.stderr.push(line),
            Stream::Stdout => {
                let line = line.trim_ascii();
                if line.is_empty() {
                    return;
                }
                // The head of an over-long event is no event, and no words of the CLI either.
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
        transcript.stdout = self.stray.into_lines();
        transcript.stderr = self.stderr.into_lines();
        transcript
    }
}

// === impl Content ===

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Blocks;
        impl<'de> Visitor<'de> for Blocks {
            type Value = Content<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("content blocks")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut blocks: A) -> Result<Self::Value, A::Error> {
                let mut content = Content::default();
                while let Some(block) = blocks.next_element::<Block<'de>>()? {
                    match word(block.kind) {
                        "text" => content.text = block.text,
                        "tool_use" | "server_tool_use" => {
                            content.calls += 1;
                            if content.tools.len() < TOOLS_NAMED {
                                content.tools.push(word(block.name));
                            }
                        }
                        _ => {}
                    }
                }
                Ok(content)
            }
        }
        deserializer.deserialize_seq(Blocks)
    }
}

fn word_is_true(raw: Raw<'_>) -> bool {
    raw.is_some_and(|raw| raw.get() == "true")
}

/// One project saw `denied`; everything else only informs.
fn is_rejected(status: Raw<'_>) -> bool {
    matches!(word(status), "rejected" | "denied")
}

fn epoch(raw: Raw<'_>) -> Option<Timestamp> {
    crate::domain::reset_time::epoch(read(raw)?)
}

fn add(sum: &mut Option<u64>, more: Option<u64>) {
    if let Some(more) = more {
        *sum = Some(sum.unwrap_or(0).saturating_add(more));
    }
}

fn add_usd(sum: &mut Option<f64>, more: Option<f64>) {
    if let Some(more) = more.filter(|usd| usd.is_finite() && *usd >= 0.0) {
        *sum = Some(sum.unwrap_or(0.0) + more);
    }
}
