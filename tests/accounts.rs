//! Accounts that several projects use: separate processes, one `host.db`.
#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::fs;
use std::path::Path;

use jiff::Timestamp;
use serde_json::Value;
use testkit::{AgentLog, Event, World, eventually, words};

const SETTINGS: &str = "backoff.base = \"20ms\"\nbackoff.cap = \"20ms\"\nrate_limit.probe_min = \"1s\"\n\
                        rate_limit.probe_max = \"1s\"\n[provider]\nname = \"shared\"\n";

/// A limit that names its reset, an hour away.
const FOR_AN_HOUR: &str = "*: err='rate limit exceeded, try again in 3600 seconds' exit=1";

/// One that does not, after a while in which another call could begin.
const FOR_A_WHILE: &str = "*: work=200 err='rate limit exceeded' exit=1";

/// A user with several projects, whose provider `shared` is one fake agent with one log.
struct User {
    first: World,
}

impl User {
    fn new(rules: &str) -> Self {
        let user = User { first: World::new() };
        user.agent_does(rules);
        user
    }

    /// What the agent does from now on, in every project.
    fn agent_does(&self, rules: &str) {
        let (new, script) = (self.first.outside().join("new"), self.script());
        fs::write(&new, rules).unwrap();
        fs::rename(new, script).unwrap();
    }

    fn script(&self) -> std::path::PathBuf {
        self.first.outside().join("agent.script")
    }

    /// One more project, with this key.
    fn project(&self, key: &str) -> World {
        let mut world = World::new();
        world.set("LONGHAUL_HOME", self.home());
        world.set("SHARED_KEY", key);
        world.config(SETTINGS);
        self.provide(&world);
        world
    }

    /// The provider, for a project.
    fn provide(&self, world: &World) {
        let agent = self.first.agent(&format!("--script {}", self.script().display()));
        let mut words = agent.split(' ').filter(|w| !w.is_empty()).map(|w| w.trim_matches('\''));
        let (program, args) = (words.next().unwrap(), words.collect::<Vec<_>>());
        let file = format!(
            "title = \"Shared\"\nprogram = {program:?}\nargs = {args:?}\noutput = \"text\"\n\
             [env]\nkeys = [\"SHARED_KEY\"]\n\
             [[rules]]\nid = \"test.limit\"\noutcome = \"rate_limited\"\nwhere = [\"stderr\"]\npattern = 'rate limit'\n\
             [[rules]]\nid = \"test.model\"\noutcome = \"usage_limited\"\nscope = \"model\"\nwhere = [\"stderr\"]\npattern = 'limit of this model'\n\
             [[rules]]\nid = \"test.auth\"\noutcome = \"auth_failed\"\nwhere = [\"stderr\"]\npattern = 'invalid key'\n"
        );
        world.write(".longhaul/providers/shared.toml", file);
    }

    fn home(&self) -> std::path::PathBuf {
        self.first.home().join("longhaul")
    }

    fn log(&self) -> AgentLog {
        self.first.agent_log()
    }

    /// How often the agent was called in this project.
    fn calls_in(&self, world: &World) -> usize {
        let folder = world.project().canonicalize().unwrap();
        self.log().calls.iter().filter(|call| Path::new(&call.cwd) == folder).count()
    }
}

fn time(event: &Event, key: &str) -> Timestamp {
    event.text(key).parse().unwrap()
}

/// Nanoseconds since 1970.
fn nanos_of(time: Timestamp) -> u128 {
    u128::try_from(time.as_nanosecond()).unwrap()
}

fn nanos(event: &Event) -> u128 {
    u128::try_from(event.time_ns()).unwrap()
}

