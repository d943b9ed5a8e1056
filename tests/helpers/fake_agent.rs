//! A coding agent that misbehaves on purpose. Black-box tests and benches run it in an agent's place.
//!
//! `fake_agent [--log FILE] [--prompts DIR] (--script FILE | DIRECTIVE...)`
//!
//! It reads the prompt from stdin to its end, obeys its directives in order and exits. A script has one rule a
//! line, `SELECTOR: DIRECTIVE...`, and the first that fits wins. A selector is `*`, an iteration `7`, `3-5` or
//! `9+` (of `LONGHAUL_ITERATION`), or a call `@2` (counted in the log). `FAKE_AGENT_SCRIPT`, `..._LOG`
//! and `..._PROMPTS` replace the arguments, so that a link named `claude` can stand in for that CLI whatever
//! options it is given.
//!
//! Each call leaves a `start` line in the log, an `end` line if it lives that long, and a `violation` line when
//! another agent is at work in the same folder. With `--prompts` the prompt of call 7 is kept as `DIR/7.txt`.
//! Directives are listed at `obey`.
#![expect(clippy::disallowed_methods, reason = "a stand-in for a foreign program, not part of Longhaul")]

use std::error::Error;
use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Marks a process that already ignores the signals that `ignore` names.
const TRAPPED: &str = "FAKE_AGENT_TRAPPED";

/// What the command line and the environment ask for.
struct Call {
    log: Option<PathBuf>,
    prompts: Option<PathBuf>,
    directives: Vec<String>,
}

/// Our log: one line a record, each written with one `write` to a file in append mode.
struct Log<'a> {
    path: Option<&'a Path>,
}

fn main() -> Result<ExitCode> {
    let started = wall_ns();
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, how, seconds, log] = args.as_slice()
        && mode == "--stray"
    {
        return stray(how, seconds.parse()?, Path::new(log));
    }
    if args.iter().any(|a| a == "--version") {
        println!("{}", std::env::var("FAKE_AGENT_VERSION").unwrap_or_else(|_| "fake_agent 1.0.0".into()));
        return Ok(ExitCode::SUCCESS);
    }
    let call = parse(args)?;
    if let Some(names) = call.directives.iter().find_map(|d| d.strip_prefix("ignore="))
        && std::env::var_os(TRAPPED).is_none()
    {
        return Err(trap(names).into());
    }
    let log = Log { path: call.log.as_deref() };
    let cwd = std::env::current_dir()?;
    let _folder = log.claim_folder(&cwd)?;
    let mut prompt = Vec::new();
    if !call.directives.iter().any(|d| d == "deaf") {
        io::stdin().lock().read_to_end(&mut prompt)?;
    }
    if let Some(folder) = &call.prompts {
        let number = call.log.as_deref().map_or(0, calls_so_far) + 1;
        std::fs::write(folder.join(format!("{number}.txt")), &prompt)?;
    }
    log.started(started, &cwd, &prompt)?;
    let mut code = 0;
    for directive in &call.directives {
        let (word, value) = directive.split_once('=').unwrap_or((directive, ""));
        if word == "exit" {
            code = value.parse()?;
        } else {
            obey(word, value, &log).map_err(|e| format!("{directive}: {e}"))?;
        }
    }
    io::stdout().flush()?;
    log.write(&json!({"event": "end", "pid": std::process::id(), "code": code, "cpu_ns": cpu_ns(), "wall_ns": wall_ns()}))?;
    Ok(ExitCode::from(code))
}

