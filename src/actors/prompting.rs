//! What a call is asked and how: from the state, the spec and the settings to a prompt and a command line.
//! Blocking; run on a blocking thread.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use super::context::ProjectCtx;
use super::lane::marks;
use super::rehearsal::Rehearsal;
use super::vital_signs::Limits;
use crate::domain::event::{Body, Mode};
use crate::domain::ids::MessageId;
use crate::domain::prompt::{
    Conversation, GateResult as PromptGate, GateVerdict, Message, Mode as PromptMode, Note, Prompt,
    PromptInput, PromptLimits, SpecInput,
};
use crate::domain::spec::local_references;
use crate::domain::state::{GateResult, Session, State};
use crate::intake::references;
use crate::intake::spec_file::SpecFile;
use crate::messages::lane::Go;
use crate::process::{AttemptLog, CallSpec};
use crate::providers::account::identity;
use crate::providers::call::{CallRequest, Caps, StartFailure};
use crate::providers::command_line::{self, Host};
use crate::providers::decode::{Decoder, DecoderOptions, decoder};
use crate::providers::definition::Definition;
use crate::providers::rehearsal::Cue;

/// Longest claim file that is read, bytes.
const CLAIM_MAX: u64 = 64 * 1024;

/// A call, ready to be made.
pub struct Ask {
    /// What is called.
    pub work: AskWork,
    /// Messages that its prompt holds.
    pub messages: Vec<MessageId>,
    /// Its limits.
    pub limits: Limits,
}

/// A process to be called.
pub struct ProcessAsk {
    /// What it becomes.
    pub spec: CallSpec,
    /// Reads its output.
    pub decoder: Box<dyn Decoder>,
    /// Where its output is kept.
    pub log: AttemptLog,
    /// Longest line, bytes.
    pub max_line: usize,
}

/// What is called.
pub enum AskWork {
    /// A process.
    Process(Box<ProcessAsk>),
    /// A script.
    Rehearsal(Box<Rehearsal>),
    /// Nothing: why.
    Failed(StartFailure),
}

/// Building the prompt takes no longer than changing threads: a small spec on a local file system, as it was read
/// last, that refers to nothing.
pub fn is_quick(ctx: &ProjectCtx, state: &State) -> bool {
    const SMALL: usize = 64 * 1024;
    let Some(session) = &state.session else { return false };
    let messages: usize = state.inbox.queued.iter().map(|message| message.text.len()).sum();
    let cache = ctx.spec.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    ctx.is_local() && messages < SMALL && cache.is_quick(session.spec.as_deref(), SMALL)
}

/// Builds the call of this attempt.
pub fn ask(ctx: &Arc<ProjectCtx>, go: &Go, state: &State) -> Ask {
    // A claim of an earlier attempt says nothing about this one.
    let _ = fs::remove_file(ctx.paths.claims.join("done"));
    let definition = ctx.providers.definition(&go.provider);
    let config = ctx.config();
    let session = state.session.as_ref();
    let prompt = session.map(|session| prompt(ctx, state, session));
    let (text, messages) = prompt.map_or((String::new(), Vec::new()), |p| (p.text, p.messages));
    let Some(definition) = definition else {
        let work = AskWork::Failed(StartFailure::NotFound(go.provider.clone()));
        return Ask { work, messages, limits: Limits::default() };
    };
    let limits = Limits {
        first_output: ctx.limit(
            "limits.first_output",
            config.limits.first_output,
            definition.limits.first_output,
        ),
        silence: ctx.limit("limits.silence", config.limits.silence, definition.limits.silence),
        total: ctx.limit("limits.total", config.limits.total, definition.limits.total),
        linger: definition.limits.linger,
        max_rss: config.limits.max_rss,
        tool_calls: config.limits.tool_calls,
        retrying: config.limits.retrying,
        grace: config.stop.grace,
    };
    let work = match ctx.providers.script() {
        Some(script) if definition.in_process() => {
            let call = session.map_or(1, |s| s.calls);
            let cue = Cue { call, lane: 1, iteration: go.iteration };
            let folder = ctx.paths.root.clone();
            AskWork::Rehearsal(Box::new(Rehearsal { play: script.play(cue), folder }))
        }
        _ => process(ctx, go, state, &definition, text),
    };
    Ask { work, messages, limits }
}

