//! Whoever is killed, nothing of a call stays.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use longhaul::domain::outcome::Exit;
use longhaul::process::{FoundBy, ProcessId, Targets, sweep, wait_for_call_lock};
use rustix::process::Signal;

use super::scene::{Mark, keeper, keeper_with, kill, pids, run, sh, until, wait_for};

/// An agent that is deaf to TERM and has daemons, also deaf.
const AGENT: &str = r#"trap '' TERM; (setsid sh -c 'trap "" TERM; while :; do sleep 1; done' &)
    echo up; while :; do sleep 1; done"#;

const GRACE: Duration = Duration::from_millis(50);

/// A supervisor in a process of its own: this test program, running the test below.
struct Supervisor {
    process: Child,
    keeper: u32,
}

impl Supervisor {
    #[expect(clippy::disallowed_methods, reason = "a test may start its own helper")]
    fn start(mark: &Mark, lock: &std::path::Path) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "orphans::supervisor_program", "--ignored", "--nocapture", "-q"])
            .env("SUPERVISOR_MARK", &mark.0)
            .env("SUPERVISOR_LOCK", lock)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let keeper = lines.find_map(|l| l.unwrap().strip_prefix("keeper ").map(|pid| pid.parse().unwrap()));
        Supervisor { process, keeper: keeper.unwrap() }
    }

    fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

#[tokio::test]
#[ignore = "started by other tests as a program of its own"]
async fn supervisor_program() {
    let Ok(mark) = std::env::var("SUPERVISOR_MARK").map(Mark) else { return };
    let lock =
        wait_for_call_lock(std::env::var_os("SUPERVISOR_LOCK").unwrap().as_ref(), GRACE).await.unwrap();
    let keeper = keeper_with(Some(&lock.unwrap()));
    let (output, call) = keeper.prepare().await.unwrap().start(&mark.sh(AGENT)).unwrap();
    let _next = keeper.prepare().await.unwrap();
    wait_for(&output, b"up");
    println!("\nkeeper {}", keeper.id().unwrap().pid);
    std::io::stdout().flush().unwrap();
    call.ended().await;
}

#[tokio::test]
async fn a_killed_supervisor_takes_its_agents_with_it() {
    // EP-015, and with it: nobody gets the lock before they are gone.
    let (mark, folder) = (Mark::new(), tempfile::tempdir().unwrap());
    let lock = folder.path().join("call.lock");
    let supervisor = Supervisor::start(&mark, &lock);
    assert!(mark.alive().len() >= 2);
    assert!(wait_for_call_lock(&lock, Duration::ZERO).await.unwrap().is_none());
    let keeper = supervisor.keeper;
    supervisor.kill();
    assert!(wait_for_call_lock(&lock, Duration::from_secs(20)).await.unwrap().is_some());
    assert_eq!(mark.alive(), Vec::<u32>::new());
    assert!(until(|| ProcessId::of(keeper).is_none_or(|id| !id.is_alive())));
}

#[tokio::test]
async fn also_when_the_keeper_was_killed_first() {
    let (mark, folder) = (Mark::new(), tempfile::tempdir().unwrap());
    let supervisor = Supervisor::start(&mark, &folder.path().join("call.lock"));
    kill(supervisor.keeper, Signal::KILL);
    assert!(until(|| ProcessId::of(supervisor.keeper).is_none_or(|id| !id.is_alive())));
    assert!(mark.alive().len() >= 2);
    supervisor.kill();
    assert!(until(|| mark.alive().is_empty()));
}

#[tokio::test]
async fn keepers_do_not_hear_what_a_terminal_sends() {
    let keeper = keeper();
    let (output, call) =
        keeper.prepare().await.unwrap().start(&sh("echo up; read x; exec sleep 1000")).unwrap();
    wait_for(&output, b"up");
    for pid in [keeper.id().unwrap().pid, parent(call.id().pid)] {
        for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
            kill(pid, signal);
        }
    }
    let (ended, _) = run(&keeper, &sh("exit 6")).await;
    assert_eq!(ended.exit, Ok(Exit::Code(6)));
    call.kill();
    assert!(!call.ended().await.keeper_lost);
}

