//! What a program finds when it starts, and why it does not.

use std::os::unix::fs::PermissionsExt;

use longhaul::domain::outcome::Exit;
use longhaul::process::{CallSpec, ProcessError, ProcessId, StartFailure};

use super::scene::{Mark, keeper, run, sh};

#[tokio::test]
async fn exit_code_and_signal_are_told() {
    let keeper = keeper();
    for (script, exit) in
        [("exit 0", Exit::Code(0)), ("exit 143", Exit::Code(143)), ("kill -9 $$", Exit::Signal(9))]
    {
        let (ended, _) = run(&keeper, &sh(script)).await;
        assert_eq!(ended.exit, Ok(exit));
        assert_eq!((ended.strays, ended.survivors, ended.keeper_lost), (0, 0, false));
    }
}

#[tokio::test]
async fn environment_folder_and_prompt_are_what_the_call_says() {
    let folder = tempfile::tempdir().unwrap();
    let spec = CallSpec {
        argv: vec!["env".into()],
        env: vec![("PATH".into(), "/nonsense:/usr/bin:/bin".into()), ("A B".into(), "x=y\nz".into())],
        cwd: folder.path().into(),
        stdin: Vec::new(),
    };
    let (ended, said) = run(&keeper(), &spec).await;
    assert_eq!(ended.exit, Ok(Exit::Code(0)));
    assert_eq!(said.text(), "PATH=/nonsense:/usr/bin:/bin\nA B=x=y\nz");

    let spec =
        CallSpec { cwd: folder.path().into(), stdin: b"do\nit".to_vec(), ..sh("pwd -P; cat; echo; cat") };
    let (_, said) = run(&keeper(), &spec).await;
    assert_eq!(said.text(), format!("{}\ndo\nit", folder.path().canonicalize().unwrap().display()));
}

#[tokio::test]
async fn the_id_of_the_prepared_process_is_that_of_the_program() {
    let prepared = keeper().prepare().await.unwrap();
    let id = prepared.id();
    assert_eq!(ProcessId::of(id.pid), Some(id));
    let (output, call) = prepared.start(&sh("echo $$; cut -d' ' -f6 /proc/$$/stat")).unwrap();
    assert_eq!(call.id(), id);
    let said = super::scene::read(output).await;
    // Its session is its own, too.
    assert_eq!(said.text(), format!("{0}\n{0}", id.pid));
    call.ended().await;
}

#[tokio::test]
async fn nothing_of_ours_is_inherited() {
    let (_, said) = run(&keeper(), &sh("exec ls /proc/self/fd")).await;
    // 3 is the folder that ls reads.
    assert_eq!(said.text(), "0\n1\n2\n3");
    let (_, said) = run(&keeper(), &sh("exec grep -E '^Sig(Blk|Ign)' /proc/self/status")).await;
    assert!(said.stdout.iter().all(|l| l.ends_with(b"\t0000000000000000")), "{}", said.text());
}

#[tokio::test]
async fn stdin_without_a_prompt_is_at_its_end_at_once() {
    // C10: an agent that waits for end of file on stdin must not wait for ever.
    let (ended, said) = run(&keeper(), &sh("cat; readlink /proc/$$/fd/0")).await;
    assert_eq!((ended.exit, said.text().as_str()), (Ok(Exit::Code(0)), "/dev/null"));
}

#[tokio::test]
async fn a_large_prompt_that_nobody_reads_is_no_problem() {
    // C08: no writer, so no EPIPE and no deadlock.
    let prompt = vec![b'x'; 1024 * 1024];
    let (ended, _) = run(&keeper(), &CallSpec { stdin: prompt.clone(), ..sh("exit 4") }).await;
    assert_eq!(ended.exit, Ok(Exit::Code(4)));
    let (_, said) = run(&keeper(), &CallSpec { stdin: prompt, ..sh("wc -c") }).await;
    assert_eq!(said.text().trim(), "1048576");
}

#[tokio::test]
async fn the_prompt_cannot_be_changed_by_who_reads_it() {
    let script = "echo no >&0; echo no >/proc/self/fd/0; cat";
    let (_, said) = run(&keeper(), &CallSpec { stdin: b"yes".to_vec(), ..sh(script) }).await;
    assert_eq!(said.text(), "yes");
}

#[tokio::test]
async fn each_reason_not_to_start_is_told_apart() {
    // C19: missing program, missing folder, no right to execute, no shebang.
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str, mode: u32| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        path
    };
    let plain = file("plain", "#!/bin/sh\n", 0o644);
    let no_shebang = file("no-shebang", "echo hi\n", 0o755);
    let no_interpreter = file("no-interpreter", "#!/nonsense/python9\n", 0o755);
    let call = |program: &std::path::Path| CallSpec { argv: vec![program.into()], ..sh("") };
    let missing = folder.path().join("missing");
    let cases = [
        (call(&missing), StartFailure::NotFound { program: missing.clone() }),
        (call("nonsuch-cli".as_ref()), StartFailure::NotFound { program: "nonsuch-cli".into() }),
        (call(&plain), StartFailure::NotExecutable { program: plain.clone() }),
        (call(folder.path()), StartFailure::NotExecutable { program: folder.path().into() }),
        (call(&no_shebang), StartFailure::NotAProgram { program: no_shebang.clone() }),
        (call(&no_interpreter), StartFailure::InterpreterNotFound { program: no_interpreter.clone() }),
        (
            CallSpec { cwd: missing.clone(), ..sh("") },
            StartFailure::Folder { cwd: missing.clone(), errno: 2 },
        ),
        (CallSpec { cwd: plain.clone(), ..sh("") }, StartFailure::Folder { cwd: plain.clone(), errno: 20 }),
        (sh(&"x".repeat(3 << 20)), StartFailure::TooLong { program: "/bin/sh".into() }),
    ];
    let keeper = keeper();
    for (spec, failure) in cases {
        let (ended, said) = run(&keeper, &spec).await;
        assert_eq!(ended.exit, Err(failure));
        assert_eq!(said, super::scene::Said::default());
    }
}

#[tokio::test]
async fn a_call_that_makes_no_sense_ends_what_was_prepared_for_it() {
    let keeper = keeper();
    let prepared = keeper.prepare().await.unwrap();
    let id = prepared.id();
    let refused = prepared.start(&CallSpec { argv: Vec::new(), ..Mark::new().sh("") });
    assert!(matches!(refused, Err(ProcessError::BadCall { .. })));
    assert!(super::scene::until(|| !id.is_alive()));
}

#[tokio::test]
async fn the_next_process_can_be_prepared_while_a_call_runs() {
    let keeper = keeper();
    let (output, call) =
        keeper.prepare().await.unwrap().start(&sh("echo here; read x; exec sleep 1000")).unwrap();
    let (ended, _) = run(&keeper, &sh("exit 5")).await;
    assert_eq!(ended.exit, Ok(Exit::Code(5)));
    call.kill();
    assert_eq!(call.ended().await.exit, Ok(Exit::Signal(9)));
    drop(output);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lanes_share_one_keeper() {
    let keeper = std::sync::Arc::new(keeper());
    let lane = |code: i32| {
        let keeper = keeper.clone();
        tokio::spawn(async move { run(&keeper, &sh(&format!("exit {code}"))).await.0.exit })
    };
    for (code, lane) in (0..16).map(|code| (code, lane(code))).collect::<Vec<_>>() {
        assert_eq!(lane.await.unwrap(), Ok(Exit::Code(code)));
    }
}
