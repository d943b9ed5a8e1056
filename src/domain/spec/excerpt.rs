//! Fits a long spec into a prompt: outline, beginning, open checklist items and the sections that the current goal
//! is about, with the path to the whole.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::ops::Range;

use super::{Spec, SpecWarning};

/// Room for the words around the pieces of an excerpt: the note at the beginning and two headings.
const FRAME: usize = 420;

/// Room for the line that says what is left out before a piece.
const GAP: usize = 64;

/// A section is not begun for fewer bytes than this.
const WORTHWHILE: usize = 200;

/// A line of the outline without its title and marks.
const ENTRY: usize = 10;

/// An outline of fewer headings is no outline.
const FEW: usize = 5;

/// Words of a goal that choose sections.
const MAX_GOAL_WORDS: usize = 24;

/// How much of a prompt a spec may take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExcerptBudget<'a> {
    /// `spec.max_tokens`: by default a quarter of the model's window.
    pub max_tokens: usize,
    /// Bytes that make a token, on average; 4 is usual for English and code.
    pub bytes_per_token: f64,
    /// A second limit, in characters; `usize::MAX` for none.
    pub max_chars: usize,
    /// What is worked on now: sections that share words with it are preferred. May be empty.
    pub goal: &'a str,
    /// Path of the whole spec, as the agent can open it.
    pub path: &'a str,
}

/// A spec as a prompt shows it. Never cut within a character or a code block. With a budget of a few hundred bytes
/// only the note with the path is left, which is always there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt<'a> {
    /// The whole text, or what stands for it.
    pub text: Cow<'a, str>,
    /// [`SpecWarning::Truncated`] when it is not the whole.
    pub truncated: Option<SpecWarning>,
}

pub(super) fn excerpt<'a>(spec: &'a Spec, budget: &ExcerptBudget<'_>) -> Excerpt<'a> {
    let by_tokens = (budget.max_tokens as f64 * budget.bytes_per_token.max(0.0)) as usize; // saturates
    if spec.text.len() <= by_tokens && spec.chars <= budget.max_chars {
        return Excerpt { text: Cow::Borrowed(&spec.text), truncated: None };
    }
    let text = within_chars(spec, budget, by_tokens);
    let truncated = SpecWarning::Truncated { from_chars: spec.chars, to_chars: text.chars().count() };
    Excerpt { text: Cow::Owned(text), truncated: Some(truncated) }
}

/// Renders with the bytes that the limit in characters is worth on average, and again with fewer if these parts of
/// the spec have shorter characters than most.
fn within_chars(spec: &Spec, budget: &ExcerptBudget<'_>, by_tokens: usize) -> String {
    let average = spec.text.len() as f64 / spec.chars.max(1) as f64;
    let by_chars = (budget.max_chars as f64 * average) as usize;
    let text = render(spec, budget, by_tokens.min(by_chars));
    if text.chars().count() <= budget.max_chars {
        return text;
    }
    render(spec, budget, by_tokens.min(budget.max_chars))
}

fn render(spec: &Spec, budget: &ExcerptBudget<'_>, limit: usize) -> String {
    let mut out = format!(
        "[The spec is too long to show in full: it has {} characters. Shown are its outline and the parts that \
         matter most now. The whole is in {} - read there what you work on and do not see here.]\n",
        spec.chars, budget.path,
    );
    let room = limit.saturating_sub(FRAME.max(out.len() + 2 * GAP));
    let outline = outline(spec, room / 3);
    if !outline.is_empty() {
        out.push_str("\n[Outline with line numbers]\n");
        out.push_str(&outline);
        out.push('\n');
    }
    let pieces = choose(spec, budget.goal, room.saturating_sub(outline.len()));
    let mut shown = 0;
    let mut line = 1;
    for piece in pieces {
        line = push_gap(&mut out, spec, shown..piece.start, line);
        let text = spec.text.get(piece.clone()).unwrap_or_default();
        out.push_str(text);
        line += text.matches('\n').count();
        shown = piece.end;
    }
    push_gap(&mut out, spec, shown..spec.text.len(), line);
    out
}

/// Says what is left out and returns the number of the line after it.
fn push_gap(out: &mut String, spec: &Spec, gap: Range<usize>, line: usize) -> usize {
    let skipped = spec.text.get(gap).unwrap_or_default();
    if !out.ends_with('\n') {
        out.push('\n');
    }
    let breaks = skipped.matches('\n').count();
    let after = line + breaks;
    // Writing to a string cannot fail.
    let _ = match (skipped.trim().is_empty(), breaks) {
        (true, _) => return after,
        (_, 0) => writeln!(out, "[... {} characters left out ...]", skipped.chars().count()),
        _ => {
            let last = if skipped.ends_with('\n') { after - 1 } else { after };
            writeln!(out, "[... lines {line} to {last} left out ...]")
        }
    };
    after
}

