use std::collections::BTreeSet;
use std::fs::{self, File, FileTimes};
use std::io::Write;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::domain::ids::IdSource;

/// An inbox with a journal that remembers ids.
struct Bench {
    _dir: tempfile::TempDir,
    paths: ProjectPaths,
    inbox: Inbox,
    ids: IdSource,
    at: Duration,
    journal: BTreeSet<MessageId>,
}

// === impl Bench ===

impl Bench {
    fn new(leases: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let paths = ProjectPaths::new(dir.path().canonicalize().unwrap());
        InboxPaths::new(&paths).make().unwrap();
        Bench {
            inbox: Inbox::new(&paths, leases),
            paths,
            _dir: dir,
            ids: IdSource::new(Some(7)),
            at: Duration::ZERO,
            journal: BTreeSet::new(),
        }
    }

    fn drop_in(&self, text: &str) {
        fs::write(&self.paths.human_input, text).unwrap();
    }

    fn put_in(&self, name: &str, text: &str) {
        fs::write(self.paths.inbox.join(name), text).unwrap();
    }

    fn say(&mut self, text: &str) -> MessageId {
        let id = MessageId(self.ids.next(now()));
        put(&self.paths, id, text).unwrap();
        id
    }

    fn collect(&mut self) -> Round {
        let (journal, ids) = (&self.journal, &mut self.ids);
        self.inbox.collect(self.at, &|id| journal.contains(&id), &mut || ids.next(now()))
    }

    fn commit(&mut self, round: &Round) -> Vec<String> {
        let new = round.claimed.iter().filter(|message| message.text.is_some());
        let told = new
            .filter(|message| self.journal.insert(message.id))
            .map(|message| format!("{}: {}", message.source, message.text.as_deref().unwrap_or_default()));
        told.collect()
    }

    fn archive(&mut self, round: &Round) -> bool {
        let (ids, mut problems) = (&mut self.ids, Vec::new());
        let stays = self.inbox.archive(&round.claimed, &mut || ids.next(now()), &mut problems);
        assert!(problems.is_empty(), "{problems:?}");
        stays
    }

    /// A whole round, without mishap.
    fn take(&mut self) -> Vec<String> {
        let round = self.collect();
        assert!(round.problems.is_empty(), "{:?}", round.problems);
        let told = self.commit(&round);
        self.archive(&round);
        told
    }

    /// The process dies; another one begins.
    fn crash(&mut self) {
        self.inbox = Inbox::new(&self.paths, true);
    }

    fn names(&self, folder: &str) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.paths.inbox.join(folder))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort_unstable();
        names
    }
}

#[expect(clippy::disallowed_methods, reason = "files get their times from the same clock")]
fn now() -> Timestamp {
    Timestamp::now()
}

fn set_time(path: &Path, seconds_ago: u64) {
    #[expect(clippy::disallowed_methods, reason = "files get their times from the same clock")]
    let time = SystemTime::now() - Duration::from_secs(seconds_ago);
    File::options().append(true).open(path).unwrap().set_times(FileTimes::new().set_modified(time)).unwrap();
}

#[test]
fn each_counts_once_and_is_kept() {
    let mut bench = Bench::new(true);
    bench.drop_in("from the file\n");
    bench.put_in("note.md", "from the inbox");
    let id = bench.say("from the command");
    assert!(InboxPaths::new(&bench.paths).has_mail());
    let mut told = bench.take();
    // While another test forks, its child holds the files open for a moment: they are taken at a later look.
    while told.len() < 3 {
        told.extend(bench.take());
    }
    assert_eq!(told.len(), 3);
    for message in ["file: from the file", "inbox: from the inbox", "say: from the command"] {
        assert!(told.contains(&message.to_owned()), "{told:?}");
    }
    assert!(bench.journal.contains(&id));
    assert!(bench.take().is_empty() && !InboxPaths::new(&bench.paths).has_mail());
    let done = bench.names("done");
    assert!(done.contains(&format!("{id}.md")) && done.len() == 3, "{done:?}");
    assert!(bench.names("taken").is_empty() && !bench.paths.human_input.exists());
}

#[test]
fn a_file_that_is_written_again_at_once_is_another_message() {
    let mut bench = Bench::new(true);
    let mut told = Vec::new();
    for n in 1..=5 {
        bench.drop_in(&format!("{n}"));
        told.extend(bench.take());
    }
    assert_eq!(told, ["file: 1", "file: 2", "file: 3", "file: 4", "file: 5"]);
}

