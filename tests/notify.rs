//! RT-08, notifications: a person who is not looking is told, at most once for each cause.
#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use sha2::{Digest, Sha256};
use testkit::{World, eventually, words};

const SECRET: &str = "whsec-0123456789abcdef";

/// One request that came in.
#[derive(Debug, Clone)]
struct Post {
    headers: BTreeMap<String, String>,
    body: String,
}

/// Somebody's webhook: answers with these statuses in turn, the last one for ever. 0: takes the request and never answers.
struct Receiver {
    address: SocketAddr,
    posts: Arc<Mutex<Vec<Post>>>,
}

impl Receiver {
    fn answering(statuses: &[u16]) -> Receiver {
        Receiver::at("127.0.0.1:0".parse().unwrap(), statuses)
    }

    fn at(address: SocketAddr, statuses: &[u16]) -> Receiver {
        let listener = TcpListener::bind(address).unwrap();
        let posts = Arc::new(Mutex::new(Vec::new()));
        let receiver = Receiver { address: listener.local_addr().unwrap(), posts: posts.clone() };
        let statuses = statuses.to_vec();
        std::thread::spawn(move || {
            let mut silent = Vec::new();
            for (at, stream) in listener.incoming().flatten().enumerate() {
                let mut reader = BufReader::new(stream);
                let Some(post) = read(&mut reader) else { continue };
                posts.lock().unwrap().push(post);
                match statuses[at.min(statuses.len() - 1)] {
                    0 => silent.push(reader),
                    status => drop(reader.get_mut().write_all(
                        format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\nretry-after: 0\r\nconnection: close\r\n\r\n").as_bytes(),
                    )),
                }
            }
        });
        receiver
    }

    fn posts(&self) -> Vec<Post> {
        self.posts.lock().unwrap().clone()
    }
}

impl Post {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    fn kind(&self) -> String {
        self.json()["kind"].as_str().unwrap().to_owned()
    }
}

