//! Claude Code's stream-json (`-p --output-format stream-json --verbose`), as recorded from 2.1.332.
//!
//! What to know about the format:
//! * a failure is `result.is_error`, not `subtype`, which says `success` on every API error;
//! * the kind of an API error stands in the synthetic `assistant` event before the result, not in the result;
//! * `total_cost_usd` runs over the whole conversation, also over `--resume`; `usage` of `assistant` events is
//!   that of a message's start; `model_usage_since_last_result` is this result's share, sub-agents included;
//! * `type` need not be the first key of an event.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;

use super::body::body_in;
use super::json::{Cursor, Raw, field, is_true, pick, read, start, string, word};
use super::streams::{JsonLines, Streams};
use super::{DecoderOptions, ErrorEvent, Fact, LimitNotice, Pending, SAID_MAX, Terminal, Transcript};
use crate::domain::outcome::Usage;
use crate::domain::reset_time;
use crate::providers::definition::OutputFormat;

/// Decodes [`OutputFormat::ClaudeStreamJson`].
#[derive(Debug)]
pub(super) struct Claude {
    pending: Pending,
    transcript: Transcript,
    /// Lines of stdout that are no events.
    streams: Streams,
    /// The last API error that an `assistant` event reported, unless the agent has spoken since.
    api_error: Option<ErrorEvent>,
    /// Cost of the conversation when the last result came, or before this call.
    previous_total_usd: Option<f64>,
    /// The attempt number of the last retry notice: notices repeat while the CLI waits.
    last_retry: Option<u32>,
}

/// What is used of an `assistant` event.
#[derive(Default)]
struct Assistant<'a> {
    session_id: Raw<'a>,
    model: Raw<'a>,
    stop_reason: Raw<'a>,
    /// The last text block.
    text: Raw<'a>,
    /// Tool calls, and the names of the first [`TOOLS_NAMED`].
    calls: usize,
    tools: [&'a str; TOOLS_NAMED],
    /// The CLI speaks, not the model: kind, HTTP status and type of an API error.
    is_api_error: Raw<'a>,
    error: Raw<'a>,
    status: Raw<'a>,
    error_type: Raw<'a>,
}

/// Tools of one message that are reported by name; further ones are only counted.
const TOOLS_NAMED: usize = 8;

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

// === impl Assistant ===

impl<'a> Assistant<'a> {
    /// One walk over the whole line, whatever its size.
    fn read(line: &'a [u8]) -> Option<Self> {
        let mut seen = Assistant::default();
        let mut cursor = Cursor::new(line);
        cursor.object(|key, cursor| match key {
            b"session_id" => cursor.take(&mut seen.session_id),
            b"error" => cursor.take(&mut seen.error),
            b"is_api_error_message" => cursor.take(&mut seen.is_api_error),
            b"api_error_status" => cursor.take(&mut seen.status),
            b"api_error_type" => cursor.take(&mut seen.error_type),
            b"message" => cursor.object(|key, cursor| match key {
                b"model" => cursor.take(&mut seen.model),
                b"stop_reason" => cursor.take(&mut seen.stop_reason),
                b"content" => cursor.array(|cursor| seen.block(cursor)),
                _ => cursor.skip(),
            }),
            _ => cursor.skip(),
        })?;
        cursor.at_end().then_some(seen)
    }

    fn block(&mut self, cursor: &mut Cursor<'a>) -> Option<()> {
        let [mut kind, mut text, mut name] = [None; 3];
        cursor.object(|key, cursor| match key {
            b"type" => cursor.take(&mut kind),
            b"text" => cursor.take(&mut text),
            b"name" => cursor.take(&mut name),
            _ => cursor.skip(),
        })?;
        match word(kind) {
            "text" => self.text = text,
            "tool_use" | "server_tool_use" => {
                if let Some(place) = self.tools.get_mut(self.calls) {
                    *place = word(name);
                }
                self.calls += 1;
            }
            _ => {}
        }
        Some(())
    }
}

// === impl Claude ===

impl Claude {
    pub(super) fn new(options: DecoderOptions) -> Self {
        Claude {
            pending: Pending::default(),
            transcript: Transcript::new(OutputFormat::ClaudeStreamJson),
            streams: Streams::new(),
            api_error: None,
            previous_total_usd: options.previous_total_usd,
            last_retry: None,
        }
    }

    /// Reads one line of stdout; false when it is no event.
    fn stdout(&mut self, line: &[u8]) -> bool {
        match line.first() {
            Some(b'{') => self.event(line).is_some(),
            // `--output-format json` prints all events as one array at the end.
            Some(b'[') => {
                let mut events = 0;
                let mut cursor = Cursor::new(line);
                let whole = cursor.array(|cursor| {
                    let mut event = None;
                    cursor.take(&mut event)?;
                    events += usize::from(event.is_some_and(|event| self.event(event).is_some()));
                    Some(())
                });
                whole.is_some() && events > 0
            }
            _ => false,
        }
    }

