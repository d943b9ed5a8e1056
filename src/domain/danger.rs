//! Recognises commands that destroy a system: deleting `/` or the home folder, overwriting a device, making a file
//! system, fork bombs, power-off.
//!
//! It reads text that may be prose, so it must not cry wolf: `rm -rf ./target` and "shutdown handling" are fine.
//! It undoes the shell's quoting, but it is a warning light and no sandbox: code can always hide what it does.

use serde::{Deserialize, Serialize};

mod shell;
mod target;

use shell::{Command, Separator};

/// What a command would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Danger {
    /// Deletes, or takes the permissions from, `/`, the home folder or a folder of the system.
    DeletesSystem,
    /// Overwrites a block device.
    OverwritesDevice,
    /// Makes a file system: what was there is lost.
    MakesFilesystem,
    /// Starts processes until the host stands still.
    ForkBomb,
    /// Turns the host off or starts it anew.
    PowersOff,
}

/// How surely a text is meant for a shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Context {
    /// A sentence.
    Prose,
    /// A code span within a sentence.
    Span,
    /// Shell input: a code block, a line after a prompt, a tool's command.
    Shell,
}

/// Words without which a text is harmless, besides redirections to a device and pipes into the background.
const NAMES: [&str; 21] = [
    "rm",
    "dd",
    "mv",
    "cp",
    "tee",
    "find",
    "chmod",
    "chown",
    "mkfs",
    "mke2fs",
    "mkswap",
    "wipefs",
    "shred",
    "blkdiscard",
    "shutdown",
    "reboot",
    "poweroff",
    "halt",
    "systemctl",
    "init",
    "telinit",
];

/// Words that run the command after them.
const RUNNERS: [&str; 10] =
    ["sudo", "doas", "command", "exec", "nohup", "time", "env", "busybox", "builtin", "then"];

/// Names that are looked at within one command: a line of nothing but names must not cost a look at each pair.
const MAX_NAMES: usize = 32;

/// A quoted command line may hold another one; deeper nesting than this is not looked at.
const MAX_DEPTH: usize = 4;

/// What the text would do if a shell got it; several lines are read as one script.
pub fn find(text: &str, context: Context) -> Option<Danger> {
    if !may_be_dangerous(text) {
        return None;
    }
    match context {
        // Emphasis and code spans are no part of what they enclose.
        // In a JSON string a line ends with `\n`.
        Context::Prose => {
            let text = text.replace("\\n", "\n").replace('`', " ").replace("**", " ");
            look(&text, context, 0)
        }
        Context::Span | Context::Shell => look(text, context, 0),
    }
}

/// A cheap look that lets almost every line of a long text pass.
fn may_be_dangerous(text: &str) -> bool {
    let bytes = text.as_bytes();
    let has = |byte| memchr::memchr(byte, bytes).is_some();
    has(b'\\')
        || (has(b'|') && has(b'&'))
        || (has(b'>') && text.contains("/dev/"))
        || (has(b'\'') && text.contains("''"))
        || (has(b'"') && text.contains("\"\""))
        || bytes.split(|b| !b.is_ascii_alphanumeric()).any(may_be_a_name)
}

fn may_be_a_name(word: &[u8]) -> bool {
    let begins = |first: &u8| NAMES.iter().any(|name| name.as_bytes().first() == Some(first));
    word.len() > 1 && word.first().is_some_and(begins) && NAMES.iter().any(|name| name.as_bytes() == word)
}

fn look(text: &str, context: Context, depth: usize) -> Option<Danger> {
    let commands = shell::split(text, context == Context::Prose);
    let mut in_system = false;
    for (i, command) in commands.iter().enumerate() {
        if is_fork_bomb(command, commands.get(i + 1), commands.get(i + 2)) {
            return Some(Danger::ForkBomb);
        }
        if command.redirects.iter().any(|to| target::is_device(to)) {
            return Some(Danger::OverwritesDevice);
        }
        if let Some(danger) = look_at(command, context, in_system) {
            return Some(danger);
        }
        if let [cd, to] = command.words.as_slice()
            && cd == "cd"
        {
            in_system = target::is_system(to);
        }
        let nested = command.words.iter().filter(|w| depth < MAX_DEPTH && w.contains(char::is_whitespace));
        if let Some(danger) = nested.into_iter().find_map(|word| look(word, context, depth + 1)) {
            return Some(danger);
        }
    }
    None
}