/// The headings: all, else the upper levels, else the first ones.
fn outline(spec: &Spec, limit: usize) -> String {
    let size = |depth: u8| -> usize {
        let shown = spec.outline.iter().filter(|h| h.level <= depth);
        shown.map(|h| ENTRY + usize::from(h.level) + h.title.len()).sum::<usize>() + GAP
    };
    let fitting = (1..=6).rev().find(|depth| size(*depth) <= limit);
    // A level of a title or two says nothing: then better the beginning of the level below it.
    let count = |depth: u8| spec.outline.iter().filter(|h| h.level <= depth).count();
    let depth = match fitting {
        Some(depth) if count(depth) >= FEW || count(depth) == spec.headings => depth,
        other => (other.unwrap_or(0) + 1..=6).find(|depth| count(*depth) >= FEW).unwrap_or(6),
    };
    let mut text = String::new();
    let mut listed = 0;
    for heading in spec.outline.iter().filter(|h| h.level <= depth) {
        let mark = "#".repeat(usize::from(heading.level));
        let line = format!("{:>6}  {mark} {}\n", heading.line, super::quote(spec.title(heading)));
        if text.len() + line.len() + GAP > limit {
            break;
        }
        text.push_str(&line);
        listed += 1;
    }
    if listed > 0 && listed < spec.headings {
        text.push_str(&format!("        ... and {} more headings\n", spec.headings - listed));
    }
    text
}

/// The ranges to show, in order and without overlap, of at most `room` bytes with what is said between them.
pub(super) fn choose(spec: &Spec, goal: &str, room: usize) -> Vec<Range<usize>> {
    let head = 0..safe_end(spec, 0, room / 2);
    let mut left = room.saturating_sub(head.end + GAP);
    let mut pieces = vec![head.clone()];
    let mut items = left / 2;
    for item in spec.open_items.iter().filter(|item| item.start >= head.end) {
        // With its line end, so that neighbours join.
        let item = item.start..(item.end + 1).min(spec.text.len());
        if item.len() + GAP > items {
            break;
        }
        items -= item.len() + GAP;
        left -= item.len() + GAP;
        pieces.push(item);
    }
    for section in relevant_sections(spec, goal) {
        if section.end <= head.end || left < WORTHWHILE + GAP {
            continue;
        }
        let start = section.start.max(head.end);
        let section = start..safe_end(spec, start, section.end.min(start + left - GAP));
        if !section.is_empty() {
            left -= (section.len() + GAP).min(left);
            pieces.push(section);
        }
    }
    // What is left lengthens the beginning; where it meets another piece, room stays free.
    if let Some(first) = pieces.first_mut() {
        first.end = safe_end(spec, 0, head.end + left);
    }
    merge(pieces)
}

fn merge(mut pieces: Vec<Range<usize>>) -> Vec<Range<usize>> {
    pieces.retain(|piece| !piece.is_empty());
    pieces.sort_by_key(|piece| piece.start);
    let mut merged: Vec<Range<usize>> = Vec::new();
    for piece in pieces {
        match merged.last_mut() {
            Some(last) if piece.start <= last.end => last.end = last.end.max(piece.end),
            _ => merged.push(piece),
        }
    }
    merged
}

/// The last place at or before `wanted` where the text may be cut: behind a line if there is one, else behind a
/// word, never within a character or a code block. Not before `from`.
fn safe_end(spec: &Spec, from: usize, wanted: usize) -> usize {
    let text = spec.text.as_str();
    if wanted >= text.len() {
        return text.len();
    }
    let wanted = text.floor_char_boundary(wanted);
    let Some(within) = text.get(from..wanted) else { return from };
    let whole_line = within.is_empty() || text.as_bytes().get(wanted - 1) == Some(&b'\n');
    let cut = if whole_line {
        wanted
    } else if let Some(newline) = within.rfind('\n') {
        from + newline + 1
    } else {
        within.rfind(char::is_whitespace).map_or(wanted, |space| from + space)
    };
    let next = spec.fences.partition_point(|fence| fence.end <= cut);
    match spec.fences.get(next) {
        Some(fence) if fence.start < cut => fence.start.max(from),
        _ => cut,
    }
}

/// Sections that share words with the goal, the best first.
fn relevant_sections(spec: &Spec, goal: &str) -> Vec<Range<usize>> {
    let goal = goal_words(goal);
    if goal.is_empty() {
        return Vec::new();
    }
    let ends = spec.outline.iter().skip(1).map(|h| h.start).chain([spec.text.len()]);
    let mut scored: Vec<(u32, Range<usize>)> = spec
        .outline
        .iter()
        .zip(ends)
        .filter_map(|(heading, end)| {
            let body = spec.text.get(heading.start..end)?;
            let score = shared(body, &goal) + 3 * shared(spec.title(heading), &goal);
            (score > 0).then_some((score, heading.start..end))
        })
        .collect();
    scored.sort_by_key(|(score, section)| (std::cmp::Reverse(*score), section.start));
    scored.into_iter().map(|(_, section)| section).collect()
}

/// The goal's longer words, each once: short ones are in every section.
fn goal_words(goal: &str) -> Vec<&str> {
    let mut words: Vec<&str> = Vec::new();
    for word in goal.split(|c: char| !c.is_alphanumeric()).filter(|w| w.chars().count() > 3) {
        if words.len() < MAX_GOAL_WORDS && !words.iter().any(|w| w.eq_ignore_ascii_case(word)) {
            words.push(word);
        }
    }
    words
}

/// How many of the words stand in the text.
fn shared(text: &str, words: &[&str]) -> u32 {
    let mut found = 0_u32;
    for word in text.split(|c: char| !c.is_alphanumeric()) {
        if word.len() > 3
            && let Some(i) = words.iter().position(|w| w.eq_ignore_ascii_case(word))
        {
            found |= 1 << i;
        }
    }
    found.count_ones()
}
