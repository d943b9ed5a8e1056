//! The command line, as typed. What it means is decided elsewhere: values that are settings stay text here and
//! are checked with the other layers of the configuration.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use super::error::{CliError, ErrorKind, ExitCode};
use super::output::{Colour, Output};
use crate::config::Override;
use crate::domain::ids::EventId;
use crate::providers::call::OurReason;

/// Runs coding agents unattended, for days, and loses nothing on the way.
#[derive(Debug, Parser)]
#[command(
    name = "longhaul",
    version,
    after_help = "Examples:
  longhaul init -t feature        write a SPEC.md to fill in
  longhaul run                    work on it until it is done
  longhaul run --agent './my-agent.sh --fast' --max-iterations 5
  longhaul status                 how is it going?
  longhaul say 'Use SQLite.'      tell the agent something
  longhaul stop                   end it; `run` goes on from there

Exit codes: 0 done, 1 failed, 2 usage or configuration, 3 stopped by a person, 4 already running,
5 needs a person (with --no-wait), 6 provider cannot be used."
)]
#[command(arg_required_else_help = true, propagate_version = false)]
pub struct Cli {
    /// Options that every command has.
    #[command(flatten)]
    pub global: GlobalArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options that every command has.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Options of every command")]
pub struct GlobalArgs {
    /// Project folder; else the nearest folder upward with a .longhaul/
    #[arg(long, global = true, value_name = "DIR")]
    pub project: Option<PathBuf>,
    /// When to use colours; NO_COLOR is respected
    #[arg(long, global = true, value_name = "auto|always|never", default_value = "auto")]
    #[arg(hide_possible_values = true, hide_default_value = true)]
    pub color: Colour,
    /// Print no notices, only results and errors
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// How much to log on stderr: off, error, warn, info, debug, trace
    #[arg(long, global = true, value_name = "LEVEL", default_value = "warn", hide_possible_values = true)]
    pub log_level: LogLevel,
}

/// How much is logged on stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// What went wrong.
    Error,
    /// What may go wrong.
    Warn,
    /// What happens.
    Info,
    /// How it happens.
    Debug,
    /// Everything.
    Trace,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the agent until the goals are met or a limit is reached
    Run(RunArgs),
    /// Show what the session is doing
    Status(JsonArgs),
    /// Hold the session after the call in flight
    Pause(ReasonArgs),
    /// Go on after a pause
    Resume(JsonArgs),
    /// End the session; `run` goes on from there
    Stop(StopArgs),
    /// Give the agent a message with its next prompt
    Say(SayArgs),
    /// Show what agents printed
    Logs(LogsArgs),
    /// Show what happened, event by event
    Events(EventsArgs),
    /// Check this host and project for what a session needs
    Doctor(JsonArgs),
    /// Set up a project: SPEC.md from a template, and settings
    Init(InitArgs),
    /// Watch a short session with a rehearsed agent; needs no account
    Demo(DemoArgs),
    /// Show and change settings
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Show or run the checks that a claim of completion must pass
    Gates(GatesArgs),
    /// Show the agents that can be called, and choose one
    #[command(subcommand)]
    Provider(ProviderCommand),
    /// Show what was spent, and what is left: here, and on this host today and this month
    Budget(BudgetArgs),
    /// Show which accounts are left alone on this host, until when and why
    Accounts(AccountsArgs),
    /// Try, list and repeat notifications: webhook, command, desktop
    Notify(NotifyArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
}

/// `--json` of reading commands.
#[derive(Debug, Clone, Copy, Args)]
pub struct JsonArgs {
    /// Print JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// `run`
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  longhaul run                              work on SPEC.md with the agent of the settings
  longhaul run plan.md --provider codex --model gpt-5.1 --budget 20
  longhaul run --max-duration 8h --no-wait  overnight; exit 5 rather than wait for a person
  longhaul run --agent 'python3 agent.py'   any program that reads a prompt on stdin

A session that was stopped, paused or cut off is continued; --fresh starts a new one.
Ctrl-C stops; a second one stops at once.")]
pub struct RunArgs {
    /// Spec to work from; else SPEC.md, where there is one
    #[arg(value_name = "SPEC")]
    pub spec: Option<PathBuf>,
    /// Agent to call (see `longhaul provider list`)
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,
    /// Command to call as the agent: split into words, no shell; the prompt comes on stdin
    #[arg(long, value_name = "CMD", conflicts_with_all = ["provider", "model"])]
    pub agent: Option<String>,
    /// Model to ask for
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// End after this many iterations of the whole session
    #[arg(long, value_name = "N")]
    pub max_iterations: Option<String>,
    /// End after this much time of the whole session, pauses not counted (8h, 2d)
    #[arg(long, value_name = "TIME")]
    pub max_duration: Option<String>,
    /// Spend at most this much, in US dollars
    #[arg(long, value_name = "USD")]
    pub budget: Option<String>,
    /// Go on with improvements when the goals are met
    #[arg(long)]
    pub perpetual: bool,
    /// Exit with code 5 instead of waiting for a person
    #[arg(long)]
    pub no_wait: bool,
    /// Start a new session instead of continuing the last one
    #[arg(long)]
    pub fresh: bool,
    /// Make the folder a git repository if it is none
    #[arg(long)]
    pub init_git: bool,
    /// Print each event as a line of JSON on stdout, and nothing else there
    #[arg(long)]
    pub json: bool,
}

/// `pause`
#[derive(Debug, Clone, Args)]
pub struct ReasonArgs {
    /// Why: shown by `status`
    #[arg(value_name = "REASON")]
    pub reason: Vec<String>,
    /// Print JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// `stop`
#[derive(Debug, Clone, Args)]
pub struct StopArgs {
    /// Kill the agent at once, without time to clean up
    #[arg(long)]
    pub now: bool,
    /// Why: shown by `status`
    #[arg(value_name = "REASON")]
    pub reason: Vec<String>,
    /// Print JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// `say`
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  longhaul say 'Use SQLite, not Postgres.'
  git diff main | longhaul say -

The message is safe on disk when the command returns. It goes into the next prompt, once.")]
pub struct SayArgs {
    /// The message; `-` reads it from stdin
    #[arg(value_name = "TEXT", required = true)]
    pub text: Vec<String>,
    /// Print JSON on stdout instead of the message's id
    #[arg(long)]
    pub json: bool,
}

/// `logs`
#[derive(Debug, Clone, Args)]
pub struct LogsArgs {
    /// Go on as more is printed
    #[arg(long, short)]
    pub follow: bool,
    /// Of this iteration; else of the last one
    #[arg(long, value_name = "N")]
    pub iteration: Option<u64>,
    /// Of this attempt of the iteration; else of its last one
    #[arg(long, value_name = "N")]
    pub attempt: Option<u32>,
    /// Print JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// `events`
#[derive(Debug, Clone, Args)]
pub struct EventsArgs {
    /// Go on as more happens
    #[arg(long, short)]
    pub follow: bool,
    /// Only what came after the event with this id
    #[arg(long, value_name = "ID")]
    pub since: Option<EventId>,
    /// Print each event as a line of JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// `init`
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  longhaul init                       settings, and a SPEC.md if there is none
  longhaul init -t bugfix             SPEC.md from the template `bugfix`
  longhaul init --list                the templates there are
  longhaul init --save api my-spec.md keep my-spec.md as the template `api`")]
pub struct InitArgs {
    /// Template for SPEC.md
    #[arg(long, short, value_name = "NAME", conflicts_with_all = ["list", "save"])]
    pub template: Option<String>,
    /// List the templates
    #[arg(long, conflicts_with = "save")]
    pub list: bool,
    /// Keep FILE as a template of yours
    #[arg(long, num_args = 2, value_names = ["NAME", "FILE"])]
    pub save: Option<Vec<OsString>>,
    /// Replace a SPEC.md, or a template of yours, that is there already
    #[arg(long, conflicts_with = "list")]
    pub force: bool,
    /// With --list: print JSON on stdout
    #[arg(long, requires = "list")]
    pub json: bool,
}

/// `demo`
#[derive(Debug, Clone, Args)]
pub struct DemoArgs {
    /// Folder to work in; else one in the temporary folder
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// `config`
#[derive(Debug, Clone, Subcommand)]
#[command(after_help = "Examples:
  longhaul config show --origin          every setting, and where it came from
  longhaul config get run.retries
  longhaul config set stop.grace 10s     in the project's .longhaul/config.toml
  longhaul config check my-config.toml

Layers: defaults < ~/.config/longhaul/config.toml < .longhaul/config.toml
        < environment (LONGHAUL_SECTION__KEY) < command line")]
pub enum ConfigCommand {
    /// Show the settings in force; secrets are masked
    Show {
        /// Say where each came from
        #[arg(long)]
        origin: bool,
        /// Print JSON on stdout
        #[arg(long)]
        json: bool,
    },
    /// Print one setting, or those of a section
    Get {
        /// For example run.retries
        #[arg(value_name = "KEY")]
        key: String,
        /// Print JSON on stdout
        #[arg(long)]
        json: bool,
    },
    /// Set one in the project's file; a running session applies it at its next iteration
    Set {
        /// For example run.retries
        #[arg(value_name = "KEY")]
        key: String,
        /// As in the file; text needs no quotes
        #[arg(value_name = "VALUE", allow_hyphen_values = true)]
        value: String,
    },
    /// Check the settings in force, or one file
    Check {
        /// File to check by itself
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        /// Print JSON on stdout
        #[arg(long)]
        json: bool,
    },
}

/// `gates`
#[derive(Debug, Clone, Copy, Args)]
pub struct GatesArgs {
    /// Run them now, in the project folder
    #[arg(long)]
    pub run: bool,
    /// Print JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// `provider`
#[derive(Debug, Clone, Subcommand)]
pub enum ProviderCommand {
    /// List them, and which can be used here
    List(JsonArgs),
    /// Use one from the next iteration on
    Use {
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
        /// Print JSON on stdout
        #[arg(long)]
        json: bool,
    },
    /// Say of each whether it is installed, in which version, and whether it can answer
    Check(CheckArgs),
    /// Log in with the CLI's own command
    Login {
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Log out with the CLI's own command
    Logout {
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Say what a recorded call came to, and why; nothing is written
    Classify(ClassifyArgs),
}

/// `provider check`
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  longhaul provider check                  those of the failover chain
  longhaul provider check claude --probe   and let it answer one short question, which may cost a cent")]
pub struct CheckArgs {
    /// Whom to look at; by default those of the failover chain
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Let each answer one short question: costs what that costs
    #[arg(long)]
    pub probe: bool,
    /// Print JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// `provider classify`
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  longhaul provider classify --provider claude --exit 1 --stdout out.jsonl --stderr err.txt
  longhaul provider classify --provider codex --exit 1 --stdout out.jsonl --now 2026-11-30T20:00:00Z --tz Europe/London --json

The output of each attempt is in .longhaul/logs/.")]
pub struct ClassifyArgs {
    /// Whose output it is
    #[arg(long, value_name = "NAME")]
    pub provider: String,
    /// Exit code of the call
    #[arg(
        long,
        value_name = "N",
        required_unless_present = "signal",
        conflicts_with = "signal",
        allow_negative_numbers = true
    )]
    pub exit: Option<i32>,
    /// Signal that ended it
    #[arg(long, value_name = "N")]
    pub signal: Option<i32>,
    /// File with what it printed on stdout
    #[arg(long, value_name = "FILE")]
    pub stdout: Option<PathBuf>,
    /// File with what it printed on stderr
    #[arg(long, value_name = "FILE")]
    pub stderr: Option<PathBuf>,
    /// When it ended; now by default
    #[arg(long, value_name = "TIME")]
    pub now: Option<String>,
    /// Time zone of the host that made the call; that of this host by default
    #[arg(long, value_name = "ZONE")]
    pub tz: Option<String>,
    /// Why Longhaul ended it, if it did
    #[arg(long, value_name = "WHY")]
    pub ended_by: Option<EndedBy>,
    /// The call changed files
    #[arg(long)]
    pub changed: bool,
    /// Print JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// Why a recorded call was ended by its supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum EndedBy {
    /// A person, or the end of the session
    Stop,
    /// The limit to the first output
    FirstOutput,
    /// The limit without a sign of life
    Silence,
    /// The limit for the whole call
    Total,
    /// It did not leave after its result
    Linger,
    /// A cap on turns, tokens, memory or money
    Cap,
    /// The limit for making failed requests again
    Retrying,
}

impl From<EndedBy> for OurReason {
    fn from(by: EndedBy) -> Self {
        match by {
            EndedBy::Stop => OurReason::Stop,
            EndedBy::FirstOutput => OurReason::FirstOutput,
            EndedBy::Silence => OurReason::Silence,
            EndedBy::Total => OurReason::Total,
            EndedBy::Linger => OurReason::Linger,
            EndedBy::Cap => OurReason::Cap,
            EndedBy::Retrying => OurReason::Retrying,
        }
    }
}

/// `budget`
#[derive(Debug, Clone, Copy, Args)]
#[command(after_help = "Examples:
  longhaul budget                     this session and project, and this host today and this month
  longhaul budget --by project        which project spent how much this month
  longhaul config set budget.usd 40   raise the limit of the session")]
pub struct BudgetArgs {
    /// Also show the shares of this month's calls, of all projects of this host
    #[arg(long, value_name = "provider|project|day", hide_possible_values = true)]
    pub by: Option<By>,
    /// Print JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// What shares are made by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// Providers.
    Provider,
    /// Projects.
    Project,
    /// Days.
    Day,
}

/// `accounts`
#[derive(Debug, Clone, Args)]
pub struct AccountsArgs {
    /// What to do; without one they are listed
    #[command(subcommand)]
    pub command: Option<AccountsCommand>,
    /// Print JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// `accounts`
#[derive(Debug, Clone, Subcommand)]
pub enum AccountsCommand {
    /// Have an account tried again now, in all projects
    Clear {
        /// The provider that this project calls it with, or its whole name
        #[arg(value_name = "ACCOUNT")]
        account: String,
        /// Print JSON on stdout
        #[arg(long)]
        json: bool,
    },
}

/// `notify`
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  longhaul config set notify.webhook https://example.com/hook
  longhaul notify test")]
pub struct NotifyArgs {
    /// What to do; without one they are listed
    #[command(subcommand)]
    pub command: Option<NotifyCommand>,
    /// Print JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// `notify`
#[derive(Debug, Clone, Subcommand)]
pub enum NotifyCommand {
    /// Send a test by each channel that is set, and say what comes of it
    Test {
        /// Print JSON on stdout
        #[arg(long)]
        json: bool,
    },
    /// List those of the last 90 days, the newest first
    List {
        /// Print JSON on stdout
        #[arg(long)]
        json: bool,
    },
    /// Have the next run send what has not arrived, or may not have
    Retry {
        /// Its id
        #[arg(value_name = "ID", required_unless_present = "all")]
        id: Option<String>,
        /// All of them
        #[arg(long, conflicts_with = "id")]
        all: bool,
        /// Print JSON on stdout
        #[arg(long)]
        json: bool,
    },
}

/// `completions`
#[derive(Debug, Clone, Copy, Args)]
#[command(after_help = "Example:
  longhaul completions bash > ~/.local/share/bash-completion/completions/longhaul")]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// Whether the arguments (without the program's name) ask for the version alone: answered without building the
/// whole command line, as scripts and prompts ask often.
pub fn asks_version(arguments: &[OsString]) -> bool {
    matches!(arguments, [only] if only == "--version" || only == "-V")
}

/// Reads the arguments, program name first. `Err`: what was to say has been said; exit with this code.
pub fn parse(arguments: &[OsString], output: &mut Output) -> Result<Cli, ExitCode> {
    let command = Cli::command().color(output.colour().into());
    let parsed = command.try_get_matches_from(arguments).and_then(|matches| Cli::from_arg_matches(&matches));
    parsed.map_err(|error| {
        let json = arguments.iter().any(|argument| argument == "--json");
        if error.exit_code() != 0 && json {
            output.error(&usage_error(&error), true);
        } else {
            // Nobody is left to hear it when printing fails.
            drop(error.print());
        }
        if error.exit_code() == 0 { ExitCode::Done } else { ExitCode::Usage }
    })
}

/// clap's text, cut into message and hints.
fn usage_error(error: &clap::Error) -> CliError {
    let text = error.render().to_string();
    let mut parts = text.split("\n\n").map(str::trim).filter(|part| !part.is_empty());
    let message = parts.next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    let hints = parts.map(|part| part.trim_start_matches("tip: ").to_owned()).collect();
    CliError { kind: ErrorKind::Usage, message, hints }
}

// === impl Cli ===

impl Cli {
    /// Whether machine output was asked for: errors are then JSON too.
    pub fn json(&self) -> bool {
        match &self.command {
            Command::Run(RunArgs { json, .. })
            | Command::Status(JsonArgs { json })
            | Command::Pause(ReasonArgs { json, .. })
            | Command::Resume(JsonArgs { json })
            | Command::Stop(StopArgs { json, .. })
            | Command::Say(SayArgs { json, .. })
            | Command::Doctor(JsonArgs { json })
            | Command::Logs(LogsArgs { json, .. })
            | Command::Events(EventsArgs { json, .. })
            | Command::Init(InitArgs { json, .. })
            | Command::Gates(GatesArgs { json, .. })
            | Command::Provider(
                ProviderCommand::List(JsonArgs { json })
                | ProviderCommand::Use { json, .. }
                | ProviderCommand::Check(CheckArgs { json, .. })
                | ProviderCommand::Classify(ClassifyArgs { json, .. }),
            )
            | Command::Budget(BudgetArgs { json, .. })
            | Command::Accounts(
                AccountsArgs { command: Some(AccountsCommand::Clear { json, .. }), .. }
                | AccountsArgs { command: None, json },
            )
            | Command::Notify(
                NotifyArgs {
                    command:
                        Some(
                            NotifyCommand::Test { json }
                            | NotifyCommand::List { json }
                            | NotifyCommand::Retry { json, .. },
                        ),
                    ..
                }
                | NotifyArgs { command: None, json },
            )
            | Command::Config(
                ConfigCommand::Show { json, .. }
                | ConfigCommand::Get { json, .. }
                | ConfigCommand::Check { json, .. },
            ) => *json,
            Command::Demo(_)
            | Command::Config(ConfigCommand::Set { .. })
            | Command::Completions(_)
            | Command::Provider(ProviderCommand::Login { .. } | ProviderCommand::Logout { .. }) => false,
        }
    }
}

// === impl RunArgs ===

impl RunArgs {
    /// The options that are settings, for [`Sources`](crate::config::Sources).
    pub fn overrides(&self) -> Vec<Override> {
        let text = [
            ("provider.name", &self.provider, "--provider"),
            ("provider.model", &self.model, "--model"),
            ("run.max_iterations", &self.max_iterations, "--max-iterations"),
            ("run.max_duration", &self.max_duration, "--max-duration"),
            ("budget.usd", &self.budget, "--budget"),
        ];
        let switches = [
            ("run.perpetual", self.perpetual, "true", "--perpetual"),
            ("run.wait", self.no_wait, "false", "--no-wait"),
        ];
        let given =
            text.into_iter().filter_map(|(key, value, option)| Some((key, value.as_deref()?, option)));
        let on = switches
            .into_iter()
            .filter(|(_, on, ..)| *on)
            .map(|(key, _, value, option)| (key, value, option));
        given
            .chain(on)
            .map(|(key, value, option)| Override {
                key: key.to_owned(),
                value: value.to_owned(),
                option: option.to_owned(),
            })
            .collect()
    }
}

// === impl ReasonArgs ===

impl ReasonArgs {
    /// The words as one line; empty: none was given.
    pub fn text(&self) -> String {
        self.reason.join(" ")
    }
}

// === impl StopArgs ===

impl StopArgs {
    /// The words as one line; empty: none was given.
    pub fn text(&self) -> String {
        self.reason.join(" ")
    }
}

// === impl SayArgs ===

impl SayArgs {
    /// The message; `None`: it comes on stdin.
    pub fn message(&self) -> Option<String> {
        if self.text == ["-"] { None } else { Some(self.text.join(" ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(shlex::split(line).unwrap())
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn options_of_run_become_settings() {
        let line = "longhaul run spec.md --provider codex --model m --max-iterations 5 --max-duration 8h --budget 20 \
                    --perpetual --no-wait";
        let Command::Run(run) = read(line).unwrap().command else { panic!("run") };
        let overrides = run.overrides();
        let shown: Vec<String> =
            overrides.iter().map(|o| format!("{}={} {}", o.key, o.value, o.option)).collect();
        assert_eq!(
            shown,
            [
                "provider.name=codex --provider",
                "provider.model=m --model",
                "run.max_iterations=5 --max-iterations",
                "run.max_duration=8h --max-duration",
                "budget.usd=20 --budget",
                "run.perpetual=true --perpetual",
                "run.wait=false --no-wait",
            ]
        );
        let sources = crate::config::Sources { overrides, ..Default::default() };
        let config = crate::config::load(&sources).unwrap().config;
        assert_eq!((config.run.max_iterations, config.run.wait), (Some(5), false));
    }

    #[test]
    fn usage_is_checked() {
        for line in [
            "longhaul",
            "longhaul nonsense",
            "longhaul run --provider x --agent y",
            "longhaul run --nonsense",
            "longhaul say",
            "longhaul init --save only-name",
            "longhaul init --list -t x",
            "longhaul events --since nonsense",
            "longhaul completions nonsense",
        ] {
            assert_eq!(read(line).unwrap_err().exit_code(), 2, "{line}");
        }
        for line in [
            "longhaul --project /x status --json",
            "longhaul status --project /x --color never --quiet",
            "longhaul stop --now out of time",
            "longhaul config set run.retries -1",
            "longhaul init --save name file --force",
            "longhaul events -f --since 01JABCDEFGHJKMNPQRSTVWXYZ0",
        ] {
            assert!(read(line).is_ok(), "{line}");
        }
        assert_eq!(read("longhaul run --help").unwrap_err().exit_code(), 0);
    }

    #[test]
    fn a_dash_alone_reads_stdin() {
        let message = |line| match read(line).unwrap().command {
            Command::Say(say) => say.message(),
            _ => panic!("say"),
        };
        assert_eq!(message("longhaul say -"), None);
        assert_eq!(message("longhaul say use SQLite"), Some("use SQLite".into()));
    }

    #[test]
    fn usage_errors_are_json_where_json_was_asked_for() {
        let (mut output, buffers) = Output::captured();
        let arguments = ["longhaul", "status", "--json", "--nonsense"].map(OsString::from);
        assert_eq!(parse(&arguments, &mut output).unwrap_err(), ExitCode::Usage);
        let error: serde_json::Value = serde_json::from_str(&buffers.err()).unwrap();
        assert_eq!(error["error"]["code"], "usage");
        assert_eq!(error["error"]["message"], "unexpected argument '--nonsense' found");
        assert_eq!(buffers.out(), "");
    }

    #[test]
    fn the_version_alone_is_cheap() {
        let ask =
            |arguments: &[&str]| asks_version(&arguments.iter().map(OsString::from).collect::<Vec<_>>());
        assert!(ask(&["--version"]) && ask(&["-V"]));
        assert!(!ask(&[]) && !ask(&["run", "--version"]));
    }
}
