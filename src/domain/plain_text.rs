//! Bytes that a person wrote with any program, as text.

/// Text without a byte order mark; what is no text is replaced by U+FFFD.
///
/// UTF-8, or UTF-16 with its mark: what PowerShell's `>` writes. NUL, which no argument of a program can hold, is
/// replaced as well.
pub fn decode(bytes: &[u8]) -> String {
    let text = match bytes {
        [0xFF, 0xFE, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xFE, 0xFF, rest @ ..] => utf16(rest, u16::from_be_bytes),
        [0xEF, 0xBB, 0xBF, rest @ ..] => String::from_utf8_lossy(rest).into_owned(),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    };
    if text.contains('\0') { text.replace('\0', "\u{FFFD}") } else { text }
}

/// The beginning of `text`, at most `max` bytes, cut between characters.
pub fn clip(text: &str, max: usize) -> &str {
    text.get(..text.floor_char_boundary(max)).unwrap_or_default()
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> String {
    let (pairs, odd) = bytes.as_chunks::<2>();
    let units = pairs.iter().map(|pair| unit(*pair));
    let mut text: String =
        char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    if !odd.is_empty() {
        text.push(char::REPLACEMENT_CHARACTER);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_editors_write() {
        assert_eq!(decode(b"plain\n"), "plain\n");
        assert_eq!(decode(b"\xEF\xBB\xBFmark"), "mark");
        assert_eq!(decode(b"\xFF\xFEn\0o\0w\0"), "now");
        assert_eq!(decode(b"\xFE\xFF\0n\0o\0w"), "now");
        assert_eq!(decode(b"\xFF\xFEn\0o"), "n\u{FFFD}");
        assert_eq!(decode(b"caf\xE9"), "caf\u{FFFD}");
        assert_eq!(decode(b"a\0b"), "a\u{FFFD}b");
    }

    proptest! {
        #[test]
        fn clips_between_characters(text in "\\PC*", max in 0usize..40) {
            let clipped = clip(&text, max);
            prop_assert!(clipped.len() <= max && text.starts_with(clipped));
            prop_assert!(max - clipped.len() < 4 || clipped.len() == text.len());
        }

        #[test]
        fn any_bytes_are_text_without_nul(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(!decode(&bytes).contains('\0'));
        }
    }
}
