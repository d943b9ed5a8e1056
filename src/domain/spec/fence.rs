//! Fenced code blocks as of CommonMark 0.31 section 4.5: where code begins and ends.

/// An opening fence that has not been closed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fence {
    mark: u8,
    length: usize,
    /// The block is shell input, or does not say what it is.
    pub shell: bool,
}

/// Follows a text line by line and knows whether it is within a code fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fences {
    open: Option<Fence>,
}

/// Languages of code blocks that a person would paste into a shell.
const SHELLS: [&str; 9] = ["", "sh", "bash", "zsh", "fish", "shell", "console", "terminal", "shell-session"];

// === impl Fences ===

impl Fences {
    /// Takes the next line (with or without its line end); true if it belongs to a code block, fences included.
    pub fn step(&mut self, line: &str) -> bool {
        match self.open {
            Some(fence) => {
                if fence.is_closed_by(line) {
                    self.open = None;
                }
                true
            }
            None => {
                self.open = Fence::opened_by(line);
                self.open.is_some()
            }
        }
    }

    /// The fence that is open after the last line.
    pub fn open(&self) -> Option<Fence> {
        self.open
    }
}

// === impl Fence ===

impl Fence {
    fn opened_by(line: &str) -> Option<Self> {
        let (mark, length, info) = run(line)?;
        // A backtick in the info string makes the line inline code.
        if mark == b'`' && info.contains('`') {
            return None;
        }
        let language = info.split_whitespace().next().unwrap_or_default().to_ascii_lowercase();
        Some(Fence { mark, length, shell: SHELLS.contains(&language.as_str()) })
    }

    fn is_closed_by(self, line: &str) -> bool {
        run(line).is_some_and(|(mark, length, info)| {
            mark == self.mark && length >= self.length && info.trim().is_empty()
        })
    }
}

/// A run of three or more backticks or tildes, indented by at most three spaces, and what follows it.
fn run(line: &str) -> Option<(u8, usize, &str)> {
    let text = line.trim_start_matches(' ');
    if line.len() - text.len() > 3 {
        return None;
    }
    let mark = *text.as_bytes().first().filter(|b| matches!(b, b'`' | b'~'))?;
    let length = text.bytes().take_while(|b| *b == mark).count();
    (length >= 3).then(|| (mark, length, text[length..].trim_end_matches(['\r', '\n'])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code_lines(text: &str) -> Vec<bool> {
        let mut fences = Fences::default();
        text.lines().map(|line| fences.step(line)).collect()
    }

    #[test]
    fn fences_open_and_close_by_commonmark() {
        let (t, f) = (true, false);
        assert_eq!(code_lines("a\n```\nb\n```\nc"), [f, t, t, t, f]);
        assert_eq!(code_lines("~~~ sh\n```\n~~~\nc"), [t, t, t, f]);
        assert_eq!(code_lines("````\n```\n````\nc"), [t, t, t, f], "a shorter run does not close");
        assert_eq!(code_lines("```\n``` x\n```\nc"), [t, t, t, f], "a closing fence has no info string");
        assert_eq!(code_lines("``` a`b\nc"), [f, f], "inline code");
        assert_eq!(code_lines("    ```\nc"), [f, f], "indented code is no fence");
        assert_eq!(code_lines("``\nc"), [f, f]);
    }
}
