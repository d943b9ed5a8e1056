//! Reads provider files: typed, strict, and with errors that name the file, the line and the key.
//!
//! Every key is optional here, because a user's or project's file may change one key of a built-in provider;
//! [`Layer::over`] puts one on top of another and [`Layer::check`] turns the result into a [`Definition`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::definition::{
    Arg, Definition, EnvRules, Flags, Limits, NamePattern, OutcomeKind, OutputFormat, Place, Price, PromptBy,
    Rule, VersionProbe,
};
use super::server::Server;

/// Why a provider file cannot be used; reads after "failed to load a provider: ".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}: {}{problem}", file.display(), if key.is_empty() { String::new() } else { format!("`{key}`: ") })]
pub struct FileError {
    /// The file.
    pub file: PathBuf,
    /// Line, from 1.
    pub line: usize,
    /// Dotted key; empty when the file as a whole is wrong.
    pub key: String,
    /// What is wrong, and what would be right.
    pub problem: String,
}

/// One file, or several put on top of each other.
#[derive(Debug, Clone)]
pub struct Layer {
    /// The uppermost file and its text, for errors.
    file: PathBuf,
    text: String,
    keys: Keys,
}

/// The file as it is written.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    name: Option<String>,
    title: Option<String>,
    program: Option<String>,
    args: Option<Vec<Arg>>,
    prompt: Option<PromptBy>,
    output: Option<OutputFormat>,
    install: Option<String>,
    login: Option<String>,
    login_args: Option<Vec<String>>,
    logout_args: Option<Vec<String>>,
    exit_code_is_evidence: Option<bool>,
    credential_files: Option<Vec<String>>,
    #[serde(default)]
    flags: FlagKeys,
    #[serde(default)]
    env: EnvKeys,
    version: Option<VersionProbe>,
    #[serde(default)]
    limits: LimitKeys,
    #[serde(default)]
    exit_codes: BTreeMap<ExitCode, OutcomeKind>,
    #[serde(default)]
    prices: BTreeMap<String, Price>,
    #[serde(default)]
    rules: Vec<Rule>,
    rules_from: Option<Vec<String>>,
    server: Option<Server>,
    server_by_login: Option<Server>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FlagKeys {
    model: Option<Vec<String>>,
    resume: Option<Vec<String>>,
    max_turns: Option<Vec<String>>,
    max_budget_usd: Option<Vec<String>>,
    prompt: Option<Vec<String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct EnvKeys {
    #[serde(default)]
    set: BTreeMap<String, String>,
    #[serde(default)]
    set_as_root: BTreeMap<String, String>,
    #[serde(default)]
    set_default: BTreeMap<String, String>,
    keys: Option<Vec<NamePattern>>,
    endpoint: Option<Vec<NamePattern>>,
    remove: Option<Vec<NamePattern>>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitKeys {
    first_output_seconds: Option<u64>,
    silence_seconds: Option<u64>,
    total_seconds: Option<u64>,
    linger_seconds: Option<u64>,
}

/// A key of `[exit_codes]`: TOML's keys are strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
struct ExitCode(i32);

// === impl Layer ===

impl Layer {
    /// Reads a built-in file's text, whose patterns a test has checked.
    pub fn built_in(file: &Path, text: &str) -> Result<Self, FileError> {
        let keys = toml::from_str(text).map_err(|e| {
            let (line, key) = locate(text, e.span().map_or(0, |span| span.start));
            FileError { file: file.to_owned(), line, key, problem: with_suggestion(e.message()) }
        })?;
        Ok(Layer { file: file.to_owned(), text: text.to_owned(), keys })
    }

    /// Reads a person's file.
    pub fn parse(file: &Path, text: &str) -> Result<Self, FileError> {
        let layer = Layer::built_in(file, text)?;
        layer.check_patterns()?;
        Ok(layer)
    }

    /// Every pattern can be used.
    pub fn check_patterns(&self) -> Result<(), FileError> {
        let rules =
            self.keys.rules.iter().flat_map(|rule| std::iter::once(&rule.pattern).chain(&rule.unless));
        let version = self.keys.version.iter().map(|probe| &probe.pattern);
        for pattern in rules.chain(version) {
            pattern.check().map_err(|problem| {
                // In quotes that keep it as it is, it stands there as it was read.
                let quoted = ['\'', '"'].map(|quote| format!("{quote}{}{quote}", pattern.written()));
                let at = quoted.iter().find_map(|quoted| self.text.find(quoted.as_str())).unwrap_or(0);
                let (line, key) = locate(&self.text, at);
                FileError { file: self.file.clone(), line, key, problem }
            })?;
        }
        Ok(())
    }

    /// This layer on top of `below`: single keys and lists replace, tables merge key by key, rules with the id of
    /// a rule below replace it and new ones come first.
    pub fn over(self, below: Layer) -> Layer {
        let (top, low) = (self.keys, below.keys);
        let mut rules = top.rules;
        let kept: Vec<Rule> =
            low.rules.into_iter().filter(|rule| !rules.iter().any(|own| own.id == rule.id)).collect();
        rules.extend(kept);
        let keys = Keys {
            name: top.name.or(low.name),
            title: top.title.or(low.title),
            program: top.program.or(low.program),
            args: top.args.or(low.args),
            prompt: top.prompt.or(low.prompt),
            output: top.output.or(low.output),
            install: top.install.or(low.install),
            login: top.login.or(low.login),
            login_args: top.login_args.or(low.login_args),
            logout_args: top.logout_args.or(low.logout_args),
            exit_code_is_evidence: top.exit_code_is_evidence.or(low.exit_code_is_evidence),
            credential_files: top.credential_files.or(low.credential_files),
            flags: FlagKeys {
                model: top.flags.model.or(low.flags.model),
                resume: top.flags.resume.or(low.flags.resume),
                max_turns: top.flags.max_turns.or(low.flags.max_turns),
                max_budget_usd: top.flags.max_budget_usd.or(low.flags.max_budget_usd),
                prompt: top.flags.prompt.or(low.flags.prompt),
            },
            env: EnvKeys {
                set: merged(low.env.set, top.env.set),
                set_as_root: merged(low.env.set_as_root, top.env.set_as_root),
                set_default: merged(low.env.set_default, top.env.set_default),
                keys: top.env.keys.or(low.env.keys),
                endpoint: top.env.endpoint.or(low.env.endpoint),
                remove: top.env.remove.or(low.env.remove),
            },
            version: top.version.or(low.version),
            limits: LimitKeys {
                first_output_seconds: top.limits.first_output_seconds.or(low.limits.first_output_seconds),
                silence_seconds: top.limits.silence_seconds.or(low.limits.silence_seconds),
                total_seconds: top.limits.total_seconds.or(low.limits.total_seconds),
                linger_seconds: top.limits.linger_seconds.or(low.limits.linger_seconds),
            },
            exit_codes: merged(low.exit_codes, top.exit_codes),
            prices: merged(low.prices, top.prices),
            rules,
            rules_from: top.rules_from.or(low.rules_from),
            server: top.server.or(low.server),
            server_by_login: top.server_by_login.or(low.server_by_login),
        };
        Layer { file: self.file, text: self.text, keys }
    }

    /// The definition of provider `name`, when everything that it needs is there and fits together.
    pub fn check(self, name: &str) -> Result<Definition, FileError> {
        let Layer { file, text, keys } = self;
        let wrong = |key: &str, problem: String| {
            let line = line_of(&text, key).unwrap_or(1);
            FileError { file: file.clone(), line, key: key.to_owned(), problem }
        };
        if let Some(own) = keys.name.as_deref().filter(|own| *own != name) {
            return Err(wrong("name", format!("says `{own}`, but the file's name says `{name}`")));
        }
        let Some(output) = keys.output else {
            return Err(wrong("output", "is missing: claude-stream-json, codex-jsonl or text".to_owned()));
        };
        let args = keys.args.unwrap_or_default();
        let prompt = keys.prompt.unwrap_or(PromptBy::Stdin);
        let flags = Flags {
            model: keys.flags.model.unwrap_or_default(),
            resume: keys.flags.resume.unwrap_or_default(),
            max_turns: keys.flags.max_turns.unwrap_or_default(),
            max_budget_usd: keys.flags.max_budget_usd.unwrap_or_default(),
            prompt: keys.flags.prompt.unwrap_or_default(),
        };
        let together = "go together; one of them is missing";
        for (key, place, flag) in [
            ("model", Place::Model, &flags.model),
            ("resume", Place::Resume, &flags.resume),
            ("max_turns", Place::MaxTurns, &flags.max_turns),
            ("max_budget_usd", Place::MaxBudgetUsd, &flags.max_budget_usd),
        ] {
            let dotted = format!("flags.{key}");
            if args.contains(&Arg::Place(place)) == flag.is_empty() {
                return Err(wrong(&dotted, format!("`{{{key}}}` in `args` and `{dotted}` {together}")));
            }
            if !flag.is_empty() && !flag.iter().any(|item| item.contains("{}")) {
                return Err(wrong(&dotted, "has no `{}` for the value".to_owned()));
            }
        }
        if (prompt == PromptBy::Argument) != args.contains(&Arg::Place(Place::Prompt)) {
            return Err(wrong(
                "prompt",
                format!("`prompt = \"argument\"` and `{{prompt}}` in `args` {together}"),
            ));
        }
        if !flags.prompt.is_empty() && !flags.prompt.iter().any(|item| item.contains("{}")) {
            return Err(wrong("flags.prompt", "has no `{}` for the prompt".to_owned()));
        }

        let seconds = |value: Option<u64>| value.map(Duration::from_secs);
        Ok(Definition {
            name: name.to_owned(),
            title: keys.title.unwrap_or_else(|| name.to_owned()),
            program: keys.program,
            args,
            prompt,
            output,
            flags,
            env: EnvRules {
                set: keys.env.set,
                set_as_root: keys.env.set_as_root,
                set_default: keys.env.set_default,
                keys: keys.env.keys.unwrap_or_default(),
                endpoint: keys.env.endpoint.unwrap_or_default(),
                remove: keys.env.remove.unwrap_or_default(),
            },
            credential_files: keys.credential_files.unwrap_or_default(),
            version: keys.version,
            install: keys.install,
            login: keys.login,
            login_args: keys.login_args.unwrap_or_default(),
            logout_args: keys.logout_args.unwrap_or_default(),
            exit_code_is_evidence: keys.exit_code_is_evidence.unwrap_or(true),
            exit_codes: keys
                .exit_codes
                .into_iter()
                .map(|(ExitCode(code), outcome)| (code, outcome))
                .collect(),
            rules: keys.rules.into_iter().map(Arc::new).collect(),
            rules_from: keys.rules_from.unwrap_or_default(),
            server: keys.server,
            server_by_login: keys.server_by_login,
            prices: keys.prices,
            price_list: Arc::default(),
            limits: Limits {
                first_output: seconds(keys.limits.first_output_seconds),
                silence: seconds(keys.limits.silence_seconds),
                total: seconds(keys.limits.total_seconds),
                linger: seconds(keys.limits.linger_seconds),
            },
        })
    }
}

// === impl ExitCode ===

impl TryFrom<String> for ExitCode {
    type Error = String;

    fn try_from(written: String) -> Result<Self, String> {
        written.parse().map(ExitCode).map_err(|_| format!("`{written}` is no exit code"))
    }
}

fn merged<K: Ord, V>(mut low: BTreeMap<K, V>, top: BTreeMap<K, V>) -> BTreeMap<K, V> {
    low.extend(top);
    low
}

/// serde's message about an unknown name, with the closest known one.
fn with_suggestion(message: &str) -> String {
    let mut names = message.split('`').skip(1).step_by(2);
    let meant = names.next().filter(|_| message.starts_with("unknown ")).and_then(|odd| {
        let close = |known: &&str| strsim::jaro_winkler(known, odd);
        names.filter(|known| close(known) > 0.8).max_by(|a, b| close(a).total_cmp(&close(b)))
    });
    match meant {
        Some(meant) => format!("{message}; did you mean `{meant}`?"),
        None => message.to_owned(),
    }
}

/// The dotted keys of a file with their lines, from 1. Good enough for messages: multi-line strings and inline
/// tables are not looked into.
fn keys_by_line(text: &str) -> impl Iterator<Item = (usize, String)> + '_ {
    let mut table = String::new();
    text.lines().enumerate().filter_map(move |(index, line)| {
        let line = line.trim();
        let name = if line.starts_with('[') && line.ends_with(']') && !line.contains('=') {
            table = line.trim_matches(['[', ']']).trim().to_owned();
            table.clone()
        } else {
            let bare = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
            let key = line.split_once('=').map(|(key, _)| key.trim()).filter(|key| key.bytes().all(bare))?;
            if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") }
        };
        Some((index + 1, name))
    })
}

/// Line and dotted key at a byte offset.
fn locate(text: &str, offset: usize) -> (usize, String) {
    let line = text.get(..offset).unwrap_or(text).matches('\n').count() + 1;
    let key = keys_by_line(text).take_while(|(at, _)| *at <= line).last().map(|(_, key)| key);
    (line, key.unwrap_or_default())
}

fn line_of(text: &str, key: &str) -> Option<usize> {
    keys_by_line(text).find(|(_, found)| found == key).map(|(line, _)| line)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BELOW: &str = r#"
program = "agent"
args = ["run", "{model}", "{prompt}"]
prompt = "argument"
output = "text"
[flags]
model = ["-m", "{}"]
[env.set]
A = "1"
B = "1"
[exit_codes]
41 = "auth_failed"
[[rules]]
id = "a.old"
outcome = "rate_limited"
where = ["stderr"]
pattern = 'slow down'
"#;

    fn parse(text: &str) -> Result<Layer, FileError> {
        Layer::parse(Path::new("x.toml"), text)
    }

    fn error(text: &str) -> FileError {
        match parse(text).and_then(|layer| layer.check("x")) {
            Ok(_) => panic!("accepted: {text}"),
            Err(e) => e,
        }
    }

    #[test]
    fn a_file_on_top_changes_only_what_it_says() {
        let top = r#"
            [env.set]
            B = "2"
            [exit_codes]
            42 = "not_runnable"
            [[rules]]
            id = "mine.new"
            outcome = "usage_limited"
            where = ["stdout", "stderr"]
            pattern = 'out of luck'
            [[rules]]
            id = "a.old"
            outcome = "overloaded"
            where = ["stderr"]
            pattern = 'slow down'
        "#;
        let definition = parse(top).unwrap().over(parse(BELOW).unwrap()).check("x").unwrap();
        assert_eq!(definition.program.as_deref(), Some("agent"));
        assert_eq!(definition.env.set, [("A".into(), "1".into()), ("B".into(), "2".into())].into());
        assert_eq!(
            definition.exit_codes,
            [(41, OutcomeKind::AuthFailed), (42, OutcomeKind::NotRunnable)].into()
        );
        let rules: Vec<_> = definition.rules.iter().map(|rule| (rule.id.as_str(), rule.outcome)).collect();
        assert_eq!(rules, [("mine.new", OutcomeKind::UsageLimited), ("a.old", OutcomeKind::Overloaded)]);
    }

    #[test]
    fn errors_name_file_line_and_key() {
        for (text, line, key, words) in [
            ("output = \"text\"\npromt = \"stdin\"\n", 2, "promt", "did you mean `prompt`?"),
            ("output = \"txt\"\n", 1, "output", "unknown variant `txt`"),
            ("output = \"text\"\nargs = [\"{modle}\"]\n", 2, "args", "`{modle}` is no known place"),
            (
                "output = \"text\"\n[version]\nargs = []\npattern = '('\n",
                4,
                "version.pattern",
                "not a regular",
            ),
            (
                "output = \"text\"\n[exit_codes]\nnone = \"empty\"\n",
                3,
                "exit_codes.none",
                "`none` is no exit code",
            ),
            (
                "output = \"text\"\n[limits]\ntotal_seconds = \"1\"\n",
                3,
                "limits.total_seconds",
                "invalid type",
            ),
            (
                "[[rules]]\nid = \"a\"\noutcome = \"empty\"\nwhere = []\npattern = 'a'\n",
                4,
                "rules.where",
                "at least one",
            ),
            (
                "[[rules]]\nid = \"a\"\noutcome = \"empty\"\nwhere = [\"answer\"]\npattern = 'é'\n",
                5,
                "rules.pattern",
                "ASCII",
            ),
            ("a b\n", 1, "", "expected"),
        ] {
            let error = error(text);
            assert_eq!((error.line, error.key.as_str()), (line, key), "{text}{error}");
            assert!(error.to_string().starts_with(&format!("x.toml:{line}: ")), "{error}");
            assert!(error.problem.contains(words), "{error}");
        }
    }

    #[test]
    fn parts_that_belong_together_are_checked_together() {
        for (text, line, key, words) in [
            ("program = \"x\"\n", 1, "output", "is missing"),
            ("output = \"text\"\nname = \"y\"\n", 2, "name", "the file's name says `x`"),
            ("output = \"text\"\n[flags]\nmodel = [\"-m\", \"{}\"]\n", 3, "flags.model", "go together"),
            (
                "output = \"text\"\nargs = [\"{model}\"]\n[flags]\nmodel = [\"-m\"]\n",
                4,
                "flags.model",
                "no `{}`",
            ),
            ("output = \"text\"\nprompt = \"argument\"\n", 2, "prompt", "go together"),
        ] {
            let error = error(text);
            assert_eq!((error.line, error.key.as_str()), (line, key), "{text}{error}");
            assert!(error.problem.contains(words), "{error}");
        }
    }
}
