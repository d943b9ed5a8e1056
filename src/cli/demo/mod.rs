//! `longhaul demo`: a real session in a scratch repository, with an agent that plays a script: it needs no account
//! and costs nothing. What happens to it is what happens in a night: a limit, a message, a check that fails.

mod story;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use super::args::{DemoArgs, RunArgs};
use super::control;
use super::error::{CliError, ErrorKind, ExitCode};
use super::output::Output;
use super::project::Project;
use super::run;
use crate::clock::Clock;
use crate::config::{DOT, Environment, ProjectPaths};
use crate::domain::event::{Body, Event};
use crate::git::commit_all;
use crate::providers::resolve::find_program;
use crate::store::Follower;
use story::Story;

/// The files of the scratch repository.
const FILES: [(&str, &str); 2] = [
    ("SPEC.md", include_str!("../../../config/demo/SPEC.md")),
    ("check.sh", include_str!("../../../config/demo/check.sh")),
];

/// Its settings.
const SETTINGS: &str = include_str!("../../../config/demo/config.toml");

/// What the agent does.
const SCRIPT: &str = include_str!("../../../config/demo/rehearsal.toml");

/// What a person says in mid-run.
const MESSAGE: &str = include_str!("../../../config/demo/message.txt");

/// Between two looks at what happens.
const LOOK: Duration = Duration::from_millis(50);

/// Runs the demo.
///
/// # Errors
/// The folder cannot be used; the session could not be started, or did not go as the script says.
pub fn demo(
    arguments: &DemoArgs,
    environment: &Environment,
    output: &mut Output,
) -> Result<ExitCode, CliError> {
    let scratch = scratch(arguments)?;
    let root = scratch.canonicalize().map_err(|error| cannot_write(&scratch, &error))?;
    let environment = own_environment(environment, &root);
    let project = Project {
        paths: ProjectPaths::new(root.clone()),
        environment: environment.clone(),
        clock: Clock::System,
        zone: crate::clock::local_zone(),
    };
    let git = set_up(&root).map_err(|error| cannot_write(&root, &error))?;
    output.notice(format!(
        "A scratch project is in {}. An agent that plays a script works on it:",
        root.display()
    ));
    output
        .notice("it runs into a usage limit, you say something to it, and a check fails before it passes.\n");
    if let Err(why) = &git {
        output.notice(format!("(Without git: {why}. It works in a plain folder.)\n"));
    } else if !has_git(&environment, &root) {
        output
            .notice("(There is no git program here. None is needed, but you cannot look at the commits.)\n");
    }
    let over = Arc::new(AtomicBool::new(false));
    let person = person(&project, over.clone())?;
    let code = run::run(&run_arguments(), Some(&root), &environment, output);
    over.store(true, Relaxed);
    // Whether it said something shows in the events.
    drop(person.join());
    let code = code?;
    let story = Story::of(&events(&project)?);
    if code != ExitCode::Done {
        output.notice(format!("the demo ended early; its folder is {}", root.display()));
        return Ok(code);
    }
    for line in story.lines(MESSAGE.trim_end(), output) {
        output.line(line)?;
    }
    look_around(&root, git.is_ok(), &environment, output)?;
    output.line("\nNext, in a project of yours:")?;
    output.line("  longhaul doctor                          is everything there that it needs?")?;
    output.line("  longhaul init                            a SPEC.md to fill in")?;
    output.line("  longhaul run                             with your agent, or:")?;
    output.line("  longhaul run --agent './my-agent.sh'     any program that reads a prompt on stdin")?;
    if let Some(hint) = not_on_path(&environment, &root) {
        output.notice(format!("\n{hint}"));
    }
    Ok(ExitCode::Done)
}

fn look_around(
    root: &Path,
    git: bool,
    environment: &Environment,
    output: &mut Output,
) -> Result<(), CliError> {
    let at = root.to_str().and_then(|path| shlex::try_quote(path).ok()).unwrap_or_default();
    output
        .line(format!("\nThe scratch repository is in {}. Look around, then delete it:", root.display()))?;
    if git && has_git(environment, root) {
        output.line(format!("  git -C {at} log --stat"))?;
    }
    output.line(format!("  longhaul status --project {at}"))?;
    output.line(format!("  longhaul events --project {at}"))?;
    output.line(format!("  rm -r {at}"))
}

/// How to run us when the shell would not find us, as after `cargo run`.
fn not_on_path(environment: &Environment, root: &Path) -> Option<String> {
    if find_program("longhaul", environment.get("PATH"), root).is_ok() {
        return None;
    }
    let program = std::env::current_exe().ok()?;
    Some(format!(
        "(Your shell does not find `longhaul` yet. `cargo install --path .` in its source folder changes that; until \
         then it is {})",
        program.display()
    ))
}

fn has_git(environment: &Environment, root: &Path) -> bool {
    find_program("git", environment.get("PATH"), root).is_ok()
}

/// The environment of the session: without settings of the user's, and with a home of its own.
fn own_environment(environment: &Environment, root: &Path) -> Environment {
    let dot = root.join(DOT);
    let ours = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(b"LONGHAUL_");
    let mut variables: BTreeMap<_, _> = environment
        .iter()
        .filter(|(name, _)| !ours(name))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    variables.insert("XDG_CONFIG_HOME".into(), dot.join("demo").into());
    variables.insert("LONGHAUL_HOME".into(), dot.join("demo").into());
    variables.into_iter().collect()
}

