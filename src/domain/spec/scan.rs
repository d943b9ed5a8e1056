//! One pass over a spec's lines: words, headings, list items, checklists, code blocks and dangerous commands.
//! Structure by CommonMark 0.31 as far as it matters for counting.

use std::ops::Range;

use super::fence::Fences;
use super::{Heading, MAX_DANGEROUS, SpecWarning, quote};
use crate::domain::danger::{self, Context};

/// Headings and open items that are remembered; all are counted.
const MAX_MARKS: usize = 20_000;

/// Opening fences and comments without an end that are put right: each costs a second look at what follows.
const MAX_REPAIRS: usize = 8;

/// Longer lines are no commands that a person wrote; they are looked at in pieces of this many bytes.
const PIECE: usize = 4096;

/// What one pass finds.
#[derive(Debug, Default, Clone)]
pub(super) struct Scan {
    pub words: usize,
    pub headings: usize,
    pub items: usize,
    pub outline: Vec<Heading>,
    pub open_items: Vec<Range<usize>>,
    pub fences: Vec<Range<usize>>,
    pub dangerous: Vec<SpecWarning>,
}

/// Where the pass stands. Copied at each opening fence, to come back to when it never ends.
#[derive(Clone, Default)]
struct Pass {
    fences: Fences,
    /// Byte offset and number of the line.
    start: usize,
    line: usize,
    /// The last line, if a row of `=` or `-` below it makes it a heading: where it begins, and its title.
    paragraph: Option<(usize, Range<usize>)>,
    /// Where the shell command begins that the line goes on with (after a backslash at the line's end).
    carried: Option<usize>,
}

/// Sizes of the lists of [`Scan`] at one moment, and its counts.
struct Mark {
    pass: Pass,
    counts: (usize, usize, usize),
    lengths: (usize, usize, usize, usize),
}

pub(super) fn scan(text: &str) -> Scan {
    let mut scan = Scan::default();
    let mut pass = Pass { line: 1, ..Pass::default() };
    let mut repairs = 0;
    let mut comments_without_end = 0;
    let mut opened: Option<Mark> = None;
    if let Some(end) = front_matter(text) {
        scan.words = words(&text[..end]);
        pass.line += text[..end].matches('\n').count();
        pass.start = end;
    }
    loop {
        let Some(rest) = text.get(pass.start..).filter(|rest| !rest.is_empty()) else {
            // The end. A fence that never closes is no fence, or it would swallow the rest of the spec.
            match opened.take() {
                Some(mark) if repairs < MAX_REPAIRS => {
                    repairs += 1;
                    pass = scan.back_to(mark);
                    let line = line_at(text, pass.start);
                    scan.words += words(line);
                    pass.next(line);
                    continue;
                }
                Some(mark) => scan.fences.push(mark.pass.start..text.len()),
                None => {}
            }
            return scan;
        };
        if pass.fences.open().is_none() && rest.starts_with("<!--") && comments_without_end < MAX_REPAIRS {
            if let Some(end) = comment(rest) {
                scan.words += words(&rest[..end]);
                pass.line += rest[..end].matches('\n').count();
                pass.start += end;
                pass.paragraph = None;
                continue;
            }
            comments_without_end += 1;
        }
        let line = line_at(text, pass.start);
        let before = pass.fences.open();
        let mark = before.is_none().then(|| scan.mark(&pass));
        let is_code = pass.fences.step(line);
        let after = pass.fences.open();
        match (before, after) {
            (None, Some(_)) => opened = mark,
            (Some(_), None) => {
                if let Some(mark) = opened.take() {
                    scan.fences.push(mark.pass.start..pass.start + line.len());
                }
            }
            _ => {}
        }
        scan.words += words(line);
        let shell = is_code.then(|| after.or(before).is_some_and(|fence| fence.shell));
        scan.look_for_danger(text, line, shell, &mut pass);
        if is_code {
            pass.paragraph = None;
        } else {
            scan.structure(line, &mut pass);
        }
        pass.next(line);
    }
}

// === impl Scan ===

impl Scan {
    fn mark(&self, pass: &Pass) -> Mark {
        Mark {
            pass: pass.clone(),
            counts: (self.words, self.headings, self.items),
            lengths: (self.outline.len(), self.open_items.len(), self.fences.len(), self.dangerous.len()),
        }
    }

    fn back_to(&mut self, mark: Mark) -> Pass {
        (self.words, self.headings, self.items) = mark.counts;
        let (outline, open_items, fences, dangerous) = mark.lengths;
        self.outline.truncate(outline);
        self.open_items.truncate(open_items);
        self.fences.truncate(fences);
        self.dangerous.truncate(dangerous);
        mark.pass
    }

    /// Headings and list items of one line outside code.
    fn structure(&mut self, line: &str, pass: &mut Pass) {
        let bare = line.trim_end();
        let paragraph = pass.paragraph.take();
        if let Some((level, title)) = atx_heading(bare) {
            let start = pass.start + title.start;
            self.heading(level, pass.line, pass.start, start..start + title.len());
        } else if let (Some(level), Some(above)) = (underline(bare), paragraph) {
            let (start, title) = above;
            self.heading(level, pass.line.saturating_sub(1), start, title);
        } else if let Some(item) = list_item(bare) {
            self.items += 1;
            if item.starts_with("[ ]") && self.open_items.len() < MAX_MARKS {
                self.open_items.push(pass.start..pass.start + bare.len());
            }
        } else if !bare.trim_start().is_empty() && !bare.trim_start().starts_with(['>', '|']) {
            let indent = bare.len() - bare.trim_start().len();
            pass.paragraph = Some((pass.start, pass.start + indent..pass.start + bare.len()));
        }
    }