/// Whose conversations the calls of this provider are now: the account's, in this folder.
pub fn conversation_home(ctx: &ProjectCtx, definition: &Definition) -> String {
    let env = ctx.provider_env(&ctx.config(), &definition.name);
    let account = identity(definition, &env).unwrap_or_else(|| definition.name.clone());
    format!("{account}@{}", ctx.paths.root.display())
}

fn process(ctx: &ProjectCtx, go: &Go, state: &State, definition: &Definition, prompt: String) -> AskWork {
    let config = ctx.config();
    let own = config.providers.get(&go.provider);
    let env = ctx.provider_env(&config, &go.provider);
    let session = state.session.as_ref();
    let open = session.and_then(|session| session.open.as_ref()).filter(|open| open.token == go.token);
    let known = session.and_then(|session| session.conversations.get(&go.provider));
    let resume = open.and_then(|open| open.resumes.clone()).filter(|_| definition.can_resume());
    // Another account, or the same one in another folder, knows nothing of it: the call begins afresh, and says so.
    let resume = resume.filter(|_| {
        known.is_some_and(|known| known.home.as_ref() == Some(&conversation_home(ctx, definition)))
    });
    let previous_total_usd =
        known.filter(|known| Some(&known.id) == resume.as_ref()).and_then(|known| known.usd);
    let request = CallRequest {
        prompt,
        model: config.model_for(&go.provider).map(str::to_owned),
        resume,
        caps: Caps { max_budget_usd: config.budget.call_usd, ..Caps::default() },
        cwd: ctx.paths.root.clone(),
        vars: marks(ctx, go.iteration, go.attempt)
            .into_iter()
            .map(|(key, value)| (key.to_string_lossy().into_owned(), value))
            .collect(),
    };
    let foreign_keys = ctx.providers.foreign_keys(definition);
    let mut keep = config.agent.env_keep.clone();
    keep.extend(own.iter().flat_map(|own| own.env.keys().cloned()));
    let host = Host {
        env: &env,
        root: rustix::process::geteuid().is_root(),
        project: &ctx.paths.root,
        keep: &keep,
        foreign_keys: &foreign_keys,
    };
    let Some(decoder) = decoder(definition.output, DecoderOptions { previous_total_usd }) else {
        return AskWork::Failed(StartFailure::Other("there is no script to rehearse with".to_owned()));
    };
    let mut line = match command_line::build(definition, &request, &host) {
        Ok(line) => line,
        Err(error) => return AskWork::Failed(StartFailure::Other(error.to_string())),
    };
    line.args.extend(own.iter().flat_map(|own| own.args.iter().map(OsString::from)));
    let mut argv = vec![line.program.into_os_string()];
    argv.extend(line.args);
    let env = line.env.into_iter().collect();
    // The folder may have been deleted by an agent; a log that cannot be written never stops a call.
    let _ = fs::create_dir_all(&ctx.paths.logs);
    let base = ctx.paths.logs.join(format!("{:06}-{}", go.iteration, go.attempt));
    AskWork::Process(Box::new(ProcessAsk {
        spec: CallSpec { argv, env, cwd: line.cwd, stdin: line.stdin.unwrap_or_default() },
        decoder,
        log: AttemptLog::new(&base, config.logs.max_file),
        max_line: config.limits.line_bytes,
    }))
}

/// Builds the prompt, and says what is worth saying about the spec.
fn prompt(ctx: &Arc<ProjectCtx>, state: &State, session: &Session) -> Prompt {
    let config = ctx.config();
    let path = session.spec.as_deref();
    let (spec, changed) = ctx.spec.lock().unwrap_or_else(std::sync::PoisonError::into_inner).read(path);
    let mut said: Vec<Body> = Vec::new();
    if changed && let Some(path) = path {
        said.push(Body::SpecChanged { path: path.to_owned() });
    }
    let spec = spec.filter(|spec| !spec.spec.is_empty());
    let references = match (&spec, path) {
        (Some(spec), Some(path)) => references::list(&spec.spec, Path::new(path), &ctx.paths.root),
        _ => Default::default(),
    };
    let shorter = session.overflows > 0;
    let spec_max_tokens = usize::try_from(config.spec.max_tokens).unwrap_or(usize::MAX);
    let limits = PromptLimits {
        spec_max_tokens: if shorter { spec_max_tokens / 4 } else { spec_max_tokens },
        ..PromptLimits::default()
    };
    let mode = match (session.goals_met > 0, session.mode, &spec) {
        (true, ..) => PromptMode::NextGoal,
        (_, Mode::Analysis, _) | (_, _, None) => PromptMode::Analysis,
        _ => PromptMode::Spec,
    };
    let prompt = Prompt::build(&PromptInput {
        mode,
        spec: spec.as_ref().zip(path).map(|(spec, path)| SpecInput {
            spec: &spec.spec,
            path,
            changed,
            goal: "",
        }),
        facts: ctx.facts(),
        references,
        messages: state.inbox.queued.iter().map(message).collect(),
        gates: gates(state),
        stagnant: if session.unchanged >= config.stagnation.warn.unwrap_or(u32::MAX) {
            session.unchanged
        } else {
            0
        },
        iteration: session.iteration,
        max_iterations: session.limits.max_iterations,
        notes: notes(session, changed),
        lane_task: None,
        conversation: Conversation::Fresh,
        memory: None,
        limits,
    });
    if let Some(truncated) = &prompt.spec_truncated
        && ctx.is_new_truncation(truncated)
    {
        said.extend(super::survey::warning(truncated, path.unwrap_or_default()));
    }
    if !said.is_empty() {
        super::note(ctx, said.into_iter().map(|body| ctx.draft(body)).collect());
    }
    prompt
}

