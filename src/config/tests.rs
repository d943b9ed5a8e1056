//! The layers together.

use std::time::Duration;

use toml::Value;

use super::*;

/// Sources and files as text: (user, project, environment, command line).
fn given(
    user: &str,
    project: &str,
    environment: &[(&str, &str)],
    line: &[(&str, &str)],
) -> Result<Loaded, ConfigError> {
    let sources = Sources {
        user: Some("/u/config.toml".into()),
        project: Some("/p/.longhaul/config.toml".into()),
        environment: environment.iter().map(|(name, value)| (name.into(), value.into())).collect(),
        overrides: line
            .iter()
            .map(|(key, value)| Override {
                key: (*key).into(),
                value: (*value).into(),
                option: "--option".into(),
            })
            .collect(),
    };
    let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    resolve(&sources, &Files { user: some(user), project: some(project) })
}

fn refused(project: &str) -> String {
    given("", project, &[], &[]).expect_err("refused").to_string()
}

#[test]
fn the_defaults_hold_and_have_every_key() {
    let Loaded { config, settings } = load(&Sources::default()).unwrap();
    assert_eq!(config.provider_chain(), ["claude"]);
    assert_eq!(config.model_for("claude"), None);
    assert_eq!((config.run.max_iterations, config.run.retries), (None, 50));
    assert_eq!(config.spec.max_tokens, 50_000);
    assert_eq!(config.stop.grace, Duration::from_secs(5));
    assert_eq!(config.pause.mode, PauseMode::Finish);
    assert_eq!(config.disk.min_free, 100_000_000);
    for key in KEYS.iter().filter(|key| !key.contains('*')) {
        assert_eq!(settings.get(key).map(|s| &s.origin), Some(&Origin::Default), "{key}");
    }
}

#[test]
fn each_key_of_the_defaults_has_a_comment() {
    let mut above = "";
    let mut commented = false;
    for line in DEFAULTS.lines() {
        // Two keys that a comment explains together may follow one another.
        let key = line.contains(" = ") && !line.starts_with('#');
        commented = above.starts_with('#') || (commented && above.contains(" = "));
        assert!(!key || commented, "no comment above: {line}");
        above = line;
    }
}

#[test]
fn later_layers_win_key_by_key() {
    let user = "[run]\nretries = 1\nfailover_after = 1\n[stop]\ngrace = '1s'\n[backoff]\nbase = '1s'\n";
    let project = "# mine\n\n[run]\nretries = 2\n[stop]\ngrace = '2s'\n[backoff]\nbase = '3s'\n";
    let environment = [
        ("LONGHAUL_STOP__GRACE", "4s"),
        ("LONGHAUL_BACKOFF__BASE", "5s"),
        ("LONGHAUL_PROVIDERS__CODEX__ENV__My_Var", "x"),
        ("LONGHAUL_DURABILITY", "process"),
        ("LONGHAUL_HOME", "/not/a/setting"),
        ("LONGHAUL_SESSION", "not a setting"),
        ("PATH", "/bin"),
    ];
    let line = [("backoff.base", "6s"), ("backoff.base", "7s")];
    let Loaded { config, settings } = given(user, project, &environment, &line).unwrap();
    for (key, value, origin) in [
        ("run.failover_after", Value::Integer(1), "/u/config.toml:3"),
        ("run.retries", Value::Integer(2), "/p/.longhaul/config.toml:4"),
        ("stop.grace", "4s".into(), "environment LONGHAUL_STOP__GRACE"),
        ("backoff.base", "7s".into(), "command line --option"),
        ("backoff.cap", "5m".into(), "default"),
        ("providers.codex.env.My_Var", "x".into(), "environment LONGHAUL_PROVIDERS__CODEX__ENV__My_Var"),
        ("durability", "process".into(), "environment LONGHAUL_DURABILITY"),
    ] {
        let setting = settings.get(key).unwrap();
        assert_eq!((&setting.value, setting.origin.to_string().as_str()), (&value, origin), "{key}");
    }
    assert_eq!((config.run.retries, config.run.failover_after), (2, 1));
    assert_eq!((config.stop.grace, config.backoff.base), (Duration::from_secs(4), Duration::from_secs(7)));
}

