//! Identities that sort as the messages arrived, so that a successor finds the order again.

use ulid::Ulid;

/// A message that is to get an identity.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    /// It has one already.
    pub(super) id: Option<Ulid>,
    /// When it came, milliseconds since the epoch.
    pub(super) at: u64,
}

/// One identity each, ascending where those given beforehand do. In each stands the time of arrival, as far as that
/// can be: not later than now, and not later than the next one's.
pub(super) fn identities(arrivals: &[Arrival], mint: &mut dyn FnMut() -> Ulid) -> Vec<Ulid> {
    let mut next = u64::MAX;
    let mut latest: Vec<u64> = arrivals
        .iter()
        .rev()
        .map(|arrival| {
            let before = next;
            next = arrival.id.map_or(next, |id| next.min(id.timestamp_ms().saturating_sub(1)));
            before
        })
        .collect();
    latest.reverse();
    let mut last = Ulid::nil();
    arrivals
        .iter()
        .zip(latest)
        .map(|(arrival, latest)| {
            last = arrival.id.unwrap_or_else(|| {
                let fresh = mint();
                let at = arrival.at.min(fresh.timestamp_ms()).min(latest).max(last.timestamp_ms());
                let id = Ulid::from_parts(at, fresh.random());
                if id > last { id } else { last.increment().unwrap_or(id) }
            });
            last
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::IdSource;
    use jiff::Timestamp;
    use proptest::prelude::*;

    const NOW: i64 = 1_000_000;

    fn identify(arrivals: &[Arrival]) -> Vec<Ulid> {
        let mut ids = IdSource::new(Some(1));
        identities(arrivals, &mut || ids.next(Timestamp::from_millisecond(NOW).unwrap()))
    }

    #[test]
    fn the_time_of_arrival_stands_in_them() {
        let ids = identify(&[Arrival { id: None, at: 500 }, Arrival { id: None, at: 900_000_000 }]);
        assert_eq!(ids.iter().map(Ulid::timestamp_ms).collect::<Vec<_>>(), [500, NOW.cast_unsigned()]);
    }

    proptest! {
        #[test]
        fn ascending(arrivals in proptest::collection::vec((any::<bool>(), 1u64..2_000_000), 0..20)) {
            let mut said: Vec<u64> = arrivals.iter().filter(|a| a.0).map(|a| a.1).collect();
            said.sort_unstable();
            said.dedup();
            let mut said = said.into_iter();
            let arrivals: Vec<Arrival> = arrivals
                .iter()
                .map(|(own, at)| {
                    let id = if *own { said.next() } else { None };
                    Arrival { id: id.map(|ms| Ulid::from_parts(ms, 7)), at: *at }
                })
                .collect();
            let ids = identify(&arrivals);
            prop_assert!(ids.is_sorted_by(|a, b| a < b), "{:?}", ids);
            prop_assert!(arrivals.iter().zip(&ids).all(|(a, id)| a.id.is_none_or(|own| own == *id)));
        }
    }
}
