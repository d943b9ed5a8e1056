//! `longhaul completions SHELL`

use clap::CommandFactory;

use super::args::{Cli, CompletionsArgs};
use super::error::{CliError, ExitCode};
use super::output::Output;

/// Prints the completion script.
pub fn completions(arguments: &CompletionsArgs, output: &mut Output) -> Result<ExitCode, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "longhaul", &mut script);
    output.bytes(&script)?;
    Ok(ExitCode::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;
    use clap_complete::Shell;

    #[test]
    fn each_shell_has_a_script() {
        for shell in Shell::value_variants() {
            let (mut output, captured) = Output::captured();
            completions(&CompletionsArgs { shell: *shell }, &mut output).unwrap();
            assert!(captured.out().contains("max-iterations"), "{shell}");
        }
    }
}