fn read(reader: &mut impl BufRead) -> Option<Post> {
    let mut headers = BTreeMap::new();
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let mut body = vec![0; headers.get("content-length")?.parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    Some(Post { headers, body: String::from_utf8(body).ok()? })
}

/// RFC 2104, by hand: the receiver's own view of the signature. The key is shorter than a block.
fn hmac_sha256(key: &[u8], text: &[u8]) -> String {
    let padded = |pad: u8| (0..64).map(|at| key.get(at).copied().unwrap_or(0) ^ pad).collect::<Vec<u8>>();
    let inner = Sha256::digest([padded(0x36).as_slice(), text].concat());
    let outer = Sha256::digest([padded(0x5c).as_slice(), &inner].concat());
    outer.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A world whose sessions tell this address.
fn telling(address: SocketAddr) -> World {
    let world = World::new();
    world.config(&format!(
        "[notify]\nwebhook = \"http://{address}/hook?key=hidden-part\"\nwebhook_secret = \"{SECRET}\"\n"
    ));
    world
}

fn listed(world: &World) -> Vec<Value> {
    let list = world.run(words("notify list --json")).ok();
    serde_json::from_str::<Value>(&list.stdout).unwrap().as_array().unwrap().clone()
}

#[test]
fn rt_08_the_end_is_told_once_signed_and_nothing_secret_is_shown() {
    let receiver = Receiver::answering(&[200]);
    let world = telling(receiver.address);
    let ended = world.run(world.run_agent("say=ok", "--max-iterations 1")).ok();
    let posts = receiver.posts();
    assert_eq!(posts.len(), 1, "{posts:?}");
    let told = posts[0].json();
    assert_eq!(
        (told["kind"].as_str(), told["session"].as_str()),
        (Some("finished"), ended.event("session_started").0["session"].as_str())
    );
    assert!(told["title"].as_str().unwrap().contains("max iterations"), "{told}");
    assert_eq!(posts[0].headers["longhaul-id"], told["id"].as_str().unwrap());
    let (time, signature) = posts[0].headers["longhaul-signature"].split_once(',').unwrap();
    let signed = format!("{}.{}", time.strip_prefix("t=").unwrap(), posts[0].body);
    assert_eq!(signature.strip_prefix("v1=").unwrap(), hmac_sha256(SECRET.as_bytes(), signed.as_bytes()));
    assert_eq!(listed(&world)[0]["state"], "sent");

    let said = [ended.stdout, ended.stderr, world.run(words("notify list --json")).ok().stdout];
    let shown = world.run(words("config show --json")).ok().stdout;
    let journal = fs::read_to_string(world.state().join("events.jsonl")).unwrap();
    let database = fs::read(world.home().join("longhaul/host.db")).unwrap();
    let database = String::from_utf8_lossy(&database).into_owned();
    for text in said.iter().chain([&shown, &journal, &database]) {
        assert!(!text.contains(SECRET) && !text.contains("hidden-part"), "a secret is shown: {text}");
    }
}

#[test]
fn rt_08_one_cause_is_told_once_however_often_the_run_is_started() {
    let receiver = Receiver::answering(&[200]);
    let world = telling(receiver.address);
    let blocked =
        || world.run(world.run_agent("say='LONGHAUL_BLOCKED: which colour?'", "--no-wait")).exits(5);
    blocked();
    blocked();
    blocked();
    let told: Vec<String> = receiver.posts().iter().map(Post::kind).collect();
    assert_eq!(told, ["needs_human"], "{:?}", receiver.posts());
    assert!(receiver.posts()[0].json()["text"].as_str().unwrap().contains("which colour?"));
}

#[test]
fn rt_08_a_notification_that_was_refused_is_tried_again_and_one_that_may_have_arrived_is_not() {
    let receiver = Receiver::answering(&[503, 429, 200]);
    let world = telling(receiver.address);
    let go = world.flag("go");
    let run =
        world.start(world.run_script(
            &format!("1: say='LONGHAUL_BLOCKED: why?'\n*: until={go} say=ok"),
            "--max-iterations 2",
        ));
    eventually("three posts", || (receiver.posts().len() == 3).then_some(()));
    eventually("it is sent", || (listed(&world)[0]["state"] == "sent").then_some(()));
    let ids: Vec<_> = receiver.posts().iter().map(|post| post.headers["longhaul-id"].clone()).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    world.run(words("stop")).ok();
    run.wait().exits(3);

    // It hangs up without an answer: nobody knows.
    let silent = Receiver::answering(&[0]);
    let world = telling(silent.address);
    world.run(world.run_agent("say=ok", "--max-iterations 1")).ok();
    assert_eq!(listed(&world)[0]["state"], "unknown");
    world.run(world.run_agent("say=ok", "--fresh --max-iterations 1")).ok();
    assert_eq!(silent.posts().len(), 2, "one for each session");
    let id = listed(&world)[1]["id"].as_str().unwrap().to_owned();
    world.run(["notify", "retry", "nonsuch"]).exits(2);
    world.run(["notify", "retry", &id]).ok();
    assert_eq!(listed(&world)[1]["state"], "pending", "a person may have it sent again");
}

#[test]
fn rt_08_what_one_run_could_not_deliver_the_next_one_does() {
    let address = Receiver::answering(&[200]).address;
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert_ne!(address, closed);
    let world = telling(closed);
    let first = world.run(world.run_agent("say=ok", "--max-iterations 1")).ok();
    let id = listed(&world)[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(listed(&world)[0]["state"], "pending", "{:?}", listed(&world));
    assert!(id.contains(first.event("session_started").0["session"].as_str().unwrap()));
    let receiver = Receiver::at(closed, &[200]);
    let go = world.flag("go");
    let run = world.start(world.run_script(&format!("*: until={go} say=ok"), "--fresh --max-iterations 1"));
    eventually("the first one's end is told", || {
        receiver.posts().iter().any(|post| post.headers["longhaul-id"] == id).then_some(())
    });
    world.raise("go");
    run.wait().ok();
    assert_eq!(receiver.posts().len(), 2);
}

#[test]
fn rt_08_a_receiver_that_says_no_is_listed_and_a_program_gets_it_on_stdin() {
    let receiver = Receiver::answering(&[404]);
    let world = World::new();
    world.write(
        "told.sh",
        "#!/bin/sh\ncat > got.json\necho \"$LONGHAUL_NOTIFY_KIND $LONGHAUL_NOTIFY__WEBHOOK_SECRET\" > env\n",
    );
    world.config(&format!(
        "[notify]\nwebhook = \"http://{}/\"\ncommand = \"sh told.sh\"\nevents = [\"finished\"]\n",
        receiver.address
    ));
    let mut world = world;
    world.set("LONGHAUL_NOTIFY__WEBHOOK_SECRET", SECRET);
    world.run(world.run_agent("say=ok", "--max-iterations 1")).ok();
    let got: Value = serde_json::from_str(&world.read("got.json")).unwrap();
    assert_eq!(got["kind"], "finished");
    assert_eq!(world.read("env").trim(), "finished", "and no secret");
    let states: BTreeMap<_, _> =
        listed(&world).iter().map(|e| (e["channel"].to_string(), e["state"].to_string())).collect();
    assert_eq!(states["\"webhook\""], "\"failed\"");
    assert_eq!(states["\"command\""], "\"sent\"");
    let shown = world.run(words("notify")).ok().stdout;
    assert!(shown.contains("404") && shown.contains("longhaul notify retry"), "{shown}");
}

#[test]
fn rt_08_a_receiver_that_hangs_holds_nothing_up() {
    let receiver = Receiver::answering(&[0]);
    let world = telling(receiver.address);
    world.write("hang.sh", "exec sleep 600\n");
    world
        .config(&format!("[notify]\nwebhook = \"http://{}/\"\ncommand = \"sh hang.sh\"\n", receiver.address));
    world.provider("first", "exit=7");
    world.provider("second", "say=ok");
    world.write(
        ".longhaul/config.toml",
        format!(
            "run.failover_after = 1\nbackoff.base = \"10ms\"\nprovider.name = \"first\"\nprovider.fallback = [\"second\"]\n\
             stagnation.pause = \"none\"\n[notify]\nwebhook = \"http://{}/\"\ncommand = \"sh hang.sh\"\n",
            receiver.address
        ),
    );
    let mut run = world.start(words("run --json --perpetual"));
    run.event("failover");
    eventually("it is being told", || (!receiver.posts().is_empty()).then_some(()));
    run.event_where("the session goes on", |e| e.kind() == "iteration_finished" && e.iteration() >= 5);
    world.run(words("stop")).ok();
    run.wait().exits(3);
    world.is_quiet();
}

#[test]
fn a_test_says_what_comes_of_it_and_bad_settings_are_refused() {
    let receiver = Receiver::answering(&[200]);
    let world = telling(receiver.address);
    let tried = world.run(words("notify test")).ok();
    assert!(tried.stdout.contains("webhook") && tried.stdout.contains("arrived"), "{}", tried.stdout);
    assert_eq!(receiver.posts()[0].kind(), "test");
    world.config("[notify]\ncommand = \"/nowhere/tell\"\n");
    let failed = world.run(words("notify test --json")).exits(1);
    assert!(failed.stdout.contains("/nowhere/tell"), "{}", failed.stdout);
    world.config("");
    world.run(words("notify test")).exits(2).tells("config set notify.webhook");
    for (setting, told) in [
        ("webhook = \"example.com\"", "https://HOST"),
        ("events = [\"finish\"]", "needs_human, finished"),
        ("command = \"sh 'x\"", "quote"),
    ] {
        world.config(&format!("[notify]\n{setting}\n"));
        let refused = world.run(words("config check")).exits(2);
        assert!(format!("{}{}", refused.stdout, refused.stderr).contains(told), "{refused:?}");
    }
}
