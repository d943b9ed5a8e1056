//! The outbox: what a person is told, at most once for each cause and channel.
//!
//! A notification is written down before it is sent, under the name of its cause; whoever makes it again, in this
//! process or another one, finds it there. One whose sender died, or whose answer was lost, may have arrived: it is
//! not sent again by itself.

use jiff::{SignedDuration, Timestamp};
use rusqlite::{OptionalExtension, Row, params};
use serde::Serialize;

use super::{Holder, HostDb, StoreError, lives};
use crate::domain::notification::Notification;

/// How long those are kept that wait for nothing any more.
const KEPT: SignedDuration = SignedDuration::from_hours(24 * 90);

/// Most that are sent in one round.
const ROUND: usize = 20;

/// Where a notification goes: the channel's name, and a digest of its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Post {
    /// `webhook`, `command` or `desktop`.
    pub channel: &'static str,
    /// Not the address itself, which is often a secret.
    pub target: String,
}

/// One to be sent now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// What it says.
    pub notification: Notification,
    /// By which channel.
    pub channel: String,
    /// Tries so far, this one included.
    pub tries: u32,
}

/// How a try went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    /// It has arrived.
    Sent,
    /// It has not, and may be tried again then.
    Again(Timestamp, String),
    /// It has not, and there is no use in trying again.
    Failed(String),
    /// Nobody knows.
    Unknown(String),
}

/// One, as it is listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// What it says.
    #[serde(flatten)]
    pub notification: Notification,
    /// By which channel.
    pub channel: String,
    /// `pending`, `sending`, `sent`, `failed`, or `unknown`: it may have arrived.
    pub state: String,
    /// Tries so far.
    pub tries: u32,
    /// When it is tried again.
    pub next: Option<Timestamp>,
    /// Why it has not arrived.
    pub error: Option<String>,
}

// === impl HostDb ===

