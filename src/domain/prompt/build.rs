//! Puts a prompt together and makes it fit.

use super::text::{output, verbatim};
use super::writer::Writer;
use super::{Conversation, GateResult, GateVerdict, Prompt, PromptInput, SpecInput};

/// Rounds of making the prompt shorter. The first nearly always does; quoting can add a few characters.
const ROUNDS: usize = 4;

/// Of a gate's output at least this much is shown as long as the spec can give room instead.
const MIN_TAIL: usize = 200;

/// The parts whose size is not fixed.
#[derive(Clone, Copy)]
struct Sizes {
    /// Characters for each gate's output.
    tail: usize,
    /// Characters for the spec.
    spec: usize,
}

pub(super) fn build(input: &PromptInput<'_>) -> Prompt {
    let max = input.limits.max_chars;
    let mut sizes = Sizes { tail: input.limits.gate_tail_max_chars, spec: usize::MAX };
    let mut prompt = assemble(input, sizes);
    for _ in 0..ROUNDS {
        if prompt.chars <= max {
            break;
        }
        let over = prompt.chars - max;
        let gates = failing(&input.gates).count().max(1);
        let smallest = input.limits.gate_tail_max_chars.min(MIN_TAIL);
        if sizes.tail > smallest {
            // The tails give first: as much as is needed, down to a few lines.
            let shown = longest_tail(input).min(sizes.tail);
            sizes.tail = shown.saturating_sub(over.div_ceil(gates)).max(smallest);
        } else if let Some(spec) = shown_spec(input).filter(|_| sizes.spec > 0) {
            let now = spec.spec.chars.min(sizes.spec).min(prompt.chars);
            sizes.spec = now.saturating_sub(over);
        } else if sizes.tail > 0 {
            sizes.tail = 0;
        } else {
            break;
        }
        prompt = assemble(input, sizes);
    }
    prompt.gates_clipped = sizes.tail < input.limits.gate_tail_max_chars && longest_tail(input) > sizes.tail;
    prompt
}

fn assemble(input: &PromptInput<'_>, sizes: Sizes) -> Prompt {
    let mut out = Writer::default();
    out.role(input);
    out.messages(input);
    let spec_truncated = out.goal(input, sizes.spec);
    if let Some(memory) = input.memory.as_deref().filter(|m| !m.trim().is_empty()) {
        out.section("What earlier work left for you");
        out.block(&verbatim(memory));
    }
    out.gates(&input.gates, sizes.tail);
    out.notes(input);
    out.turn(input);
    out.claiming(input);
    let text = out.into_text();
    Prompt {
        chars: text.chars().count(),
        text,
        messages: input.messages.iter().map(|m| m.id).collect(),
        spec_truncated,
        gates_clipped: false,
    }
}

pub(super) fn failing(gates: &[GateResult]) -> impl Iterator<Item = &GateResult> {
    gates.iter().filter(|gate| gate.verdict != GateVerdict::Passed)
}

fn longest_tail(input: &PromptInput<'_>) -> usize {
    failing(&input.gates).map(|gate| output(&gate.tail).chars().count()).max().unwrap_or(0)
}

/// The spec, unless the agent has it from the conversation.
pub(super) fn shown_spec<'a>(input: &PromptInput<'a>) -> Option<SpecInput<'a>> {
    let known = |spec: &SpecInput<'_>| input.conversation == Conversation::Resumed && !spec.changed;
    input.spec.filter(|spec| !known(spec))
}
