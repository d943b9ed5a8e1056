use proptest::prelude::*;

use super::*;

fn usd(dollars: f64) -> MicroUsd {
    MicroUsd::from_usd(dollars).unwrap()
}

fn granted(budget: &mut Budget) -> Reservation {
    match budget.reserve() {
        Admission::Granted(reservation) => reservation,
        Admission::Exceeded { by, .. } => panic!("exceeded by {by}"),
    }
}

/// One call from admission to the end.
fn call(budget: &mut Budget, cost: Option<f64>) -> Settled {
    let reservation = granted(budget);
    budget.settle(reservation.id, cost).unwrap()
}

#[test]
fn bd_004_a_call_that_would_pass_the_limit_does_not_start() {
    let mut b = Budget::new(None, None);
    for _ in 0..9 {
        call(&mut b, Some(1.11));
    }
    b.set_limits(Some(usd(10.0)), None);
    assert_eq!(b.figures().spent, usd(9.99));
    assert_eq!(b.reserve(), Admission::Exceeded { forecast: usd(1.11), by: usd(1.10) });
    assert_eq!(b.open(), [], "nothing stays reserved");
    b.set_limits(Some(usd(12.0)), None);
    granted(&mut b);
}

#[test]
fn bd_004_lanes_share_the_rest_and_the_overshoot_is_told() {
    let mut b = Budget::new(Some(usd(10.0)), Some(usd(4.0)));
    let (one, two) = (granted(&mut b), granted(&mut b));
    assert_eq!(b.reserve(), Admission::Exceeded { forecast: usd(4.0), by: usd(2.0) });
    let first = b.settle(one.id, Some(5.0)).unwrap();
    assert_eq!((first.beyond_reservation, first.over_limit), (usd(1.0), MicroUsd::ZERO));
    let second = b.settle(two.id, Some(5.5)).unwrap();
    assert_eq!((second.beyond_reservation, second.over_limit), (usd(1.5), usd(0.5)));
    assert_eq!(b.settle(two.id, Some(5.5)), None, "settled once");
}

#[test]
fn unknown_cost_is_never_nothing() {
    let mut b = Budget::new(Some(usd(10.0)), Some(usd(0.25)));
    for cost in [None, Some(f64::NAN), Some(-1.0), Some(f64::INFINITY)] {
        let settled = call(&mut b, cost);
        assert_eq!((settled.booked, settled.estimated), (usd(0.25), true), "{cost:?}");
    }
    assert_eq!((b.figures().spent, b.figures().estimated), (usd(1.0), usd(1.0)));
    assert_eq!(b.forecast(), usd(0.25), "an estimate does not feed the forecast");
}

#[test]
fn a_free_model_still_stops_at_the_limit() {
    let mut b = Budget::new(Some(MicroUsd(3)), None);
    for _ in 0..3 {
        call(&mut b, Some(0.0));
    }
    b.set_limits(Some(MicroUsd::ZERO), None);
    assert!(matches!(b.reserve(), Admission::Exceeded { .. }));
}

#[test]
fn forecast_follows_recent_calls() {
    let mut b = Budget::new(Some(usd(100.0)), None);
    assert_eq!(b.forecast(), FIRST_CALL);
    assert_eq!(Budget::new(Some(usd(0.2)), None).forecast(), usd(0.02), "a small budget can start");
    call(&mut b, Some(0.1));
    call(&mut b, Some(0.3));
    assert_eq!(b.forecast(), usd(0.3), "few calls: the largest");
    for cents in 1..=20 {
        call(&mut b, Some(f64::from(cents) / 100.0));
    }
    assert_eq!(b.forecast(), usd(0.18), "nine of ten calls of the last twenty");
    call(&mut b, Some(50.0));
    assert_eq!(b.forecast(), usd(0.19), "one odd call does not stop the session");
}

#[test]
fn calls_cut_by_a_crash_are_booked_at_their_reservation() {
    let mut b = Budget::new(Some(usd(10.0)), Some(usd(2.0)));
    granted(&mut b);
    granted(&mut b);
    let stored = serde_json::to_string(&b).unwrap();
    let mut b: Budget = serde_json::from_str(&stored).unwrap();
    assert_eq!(
        b.settle_cut().iter().map(|(r, s)| (r.id, s.booked)).collect::<Vec<_>>(),
        [(0, usd(2.0)), (1, usd(2.0))]
    );
    assert_eq!((b.figures().spent, b.figures().reserved), (usd(4.0), MicroUsd::ZERO));
}

#[test]
fn a_call_that_never_started_costs_nothing() {
    let mut b = Budget::new(Some(usd(10.0)), Some(usd(2.0)));
    let reservation = granted(&mut b);
    assert!(b.release(reservation.id) && !b.release(reservation.id));
    assert_eq!(b.figures().reserved, MicroUsd::ZERO);
}

#[derive(Debug, Clone)]
enum Step {
    Reserve,
    Settle { which: usize, cost: Option<u32> },
    Release { which: usize },
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Reserve),
        4 => (0_usize..8, prop::option::of(0_u32..900_000))
            .prop_map(|(which, cost)| Step::Settle { which, cost }),
        1 => (0_usize..8).prop_map(|which| Step::Release { which }),
        1 => Just(Step::Crash),
    ]
}

proptest! {
    #[test]
    fn never_above_the_limit_except_by_the_told_overshoot(
        limit in 0_u64..6_000_000, assume in prop::option::of(1_u64..500_000),
        steps in prop::collection::vec(step(), 0..120),
    ) {
        let mut b = Budget::new(Some(MicroUsd(limit)), assume.map(MicroUsd));
        let mut overshoot = 0;
        let mut sum = 0;
        for step in steps {
            let pick = |which: usize| b.open().get(which % b.open().len().max(1)).map(|r| r.id);
            match step {
                Step::Reserve => {
                    if let Admission::Granted(r) = b.reserve() {
                        prop_assert!(r.amount > MicroUsd::ZERO);
                    }
                }
                Step::Settle { which, cost } => {
                    if let Some(id) = pick(which) {
                        let settled = b.settle(id, cost.map(|c| f64::from(c) / 1e6)).unwrap();
                        overshoot += settled.beyond_reservation.0;
                        sum += settled.booked.0;
                        prop_assert_eq!(cost.is_none_or(|c| u64::from(c) == settled.booked.0), true);
                        prop_assert_eq!(settled.over_limit.0, b.figures().spent.0.saturating_sub(limit));
                    }
                }
                Step::Release { which } => {
                    if let Some(id) = pick(which) {
                        prop_assert!(b.release(id));
                    }
                }
                Step::Crash => {
                    sum += b.settle_cut().iter().map(|(_, s)| s.booked.0).sum::<u64>();
                    prop_assert!(b.open().is_empty());
                }
            }
            let f = b.figures();
            prop_assert!(f.spent.0 + f.reserved.0 <= limit + overshoot);
            prop_assert_eq!(f.spent.0, sum);
        }
    }
}
