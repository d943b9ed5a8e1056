//! The ledger's statements: each reads or writes rows of `calls` within somebody's transaction.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use rusqlite::{Connection, Row, Transaction, params};

use super::{Caller, Known, Line};
use crate::domain::host_accounts::Holder;
use crate::domain::ledger::{Booking, Reservation, Tally, Use, Window};
use crate::domain::money::MicroUsd;
use crate::process::ProcessId;

/// The largest amount that is written, a thousand million dollars: sums of them must not overflow.
const LARGEST: u64 = 1_000_000_000_000_000;

/// How long a call is believed to be in flight whose process cannot be seen from here, microseconds: a day, as
/// containers come and go.
const UNSEEN: i64 = 24 * 3600 * 1_000_000;

/// What is known of the provider of a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner<'a> {
    /// Its account, where others may use it, too.
    pub(super) account: Option<&'a str>,
    /// Nothing real is called.
    pub(super) rehearsed: bool,
}

pub(super) fn uses(
    tx: &Transaction<'_>,
    caller: Caller<'_>,
    ask: &Reservation,
    now: Timestamp,
) -> rusqlite::Result<Vec<Use>> {
    let limited = Window::KEPT.into_iter().filter_map(|window| Some((window, ask.limits.of(window)?)));
    let used = limited.map(|(window, limit)| {
        let tally = sum(tx, window, &caller.holder.project, caller.rehearsed, caller.zone, now)?;
        let resets_at = window.bounds(now, caller.zone).map(|(_, end)| end);
        Ok(Use { window, limit, spent: tally.spent, reserved: tally.reserved, resets_at })
    });
    used.collect()
}

pub(super) fn insert(
    tx: &Transaction<'_>,
    caller: Caller<'_>,
    ask: &Reservation,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let (call, holder) = (ask.call, caller.holder);
    tx.prepare_cached(
        "INSERT INTO calls VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, NULL, ?11, NULL, 0, 0, ?12, ?13, ?14)",
    )?
    .execute(params![
        call.token.to_string(),
        holder.project,
        call.session.to_string(),
        call.lane.0,
        count(call.iteration),
        call.attempt,
        caller.provider,
        caller.account,
        caller.rehearsed,
        micros(now),
        stored(ask.usd),
        holder.pid,
        holder.start_time.cast_signed(),
        holder.space,
    ])
    .map(drop)
}

/// A call that ended. What the journal has said is the last word. What was only rehearsed, and has no row, gets none.
pub(super) fn book(
    tx: &Transaction<'_>,
    me: &Holder,
    booking: &Booking,
    owner: Owner<'_>,
    exact: bool,
) -> rusqlite::Result<()> {
    let Booking { call, provider, began, ended, cost, unknown } = booking;
    let (token, cost) = (call.token.to_string(), cost.map(stored));
    let updated = tx
        .prepare_cached(
            "UPDATE calls SET provider = ?2, ended = ?3, cost = ?4, unknown = ?5, exact = ?6 WHERE token = ?1 AND exact = 0",
        )?
        .execute(params![token, provider, micros(*ended), cost, unknown, exact])?;
    if updated > 0 || owner.rehearsed {
        return Ok(());
    }
    tx.prepare_cached(
        "INSERT OR IGNORE INTO calls VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 0, ?9, ?10, 0, ?11, ?12, ?13, ?14, ?15, ?16)",
    )?
    .execute(params![
        token,
        me.project,
        call.session.to_string(),
        call.lane.0,
        count(call.iteration),
        call.attempt,
        provider,
        owner.account,
        micros(*began),
        micros(*ended),
        cost,
        unknown,
        exact,
        me.pid,
        me.start_time.cast_signed(),
        me.space,
    ])
    .map(drop)
}

/// Earlier questions for the same attempt: none of them has led to a call.
pub(super) fn forget_unbegun(tx: &Transaction<'_>, me: &Holder, ask: &Reservation) -> rusqlite::Result<()> {
    tx.prepare_cached(
        "DELETE FROM calls WHERE project = ?1 AND exact = 0 AND ended IS NULL AND pid = ?2 AND start_time = ?3 AND space = ?4
         AND session = ?5 AND lane = ?6 AND iteration = ?7 AND attempt = ?8 AND token <= ?9",
    )?
    .execute(params![
        me.project,
        me.pid,
        me.start_time.cast_signed(),
        me.space,
        ask.call.session.to_string(),
        ask.call.lane.0,
        count(ask.call.iteration),
        ask.call.attempt,
        ask.call.token.to_string()
    ])
    .map(drop)
}

/// Of the project's newest session everything that ended is booked, and one call may be open: what else was set aside
/// for it led to no call.
pub(super) fn never_began(
    tx: &Transaction<'_>,
    me: &Holder,
    known: Known,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let mut statement = tx.prepare_cached(
        "SELECT token, project, rehearsed, began, reserved, pid, start_time, space, ended IS NULL FROM calls
         WHERE project = ?1 AND exact = 0 AND session = ?2",
    )?;
    let open = known.open.map(|token| token.to_string());
    let rows = statement.query_map(params![me.project, known.session.to_string()], |row| {
        Ok((flight(row)?, row.get::<_, bool>(8)?))
    })?;
    let this = ProcessId { pid: me.pid, start_time: me.start_time };
    for (call, in_flight) in rows.collect::<rusqlite::Result<Vec<_>>>()? {
        // Of the living only they themselves know what they are about to do, and what they have not committed yet.
        let over = if call.process == this && call.space == me.space {
            known.closing
        } else {
            !in_flight && call.is_dead(&me.space, now)
        };
        if over && Some(&call.token) != open.as_ref() {
            tx.prepare_cached("DELETE FROM calls WHERE token = ?1")?.execute([call.token])?;
        }
    }
    Ok(())
}