#[test]
fn unknown_keys_are_errors_with_line_column_and_suggestion() {
    let error = given("", "[run]\nmax_iteration = 5\n[rum]\nretries = 1\n", &[], &[]).expect_err("refused");
    let ConfigError::Invalid(problems) = &error else { panic!("{error}") };
    assert_eq!(
        problems[0].to_string(),
        "/p/.longhaul/config.toml:2:1: unknown key `run.max_iteration`\n  |\n2 | max_iteration = 5\n  | \
         ^^^^^^^^^^^^^"
    );
    assert_eq!(
        problems[0].hint.as_deref(),
        Some("did you mean `run.max_iterations` instead of `run.max_iteration`?")
    );
    assert_eq!(problems[1].hint.as_deref(), Some("did you mean `run` instead of `rum`?"));
    assert_eq!(problems.len(), 2, "all of them at once");

    let message = given("", "", &[("LONGHAUL_RUN__RETRYS", "5")], &[]).unwrap_err().to_string();
    assert_eq!(message, "environment LONGHAUL_RUN__RETRYS: unknown key `run.retrys`");
    let message = given("", "", &[], &[("run.retrys", "5")]).unwrap_err().to_string();
    assert_eq!(message, "command line --option: unknown key `run.retrys`");
}

#[test]
fn messages_name_place_key_value_and_rule() {
    for (text, want) in [
        ("[run]\nretries = -1", ":2:11: `run.retries` must be a whole number of at least 0, not -1"),
        ("[run]\nwait = 'x'", ":2:8: `run.wait` must be a boolean, not string \"x\""),
        ("run = 5", ":1:7: `run` is a section, not a value"),
        ("[backoff]\ncap = '1s'", ":2:1: `backoff.cap` must be at least `backoff.base`, not \"1s\""),
        ("[budget]\nusd = 0", ":2:1: `budget.usd` must be more than 0, not 0"),
        ("[run]\nfailover_after = 0", "`run.failover_after` must be a whole number from 1 to"),
        ("[run]\nretries = 9999999999", "`run.retries` must be a whole number from 0 to 2147483647, not 99"),
        ("[provider]\nname = '../x'", "`provider.name` must be a name of letters"),
        ("[disk]\nresume_factor = 0.5", "`disk.resume_factor` must be from 1 to 100, not 0.5"),
        ("[journal]\nmax_total = '64MiB'", "`journal.max_total` must be at least twice `journal.max_file`"),
        (
            "[spec]\nmax_tokens = 200001",
            "`spec.max_tokens` must be at least 100 and at most `spec.window_tokens`",
        ),
        ("[providers.x]\npath = '~/x'", "`providers.x.path` must be written out, without `~`"),
        ("[run\nretries = 1", ":1:5: not valid TOML: "),
        ("[run]\nretries = 1\nretries = 2", ":3:1: not valid TOML: duplicate key"),
    ] {
        let message = refused(text);
        assert!(message.contains(want), "{text}: {message}");
    }
}

#[test]
fn a_secret_is_in_no_message() {
    for text in [
        "[providers.x.env]\nAPI_KEY = 12345",
        "[providers.x.env]\nAPI_KEY = sk-ant-12345-abcdefgh\n",
        "[run]\nwait = 'sk-ant-12345-abcdefgh'",
    ] {
        assert!(!refused(text).contains("12345"), "{}", refused(text));
    }
    let variable = [("LONGHAUL_PROVIDERS__X__ENV__API_KEY", "12345")];
    let settings = given("", "", &variable, &[]).unwrap();
    assert!(!format!("{settings:?}").contains("12345"), "{settings:?}");
    let sources =
        Sources { environment: vec![("LONGHAUL_X_KEY".into(), "12345".into())], ..Sources::default() };
    assert!(!format!("{sources:?}").contains("12345"));
}