#[test]
fn ep_011_a_second_project_never_calls_an_account_that_cools_down() {
    let user = User::new(FOR_AN_HOUR);
    let (one, other) = (user.project("k"), user.project("k"));
    let mut first = one.start(words("run --json --max-iterations 1"));
    let until = time(&first.event("wait_started"), "until");

    let mut second = other.start(words("run --json --max-iterations 1"));
    let wait = second.event("wait_started");
    assert_eq!((wait.text("why"), time(&wait, "until")), ("cool_down", until));
    let cools = second.event("cool_down");
    assert_eq!((cools.text("account"), cools.text("why")), ("shared", "rate_limited"));
    let status = other.status();
    assert_eq!(status["accounts"][0]["state"], "cooling", "{status}");

    // What it had learned outlives it, also for a session that starts after that.
    first.kill_9();
    second.kill_9();
    let mut second = other.start(words("run --json"));
    assert_eq!(time(&second.event("wait_started"), "until"), until);
    let third = user.project("k");
    let mut third_run = third.start(words("run --json --max-iterations 1"));
    assert_eq!(time(&third_run.event("wait_started"), "until"), until);
    assert_eq!(user.log().calls.len(), 1, "the call that found it out, and no other");

    // Another key is another account.
    let apart = user.project("another key");
    user.agent_does("*: say=ok");
    apart.run(words("run --json --max-iterations 1")).ok();
    assert_eq!((user.calls_in(&apart), user.log().calls.len()), (1, 2));

    for (world, mut run) in [(&other, second), (&third, third_run)] {
        assert!(run.events().iter().all(|e| e.kind() != "attempt_started"));
        world.run(words("stop")).ok();
        run.event("session_finished");
        run.wait().exits(3);
    }
}

#[test]
fn ep_011_a_models_limit_holds_back_who_asks_for_that_model() {
    let user = User::new("*: err='limit of this model reached, try again in 3600 seconds' exit=1");
    let with = |model: &str| {
        let world = user.project("k");
        world.config(&format!("{SETTINGS}model = \"{model}\"\n"));
        world
    };
    let (one, other, apart) = (with("large"), with("large"), with("small"));
    let mut first = one.start(words("run --json --max-iterations 1"));
    let until = time(&first.event("wait_started"), "until");
    let mut second = other.start(words("run --json --max-iterations 1"));
    assert_eq!(time(&second.event("wait_started"), "until"), until);
    assert_eq!(user.calls_in(&other), 0);
    user.agent_does("*: say=ok");
    apart.run(words("run --json --max-iterations 1")).ok();
    assert_eq!(user.calls_in(&apart), 1, "its model has no limit");
    // A person knows better: one project's next call finds out, for both.
    one.run(words("accounts clear shared")).ok();
    first.wait().ok();
    second.wait().ok();
}

#[test]
fn ep_011_one_call_at_a_time_finds_out_whether_an_account_works_again() {
    let user = User::new(FOR_A_WHILE);
    let worlds: Vec<World> = (0..4).map(|_| user.project("k")).collect();
    let mut runs = vec![worlds[0].start(words("run --json --max-iterations 2"))];
    runs[0].event("cool_down");
    runs.extend(worlds[1..].iter().map(|world| world.start(words("run --json --max-iterations 2"))));
    user.first.agent_reaches("five calls", |log| log.calls.len() >= 5);
    user.agent_does("*: say=ok");
    let ended: Vec<_> = runs.into_iter().map(|run| run.wait().ok()).collect();

    let log = user.log();
    let limits = log.calls.iter().filter(|call| call.iteration == 1).count() - worlds.len();
    let mut windows = Vec::new();
    for run in &ended {
        let finished = run.events_of("iteration_finished");
        assert_eq!(finished.len(), 2, "every project goes on by itself");
        assert!(run.events_of("attempt_finished").iter().all(|e| e.data("counts") == false), "no retries");
        // Its own calls, and what each of them led to.
        let events = run.events();
        for (at, event) in events.iter().enumerate() {
            if event.kind() == "attempt_finished" && event.text("outcome") == "rate_limited" {
                let cools = events[at..].iter().find(|e| e.kind() == "cool_down").unwrap();
                windows.push((nanos(event), nanos_of(time(cools, "until"))));
            }
        }
    }
    assert_eq!(windows.len(), limits);
    for (learned, until) in windows {
        let early = log.calls.iter().filter(|call| (learned..until).contains(&call.start_ns)).count();
        assert_eq!(early, 0, "a call while the account cools down");
    }
    let limited: Vec<_> = log.calls.iter().take(limits).collect();
    for pair in limited.windows(2) {
        assert!(pair[0].end_ns.unwrap() < pair[1].start_ns, "two calls to find out one thing: {pair:#?}");
    }
}

#[test]
fn a_probe_that_dies_with_its_process_is_made_by_another() {
    let user = User::new(FOR_A_WHILE);
    let (one, other) = (user.project("k"), user.project("k"));
    let mut first = one.start(words("run --json --max-iterations 1"));
    first.event("cool_down");
    user.agent_does("*: hang");
    user.first.agent_reaches("the probe", |log| log.calls.len() == 2);
    let mut second = other.start(words("run --json --max-iterations 1"));
    let wait = second.event("wait_started");
    assert_eq!(wait.text("detail"), "another session finds out whether `shared` works again");
    assert_eq!(user.calls_in(&other), 0);
    user.agent_does("*: say=ok");
    first.kill_9();
    second.wait().ok();
    assert_eq!(user.calls_in(&other), 1);
}

