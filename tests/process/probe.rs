//! Helper programs without a keeper.

use std::time::Duration;

use longhaul::domain::outcome::Exit;
use longhaul::process::{CAPTURE_LIMIT, CallSpec, CaptureError, StartFailure, run_capture};

use super::scene::{Mark, sh, until};

const LONG: Duration = Duration::from_secs(600);

#[test]
fn both_streams_and_the_exit_are_captured() {
    let spec = CallSpec { stdin: b"in".to_vec(), ..sh("cat; echo err >&2; exit 3") };
    let captured = run_capture(&spec, LONG).unwrap();
    assert_eq!(
        (captured.exit, captured.stdout, captured.stderr),
        (Exit::Code(3), b"in".to_vec(), b"err\n".to_vec())
    );
}

#[test]
fn a_program_that_hangs_is_killed_with_its_tree() {
    let mark = Mark::new();
    let spec = mark.sh("trap '' TERM; setsid sleep 1000 & sleep 1001");
    let result = run_capture(&spec, Duration::from_millis(100));
    assert!(matches!(result, Err(CaptureError::TimedOut { .. })));
    assert!(until(|| mark.alive().is_empty()));
}

#[test]
fn a_flood_is_bounded_in_memory_and_in_time() {
    let result = run_capture(&sh("exec yes"), Duration::from_millis(100));
    assert!(matches!(result, Err(CaptureError::TimedOut { .. })));
    let captured = run_capture(&sh("yes | head -c 5000000"), LONG).unwrap();
    assert_eq!(captured.stdout.len(), CAPTURE_LIMIT);
}

#[test]
fn an_orphan_that_holds_the_pipe_is_not_waited_for() {
    let mark = Mark::new();
    let captured = run_capture(&mark.sh("sleep 1000 & echo hi"), LONG).unwrap();
    assert_eq!(captured.stdout, b"hi\n");
    mark.alive().into_iter().for_each(|pid| super::scene::kill(pid, rustix::process::Signal::KILL));
}

#[test]
fn what_cannot_start_says_why() {
    let missing = CallSpec { argv: vec!["/nonsuch".into()], ..sh("") };
    let failure = StartFailure::NotFound { program: "/nonsuch".into() };
    assert!(matches!(run_capture(&missing, LONG), Err(CaptureError::Start(f)) if f == failure));
    let nowhere = CallSpec { cwd: "/nonsuch".into(), ..sh("") };
    let failure = StartFailure::Folder { cwd: "/nonsuch".into(), errno: 2 };
    assert!(matches!(run_capture(&nowhere, LONG), Err(CaptureError::Start(f)) if f == failure));
}