/// Writes the files, and makes it a repository; the inner error says why it is none.
fn set_up(root: &Path) -> io::Result<Result<(), String>> {
    for (name, text) in FILES {
        fs::write(root.join(name), text)?;
    }
    let git = git2::Repository::init(root).and_then(|_| commit_all(root, "A spec and a check"));
    let git = git.map_err(|error| error.message().to_owned());
    let dot = root.join(DOT);
    fs::create_dir_all(&dot)?;
    fs::write(dot.join("config.toml"), SETTINGS)?;
    let commits = |line: &&str| line.trim_start().starts_with("{ commit");
    let script: String = match git {
        Ok(()) => SCRIPT.to_owned(),
        Err(_) => SCRIPT.lines().filter(|line| !commits(line)).map(|line| format!("{line}\n")).collect(),
    };
    fs::write(dot.join("rehearsal.toml"), script)?;
    Ok(git)
}

fn run_arguments() -> RunArgs {
    RunArgs {
        spec: None,
        provider: None,
        agent: None,
        model: None,
        max_iterations: None,
        max_duration: None,
        budget: None,
        perpetual: false,
        no_wait: true,
        fresh: false,
        init_git: false,
        json: false,
    }
}

/// Somebody who says something as soon as the session waits.
fn person(project: &Project, over: Arc<AtomicBool>) -> Result<std::thread::JoinHandle<()>, CliError> {
    let project = project.clone();
    let mut journal = Follower::new(project.store_paths(), 0);
    let wait = move || {
        while !over.load(Relaxed) {
            let news = journal.poll().unwrap_or_default();
            let waits = news
                .iter()
                .filter_map(|line| line.event())
                .any(|event| matches!(event.body, Body::WaitStarted { .. }));
            if waits {
                // Not said: the story shows it.
                drop(control::leave(&project, MESSAGE.trim_end()));
                return;
            }
            std::thread::sleep(LOOK);
        }
    };
    let thread = std::thread::Builder::new().name("person".to_owned()).spawn(wait);
    thread.map_err(|error| CliError::failed_to(format_args!("start a thread: {error}")))
}

fn events(project: &Project) -> Result<Vec<Event>, CliError> {
    let mut journal = Follower::new(project.store_paths(), 0);
    let mut events = Vec::new();
    loop {
        let lines =
            journal.poll().map_err(|error| CliError::failed_to(format_args!("read the journal: {error}")))?;
        if lines.is_empty() {
            return Ok(events);
        }
        events.extend(lines.iter().filter_map(|line| line.event()));
    }
}

/// The folder to work in: empty, and left there in the end.
fn scratch(arguments: &DemoArgs) -> Result<PathBuf, CliError> {
    if let Some(folder) = &arguments.dir {
        fs::create_dir_all(folder).map_err(|error| cannot_write(folder, &error))?;
        let mut entries = fs::read_dir(folder).map_err(|error| cannot_write(folder, &error))?;
        if entries.next().is_some() {
            return Err(CliError::new(ErrorKind::Usage, format!("{} is not empty", folder.display()))
                .hinted("the demo writes files and commits them: name an empty folder, or none"));
        }
        return Ok(folder.clone());
    }
    let made = tempfile::Builder::new().prefix("longhaul-demo-").tempdir();
    made.map(tempfile::TempDir::keep).map_err(|error| cannot_write(&std::env::temp_dir(), &error))
}

fn cannot_write(path: &Path, error: &io::Error) -> CliError {
    CliError::failed_to(format_args!("use the folder {}: {error}", path.display()))
        .hinted("`longhaul demo --dir DIR` works in another, which must be empty")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::rehearsal::Script;

    #[test]
    fn its_texts_are_sound() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        assert_eq!(set_up(root).unwrap(), Ok(()));
        let script = root.join(DOT).join("rehearsal.toml");
        Script::parse(&script, &fs::read_to_string(&script).unwrap()).unwrap();
        let settings = crate::config::check_file(&root.join(DOT).join("config.toml")).unwrap();
        assert_eq!(settings.config.gates.commands.len(), 1);
        let log = git2::Repository::open(root).unwrap();
        assert_eq!(log.head().unwrap().peel_to_commit().unwrap().message(), Ok("A spec and a check"));
        assert!(log.revparse_single("HEAD:.longhaul").is_err(), "settings are not committed");
        let plain: Vec<&str> = SCRIPT.lines().filter(|line| !line.contains("commit =")).collect();
        Script::parse(&script, &plain.join("\n")).unwrap();
    }

    #[test]
    fn a_folder_that_is_in_use_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("mine"), "").unwrap();
        let arguments = DemoArgs { dir: Some(dir.path().to_owned()) };
        let (mut output, _) = Output::captured();
        let error = demo(&arguments, &Environment::default(), &mut output).unwrap_err();
        assert_eq!(error.kind.exit_code(), ExitCode::Usage);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_users_settings_stay_out() {
        let variables =
            [("PATH", "/bin"), ("LONGHAUL_BUDGET__USD", "1"), ("XDG_CONFIG_HOME", "/home/me/.config")];
        let before: Environment = variables.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
        let after = own_environment(&before, Path::new("/d"));
        assert_eq!(after.get("PATH"), Some("/bin".as_ref()));
        assert_eq!(after.get("LONGHAUL_BUDGET__USD"), None);
        assert_eq!(after.user_config().unwrap(), Path::new("/d/.longhaul/demo/longhaul/config.toml"));
    }
}