/// Obeys one directive.
fn obey(word: &str, value: &str, log: &Log) -> Result<()> {
    let mut out = io::stdout().lock();
    match word {
        // Work: `work=MS` sleeps, `cpu=MS` computes in silence, `hang` never ends, `until=FILE` waits for a file.
        "work" => std::thread::sleep(Duration::from_millis(value.parse()?)),
        "cpu" => burn(Duration::from_millis(value.parse()?)),
        "hang" => loop {
            std::thread::park();
        },
        "until" => {
            while !Path::new(value).exists() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        // Files: `change=FILE` appends a new line, `write=FILE:TEXT`, `remove=FILE`, `touch=FILE`.
        "change" => {
            append(Path::new(value), format!("{} at {}\n", std::process::id(), wall_ns()).as_bytes())?
        }
        "write" => {
            let (file, text) = value.split_once(':').ok_or("needs FILE:TEXT")?;
            if let Some(folder) = Path::new(file).parent() {
                std::fs::create_dir_all(folder)?;
            }
            std::fs::write(file, text)?;
        }
        "remove" => std::fs::remove_file(value)?,
        "touch" => drop(File::create(value)?),
        // Output: `say=TEXT`, `done`, `done-file=TEXT`, `blocked=WHY`, `err=TEXT`, `flood=BYTES`, `raw` and more.
        "say" => writeln!(out, "{value}")?,
        "done" => writeln!(out, "All of it works.\nLONGHAUL_DONE")?,
        "done-file" => {
            std::fs::create_dir_all(".longhaul/claims")?;
            std::fs::write(".longhaul/claims/done", value)?;
        }
        "blocked" => writeln!(out, "LONGHAUL_BLOCKED: {value}")?,
        "err" => writeln!(io::stderr(), "{value}")?,
        "partial" => write!(out, "{value}")?,
        "raw" => out.write_all(b"\xff\xfe\0\x1b[31mred\x1b[0m \xed\xa0\x80 \xc3\n")?,
        "flood" => flood(
            &mut out,
            value.parse()?,
            b"the quick brown fox jumps over the lazy dog, again and again\n",
        )?,
        "long-line" => flood(&mut out, value.parse()?, b"0123456789abcdef")?,
        "ndjson" => flood(&mut out, value.parse()?, CLAUDE_TEXT.as_bytes())?,
        "result" => writeln!(out, "{}", claude_result(value))?,
        // Processes: `run=CMD` by the shell, `stray=plain|setsid|double[:SECONDS]`, `kill=SIGNAL` of itself.
        "run" => {
            if !Command::new("sh").args(["-c", value]).status()?.success() {
                return Err("the command failed".into());
            }
        }
        "stray" => leave_stray(value, log)?,
        "kill" => {
            let signal = if value == "term" { Signal::TERM } else { Signal::KILL };
            rustix::process::kill_process(rustix::process::getpid(), signal)?;
        }
        "ignore" | "deaf" => {}
        _ => return Err("no such directive".into()),
    }
    out.flush()?;
    Ok(())
}

// === What it was asked to do ===

fn parse(args: Vec<String>) -> Result<Call> {
    let mut log = std::env::var_os("FAKE_AGENT_LOG").map(PathBuf::from);
    let mut prompts = std::env::var_os("FAKE_AGENT_PROMPTS").map(PathBuf::from);
    let mut script = std::env::var_os("FAKE_AGENT_SCRIPT").map(PathBuf::from);
    let mut directives = Vec::new();
    if script.is_none() {
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--log" => log = Some(args.next().ok_or("--log needs a file")?.into()),
                "--prompts" => prompts = Some(args.next().ok_or("--prompts needs a folder")?.into()),
                "--script" => script = Some(args.next().ok_or("--script needs a file")?.into()),
                _ => directives.push(arg),
            }
        }
    }
    if let Some(script) = script {
        directives = choose(&std::fs::read_to_string(&script)?, log.as_deref())?;
    }
    Ok(Call { log, prompts, directives })
}

/// The directives of the first rule that fits this call; none when no rule does.
fn choose(script: &str, log: Option<&Path>) -> Result<Vec<String>> {
    let iteration = std::env::var("LONGHAUL_ITERATION").ok().and_then(|i| i.parse().ok()).unwrap_or(0);
    for line in script.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#')) {
        let (selector, rest) = line.split_once(':').ok_or_else(|| format!("no selector: {line}"))?;
        let fits = match selector.trim().strip_prefix('@') {
            Some(call) => within(call, log.map_or(0, calls_so_far) + 1)?,
            None => within(selector.trim(), iteration)?,
        };
        if fits {
            return shlex::split(rest).ok_or_else(|| format!("unbalanced quotes: {line}").into());
        }
    }
    Ok(Vec::new())
}

fn within(selector: &str, n: u64) -> Result<bool> {
    if selector == "*" {
        return Ok(true);
    }
    if let Some(from) = selector.strip_suffix('+') {
        return Ok(n >= from.parse()?);
    }
    let (from, to) = selector.split_once('-').unwrap_or((selector, selector));
    Ok((from.parse()?..=to.parse()?).contains(&n))
}

/// Starts this program again from a shell that ignores `names`; what is ignored stays so across `exec`.
fn trap(names: &str) -> io::Error {
    let script = format!("trap '' {}; exec \"$0\" \"$@\"", names.replace(',', " ").to_uppercase());
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(script).args(std::env::args_os()).env(TRAPPED, "1").exec()
}

// === impl Log ===

