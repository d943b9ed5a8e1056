//! Errors as a person or a script sees them: what happened, why, and what to do next.

use std::io;

use serde::Serialize;

use crate::config::ConfigError;

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// Goals met, or the asked-for limit reached.
    Done = 0,
    /// The session failed.
    Failed = 1,
    /// Usage or configuration error; nothing was started.
    Usage = 2,
    /// Stopped by a person.
    Stopped = 3,
    /// Another session already runs here.
    AlreadyRunning = 4,
    /// Needs a person, and `--no-wait` was given.
    NeedsPerson = 5,
    /// The provider cannot be used.
    ProviderUnusable = 6,
}

/// What kind of error it is; decides the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// Wrong arguments.
    Usage,
    /// Wrong settings.
    Config,
    /// It did not work.
    Failed,
    /// A person stopped it.
    Stopped,
    /// Another session already runs here.
    AlreadyRunning,
    /// A person is needed.
    NeedsPerson,
    /// The provider cannot be used.
    ProviderUnusable,
    /// Whoever read our stdout went away: no error to tell.
    BrokenPipe,
    /// A fault of ours.
    Internal,
}

/// An error at the edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CliError {
    /// Decides the exit code.
    pub kind: ErrorKind,
    /// What happened and why.
    pub message: String,
    /// What to do next.
    pub hints: Vec<String>,
}

/// `{"error":{code,message,hints}}`
#[derive(Serialize)]
struct AsJson<'a> {
    error: Inner<'a>,
}

#[derive(Serialize)]
struct Inner<'a> {
    code: &'static str,
    message: &'a str,
    hints: &'a [String],
}

// === impl ExitCode ===

impl ExitCode {
    /// The code with which a session ended.
    pub fn from_session(code: u8) -> Self {
        match code {
            0 => ExitCode::Done,
            3 => ExitCode::Stopped,
            5 => ExitCode::NeedsPerson,
            _ => ExitCode::Failed,
        }
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        std::process::ExitCode::from(code as u8)
    }
}

// === impl ErrorKind ===

impl ErrorKind {
    /// The exit code of such an error.
    pub fn exit_code(self) -> ExitCode {
        match self {
            ErrorKind::Usage | ErrorKind::Config => ExitCode::Usage,
            ErrorKind::Failed | ErrorKind::Internal => ExitCode::Failed,
            ErrorKind::Stopped => ExitCode::Stopped,
            ErrorKind::AlreadyRunning => ExitCode::AlreadyRunning,
            ErrorKind::NeedsPerson => ExitCode::NeedsPerson,
            ErrorKind::ProviderUnusable => ExitCode::ProviderUnusable,
            // `longhaul events | head` did what was asked.
            ErrorKind::BrokenPipe => ExitCode::Done,
        }
    }

    /// Its name for scripts.
    pub fn code(self) -> &'static str {
        match self {
            ErrorKind::Usage => "usage",
            ErrorKind::Config => "config",
            ErrorKind::Failed => "failed",
            ErrorKind::Stopped => "stopped",
            ErrorKind::AlreadyRunning => "already_running",
            ErrorKind::NeedsPerson => "needs_person",
            ErrorKind::ProviderUnusable => "provider_unusable",
            ErrorKind::BrokenPipe => "broken_pipe",
            ErrorKind::Internal => "internal",
        }
    }
}

// === impl CliError ===

impl CliError {
    /// An error without hints.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        CliError { kind, message: message.into(), hints: Vec::new() }
    }

    /// Wrong arguments.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, message)
    }

    /// It did not work. `error` reads after "failed to".
    pub fn failed_to(error: impl std::fmt::Display) -> Self {
        Self::new(ErrorKind::Failed, format!("failed to {error}"))
    }

    /// Adds what to do next.
    #[must_use]
    pub fn hinted(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// As one line of JSON.
    pub fn to_json(&self) -> String {
        let CliError { kind, message, hints } = self;
        let error = AsJson { error: Inner { code: kind.code(), message, hints } };
        // Strings always serialise.
        serde_json::to_string(&error).unwrap_or_default()
    }
}

impl std::fmt::Display for CliError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CliError {}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> Self {
        let mut hints: Vec<String> = match &error {
            ConfigError::Invalid(problems) => {
                problems.iter().filter_map(|problem| problem.hint.clone()).collect()
            }
            ConfigError::Io { .. } => Vec::new(),
        };
        hints.dedup();
        let message = match error {
            ConfigError::Invalid(_) => error.to_string(),
            ConfigError::Io { .. } => format!("failed to {error}"),
        };
        CliError { kind: ErrorKind::Config, message, hints }
    }
}

/// An error of writing to stdout.
impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::new(ErrorKind::BrokenPipe, "stdout is closed"),
            _ => Self::failed_to(format_args!("write to stdout: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_names_code_message_and_hints() {
        let error = CliError::usage("no \"such\" thing").hinted("try another");
        assert_eq!(
            error.to_json(),
            r#"{"error":{"code":"usage","message":"no \"such\" thing","hints":["try another"]}}"#
        );
        assert_eq!(error.kind.exit_code() as u8, 2);
    }

    #[test]
    fn settings_errors_keep_their_hints() {
        let sources = crate::config::Sources {
            environment: vec![("LONGHAUL_RUN__RETRYS".into(), "1".into())],
            ..Default::default()
        };
        let error = CliError::from(crate::config::load(&sources).unwrap_err());
        assert_eq!(error.kind, ErrorKind::Config);
        assert_eq!(error.hints, ["did you mean `run.retries` instead of `run.retrys`?"]);
    }

    #[test]
    fn a_closed_stdout_is_no_error() {
        let error = CliError::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(error.kind.exit_code(), ExitCode::Done);
    }
}
