//! Shows a run while it happens: to programs on stdout, or to a person on stderr. A reader that goes away is no
//! reason to end a run.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::line::{Lines, Stamp};
use crate::actors::context::Show;
use crate::cli::output::Output;
use crate::clock::local_zone;
use crate::domain::event::{Body, Event, Level};

/// Events as they stand in the journal, on stdout; what went wrong in words on stderr, too.
#[derive(Debug)]
pub struct JsonLines {
    warnings: Words,
    /// Nobody reads stdout any more.
    closed: AtomicBool,
}

/// Events in words, on stderr.
#[derive(Debug)]
pub struct Words {
    lines: Lines,
    /// Only what went wrong.
    quiet: bool,
    closed: AtomicBool,
}

// === impl JsonLines ===

impl JsonLines {
    /// On the process's stdout and stderr.
    pub fn new(output: &Output) -> Self {
        let warnings = Words { quiet: true, ..Words::new(output) };
        JsonLines { warnings, closed: AtomicBool::new(false) }
    }
}

impl Show for JsonLines {
    fn show(&self, event: &Event, line: &str) {
        write(&mut io::stdout().lock(), line, &self.closed);
        self.warnings.show(event, line);
    }
}

// === impl Words ===

impl Words {
    /// On the process's stderr, with the colours and the quiet of `output`.
    pub fn new(output: &Output) -> Self {
        let lines = Lines { zone: local_zone(), stamp: Stamp::Time, colours: output.err_has_colours() };
        Words { lines, quiet: output.is_quiet(), closed: AtomicBool::new(false) }
    }

    fn wanted(&self, event: &Event) -> bool {
        match event.level {
            Level::Debug => false,
            Level::Info if self.quiet => false,
            // What comes next says that it is over.
            Level::Info => !matches!(event.body, Body::WaitEnded { .. }),
            Level::Warn | Level::Error => true,
        }
    }
}

impl Show for Words {
    fn show(&self, event: &Event, _: &str) {
        if self.wanted(event) {
            write(&mut io::stderr().lock(), &self.lines.line(event), &self.closed);
        }
    }
}

/// One line in one piece, unless an earlier one found nobody.
fn write(to: &mut dyn Write, line: &str, closed: &AtomicBool) {
    if closed.load(Relaxed) {
        return;
    }
    let written = to.write_all(format!("{line}\n").as_bytes()).and_then(|()| to.flush());
    if written.is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
        closed.store(true, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Closed(usize);

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            self.0 += 1;
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_has_gone_is_not_written_to_again() {
        let (mut to, closed) = (Closed(0), AtomicBool::new(false));
        write(&mut to, "one", &closed);
        write(&mut to, "two", &closed);
        assert_eq!(to.0, 1);
    }
}