impl Log<'_> {
    fn write(&self, record: &Value) -> io::Result<()> {
        match self.path {
            Some(path) => append(path, format!("{record}\n").as_bytes()),
            None => Ok(()),
        }
    }

    /// Takes the folder for as long as this process lives; a record says so when another agent has it.
    fn claim_folder(&self, cwd: &Path) -> Result<Option<File>> {
        let Some(log) = self.path else { return Ok(None) };
        let mut hasher = DefaultHasher::new();
        cwd.hash(&mut hasher);
        let file = File::create(log.with_extension(format!("{:016x}.lock", hasher.finish())))?;
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            self.write(&json!({"event": "violation", "pid": std::process::id(), "wall_ns": wall_ns(),
                "cwd": cwd.to_string_lossy(), "what": "another agent works in this folder"}))?;
        }
        Ok(Some(file))
    }

    fn started(&self, at: u128, cwd: &Path, prompt: &[u8]) -> io::Result<()> {
        let env: serde_json::Map<_, _> = std::env::vars_os()
            .filter(|(k, _)| k.to_string_lossy().starts_with("LONGHAUL_"))
            .map(|(k, v)| (lossy(k), Value::from(lossy(v))))
            .collect();
        let text = String::from_utf8_lossy(prompt);
        let words = || text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        let ids: Vec<_> = words().filter(|w| is_ulid(w)).collect();
        // `mark-17` in a message's text is how a test finds it again, whatever id it was given.
        let marks: Vec<_> = words().filter(|w| w.starts_with("mark-")).collect();
        self.write(&json!({"event": "start", "pid": std::process::id(), "wall_ns": at,
            "ppid": rustix::process::getppid().map(|p| Pid::as_raw(Some(p))), "cwd": cwd.to_string_lossy(),
            "env": env, "prompt_bytes": prompt.len(), "ids": ids, "marks": marks}))
    }
}

fn append(path: &Path, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().append(true).create(true).open(path)?.write_all(bytes)
}

fn calls_so_far(log: &Path) -> u64 {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines().filter(|l| l.contains("\"event\":\"start\"")).count() as u64
}

fn lossy(s: OsString) -> String {
    s.to_string_lossy().into_owned()
}

fn is_ulid(word: &str) -> bool {
    word.len() == 26 && word.bytes().all(|b| b"0123456789ABCDEFGHJKMNPQRSTVWXYZ".contains(&b))
}

// === Misbehaviour ===

/// Leaves a process behind that holds our pipes.
fn leave_stray(value: &str, log: &Log) -> Result<()> {
    let (how, seconds) = value.split_once(':').unwrap_or((value, "600"));
    let log = log.path.unwrap_or(Path::new("/dev/null"));
    let mut child =
        Command::new(std::env::current_exe()?).args(["--stray", how, seconds]).arg(log).spawn()?;
    if how == "double" {
        child.wait()?;
    }
    Ok(())
}

/// The life of a stray: `plain` stays in the agent's session, `setsid` and the child of `double` do not.
fn stray(how: &str, seconds: u64, log: &Path) -> Result<ExitCode> {
    if how == "double" {
        Command::new(std::env::current_exe()?)
            .args(["--stray", "setsid", &seconds.to_string()])
            .arg(log)
            .spawn()?;
        return Ok(ExitCode::SUCCESS);
    }
    if how == "setsid" {
        rustix::process::setsid()?;
    }
    let record = json!({"event": "stray", "how": how, "pid": std::process::id(), "wall_ns": wall_ns()});
    append(log, format!("{record}\n").as_bytes())?;
    std::thread::sleep(Duration::from_secs(seconds));
    Ok(ExitCode::SUCCESS)
}

fn burn(time: Duration) {
    let start = Instant::now();
    let mut x = 1u64;
    while start.elapsed() < time {
        x = std::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}

/// Writes `bytes` bytes of whole `line`s (the last one may be cut), in blocks, so that a debug build keeps up.
fn flood(out: &mut impl Write, bytes: u64, line: &[u8]) -> io::Result<()> {
    let block: Vec<u8> =
        line.iter().copied().cycle().take(line.len() * (65_536 / line.len()).max(1)).collect();
    let mut left = bytes;
    while left > 0 {
        let n = block.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        out.write_all(&block[..n])?;
        left -= n as u64;
    }
    Ok(())
}

/// One line of Claude Code's `stream-json` output.
const CLAUDE_TEXT: &str = include_str!("claude_text.jsonl");

/// The last line of Claude Code's `stream-json` output.
fn claude_result(text: &str) -> Value {
    json!({"type": "result", "subtype": "success", "is_error": false, "duration_ms": 5, "num_turns": 1,
        "result": text, "stop_reason": "end_turn", "session_id": "00000000-0000-4000-8000-000000000001",
        "total_cost_usd": 0.0123, "terminal_reason": "completed",
        "usage": {"input_tokens": 1200, "output_tokens": 34, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}})
}

/// CPU time of this process so far, in nanoseconds.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    stat.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn wall_ns() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_nanos())
}
