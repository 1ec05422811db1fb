//! Where upkeep looks for leases that expire, while many dead ones are in its way.
//!
//! The leases are in an index by expiry. While an old snapshot stays open, those that ended stay there, too, and a
//! search from the beginning walks over all of them. So after one that walked over many, the next searches begin
//! right before the first lease that the last one found, or shortly before the present, and end soon after the
//! present. Leases that are granted later expire later, unless clocks differ by a lease and [`SLACK`]. A search from
//! the beginning, which is made at least every [`LOOKS`] searches, finds those.

use std::time::Duration;

use parking_lot::Mutex;

use crate::time::Timestamp;

/// A search that walks over more entries than this is not repeated for a while.
const MANY: i64 = 50_000;

/// How far before the present a search begins at least. A cancel may set an expiry to the present, and commit later.
const SLACK: Duration = Duration::from_secs(5);

/// How far beyond the present a search looks.
const AHEAD: Duration = Duration::from_secs(1);

/// How many searches follow one from the beginning.
const LOOKS: u32 = 60;

/// What a search found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    /// The earliest expiry, with the latest beats. `None` if no lease was found.
    pub(super) expires: Option<Timestamp>,
    /// The earliest stored expiry. [`hold_expired`](crate::store::contract::TaskTx::hold_expired) replaces it by that
    /// of the latest beat.
    pub(super) stored: Option<Timestamp>,
    /// How many entries of the index it walked over, dead ones included.
    pub(super) walked: i64,
}

#[derive(Debug, Default)]
pub(super) struct Looks(Mutex<Option<Window>>);

#[derive(Debug, Clone, Copy)]
struct Window {
    /// No lease expires at this instant or earlier.
    after: Timestamp,
    looks_left: u32,
}

impl Looks {
    /// Returns the instants after which and until which a search at `now` looks. `None` for all of time.
    pub(super) fn range(&self, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let mut window = self.0.lock();
        match &mut *window {
            Some(Window { after, looks_left }) if *looks_left > 0 && *after <= now => {
                *looks_left -= 1;
                Some((*after, now + AHEAD))
            }
            _ => {
                *window = None;
                None
            }
        }
    }

    /// Notes what a search at `now` found until this instant, or in all of time. Returns the instant before which no
    /// lease expires, and at which to look again.
    pub(super) fn found(&self, now: Timestamp, until: Option<Timestamp>, look: Look) -> Option<Timestamp> {
        let mut window = self.0.lock();
        if until.is_none() && look.walked <= MANY {
            *window = None;
            return look.expires;
        }
        // What is renewed may expire later. Upkeep then stores that, so that later searches find it there.
        let first = look.stored.into_iter().chain(until).min();
        // Nothing expires before the first, which may have expired already and be within upkeep's grace.
        let after = first.map_or(now, |first| first - Duration::from_micros(1)).min(now - SLACK);
        match &mut *window {
            Some(window) => window.after = window.after.max(after),
            none => *none = Some(Window { after, looks_left: LOOKS }),
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    fn before(seconds: i64) -> Timestamp {
        at(seconds) - Duration::from_micros(1)
    }

    fn look(expires: Option<i64>, stored: Option<i64>, walked: i64) -> Look {
        Look { expires: expires.map(at), stored: stored.map(at), walked }
    }

    #[test]
    fn a_search_that_walks_over_few_is_repeated_as_it_was() {
        let looks = Looks::default();
        for now in 0..100 {
            assert_eq!(looks.range(at(now)), None);
            assert_eq!(looks.found(at(now), None, look(Some(120), Some(110), MANY)), Some(at(120)));
        }
        assert_eq!(looks.found(at(1), None, look(None, None, 0)), None);
    }

    #[test]
    fn after_one_that_walks_over_many_the_next_begin_where_nothing_expires() {
        let looks = Looks::default();
        assert_eq!(looks.range(at(100)), None);
        assert_eq!(looks.found(at(100), None, look(Some(150), Some(130), MANY + 1)), Some(at(130)));
        for now in 101..130 {
            assert_eq!(looks.range(at(now)), Some((at(now - 6), at(now + 1))));
            assert_eq!(looks.found(at(now), Some(at(now + 1)), look(None, None, 9)), Some(at(now + 1)));
        }
        // Its stored expiry is reached. It is not left behind before it was held.
        for (now, after) in [(130, at(124)), (150, at(125)), (151, before(130))] {
            assert_eq!(looks.range(at(now)), Some((after, at(now + 1))));
            assert_eq!(looks.found(at(now), Some(at(now + 1)), look(Some(160), Some(130), 9)), Some(at(130)));
        }
        assert_eq!(looks.range(at(151)), Some((before(130), at(152))));
        assert_eq!(looks.found(at(151), Some(at(152)), look(None, None, 9)), Some(at(152)));
        assert_eq!(looks.range(at(152)), Some((at(146), at(153))));
    }

    #[test]
    fn every_search_in_many_and_one_with_a_clock_that_was_set_back_is_from_the_beginning() {
        let looks = Looks::default();
        let full = |now| {
            assert_eq!(looks.range(at(now)), None);
            looks.found(at(now), None, look(None, None, MANY + 1));
        };
        full(100);
        for now in 0..LOOKS {
            assert_ne!(looks.range(at(100 + i64::from(now))), None);
        }
        full(200);
        assert_ne!(looks.range(at(200)), None);
        full(100);
    }

    /// Otherwise upkeep would walk over all dead ones again and again, for as long as its grace.
    #[test]
    fn searches_begin_right_before_an_expired_lease_that_is_left() {
        let looks = Looks::default();
        assert_eq!(looks.range(at(100)), None);
        assert_eq!(looks.found(at(100), None, look(Some(90), Some(80), MANY + 1)), Some(at(80)));
        for now in [101, 102] {
            assert_eq!(looks.range(at(now)), Some((before(80), at(now + 1))));
            assert_eq!(looks.found(at(now), Some(at(now + 1)), look(Some(90), Some(80), 9)), Some(at(80)));
        }
    }
}
