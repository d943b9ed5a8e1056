//! Bytes to text: BOMs, UTF-16, invalid UTF-8, NUL characters and foreign line ends. In place where that can be.

use super::SpecWarning;

/// Text with `\n` line ends, without BOM and NUL, and what was wrong with it.
pub(super) fn decode(bytes: Vec<u8>) -> (String, Vec<SpecWarning>) {
    let mut warnings = Vec::new();
    let (mut bytes, utf16_fault) = match bytes.as_slice() {
        [0xFF, 0xFE, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xFE, 0xFF, rest @ ..] => utf16(rest, u16::from_be_bytes),
        _ => (bytes, None),
    };
    if bytes.starts_with(&[0xEF, 0xBB, 0xBF]) {
        bytes.drain(..3);
    }
    unify_line_ends(&mut bytes);
    if let Some(fault) = utf16_fault {
        warnings.push(invalid(&bytes, fault, "not valid UTF-16".into()));
    }
    if let Some(first) = bytes.iter().position(|b| *b == 0) {
        warnings.push(invalid(&bytes, first, "NUL character, read as a space".into()));
        bytes.iter_mut().filter(|b| **b == 0).for_each(|b| *b = b' ');
    }
    let text = String::from_utf8(bytes).unwrap_or_else(|error| {
        let first = error.utf8_error().valid_up_to();
        warnings.push(invalid(error.as_bytes(), first, "not valid UTF-8".into()));
        String::from_utf8_lossy(error.as_bytes()).into_owned()
    });
    (text, warnings)
}

/// Decodes UTF-16 to UTF-8; with the byte offset, in the result, of the first fault.
fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> (Vec<u8>, Option<usize>) {
    let (pairs, odd) = bytes.as_chunks::<2>();
    let mut text = String::with_capacity(pairs.len());
    let mut fault = None;
    for decoded in char::decode_utf16(pairs.iter().map(|pair| unit(*pair))) {
        text.push(decoded.unwrap_or_else(|_| {
            fault.get_or_insert(text.len());
            char::REPLACEMENT_CHARACTER
        }));
    }
    if !odd.is_empty() {
        fault.get_or_insert(text.len());
    }
    (text.into_bytes(), fault)
}

/// `\r\n` and a lone `\r` become `\n`.
fn unify_line_ends(bytes: &mut Vec<u8>) {
    let mut after_return = false;
    bytes.retain_mut(|byte| {
        let keep = !(after_return && *byte == b'\n');
        after_return = *byte == b'\r';
        if after_return {
            *byte = b'\n';
        }
        keep
    });
}

fn invalid(bytes: &[u8], at: usize, message: String) -> SpecWarning {
    let (line, column) = position(bytes, at);
    SpecWarning::Invalid { line, column, message }
}

/// Line and column (in characters) of the byte `at`, both from 1.
pub(super) fn position(bytes: &[u8], at: usize) -> (usize, usize) {
    let before = bytes.get(..at).unwrap_or(bytes);
    let start = before.iter().rposition(|b| *b == b'\n').map_or(0, |newline| newline + 1);
    let line = before.iter().filter(|b| **b == b'\n').count() + 1;
    let column = String::from_utf8_lossy(before.get(start..).unwrap_or_default()).chars().count() + 1;
    (line, column)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(bytes: &[u8]) -> String {
        decode(bytes.to_vec()).0
    }

    #[test]
    fn byte_order_marks_are_taken_off() {
        assert_eq!(decode(b"\xEF\xBB\xBFa\xC3\xA9".to_vec()), ("aé".into(), vec![]));
        assert_eq!(decode(b"\xFF\xFEa\0\xE9\0\x3D\xD8\x00\xDE".to_vec()), ("aé😀".into(), vec![]));
        assert_eq!(decode(b"\xFE\xFF\0a\0\xE9\xD8\x3D\xDE\x00".to_vec()), ("aé😀".into(), vec![]));
        for only_bom in [&b"\xEF\xBB\xBF"[..], b"\xFF\xFE", b"\xFE\xFF", b""] {
            assert_eq!(decode(only_bom.to_vec()), (String::new(), vec![]));
        }
    }

    #[test]
    fn line_ends_are_unified() {
        assert_eq!(text(b"a\r\nb\rc\n\rd\r\n\r\n"), "a\nb\nc\n\nd\n\n");
        assert_eq!(text(b"\xFF\xFEa\0\r\0\n\0"), "a\n");
    }

    #[test]
    fn what_is_no_text_is_told_with_its_place() {
        let warning =
            |line, column, message: &str| SpecWarning::Invalid { line, column, message: message.into() };
        let table = [
            (&b"ok\n\xC3\xA9x\xFFy"[..], "ok\néx\u{FFFD}y", warning(2, 3, "not valid UTF-8")),
            (b"a\r\n\0b\0", "a\n b ", warning(2, 1, "NUL character, read as a space")),
            (b"\xFF\xFEa\0\x00\xD8b\0", "a\u{FFFD}b", warning(1, 2, "not valid UTF-16")),
            (b"\xFF\xFEa\0b", "a", warning(1, 2, "not valid UTF-16")),
        ];
        for (bytes, text, found) in table {
            assert_eq!(decode(bytes.to_vec()), (text.into(), vec![found]), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_become_clean_text(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let (text, _) = decode(bytes);
            prop_assert!(!text.contains(['\0', '\r']));
        }

        #[test]
        fn clean_text_is_not_touched(text in "[^\0\r\u{FEFF}]{0,80}") {
            prop_assert_eq!(decode(text.clone().into_bytes()), (text, vec![]));
        }
    }
}
