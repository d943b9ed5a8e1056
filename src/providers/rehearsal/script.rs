//! The script's format, and which steps a call plays.
//!
//! A script is TOML, or JSON when the file's name ends in `.json`:
//!
//! ```toml
//! after = "done"              # when the calls are used up: "done" (say so and claim it) or "repeat-last"
//!
//! [[call]]
//! repeat = 2                  # play it twice; default 1
//! steps = [
//!   { say = "Adding the parser." },
//!   { tool = "Edit" },
//!   { write = "src/parser.txt", text = "made by call {call} of lane {lane}\n" },
//!   { append = "notes.txt", text = "one more line\n" },
//!   { delete = "old.txt" },
//!   { commit = "Add the parser" },
//!   { wait = 90.5 },
//!   { usage = { input_tokens = 1200, output_tokens = 300, cost_usd = 0.02 } },
//! ]
//!
//! [[call]]
//! steps = [{ fail = "usage_limited", after = 18000 }]      # or until = "2026-12-01T09:00:00Z"
//!
//! [[call]]
//! steps = [{ say = "All done." }, { claim = "done" }]      # or claim = "blocked", why = "..."
//!
//! [chaos]                     # optional: faults on top, the same ones for the same seed
//! seed = 7
//! delay = [0.0, 30.0]         # seconds before each call's steps
//! weights = { completed = 90, overloaded = 5, silent_hang = 1 }
//! ```
//!
//! Further steps are `{ hang = true }` (until the call is ended) and `{ exit = 3 }` (end with that exit code).
//! `fail` takes every outcome's name. `{call}`, `{lane}` and `{iteration}` in texts and paths stand for their
//! numbers, so that a repeated call can change something each time.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;

use super::chaos::Chaos;
use crate::domain::outcome::Usage;
use crate::providers::definition::OutcomeKind;

/// A whole script.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    #[serde(default, rename = "call")]
    calls: Vec<Call>,
    #[serde(default)]
    after: After,
    chaos: Option<Chaos>,
}

/// What follows when the calls are used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum After {
    /// Every further call says that nothing is left and claims completion.
    #[default]
    Done,
    /// The last call is played again and again.
    RepeatLast,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    #[serde(default = "once")]
    repeat: u64,
    steps: Vec<Step>,
}

/// One thing that happens in a call.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "StepKeys")]
pub enum Step {
    /// The agent says something; what is said last is the final answer.
    Say(String),
    /// A tool is used, by name.
    Tool(String),
    /// A file is written, folders and all.
    Write {
        /// Within the lane's folder.
        path: PathBuf,
        /// The whole content.
        text: String,
    },
    /// Text is added to a file's end; the file is made when it is missing.
    Append {
        /// Within the lane's folder.
        path: PathBuf,
        /// What is added.
        text: String,
    },
    /// A file is removed; one that is missing is fine.
    Delete {
        /// Within the lane's folder.
        path: PathBuf,
    },
    /// Everything is committed with this message.
    Commit(String),
    /// Time passes.
    Wait(Duration),
    /// Tokens and money are used; several add up.
    Usage(Usage),
    /// The agent claims that everything is done.
    ClaimDone,
    /// The agent asks for a person.
    ClaimBlocked(String),
    /// The call fails; nothing after it is played.
    Fail(Failure),
    /// The call ends with this exit code; nothing after it is played.
    Exit(i32),
    /// Nothing happens any more until the call is ended.
    Hang,
}

/// How a call fails.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// The outcome.
    pub kind: OutcomeKind,
    /// For limits: when it ends.
    pub until: Option<Timestamp>,
    /// For limits: how long after the failure it ends.
    pub after: Option<Duration>,
    /// What is said about it.
    pub message: String,
}

/// Which call is played.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cue {
    /// Number of the lane's call, from 1.
    pub call: u64,
    /// The lane.
    pub lane: u16,
    /// The iteration.
    pub iteration: u64,
}

/// The steps of one call.
#[derive(Debug, Clone)]
pub struct Play {
    steps: std::vec::IntoIter<Step>,
}

/// Why a script cannot be played.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}:{column}: {problem}", file.display())]
pub struct ScriptError {
    /// The file.
    pub file: PathBuf,
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1.
    pub column: usize,
    /// What is wrong.
    pub problem: String,
}

/// A step as it is written: one of these keys says what happens, the others belong to it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct StepKeys {
    say: Option<String>,
    tool: Option<String>,
    write: Option<PathBuf>,
    append: Option<PathBuf>,
    delete: Option<PathBuf>,
    commit: Option<String>,
    wait: Option<f64>,
    usage: Option<UsageKeys>,
    claim: Option<Claim>,
    fail: Option<OutcomeKind>,
    exit: Option<i32>,
    hang: Option<bool>,
    text: Option<String>,
    why: Option<String>,
    until: Option<String>,
    after: Option<f64>,
    message: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct UsageKeys {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
    cost_usd: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Claim {
    Done,
    Blocked,
}

// === impl Script ===

impl Script {
    /// Reads a script. `file` names it in errors and, by its extension, says whether it is JSON.
    pub fn parse(file: &Path, text: &str) -> Result<Self, ScriptError> {
        let at = |line, column, problem| ScriptError { file: file.to_owned(), line, column, problem };
        let script: Script = if file.extension().is_some_and(|extension| extension == "json") {
            serde_json::from_str(text).map_err(|e| {
                let problem = e.to_string();
                // serde_json puts the place behind the message, too.
                let problem =
                    problem.rsplit_once(" at line ").map_or(problem.as_str(), |(problem, _)| problem);
                at(e.line().max(1), e.column().max(1), problem.to_owned())
            })?
        } else {
            toml::from_str(text).map_err(|e| {
                let before = text.get(..e.span().map_or(0, |span| span.start)).unwrap_or(text);
                let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
                at(before.matches('\n').count() + 1, column, e.message().to_owned())
            })?
        };
        match &script.chaos {
            Some(chaos) => chaos.check().map_err(|problem| at(1, 1, problem)).map(|()| script),
            None => Ok(script),
        }
    }

    /// The steps of a call. The same cue always gives the same steps.
    pub fn play(&self, cue: Cue) -> Play {
        let mut steps: Vec<Step> = self.steps(cue.call).iter().map(|step| step.filled(cue)).collect();
        if let Some(chaos) = &self.chaos {
            chaos.disturb(cue, &mut steps);
        }
        Play { steps: steps.into_iter() }
    }

    fn steps(&self, number: u64) -> Vec<Step> {
        let mut passed = 0u64;
        for call in &self.calls {
            passed = passed.saturating_add(call.repeat);
            if number <= passed {
                return call.steps.clone();
            }
        }
        match (self.after, self.calls.last()) {
            (After::RepeatLast, Some(last)) => last.steps.clone(),
            _ => vec![Step::Say("Nothing is left to do.".to_owned()), Step::ClaimDone],
        }
    }
}

// === impl Play ===

impl Iterator for Play {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        self.steps.next()
    }
}

