//! Reads an agent's claim out of its final answer: "everything is done", or "I need a person".
//!
//! A claim only starts the checks, it never ends a session by itself. Still it is read strictly: a marker counts
//! when it stands on a line of its own in the agent's own words. Quoted, in a code block or within a sentence it
//! does not count, because prompts, docs and tool results are often quoted. See what is not counted in [`Reading`].

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::spec::fence::Fences;

/// Alone on a line of the final answer it claims that the goals (in a lane: its task) are met.
pub const DONE: &str = "LONGHAUL_DONE";

/// Before a colon and a reason it asks for a person.
pub const BLOCKED: &str = "LONGHAUL_BLOCKED";

/// File in the lane's folder that claims the same as [`DONE`]; its text is the summary.
pub const DONE_FILE: &str = ".longhaul/claims/done";

/// What is kept of a reason or summary, in characters.
const MAX_TEXT: usize = 2000;

/// What the agent claims.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "claim", rename_all = "snake_case")]
pub enum Claim {
    /// Everything that was asked for is done.
    Done,
    /// The agent cannot go on without a person.
    Blocked {
        /// Why, in the agent's words.
        why: String,
    },
}

/// How a provider's final answer is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerKind {
    /// The provider marks the final answer: all of it is the agent's own words.
    Message,
    /// A text agent: its output is mixed, and only the last non-empty line is its answer.
    Text,
}

/// A final answer, read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reading {
    /// The claim that counts. A call for a person wins over "done".
    pub claim: Option<Claim>,
    /// No claim counts, but a marker stood in a quote or code block: the next prompt should say how to claim.
    pub quoted: bool,
}

// === impl Reading ===

impl Reading {
    /// Reads the claim in `answer`.
    pub fn of(answer: &str, kind: AnswerKind) -> Self {
        match kind {
            AnswerKind::Message => Self::message(answer),
            AnswerKind::Text => {
                let last = answer.lines().rev().find(|line| !line.trim().is_empty());
                Reading { claim: last.and_then(marker).map(|m| m.claim("")), quoted: false }
            }
        }
    }

    fn message(answer: &str) -> Self {
        // The rest of a real answer is free of markers: leave before fences are looked at.
        if !answer.contains(DONE) && !answer.contains(BLOCKED) {
            return Reading::default();
        }
        let mut done = false;
        let mut quoted = false;
        let mut fences = Fences::default();
        let mut lines = answer.lines();
        while let Some(line) = lines.next() {
            let code = fences.step(line) || is_indented_code(line);
            let Some(found) = marker(line) else {
                quoted |= is_quoted_marker(line);
                continue;
            };
            match found {
                _ if code => quoted = true,
                Marker::Done => done = true,
                Marker::Blocked(_) => {
                    let next = lines.find(|l| !l.trim().is_empty()).unwrap_or_default();
                    return Reading { claim: Some(found.claim(next)), quoted: false };
                }
            }
        }
        Reading { claim: done.then_some(Claim::Done), quoted: quoted && !done }
    }
}

// === impl Marker ===

/// A line that holds a marker and nothing else.
enum Marker<'a> {
    Done,
    /// With the reason on the same line, maybe empty.
    Blocked(&'a str),
}

impl Marker<'_> {
    /// `next` is the next non-empty line: the reason of agents that break the line after the colon.
    fn claim(self, next: &str) -> Claim {
        match self {
            Marker::Done => Claim::Done,
            Marker::Blocked(why) => {
                let why = [why, next].into_iter().map(str::trim).find(|w| !w.is_empty());
                Claim::Blocked { why: clip(why.unwrap_or("no reason given")) }
            }
        }
    }
}

/// The marker on `line`, if it holds nothing else but white space and Markdown emphasis.
fn marker(line: &str) -> Option<Marker<'_>> {
    let bare = strip_emphasis(line.trim());
    if bare == DONE {
        return Some(Marker::Done);
    }
    let bare = bare.trim_start_matches(['*', '_', '`']);
    let rest = bare.strip_prefix(BLOCKED)?.trim_start_matches(['*', '_', '`']).trim_start();
    if rest.is_empty() {
        return Some(Marker::Blocked(rest));
    }
    let why = rest.strip_prefix(':')?.trim_start_matches(['*', '_', '`']).trim();
    // The placeholder of the prompt's own explanation, echoed.
    let echoed = why == "why" || (why.starts_with('<') && why.ends_with('>'));
    (!echoed).then_some(Marker::Blocked(why))
}

