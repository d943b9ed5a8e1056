//! What a message says, from what its file holds.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::domain::plain_text::{clip, decode};

/// Longest message that is taken in whole, in bytes. It stands in a prompt and in the journal.
pub const MAX_TEXT: u64 = 1024 * 1024;

/// How much of a longer one is taken in, in bytes.
const EXCERPT: usize = 64 * 1024;

/// Reads a message. None: it holds nothing but white space. `kept` is where the whole file will be found.
pub(super) fn read(file: &File, kept: &Path) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    file.take(MAX_TEXT + 1).read_to_end(&mut bytes)?;
    let too_long = bytes.len() as u64 > MAX_TEXT;
    let text = decode(&bytes);
    let text = if too_long { clip(&text, EXCERPT) } else { &text };
    if text.trim().is_empty() && !too_long {
        return Ok(None);
    }
    let lossy = text.contains(char::REPLACEMENT_CHARACTER);
    let mut text = text.trim_end().to_owned();
    if too_long {
        let size = file.metadata()?.len();
        text.push_str(&format!(
            "\n\n[This is the beginning of a message of {size} bytes. All of it is in {}]",
            kept.display()
        ));
    }
    if lossy {
        text.push_str(&format!(
            "\n\n[Bytes of this message that are no text are shown as \u{FFFD}. The original is {}]",
            kept.display()
        ));
    }
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(content: &[u8]) -> Option<String> {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, content).unwrap();
        io::Seek::rewind(&mut file).unwrap();
        read(&file, Path::new("/p/done/x.md")).unwrap()
    }

    #[test]
    fn words_and_no_words() {
        assert_eq!(message(b"  use tabs\n\n").as_deref(), Some("  use tabs"));
        assert_eq!(message(b""), None);
        assert_eq!(message(b" \r\n\t\n"), None);
        assert_eq!(message(b"\xFF\xFEh\0i\0").as_deref(), Some("hi"));
    }

    #[test]
    fn bytes_that_are_no_text_are_told() {
        let text = message(b"caf\xE9").unwrap();
        assert!(text.starts_with("caf\u{FFFD}\n\n[Bytes") && text.ends_with("/p/done/x.md]"), "{text}");
    }

    #[test]
    fn a_long_one_is_an_excerpt_that_names_the_whole() {
        let whole = "é".repeat(512 * 1024);
        assert_eq!(message(whole.as_bytes()).unwrap(), whole);
        let text = message((whole + "x").as_bytes()).unwrap();
        assert!(text.len() < EXCERPT + 200 && text.contains("1048577 bytes"), "{}", text.len());
        assert!(!text.contains('\u{FFFD}'), "cut between characters");
    }
}
