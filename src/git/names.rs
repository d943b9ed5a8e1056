//! Names that git refuses to take.

use super::listing::Kind;

/// Names that NTFS takes for `.git` (`core.protectNTFS`, on by default everywhere), and a `.gitmodules` that is a
/// link.
pub(super) fn is_forbidden(name: &[u8], kind: Kind) -> bool {
    if kind == Kind::Link && name.eq_ignore_ascii_case(b".gitmodules") {
        return true;
    }
    let rest = match name {
        [b'.', rest @ ..] if rest.get(..3).is_some_and(|r| r.eq_ignore_ascii_case(b"git")) => &rest[3..],
        _ if name.get(..5).is_some_and(|n| n.eq_ignore_ascii_case(b"git~1")) => &name[5..],
        _ => return false,
    };
    let end = rest.iter().position(|b| !matches!(b, b' ' | b'.')).unwrap_or(rest.len());
    matches!(rest.get(end), None | Some(b':' | b'\\'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_the_names_that_git_refuses() {
        for name in [".git", ".GIT", ".git ", ".Git. .", "git~1", "GIT~1.", ".git:x", ".git\\x"] {
            assert!(is_forbidden(name.as_bytes(), Kind::File), "{name}");
        }
        for name in [".gitignore", ".github", "git", "git~2", ".git x", "a.git"] {
            assert!(!is_forbidden(name.as_bytes(), Kind::File), "{name}");
        }
    }
}
