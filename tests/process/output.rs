//! The pump on real pipes.

use longhaul::process::{Activity, AttemptLog, CallSpec, MAX_LINE, PumpStop, pump};

use super::scene::{Said, keeper, run, sh};

#[tokio::test]
async fn a_full_stderr_does_not_hold_up_stdout() {
    // C09
    let (_, said) = run(&keeper(), &sh("head -c 200000 /dev/zero >&2; echo done")).await;
    assert_eq!(said.text(), "done");
    assert_eq!(said.stderr, [vec![0; 200_000]]);
}

#[tokio::test]
async fn any_bytes_pass_and_lines_after_them() {
    // B07, B12
    let script = r"printf 'ok1\n\377\376bad\nnul\000\033[31m\r\n\nno end'";
    let (_, said) = run(&keeper(), &sh(script)).await;
    let lines: [&[u8]; 5] = [b"ok1", b"\xff\xfebad", b"nul\0\x1b[31m", b"", b"no end"];
    assert_eq!(said.stdout, lines);
}

#[tokio::test]
async fn an_over_long_line_is_told_once_and_what_follows_is_read() {
    // B04, B05
    let script = r#"head -c 9437184 /dev/zero; echo; echo '{"type":"result"}'; head -c 8388608 /dev/zero"#;
    let (_, said) = run(&keeper(), &sh(script)).await;
    assert_eq!(said.too_long, [9_437_184]);
    assert_eq!(said.stdout.len(), 2);
    assert_eq!(said.stdout[0], b"{\"type\":\"result\"}");
    assert_eq!(said.stdout[1].len(), MAX_LINE);
}

#[tokio::test]
async fn the_log_is_capped_and_the_sink_still_gets_everything() {
    // G01
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("attempt");
    let spec = CallSpec { argv: vec!["seq".into(), "200000".into()], ..sh("") };
    let (output, call) = keeper().prepare().await.unwrap().start(&spec).unwrap();
    let pumping = tokio::task::spawn_blocking(move || {
        let (mut said, activity) = (Said::default(), Activity::new());
        let mut log = AttemptLog::new(&base, 10_000);
        let (_stop, signal) = PumpStop::pair().unwrap();
        let pumped = pump(output, MAX_LINE, &mut said, Some(&mut log), &activity, &signal);
        assert!(pumped.log_error.is_none());
        (said, activity, log.finish().unwrap())
    });
    call.ended().await;
    let (said, activity, cut) = pumping.await.unwrap();
    assert_eq!((said.stdout.len(), activity.lines(), activity.bytes()), (200_000, 200_000, 1_288_895));
    let log = std::fs::read_to_string(folder.path().join("attempt.stdout.log")).unwrap();
    assert!(log.len() < 10_100 && cut > 1_270_000, "{} {cut}", log.len());
    assert!(log.starts_with("1\n2\n") && log.ends_with("\n199999\n200000\n"));
}
