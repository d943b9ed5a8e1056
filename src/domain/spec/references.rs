//! Which local files a text refers to: Markdown links and bare paths.

use std::borrow::Cow;

use super::fence::Fences;

/// References that are taken from one text; more are left out.
pub const MAX_REFERENCES: usize = 200;

/// Longer paths than this are none.
const MAX_PATH: usize = 1024;

/// Files that a person writes for a reader: these may also be named without `./`.
const DOCUMENTS: [&str; 12] =
    ["md", "markdown", "mdx", "txt", "rst", "adoc", "org", "json", "yaml", "yml", "toml", "pdf"];

/// Pictures, sound and the like: of no use to an agent that reads text.
const MEDIA: [&str; 22] = [
    "png", "jpg", "jpeg", "gif", "webp", "svg", "ico", "bmp", "tif", "tiff", "avif", "mp4", "mov", "webm",
    "avi", "mkv", "mp3", "wav", "ogg", "woff", "woff2", "ttf",
];

/// The local paths that `text` refers to, as written (without fragment and quoting), each once, in order; at most
/// [`MAX_REFERENCES`]. Links may stand anywhere outside code blocks; bare paths count when they begin with `./`,
/// `../` or `@`, or name a document in a folder (`docs/api.md`).
pub fn local_references(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut fences = Fences::default();
    for line in text.lines() {
        if fences.step(line) || line.len() > MAX_PATH * 64 || !may_refer(line) {
            continue;
        }
        let links = line.match_indices("](").filter_map(|(at, mark)| link(line.get(at + mark.len()..)?));
        let definition = definition(line).into_iter();
        let plain = without_enclosed(line);
        let bare =
            plain.split(|c: char| c.is_whitespace() || "()[]<>\"'`,;|*".contains(c)).filter_map(bare_path);
        for path in links.chain(definition).chain(bare) {
            if !found.contains(&path) {
                found.push(path);
            }
            if found.len() >= MAX_REFERENCES {
                return found;
            }
        }
    }
    found
}

/// Without one of these there is neither a link nor a path: most lines of a long text have none.
fn may_refer(line: &str) -> bool {
    memchr::memchr3(b'/', b'@', b']', line.as_bytes()).is_some()
}

/// The target of an inline link, from behind its opening bracket.
fn link(rest: &str) -> Option<String> {
    let target = match rest.strip_prefix('<') {
        Some(inner) => inner.split_once('>')?.0,
        // A title may follow: `(a.md "Title")`.
        None => rest.split_once(')')?.0.split_whitespace().next()?,
    };
    local(target)
}

/// The target of a reference definition: `[name]: ./a.md "Title"`.
fn definition(line: &str) -> Option<String> {
    let (_, rest) = line.trim_start().strip_prefix('[')?.split_once("]:")?;
    let target = rest.trim_start();
    local(match target.strip_prefix('<') {
        Some(inner) => inner.split_once('>')?.0,
        None => target.split_whitespace().next()?,
    })
}

/// The line without link targets in angle brackets: with their spaces they would fall apart into several paths.
fn without_enclosed(line: &str) -> Cow<'_, str> {
    if !line.contains("(<") && !line.contains(": <") {
        return Cow::Borrowed(line);
    }
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('<') {
        let enclosed = before.ends_with(['(', ' ']).then(|| after.split_once('>')).flatten();
        out.push_str(before);
        out.push(' ');
        rest = enclosed.map_or(after, |(_, after)| after);
    }
    out.push_str(rest);
    Cow::Owned(out)
}

fn bare_path(token: &str) -> Option<String> {
    let token = token.trim_end_matches(['.', ':', '!', '?']);
    let named = token.strip_prefix('@').filter(|path| path.contains(['/', '.']));
    let relative = token.starts_with("./") || token.starts_with("../");
    let document = token.contains('/') && has_extension(token, &DOCUMENTS);
    match named {
        // `@docs/a.md` imports a file; `@scope/package` and `@name` do not.
        Some(path) if has_extension(path, &DOCUMENTS) => local(path),
        _ if relative || document => local(token),
        _ => None,
    }
}

/// A path without fragment, query and line number; `None` for an address, an anchor, a picture.
fn local(target: &str) -> Option<String> {
    let path = target.split(['#', '?']).next()?;
    let path = match path.rsplit_once(':') {
        Some((file, line)) if !line.is_empty() && line.bytes().all(|b| b.is_ascii_digit()) => file,
        Some(_) => return None,
        None => path,
    };
    let path = decode_percent(path);
    let names_file = path.rsplit('/').next().is_some_and(|name| !matches!(name, "" | "." | ".."));
    let odd = path.len() > MAX_PATH || path.contains(['\0', '\n', '{', '$']) || path.starts_with("//");
    (names_file && !odd && !has_extension(&path, &MEDIA)).then_some(path)
}

fn has_extension(path: &str, extensions: &[&str]) -> bool {
    path.rsplit_once('.').is_some_and(|(stem, extension)| {
        !stem.is_empty() && extensions.iter().any(|e| extension.eq_ignore_ascii_case(e))
    })
}

/// Undoes `%20` and the like; what is no valid escape, or no UTF-8 afterwards, stays as it is.
fn decode_percent(path: &str) -> String {
    let bytes = path.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let hex = (*byte == b'%').then(|| path.get(at + 1..at + 3)).flatten();
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(decoded) => {
                out.push(decoded);
                at += 3;
            }
            None => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ec_011_links_and_bare_paths_are_found() {
        let table = [
            ("See [the plan](./sub.md).", "./sub.md"),
            ("[a](docs/a.md \"Title\")", "docs/a.md"),
            ("[a](<./my file.md>)", "./my file.md"),
            ("[a](./my%20file.md#part)", "./my file.md"),
            ("[a]: ../other/b.txt", "../other/b.txt"),
            ("Details are in ./sub.md.", "./sub.md"),
            ("Details: `./sub.md`, and more", "./sub.md"),
            ("See ./src/main.rs:12 for it", "./src/main.rs"),
            ("Read docs/api.md first", "docs/api.md"),
            ("@docs/rules.md", "docs/rules.md"),
            ("- (../up.md)", "../up.md"),
            ("[up](/etc/passwd)", "/etc/passwd"),
        ];
        for (text, path) in table {
            assert_eq!(local_references(text), [path], "{text}");
        }
    }

    #[test]
    fn what_is_no_local_file_is_left_out() {
        let table = [
            "[a](https://example.com/a.md)",
            "https://example.com/docs/a.md",
            "[a](mailto:a@example.com)",
            "[a](#anchor)",
            "![logo](./logo.png) and ./movie.mp4",
            "@scope/package and @someone",
            "and/or, I/O, 24/7",
            "cargo test src/main.rs",
            "```sh\n./configure && ./run.md\n```",
            "./ and ../ and .",
            "[a](./${name}.md)",
            "//server/share.md",
        ];
        for text in table {
            assert_eq!(local_references(text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn each_is_listed_once_and_the_list_is_bounded() {
        assert_eq!(local_references("./a.md [a](./a.md)\n./b.md ./a.md"), ["./a.md", "./b.md"]);
        let many: String = (0..1000).map(|n| format!("./{n}.md\n")).collect();
        assert_eq!(local_references(&many).len(), MAX_REFERENCES);
    }

    proptest! {
        #[test]
        fn any_text_can_be_read(text in "(\\PC|\\]\\(|[%./@#<>:\n]){0,80}") {
            local_references(&text);
        }
    }
}
