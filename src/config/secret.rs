//! Which settings are secrets: those are never shown, only that they are set.

use toml::Value;

/// What stands in for a secret.
pub const MASK: &str = "********";

/// Last words of names whose values are secrets.
const NAMES: &[&str] =
    &["token", "webhook", "secret", "password", "passwd", "key", "apikey", "credential", "credentials"];

/// How keys of well-known services begin.
const PREFIXES: &[&str] = &[
    "sk-",
    "sk_",
    "rk_",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xapp-",
    "AKIA",
    "ASIA",
    "AIza",
    "ya29.",
    "eyJ",
    "hf_",
    "gsk_",
    "xai-",
    "Bearer ",
];

/// `value` as it may be shown: secrets replaced, also inside lists and tables.
pub fn masked(key: &str, value: &Value) -> Value {
    match value {
        Value::Table(table) => {
            Value::Table(table.iter().map(|(name, value)| (name.clone(), masked(name, value))).collect())
        }
        Value::Array(items) => {
            // `["--token", "abc"]`: an option and its value are separate items.
            let mut after_option = false;
            let items = items.iter().map(|item| {
                let text = item.as_str().unwrap_or_default();
                let hide = after_option;
                after_option = text.starts_with('-') && !text.contains('=') && named_so(text);
                if hide { Value::String(MASK.to_owned()) } else { masked(key, item) }
            });
            Value::Array(items.collect())
        }
        _ if named_so(key) => Value::String(MASK.to_owned()),
        Value::String(text) if in_text(text) => Value::String(MASK.to_owned()),
        other => other.clone(),
    }
}

/// Whether `key`, or the part after its last dot, is the name of a secret.
pub fn named_so(key: &str) -> bool {
    let name = key.rsplit('.').next().unwrap_or(key);
    let last = name.rsplit(['_', '-']).next().unwrap_or(name).to_ascii_lowercase();
    NAMES.iter().any(|word| last == *word) || last.ends_with("token") || last.ends_with("password")
}

/// Whether a secret may stand in `text`: a word that looks like a key, `NAME=value` with the name of a
/// secret, or a URL with a password.
pub fn in_text(text: &str) -> bool {
    let stop = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | ';' | '(' | ')' | '{' | '}');
    let assigned =
        |word: &str| word.split_once('=').is_some_and(|(name, value)| !value.is_empty() && named_so(name));
    let spaced: String = text.replace(" = ", "=").replace("= ", "=").replace(" =", "=");
    text.split(stop)
        .any(|word| looks_like_key(word.rsplit('=').next().unwrap_or(word)) || with_password(word))
        || spaced.split(stop).any(assigned)
        || spaced.split(['{', ',']).any(|part| assigned(part.trim()))
}

fn looks_like_key(word: &str) -> bool {
    let known = PREFIXES.iter().any(|prefix| word.starts_with(prefix) && word.len() >= prefix.len() + 12);
    let letters = word.bytes().filter(u8::is_ascii_alphabetic).count();
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    // Model names, dates and paths have separators; random keys of this length do not.
    known || (letters + digits == word.len() && word.len() >= 32 && letters >= 6 && digits >= 4)
}

/// `scheme://user:password@host`
fn with_password(word: &str) -> bool {
    let authority = word.split_once("://").map(|(_, rest)| rest.split('/').next().unwrap_or(rest));
    authority.and_then(|a| a.rsplit_once('@')).is_some_and(|(user, _)| user.contains(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(key: &str, value: impl Into<Value>) -> Value {
        masked(key, &value.into())
    }

    #[test]
    fn secrets_are_masked_by_name() {
        for key in
            ["providers.x.env.OPENAI_API_KEY", "github_token", "DB_PASSWORD", "client-secret", "authToken"]
        {
            assert_eq!(shown(key, "abc"), Value::from(MASK), "{key}");
        }
        for key in ["spec.max_tokens", "agent.env_keep", "provider.model", "limits.line_bytes"] {
            assert_eq!(shown(key, "abc"), Value::from("abc"), "{key}");
        }
        assert_eq!(shown("spec.window_tokens", 200_000), Value::from(200_000));
    }

    #[test]
    fn secrets_are_masked_by_look() {
        for text in [
            "sk-ant-api03-abcdefghijkl",
            "ghp_0123456789abcdef",
            "https://user:pass@proxy:3128",
            "0123456789abcdef0123456789abcdef",
            "TOKEN=abc make test",
            "--api-key=abc",
            "run --header sk-ant-api03-abcdefghijkl",
        ] {
            assert_eq!(shown("x", text), Value::from(MASK), "{text}");
        }
        for text in [
            "claude-sonnet-4-5-20250929",
            "http://proxy:3128",
            "cargo test --quiet",
            "/usr/local/share/very/long/path/to/some/program",
            "sk-x",
            "1h 30m",
            "KEY=",
        ] {
            assert_eq!(shown("x", text), Value::from(text), "{text}");
        }
    }

    #[test]
    fn lists_and_tables_are_looked_into() {
        let args = Value::Array(vec!["--token".into(), "abc".into(), "--model".into(), "opus".into()]);
        let want = Value::Array(vec!["--token".into(), MASK.into(), "--model".into(), "opus".into()]);
        assert_eq!(masked("providers.x.args", &args), want);
        let gate: Value =
            toml::from_str::<toml::Table>("run = 'x'\nenv = { NPM_TOKEN = 'abc' }").unwrap().into();
        assert_eq!(masked("gates.commands", &gate)["env"]["NPM_TOKEN"], Value::from(MASK));
        assert_eq!(masked("gates.commands", &gate)["run"], Value::from("x"));
    }

    #[test]
    fn whole_lines_of_a_file_count_too() {
        assert!(in_text("API_KEY = abc"));
        assert!(in_text("env = { A = \"1\", MY_TOKEN = \"abc\" }"));
        assert!(!in_text("max_tokens = 5"));
    }
}
