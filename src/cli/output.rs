//! Printing: results on stdout alone, notices and errors on stderr, all of it readable without colour.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use serde::Serialize;

use super::error::{CliError, ErrorKind};
use crate::config::Environment;

/// `--color`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Colour {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What a piece of text is, and so how it looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Headings.
    Bold,
    /// Less important.
    Dim,
    /// Good.
    Good,
    /// Worth a look.
    Warn,
    /// Bad.
    Bad,
}

/// Where a command prints.
pub struct Output {
    out: Box<dyn Write + Send>,
    err: Box<dyn Write + Send>,
    choice: Colour,
    /// Colours on stdout.
    out_colour: bool,
    /// Colours on stderr.
    err_colour: bool,
    quiet: bool,
    out_terminal: bool,
    /// Stderr is a terminal: progress may be shown.
    progress: bool,
    /// A line of progress stands there, to be wiped before anything else.
    progress_shown: bool,
}

// === impl Colour ===

impl Colour {
    /// `--color` as typed, found without reading the whole command line, so that its errors obey it too.
    pub fn typed(arguments: &[std::ffi::OsString]) -> Self {
        let mut choice = Colour::Auto;
        let mut arguments = arguments.iter().filter_map(|argument| argument.to_str());
        while let Some(argument) = arguments.next() {
            let value = match argument {
                "--" => break,
                "--color" => arguments.next(),
                _ => argument.strip_prefix("--color="),
            };
            choice = value.and_then(|value| Colour::from_str(value, false).ok()).unwrap_or(choice);
        }
        choice
    }

    /// Whether to colour. `NO_COLOR`: <https://no-color.org>.
    fn decide(self, environment: &Environment, terminal: bool) -> bool {
        let dumb = environment.get("TERM").is_some_and(|term| term == "dumb");
        match self {
            Colour::Always => true,
            Colour::Never => false,
            Colour::Auto => terminal && environment.get("NO_COLOR").is_none() && !dumb,
        }
    }
}

impl From<Colour> for clap::ColorChoice {
    fn from(colour: Colour) -> Self {
        match colour {
            Colour::Auto => clap::ColorChoice::Auto,
            Colour::Always => clap::ColorChoice::Always,
            Colour::Never => clap::ColorChoice::Never,
        }
    }
}

// === impl Output ===

impl Output {
    /// The process's own stdout and stderr.
    pub fn standard(colour: Colour, environment: &Environment) -> Self {
        let (out, err) = (io::stdout(), io::stderr());
        Output {
            choice: colour,
            out_colour: colour.decide(environment, out.is_terminal()),
            err_colour: colour.decide(environment, err.is_terminal()),
            quiet: false,
            out_terminal: out.is_terminal(),
            progress: err.is_terminal(),
            progress_shown: false,
            out: Box::new(out),
            err: Box::new(err),
        }
    }

    /// `--quiet`: no notices, no progress.
    pub fn set_quiet(&mut self, quiet: bool) {
        self.quiet = quiet;
    }

    /// `--quiet` was given.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Colours go to stdout.
    pub fn out_has_colours(&self) -> bool {
        self.out_colour
    }

    /// Colours go to stderr.
    pub fn err_has_colours(&self) -> bool {
        self.err_colour
    }

    /// Stdout is a terminal: what it is sent may command it.
    pub fn out_is_terminal(&self) -> bool {
        self.out_terminal
    }

    /// `--color` as given.
    pub fn colour(&self) -> Colour {
        self.choice
    }

    /// A line of results on stdout.
    pub fn line(&mut self, text: impl Display) -> Result<(), CliError> {
        self.wipe();
        writeln!(self.out, "{text}")?;
        Ok(())
    }

    /// One line of JSON on stdout.
    pub fn json(&mut self, value: &impl Serialize) -> Result<(), CliError> {
        let text = serde_json::to_string(value)
            .map_err(|error| CliError::new(ErrorKind::Internal, format!("failed to write JSON: {error}")))?;
        self.line(text)
    }

    /// Bytes as they are, on stdout.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        self.wipe();
        self.out.write_all(bytes)?;
        self.out.flush()?;
        Ok(())
    }

    /// Something to know, on stderr; not with `--quiet`.
    pub fn notice(&mut self, text: impl Display) {
        if !self.quiet {
            self.on_err(&plain(&text.to_string()));
        }
    }

    /// Something to look into, on stderr; not with `--quiet`.
    pub fn warn(&mut self, text: impl Display) {
        if !self.quiet {
            let word = paint(self.err_colour, Style::Warn, "warning:");
            self.on_err(&format!("{word} {}", plain(&text.to_string())));
        }
    }

    /// An error with its hints on stderr, as text or one line of JSON. A closed stdout is none.
    pub fn error(&mut self, error: &CliError, json: bool) {
        if error.kind == ErrorKind::BrokenPipe {
            return;
        }
        if json {
            return self.on_err(&error.to_json());
        }
        let word = paint(self.err_colour, Style::Bad, "error:");
        let mut text = format!("{word} {}", plain(&error.message));
        if !error.hints.is_empty() {
            text.push('\n');
        }
        let word = paint(self.err_colour, Style::Good, "hint:");
        for hint in &error.hints {
            text.push_str(&format!("\n{word} {}", plain(hint)));
        }
        self.on_err(&text);
    }

    /// Shows what is going on, in place of what was shown before; only when stderr is a terminal.
    pub fn progress(&mut self, text: impl Display) {
        if self.progress && !self.quiet {
            let text = plain(&text.to_string()).replace('\n', " ");
            // Back to the start of the line, and clear it.
            self.stderr(format!("\r\x1b[2K{text}").as_bytes());
            self.progress_shown = true;
        }
    }

    /// `text` in the style, where stdout has colours.
    pub fn styled<'a>(&self, style: Style, text: &'a str) -> Cow<'a, str> {
        paint(self.out_colour, style, text)
    }

    fn wipe(&mut self) {
        if std::mem::take(&mut self.progress_shown) {
            self.stderr(b"\r\x1b[2K");
        }
    }

    fn on_err(&mut self, text: &str) {
        self.wipe();
        self.stderr(format!("{text}\n").as_bytes());
    }

    /// A closed stderr must not end the program: there is nobody to tell.
    fn stderr(&mut self, bytes: &[u8]) {
        drop(self.err.write_all(bytes).and_then(|()| self.err.flush()));
    }
}