#[test]
fn in_the_order_of_names_and_the_drop_in_file_by_its_time() {
    let mut bench = Bench::new(true);
    for (name, seconds_ago) in [("10", 50), ("20", 30), ("30", 10)] {
        bench.put_in(name, name);
        set_time(&bench.paths.inbox.join(name), seconds_ago);
    }
    bench.drop_in("between");
    set_time(&bench.paths.human_input, 20);
    let expected = ["inbox: 10", "inbox: 20", "file: between", "inbox: 30"];
    // Also when a crash comes between claiming and committing.
    let round = bench.collect();
    assert_eq!(round.claimed.len(), 4);
    bench.crash();
    assert_eq!(bench.take(), expected);
}

#[test]
fn a_crash_at_any_point_neither_loses_nor_doubles() {
    for crash_after in ["claiming", "committing", "putting away"] {
        let mut bench = Bench::new(true);
        bench.drop_in("file");
        bench.say("said");
        let round = bench.collect();
        let mut told = Vec::new();
        if crash_after != "claiming" {
            told.extend(bench.commit(&round));
        }
        if crash_after == "putting away" {
            bench.archive(&round);
        }
        bench.crash();
        told.extend(bench.take());
        told.sort_unstable();
        assert_eq!(told, ["file: file", "say: said"], "after {crash_after}");
        assert_eq!((bench.names("taken").len(), bench.names("done").len()), (0, 2), "after {crash_after}");
    }
}

#[test]
fn what_cannot_be_committed_waits_and_keeps_its_identity() {
    let mut bench = Bench::new(true);
    bench.put_in("a", "first");
    let refused: Vec<MessageId> = bench.collect().claimed.iter().map(|message| message.id).collect();
    bench.put_in("b", "second");
    let round = bench.collect();
    assert_eq!(round.claimed.first().map(|message| message.id), refused.first().copied());
    assert_eq!(bench.commit(&round), ["inbox: first", "inbox: second"]);
}

#[test]
fn a_file_being_written_is_left_whole() {
    let mut bench = Bench::new(true);
    let mut writer = File::create(bench.paths.inbox.join("slow.md")).unwrap();
    writer.write_all(b"first half, ").unwrap();
    bench.put_in("quick.md", "quick");
    assert_eq!(bench.take(), ["inbox: quick"]);
    assert!(bench.take().is_empty());
    writer.write_all(b"second half").unwrap();
    drop(writer);
    assert_eq!(bench.take(), ["inbox: first half, second half"]);
}

#[test]
fn a_writer_that_opened_the_file_before_it_was_claimed_is_waited_for() {
    let mut bench = Bench::new(true);
    bench.drop_in("one");
    let name = MessageId(bench.ids.next(now())).to_string() + "-HUMAN_INPUT.md";
    let claimed = bench.paths.inbox.join("taken").join(&name);
    let mut late = File::options().append(true).open(&bench.paths.human_input).unwrap();
    fs::rename(&bench.paths.human_input, &claimed).unwrap();
    let round = bench.collect();
    assert!(round.claimed.is_empty() && round.again.is_some());
    late.write_all(b", two").unwrap();
    drop(late);
    assert_eq!(bench.take(), ["file: one, two"]);
}

#[test]
fn what_is_written_after_it_was_read_is_another_message() {
    let mut bench = Bench::new(true);
    bench.drop_in("one");
    let round = bench.collect();
    assert_eq!(bench.commit(&round), ["file: one"]);
    let taken = bench.names("taken");
    fs::write(bench.paths.inbox.join("taken").join(taken.first().unwrap()), "two, later").unwrap();
    assert!(bench.archive(&round));
    assert_eq!(bench.take(), ["file: two, later"]);
    assert!(bench.names("taken").is_empty());
}

#[test]
fn without_leases_a_file_must_have_been_steady() {
    let mut bench = Bench::new(false);
    bench.drop_in("one");
    let round = bench.collect();
    assert_eq!((round.claimed.len(), round.again), (0, Some(Duration::from_millis(200))));
    bench.at = Duration::from_millis(150);
    fs::write(&bench.paths.human_input, "one, two").unwrap();
    assert!(bench.take().is_empty());
    bench.at = Duration::from_millis(340);
    assert!(bench.take().is_empty());
    bench.at = Duration::from_millis(350);
    assert_eq!(bench.take(), ["file: one, two"]);
}

