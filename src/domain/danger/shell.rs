//! Splits text into simple commands as a shell would, forgiving what is no shell at all.

/// One simple command with its quoting undone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Command {
    /// Its words. A word that was quoted as a whole may hold white space.
    pub words: Vec<String>,
    /// Where its output is redirected to.
    pub redirects: Vec<String>,
    /// What ends it.
    pub end: Separator,
}

/// What stands between two commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Separator {
    /// `;`, a line end, `&&`, `||`, a bracket or the end of the text.
    #[default]
    Other,
    /// `|`
    Pipe,
    /// `&`
    Background,
}

#[derive(Default)]
struct Splitter {
    commands: Vec<Command>,
    now: Command,
    word: String,
    /// A quoted empty word is a word.
    in_word: bool,
    /// The next word is where the output goes.
    redirect: bool,
}

/// Splits `text`. In a `sentence` an apostrophe within a word is no quote.
pub(super) fn split(text: &str, sentence: bool) -> Vec<Command> {
    let text = text.replace("${IFS}", " ").replace("$IFS", " ");
    let mut s = Splitter::default();
    let mut rest = text.chars();
    let mut before = ' ';
    while let Some(c) = rest.next() {
        match c {
            '\\' => match rest.next() {
                // A line that goes on.
                Some('\n') | None => {}
                Some(escaped) => s.push(escaped),
            },
            '\'' if sentence && before.is_alphanumeric() => s.push(c),
            '\'' | '"' => match rest.as_str().split_once(c) {
                Some((quoted, after)) => {
                    s.push_quoted(quoted);
                    rest = after.chars();
                }
                None => s.in_word = true,
            },
            '|' | '&' => {
                let doubled = rest.as_str().starts_with(c);
                if doubled {
                    rest.next();
                }
                let separator = match (doubled, c) {
                    (false, '|') => Separator::Pipe,
                    (false, '&') => Separator::Background,
                    _ => Separator::Other,
                };
                // `2>&1` and `&>file` are redirections.
                if before == '>' || (c == '&' && rest.as_str().starts_with('>')) {
                    s.end_word();
                } else {
                    s.end_command(separator);
                }
            }
            '>' => {
                // The number before it is the descriptor, not a word.
                if s.word.bytes().all(|b| b.is_ascii_digit()) {
                    s.word.clear();
                    s.in_word = false;
                }
                s.end_word();
                s.redirect = true;
            }
            ';' | '\n' | '(' | ')' | '`' => s.end_command(Separator::Other),
            // In JSON the value ends with its quote.
            ',' | ':' | '}' | ']' if sentence && before == '"' => s.end_command(Separator::Other),
            '{' | '}' if !s.in_word => s.end_command(Separator::Other),
            c if c.is_whitespace() => s.end_word(),
            c => s.push(c),
        }
        before = c;
    }
    s.end_command(Separator::Other);
    s.commands
}

// === impl Splitter ===

impl Splitter {
    fn push(&mut self, c: char) {
        self.word.push(c);
        self.in_word = true;
    }

    fn push_quoted(&mut self, text: &str) {
        self.word.push_str(text);
        self.in_word = true;
    }

    fn end_word(&mut self) {
        if !std::mem::take(&mut self.in_word) {
            return;
        }
        let word = std::mem::take(&mut self.word);
        if std::mem::take(&mut self.redirect) {
            self.now.redirects.push(word);
        } else {
            self.now.words.push(word);
        }
    }

    fn end_command(&mut self, end: Separator) {
        self.end_word();
        self.redirect = false;
        let command = Command { end, ..std::mem::take(&mut self.now) };
        // Brackets leave empty commands behind; they only matter after `&`.
        let after_background = self.commands.last().is_some_and(|c| c.end == Separator::Background);
        if !command.words.is_empty() || !command.redirects.is_empty() || after_background {
            self.commands.push(command);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<Vec<String>> {
        split(text, false).into_iter().map(|c| c.words).collect()
    }

    #[test]
    fn quoting_is_undone() {
        for text in
            ["rm -rf /x", "r\\m -r'f' \"/x\"", "rm${IFS}-rf$IFS/x", "'rm' \"-rf\" /\\x", "rm -rf \\\n /x"]
        {
            assert_eq!(words(text), [["rm", "-rf", "/x"]], "{text:?}");
        }
        assert_eq!(words("bash -c 'a b'"), [["bash", "-c", "a b"]]);
        assert_eq!(words("say \"open"), [["say", "open"]]);
        assert_eq!(words("a; b && c\nd"), [["a"], ["b"], ["c"], ["d"]]);
        assert_eq!(words("rm ${HOME} /{a,b}"), [["rm", "${HOME}", "/{a,b}"]]);
    }

    #[test]
    fn redirections_are_no_words() {
        let command = &split("cat x >/dev/sda 2>&1", false)[0];
        assert_eq!((command.words.len(), command.redirects[0].as_str()), (2, "/dev/sda"));
    }
}