#[tokio::test]
async fn a_dead_keeper_is_replaced_and_its_calls_go_on() {
    let keeper = keeper();
    let (output, call) = keeper.prepare().await.unwrap().start(&sh("echo up; exec sleep 1000")).unwrap();
    wait_for(&output, b"up");
    let first = keeper.id().unwrap();
    kill(first.pid, Signal::KILL);
    let (ended, _) = run(&keeper, &sh("exit 6")).await;
    assert_eq!(ended.exit, Ok(Exit::Code(6)));
    assert_ne!(keeper.id().unwrap().pid, first.pid);
    assert!(call.id().is_alive());
    call.kill();
    let ended = call.ended().await;
    assert_eq!((ended.exit, ended.keeper_lost), (Ok(Exit::Signal(9)), false));
    // The dead keeper is not left as a zombie.
    assert!(until(|| ProcessId::of(first.pid) != Some(first)));
}

#[tokio::test]
async fn a_killed_call_keeper_takes_its_tree_with_it() {
    for keeper_too in [false, true] {
        let mark = Mark::new();
        let keeper = keeper();
        let (output, call) = keeper.prepare().await.unwrap().start(&mark.sh(AGENT)).unwrap();
        wait_for(&output, b"up");
        let call_keeper = parent(call.id().pid);
        if keeper_too {
            kill(keeper.id().unwrap().pid, Signal::KILL);
        }
        kill(call_keeper, Signal::KILL);
        let ended = call.ended().await;
        assert!(ended.keeper_lost);
        assert_eq!((ended.exit, ended.survivors), (Ok(Exit::Signal(9)), 0));
        assert!(until(|| mark.alive().is_empty()));
    }
}

#[tokio::test]
async fn the_keeper_alone_ends_what_a_killed_call_keeper_left() {
    // Nothing here sweeps: the handle is dropped without waiting for the end.
    let mark = Mark::new();
    let keeper = keeper();
    let (output, call) = keeper.prepare().await.unwrap().start(&mark.sh(AGENT)).unwrap();
    wait_for(&output, b"up");
    kill(parent(call.id().pid), Signal::KILL);
    assert!(until(|| mark.alive().is_empty()));
}

#[tokio::test]
async fn a_sweep_ends_recorded_processes_but_never_a_later_one_with_the_pid() {
    let mark = Mark::new();
    let keeper = keeper();
    let (output, call) =
        keeper.prepare().await.unwrap().start(&mark.sh("echo up; sleep 1000 & exec sleep 1001")).unwrap();
    wait_for(&output, b"up");
    let id = call.id();
    let later = ProcessId { start_time: id.start_time + 1, ..id };
    assert_eq!(sweep(&Targets { processes: vec![later], markers: vec![] }, GRACE), []);
    assert!(id.is_alive());
    let swept = sweep(&Targets { processes: vec![id], markers: vec![] }, GRACE);
    assert_eq!(swept.iter().map(|s| s.found_by).collect::<Vec<_>>(), [FoundBy::Record, FoundBy::Descent]);
    assert!(swept.iter().all(|s| s.gone) && swept[0].command == "sleep 1001", "{swept:?}");
    assert!(until(|| mark.alive().is_empty()));
}

#[tokio::test]
async fn a_sweep_finds_by_environment_what_has_left_the_tree() {
    let (mark, other) = (Mark::new(), Mark::new());
    let keeper = keeper();
    let (output, _call) = keeper.prepare().await.unwrap().start(&mark.sh(AGENT)).unwrap();
    let (other_output, _other) = keeper.prepare().await.unwrap().start(&other.sh(AGENT)).unwrap();
    wait_for(&output, b"up");
    wait_for(&other_output, b"up");
    let nobody = Targets { processes: vec![], markers: vec![mark.entry().into(), "LONGHAUL_LANE=9".into()] };
    assert_eq!(sweep(&nobody, GRACE), []);
    let swept = sweep(&Targets { processes: vec![], markers: vec![mark.entry().into()] }, GRACE);
    assert!(swept.len() >= 2 && swept.iter().all(|s| s.gone), "{swept:?}");
    assert_eq!(mark.alive(), Vec::<u32>::new());
    assert!(!other.alive().is_empty());
}

#[test]
fn a_sweep_never_ends_its_own_process_or_an_ancestor() {
    let ancestors = std::iter::successors(Some(std::process::id()), |pid| Some(parent(*pid)));
    let ids: Vec<ProcessId> = ancestors.take_while(|pid| *pid > 1).filter_map(ProcessId::of).collect();
    assert!(!ids.is_empty() && pids().count() > 1);
    assert_eq!(sweep(&Targets { processes: ids, markers: vec![] }, GRACE), []);
}

fn parent(pid: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap();
    after_name.split_whitespace().nth(1).map_or(0, |p| p.parse().unwrap())
}