/// `text` without what could command a terminal: control characters other than newline and tab are shown as
/// `\u{1b}`. Reasons, paths and agents' words come from outside.
pub fn plain(text: &str) -> Cow<'_, str> {
    let commands = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if !text.contains(commands) {
        return Cow::Borrowed(text);
    }
    text.chars().map(|c| if commands(c) { c.escape_unicode().to_string() } else { c.to_string() }).collect()
}

/// `text` in the style, or as it is.
pub(super) fn paint(colours: bool, style: Style, text: &str) -> Cow<'_, str> {
    let code = match style {
        Style::Bold => "1",
        Style::Dim => "2",
        Style::Good => "32",
        Style::Warn => "33",
        Style::Bad => "31",
    };
    if colours { Cow::Owned(format!("\x1b[{code}m{text}\x1b[0m")) } else { Cow::Borrowed(text) }
}

#[cfg(test)]
pub use captured::Captured;

#[cfg(test)]
mod captured {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// What was printed.
    #[derive(Clone, Default)]
    pub struct Captured(Buffer, Buffer);

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Captured {
        /// On stdout.
        pub fn out(&self) -> String {
            String::from_utf8(self.0.0.lock().unwrap().clone()).unwrap()
        }

        /// On stderr.
        pub fn err(&self) -> String {
            String::from_utf8(self.1.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Output {
        /// An output for tests, without colours and progress.
        pub fn captured() -> (Output, Captured) {
            let captured = Captured::default();
            let output = Output {
                out: Box::new(captured.0.clone()),
                err: Box::new(captured.1.clone()),
                choice: Colour::Never,
                out_colour: false,
                err_colour: false,
                quiet: false,
                out_terminal: false,
                progress: false,
                progress_shown: false,
            };
            (output, captured)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    #[test]
    fn colours_only_where_they_are_wanted() {
        let with =
            |name: &str, value: &str| Environment::from_iter([(OsString::from(name), OsString::from(value))]);
        let none = Environment::default();
        assert!(Colour::Auto.decide(&none, true));
        assert!(!Colour::Auto.decide(&none, false));
        assert!(!Colour::Auto.decide(&with("NO_COLOR", "1"), true));
        assert!(Colour::Auto.decide(&with("NO_COLOR", ""), true), "an empty one counts as not set");
        assert!(!Colour::Auto.decide(&with("TERM", "dumb"), true));
        assert!(Colour::Always.decide(&with("NO_COLOR", "1"), false));
        assert!(!Colour::Never.decide(&none, true));
    }

    #[test]
    fn the_choice_is_found_before_parsing() {
        let typed = |line: &str| {
            Colour::typed(&shlex::split(line).unwrap().iter().map(OsString::from).collect::<Vec<_>>())
        };
        assert_eq!(typed("longhaul run --color never"), Colour::Never);
        assert_eq!(typed("longhaul --color=always run"), Colour::Always);
        assert_eq!(typed("longhaul run -- --color never"), Colour::Auto);
        assert_eq!(typed("longhaul --color"), Colour::Auto);
    }

    #[test]
    fn errors_have_a_blank_line_before_hints() {
        let (mut output, captured) = Output::captured();
        output.error(&CliError::usage("no \x1b[2Jway").hinted("another"), false);
        assert_eq!(captured.err(), "error: no \\u{1b}[2Jway\n\nhint: another\n");
        assert_eq!(captured.out(), "");
    }

    #[test]
    fn progress_is_wiped_before_other_lines() {
        let (mut output, captured) = Output::captured();
        output.progress = true;
        output.progress("1 of 2");
        output.notice("done");
        output.set_quiet(true);
        output.notice("unheard");
        output.progress("unseen");
        assert_eq!(captured.err(), "\r\x1b[2K1 of 2\r\x1b[2Kdone\n");
    }

    #[test]
    fn a_closed_stdout_is_told_apart() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (mut output, _captured) = Output::captured();
        output.out = Box::new(Closed);
        let error = output.line("x").unwrap_err();
        assert_eq!(error.kind, ErrorKind::BrokenPipe);
    }
}