    fn event(&mut self, line: &[u8]) -> Option<()> {
        match word(field(line, b"type")) {
            "" => return None,
            "assistant" => self.assistant(&Assistant::read(line)?),
            "system" => self.system(line)?,
            "rate_limit_event" => self.rate_limit(line)?,
            "result" => self.result(line)?,
            "error" => self.bare_error(line)?,
            // Nothing in them is evidence; a line that was cut in the middle is no event.
            _ if !line.ends_with(b"}") => return None,
            "user" | "stream_event" => self.transcript.pending_error = None,
            _ => {}
        }
        self.transcript.counts.events += 1;
        self.pending.first_output();
        Some(())
    }

    fn conversation(&mut self, id: Raw<'_>) {
        if self.transcript.conversation.is_none()
            && let Some(id) = string(id).filter(|id| !id.is_empty())
        {
            self.pending.push(Fact::Conversation(id.clone()));
            self.transcript.conversation = Some(id);
        }
    }

    fn system(&mut self, line: &[u8]) -> Option<()> {
        let [subtype, session_id, model, fallback_model, tool_name] =
            pick(line, ["subtype", "session_id", "model", "fallback_model", "tool_name"])?;
        self.pending.first_output();
        self.conversation(session_id);
        match word(subtype) {
            "init" => self.model(model),
            "model_fallback" => self.model(fallback_model),
            "permission_denied" => self.denied(tool_name),
            "api_retry" => self.retry(line)?,
            _ => {}
        }
        Some(())
    }

    fn model(&mut self, model: Raw<'_>) {
        let name = word(model);
        if name.is_empty() || name == "<synthetic>" || self.transcript.model.as_deref() == Some(name) {
            return;
        }
        self.pending.push(Fact::Model(name.to_owned()));
        self.transcript.model = Some(name.to_owned());
    }

    fn denied(&mut self, tool: Raw<'_>) {
        if let Some(tool) = string(tool)
            && self.transcript.deny(&tool)
        {
            self.pending.push(Fact::Denied(tool));
        }
    }

    fn retry(&mut self, line: &[u8]) -> Option<()> {
        let [attempt, status, error] = pick(line, ["attempt", "error_status", "error"])?;
        let (attempt, status) = (read(attempt).unwrap_or(0), read(status));
        let kind = match word(error) {
            // No answer came at all: refused, reset, cut, timed out.
            "unknown" if status.is_none() => "connection",
            kind => kind,
        };
        if self.last_retry.replace(attempt) != Some(attempt) {
            self.pending.progress(|| Fact::Retrying { attempt, why: kind.to_owned() });
        }
        let error = ErrorEvent::new(vec![kind.to_owned()], status, &format!("api_retry: {kind}"));
        self.transcript.pending_error = Some(error.retrying());
        Some(())
    }

    fn assistant(&mut self, seen: &Assistant<'_>) {
        self.pending.first_output();
        self.conversation(seen.session_id);
        if is_true(seen.is_api_error) || !word(seen.error).is_empty() {
            let mut kinds = vec![word(seen.error), word(seen.error_type)];
            if word(seen.stop_reason) == "refusal" {
                kinds.push("refusal");
            }
            let kinds = kinds.into_iter().filter(|kind| !kind.is_empty()).map(str::to_owned).collect();
            let error = ErrorEvent::new(kinds, read(seen.status), &string(seen.text).unwrap_or_default());
            self.transcript.pending_error = Some(error.clone());
            self.api_error = Some(error);
            return;
        }
        self.api_error = None;
        self.last_retry = None;
        self.transcript.pending_error = None;
        self.transcript.limit = None;
        self.model(seen.model);
        self.transcript.tools_used += seen.calls as u64;
        self.pending.said(start(seen.text, SAID_MAX));
        for tool in seen.tools.iter().take(seen.calls) {
            self.pending.progress(|| Fact::Tool((*tool).to_owned()));
        }
    }

    /// The server's error body, which some failures print as a line of its own.
    fn bare_error(&mut self, line: &[u8]) -> Option<()> {
        let [body] = pick(line, ["error"])?;
        let [kind, message] = pick(body.unwrap_or(b"{}"), ["type", "message"])?;
        let kinds = vec![word(kind).to_owned()];
        self.transcript.pending_error =
            Some(ErrorEvent::new(kinds, None, &string(message).unwrap_or_default()));
        Some(())
    }