pub(super) fn settle_the_dead(tx: &Transaction<'_>, space: &str, now: Timestamp) -> rusqlite::Result<()> {
    for flight in in_flight(tx)?.iter().filter(|flight| flight.is_dead(space, now)) {
        tx.prepare_cached("UPDATE calls SET ended = ?2, cost = reserved, unknown = 1 WHERE token = ?1")?
            .execute(params![flight.token, micros(now)])?;
    }
    Ok(())
}

pub(super) fn sum(
    conn: &Connection,
    window: Window,
    project: &str,
    rehearsed: bool,
    zone: &TimeZone,
    now: Timestamp,
) -> rusqlite::Result<Tally> {
    const SUMS: &str =
        "SELECT sum(iif(ended IS NULL, 0, coalesce(cost, 0))), sum(iif(ended IS NULL, reserved, 0)),
                        count(*), sum(unknown) FROM calls WHERE rehearsed = ?1";
    let tally = |row: &Row<'_>| {
        let number = |column| row.get::<_, Option<i64>>(column).map(|sum| sum.unwrap_or(0).unsigned_abs());
        Ok(Tally {
            spent: MicroUsd(number(0)?),
            reserved: MicroUsd(number(1)?),
            calls: number(2)?,
            unknown_calls: number(3)?,
        })
    };
    match window.bounds(now, zone) {
        Some((from, to)) => conn
            .prepare_cached(&format!("{SUMS} AND began >= ?2 AND began < ?3"))?
            .query_row(params![rehearsed, micros(from), micros(to)], tally),
        None => conn
            .prepare_cached(&format!("{SUMS} AND project = ?2"))?
            .query_row(params![rehearsed, project], tally),
    }
}

/// A call that the journal has not had the last word on.
pub(super) struct Flight {
    pub(super) token: String,
    pub(super) project: String,
    pub(super) rehearsed: bool,
    pub(super) began: i64,
    pub(super) reserved: MicroUsd,
    process: ProcessId,
    space: String,
}

impl Flight {
    /// Its process cannot end it any more.
    pub(super) fn is_dead(&self, space: &str, now: Timestamp) -> bool {
        let boot = |space: &str| space.split(' ').next().map(str::to_owned);
        if boot(&self.space) != boot(space) {
            // The host was started again.
            return true;
        }
        if self.space == space { !self.process.is_alive() } else { micros(now) - self.began > UNSEEN }
    }
}

pub(super) fn in_flight(conn: &Connection) -> rusqlite::Result<Vec<Flight>> {
    let mut statement = conn.prepare_cached(
        "SELECT token, project, rehearsed, began, reserved, pid, start_time, space FROM calls WHERE exact = 0 AND ended IS NULL",
    )?;
    let flights = statement.query_map([], flight)?;
    flights.collect()
}

fn flight(row: &Row<'_>) -> rusqlite::Result<Flight> {
    let start_time: i64 = row.get(6)?;
    Ok(Flight {
        token: row.get(0)?,
        project: row.get(1)?,
        rehearsed: row.get(2)?,
        began: row.get(3)?,
        reserved: MicroUsd(row.get::<_, i64>(4)?.unsigned_abs()),
        process: ProcessId { pid: row.get(5)?, start_time: start_time.cast_unsigned() },
        space: row.get(7)?,
    })
}

pub(super) fn line(row: &Row<'_>, dead: &[String]) -> rusqlite::Result<Line> {
    let amount =
        |column| row.get::<_, Option<i64>>(column).map(|amount| MicroUsd(amount.unwrap_or(0).unsigned_abs()));
    let (in_flight, dead) = (row.get::<_, Option<i64>>(3)?.is_none(), dead.contains(&row.get(7)?));
    let unknown = row.get::<_, bool>(6)? || dead;
    let (spent, reserved) = match (in_flight, dead) {
        (true, false) => (MicroUsd::ZERO, amount(4)?),
        (true, true) => (amount(4)?, MicroUsd::ZERO),
        (false, _) => (amount(5)?, MicroUsd::ZERO),
    };
    Ok(Line {
        provider: row.get(0)?,
        project: row.get(1)?,
        began: Timestamp::from_microsecond(row.get(2)?).unwrap_or(Timestamp::MIN),
        tally: Tally { spent, reserved, calls: 1, unknown_calls: u64::from(unknown) },
    })
}

pub(super) fn micros(time: Timestamp) -> i64 {
    time.as_microsecond()
}

fn stored(amount: MicroUsd) -> i64 {
    i64::try_from(amount.0.min(LARGEST)).unwrap_or(i64::MAX)
}

fn count(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