/// Takes off emphasis that encloses the whole text: `**x**`, `__x__`, `*x*`, `` `x` ``, also nested.
fn strip_emphasis(mut text: &str) -> &str {
    for _ in 0..6 {
        let Some(mark) = ['*', '_', '`'].into_iter().find(|m| text.len() > 1 && text.starts_with(*m)) else {
            break;
        };
        let Some(inner) = text.strip_prefix(mark).and_then(|t| t.strip_suffix(mark)) else { break };
        text = inner.trim();
    }
    text
}

/// Four columns of indentation make a code block (CommonMark 4.4).
fn is_indented_code(line: &str) -> bool {
    line.starts_with("    ") || line.starts_with('\t')
}

/// A block quote, list item or heading that holds a marker.
fn is_quoted_marker(line: &str) -> bool {
    let inner = line.trim_start().trim_start_matches(['>', ' ', '-', '#', '+']);
    inner.len() < line.trim().len() && marker(inner).is_some()
}

/// Whatever some reader may take for the end of a line.
const LINE_BREAKS: [char; 7] = ['\n', '\r', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}'];

/// Text that is shown to an agent, with every line that could be taken for a claim turned into a block quote.
/// Borrowed when there is none.
pub fn quote_markers(text: &str) -> Cow<'_, str> {
    if !text.contains(DONE) && !text.contains(BLOCKED) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for line in text.split_inclusive(LINE_BREAKS) {
        if looks_like_marker(line) {
            out.push_str("> ");
        }
        out.push_str(line);
    }
    Cow::Owned(out)
}

/// Wider than [`marker`]: what any reader, also a careless one, could take for a marker on a line of its own.
fn looks_like_marker(line: &str) -> bool {
    let bare = line.trim_matches(|c: char| c.is_whitespace() || c.is_control() || "*_`~".contains(c));
    bare.trim_end_matches(['.', '!', ':']) == DONE || bare.starts_with(BLOCKED)
}