    fn rate_limit(&mut self, line: &[u8]) -> Option<()> {
        let [info] = pick(line, ["rate_limit_info"])?;
        let Some(info) = info else { return Some(()) };
        let [status, resets_at, window, overage_status, using_overage, utilization, windows] = pick(
            info,
            [
                "status",
                "resetsAt",
                "rateLimitType",
                "overageStatus",
                "isUsingOverage",
                "utilization",
                "unifiedWindows",
            ],
        )?;
        let rejected = is_rejected(if is_true(using_overage) { overage_status } else { status });
        let mut resets_at = epoch(resets_at);
        if rejected {
            // The notice's own time is that of the window it names; further rejected windows must pass, too.
            Cursor::new(windows.unwrap_or(b"{}")).object(|_, cursor| {
                let mut window = None;
                cursor.take(&mut window)?;
                let [status, at] = pick(window.unwrap_or(b"{}"), ["status", "resetsAt"])?;
                if is_rejected(status) {
                    resets_at = resets_at.max(epoch(at));
                }
                Some(())
            })?;
        }
        let window = Some(word(window).to_owned()).filter(|window| !window.is_empty());
        let notice = LimitNotice { rejected, window, resets_at, utilization: read(utilization) };
        self.transcript.limit = rejected.then(|| notice.clone());
        self.pending.push(Fact::Limit(notice));
        Some(())
    }

    fn result(&mut self, line: &[u8]) -> Option<()> {
        let [session_id, subtype, reason, is_error, result, errors, status, error_type, denials] = pick(
            line,
            [
                "session_id",
                "subtype",
                "terminal_reason",
                "is_error",
                "result",
                "errors",
                "api_error_status",
                "api_error_type",
                "permission_denials",
            ],
        )?;
        self.conversation(session_id);
        self.usage(line)?;
        Cursor::new(denials.unwrap_or(b"[]")).array(|cursor| {
            let mut denial = None;
            cursor.take(&mut denial)?;
            self.denied(field(denial.unwrap_or_default(), b"tool_name"));
            Some(())
        })?;
        self.transcript.pending_error = None;
        let answer = string(result).unwrap_or_default();
        let (reason, subtype) = (word(reason), word(subtype));
        let failed = if is_error.is_some() { is_true(is_error) } else { subtype != "success" };
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
            let errors: Vec<String> = read(errors).unwrap_or_default();
            let message = if answer.is_empty() { errors.join("\n") } else { answer.clone() };
            let error = api_error.unwrap_or_default();
            let mut kinds = error.kinds;
            let own = [word(error_type), reason, subtype];
            kinds.extend(
                own.into_iter().filter(|kind| !kind.is_empty() && *kind != "success").map(str::to_owned),
            );
            // What the server said, where the words quote it.
            let quoted = body_in(&message).unwrap_or_default();
            kinds.extend(quoted.kinds);
            let status = read(status).or(error.status).or(quoted.status);
            Terminal::Failure(ErrorEvent::new(kinds, status, &message))
        } else {
            self.transcript.set_answer(&answer);
            Terminal::Success
        };
        self.transcript.terminal = Some(terminal);
        self.pending.push(Fact::Terminal);
        Some(())
    }

    fn usage(&mut self, line: &[u8]) -> Option<()> {
        let [total, usage, models] =
            pick(line, ["total_cost_usd", "usage", "model_usage_since_last_result"])?;
        let models: BTreeMap<String, ModelUsage> = read(models).unwrap_or_default();
        let mut share = Usage::default();
        for model in models.values() {
            add(&mut share.input_tokens, model.input_tokens);
            add(&mut share.output_tokens, model.output_tokens);
            add(&mut share.cache_read_tokens, model.cache_read_input_tokens);
            add(&mut share.cache_write_tokens, model.cache_creation_input_tokens);
            add_usd(&mut share.cost_usd, model.cost_usd);
        }
        if models.is_empty()
            && let Some(usage) = read::<ResultUsage>(usage)
        {
            share.input_tokens = usage.input_tokens;
            share.output_tokens = usage.output_tokens;
            share.cache_read_tokens = usage.cache_read_input_tokens;
            share.cache_write_tokens = usage.cache_creation_input_tokens;
        }
        let total: Option<f64> = read(total);
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
        Some(())
    }
}

impl JsonLines for Claude {
    fn parts(&mut self) -> (&mut Streams, &mut Transcript, &mut Pending) {
        (&mut self.streams, &mut self.transcript, &mut self.pending)
    }

    fn read(&mut self, line: &[u8]) -> Option<()> {
        self.stdout(line).then_some(())
    }

    fn close(self) -> (Streams, Transcript) {
        (self.streams, self.transcript)
    }
}

/// One project saw `denied`; everything else only informs.
fn is_rejected(status: Raw<'_>) -> bool {
    matches!(word(status), "rejected" | "denied")
}

fn epoch(raw: Raw<'_>) -> Option<Timestamp> {
    reset_time::epoch(read(raw)?)
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
