use jiff::SignedDuration;
use proptest::prelude::*;

use super::*;

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn zone(name: &str) -> TimeZone {
    jiff::tz::TimeZoneDatabase::bundled().get(name).unwrap()
}

fn usd(dollars: f64) -> MicroUsd {
    MicroUsd::from_usd(dollars).unwrap()
}

fn of(window: Window, spent: f64, reserved: f64, resets_at: Option<&str>) -> Use {
    let resets_at = resets_at.map(time);
    Use { window, limit: usd(10.0), spent: usd(spent), reserved: usd(reserved), resets_at }
}

#[test]
fn days_and_months_are_those_of_the_zone() {
    let table = [
        (Window::Day, "UTC", "2026-12-01T00:00:00Z", "2026-12-01T00:00:00Z", "2026-12-02T00:00:00Z"),
        (Window::Day, "UTC", "2026-11-30T23:59:59.999Z", "2026-11-30T00:00:00Z", "2026-12-01T00:00:00Z"),
        (Window::Day, "Asia/Tokyo", "2026-11-30T20:00:00Z", "2026-11-30T15:00:00Z", "2026-12-01T15:00:00Z"),
        // 23 and 25 hours.
        (
            Window::Day,
            "Europe/Berlin",
            "2026-03-29T12:00:00Z",
            "2026-03-28T23:00:00Z",
            "2026-03-29T22:00:00Z",
        ),
        (
            Window::Day,
            "Europe/Berlin",
            "2026-10-25T12:00:00Z",
            "2026-10-24T22:00:00Z",
            "2026-10-25T23:00:00Z",
        ),
        // A day whose midnight does not exist begins at one.
        (
            Window::Day,
            "America/Sao_Paulo",
            "2018-11-04T12:00:00Z",
            "2018-11-04T03:00:00Z",
            "2018-11-05T02:00:00Z",
        ),
        (Window::Month, "UTC", "2026-12-31T23:00:00Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        (
            Window::Month,
            "America/New_York",
            "2026-03-01T04:00:00Z",
            "2026-02-01T05:00:00Z",
            "2026-03-01T05:00:00Z",
        ),
    ];
    for (window, name, now, from, to) in table {
        let bounds = window.bounds(time(now), &zone(name));
        assert_eq!(bounds, Some((time(from), time(to))), "{window:?} {name} {now}");
    }
    assert_eq!(Window::Project.bounds(time("2026-12-01T00:00:00Z"), &TimeZone::UTC), None);
}

#[test]
fn the_window_that_lasts_longest_is_told() {
    let (tonight, month_end) = ("2026-12-02T00:00:00Z", "2027-01-01T00:00:00Z");
    let day = of(Window::Day, 9.5, 0.0, Some(tonight));
    let month = of(Window::Month, 9.5, 0.0, Some(month_end));
    let project = of(Window::Project, 9.5, 0.0, None);
    let which = |windows: &[Use]| judge(usd(1.0), windows).map(|exceeded| exceeded.of.window);
    assert_eq!(which(&[day]), Some(Window::Day));
    assert_eq!(which(&[day, month]), Some(Window::Month));
    assert_eq!(which(&[day, project, month]), Some(Window::Project));
    let in_flight = of(Window::Project, 5.0, 4.5, None);
    assert_eq!(which(&[in_flight, day]), Some(Window::Day), "the other may come free at any time");
    assert!(!judge(usd(1.0), &[in_flight]).unwrap().is_used_up());
    assert_eq!(judge(usd(0.5), &[day, month, project, in_flight]), None, "up to the limit itself");
}

#[test]
fn what_no_time_makes_room_for_needs_a_person() {
    let tonight = Some("2026-12-02T00:00:00Z");
    let table = [
        (of(Window::Day, 9.5, 0.0, tonight), 1.0, false),
        (of(Window::Day, 0.0, 9.5, tonight), 10.0, false),
        (of(Window::Day, 9.5, 0.0, tonight), 10.1, true),
        (of(Window::Project, 9.5, 0.0, None), 1.0, true),
        (of(Window::Project, 0.0, 9.5, None), 1.0, false),
        (of(Window::Project, 0.0, 9.5, None), 10.1, true),
    ];
    for (window, next, needs_person) in table {
        let exceeded = judge(usd(next), &[window]).unwrap();
        assert_eq!(exceeded.needs_person(), needs_person, "{exceeded:?}");
    }
    // A month that ends by itself says less than a day that is too small.
    let month = Use { limit: usd(20.0), ..of(Window::Month, 19.0, 0.0, Some("2027-01-01T00:00:00Z")) };
    let day = of(Window::Day, 0.0, 0.0, tonight);
    assert_eq!(judge(usd(11.0), &[day, month]).unwrap().of.window, Window::Day);
}

proptest! {
    /// Every instant is in exactly one window, and windows follow each other without a gap.
    #[test]
    fn windows_have_no_gaps(second in 0_i64..4_000_000_000, which in 0..6_usize) {
        let names = ["UTC", "Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia"];
        let (now, zone) = (Timestamp::from_second(second).unwrap(), zone(names[which]));
        for window in [Window::Day, Window::Month] {
            let (from, to) = window.bounds(now, &zone).unwrap();
            prop_assert!(from <= now && now < to);
            prop_assert_eq!(window.bounds(from, &zone), Some((from, to)));
            prop_assert_eq!(window.bounds(to, &zone).unwrap().0, to);
            let last = to - SignedDuration::from_nanos(1);
            prop_assert_eq!(window.bounds(last, &zone), Some((from, to)));
        }
    }

    /// Whoever asks, in whatever order calls end: what is booked and set aside never passes a limit, except by what
    /// calls cost beyond what was set aside for them.
    #[test]
    fn admitted_forecasts_keep_every_limit(
        steps in prop::collection::vec((0..4_usize, 1_u64..3_000_000, 0_u64..4_000_000), 1..80),
        limits in (1_000_000_u64..9_000_000, 1_000_000_u64..9_000_000),
    ) {
        let limits = [(Window::Day, MicroUsd(limits.0)), (Window::Month, MicroUsd(limits.1))];
        let mut flying: [Option<MicroUsd>; 4] = [None; 4];
        let (mut spent, mut beyond) = (MicroUsd::ZERO, MicroUsd::ZERO);
        for (who, forecast, cost) in steps {
            let reserved = flying.iter().flatten().fold(MicroUsd::ZERO, |sum, r| sum.plus(*r));
            if let Some(own) = flying[who].take() {
                spent = spent.plus(MicroUsd(cost));
                beyond = beyond.plus(MicroUsd(cost).minus(own));
                continue;
            }
            let windows = limits.map(|(window, limit)| Use { window, limit, spent, reserved, resets_at: None });
            if judge(MicroUsd(forecast), &windows).is_none() {
                flying[who] = Some(MicroUsd(forecast));
                for (_, limit) in limits {
                    prop_assert!(spent.plus(reserved).plus(MicroUsd(forecast)) <= limit);
                }
            }
            for (_, limit) in limits {
                prop_assert!(spent <= limit.plus(beyond));
            }
        }
    }
}
