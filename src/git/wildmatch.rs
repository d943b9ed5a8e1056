//! Shell patterns as git matches them in ignore and attribute files (gitignore(5), "PATTERN FORMAT").

/// How far a failed match reaches: it lets stars give up early, so that no pattern takes exponential time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Match,
    /// Not from here; an enclosing star may try further on.
    NoMatch,
    /// The text is used up: no star can help.
    Exhausted,
    /// A single star met a slash: only an enclosing `**` can help.
    Slash,
}

/// Whether `text` matches `pattern`. With `pathname` a `/` is only matched by a `/` or by `**`.
pub(super) fn matches(pattern: &[u8], text: &[u8], pathname: bool) -> bool {
    walk(pattern, text, pathname) == Verdict::Match
}

fn walk(pattern: &[u8], text: &[u8], pathname: bool) -> Verdict {
    let (mut p, mut t) = (0, 0);
    while let Some(&wanted) = pattern.get(p) {
        let Some(&found) = text.get(t).or((wanted == b'*').then_some(&0)) else { return Verdict::Exhausted };
        match wanted {
            b'*' => match star(pattern, p, &text[t..], pathname) {
                // One star before a slash takes exactly the rest of this path component.
                Star::Component { next, skipped } => {
                    p = next;
                    t += skipped;
                }
                Star::Decided(verdict) => return verdict,
            },
            b'?' if pathname && found == b'/' => return Verdict::NoMatch,
            b'?' => {}
            b'[' => match class(&pattern[p..], found) {
                None => return Verdict::Exhausted,
                Some((_, false)) => return Verdict::NoMatch,
                Some(_) if pathname && found == b'/' => return Verdict::NoMatch,
                Some((length, true)) => p += length - 1,
            },
            b'\\' => {
                p += 1;
                if pattern.get(p) != Some(&found) {
                    return Verdict::NoMatch;
                }
            }
            _ if wanted != found => return Verdict::NoMatch,
            _ => {}
        }
        p += 1;
        t += 1;
    }
    if t == text.len() { Verdict::Match } else { Verdict::NoMatch }
}

enum Star {
    Decided(Verdict),
    /// Go on with the slash at `pattern[next]`, which matches the one `skipped` bytes further in the text.
    Component {
        next: usize,
        skipped: usize,
    },
}

/// Matches the run of stars at `pattern[at]` and everything after it.
fn star(pattern: &[u8], at: usize, text: &[u8], pathname: bool) -> Star {
    let stars = pattern[at..].iter().take_while(|&&b| b == b'*').count();
    let rest = &pattern[at + stars..];
    let opens = at == 0 || pattern[at - 1] == b'/';
    let closes = rest.is_empty() || rest[0] == b'/' || rest.starts_with(b"\\/");
    let crosses = if !pathname {
        true
    } else if stars > 1 && opens && closes {
        // `**/` also matches no folder at all.
        if rest.first() == Some(&b'/') && walk(&rest[1..], text, pathname) == Verdict::Match {
            return Star::Decided(Verdict::Match);
        }
        true
    } else {
        false
    };
    let slash = text.iter().position(|&b| b == b'/');
    if rest.is_empty() {
        let blocked = !crosses && slash.is_some();
        return Star::Decided(if blocked { Verdict::Slash } else { Verdict::Match });
    }
    if !crosses && rest[0] == b'/' {
        return match slash {
            Some(skipped) => Star::Component { next: at + stars, skipped },
            None => Star::Decided(Verdict::Exhausted),
        };
    }
    for (from, &found) in text.iter().enumerate() {
        match walk(rest, &text[from..], pathname) {
            Verdict::NoMatch if !crosses && found == b'/' => return Star::Decided(Verdict::Slash),
            Verdict::NoMatch => {}
            Verdict::Slash if crosses => {}
            verdict => return Star::Decided(verdict),
        }
    }
    Star::Decided(Verdict::Exhausted)
}

