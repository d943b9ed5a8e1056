//! A scratch project in a world of its own.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;
use tempfile::TempDir;

use crate::processes::{Process, belonging};
use crate::run::{Finished, Running};
use crate::{AgentLog, Event, eventually, fake_agent, longhaul};

/// Every process that a world starts inherits this variable, with the world's own value.
pub(crate) const MARK: &str = "TESTKIT_WORLD";

/// A scratch project, with or without git, and everything around it that a run could read or write.
#[derive(Debug)]
pub struct World {
    root: TempDir,
    project: PathBuf,
    mark: String,
    env: Vec<(OsString, OsString)>,
}

/// Splits arguments at blanks: `words("run --json")`. For arguments without blanks inside.
pub fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

impl World {
    /// An empty folder without git.
    pub fn new() -> World {
        World::named("project")
    }

    /// An empty folder with this name, without git.
    pub fn named(name: impl AsRef<OsStr>) -> World {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let root = tempfile::Builder::new().prefix("lh-").tempdir().expect("a temporary folder");
        let project = root.path().join(name.as_ref());
        std::fs::create_dir_all(&project).expect("the project folder");
        let mark = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let mut world = World { root, project, mark, env: Vec::new() };
        std::fs::create_dir_all(world.prompts()).expect("the folder for prompts");
        world.settle();
        world
    }

    /// A git repository with one file and one commit.
    pub fn with_git() -> World {
        let world = World::new();
        world.init_git();
        world
    }

    /// Uses a folder elsewhere (a small disk) as the project.
    pub fn move_project(&mut self, folder: &Path) {
        self.project = folder.to_owned();
    }

    fn settle(&mut self) {
        let home = self.root.path().join("home");
        for folder in ["tmp", "bin", ".config", ".cache", ".local/share", ".local/state"] {
            std::fs::create_dir_all(home.join(folder)).expect("the home folder");
        }
        let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".into());
        self.set("PATH", format!("{}:{path}", home.join("bin").display()));
        self.set("HOME", &home);
        self.set("XDG_CONFIG_HOME", home.join(".config"));
        self.set("XDG_CACHE_HOME", home.join(".cache"));
        self.set("XDG_DATA_HOME", home.join(".local/share"));
        self.set("XDG_STATE_HOME", home.join(".local/state"));
        self.set("LONGHAUL_HOME", home.join("longhaul"));
        self.set("TMPDIR", home.join("tmp"));
        for (name, value) in [
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_AUTHOR_NAME", "A User"),
            ("GIT_AUTHOR_EMAIL", "user@example.invalid"),
            ("GIT_COMMITTER_NAME", "A User"),
            ("GIT_COMMITTER_EMAIL", "user@example.invalid"),
            ("LANG", "C.UTF-8"),
            ("TZ", "UTC"),
            ("TERM", "dumb"),
            ("NO_COLOR", "1"),
        ] {
            self.set(name, value);
        }
        self.set(MARK, self.mark.clone());
    }

    /// Sets a variable for everything that this world starts from now on.
    pub fn set(&mut self, name: &str, value: impl AsRef<OsStr>) {
        self.env.retain(|(n, _)| n != name);
        self.env.push((name.into(), value.as_ref().to_owned()));
    }

    // === Files ===

    /// The project folder.
    pub fn project(&self) -> &Path {
        &self.project
    }

    /// The project's `.longhaul`.
    pub fn state(&self) -> PathBuf {
        self.project.join(".longhaul")
    }

    /// The folder around project and home, for files that are in neither.
    pub fn outside(&self) -> &Path {
        self.root.path()
    }

    /// The home folder; its `bin` is first in `PATH`.
    pub fn home(&self) -> PathBuf {
        self.root.path().join("home")
    }

    /// Writes a file of the project, with the folders above it.
    pub fn write(&self, file: &str, text: impl AsRef<[u8]>) {
        let path = self.project.join(file);
        std::fs::create_dir_all(path.parent().expect("a file has a folder")).expect("the folder is made");
        std::fs::write(&path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }

    /// Reads a file of the project; panics when it is not there.
    #[track_caller]
    pub fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.project.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
    }

    /// Writes the project's `config.toml`.
    pub fn config(&self, toml: &str) {
        self.write(".longhaul/config.toml", toml);
    }

