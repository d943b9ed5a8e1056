//! EP-003: a lost network is told from one server that is away, by asking the servers themselves.
#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};

use testkit::{Event, World, words};

/// A port of this host on which nobody listens.
fn silent() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Answers whoever asks, for as long as the test lasts. That it knows nothing is an answer, too.
fn answer_at(address: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind(address).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let _ =
                stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        }
    });
    address
}

/// A provider that cannot reach its server as long as `back` is not there.
fn provider(world: &World, name: &str, server: Option<SocketAddr>, back: &str) {
    let server = server.map_or(String::new(), |address| format!("server = \"http://{address}\"\n"));
    let script = format!("cat >/dev/null; test -e {} || exit 7; echo x >>work.txt; echo done", back);
    world.write(
        &format!(".longhaul/providers/{name}.toml"),
        format!(
            "{server}program = \"/bin/sh\"\nargs = [\"-c\", {script:?}]\noutput = \"text\"\n[exit_codes]\n7 = \"network_down\"\n"
        ),
    );
}

fn tried(events: &[Event]) -> Vec<String> {
    events.iter().map(|e| e.0["provider"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn ep_003_fails_over_only_to_an_account_whose_own_server_answers_and_comes_back() {
    let world = World::new();
    let (primary, back) = (silent(), world.flag("back"));
    provider(&world, "primary", Some(primary), &back);
    provider(&world, "unknown", None, "/");
    provider(&world, "cut-off", Some(silent()), "/");
    provider(&world, "other", Some(answer_at("127.0.0.1:0".parse().unwrap())), "/");
    world.config(
        "provider.name = \"primary\"\nprovider.fallback = [\"unknown\", \"cut-off\", \"other\"]\n\
         backoff.base = \"20ms\"\nbackoff.cap = \"300ms\"\nrun.perpetual = true\n",
    );
    let mut run = world.start(words("run --json"));
    let over = run.event("failover");
    assert_eq!((over.text("from"), over.text("to"), over.text("why")), ("primary", "other", "network_down"));
    // Its server is asked, not it.
    let first = run.event("cool_down");
    run.event_where("still not back", |e| e.kind() == "cool_down" && e.text("until") > first.text("until"));
    world.raise("back");
    answer_at(primary);
    let home = run.event_where("the way back", |e| e.kind() == "failover" && e.text("to") == "primary");
    assert_eq!(home.text("from"), "other");
    let works = |e: &Event| e.kind() == "iteration_finished" && e.iteration() >= home.iteration();
    run.event_where("it works", works);
    world.run(["stop"]).ok();
    let ended = run.wait().exits(3);
    let tried = tried(&ended.events_of("attempt_started"));
    let others = tried.iter().filter(|name| *name != "other").collect::<Vec<_>>();
    assert_eq!(others[0], "primary");
    assert!(others.iter().all(|name| *name == "primary"), "{others:?}");
    let finished = ended.events_of("attempt_finished");
    let down = finished.iter().filter(|e| e.text("outcome") == "network_down").collect::<Vec<_>>();
    assert_eq!(down.len(), 1, "one call was enough to see it");
    assert!(down.iter().all(|e| e.data("counts") == false), "it uses up no retry");
    assert_eq!(finished[1].iteration(), 1, "the same iteration goes on elsewhere");
}

#[test]
fn ep_003_where_nobody_answers_it_stays_and_goes_on_by_itself() {
    let world = World::new();
    let back = world.flag("back");
    provider(&world, "primary", Some(silent()), &back);
    provider(&world, "other", Some(silent()), "/");
    world.config(
        "provider.name = \"primary\"\nprovider.fallback = [\"other\"]\nbackoff.base = \"20ms\"\nbackoff.cap = \"50ms\"\n",
    );
    let mut run = world.start(words("run --json --max-iterations 2"));
    run.event_where("four calls", |e| e.kind() == "attempt_started" && e.0["attempt"] == 4);
    world.raise("back");
    let ended = run.wait().ok();
    let tried = tried(&ended.events_of("attempt_started"));
    assert!(tried.iter().all(|name| name == "primary"), "{tried:?}");
    assert!(ended.events_of("failover").is_empty());
    let numbers: Vec<_> = ended.events_of("iteration_finished").iter().map(Event::iteration).collect();
    assert_eq!(numbers, [1, 2]);
}