    fn heading(&mut self, level: u8, line: usize, start: usize, title: Range<usize>) {
        self.headings += 1;
        if self.outline.len() < MAX_MARKS {
            self.outline.push(Heading { level, line, start, title });
        }
    }

    /// `shell`: `None` outside code, else whether the code block may be shell input.
    fn look_for_danger(&mut self, text: &str, line: &str, shell: Option<bool>, pass: &mut Pass) {
        if self.dangerous.len() >= MAX_DANGEROUS {
            return;
        }
        let begin = pass.carried.take().filter(|begin| pass.start - begin < PIECE).unwrap_or(pass.start);
        let whole = text.get(begin..pass.start + line.len()).unwrap_or(line);
        let found = pieces(whole).find(|piece| is_dangerous(piece, shell));
        if let Some(piece) = found {
            let line_number = pass.line - whole.trim_end_matches('\n').matches('\n').count();
            self.dangerous.push(SpecWarning::Dangerous { line_number, line: quote(piece) });
        } else if shell.is_some() && line.trim_end().ends_with('\\') {
            pass.carried = Some(begin);
        }
    }
}

// === impl Pass ===

impl Pass {
    fn next(&mut self, line: &str) {
        self.start += line.len();
        self.line += 1;
    }
}

/// The line that begins at `start`, with its line end.
fn line_at(text: &str, start: usize) -> &str {
    let rest = text.get(start..).unwrap_or_default();
    rest.find('\n').and_then(|end| rest.get(..=end)).unwrap_or(rest)
}

/// Metadata between two `---` lines at the very beginning; where it ends.
fn front_matter(text: &str) -> Option<usize> {
    let body = text.strip_prefix("---\n")?;
    let mut end = text.len() - body.len();
    for line in body.split_inclusive('\n').take(200) {
        end += line.len();
        if matches!(line.trim_end(), "---" | "...") {
            return Some(end);
        }
    }
    None
}

/// An HTML comment at the beginning of a line that ends with a line; its length.
fn comment(rest: &str) -> Option<usize> {
    let end = rest.strip_prefix("<!--")?.find("-->")? + "<!---->".len();
    rest.get(end..)?.starts_with('\n').then_some(end + 1)
}

/// Level and title of `# Title`.
fn atx_heading(line: &str) -> Option<(u8, Range<usize>)> {
    let text = line.trim_start_matches(' ');
    let indent = line.len() - text.len();
    let level = text.bytes().take_while(|b| *b == b'#').count();
    if indent > 3 || !(1..=6).contains(&level) {
        return None;
    }
    let after = &text[level..];
    if !after.is_empty() && !after.starts_with([' ', '\t']) {
        return None;
    }
    let title = after.trim();
    let bare = title.trim_end_matches('#').trim_end();
    let start = line.len() - after.len() + (after.len() - after.trim_start().len());
    Some((u8::try_from(level).unwrap_or(6), start..start + bare.len()))
}

/// The level that a row of `=` or `-` gives to the paragraph above it.
fn underline(line: &str) -> Option<u8> {
    let row = line.trim();
    let made_of = |mark| !row.is_empty() && row.bytes().all(|b| b == mark);
    if line.starts_with("    ") {
        None
    } else if made_of(b'=') {
        Some(1)
    } else {
        made_of(b'-').then_some(2)
    }
}

/// What follows the bullet or number of a list item.
fn list_item(line: &str) -> Option<&str> {
    let text = line.trim_start();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let after = if (1..=9).contains(&digits) {
        text[digits..].strip_prefix(['.', ')'])?
    } else {
        text.strip_prefix(['-', '*', '+', '•', '–'])?
    };
    let item = after.strip_prefix([' ', '\t'])?.trim_start();
    // `- - -` and `* * *` are rules.
    let is_rule = text.bytes().all(|b| matches!(b, b'-' | b'*' | b' '));
    (!item.is_empty() && !is_rule).then_some(item)
}

/// Words of a text; each ideograph and kana is one, for they are not set apart by spaces.
pub(super) fn words(text: &str) -> usize {
    if text.is_ascii() {
        return text.split_ascii_whitespace().count();
    }
    let ideographs = |word: &str| word.chars().filter(|c| is_ideograph(*c)).count();
    text.split_whitespace().map(|word| ideographs(word).max(1)).sum()
}

fn is_ideograph(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30FF}' | '\u{3400}'..='\u{9FFF}' | '\u{F900}'..='\u{FAFF}' | '\u{20000}'..='\u{3FFFF}')
}

/// A long line in pieces that end at white space where they can.
fn pieces(line: &str) -> impl Iterator<Item = &str> {
    let mut rest = line;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let limit = rest.floor_char_boundary(PIECE);
        let end = if limit < rest.len() {
            rest[..limit].rfind(char::is_whitespace).filter(|at| *at > PIECE / 2).unwrap_or(limit)
        } else {
            limit
        };
        let (piece, after) = rest.split_at(end);
        rest = after;
        Some(piece)
    })
}

fn is_dangerous(line: &str, shell: Option<bool>) -> bool {
    let bare = line.trim();
    if let Some(command) = bare.strip_prefix("$ ") {
        return danger::find(command, Context::Shell).is_some();
    }
    match shell {
        Some(true) => danger::find(bare, Context::Shell).is_some(),
        Some(false) => danger::find(bare, Context::Span).is_some(),
        None => {
            // Code spans stand between backticks; a block quote's mark is no redirection.
            let text = bare.trim_start_matches(['>', ' ']);
            let mut spans = text.split('`').skip(1).step_by(2);
            danger::find(text, Context::Prose).is_some()
                || spans.any(|span| danger::find(span, Context::Span).is_some())
        }
    }
}
