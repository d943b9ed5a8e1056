//! How calls end: asked, dropped, killed, with whatever they left.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use longhaul::domain::outcome::Exit;
use longhaul::process::{Activity, CallSpec, Keeper, MAX_LINE, PumpStop, StreamEnd, pump};

use super::scene::{Mark, Said, keeper, run, sh, until, wait_for};

const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(50);

#[tokio::test]
async fn term_lets_a_program_end_in_its_own_way() {
    let script = "trap 'exit 7' TERM; echo up; while :; do sleep 0.01; done";
    let (output, call) = keeper().prepare().await.unwrap().start(&sh(script)).unwrap();
    wait_for(&output, b"up");
    call.terminate(LONG);
    assert_eq!(call.ended().await.exit, Ok(Exit::Code(7)));
}

#[tokio::test]
async fn term_is_never_too_early() {
    // It may come when the process has not yet become the program, or not even unblocked its signals.
    let keeper = keeper();
    for _ in 0..100 {
        let spec = CallSpec { argv: vec!["/bin/sleep".into(), "1000".into()], ..sh("") };
        let (_output, call) = keeper.prepare().await.unwrap().start(&spec).unwrap();
        call.terminate(LONG);
        assert_eq!(call.ended().await.exit, Ok(Exit::Signal(15)));
    }
}

#[tokio::test]
async fn a_program_that_ignores_term_is_killed_after_the_grace() {
    let mark = Mark::new();
    let script = "trap '' TERM; (while :; do sleep 1; done) & echo up; while :; do sleep 1; done";
    let (output, call) = keeper().prepare().await.unwrap().start(&mark.sh(script)).unwrap();
    wait_for(&output, b"up");
    call.terminate(SHORT);
    assert_eq!(call.exited().await, Ok(Exit::Signal(9)));
    assert_eq!(call.ended().await.survivors, 0);
    assert_eq!(mark.alive(), Vec::<u32>::new());
}

#[tokio::test]
async fn a_later_command_can_only_shorten_the_grace() {
    let script = "trap '' TERM; echo up; while :; do sleep 1; done";
    let (output, call) = keeper().prepare().await.unwrap().start(&sh(script)).unwrap();
    wait_for(&output, b"up");
    call.terminate(LONG);
    call.kill();
    call.terminate(LONG);
    assert_eq!(call.ended().await.exit, Ok(Exit::Signal(9)));
}

#[tokio::test]
async fn nobody_gets_term_twice() {
    // Many programs take a second one for 'at once, without cleaning up'.
    let script = r#"n=0; trap 'n=$((n+1)); echo term $n' TERM; echo up; while [ $n = 0 ]; do sleep 0.01; done
        sleep 0.1; echo end $n"#;
    let (output, call) = keeper().prepare().await.unwrap().start(&sh(script)).unwrap();
    wait_for(&output, b"up");
    call.terminate(LONG);
    call.terminate(LONG);
    wait_for(&output, b"end 1");
    call.ended().await;
}

#[tokio::test]
async fn daemons_that_a_program_leaves_are_ended() {
    // C02, C03: background jobs, sessions of their own, double forks; some deaf to TERM.
    let mark = Mark::new();
    let script = r#"
        sleep 1000 >/dev/null 2>&1 &
        setsid sleep 1001 >/dev/null 2>&1 &
        (setsid sh -c 'trap "" TERM; (sleep 1002; :) & echo deaf; while :; do sleep 1; done' &)
        echo '{"type":"result"}'; exit 3"#;
    let (ended, said) = run(&keeper(), &mark.sh(script)).await;
    assert_eq!(ended.exit, Ok(Exit::Code(3)));
    assert!(ended.strays >= 3, "{ended:?}");
    assert_eq!(ended.survivors, 0);
    assert!(said.stdout.contains(&b"{\"type\":\"result\"}".to_vec()));
    assert_eq!(mark.alive(), Vec::<u32>::new());
}

#[tokio::test]
async fn what_moves_and_multiplies_is_caught() {
    // Each generation forks the next in a new session and ends; beside it a tree that doubles a few times.
    let mark = Mark::new();
    let script = r#"
        chain() { trap '' TERM; while :; do setsid sh -c "$CHAIN" & exit; done; }
        CHAIN='trap "" TERM; sleep 0.002; setsid sh -c "$CHAIN" & exit'; export CHAIN
        setsid sh -c "$CHAIN" &
        BOMB='trap "" TERM; n=$1; if [ $n -gt 0 ]; then n=$((n-1)); sh -c "$BOMB" b $n & sh -c "$BOMB" b $n & fi; sleep 1000'
        export BOMB; setsid sh -c "$BOMB" b 6 &
        echo up; sleep 1000"#;
    let (output, call) = keeper().prepare().await.unwrap().start(&mark.sh(script)).unwrap();
    wait_for(&output, b"up");
    assert!(until(|| call.tree_usage().processes > 60));
    call.kill();
    let ended = call.ended().await;
    assert_eq!(ended.survivors, 0);
    assert_eq!(mark.alive(), Vec::<u32>::new());
}

