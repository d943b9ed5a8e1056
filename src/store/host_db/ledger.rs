//! The budget ledger: one row for each call of every project of the host, in micro-dollars.
//!
//! A call is admitted and written in one transaction, so all who ask at once stay below a limit together. Its end is
//! booked any number of times, and counts once: the last word has the journal of its project. A call whose process
//! died before it could say what it cost is booked at its reservation by whoever looks next.

mod rows;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use rusqlite::{OptionalExtension, params};

use super::HostDb;
use super::bookings::{Found, Mark};
use crate::domain::host_accounts::Holder;
use crate::domain::ids::{SessionId, Token};
use crate::domain::ledger::{Money, Reservation, Tally, Window, judge};
use crate::store::error::StoreError;
use rows::{
    Owner, book, forget_unbegun, in_flight, insert, line, micros, never_began, settle_the_dead, sum, uses,
};

/// The tables. Times are microseconds since 1970, money is micro-dollars. A call is in flight while `ended` is null;
/// `exact`: its project's journal has said what it came to. `rehearsed`: it cost nothing, and is kept apart.
pub(super) const SCHEMA: &str = "CREATE TABLE calls (token TEXT PRIMARY KEY, project TEXT NOT NULL, session TEXT NOT NULL,
       lane INTEGER NOT NULL, iteration INTEGER NOT NULL, attempt INTEGER NOT NULL, provider TEXT NOT NULL, account TEXT,
       rehearsed INTEGER NOT NULL, began INTEGER NOT NULL, ended INTEGER, reserved INTEGER NOT NULL, cost INTEGER,
       unknown INTEGER NOT NULL, exact INTEGER NOT NULL, pid INTEGER, start_time INTEGER, space TEXT) STRICT;
     CREATE INDEX calls_by_time ON calls (rehearsed, began, ended, reserved, cost, unknown);
     CREATE INDEX calls_by_project ON calls (project, rehearsed, ended, reserved, cost, unknown);
     CREATE INDEX calls_in_doubt ON calls (project) WHERE exact = 0;
     CREATE TABLE booked (project TEXT PRIMARY KEY, seq INTEGER NOT NULL, id TEXT NOT NULL) STRICT;";

/// Who makes a call.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// This process, and its project.
    pub holder: &'a Holder,
    /// The provider that is called.
    pub provider: &'a str,
    /// Its account, where others may use it, too.
    pub account: Option<&'a str>,
    /// Nothing real is called.
    pub rehearsed: bool,
    /// Whose days and months count.
    pub zone: &'a TimeZone,
}

/// What the state of a project knows, to tell which of its calls never began.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    /// Its newest session.
    pub session: SessionId,
    /// The call that it has not seen the end of.
    pub open: Option<Token>,
    /// This process makes no call any more.
    pub closing: bool,
}

/// One call of a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Its provider.
    pub provider: String,
    /// Its project.
    pub project: String,
    /// When it began.
    pub began: Timestamp,
    /// What it comes to.
    pub tally: Tally,
}

// === impl HostDb ===

impl HostDb {
    /// Sets money aside for a call, if it fits into every window that has a limit. To ask again for the same call
    /// changes nothing.
    ///
    /// # Errors
    /// It cannot be read or written; nothing is set aside then.
    pub fn reserve(
        &mut self,
        caller: Caller<'_>,
        ask: &Reservation,
        now: Timestamp,
    ) -> Result<Money, StoreError> {
        let space = self.space.clone();
        self.write(|tx| {
            settle_the_dead(tx, &space, now)?;
            if let Some(ended) = &ask.ended {
                let owner = Owner { account: caller.account, rehearsed: caller.rehearsed };
                book(tx, caller.holder, ended, owner, /* exact */ false)?;
            }
            forget_unbegun(tx, caller.holder, ask)?;
            let windows = uses(tx, caller, ask, now)?;
            if let Some(exceeded) = judge(ask.usd, &windows) {
                return Ok(Money::Exceeded(exceeded));
            }
            insert(tx, caller, ask, now)?;
            Ok(Money::Reserved { token: ask.call.token, windows })
        })
    }

