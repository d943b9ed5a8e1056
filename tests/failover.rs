//! A chain in which some providers are processes and some are not.

use testkit::{World, words};

#[test]
fn a_process_takes_over_from_a_script() {
    let world = World::with_git();
    world.provider("fake", "change=a.txt say=ok");
    world.config("[provider]\nname = \"rehearsal\"\nfallback = [\"fake\"]\n");
    let script = "[[call]]\nsteps = [{ fail = \"usage_limited\", after = 18000 }]\n";
    world.write(".longhaul/rehearsal.toml", script);
    let ended = world.run(words("run --max-iterations 3 --json")).ok();
    assert_eq!(ended.event("failover").text("to"), "fake");
    assert_eq!(ended.events_of("iteration_finished").len(), 3);
    assert_eq!(ended.events_of("attempt_finished").len(), 4);
    let log = world.agent_log();
    assert_eq!((log.calls.len(), log.violations.len()), (3, 0));
}

#[test]
fn ep_004_a_renewed_credential_is_noticed_and_the_run_goes_on_by_itself() {
    let world = World::new();
    world.config("[provider]\nname = \"claude\"\n");
    let refused = r#"{"type":"result","is_error":true,"api_error_status":401,"result":"Failed to authenticate: OAuth session expired"}"#;
    let done = r#"{"type":"result","subtype":"success","is_error":false,"result":"done"}"#;
    world.cli(
        "claude",
        "2.1.332 (Claude Code)",
        &format!(
            "echo call >> calls\nif grep -q fresh ~/.claude/.credentials.json; then echo '{done}'; else echo '{refused}'; exit 1; fi"
        ),
    );
    let file = world.home().join(".claude/.credentials.json");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "stale").unwrap();
    let mut run = world.start(words("run --json --max-iterations 1"));
    let paused = run.event("session_paused");
    assert_eq!(paused.text("reason"), "auth_required");
    let detail = paused.text("detail").to_owned();
    assert!(detail.contains(&file.display().to_string()), "which credential: {detail}");
    assert!(detail.contains("/login"), "how to renew it: {detail}");
    assert_eq!(world.read("calls"), "call\n", "no blind retry");
    std::fs::write(&file, "fresh and longer").unwrap();
    let ended = run.wait().ok();
    assert_eq!(ended.event("session_continued").text("reason"), "auth_required");
    assert_eq!(world.read("calls"), "call\ncall\n");
    let attempts = ended.events_of("attempt_finished");
    assert_eq!(attempts[0].data("counts"), &serde_json::json!(false), "no retry is used");
    assert_eq!(attempts[1].text("outcome"), "completed");
}
