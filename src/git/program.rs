//! The one way to run the git program.
//!
//! It can never ask a person, open an editor or a pager, or take optional locks; it has a time limit; and it is
//! ended as a group, with TERM first so that git removes its lock files (a KILL leaves them behind).

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::Environment;
use super::running::{End, Running};

/// What keeps git from waiting for a person or for another git (Public report: `git notes append -m ""` opened
/// an editor on some versions and hung).
const QUIET: &[(&str, &str)] = &[
    ("GIT_EDITOR", "true"),
    ("GIT_SEQUENCE_EDITOR", "true"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", "true"),
    ("SSH_ASKPASS", "true"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_PAGER", "cat"),
    ("LC_ALL", "C"),
];

/// Long enough for any single git command of ours on a large repository and a slow disk.
const LIMIT: Duration = Duration::from_secs(60);

/// The git program: where it is, with which environment it runs, and how often it has run.
#[derive(Debug)]
pub struct Program {
    environment: Environment,
    path: OnceLock<Option<PathBuf>>,
    calls: AtomicU64,
}

/// One command to be run.
#[derive(Debug)]
#[must_use = "a call does nothing until it is run"]
pub struct Call<'a> {
    program: &'a Program,
    arguments: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    stdin: &'a [u8],
    limit: Duration,
    accepted: &'a [i32],
}

/// What a command printed and how it ended.
#[derive(Debug)]
pub struct Output {
    /// Exit code: 0 or one of those that [`Call::accept`] named.
    pub code: i32,
    /// All of standard output.
    pub stdout: Vec<u8>,
    /// The first 64 KiB of standard error, for people.
    pub stderr: String,
}

/// Why a command did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// There is no git on PATH.
    #[error("run git: no such program on PATH")]
    NotFound,
    /// It is there but could not be started.
    #[error("start {path}: {source}", path = path.display())]
    Start {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Talking to it failed.
    #[error("talk to git {command}: {source}")]
    Talk {
        /// Its subcommand.
        command: String,
        /// Why.
        source: io::Error,
    },
    /// It took longer than its time limit and was ended.
    #[error("run git {command} within {limit:?}")]
    TimedOut {
        /// Its subcommand.
        command: String,
        /// The limit.
        limit: Duration,
    },
    /// It printed more than 256 MiB.
    #[error("run git {command}: it printed more than can be kept")]
    TooMuchOutput {
        /// Its subcommand.
        command: String,
    },
    /// It said no.
    #[error("run git {command} (exit code {code}): {stderr}")]
    Failed {
        /// Its subcommand.
        command: String,
        /// Its exit code.
        code: i32,
        /// What it said.
        stderr: String,
    },
    /// A signal ended it.
    #[error("run git {command}: signal {signal} ended it")]
    Killed {
        /// Its subcommand.
        command: String,
        /// Which signal.
        signal: i32,
    },
}

// === impl Program ===

impl Program {
    /// Looks for git only when it is first run.
    pub fn new(environment: Environment) -> Self {
        Program { environment, path: OnceLock::new(), calls: AtomicU64::new(0) }
    }

    /// The environment it runs with.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Where git is; `None` when it is not on PATH.
    pub fn path(&self) -> Option<&Path> {
        self.path.get_or_init(|| self.environment.find_program("git")).as_deref()
    }

    /// How many times git was started.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// A command to be run in `folder`. Hooks are off, and so is everything that would start background work.
    pub fn call<'a>(&'a self, folder: &Path, command: &str) -> Call<'a> {
        let mut arguments: Vec<OsString> = vec!["-C".into(), folder.into()];
        for setting in
            ["core.hooksPath=/dev/null", "core.fsmonitor=false", "gc.auto=0", "maintenance.auto=false"]
        {
            arguments.push("-c".into());
            arguments.push(setting.into());
        }
        arguments.push(command.into());
        Call { program: self, arguments, variables: Vec::new(), stdin: &[], limit: LIMIT, accepted: &[0] }
    }
}

// === impl Call ===