    /// The call does not begin after all.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn release(&mut self, token: Token) -> Result<(), StoreError> {
        self.write(|tx| {
            tx.prepare_cached("DELETE FROM calls WHERE token = ?1 AND ended IS NULL")?
                .execute([token.to_string()])
                .map(drop)
        })
    }

    /// How far the journal of a project is booked.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn booked(&self, project: &str) -> Result<Option<Mark>, StoreError> {
        let mark = self.conn.prepare_cached("SELECT seq, id FROM booked WHERE project = ?1");
        let mark = mark.and_then(|mut statement| {
            statement
                .query_row([project], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)))
                .optional()
        });
        let mark = mark.map_err(|error| self.error(&error))?;
        Ok(mark.and_then(|(seq, id)| Some(Mark { seq: u64::try_from(seq).ok()?, id: id.parse().ok()? })))
    }

    /// Books what was found in the journal of a project: each call once, however often it is told. `account` and
    /// `rehearsed` tell what is known of a provider.
    ///
    /// # Errors
    /// It cannot be written; nothing is booked then.
    pub fn book(
        &mut self,
        me: &Holder,
        found: &Found,
        known: Option<Known>,
        mut owner: impl FnMut(&str) -> (Option<String>, bool),
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let space = self.space.clone();
        self.write(|tx| {
            settle_the_dead(tx, &space, now)?;
            for booking in &found.bookings {
                let (account, rehearsed) = owner(&booking.provider);
                let owner = Owner { account: account.as_deref(), rehearsed };
                book(tx, me, booking, owner, /* exact */ true)?;
            }
            if let Some(mark) = found.mark {
                let seq = i64::try_from(mark.seq).unwrap_or(i64::MAX);
                tx.prepare_cached("INSERT OR REPLACE INTO booked VALUES (?1, ?2, ?3)")?.execute(params![
                    me.project,
                    seq,
                    mark.id.to_string()
                ])?;
            }
            if let Some(known) = known {
                never_began(tx, me, known, now)?;
            }
            Ok(())
        })
    }

    /// What the present window comes to, in the project where it is about one. Changes nothing: calls of the dead
    /// count at their reservations.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn tally(
        &self,
        window: Window,
        project: &str,
        zone: &TimeZone,
        now: Timestamp,
    ) -> Result<Tally, StoreError> {
        let read = || {
            let mut tally = sum(&self.conn, window, project, /* rehearsed */ false, zone, now)?;
            for flight in in_flight(&self.conn)?.iter().filter(|f| f.is_dead(&self.space, now)) {
                let here = match window.bounds(now, zone) {
                    Some((from, to)) => (micros(from)..micros(to)).contains(&flight.began),
                    None => flight.project == project,
                };
                if here && !flight.rehearsed {
                    tally.reserved = tally.reserved.minus(flight.reserved);
                    tally.spent = tally.spent.plus(flight.reserved);
                    tally.unknown_calls += 1;
                }
            }
            Ok(tally)
        };
        read().map_err(|error| self.error(&error))
    }

    /// The calls that began in the present window, oldest first; those of the dead at their reservations.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn lines(&self, window: Window, zone: &TimeZone, now: Timestamp) -> Result<Vec<Line>, StoreError> {
        let (from, to) = window.bounds(now, zone).unwrap_or((Timestamp::MIN, Timestamp::MAX));
        let read = || {
            let dead: Vec<String> = in_flight(&self.conn)?
                .into_iter()
                .filter(|flight| flight.is_dead(&self.space, now))
                .map(|flight| flight.token)
                .collect();
            let mut statement = self.conn.prepare_cached(
                "SELECT provider, project, began, ended, reserved, cost, unknown, token FROM calls
                 WHERE rehearsed = 0 AND began >= ?1 AND began < ?2 ORDER BY began",
            )?;
            let lines = statement.query_map([micros(from), micros(to)], |row| line(row, &dead))?;
            lines.collect::<rusqlite::Result<Vec<Line>>>()
        };
        read().map_err(|error| self.error(&error))
    }
}

#[cfg(test)]
mod tests;
