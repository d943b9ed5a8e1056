//! What must hold after a storm.

use std::collections::BTreeMap;
use std::fs;

use longhaul::actors::context::ProjectCtx;
use longhaul::domain::event::{Body, Event};
use longhaul::domain::ids::MessageId;
use longhaul::domain::state::{Phase, Reason, State};
use longhaul::store::{Db, Durability, OpenOptions, StorePaths};

use crate::scene::Place;
use crate::storm::RETRIES;

/// One session of `last` iterations, which heard these messages, whatever became of those who ran it.
pub fn check(place: &Place, events: &[Event], last: u64, said: &[String]) {
    each_event_once(events);
    let mut state = State::default();
    events.iter().for_each(|event| state.apply(event));
    let session = state.session.as_ref().unwrap();
    assert_eq!((session.state, session.reason), (Phase::Finished, Some(Reason::MaxIterations)));
    assert_eq!(named(events, "session_started").count(), 1);
    one_end_for_each_number(events, last);
    let calls = one_call_at_a_time(events);
    never_two_in_the_folder(place, &calls);
    each_message_once_and_in_order(events, said);
    assert!(state.inbox.queued.is_empty());
    assert_eq!((session.iteration, session.finished), (last, last));
    assert_eq!(session.calls, calls.len() as u64);
    the_last_checkpoint_is_kept(place, &state);
    the_files_say_the_same(place, &state);
}

/// The program lived through it: nothing looks as if it had been started anew.
pub fn one_program(ctx: &ProjectCtx, events: &[Event]) {
    for (name, times) in [("session_finished", 1), ("session_crashed", 0), ("session_resumed", 0)] {
        assert_eq!(named(events, name).count(), times, "{name}");
    }
    assert_eq!(ctx.folder.available_permits(), 1, "the folder was not given back");
}

/// What was shown is the whole journal, in order.
fn each_event_once(events: &[Event]) {
    let seqs: Vec<u64> = events.iter().map(|event| event.seq).collect();
    let all: Vec<u64> = (1..=events.len() as u64).collect();
    assert_eq!(seqs, all);
}

pub fn named<'a>(events: &'a [Event], name: &'a str) -> impl Iterator<Item = &'a Event> {
    events.iter().filter(move |event| event.body.name() == name)
}

fn one_end_for_each_number(events: &[Event], last: u64) {
    for name in ["iteration_started", "iteration_finished"] {
        let numbers: Vec<_> = named(events, name).map(|event| event.iteration.unwrap()).collect();
        assert_eq!(numbers, (1..=last).collect::<Vec<_>>(), "{name}");
    }
}

/// Every attempt that begins ends before the next one. Its number, and whether it completed.
fn one_call_at_a_time(events: &[Event]) -> Vec<bool> {
    let mut calls = Vec::new();
    let mut open = None;
    for event in events {
        match &event.body {
            Body::AttemptStarted { token, .. } => {
                assert_eq!(open.replace(*token), None, "two calls at once: event {}", event.seq);
            }
            Body::AttemptFinished(a) => {
                assert_eq!(open.take(), Some(a.token), "event {}", event.seq);
                calls.push(a.verdict.outcome.ends_iteration());
            }
            _ => {}
        }
    }
    assert_eq!(open, None);
    calls
}

/// What calls wrote about themselves: nobody writes after a later one has begun.
fn never_two_in_the_folder(place: &Place, calls: &[bool]) {
    let log = fs::read_to_string(place.paths.root.join("calls.log")).unwrap();
    let mut present = 0;
    let mut ended = Vec::new();
    for line in log.lines() {
        let (kind, number) = line.split_at(1);
        let number: usize = number.parse().unwrap();
        match kind {
            "+" => {
                assert!(number > present, "{line} after {present}");
                present = number;
            }
            _ => assert_eq!(number, present, "{line}: two calls in the folder"),
        }
        if kind == "-" {
            ended.push(number);
        }
    }
    for (at, completed) in calls.iter().enumerate() {
        assert!(!completed || ended.contains(&(at + 1)), "call {} completed, and had not ended", at + 1);
    }
}

fn each_message_once_and_in_order(events: &[Event], said: &[String]) {
    let mut queued = Vec::new();
    let mut delivered = Vec::new();
    for event in events {
        match &event.body {
            Body::MessageQueued { id, text, .. } => queued.push((*id, text.clone())),
            Body::MessageDelivered { id } => delivered.push(*id),
            _ => {}
        }
    }
    let texts: Vec<String> = queued.iter().map(|(_, text)| text.trim().to_owned()).collect();
    assert_eq!(texts, said, "taken once, in the order in which they were said");
    let ids: Vec<MessageId> = queued.iter().map(|(id, _)| *id).collect();
    assert_eq!(delivered, ids, "delivered once, in the same order");
}

/// Edits that follow each other fast may be seen as one.
pub fn each_change_of_settings_once(events: &[Event], last: u32) {
    let mut retries = serde_json::json!(RETRIES);
    for event in events {
        if let Body::ConfigChanged { key, old, new, .. } = &event.body
            && key == "run.retries"
        {
            assert_eq!(*old, retries, "a change was lost or told twice");
            retries = new.clone();
        }
    }
    assert_eq!(retries, last);
    assert_eq!(named(events, "limits_changed").count(), 1);
}

fn the_last_checkpoint_is_kept(place: &Place, state: &State) {
    let last = state.session.as_ref().and_then(|s| s.checkpoint.clone()).unwrap();
    let repository = git2::Repository::open(&place.paths.root).unwrap();
    let commit = repository.find_reference(&last.reference.unwrap()).unwrap().peel_to_commit().unwrap();
    assert_eq!(commit.tree_id().to_string(), last.tree);
}

/// Each death of an actor that its supervisor has to restart is told. A call's own actor is not restarted; whoever
/// dies with its supervisor is started by that one's restart.
pub fn no_restart_is_lost(events: &[Event], deaths: &BTreeMap<&str, u32>) {
    let mut told: BTreeMap<&str, u32> = BTreeMap::new();
    for event in events {
        if let Body::ActorRestarted { actor, .. } = &event.body {
            *told.entry(actor).or_default() += 1;
        }
    }
    println!("restarts told: {told:?}");
    for (who, died) in deaths.iter().filter(|(who, _)| **who != "provider") {
        let told = told.get(who).copied().unwrap_or(0);
        assert!(
            told <= *died + 3 && told + died / 5 + 2 >= *died,
            "{who}: died {died} times, told {told} times"
        );
    }
}

/// The database holds the state, and the journal alone gives the same.
pub fn the_files_say_the_same(place: &Place, state: &State) {
    let paths = StorePaths::new(&place.paths.root);
    let options = OpenOptions { durability: Durability::Process, fresh: false, now: place.now };
    let opened = Db::open(&paths, options).unwrap();
    assert_eq!(opened.recovery, None);
    assert!(*opened.state == *state, "the database holds another state");
    drop(opened);
    for suffix in ["", "-wal", "-shm"] {
        let mut name = paths.state_db.clone().into_os_string();
        name.push(suffix);
        let _ = fs::remove_file(name);
    }
    let rebuilt = Db::open(&paths, options).unwrap();
    assert!(rebuilt.recovery.is_some());
    let mut expected = state.clone();
    expected.seq = rebuilt.state.seq;
    assert!(*rebuilt.state == expected, "the journal gives another state");
}
