//! The `longhaul` program: parse, dispatch, exit code.

use std::ffi::OsString;
use std::process::ExitCode as Code;

use longhaul::cli::args::{Cli, Command, asks_version, parse};
use longhaul::cli::error::{CliError, ExitCode};
use longhaul::cli::output::{Colour, Output};
use longhaul::cli::{completions, config, run};
use longhaul::config::{Environment, Lookup, Sources};
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
    let project = cli.global.project.as_deref();
    match &cli.command {
        Command::Run(args) => run::run(args, project, environment, output),
        Command::Completions(args) => completions::completions(args, output),
        _ => todo!(),
    }
}

/// Logs are for people who look for a fault; what a run tells is in its events.
fn log_to_stderr(cli: &Cli) {
    use tracing_subscriber::filter::LevelFilter;
    let _ = (cli, LevelFilter::OFF);
}
