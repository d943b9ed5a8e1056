//! Two projects of one host spend one day's money, while their actors die: never more than that together, and every
//! call is in the ledger once.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use longhaul::actors::host::Ended;
use longhaul::clock::local_zone;
use longhaul::domain::event::{Body, Event};
use longhaul::domain::ledger::Window;
use longhaul::domain::money::MicroUsd;
use longhaul::store::HOST_DB;
use rusqlite::Connection;
use tokio::time::timeout;

use crate::scene::{Place, simulated};
use crate::storm::{ACTORS, SCRIPT, SETTINGS, a_moment, dies};

/// US dollars a day, of both together; a call costs a cent.
const DAY: f64 = 0.4;

/// Iterations of each project.
const ITERATIONS: u64 = 30;

/// Deaths in both together.
const DEATHS: u32 = 80;

#[test]
fn bd_004_two_projects_stay_within_a_day_together_while_their_actors_die() {
    let seed: u64 = std::env::var("LONGHAUL_SIM_SEED").map_or(1, |seed| seed.parse().unwrap());
    println!("LONGHAUL_SIM_SEED={seed}");
    let home = tempfile::tempdir().unwrap();
    let settings = SETTINGS.replace("max_iterations = \"none\"", &format!("max_iterations = {ITERATIONS}"));
    let settings = format!("{settings}[budget]\nday_usd = {DAY}\n");
    let mut places = [(), ()].map(|()| Place::new(&settings, SCRIPT).on_host(home.path()));
    let scenes = simulated().block_on(storm(&mut places, seed));
    let journals = scenes.map(|scene| Arc::try_unwrap(scene).ok().unwrap().events());

    let all = || journals.iter().flatten();
    let waits = all().filter(|e| matches!(&e.body, Body::BudgetExceeded { window: Window::Day, .. })).count();
    assert!(waits > 0, "the money was never used up");
    let mut days: BTreeMap<_, MicroUsd> = BTreeMap::new();
    let mut booked = MicroUsd::ZERO;
    for journal in &journals {
        for (began, cost) in calls(journal) {
            booked = booked.plus(cost);
            let day = Window::Day.bounds(began, &local_zone()).unwrap().0;
            let day = days.entry(day).or_default();
            *day = day.plus(cost);
        }
    }
    assert!(days.len() > 1, "it goes on with the next day");
    for (day, spent) in days {
        assert!(spent <= MicroUsd::from_usd(DAY).unwrap(), "{spent} on {day}");
    }
    let calls = all().filter(|event| matches!(event.body, Body::AttemptFinished(_))).count() as u64;
    assert_eq!(in_the_ledger(home.path()), (calls, booked.0));
}

/// When each call began, and what it was booked at.
fn calls(journal: &[Event]) -> Vec<(jiff::Timestamp, MicroUsd)> {
    let (mut began, mut calls) = (None, Vec::new());
    for event in journal {
        match &event.body {
            Body::AttemptStarted { .. } => began = Some(event.time),
            Body::AttemptFinished(finished) => {
                calls.push((began.take().unwrap(), finished.booked().0.unwrap()));
            }
            _ => {}
        }
    }
    calls
}

/// Calls, all of them booked for good, and what they come to.
fn in_the_ledger(home: &Path) -> (u64, u64) {
    #[expect(clippy::disallowed_methods, reason = "a look at what is left, by nobody of the program")]
    let db = Connection::open(home.join(HOST_DB)).unwrap();
    let open: i64 = db
        .query_row("SELECT count(*) FROM calls WHERE ended IS NULL OR exact = 0", [], |row| row.get(0))
        .unwrap();
    assert_eq!(open, 0, "a call that nobody has booked");
    let sums = db.query_row("SELECT count(*), sum(cost) FROM calls", [], |row| {
        Ok((row.get::<_, i64>(0)?.unsigned_abs(), row.get::<_, i64>(1)?.unsigned_abs()))
    });
    sums.unwrap()
}

async fn storm(places: &mut [Place; 2], seed: u64) -> [Arc<crate::scene::Scene>; 2] {
    let mut ends = Vec::new();
    let scenes = [0_usize, 1].map(|at| {
        let (scene, end) = places[at].start(seed + at as u64);
        ends.push(end);
        Arc::new(scene)
    });
    let mut dice = fastrand::Rng::with_seed(seed);
    for _ in 0..DEATHS {
        let scene = &scenes[dice.usize(..2)];
        if scene.ctx.state().session.as_ref().is_some_and(|session| session.ended()) {
            continue;
        }
        a_moment(scene, &mut dice, 6_000).await;
        // Those that have to do with money die most.
        let who = if dice.bool() { "accounts" } else { ACTORS[dice.usize(..ACTORS.len())] };
        // A project that is about to end has no time for what dies now.
        if scene.ctx.state().session.as_ref().is_some_and(|session| !session.ended()) {
            dies(scene, who, dice.bool());
        }
    }
    for end in ends {
        let ended = timeout(Duration::from_secs(1_000_000), end).await;
        assert_eq!(ended.unwrap(), Ok(Ended::Code(0)));
    }
    scenes
}