/// Matches one byte against the class that `pattern` starts with. `None`: the class never ends, or names an
/// unknown character class. Else the class's length with its brackets, and whether the byte is in it.
fn class(pattern: &[u8], byte: u8) -> Option<(usize, bool)> {
    let negated = matches!(pattern.get(1), Some(b'!' | b'^'));
    let first = if negated { 2 } else { 1 };
    let mut at = first;
    let mut found = false;
    let mut previous: Option<u8> = None;
    loop {
        match *pattern.get(at)? {
            b']' if at > first => return Some((at + 1, found != negated)),
            b'\\' => {
                at += 1;
                let literal = *pattern.get(at)?;
                found |= literal == byte;
                previous = Some(literal);
            }
            b'-' if previous.is_some() && pattern.get(at + 1).is_some_and(|&b| b != b']') => {
                at += 1;
                if pattern[at] == b'\\' {
                    at += 1;
                }
                let last = *pattern.get(at)?;
                found |= previous.is_some_and(|from| (from..=last).contains(&byte));
                previous = None;
            }
            b'[' if pattern.get(at + 1) == Some(&b':') => {
                let end = at + 2 + pattern[at + 2..].iter().position(|&b| b == b']')?;
                if end - at >= 3 && pattern[end - 1] == b':' {
                    found |= in_named_class(&pattern[at + 2..end - 1], byte)?;
                    at = end;
                } else {
                    // Not a named class after all: a plain `[`.
                    found |= byte == b'[';
                }
                previous = None;
            }
            literal => {
                found |= literal == byte;
                previous = Some(literal);
            }
        }
        at += 1;
    }
}

fn in_named_class(name: &[u8], byte: u8) -> Option<bool> {
    Some(match name {
        b"alnum" => byte.is_ascii_alphanumeric(),
        b"alpha" => byte.is_ascii_alphabetic(),
        b"blank" => matches!(byte, b' ' | b'\t'),
        b"cntrl" => byte.is_ascii_control(),
        b"digit" => byte.is_ascii_digit(),
        b"graph" => byte.is_ascii_graphic(),
        b"lower" => byte.is_ascii_lowercase(),
        b"print" => byte.is_ascii_graphic() || byte == b' ',
        b"punct" => byte.is_ascii_punctuation(),
        b"space" => byte.is_ascii_whitespace() || byte == 0x0b,
        b"upper" => byte.is_ascii_uppercase(),
        b"xdigit" => byte.is_ascii_hexdigit(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn follows_gits_rules_for_paths() {
        // pattern, text, matches
        let table: &[(&str, &str, bool)] = &[
            ("foo", "foo", true),
            ("f?o", "f/o", false),
            ("*", "a/b", false),
            ("**", "a/b", true),
            ("**/foo", "foo", true),
            ("**/foo", "a/b/foo", true),
            ("a/**/b", "a/b", true),
            ("a/**/b", "a/x/y/b", true),
            ("a/**", "a/x/y", true),
            ("a**/b", "ax/y/b", false),
            ("*/b", "a/b", true),
            ("*/b", "a/x/b", false),
            ("a*c*e", "abcde", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[^a-c]x", "dx", true),
            ("[]]", "]", true),
            ("[]-a]", "^", true),
            ("[a-]", "-", true),
            ("[\\]]", "]", true),
            ("[[:digit:]_]", "7", true),
            ("[[:nonsense:]]", "7", false),
            ("[/]", "/", false),
            ("[a", "a", false),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("a\\", "a\\", false),
            ("", "", true),
            ("", "a", false),
        ];
        for &(pattern, text, expected) in table {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes(), true), expected, "{pattern} on {text}");
        }
        assert!(matches(b"*", b"a/b", false));
    }

    #[test]
    fn gives_up_early_on_patterns_with_many_stars() {
        let pattern = "*a".repeat(40) + "b";
        assert!(!matches(pattern.as_bytes(), "a".repeat(400).as_bytes(), true));
        assert!(!matches(pattern.as_bytes(), "a".repeat(400).as_bytes(), false));
    }
}
