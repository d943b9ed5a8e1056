//! TEMP
use crate::actors::context::Show;
use crate::domain::event::Event;
use std::io::Write;
/// T
#[derive(Debug)] pub struct JsonLines;
impl JsonLines { /// T
 pub fn new() -> Self { JsonLines } }
impl Show for JsonLines { fn show(&self, _: &Event, line: &str) { let mut o = std::io::stdout().lock(); let _ = writeln!(o, "{line}"); let _ = o.flush(); } }
/// T
#[derive(Debug)] pub struct Words;
impl Words { /// T
 pub fn new(_: &crate::cli::output::Output) -> Self { Words } }
impl Show for Words { fn show(&self, e: &Event, line: &str) { eprintln!("{} {}", e.body.name(), line); } }
