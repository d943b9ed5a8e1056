//! What the store's tests share: random stories, projects in temporary folders, and crashes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use tempfile::TempDir;
use ulid::Ulid;

use super::{Db, Durability, Journal, JournalLimits, OpenOptions, Opened, StorePaths};
use crate::domain::event::{AttemptFinished, Body, Draft, Event, Mode, SessionStarted};
use crate::domain::ids::{EventId, IdSource, LaneId, MessageId, SessionId, Token};
use crate::domain::outcome::{AccountScope, Evidence, Exit, Outcome, Usage, Verdict};
use crate::domain::state::{GateResult, Limits, Phase, Reason, State, WaitReason};

/// A noon, so that a test decides when midnight comes.
pub(crate) fn noon() -> Timestamp {
    "2026-08-22T12:00:00Z".parse().unwrap()
}

pub(crate) fn options() -> OpenOptions {
    OpenOptions { durability: Durability::Process, fresh: false, now: noon() }
}

/// A project in a folder of its own.
pub(crate) struct Project {
    pub(crate) folder: TempDir,
    pub(crate) paths: StorePaths,
}

impl Project {
    pub(crate) fn new() -> Self {
        // In memory where that can be had: hundreds of databases are made, and each waits for the disk at its end.
        let memory = tempfile::tempdir_in("/dev/shm");
        let folder = memory.unwrap_or_else(|_| tempfile::tempdir().unwrap());
        let paths = StorePaths::new(folder.path());
        Project { folder, paths }
    }

    pub(crate) fn open(&self) -> Opened {
        Db::open(&self.paths, options()).unwrap()
    }

    /// An open database and a journal that has caught up with it.
    pub(crate) fn start(&self) -> (Db, Journal) {
        self.start_with(JournalLimits::default())
    }

    pub(crate) fn start_with(&self, limits: JournalLimits) -> (Db, Journal) {
        let opened = self.open();
        assert_eq!(opened.recovery, None);
        let mut db = opened.db;
        let mut journal = Journal::new(self.paths.clone(), limits);
        journal.catch_up(&opened.state, &mut db, noon()).unwrap();
        (db, journal)
    }

    /// The project as a SIGKILL at this moment would leave it.
    pub(crate) fn crashed(&self) -> Project {
        let copy = Project::new();
        copy_tree(&self.paths.dir, &copy.paths.dir);
        copy
    }

    /// Every file of the project with its size and checksum, and every folder.
    pub(crate) fn files(&self) -> BTreeMap<String, (usize, u32)> {
        let mut found = BTreeMap::new();
        list(self.folder.path(), self.folder.path(), &mut found);
        found
    }
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

fn list(root: &Path, dir: &Path, found: &mut BTreeMap<String, (usize, u32)>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(root).unwrap().display().to_string();
        if path.is_dir() {
            found.insert(format!("{name}/"), (0, 0));
            list(root, &path, found);
        } else {
            let content = fs::read(&path).unwrap();
            found.insert(name, (content.len(), crc32fast::hash(&content)));
        }
    }
}

/// Turns bodies into drafts, one second apart.
pub(crate) struct Author {
    ids: IdSource,
    pub(crate) now: Timestamp,
}

impl Author {
    pub(crate) fn new() -> Self {
        Author { ids: IdSource::new(Some(7)), now: noon() }
    }

    pub(crate) fn draft(&mut self, body: Body) -> Draft {
        self.now = self.now.checked_add(SignedDuration::from_secs(1)).unwrap();
        Draft {
            id: EventId(self.ids.next(self.now)),
            time: self.now,
            session: Some(session()),
            lane: Some(LaneId(1)),
            iteration: None,
            attempt: None,
            provider: Some("claude".into()),
            body,
        }
    }

    pub(crate) fn batch(&mut self, bodies: impl IntoIterator<Item = Body>) -> Vec<Draft> {
        bodies.into_iter().map(|body| self.draft(body)).collect()
    }

    /// `n` events that say which they are.
    pub(crate) fn notices(&mut self, n: usize) -> Vec<Draft> {
        self.batch((0..n).map(notice))
    }
}

pub(crate) fn notice(n: usize) -> Body {
    Body::Notice { code: "test".into(), message: format!("number {n}") }
}

pub(crate) fn session() -> SessionId {
    SessionId(Ulid::from_parts(1_700_000_000_000, 5))
}

/// The fold of `events` on nothing.
pub(crate) fn fold<'a>(events: impl IntoIterator<Item = &'a Event>) -> State {
    let mut state = State::default();
    for event in events {
        state.apply(event);
    }
    state
}