#[tokio::test]
async fn dropping_a_call_ends_its_tree() {
    let mark = Mark::new();
    let script = "setsid sleep 1000 & trap '' TERM; echo up; while :; do sleep 1; done";
    let keeper = keeper();
    let (output, call) = keeper.prepare().await.unwrap().start(&mark.sh(script)).unwrap();
    wait_for(&output, b"up");
    drop(call);
    assert!(until(|| mark.alive().is_empty()));
}

#[tokio::test]
async fn dropping_a_prepared_process_ends_it() {
    let prepared = keeper().prepare().await.unwrap();
    let id = prepared.id();
    drop(prepared);
    assert!(until(|| !id.is_alive()));
}

#[tokio::test]
async fn a_prepared_process_that_was_killed_is_an_end_like_others() {
    let prepared = keeper().prepare().await.unwrap();
    let id = prepared.id();
    super::scene::kill(id.pid, rustix::process::Signal::KILL);
    assert!(until(|| !id.is_alive()));
    let (_output, call) = prepared.start(&sh("exit 0")).unwrap();
    assert_eq!(call.ended().await.exit, Ok(Exit::Signal(9)));
}

#[tokio::test]
async fn the_end_can_be_waited_for_by_many_and_again() {
    let (output, call) =
        keeper().prepare().await.unwrap().start(&sh("echo up; read x; exec sleep 1000")).unwrap();
    wait_for(&output, b"up");
    let call = Arc::new(call);
    let waiters: Vec<_> = (0..4)
        .map(|_| {
            tokio::spawn({
                let call = call.clone();
                async move { call.ended().await }
            })
        })
        .collect();
    // A wait that is given up takes nothing from the others.
    tokio::select! {
        biased;
        () = tokio::task::yield_now() => {}
        _ = call.ended() => {}
    }
    call.kill();
    for waiter in waiters {
        assert_eq!(waiter.await.unwrap(), call.ended().await);
    }
}

#[tokio::test]
async fn a_pipe_held_by_a_stranger_does_not_hold_us_up() {
    // C01: here the holder is this test itself, which no sweep can end.
    let (output, call) = keeper().prepare().await.unwrap().start(&sh("echo up; exec sleep 1000")).unwrap();
    wait_for(&output, b"up");
    let held = std::fs::File::options().write(true).open(format!("/proc/{}/fd/1", call.id().pid)).unwrap();
    writeln!(&held, "late").unwrap();
    let (stop, signal) = PumpStop::pair().unwrap();
    let pumping = tokio::task::spawn_blocking(move || {
        let mut said = Said::default();
        let pumped = pump(output, MAX_LINE, &mut said, None, &Activity::new(), &signal);
        (said, pumped)
    });
    call.kill();
    assert_eq!(call.ended().await.exit, Ok(Exit::Signal(9)));
    stop.stop();
    let (said, pumped) = pumping.await.unwrap();
    assert_eq!((said.text().as_str(), pumped.stdout), ("late", StreamEnd::Stopped));
    drop(held);
}

#[tokio::test]
async fn five_hundred_calls_leave_no_process_and_no_descriptor() {
    // C04
    let keeper = keeper();
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let one = async |keeper: &Keeper| {
        let spec = CallSpec { argv: vec!["/bin/true".into()], ..sh("") };
        let (output, call) = keeper.prepare().await.unwrap().start(&spec).unwrap();
        assert_eq!(call.ended().await.exit, Ok(Exit::Code(0)));
        drop(output);
    };
    one(&keeper).await;
    let before = open();
    for _ in 0..500 {
        one(&keeper).await;
    }
    // Other tests of this program come and go meanwhile; 500 calls have some 3,500 descriptors.
    assert!(open() < before + 200, "{before} before, {} after", open());
    let keeper_pid = keeper.id().unwrap().pid;
    let children =
        || std::fs::read_to_string(format!("/proc/{keeper_pid}/task/{keeper_pid}/children")).unwrap();
    assert!(until(|| children().is_empty()), "{}", children());
}

#[tokio::test]
async fn usage_counts_the_tree() {
    let script = "sleep 1000 & i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; echo up; wait";
    let (output, call) = keeper().prepare().await.unwrap().start(&sh(script)).unwrap();
    wait_for(&output, b"up");
    let usage = call.tree_usage();
    assert_eq!(usage.processes, 2);
    assert!(usage.rss_bytes > 100_000 && !usage.cpu.is_zero(), "{usage:?}");
    call.kill();
    assert!(!call.ended().await.cpu.is_zero());
    assert_eq!(call.tree_usage().processes, 0);
}
