//! One layer: its values by dotted key, each with where it stands.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use super::error::{Origin, Place, Problem};
use super::keys::{self, Named, RawConfig};
use super::secret;

/// A value with its origin.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// As written.
    pub value: Value,
    /// Where it was written.
    pub origin: Origin,
}

/// Values by dotted key.
pub(super) type Layer = BTreeMap<String, Setting>;

/// Prefix of environment variables that are settings.
const PREFIX: &str = "LONGHAUL_";

/// Reads TOML text. `file`: `None` for the built-in defaults.
pub(super) fn from_text(text: &str, file: Option<&Arc<Path>>) -> Result<Layer, Vec<Problem>> {
    let walk = Walk { text, file };
    let parsed = DeTable::parse(text).and_then(|spans| Ok((spans, toml::from_str::<Table>(text)?)));
    let (spans, values) = parsed.map_err(|error| {
        let message = error.message().trim_end().replace('\n', ", ");
        vec![Problem {
            origin: walk.origin(error.span().unwrap_or(0..0)),
            message: format!("not valid TOML: {message}"),
            hint: None,
        }]
    })?;
    let mut found = Found::default();
    walk.table(&mut Vec::new(), spans.get_ref(), &values, &mut found);
    // Tables are walked by name; people read from the top.
    found.problems.sort_by_key(|problem| match &problem.origin {
        Origin::File(place) => (place.line, place.column),
        _ => (0, 0),
    });
    if found.problems.is_empty() { Ok(found.layer) } else { Err(found.problems) }
}

/// Reads the variables that are settings: `LONGHAUL_SECTION__KEY`, and `LONGHAUL_KEY` for a key without a
/// section. Other variables of ours (`LONGHAUL_HOME`, ...) have no double underscore and are left alone.
pub(super) fn from_environment<'a>(
    variables: impl Iterator<Item = (&'a str, Option<&'a str>)>,
) -> Result<Layer, Vec<Problem>> {
    let mut found = Found::default();
    for (name, text) in variables {
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        let key = environment_key(rest);
        if !rest.contains("__") && keys::named(&[&key]) != Named::Key {
            continue;
        }
        let origin = Origin::Environment(name.to_owned());
        match text {
            Some(text) => found.written(&key, text, origin),
            None => found.problem(origin, format!("`{key}` must be valid UTF-8"), None),
        }
    }
    if found.problems.is_empty() { Ok(found.layer) } else { Err(found.problems) }
}

/// Reads one `key` with its `text`, as from the command line.
pub(super) fn from_pair(key: &str, text: &str, origin: Origin) -> Result<(String, Setting), Vec<Problem>> {
    let mut found = Found::default();
    found.written(key, text, origin);
    found.layer.pop_first().ok_or(found.problems)
}

/// `RUN__MAX_ITERATIONS` → `run.max_iterations`. The names of variables keep their case.
fn environment_key(rest: &str) -> String {
    let segments: Vec<&str> = rest.split("__").collect();
    let keeps_case = |i: usize| i == 3 && segments[0] == "PROVIDERS" && segments[2] == "ENV";
    let lower = |(i, s): (usize, &&str)| if keeps_case(i) { (*s).to_owned() } else { s.to_ascii_lowercase() };
    segments.iter().enumerate().map(lower).collect::<Vec<_>>().join(".")
}

#[derive(Default)]
struct Found {
    layer: Layer,
    problems: Vec<Problem>,
}

struct Walk<'a> {
    text: &'a str,
    file: Option<&'a Arc<Path>>,
}

// === impl Found ===

impl Found {
    fn problem(&mut self, origin: Origin, message: String, hint: Option<String>) {
        self.problems.push(Problem { origin, message, hint });
    }

    fn unknown(&mut self, key: &str, origin: Origin) {
        let hint = keys::suggest(key).map(|near| format!("did you mean `{near}` instead of `{key}`?"));
        self.problem(origin, format!("unknown key `{key}`"), hint);
    }

    /// A key with its value as plain text.
    fn written(&mut self, key: &str, text: &str, origin: Origin) {
        match keys::named(&key.split('.').collect::<Vec<_>>()) {
            Named::Nothing => self.unknown(key, origin),
            Named::Section => {
                self.problem(origin, format!("`{key}` is a section: name one of its keys"), None);
            }
            Named::Key => match keys::value_of(key, text) {
                Ok(value) => {
                    self.layer.insert(key.to_owned(), Setting { value, origin });
                }
                Err(message) => self.ill_formed(key, &message, origin),
            },
        }
    }

    fn ill_formed(&mut self, key: &str, message: &str, origin: Origin) {
        // The message quotes the value.
        let message = match message.rsplit_once(", not ") {
            Some((rule, value)) if secret::named_so(key) || secret::in_text(value) => rule,
            _ => message,
        };
        let message = match message.starts_with("must") {
            true => format!("`{key}` {message}"),
            false => format!("in `{key}`: {message}"),
        };
        self.problem(origin, message, None);
    }
}

// === impl Walk ===

impl Walk<'_> {
    fn origin(&self, span: std::ops::Range<usize>) -> Origin {
        self.file.map_or(Origin::Default, |file| Origin::File(Place::new(file, self.text, span)))
    }

    fn table(&self, path: &mut Vec<String>, spans: &DeTable<'_>, values: &Table, found: &mut Found) {
        for (name, span) in spans {
            let Some(value) = values.get(name.get_ref().as_ref()) else { continue };
            path.push(name.get_ref().to_string());
            let key = path.join(".");
            match (keys::named(path), span.get_ref(), value) {
                (Named::Nothing, ..) => found.unknown(&key, self.origin(name.span())),
                (Named::Section, DeValue::Table(spans), Value::Table(values)) => {
                    self.table(path, spans, values, found);
                }
                (Named::Section, ..) => {
                    let message = format!("`{key}` is a section, not a value");
                    found.problem(self.origin(span.span()), message, Some(format!("write it as [{key}]")));
                }
                (Named::Key, _, value) => match keys::check_value(&key, value) {
                    Ok(()) => {
                        let origin = self.origin(name.span());
                        found.layer.insert(key, Setting { value: value.clone(), origin });
                    }
                    Err(message) => {
                        let span = self.within(&message).unwrap_or(span.span());
                        found.ill_formed(&key, &message, self.origin(span));
                    }
                },
            }
            path.pop();
        }
    }

    /// The place inside a list or table where serde finds what `message` says.
    fn within(&self, message: &str) -> Option<std::ops::Range<usize>> {
        let error = toml::from_str::<RawConfig>(self.text).err()?;
        error.span().filter(|_| keys::in_our_words(error.message()) == message)
    }
}
