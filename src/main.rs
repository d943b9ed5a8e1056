//! The `longhaul` program: parse, dispatch, exit code.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode as Code;

use longhaul::cli::args::{Cli, Command, LogLevel, asks_version, parse};
use longhaul::cli::error::{CliError, ExitCode};
use longhaul::cli::output::{Colour, Output};
use longhaul::cli::project::Project;
use longhaul::cli::{
    accounts, budget, completions, config, control, demo, doctor, events, gates, init, logs, notify,
    provider, run, status,
};
use longhaul::config::Environment;
use longhaul::process;

fn main() -> Code {
    // The keeper is this program, small: nothing may run before it.
    if process::is_keeper_invocation() {
        process::keeper_main();
    }
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if asks_version(arguments.get(1..).unwrap_or_default()) {
        println!("longhaul {}", env!("CARGO_PKG_VERSION"));
        return Code::SUCCESS;
    }
    let environment = Environment::read();
    let mut output = Output::standard(Colour::typed(&arguments), &environment);
    let cli = match parse(&arguments, &mut output) {
        Ok(cli) => cli,
        Err(code) => return Code::from(code as u8),
    };
    output.set_quiet(cli.global.quiet);
    log_to_stderr(&cli);
    match dispatch(&cli, &environment, &mut output) {
        Ok(code) => Code::from(code as u8),
        Err(error) => {
            output.error(&error, cli.json());
            Code::from(error.kind.exit_code() as u8)
        }
    }
}

fn dispatch(cli: &Cli, environment: &Environment, output: &mut Output) -> Result<ExitCode, CliError> {
    let named = cli.global.project.as_deref();
    let project = || Project::find(named, environment);
    let required = || Project::required(named, environment);
    match &cli.command {
        Command::Run(args) => run::run(args, named, environment, output),
        Command::Status(args) => status::status(*args, &project()?, output),
        Command::Pause(args) => control::pause(args, &required()?, output),
        Command::Resume(args) => control::resume(*args, &required()?, output),
        Command::Stop(args) => control::stop(args, &required()?, output),
        Command::Say(args) => control::say(args, &required()?, &mut std::io::stdin(), output),
        Command::Events(args) => events::events(args, &project()?, output),
        Command::Config(command) => config::config(command, &project()?.sources(), output),
        Command::Doctor(args) => doctor::doctor(*args, &project()?, output),
        Command::Logs(args) => logs::logs(args, &project()?, output),
        Command::Completions(args) => completions::completions(args, output),
        Command::Gates(args) => gates::gates(*args, &project()?, output),
        Command::Budget(args) => budget::budget(args, &project()?, output),
        Command::Accounts(args) => accounts::accounts(args, &project()?, output),
        Command::Notify(args) => notify::notify(args, &project()?, output),
        Command::Provider(command) => provider::provider(command, &project()?, output),
        Command::Init(args) => start(args, &project()?, environment, output),
        Command::Demo(args) => demo::demo(args, environment, output),
    }
}

/// `init`, with what it needs from the rest of the program.
fn start(
    args: &longhaul::cli::args::InitArgs,
    project: &Project,
    environment: &Environment,
    output: &mut Output,
) -> Result<ExitCode, CliError> {
    let templates = longhaul::intake::template::Templates::new(environment.longhaul_home().as_deref());
    let detect = |root: &std::path::Path| {
        let gates = longhaul::config::Gates {
            detect: true,
            timeout: std::time::Duration::from_secs(300),
            commands: Vec::new(),
        };
        longhaul::intake::gates::gates_of(&gates, root)
    };
    let exclude =
        |root: &std::path::Path| longhaul::git::exclude(root, longhaul::git::Environment::current());
    let hooks = init::InitHooks { detect_gates: &detect, exclude: &exclude };
    init::init(args, &project.paths, &templates, &hooks, output)
}

/// Logs are for people who look for a fault; what a run tells is in its events.
fn log_to_stderr(cli: &Cli) {
    use tracing_subscriber::filter::LevelFilter;
    let level = match cli.global.log_level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let log = tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(level);
    log.with_target(false).with_ansi(colours).init();
}
