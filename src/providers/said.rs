//! What stands in the lines that a call printed: messages that a terminal wrapped, error bodies within or across
//! lines; and whose words they are.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use super::decode::{ErrorEvent, body_at, body_in};

/// A line with what belongs to it.
#[derive(Debug)]
pub(super) struct Passage {
    /// The line, and the lines that go on with it.
    pub text: String,
    /// What an error body in it says.
    pub body: Option<ErrorEvent>,
    /// The line after it, where that only says when a limit ends.
    pub when: Option<String>,
    /// It is a row of a table.
    pub table: bool,
}

/// A line of at least so many characters may have been wrapped by a terminal.
const WRAPPED: usize = 60;

/// A word, such as a URL, that goes to the next line in terminals of this width, at least.
const LONG_WORD: usize = 16;
const WIDTH: usize = 76;

/// Most lines that are put together again.
const PIECES_MAX: usize = 5;

/// Most lines of an error body.
const BODY_LINES_MAX: usize = 60;

/// The passages that begin in the last `last` lines. Lines of one message count as one.
pub(super) fn passages(lines: &[String], last: usize) -> Vec<Passage> {
    let lines: Vec<&str> =
        lines.iter().map(|line| without_frame(line)).filter(|line| !line.is_empty()).collect();
    let bodies: Vec<Option<(ErrorEvent, usize)>> = (0..lines.len()).map(|at| body(&lines[at..])).collect();
    let goes_on = |at: usize| {
        let in_body = |(from, body): (usize, &Option<(ErrorEvent, usize)>)| {
            body.as_ref().is_some_and(|(_, count)| from + count > at)
        };
        at > 0 && (is_wrapped(lines[at - 1], lines[at]) || bodies[..at].iter().enumerate().any(in_body))
    };
    let mut from = lines.len();
    let mut counted = 0;
    while from > 0 && counted < last {
        from -= 1;
        counted += usize::from(!goes_on(from));
    }
    // The message that the first of them goes on with.
    while from > 0 && goes_on(from) && counted == last && lines.len() - from < last * PIECES_MAX {
        from -= 1;
    }
    let bodies = bodies.into_iter().skip(from);
    let starts = (from..lines.len()).zip(bodies);
    starts
        .map(|(at, body)| {
            let text = joined(&lines[at..]);
            let when = lines.get(at + 1).filter(|next| WHEN.is_match(next)).map(|next| (*next).to_owned());
            let table = lines[at].contains(['│', '┃']);
            Passage { text, body: body.map(|(error, _)| error), when, table }
        })
        .collect()
}

/// A line without the frame that is drawn around it.
fn without_frame(line: &str) -> &str {
    line.trim_matches(|c: char| c.is_whitespace() || ('\u{2500}'..='\u{259f}').contains(&c))
}

/// Whether `line` was broken before `next`: it is long, or the next word would not have fitted.
fn is_wrapped(line: &str, next: &str) -> bool {
    let length = |text: &str| text.chars().count();
    let word = next.split_whitespace().next().map_or(0, length);
    !line.ends_with('.') && (length(line) >= WRAPPED || (word >= LONG_WORD && length(line) + word >= WIDTH))
}

/// A line and those that it was wrapped into.
fn joined(lines: &[&str]) -> String {
    let mut text = lines[0].to_owned();
    for pair in lines.windows(2).take(PIECES_MAX - 1) {
        if !is_wrapped(pair[0], pair[1]) {
            break;
        }
        text.push(' ');
        text.push_str(pair[1]);
    }
    text
}

/// The error body that begins in the first line, and how many lines it takes.
fn body(lines: &[&str]) -> Option<(ErrorEvent, usize)> {
    let first = lines[0];
    let start = first.find('{')?;
    if let Some(error) = body_in(first) {
        return Some((error, 1));
    }
    // Pretty-printed; a string of it may be wrapped.
    let mut text = first[start..].to_owned();
    for (index, line) in lines.iter().enumerate().skip(1).take(BODY_LINES_MAX) {
        text.push(' ');
        text.push_str(line);
        if line.ends_with(['}', ']', ',', ')'])
            && line.contains('}')
            && let Some(error) = body_at(&text)
        {
            return Some((error, index + 1));
        }
    }
    None
}

/// Whether what was found at `found` is a program's own message, in a stream that is the agent's prose, too: an
/// error that is labelled as one, or a message that begins there and says no more than that. Prose mentions
/// limits in the middle of other words, or goes on about them.
pub(super) fn is_own_message(text: &str, found: &Range<usize>) -> bool {
    let label = LABEL.find(text).map_or(0, |label| label.end());
    if label > 0 && found.end >= label {
        return true;
    }
    text.get(..found.start).is_some_and(|before| BEFORE.is_match(before)) && says_no_more(text, found.end)
}