impl HostDb {
    /// Writes these down, for each of the channels. Those that are there already stay as they are.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn post(&mut self, new: &[Notification], posts: &[Post], now: Timestamp) -> Result<(), StoreError> {
        self.write(|tx| {
            for (notification, post) in new.iter().flat_map(|n| posts.iter().map(move |post| (n, post))) {
                let body = serde_json::to_string(notification).unwrap_or_default();
                tx.prepare_cached(
                    "INSERT OR IGNORE INTO notifications VALUES (?1, ?2, ?3, ?4, ?5, 'pending', 0, ?5, NULL, 0, 0, '')",
                )?
                .execute(params![notification.id, post.channel, post.target, body, now.to_string()])?;
            }
            let old = now.checked_sub(KEPT).unwrap_or(Timestamp::MIN);
            tx.prepare_cached("DELETE FROM notifications WHERE state != 'pending' AND created < ?1")?
                .execute([old.to_string()])?;
            Ok(())
        })
    }

    /// Takes those that are due for these channels: until they are [delivered](HostDb::delivered) nobody else sends
    /// them. Also when the next one is due.
    ///
    /// # Errors
    /// It cannot be read or written.
    pub fn take_due(
        &mut self,
        me: &Holder,
        posts: &[Post],
        now: Timestamp,
    ) -> Result<(Vec<Letter>, Option<Timestamp>), StoreError> {
        let space = self.space.clone();
        self.write(|tx| {
            let sending: Vec<(String, String, Holder)> = tx
                .prepare_cached("SELECT id, channel, pid, start_time, space FROM notifications WHERE state = 'sending'")?
                .query_map([], sender)?
                .collect::<Result<_, _>>()?;
            for (id, channel, _) in sending.iter().filter(|(.., holder)| !lives(holder, &space)) {
                tx.prepare_cached(
                    "UPDATE notifications SET state = 'unknown', error = 'the process that sent it was killed'
                       WHERE id = ?1 AND channel = ?2",
                )?
                .execute([id, channel])?;
            }
            let (mut letters, mut next) = (Vec::new(), None::<Timestamp>);
            for Post { channel, target } in posts {
                let mut query = tx.prepare_cached(
                    "SELECT body, channel, tries, next, id FROM notifications
                       WHERE state = 'pending' AND channel = ?1 AND target = ?2 ORDER BY created, id",
                )?;
                for row in query.query_map([*channel, target.as_str()], waiting)? {
                    let (letter, due, id) = row?;
                    if due > now || letters.len() >= ROUND {
                        next = Some(next.map_or(due, |next| next.min(due)));
                        continue;
                    }
                    tx.prepare_cached(
                        "UPDATE notifications SET state = 'sending', tries = tries + 1, pid = ?3, start_time = ?4, space = ?5
                           WHERE id = ?1 AND channel = ?2",
                    )?
                    .execute(params![id, channel, me.pid, me.start_time.cast_signed(), me.space])?;
                    letters.extend(letter);
                }
            }
            Ok((letters, next))
        })
    }

    /// Says how it went.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn delivered(&mut self, results: &[(String, String, Delivery)]) -> Result<(), StoreError> {
        self.write(|tx| {
            for (id, channel, delivery) in results {
                let (state, next, error) = match delivery {
                    Delivery::Sent => ("sent", None, None),
                    Delivery::Again(next, error) => ("pending", Some(next.to_string()), Some(error)),
                    Delivery::Failed(error) => ("failed", None, Some(error)),
                    Delivery::Unknown(error) => ("unknown", None, Some(error)),
                };
                tx.prepare_cached(
                    "UPDATE notifications SET state = ?3, next = ?4, error = ?5
                       WHERE id = ?1 AND channel = ?2 AND state = 'sending'",
                )?
                .execute(params![id, channel, state, next, error])?;
            }
            Ok(())
        })
    }

    /// All of them, the newest first.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn notifications(&self) -> Result<Vec<Entry>, StoreError> {
        let read = || -> rusqlite::Result<Vec<Entry>> {
            let mut query = self.conn.prepare_cached(
                "SELECT body, channel, tries, next, state, error FROM notifications ORDER BY created DESC, id, channel",
            )?;
            let entries = query.query_map([], entry)?.filter_map(Result::transpose);
            entries.collect()
        };
        read().map_err(|error| self.error(&error))
    }

    /// Has those tried again that have not arrived, or of which nobody knows: one, or all. How many.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn send_again(&mut self, id: Option<&str>, now: Timestamp) -> Result<usize, StoreError> {
        self.write(|tx| {
            tx.prepare_cached(
                "UPDATE notifications SET state = 'pending', tries = 0, next = ?2, error = NULL
                   WHERE state IN ('failed', 'unknown') AND (?1 IS NULL OR id = ?1)",
            )?
            .execute(params![id, now.to_string()])
        })
    }

    /// There is one of that name.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn has_notification(&self, id: &str) -> Result<bool, StoreError> {
        let found = self
            .conn
            .prepare_cached("SELECT 1 FROM notifications WHERE id = ?1 LIMIT 1")
            .and_then(|mut query| query.query_row([id], |_| Ok(())).optional());
        Ok(found.map_err(|error| self.error(&error))?.is_some())
    }
}

fn sender(row: &Row<'_>) -> rusqlite::Result<(String, String, Holder)> {
    let start_time: i64 = row.get(3)?;
    let (pid, space) = (row.get(2)?, row.get(4)?);
    let holder = Holder { pid, start_time: start_time.cast_unsigned(), space, project: String::new() };
    Ok((row.get(0)?, row.get(1)?, holder))
}

/// None: a later version has written it, and can read it.
fn waiting(row: &Row<'_>) -> rusqlite::Result<(Option<Letter>, Timestamp, String)> {
    let (body, channel): (String, String) = (row.get(0)?, row.get(1)?);
    let tries: u32 = row.get(2)?;
    let letter = serde_json::from_str(&body).ok();
    let letter = letter.map(|notification| Letter { notification, channel, tries: tries.saturating_add(1) });
    Ok((letter, time(row, 3)?.unwrap_or(Timestamp::MIN), row.get(4)?))
}

fn entry(row: &Row<'_>) -> rusqlite::Result<Option<Entry>> {
    let body: String = row.get(0)?;
    let Ok(notification) = serde_json::from_str(&body) else { return Ok(None) };
    let (channel, tries, next) = (row.get(1)?, row.get(2)?, time(row, 3)?);
    let (state, error): (String, _) = (row.get(4)?, row.get(5)?);
    Ok(Some(Entry { notification, channel, next: next.filter(|_| state == "pending"), state, tries, error }))
}

fn time(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Timestamp>> {
    let text: Option<String> = row.get(at)?;
    Ok(text.and_then(|text| text.parse().ok()))
}