/// Any body that changes state, and some that do not.
pub(crate) fn body() -> impl Strategy<Value = Body> {
    let text = || "[a-zé\\n\"\\\\ ]{0,40}";
    let id = || (0..6u128).prop_map(|n| MessageId(Ulid::from_parts(1, n)));
    let tree = || proptest::option::of("[0-9a-f]{40}");
    let limits = || {
        (proptest::option::of(1..50u64), proptest::option::of(0.0..1e4f64)).prop_map(|(n, usd)| Limits {
            max_iterations: n,
            max_duration_ms: None,
            budget_usd: usd,
            perpetual: false,
        })
    };
    prop_oneof![
        (text(), limits()).prop_map(|(project, limits)| Body::SessionStarted(Box::new(SessionStarted {
            version: "0.1.0".into(),
            project,
            mode: Mode::Spec,
            complexity: "simple".into(),
            spec: Some("SPEC.md".into()),
            limits,
            chain: vec!["claude".into(), "codex".into()],
            overrides: Vec::new(),
            agent: Vec::new(),
        }))),
        limits().prop_map(|limits| Body::LimitsChanged { limits, overrides: Vec::new() }),
        text().prop_map(|detail| Body::SessionPaused { reason: Reason::DiskLow, detail, in_flight: false }),
        Just(Body::SessionContinued { reason: Reason::DiskLow }),
        Just(Body::SessionCrashed { found: Phase::Running }),
        Just(Body::IterationStarted {}),
        (any::<bool>(), tree()).prop_map(|(changed, tree)| Body::IterationFinished {
            changed,
            tree,
            duration_ms: 12
        }),
        (proptest::option::of(0.0..3.0f64), any::<u32>()).prop_map(|(reserved_usd, pid)| {
            Body::AttemptStarted {
                token: Token(Ulid::from_parts(3, u128::from(pid))),
                model: None,
                pid: Some(pid),
                start_time: Some(u64::from(pid) * 3),
                resumes: pid.is_multiple_of(2).then(|| format!("conversation-{pid}")),
                reserved_usd,
            }
        }),
        attempt_finished(),
        text().prop_map(|detail| Body::WaitStarted { until: noon(), why: WaitReason::BackOff, detail }),
        Just(Body::WaitEnded { why: WaitReason::BackOff }),
        (text(), tree()).prop_map(|(tail, tree)| Body::GateFinished {
            name: "test".into(),
            result: GateResult::Failed,
            tree,
            exit: Some(Exit::Code(1)),
            duration_ms: 3,
            tail,
            reused: false,
        }),
        (1..9u64, "[0-9a-f]{40}").prop_map(|(number, tree)| Body::CheckpointCreated {
            number,
            tree,
            reference: None
        }),
        (id(), text()).prop_map(|(id, text)| Body::MessageQueued { id, source: "say".into(), text }),
        id().prop_map(|id| Body::MessageDelivered { id }),
        text().prop_map(|why| Body::CoolDown { account: "claude".into(), until: Some(noon()), why }),
        text().prop_map(|why| Body::Failover { from: "claude".into(), to: "codex".into(), why }),
        text().prop_map(|summary| Body::CompletionClaimed { by: "line".into(), summary }),
        text().prop_map(|message| Body::Notice { code: "x".into(), message }),
    ]
}

fn attempt_finished() -> impl Strategy<Value = Body> {
    let outcome = prop_oneof![
        any::<bool>().prop_map(|changed| Outcome::Completed { changed, claims_done: false, denied: vec![] }),
        Just(Outcome::RateLimited { until: Some(noon()) }),
        Just(Outcome::Crashed { signal: Some(9), code: None }),
        Just(Outcome::ContextOverflow),
        Just(Outcome::Cancelled),
    ];
    let money = || proptest::option::of(0.0..2.0f64);
    (outcome, money(), money(), any::<bool>(), "[a-z\n]{0,30}").prop_map(
        |(outcome, cost_usd, conversation_usd, counts, answer)| {
            let verdict = Verdict {
                outcome,
                scope: AccountScope::Account,
                evidence: Evidence { source: "result".into(), text: "because".into() },
                rule: "test.rule".into(),
                warning: None,
            };
            Body::AttemptFinished(Box::new(AttemptFinished {
                token: Token(Ulid::nil()),
                verdict,
                counts,
                usage: Usage::default(),
                cost_usd,
                cost_source: "provider".into(),
                duration_ms: 5,
                exit: None,
                conversation: Some("c".into()),
                conversation_usd,
                conversation_home: None,
                resumed: None,
                tools: 1,
                answer,
                strays: 0,
                tree: None,
                extra: BTreeMap::new(),
            }))
        },
    )
}