/// One simple command. `in_system`: a `cd` before it went to `/` or home, so `*` is everything there.
fn look_at(command: &Command, context: Context, in_system: bool) -> Option<Danger> {
    let lost = |path: &String| {
        target::is_system(path) || (in_system && matches!(path.as_str(), "*" | "." | "./*" | ".*"))
    };
    let named = command.words.iter().enumerate().filter_map(|(i, word)| {
        let name = word.rsplit('/').next().unwrap_or(word).trim_start_matches('*');
        (NAMES.contains(&name) || is_mkfs(name)).then_some((i, name))
    });
    named.take(MAX_NAMES).find_map(|(i, name)| {
        let rest = command.words.get(i + 1..).unwrap_or_default();
        let args = arguments(rest, context);
        let has = |wanted: &str| args.iter().any(|a| a == wanted);
        let deletes = match name {
            "rm" => is_recursive(args) && args.iter().any(lost),
            "find" => {
                let removes = has("-delete") || has("rm") || has("/bin/rm");
                removes && args.first().is_some_and(lost)
            }
            "chmod" | "chown" => is_recursive(args) && args.iter().any(|a| target::is_root(a)),
            "mv" => has("/dev/null") && args.iter().any(lost),
            _ => false,
        };
        let overwrites = match name {
            "dd" => args.iter().filter_map(|a| a.strip_prefix("of=")).any(target::is_device),
            "tee" | "cp" => args.last().is_some_and(|a| target::is_device(a)),
            "wipefs" | "shred" | "blkdiscard" => args.iter().any(|a| target::is_device(a)),
            _ => false,
        };
        let makes_filesystem = is_mkfs(name) && {
            // Within a sentence only a device tells the command from its name.
            rest.iter().any(|a| context > Context::Prose || a.starts_with("/dev/"))
        };
        let caller = Caller { first: i == 0, word: i.checked_sub(1).and_then(|i| command.words.get(i)) };
        deletes
            .then_some(Danger::DeletesSystem)
            .or(overwrites.then_some(Danger::OverwritesDevice))
            .or(makes_filesystem.then_some(Danger::MakesFilesystem))
            .or(powers_off(name, args, caller, context).then_some(Danger::PowersOff))
    })
}

/// What stands before a command's name.
#[derive(Clone, Copy)]
struct Caller<'a> {
    /// Nothing does.
    first: bool,
    word: Option<&'a String>,
}

fn powers_off(name: &str, args: &[String], caller: Caller<'_>, context: Context) -> bool {
    let first = args.first().map_or("", String::as_str);
    let flag = first.len() > 1 && first.starts_with('-') && !matches!(first, "-c" | "--help" | "--version");
    let as_root = caller.word.is_some_and(|w| w == "sudo" || w == "doas");
    // Within a sentence only an option or `sudo` tells the command from the word.
    let commanded = caller.first || caller.word.is_some_and(|w| RUNNERS.contains(&w.as_str()));
    match name {
        "systemctl" => args.iter().any(|a| matches!(a.as_str(), "reboot" | "poweroff" | "halt" | "kexec")),
        "init" | "telinit" => {
            commanded && context > Context::Prose && args.len() == 1 && matches!(first, "0" | "6")
        }
        "shutdown" => {
            let when = first == "now"
                || first.starts_with('+')
                || (first.contains(':') && first.starts_with(|c: char| c.is_ascii_digit()))
                || first == "0";
            match context {
                Context::Prose => flag || (as_root && (when || args.is_empty())),
                Context::Span => commanded && (flag || when || as_root),
                Context::Shell => commanded && (flag || when || args.is_empty()),
            }
        }
        "reboot" | "poweroff" | "halt" => {
            let only_flags = args.iter().all(|a| a.starts_with('-')) && (args.is_empty() || flag);
            match context {
                Context::Prose => as_root,
                Context::Span => as_root || (commanded && flag && only_flags),
                Context::Shell => commanded && only_flags,
            }
        }
        _ => false,
    }
}

/// `X | X &`, whatever X is called and however the function around it is written.
fn is_fork_bomb(one: &Command, two: Option<&Command>, three: Option<&Command>) -> bool {
    let Some(two) = two else { return false };
    one.words.len() == 1
        && one.words == two.words
        && one.end == Separator::Pipe
        && two.end == Separator::Background
        && three.is_none_or(|next| next.words.is_empty() || next.words == one.words)
}

fn is_recursive(args: &[String]) -> bool {
    args.iter().any(|a| match a.strip_prefix("--") {
        Some(long) => long == "recursive" || long == "no-preserve-root",
        None => a.strip_prefix('-').is_some_and(|cluster| {
            cluster.contains(['r', 'R']) && cluster.bytes().all(|b| b.is_ascii_alphabetic())
        }),
    })
}

fn is_mkfs(name: &str) -> bool {
    matches!(name, "mkfs" | "mke2fs" | "mkswap") || name.starts_with("mkfs.")
}

/// The words that belong to a command. A sentence goes on after it: there the first plain word ends them.
fn arguments(words: &[String], context: Context) -> &[String] {
    if context > Context::Prose {
        return words;
    }
    let like_argument = |w: &String| {
        w.starts_with(['-', '/', '~', '$', '.', '*', '+']) || w.contains(['/', '=']) || w == "now"
    };
    let plain_allowed =
        usize::from(words.first().is_some_and(|w| matches!(w.as_str(), "reboot" | "poweroff" | "halt")));
    let end = words.iter().skip(plain_allowed).position(|w| !like_argument(w));
    words.get(..end.map_or(words.len(), |end| end + plain_allowed)).unwrap_or(words)
}

#[cfg(test)]
mod tests;
