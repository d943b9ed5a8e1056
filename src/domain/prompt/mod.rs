//! The prompt of one attempt: from what is known, as a value, to the text that the agent gets.
//!
//! Order: who it is and where; a person's words, which outrank all that follows; the spec; what earlier work left;
//! the state of the checks; what to do in this turn; how to claim completion. The text never begins with a
//! character that a CLI could take for an option or a command, holds no NUL, and has no claim marker alone on a line.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::ids::{LaneId, MessageId};
use super::spec::{Spec, SpecWarning};

mod build;
mod text;
mod writer;

/// Everything that a prompt is made from.
#[derive(Debug, Clone)]
pub struct PromptInput<'a> {
    /// What the session works from.
    pub mode: Mode,
    /// The spec; `None` in analysis mode.
    pub spec: Option<SpecInput<'a>>,
    /// What is known about the code base, for analysis mode; one fact a line, may be empty.
    pub facts: Vec<String>,
    /// Files that the spec refers to.
    pub references: ReferenceList,
    /// A person's messages that no earlier prompt delivered, in order of arrival.
    pub messages: Vec<Message>,
    /// Results of the gates after the last iteration.
    pub gates: Vec<GateResult>,
    /// Finished iterations in a row that changed nothing; 0 unless the stagnation rule warns.
    pub stagnant: u32,
    /// Number of this iteration.
    pub iteration: u64,
    /// The last number that will be used, if there is a limit.
    pub max_iterations: Option<u64>,
    /// What the agent should know about how the last attempt ended.
    pub notes: Vec<Note>,
    /// The lane's own task, when several lanes work.
    pub lane_task: Option<LaneTask>,
    /// Whether the agent still has the conversation of the last turn.
    pub conversation: Conversation,
    /// What memory has to say, as Markdown.
    pub memory: Option<String>,
    /// Sizes.
    pub limits: PromptLimits,
}

/// What the session works from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// A spec says what to build.
    Spec,
    /// There is none: work is derived from the code base.
    Analysis,
    /// Perpetual: the last goal is met, and the agent looks for the next one.
    NextGoal,
}

/// The spec of a prompt.
#[derive(Debug, Clone, Copy)]
pub struct SpecInput<'a> {
    /// The spec as read.
    pub spec: &'a Spec,
    /// Path of the file, as the agent can open it.
    pub path: &'a str,
    /// It is another one than in the last prompt. A resumed conversation is not shown an unchanged spec again.
    pub changed: bool,
    /// What is worked on now, to choose the sections of a long spec by. May be empty.
    pub goal: &'a str,
}

/// Files that a spec refers to, as shown to the agent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReferenceList {
    /// There, to be read when needed.
    pub existing: Vec<String>,
    /// Not there.
    pub missing: Vec<String>,
    /// Outside the project: not looked at.
    pub outside: Vec<String>,
    /// There were more than are listed.
    pub more: bool,
}

/// A person's message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Stays the same when the message is delivered again after a crash.
    pub id: MessageId,
    /// When it arrived.
    pub time: Timestamp,
    /// Its words.
    pub text: String,
    /// A file with the whole message, as the agent can open it. Only with one a long message may be shortened.
    pub file: Option<String>,
}

/// The result of one gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateResult {
    /// The gate's name.
    pub name: String,
    /// How it ended.
    pub verdict: GateVerdict,
    /// The end of its output.
    pub tail: String,
}

/// How a gate ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateVerdict {
    /// It is satisfied.
    Passed,
    /// It is not.
    Failed,
    /// It was ended at its time limit, which counts as not passed.
    TimedOut,
    /// It could not be started.
    NotRun,
}

/// Something about the last attempt that the next one should know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "note", rename_all = "snake_case")]
pub enum Note {
    /// Completion was claimed, and these checks did not pass.
    ClaimRejected {
        /// Names of the gates, or of the judges.
        by: Vec<String>,
    },
    /// A completion marker stood in a quote or a code block, where it does not count.
    ClaimQuoted,
    /// The last attempt was cut in the middle of its work.
    Cut,
    /// The conversation had become too long: this one is new.
    ContextOverflow,
    /// Tools that the agent was refused.
    Denied {
        /// Their names.
        tools: Vec<String>,
    },
    /// The spec was changed since the last turn.
    SpecChanged,
    /// Anything else, as a sentence.
    Other {
        /// The sentence.
        text: String,
    },
}

/// The task of one of several lanes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneTask {
    /// The lane.
    pub lane: LaneId,
    /// The task, in the planner's words.
    pub text: String,
}

/// Whether the agent still has the conversation of the last turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Conversation {
    /// It begins with this prompt.
    Fresh,
    /// It goes on.
    Resumed,
}

/// How long a prompt and its parts may be. All in characters but the spec's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PromptLimits {
    /// The whole prompt. Reached by clipping the gates' output first, then the spec, never a person's words.
    pub max_chars: usize,
    /// `spec.max_tokens`.
    pub spec_max_tokens: usize,
    /// Bytes that make a token, on average.
    pub bytes_per_token: f64,
    /// A longer message is shown by its beginning and its file, if it has one.
    pub message_max_chars: usize,
    /// Of a gate's output.
    pub gate_tail_max_chars: usize,
}

/// A prompt, and what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// The text.
    pub text: String,
    /// Its characters. More than `max_chars` only where messages and fixed words alone are longer.
    pub chars: usize,
    /// The messages in it, in order. They count as delivered when the attempt is committed as ended.
    pub messages: Vec<MessageId>,
    /// [`SpecWarning::Truncated`] if only an excerpt of the spec is in it.
    pub spec_truncated: Option<SpecWarning>,
    /// Output of gates was clipped to make room for the rest.
    pub gates_clipped: bool,
}

// === impl PromptLimits ===

impl Default for PromptLimits {
    /// For a window of 200,000 tokens, of which a spec may take a quarter.
    fn default() -> Self {
        PromptLimits {
            max_chars: 400_000,
            spec_max_tokens: 50_000,
            bytes_per_token: 4.0,
            message_max_chars: 20_000,
            gate_tail_max_chars: 4_000,
        }
    }
}

// === impl Prompt ===

impl Prompt {
    /// Builds the prompt.
    pub fn build(input: &PromptInput<'_>) -> Self {
        build::build(input)
    }
}

#[cfg(test)]
mod tests;