/// What follows is a new clause, not a noun or a verb: «rate limit reached. Try…», not «rate limit reached errors…».
pub(super) fn says_no_more(text: &str, end: usize) -> bool {
    text.get(end..).is_some_and(|rest| !GOES_ON.is_match(rest) || NEW_CLAUSE.is_match(rest))
}

#[expect(clippy::expect_used, reason = "constant patterns; the tests compile each of them")]
fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a constant pattern")
}

/// «Error: », «API Error (», «litellm.RateLimitError: », «[API Error: », «AI_APICallError: ».
static LABEL: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?x) ^[^A-Za-z0-9]{0,8}(?:
              (?:[A-Za-z_]+\.)*[A-Za-z_]*(?:Error|Exception)(?:\s+code)?\s?[:(\[]
            | (?i:(?:unexpected|fatal|api|stream|http|backend|request|provider|ran\ into\ this|an)\s+error(?:\ occurred)?\s?[:(\]])
            | (?:[A-Za-z_]+\.){2,}[A-Z]\w+: | (?i:error\s?:) | ERROR\b | (?i:fatal\s?:) | (?i:[a-z]+\ exceptions?:)
            | (?i:unexpected\ status\ |exceeded\ retry\ limit,\ |stream\ disconnected\ before\ completion:\ |failed\ to\ authenticate[.:]\ )
            | (?i:(?:authentication|authorization|login|request|connection)\ failed:\ ) | Reconnecting\.\.\.\ \d
            | (?i:data:\ ?\{|event:\ error) | curl:\ \(\d+\)\  | HTTP/\d(?:\.\d)?\  | \{
        )",
    )
});

/// What may stand before a message in its line: glyphs, and words that point to whom it concerns.
static BEFORE: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?xi) ^(?:[^\x00-\x7f]|[\s!\[])*(?: (?:you|your|you.ve|you.re|we.re|there.s|we|our|have|has|reached|its|provided|conversation|the|this|a|an|claude|claude's|codex|gemini|ai|api|opus|sonnet|haiku|fable
            |chatgpt|org|organization.{0,2}|workspace|account|plan|subscription|model|model.s|server|servers|provider|request|are|is|currently|[a-z]+-[\w.-]*\d[\w.-]*
            |free|daily|weekly|monthly|session|usage|5-hour|oauth|access|token|selected|quota|please|input|prompt|login)\W+ ){0,6}$",
    )
});

static GOES_ON: LazyLock<Regex> = LazyLock::new(|| regex(r"^[\x60'\x22*]?\s+[a-z]"));

static NEW_CLAUSE: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"^\S?\s+(for|in|on|by|until|of|to|at|after|please|or|with|from|try|resets?|since|before|your|you|this|the|limit|per|within|access|due|because|exceeded|reached|expired|revoked|used|could|gpt|o[0-9]|claude)\b",
    )
});

/// A line that only says when a limit ends.
static WHEN: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)^\W{0,4}((your |the )?(limit |quota |usage )?(will )?resets?\b|retry-after|x-ratelimit-reset|(or |please )?try again (at|in)\b)",
    )
});

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lines: &[&str], last: usize) -> Vec<String> {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        passages(&lines, last).into_iter().map(|passage| passage.text).collect()
    }

    #[test]
    fn what_a_terminal_wrapped_is_put_together() {
        let long = "You've hit your usage limit. Upgrade to Pro (https://openai.com/chatgpt/pricing)";
        assert_eq!(
            texts(&[long, "or try again at 1:41 AM."], 9)[0],
            format!("{long} or try again at 1:41 AM.")
        );
        assert_eq!(texts(&["short", "other"], 9), ["short", "other"]);
        assert_eq!(texts(&["╭──╮", "│ in a box │", "╰──╯"], 9), ["in a box"]);
        // One message of several lines is one of the last.
        assert_eq!(texts(&["first", long, "goes on", "last"], 2).len(), 3);
    }

    #[test]
    fn a_body_may_take_many_lines() {
        let lines =
            ["failed: {", "\"error\": {", "\"message\": \"slow\",", "\"code\": 429", "}", "}", "after"];
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        let found = passages(&lines, 2);
        assert_eq!(found[0].body.as_ref().and_then(|error| error.status), Some(429));
    }

    #[test]
    fn a_message_is_told_from_talk_about_it() {
        for (text, words, own) in [
            ("Rate limit reached for gpt-5", "Rate limit reached", true),
            ("■ You've hit your usage limit. Upgrade", "hit your usage limit", true),
            ("Error: the quota, as they say, insufficient_quota", "insufficient_quota", true),
            ("Rate limit reached errors are retried now", "Rate limit reached", false),
            ("I fixed the rate limit reached path", "rate limit reached", false),
            ("- Retry on rate limit reached", "rate limit reached", false),
        ] {
            let start = text.find(words).unwrap();
            assert_eq!(is_own_message(text, &(start..start + words.len())), own, "{text}");
        }
    }
}