#[test]
fn ep_004_a_dead_key_is_known_to_all_projects_until_a_person_resumes() {
    let user = User::new("*: err='invalid key' exit=1");
    let (one, other) = (user.project("k"), user.project("k"));
    let mut first = one.start(words("run --json --max-iterations 1"));
    assert_eq!(first.event("session_paused").text("reason"), "auth_required");
    // To start a session is a person's word, too: one call, for whoever comes first.
    let mut second = other.start(words("run --json --max-iterations 1"));
    assert_eq!(second.event("session_paused").text("reason"), "auth_required");
    assert_eq!(user.log().calls.len(), 2);
    let list = accounts(&one);
    assert_eq!((&list[0]["state"], &list[0]["why"]), (&"out".into(), &"auth_failed".into()), "{list}");

    user.agent_does("*: say=ok");
    one.run(words("resume")).ok();
    first.wait().ok();
    assert_eq!(accounts(&other)[0]["state"], "ready");
    other.run(words("resume")).ok();
    second.wait().ok();
    assert_eq!(user.log().calls.len(), 4);
}

#[test]
fn a_person_clears_an_account_for_all_projects() {
    let user = User::new(FOR_AN_HOUR);
    let (one, other) = (user.project("k"), user.project("k"));
    let mut first = one.start(words("run --json --max-iterations 1"));
    first.event("wait_started");
    let mut second = other.start(words("run --json --max-iterations 1"));
    second.event("wait_started");
    let list = accounts(&other);
    assert_eq!((&list[0]["state"], &list[0]["here"]), (&"cooling".into(), &true.into()), "{list}");
    assert!(!list.to_string().contains("\"k\""), "no key is shown: {list}");
    let shown = other.run(words("accounts")).ok();
    assert!(shown.stdout.contains("shared") && shown.stdout.contains("rate_limited"), "{}", shown.stdout);

    user.agent_does("*: say=ok");
    other.run(words("accounts clear nonsuch")).exits(2);
    other.run(words("accounts clear shared")).ok();
    for run in [first, second] {
        run.wait().ok();
    }
    assert_eq!(accounts(&one)[0]["state"], "ready");
}

#[test]
fn without_a_usable_home_a_project_goes_on_with_what_it_knows() {
    let user = User::new(FOR_A_WHILE);
    let world = user.project("k");
    // A file where the folder should be: nothing can be read or made there, whoever we are.
    fs::write(user.home(), "").unwrap();
    let mut run = world.start(words("run --json --max-iterations 1"));
    run.event("cool_down");
    run.event_where("the loss is told", is_degraded);
    user.agent_does("*: say=ok");
    let ended = run.wait().ok();
    let told: Vec<_> = ended.events().into_iter().filter(is_degraded).collect();
    assert_eq!(told.len(), 1, "once");
    assert_eq!(told[0].0["session"], ended.event("session_started").0["session"]);
}

#[test]
fn a_damaged_host_database_is_begun_anew() {
    let user = User::new(FOR_A_WHILE);
    let world = user.project("k");
    fs::create_dir_all(user.home()).unwrap();
    fs::write(user.home().join("host.db"), "{\"status\": \"runn").unwrap();
    let mut run = world.start(words("run --json --max-iterations 1"));
    run.event_where("the loss is told", is_degraded);
    run.event("cool_down");
    eventually("the account is known again", || (accounts(&world)[0]["provider"] == "shared").then_some(()));
    user.agent_does("*: say=ok");
    run.wait().ok();
    let kept = fs::read_dir(user.home()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(kept.filter(|name| name.to_string_lossy().starts_with("host.db.corrupt-")).count(), 1);
}

#[test]
fn a_rehearsal_makes_no_host_database() {
    let world = World::new();
    world.write(".longhaul/rehearsal.toml", "[[call]]\nsteps = [{ say = \"ok\" }]\n");
    world.run(words("run --json --provider rehearsal --max-iterations 1")).ok();
    assert!(!world.home().join("longhaul/host.db").exists());
}

fn is_degraded(event: &Event) -> bool {
    event.kind() == "capability_degraded" && event.text("capability") == "host_accounts"
}

/// `accounts --json`.
fn accounts(world: &World) -> Value {
    serde_json::from_str(&world.run(words("accounts --json")).ok().stdout).unwrap()
}
