//! What a person is told who is not looking: when, in which words, and under which name, so that one cause is told
//! once whatever is repeated.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::event::{Body, Event};
use super::ids::SessionId;
use super::state::{Phase, Reason, Session, State};

/// The share of a budget at which a person is told.
const MUCH: f64 = 0.8;

/// What it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The session waits for a person.
    NeedsHuman,
    /// It has ended well.
    Finished,
    /// It has ended badly.
    Failed,
    /// Four fifths of its budget are spent.
    #[serde(rename = "budget_80")]
    Budget80,
    /// Another provider has taken over.
    Failover,
    /// It waits for long.
    LongWait,
    /// A person tries the channels.
    Test,
}

/// One notification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notification {
    /// The same for the same cause in the same session, whoever makes it and how often.
    pub id: String,
    /// What it is about.
    pub kind: Kind,
    /// One line.
    pub title: String,
    /// More of it, and what to do.
    pub text: String,
    /// The project's folder.
    pub project: String,
    /// The session.
    pub session: Option<SessionId>,
    /// The iteration.
    pub iteration: Option<u64>,
    /// When it was noticed.
    pub time: Timestamp,
}

/// What the words are made with.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    /// The project's folder.
    pub project: &'a str,
    /// A wait of at least this is told.
    pub long_wait: Duration,
    /// The present.
    pub now: Timestamp,
}

// === impl Kind ===

impl Kind {
    /// Those that a person can ask for.
    pub const ALL: [Kind; 6] =
        [Kind::NeedsHuman, Kind::Finished, Kind::Failed, Kind::Budget80, Kind::Failover, Kind::LongWait];

    /// Its name in settings and messages.
    pub fn name(self) -> &'static str {
        match self {
            Kind::NeedsHuman => "needs_human",
            Kind::Finished => "finished",
            Kind::Failed => "failed",
            Kind::Budget80 => "budget_80",
            Kind::Failover => "failover",
            Kind::LongWait => "long_wait",
            Kind::Test => "test",
        }
    }

    /// The one of that name.
    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Something in the state that is worth a look may follow from this event.
pub fn is_hint(event: &Event) -> bool {
    matches!(
        event.body,
        Body::SessionPaused { .. }
            | Body::SessionFinished { .. }
            | Body::WaitStarted { .. }
            | Body::Failover { .. }
            | Body::BudgetReserved { .. }
            | Body::BudgetExceeded { .. }
    )
}

/// What holds now and a person should know. Asked again it gives the same ones under the same names.
pub fn of_state(state: &State, about: About<'_>) -> Vec<Notification> {
    let Some(session) = &state.session else { return Vec::new() };
    let make = |kind, cause: &str, title: String, text: String| about.make(session, kind, cause, title, text);
    let mut found = Vec::new();
    let reason = session.reason.map_or_else(String::new, word);
    let at = session.iteration;
    match session.state {
        Phase::Paused if needs_person(session) => {
            let title = format!("needs you: {}", reason.replace('_', " "));
            found.push(make(Kind::NeedsHuman, &format!("{reason} {at}"), title, session.detail.clone()));
        }
        Phase::Finished | Phase::Failed => {
            let (kind, word) = match session.state {
                Phase::Finished => (Kind::Finished, "finished"),
                _ => (Kind::Failed, "failed"),
            };
            let title = format!("{word}: {}", reason.replace('_', " "));
            let spent = session.budget.spent.as_usd();
            let mut text = format!("{} iterations", session.finished);
            if spent > 0.0 {
                text += &format!(", {spent:.2} USD");
            }
            if !session.detail.is_empty() {
                text += &format!(". {}", session.detail);
            }
            found.push(make(kind, &reason, title, text));
        }
        _ => {}
    }
    if let Some(wait) = &session.wait
        && session.state == Phase::Waiting
        && Duration::try_from(wait.until.duration_since(about.now)).is_ok_and(|left| left >= about.long_wait)
    {
        let until = wait.until.strftime("%Y-%m-%d %H:%M UTC");
        let title = format!("waits until {until}: {}", reason.replace('_', " "));
        let text = format!("{}. It goes on by itself", session.detail);
        found.push(make(Kind::LongWait, &format!("{reason} {at}"), title, text));
    }
    if let Some(limit) = session.limits.budget_usd
        && session.budget.spent.as_usd() >= limit * MUCH
    {
        let spent = session.budget.spent.as_usd();
        let title = format!("{spent:.2} of {limit:.2} USD are spent");
        let text = "the session pauses when the next call would pass the limit; raise it with `longhaul config set budget.usd N`";
        found.push(make(Kind::Budget80, &limit.to_string(), title, text.to_owned()));
    }
    found
}

/// What an event alone tells: a fail-over leaves no trace in the state that says why.
pub fn of_event(event: &Event, state: &State, about: About<'_>) -> Option<Notification> {
    let (Body::Failover { from, to, why }, Some(session)) = (&event.body, &state.session) else {
        return None;
    };
    let at = event.iteration.unwrap_or(session.iteration);
    let cause = format!("{from} {to} {at}");
    let title = format!("{to} has taken over from {from}");
    Some(about.make(session, Kind::Failover, &cause, title, why.replace('_', " ")))
}

/// The reason's name in the journal.
fn word(reason: Reason) -> String {
    serde_json::to_value(reason).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Nobody has asked for the pause, and nobody but a person ends it.
fn needs_person(session: &Session) -> bool {
    session.reason.is_some_and(|reason| reason.needs_person() && reason != Reason::Requested)
}

// === impl About ===

impl About<'_> {
    fn make(&self, session: &Session, kind: Kind, cause: &str, title: String, text: String) -> Notification {
        Notification {
            id: format!("{}.{kind}.{}", session.id, cause.replace(' ', ".")),
            kind,
            title: format!("{}: {title}", self.name()),
            text,
            project: self.project.to_owned(),
            session: Some(session.id),
            iteration: Some(session.iteration).filter(|iteration| *iteration > 0),
            time: self.now,
        }
    }

    /// One that a person tries the channels with.
    pub fn test(&self, id: String) -> Notification {
        Notification {
            id,
            kind: Kind::Test,
            title: format!("{}: a test", self.name()),
            text: "this is how Longhaul tells that it needs you".to_owned(),
            project: self.project.to_owned(),
            session: None,
            iteration: None,
            time: self.now,
        }
    }

    fn name(&self) -> &str {
        self.project.rsplit('/').find(|part| !part.is_empty()).unwrap_or(self.project)
    }
}