fn clip(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(answer: &str) -> Option<Claim> {
        Reading::of(answer, AnswerKind::Message).claim
    }

    fn blocked(why: &str) -> Option<Claim> {
        Some(Claim::Blocked { why: why.into() })
    }

    #[test]
    fn l02_a_marker_on_its_own_line_counts() {
        let table = [
            "LONGHAUL_DONE",
            "All tests pass.\n\nLONGHAUL_DONE\n",
            "All tests pass.\r\nLONGHAUL_DONE\r\n",
            "  LONGHAUL_DONE \t",
            "**LONGHAUL_DONE**",
            "__LONGHAUL_DONE__",
            "*LONGHAUL_DONE*",
            "`LONGHAUL_DONE`",
            "**`LONGHAUL_DONE`**",
            "LONGHAUL_DONE\n\nSummary: I wrote the parser.",
            "```sh\ncargo test\n```\nLONGHAUL_DONE",
            "> the spec said so\n\nLONGHAUL_DONE",
        ];
        for answer in table {
            assert_eq!(read(answer), Some(Claim::Done), "{answer:?}");
        }
    }

    #[test]
    fn l02_a_marker_that_is_quoted_or_named_does_not_count() {
        let table = [
            "",
            "\n\n",
            "I will print LONGHAUL_DONE when the tests pass.",
            "LONGHAUL_DONE is not due yet.",
            "not LONGHAUL_DONE",
            "> LONGHAUL_DONE",
            ">LONGHAUL_DONE",
            "> > **LONGHAUL_DONE**",
            "- LONGHAUL_DONE",
            "# LONGHAUL_DONE",
            "```\nLONGHAUL_DONE\n```",
            "~~~text\nLONGHAUL_DONE\n~~~\nStill to do: docs.",
            "```\nprompt: claim with\nLONGHAUL_DONE",
            "````\n```\nLONGHAUL_DONE\n```\n````",
            "The prompt says:\n\n    LONGHAUL_DONE\n",
            "\tLONGHAUL_DONE",
            "longhaul_done",
            "LONGHAUL_DONE_NOT",
            "XLONGHAUL_DONE",
            "**LONGHAUL_DONE",
            "****",
            "*",
            "LONGHAUL_BLOCKED: why",
            "LONGHAUL_BLOCKED: <reason>",
            "LONGHAUL_BLOCKEDNESS: high",
            "I could write LONGHAUL_BLOCKED: no key, but I go on.",
        ];
        for answer in table {
            assert_eq!(read(answer), None, "{answer:?}");
        }
    }

    #[test]
    fn a_marker_in_a_quote_or_code_block_is_noticed() {
        for answer in ["```\nLONGHAUL_DONE\n```", "> LONGHAUL_DONE", "    LONGHAUL_DONE", "- LONGHAUL_DONE"] {
            assert!(Reading::of(answer, AnswerKind::Message).quoted, "{answer:?}");
        }
        for answer in ["LONGHAUL_DONE", "> LONGHAUL_DONE\n\nLONGHAUL_DONE", "no LONGHAUL_DONE yet", "plain"] {
            assert!(!Reading::of(answer, AnswerKind::Message).quoted, "{answer:?}");
        }
    }

    #[test]
    fn a_call_for_a_person_carries_its_reason() {
        let table = [
            ("LONGHAUL_BLOCKED: the API key is missing", blocked("the API key is missing")),
            ("**LONGHAUL_BLOCKED:** the API key is missing", blocked("the API key is missing")),
            ("**LONGHAUL_BLOCKED**: the API key is missing", blocked("the API key is missing")),
            ("LONGHAUL_BLOCKED : no licence", blocked("no licence")),
            ("LONGHAUL_BLOCKED:\n\nNo licence.\nMore.", blocked("No licence.")),
            ("LONGHAUL_BLOCKED", blocked("no reason given")),
            ("LONGHAUL_BLOCKED:  ", blocked("no reason given")),
            ("LONGHAUL_DONE\nLONGHAUL_BLOCKED: deploy needs a person", blocked("deploy needs a person")),
            ("```\nLONGHAUL_BLOCKED: x\n```", None),
        ];
        for (answer, claim) in table {
            assert_eq!(read(answer), claim, "{answer:?}");
        }
        let long = format!("LONGHAUL_BLOCKED: {}", "é".repeat(9000));
        assert_eq!(read(&long), blocked(&"é".repeat(MAX_TEXT)));
    }

    #[test]
    fn of_a_text_agent_only_the_last_line_counts() {
        let read = |answer| Reading::of(answer, AnswerKind::Text).claim;
        assert_eq!(read("work\nLONGHAUL_DONE\n\n  \n"), Some(Claim::Done));
        assert_eq!(read("LONGHAUL_DONE\nnow I go on"), None, "an echo of a file or tool result");
        assert_eq!(read("log\nLONGHAUL_BLOCKED: no disk"), blocked("no disk"));
        assert_eq!(read("> LONGHAUL_DONE"), None);
        assert_eq!(read(""), None);
    }

    proptest! {
        #[test]
        fn quoted_text_holds_no_claim(
            parts in prop::collection::vec(
                prop_oneof![
                    Just("LONGHAUL_DONE".to_owned()), Just("LONGHAUL_BLOCKED: x".to_owned()),
                    Just("**".to_owned()), Just("`".to_owned()), Just("\n".to_owned()), Just(" ".to_owned()),
                    Just("```\n".to_owned()), Just("\r\n".to_owned()), Just("\u{b}".to_owned()), "[a-z:_*]{0,3}",
                ],
                0..24,
            ),
        ) {
            let quoted = quote_markers(&parts.concat()).into_owned();
            prop_assert_eq!(Reading::of(&quoted, AnswerKind::Message).claim, None);
            for line in quoted.lines() {
                prop_assert_eq!(Reading::of(line, AnswerKind::Text).claim, None);
            }
        }

        #[test]
        fn any_text_can_be_read(answer in "\\PC*", kind: bool) {
            Reading::of(&answer, if kind { AnswerKind::Message } else { AnswerKind::Text });
        }
    }
}