fn message(message: &crate::domain::state::Message) -> Message {
    Message { id: message.id, time: message.time, text: message.text.clone(), file: None }
}

fn gates(state: &State) -> Vec<PromptGate> {
    let verdict = |result| match result {
        GateResult::Passed => GateVerdict::Passed,
        GateResult::Failed => GateVerdict::Failed,
        GateResult::TimedOut => GateVerdict::TimedOut,
        GateResult::CouldNotRun | GateResult::Cancelled => GateVerdict::NotRun,
    };
    let gate = |(name, record): (&String, &crate::domain::state::GateRecord)| PromptGate {
        name: name.clone(),
        verdict: verdict(record.result),
        tail: if record.result == GateResult::Passed { String::new() } else { record.tail.clone() },
    };
    state.gates.iter().map(gate).collect()
}

fn notes(session: &Session, spec_changed: bool) -> Vec<Note> {
    let mut notes = Vec::new();
    if let Some(claim) = session.claim.as_ref().filter(|claim| claim.rejected) {
        notes.push(Note::ClaimRejected { by: claim.failed.clone() });
    }
    if spec_changed {
        notes.push(Note::SpecChanged);
    }
    match session.last_outcome.as_deref() {
        Some("cancelled" | "truncated" | "timed_out" | "silent_hang" | "crashed") => notes.push(Note::Cut),
        Some("context_overflow") => notes.push(Note::ContextOverflow),
        _ => {}
    }
    notes
}

/// The text of the claim file, if there is one.
pub fn read_claim(file: &Path) -> Option<String> {
    let file = fs::File::open(file).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = Vec::new();
    file.take(CLAIM_MAX).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// The spec as last read; it is read again only when its file has changed.
#[derive(Debug, Default)]
pub struct SpecCache {
    known: Option<(String, SpecFile)>,
}

// === impl SpecCache ===

impl SpecCache {
    /// The spec at `path`, and whether it is another one than at the last look. A spec that cannot be read any more
    /// is the one that was read last.
    pub fn read(&mut self, path: Option<&str>) -> (Option<SpecFile>, bool) {
        let Some(path) = path else { return (None, false) };
        if let Some((known_path, known)) = &mut self.known
            && known_path == path
        {
            let mut version = known.version.clone();
            return match SpecFile::read_if_changed(Path::new(path), &mut version) {
                Ok(Some(new)) => {
                    self.known = Some((path.to_owned(), new.clone()));
                    (Some(new), true)
                }
                _ => (Some(known.clone()), false),
            };
        }
        match SpecFile::read(Path::new(path)) {
            Ok(spec) => {
                self.known = Some((path.to_owned(), spec.clone()));
                (Some(spec), false)
            }
            Err(error) => {
                tracing::warn!(%error, "the spec cannot be read");
                (None, false)
            }
        }
    }

    /// The spec at `path` is known, small, unchanged, and refers to no other file.
    fn is_quick(&self, path: Option<&str>, small: usize) -> bool {
        let Some(path) = path else { return true };
        self.known.as_ref().is_some_and(|(known_path, known)| {
            known_path == path
                && known.spec.text.len() < small
                && known.version.is_of(Path::new(path))
                && local_references(&known.spec.text).is_empty()
        })
    }
}