#[test]
fn what_is_no_message_is_left_alone_or_put_away() {
    let mut bench = Bench::new(true);
    bench.drop_in("");
    for name in [".hidden", "draft~", "down.part", "x.tmp", ".x.swp"] {
        bench.put_in(name, "not yet");
    }
    fs::create_dir(bench.paths.inbox.join("folder")).unwrap();
    assert!(!InboxPaths::new(&bench.paths).has_mail());
    bench.put_in("blank", " \n");
    bench.put_in("empty", "");
    assert!(bench.take().is_empty());
    assert_eq!(bench.names("done").len(), 1, "the blank one");
    bench.at = Duration::from_secs(5);
    assert!(bench.take().is_empty());
    assert_eq!(bench.names("done").len(), 2, "the empty one, now that nobody fills it");
    assert!(bench.paths.human_input.exists());
    assert!(bench.paths.inbox.join("draft~").exists());
}

#[test]
fn a_delivered_file_that_is_put_in_again_is_a_new_message() {
    let mut bench = Bench::new(true);
    let id = bench.say("do it");
    assert_eq!(bench.take(), ["say: do it"]);
    let (done, again) =
        (bench.paths.inbox.join(format!("done/{id}.md")), bench.paths.inbox.join(format!("{id}.md")));
    fs::copy(done, again).unwrap();
    // Even when the journal has forgotten about it.
    bench.journal.clear();
    assert_eq!(bench.take(), ["inbox: do it"]);
}

#[test]
fn strange_names_and_things() {
    use std::os::unix::ffi::OsStringExt;
    let mut bench = Bench::new(true);
    let long = "n".repeat(255);
    bench.put_in(&long, "long");
    let bytes = std::ffi::OsString::from_vec(b"a \xFF\nb".to_vec());
    fs::write(bench.paths.inbox.join(bytes), "bytes").unwrap();
    std::os::unix::fs::symlink("nowhere", bench.paths.inbox.join("dangling")).unwrap();
    let fifo = bench.paths.inbox.join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    assert_eq!(bench.take(), ["inbox: bytes", "inbox: long"]);
}

#[test]
fn many_are_taken_in_batches() {
    let mut bench = Bench::new(true);
    for n in 0..150 {
        bench.put_in(&format!("{n:03}"), &format!("{n}"));
    }
    let mut told = Vec::new();
    loop {
        let round = bench.collect();
        told.extend(bench.commit(&round));
        bench.archive(&round);
        if !round.more {
            break;
        }
    }
    let expected: Vec<String> = (0..150).map(|n| format!("inbox: {n}")).collect();
    assert_eq!(told, expected);
}

#[test]
fn only_the_latest_are_kept() {
    let mut bench = Bench::new(true);
    let done = bench.paths.inbox.join("done");
    for _ in 0..1010 {
        let id = bench.ids.next(now());
        fs::write(done.join(format!("{id}-x")), "").unwrap();
    }
    fs::write(done.join("mine"), "a person's own").unwrap();
    bench.put_in("new", "new");
    assert_eq!(bench.take(), ["inbox: new"]);
    assert_eq!(bench.names("done").len(), 1001);
    assert!(bench.names("done").iter().any(|name| name.ends_with("-new")));
}

/// What happens in a history of messages, crashes and refused commits.
#[derive(Debug, Clone)]
enum Step {
    DropIn,
    PutIn(u8),
    Say,
    Take,
    CrashAfterClaim,
    CrashAfterCommit,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::DropIn),
        (0u8..4).prop_map(Step::PutIn),
        Just(Step::Say),
        Just(Step::Take),
        Just(Step::CrashAfterClaim),
        Just(Step::CrashAfterCommit),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Whatever happens, each message that was whole on disk is told exactly once.
    #[test]
    fn exactly_once(steps in proptest::collection::vec(step(), 1..25)) {
        let mut bench = Bench::new(true);
        let (mut sent, mut told) = (Vec::new(), Vec::new());
        for (n, step) in steps.into_iter().enumerate() {
            match step {
                Step::DropIn if bench.paths.human_input.exists() => {}
                Step::DropIn => {
                    bench.drop_in(&n.to_string());
                    sent.push(format!("file: {n}"));
                }
                Step::PutIn(name) if bench.paths.inbox.join(name.to_string()).exists() => {}
                Step::PutIn(name) => {
                    bench.put_in(&name.to_string(), &n.to_string());
                    sent.push(format!("inbox: {n}"));
                }
                Step::Say => {
                    bench.say(&n.to_string());
                    sent.push(format!("say: {n}"));
                }
                Step::Take => told.extend(bench.take()),
                Step::CrashAfterClaim => {
                    bench.collect();
                    bench.crash();
                }
                Step::CrashAfterCommit => {
                    let round = bench.collect();
                    told.extend(bench.commit(&round));
                    bench.crash();
                }
            }
        }
        told.extend(bench.take());
        sent.sort_unstable();
        told.sort_unstable();
        prop_assert_eq!(sent, told);
        prop_assert!(bench.names("taken").is_empty());
    }
}