// === impl Step ===

impl Step {
    /// Nothing is played after it.
    pub fn ends(&self) -> bool {
        matches!(self, Step::Fail(_) | Step::Exit(_) | Step::Hang)
    }

    /// The step with `{call}`, `{lane}` and `{iteration}` filled in.
    fn filled(&self, cue: Cue) -> Step {
        let fill = |text: &str| {
            text.replace("{call}", &cue.call.to_string())
                .replace("{lane}", &cue.lane.to_string())
                .replace("{iteration}", &cue.iteration.to_string())
        };
        let path = |path: &Path| PathBuf::from(fill(&path.to_string_lossy()));
        match self {
            Step::Say(text) => Step::Say(fill(text)),
            Step::Write { path: file, text } => Step::Write { path: path(file), text: fill(text) },
            Step::Append { path: file, text } => Step::Append { path: path(file), text: fill(text) },
            Step::Delete { path: file } => Step::Delete { path: path(file) },
            Step::Commit(message) => Step::Commit(fill(message)),
            other => other.clone(),
        }
    }
}

impl TryFrom<StepKeys> for Step {
    type Error = String;

    fn try_from(keys: StepKeys) -> Result<Self, String> {
        let StepKeys {
            say, tool, write, append, delete, commit, wait, usage, claim, fail, exit, hang, ..
        } = keys;
        let StepKeys { mut text, mut why, mut until, mut after, mut message, .. } = StepKeys {
            text: keys.text,
            why: keys.why,
            until: keys.until,
            after: keys.after,
            message: keys.message,
            ..StepKeys::default()
        };
        let mut steps = Vec::new();
        steps.extend(say.map(Step::Say));
        steps.extend(tool.map(Step::Tool));
        if let Some(path) = write {
            steps.push(Step::Write { path, text: text.take().unwrap_or_default() });
        }
        if let Some(path) = append {
            steps.push(Step::Append { path, text: text.take().ok_or("`append` needs `text`")? });
        }
        steps.extend(delete.map(|path| Step::Delete { path }));
        steps.extend(commit.map(Step::Commit));
        if let Some(seconds) = wait {
            steps.push(Step::Wait(time("wait", seconds)?));
        }
        steps.extend(usage.map(|usage| Step::Usage(usage.into())));
        steps.extend(claim.map(|claim| match claim {
            Claim::Done => Step::ClaimDone,
            Claim::Blocked => Step::ClaimBlocked(why.take().unwrap_or_default()),
        }));
        if let Some(kind) = fail {
            let limit = matches!(kind, OutcomeKind::RateLimited | OutcomeKind::UsageLimited);
            if (until.is_some() || after.is_some()) && !limit {
                return Err("`until` and `after` go with rate_limited and usage_limited only".to_owned());
            }
            let until = until.take().map(|at| at.parse().map_err(|e| format!("`until`: {e}"))).transpose()?;
            let after = after.take().map(|seconds| time("after", seconds)).transpose()?;
            let message = message.take().unwrap_or_else(|| "a rehearsed failure".to_owned());
            steps.push(Step::Fail(Failure { kind, until, after, message }));
        }
        steps.extend(exit.map(Step::Exit));
        match hang {
            Some(true) => steps.push(Step::Hang),
            Some(false) => return Err("`hang` can only be true".to_owned()),
            None => {}
        }
        for (key, left) in [
            ("text", text.is_some()),
            ("why", why.is_some()),
            ("until", until.is_some()),
            ("after", after.is_some()),
            ("message", message.is_some()),
        ] {
            if left {
                return Err(format!("`{key}` does not belong to this step"));
            }
        }
        match (steps.pop(), steps.is_empty()) {
            (Some(step), true) => Ok(step),
            (None, _) => {
                Err("a step needs one of: say tool write append delete commit wait usage claim fail exit \
                              hang"
                    .to_owned())
            }
            (Some(_), false) => Err("a step does one thing; write several steps".to_owned()),
        }
    }
}

impl From<UsageKeys> for Usage {
    fn from(keys: UsageKeys) -> Self {
        Usage {
            input_tokens: keys.input_tokens,
            output_tokens: keys.output_tokens,
            cache_read_tokens: keys.cache_read_tokens,
            cache_write_tokens: keys.cache_write_tokens,
            cost_usd: keys.cost_usd,
        }
    }
}

fn time(key: &str, seconds: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(seconds).map_err(|e| format!("`{key}`: {e}"))
}

fn once() -> u64 {
    1
}