    /// Whether the project has this file.
    pub fn has(&self, file: &str) -> bool {
        self.project.join(file).exists()
    }

    // === Programs ===

    /// A program in this world's environment, in the project folder, with nothing on stdin.
    pub fn program(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.project).env_clear().envs(self.env.iter().cloned()).stdin(Stdio::null());
        command
    }

    /// `longhaul` with these arguments.
    pub fn command<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = self.program(longhaul());
        command.args(args);
        command
    }

    /// Runs `longhaul` to its end.
    #[track_caller]
    #[must_use = "assert how it ended"]
    pub fn run<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Finished {
        self.start(args).wait()
    }

    /// Starts `longhaul` and goes on.
    #[track_caller]
    pub fn start<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Running {
        Running::spawn(self.command(args))
    }

    /// Runs git in the project and gives its output; panics when it fails.
    #[track_caller]
    pub fn git(&self, args: &str) -> String {
        let output = self.program("git").args(words(args)).output().expect("git runs");
        let text = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
        assert!(output.status.success(), "git {args}: {}", String::from_utf8_lossy(&output.stderr));
        text
    }

    /// Makes the project a git repository with one commit.
    #[track_caller]
    pub fn init_git(&self) {
        self.git("init -q -b main");
        self.write("README.md", "scratch\n");
        self.git("add -A");
        self.git("commit -q -m first");
    }

    /// The same command in a user namespace of its own that may have no inotify instance: the supervisor has to
    /// poll.
    pub fn without_inotify(&self, command: &Command) -> Command {
        let script = "echo 0 > /proc/sys/user/max_inotify_instances && exec \"$0\" \"$@\"";
        let mut unshare = self.program("unshare");
        unshare.args(["--user", "--map-root-user", "sh", "-c", script]);
        unshare.arg(command.get_program()).args(command.get_args());
        unshare
    }

    // === The fake agent ===

    /// The fake agent's log.
    pub fn agent_log(&self) -> AgentLog {
        AgentLog::read(&self.agent_log_path())
    }

    fn agent_log_path(&self) -> PathBuf {
        self.root.path().join("agent.log")
    }

    /// Waits until the fake agent's log says so.
    #[track_caller]
    pub fn agent_reaches(&self, what: &str, holds: impl Fn(&AgentLog) -> bool) -> AgentLog {
        eventually(what, || Some(self.agent_log()).filter(|log| holds(log)))
    }

    /// The prompt of the fake agent's call `n`, from 1.
    #[track_caller]
    pub fn prompt(&self, n: usize) -> String {
        let file = self.prompts().join(format!("{n}.txt"));
        std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
    }

    fn prompts(&self) -> PathBuf {
        self.root.path().join("prompts")
    }

    /// The `--agent` value for a fake agent that does the same in each call.
    pub fn agent(&self, directives: &str) -> String {
        let (agent, log) = (quoted(fake_agent()), quoted(&self.agent_log_path()));
        format!("{agent} --log {log} --prompts {} {directives}", quoted(&self.prompts()))
    }

    /// The arguments of `run` with such an agent, and more of them.
    pub fn run_agent(&self, directives: &str, more: &str) -> Vec<OsString> {
        self.run_with(self.agent(directives), more)
    }

    /// The arguments of `run` with a fake agent that follows `rules`, and more of them.
    pub fn run_script(&self, rules: &str, more: &str) -> Vec<OsString> {
        self.run_with(self.scripted(rules), more)
    }

    fn run_with(&self, agent: String, more: &str) -> Vec<OsString> {
        let mut args = words("run --json");
        args.extend(words(more));
        args.extend(["--agent".into(), agent.into()]);
        args
    }

    /// A file outside the project that an agent waits for with `until=`, until [`World::raise`] makes it.
    pub fn flag(&self, name: &str) -> String {
        self.root.path().join(name).display().to_string()
    }

    /// Lets everything that waits for this flag go on.
    pub fn raise(&self, name: &str) {
        std::fs::write(self.root.path().join(name), "").expect("the flag is made");
    }

    /// Defines a provider of this project: the fake agent, with plain text as its output.
    pub fn provider(&self, name: &str, directives: &str) {
        let agent = self.agent(directives);
        let mut words = agent.split(' ').filter(|w| !w.is_empty()).map(|w| w.trim_matches('\''));
        let program = words.next().unwrap_or_default();
        let args: Vec<_> = words.collect();
        self.write(
            &format!(".longhaul/providers/{name}.toml"),
            format!("title = \"{name}\"\nprogram = {program:?}\nargs = {args:?}\nprompt = \"stdin\"\noutput = \"text\"\n"),
        );
    }

    /// The `--agent` value for a fake agent that follows `rules`, one a line (see `fake_agent.rs`).
    pub fn scripted(&self, rules: &str) -> String {
        let script = self.root.path().join("agent.script");
        std::fs::write(&script, rules).expect("the script is written");
        self.agent(&format!("--script {}", quoted(&script)))
    }

    /// Puts the fake agent on `PATH` as `name`, in a CLI's place; it follows `rules` whatever its arguments.
    pub fn impersonate(&mut self, name: &str, version: &str, rules: &str) {
        let script = self.root.path().join(format!("{name}.script"));
        std::fs::write(&script, rules).expect("the script is written");
        std::os::unix::fs::symlink(fake_agent(), self.home().join("bin").join(name))
            .expect("the link is made");
        self.set("FAKE_AGENT_SCRIPT", &script);
        self.set("FAKE_AGENT_LOG", self.agent_log_path());
        self.set("FAKE_AGENT_PROMPTS", self.prompts());
        self.set("FAKE_AGENT_VERSION", version);
    }

    /// Puts a shell script on `PATH` in a CLI's place: what it does with any prompt but being asked for its version.
    pub fn cli(&self, name: &str, version: &str, shell: &str) {
        use std::os::unix::fs::PermissionsExt;
        let program = self.home().join("bin").join(name);
        let script = format!(
            "#!/bin/sh\ncase $1 in --version) echo '{version}'; exit;; esac\ncat >/dev/null\n{shell}\n"
        );
        std::fs::write(&program, script).expect("the script is written");
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("it may be run");
    }

    // === What a user could see ===

    /// The journal, from its files.
    pub fn events(&self) -> Vec<Event> {
        Event::read_all(&self.state())
    }

    /// The journal's events of one type.
    pub fn events_of(&self, kind: &str) -> Vec<Event> {
        self.events().into_iter().filter(|e| e.kind() == kind).collect()
    }

    /// Waits until the journal's files hold an event that `fits`.
    #[track_caller]
    pub fn journal_has(&self, what: &str, fits: impl Fn(&Event) -> bool) -> Event {
        eventually(what, || self.events().into_iter().find(|e| fits(e)))
    }

    /// `status --json`.
    #[track_caller]
    pub fn status(&self) -> Value {
        let status = self.run(words("status --json")).ok();
        serde_json::from_str(&status.stdout)
            .unwrap_or_else(|e| panic!("status is not JSON ({e}): {}", status.stdout))
    }

    /// Waits until `status --json` holds.
    #[track_caller]
    pub fn status_reaches(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        eventually(what, || Some(self.status()).filter(|status| holds(status)))
    }

    /// Every living process that was started in this world, in any way.
    pub fn processes(&self) -> Vec<Process> {
        belonging((MARK, &self.mark), &longhaul(), self.root.path())
    }

    /// Waits until no process of this world lives.
    #[track_caller]
    pub fn is_quiet(&self) {
        eventually("no process of this world is left", || {
            let left = self.processes();
            left.is_empty().then_some(())
        });
    }
}

impl Default for World {
    fn default() -> Self {
        World::new()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // A process may fork while the list is read, so look again until there is none.
        for _ in 0..50 {
            let left = self.processes();
            if left.is_empty() {
                break;
            }
            left.iter().for_each(Process::kill);
        }
        if std::thread::panicking() {
            let events = std::panic::catch_unwind(|| Event::read_all(&self.state())).unwrap_or_default();
            eprintln!("--- the last events of {}", self.project.display());
            for event in events.iter().rev().take(30).rev() {
                eprintln!("{}", event.0);
            }
        }
    }
}

/// A path as one shell word.
fn quoted(path: &Path) -> String {
    let path = path.to_str().expect("paths of the kit are UTF-8");
    format!("'{}'", path.replace('\'', r"'\''"))
}
