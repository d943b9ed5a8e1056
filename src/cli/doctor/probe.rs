//! Whether an agent can really answer: one short question, judged as any call is.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use super::check::Check;
use crate::cli::format;
use crate::cli::project::Project;
use crate::cli::provider::env;
use crate::config::Config;
use crate::domain::outcome::{Outcome, Usage, Verdict};
use crate::process::{CallSpec, CaptureError, MAX_LINE, read_lines, run_capture};
use crate::providers::call::{CallEnd, CallRequest, OurReason, Stream};
use crate::providers::classify::classify;
use crate::providers::command_line::{self, Host};
use crate::providers::decode::{DecoderOptions, Transcript, decoder};
use crate::providers::definition::Definition;
use crate::providers::registry::Registry;

/// What is asked.
const QUESTION: &str = "Reply with the single word OK. Do not use any tool.";

/// How long an answer may take: some CLIs start in half a minute on a busy host, and try again by themselves.
const LIMIT: Duration = Duration::from_secs(180);

/// Asks, in an empty folder of its own.
pub(super) fn answers(
    definition: &Definition,
    registry: &Registry,
    project: &Project,
    config: &Config,
) -> Check {
    let name = format!("{} answer", definition.name);
    match ask(definition, registry, project, config) {
        Ok((verdict, transcript, took)) => judged(name, definition, &verdict, &transcript, took),
        Err(why) => Check::fail(name, why),
    }
}

fn ask(
    definition: &Definition,
    registry: &Registry,
    project: &Project,
    config: &Config,
) -> Result<(Verdict, Transcript, Duration), String> {
    let folder = tempfile::tempdir().map_err(|error| format!("cannot make a folder to ask in: {error}"))?;
    let own = config.providers.get(&definition.name);
    let env = env(project, config, &definition.name);
    let mut keep = config.agent.env_keep.clone();
    keep.extend(own.iter().flat_map(|own| own.env.keys().cloned()));
    let host = Host {
        env: &env,
        root: rustix::process::geteuid().is_root(),
        project: &project.paths.root,
        keep: &keep,
        foreign_keys: &registry.foreign_keys(definition),
    };
    let request = CallRequest {
        prompt: QUESTION.to_owned(),
        model: config.model_for(&definition.name).map(str::to_owned),
        cwd: folder.path().to_owned(),
        ..CallRequest::default()
    };
    let line = command_line::build(definition, &request, &host).map_err(|error| error.to_string())?;
    let mut argv = vec![line.program.into_os_string()];
    argv.extend(line.args);
    argv.extend(own.iter().flat_map(|own| own.args.iter().map(OsString::from)));
    let stdin = line.stdin.unwrap_or_default();
    let spec = CallSpec { argv, env: line.env.into_iter().collect(), cwd: line.cwd, stdin };
    let Some(mut decoder) = decoder(definition.output, DecoderOptions::default()) else {
        return Err("it runs in process".to_owned());
    };
    let began = Instant::now();
    let (said, end) = match run_capture(&spec, LIMIT) {
        Ok(said) => {
            let end = CallEnd::exited(said.exit);
            ([(Stream::Stderr, said.stderr), (Stream::Stdout, said.stdout)], end)
        }
        Err(CaptureError::TimedOut { said: [stdout, stderr], .. }) => {
            let killed = crate::domain::outcome::Exit::Signal(9);
            let end = CallEnd { exit: Ok(killed), ended_by: Some(OurReason::Total) };
            ([(Stream::Stderr, stderr), (Stream::Stdout, stdout)], end)
        }
        Err(error) => return Err(error.to_string()),
    };
    for (stream, bytes) in said {
        let lines = read_lines(&mut bytes.as_slice(), MAX_LINE, |line| {
            if let crate::process::Line::Whole(line) = line {
                decoder.line(stream, line, false);
            }
        });
        lines.map_err(|error| error.to_string())?;
    }
    let transcript = decoder.finish(&end);
    let now = project.clock.now().to_zoned_datetime(project.zone.clone());
    let verdict = classify(definition, &transcript, &end, false, &now);
    Ok((verdict, transcript, began.elapsed()))
}

fn judged(
    name: String,
    definition: &Definition,
    verdict: &Verdict,
    transcript: &Transcript,
    took: Duration,
) -> Check {
    if matches!(verdict.outcome, Outcome::Completed { .. }) {
        let model = transcript.model.as_deref().map_or_else(String::new, |model| format!(", {model}"));
        let cost = cost(&transcript.usage);
        return Check::ok(name, format!("came after {:.1} s{model}{cost}", took.as_secs_f64()));
    }
    let evidence = format::one_line(&verdict.evidence.text, 200);
    let failed = Check::fail(name, format!("{} ({}): {evidence}", verdict.outcome, verdict.rule));
    match (&verdict.outcome, &definition.login) {
        (Outcome::AuthFailed, Some(login)) => failed.advised(login.clone()),
        (Outcome::AuthFailed, None) => failed.advised("renew its credential"),
        (Outcome::ModelUnavailable, _) => {
            failed.advised("choose another model: `longhaul config set provider.model NAME`")
        }
        (Outcome::NetworkDown, _) => {
            failed.advised("look at the network, at proxies, and at the server's address in its settings")
        }
        _ => failed.advised("call it by hand and see what it says"),
    }
}

fn cost(usage: &Usage) -> String {
    match (usage.cost_usd, usage.input_tokens, usage.output_tokens) {
        (Some(usd), ..) => format!(", ${usd:.4}"),
        (None, Some(input), Some(output)) => format!(", {input} + {output} tokens"),
        _ => String::new(),
    }
}