#[test]
fn gates_are_read_and_checked() {
    let text = "[gates]\ntimeout = '1m'\n[[gates.commands]]\nname = 'test'\nrun = \"cargo test 'a b'\"\n\
                [[gates.commands]]\nname = 'all'\nshell = 'make && x'\ntimeout = '2m'\nenv = { CI = '1' }\n";
    let gates = given("", text, &[], &[]).unwrap().config.gates;
    let argv = ["cargo", "test", "a b"].map(str::to_owned).to_vec();
    assert_eq!(gates.commands[0].command, GateCommand::Argv(argv));
    assert_eq!(gates.commands[0].timeout, Duration::from_secs(60));
    assert_eq!(gates.commands[1].command, GateCommand::Shell("make && x".into()));
    assert_eq!(gates.commands[1].timeout, Duration::from_secs(120));
    for (gate, want) in [
        ("name = 'a'", "gate \"a\" of `gates.commands` needs either `run` or `shell`"),
        ("name = 'a'\nrun = 'x'\nshell = 'x'", "needs either `run` or `shell`"),
        ("name = ''\nrun = 'x'", "needs a name"),
        ("name = 'a'\nrun = ''", "has an empty command"),
        ("name = 'a'\nrun = \"x 'y\"", "open quote"),
        ("name = 'a'\nrun = 'x'\n[[gates.commands]]\nname = 'a'\nrun = 'y'", "is there twice"),
        ("name = 'a'\nrun = 'x'\ntimeout = '0s'", "needs a timeout of more than 0"),
        ("name = 'a'\nrun = 'x'\ntimeout = 'soon'", ":4:11: `gates.commands` must be a duration"),
        ("name = 'a'\ncmd = 'x'", ":3:1: in `gates.commands`: unknown field `cmd`, expected one of"),
        ("run = 'x'", "in `gates.commands`: missing field `name`"),
    ] {
        let message = refused(&format!("[[gates.commands]]\n{gate}\n"));
        assert!(message.contains(want), "{gate}: {message}");
    }
}

#[test]
fn a_model_goes_to_the_provider_it_was_meant_for() {
    let own = "[providers.codex]\nmodel = 'p'\n";
    for (user, project, line, want) in [
        ("[provider]\nmodel = 'm'", "", &[][..], [("claude", Some("m")), ("codex", None)]),
        // The project chose another provider: the user's model was meant for the first.
        ("[provider]\nmodel = 'm'", "[provider]\nname = 'codex'", &[], [("codex", None), ("claude", None)]),
        (own, "", &[("provider.model", "m")], [("claude", Some("m")), ("codex", Some("p"))]),
        (
            own,
            "[provider]\nname = 'codex'",
            &[("provider.model", "m")],
            [("codex", Some("m")), ("claude", None)],
        ),
        ("[provider]\nname = 'codex'\nmodel = 'm'", own, &[], [("codex", Some("p")), ("claude", None)]),
    ] {
        let config = given(user, project, &[], line).unwrap().config;
        for (provider, model) in want {
            assert_eq!(config.model_for(provider), model, "{user} {project} {provider}");
        }
    }
}

#[test]
fn odd_files_are_refused_and_missing_ones_are_empty() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| Sources { project: Some(dir.path().join(name)), ..Sources::default() };
    assert!(load(&at("missing")).is_ok());
    assert!(matches!(check_file(&dir.path().join("missing")), Err(ConfigError::Io { .. })));
    assert!(load(&at(".")).unwrap_err().to_string().ends_with("not a regular file"));
    std::fs::write(dir.path().join("bytes"), b"[run]\n# \xff\n").unwrap();
    assert!(load(&at("bytes")).unwrap_err().to_string().contains("bytes:2:3: not valid UTF-8"));
    std::fs::write(dir.path().join("huge"), vec![b'\n'; (1 << 20) + 1]).unwrap();
    assert!(load(&at("huge")).unwrap_err().to_string().ends_with("larger than 1 MiB"));
    std::fs::write(dir.path().join("crlf"), "\u{feff}[run]\r\nretries = 3\r\n").unwrap();
    assert_eq!(load(&at("crlf")).unwrap().config.run.retries, 3);
}

proptest::proptest! {
    /// Whatever a file holds, there is an answer, and places lie within the text.
    #[test]
    fn any_text_has_an_answer(text in "([a-z_.]{1,12}|\\[|\\]|=|\"|'|#|\n| |[0-9]{1,3}|é|run|wait)*") {
        if let Err(ConfigError::Invalid(problems)) = given("", &text, &[], &[]) {
            for problem in problems {
                if let Origin::File(place) = problem.origin {
                    proptest::prop_assert!(place.line <= text.matches('\n').count() + 1);
                }
            }
        }
    }
}