impl<'a> Call<'a> {
    /// Adds an argument.
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().into());
        self
    }

    /// Adds arguments.
    pub fn args<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|a| a.as_ref().into()));
        self
    }

    /// Adds `-c name=value` for this command alone.
    pub fn config(mut self, setting: &str) -> Self {
        // After `-C folder`, before the subcommand.
        self.arguments.splice(2..2, ["-c".into(), setting.into()]);
        self
    }

    /// Sets a variable for this command alone.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.variables.push((name.into(), value.as_ref().into()));
        self
    }

    /// What it writes is synced before it ends, when `durable`. By itself git syncs packs but no loose objects.
    pub fn durable(self, durable: bool) -> Self {
        // The first setting is from git 2.36, the second is for older ones.
        if durable { self.config("core.fsync=all").config("core.fsyncObjectFiles=true") } else { self }
    }

    /// Gives these bytes on standard input; without it there is none.
    pub fn stdin(mut self, bytes: &'a [u8]) -> Self {
        self.stdin = bytes;
        self
    }

    /// Another time limit than one minute.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Exit codes that are answers rather than failures; instead of just 0.
    pub fn accept(mut self, codes: &'a [i32]) -> Self {
        self.accepted = codes;
        self
    }

    /// Runs it and waits for its end.
    pub fn run(self) -> Result<Output, ProgramError> {
        let command = self.command_name();
        let talk = |source| ProgramError::Talk { command: command.clone(), source };
        let mut child = Running::new(self.start()?).map_err(talk)?;
        let deadline = Instant::now() + self.limit;
        let end = child.converse(self.stdin, deadline).map_err(talk)?;
        let (stdout, stderr) = (std::mem::take(&mut child.stdout), std::mem::take(&mut child.stderr));
        match end {
            End::Exited(status) => self.judge(command, status, stdout, &stderr),
            End::TimedOut => Err(ProgramError::TimedOut { command, limit: self.limit }),
            End::TooMuch => Err(ProgramError::TooMuchOutput { command }),
        }
    }

    fn judge(
        &self,
        command: String,
        status: ExitStatus,
        stdout: Vec<u8>,
        stderr: &[u8],
    ) -> Result<Output, ProgramError> {
        let stderr = String::from_utf8_lossy(stderr).trim_end().to_owned();
        match (status.code(), status.signal()) {
            (Some(code), _) if self.accepted.contains(&code) => Ok(Output { code, stdout, stderr }),
            (Some(code), _) => Err(ProgramError::Failed { command, code, stderr }),
            (None, signal) => Err(ProgramError::Killed { command, signal: signal.unwrap_or_default() }),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "this is the one way to run git")]
    fn start(&self) -> Result<Child, ProgramError> {
        let path = self.program.path().ok_or(ProgramError::NotFound)?;
        let stdin = if self.stdin.is_empty() { Stdio::null() } else { Stdio::piped() };
        let child = Command::new(path)
            .args(&self.arguments)
            .env_clear()
            .envs(self.program.environment.variables())
            .envs(QUIET.iter().copied())
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|source| match source.kind() {
                io::ErrorKind::NotFound => ProgramError::NotFound,
                _ => ProgramError::Start { path: path.to_owned(), source },
            })?;
        self.program.calls.fetch_add(1, Ordering::Relaxed);
        Ok(child)
    }

    /// The subcommand, for messages: the first word after `-C folder` and the `-c` pairs.
    fn command_name(&self) -> String {
        let mut words = self.arguments.iter().skip(2);
        while let Some(word) = words.next() {
            match word.to_str() {
                Some("-c") => drop(words.next()),
                _ => return word.to_string_lossy().into_owned(),
            }
        }
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that runs this shell script in place of git.
    fn scripted(script: &str) -> (tempfile::TempDir, Program) {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("git");
        std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = std::env::join_paths([folder.path(), Path::new("/usr/bin"), Path::new("/bin")]).unwrap();
        let program = Program::new(Environment::of([("PATH".into(), path)]));
        (folder, program)
    }

    #[test]
    fn feeds_and_drains_more_than_a_pipe_holds() {
        let (_folder, program) = scripted("cat");
        let input = vec![b'x'; 1 << 20];
        let output = program.call(Path::new("/"), "hash").stdin(&input).run().unwrap();
        assert_eq!(output.stdout.len(), input.len());
        assert_eq!(program.calls(), 1);
    }

    #[test]
    fn never_asks_a_person() {
        let (_folder, program) = scripted("env; cat; exec </dev/tty");
        let error = program.call(Path::new("/"), "x").run().unwrap_err();
        assert!(matches!(error, ProgramError::Failed { .. } | ProgramError::Killed { .. }), "{error}");
        let (_folder, program) = scripted("env");
        let output = program.call(Path::new("/"), "x").env("A", "b").run().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        for line in ["GIT_EDITOR=true", "GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=true", "LC_ALL=C", "A=b"] {
            assert!(text.lines().any(|l| l == line), "{line} in {text}");
        }
    }

    #[test]
    fn tells_a_missing_program_from_a_failing_one() {
        let nowhere = Program::new(Environment::of([("PATH".into(), "/nonexistent".into())]));
        assert!(matches!(nowhere.call(Path::new("/"), "x").run(), Err(ProgramError::NotFound)));
        assert_eq!(nowhere.calls(), 0);
        let (_folder, program) = scripted("echo 'fatal: no' >&2; exit 128");
        match program.call(Path::new("/"), "write-tree").config("a.b=c").run() {
            Err(ProgramError::Failed { command, code: 128, stderr }) => {
                assert_eq!((command.as_str(), stderr.as_str()), ("write-tree", "fatal: no"));
            }
            other => panic!("{other:?}"),
        }
        let output = program.call(Path::new("/"), "diff").accept(&[0, 128]).run().unwrap();
        assert_eq!(output.code, 128);
    }

    #[test]
    fn ends_the_group_at_the_time_limit_with_term_first() {
        let (folder, program) = scripted("trap 'echo cleaned >\"$0.log\"; exit 1' TERM; sleep 600 & wait");
        let call = program.call(Path::new("/"), "add").limit(Duration::from_millis(200));
        assert!(matches!(call.run(), Err(ProgramError::TimedOut { .. })));
        assert_eq!(std::fs::read_to_string(folder.path().join("git.log")).unwrap(), "cleaned\n");
    }

    #[test]
    fn does_not_wait_for_background_children_that_hold_the_pipes() {
        let (_folder, program) = scripted("sleep 3 & echo done");
        let output = program.call(Path::new("/"), "x").run().unwrap();
        assert_eq!(output.stdout, b"done\n");
    }
}
