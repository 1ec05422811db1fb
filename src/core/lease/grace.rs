//! When delayed upkeep may end leases again.
//!
//! Whatever delays upkeep may also delay the holders whose leases it would end: a suspended machine, a clock
//! set forward, an unreachable database, a writer that kept the lock. So upkeep that has just started, or
//! that detects a delay, first gives the holders one *grace* in which to renew.
//!
//! Upkeep knows only when it was called and when the store admitted it. In between it may have slept because
//! nothing was due. So it asks to be called once per grace, and treats a longer silence as a delay.
//!
//! A lease that had expired when a wait began is ended at the first tick after that wait, however late that
//! tick is. Otherwise a loop that ticks less often than once per grace would never end a lease.

use std::time::Duration;

use crate::time::Timestamp;

/// A delay shorter than the grace divided by this is not noticed: 1 s with the default grace.
const TOLERANCE: u32 = 20;

/// What upkeep remembers about its own ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grace {
    length: Duration,
    /// `None` until the store has admitted a tick.
    watch: Option<Watch>,
    /// When the first of the latest consecutive failed ticks was called.
    failing_since: Option<Timestamp>,
}

/// A period in which upkeep was not delayed, as far as it knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Watch {
    since: Timestamp,
    /// When the store admitted the latest tick.
    last: Timestamp,
    /// Leases that expired at or before this instant were allowed to be ended. Leases left over because a
    /// tick reached its limit had their chance to be renewed, so ending them needs no further wait.
    allowed: Option<Timestamp>,
}

impl Grace {
    /// Creates the state of upkeep that has never ticked. A length of zero disables the grace.
    pub(crate) fn new(length: Duration) -> Self {
        Self { length, watch: None, failing_since: None }
    }

    /// Records that a tick called at `now` failed. Renewals are then assumed to fail too.
    pub(crate) fn failed(&mut self, now: Timestamp) {
        self.failing_since.get_or_insert(now);
    }

    /// Records that the store admitted a tick called at `now`, after a wait of `waited`. Leases that expired
    /// at or before the returned instant may be ended; `None` means that no lease may be.
    pub(crate) fn enter(
        &mut self,
        now: Timestamp,
        waited: Duration,
        first_expiry: Option<Timestamp>,
    ) -> Option<Timestamp> {
        if self.length.is_zero() {
            return Some(now);
        }
        let tolerance = self.length / TOLERANCE;
        let asked = self.failing_since.take().map_or(now, |since| since.min(now));
        // A short wait is ignored, so that instants stay those of the caller's clock, which may be virtual.
        let entered = if waited > tolerance { now + waited } else { now };
        let Some(watch) = self.watch else {
            self.watch = Some(Watch { since: entered, last: entered, allowed: None });
            return None;
        };
        // A clock that was set back must not prolong a wait.
        let (since, last) = (watch.since.min(asked), watch.last.min(asked));
        let allowed = watch.allowed.map(|allowed| allowed.min(asked));
        let left = allowed.filter(|allowed| first_expiry.is_some_and(|expiry| expiry <= *allowed));
        let ends = since + self.length;
        if asked < ends {
            // While the store admitted no caller, holders had no time to renew.
            let since = since + entered.saturating_duration_since(asked);
            self.watch = Some(Watch { since, last: entered, allowed });
            return left;
        }
        let expired = first_expiry.filter(|expiry| *expiry <= now);
        let missed =
            |expiry: Timestamp| entered.saturating_duration_since(expiry.max(last).max(ends)) > tolerance;
        let held_up = entered.saturating_duration_since(asked) > tolerance
            || asked.saturating_duration_since(last) > self.length.saturating_add(tolerance)
            || expired.is_some_and(missed);
        let expired_by = if held_up { left.map_or(since, |left| left.max(since)) } else { now };
        let since = if held_up { entered } else { since };
        self.watch = Some(Watch {
            since,
            last: entered,
            allowed: Some(expired_by.max(allowed.unwrap_or(expired_by))),
        });
        Some(expired_by)
    }

    /// Returns until when no lease is ended, if the latest tick waited or started a wait.
    pub(crate) fn waits_until(&self) -> Option<Timestamp> {
        let watch = self.watch?;
        Some(watch.since + self.length).filter(|ends| watch.last < *ends)
    }

    /// Returns when the next tick is due, given the earliest expiry of the remaining leases. It is within one
    /// grace even without leases, because one may be granted and expire before a longer sleep ends.
    pub(crate) fn next_due(&self, first_expiry: Option<Timestamp>) -> Option<Timestamp> {
        let Some(watch) = self.watch else { return first_expiry };
        let within = watch.last + self.length;
        Some(first_expiry.map_or(within, |first| first.max(watch.since + self.length).min(within)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    /// Ticks without waiting for the store. The first lease expires at second `first`.
    fn tick(grace: &mut Grace, now: i64, first: i64) -> Option<Timestamp> {
        grace.enter(at(now), Duration::ZERO, Some(at(first)))
    }

    /// Returns upkeep with a grace of 20 s that was called at 0 and 20.
    fn awake() -> Grace {
        let mut grace = Grace::new(Duration::from_secs(20));
        assert_eq!(tick(&mut grace, 0, 99), None);
        assert_eq!(tick(&mut grace, 20, 99), Some(at(20)));
        grace
    }

    #[test]
    fn the_first_tick_after_a_start_waits_for_one_grace() {
        let mut grace = Grace::new(Duration::from_secs(20));
        assert_eq!(tick(&mut grace, 100, 10), None);
        assert_eq!((grace.waits_until(), grace.next_due(Some(at(10)))), (Some(at(120)), Some(at(120))));
        assert_eq!(tick(&mut grace, 119, 10), None);
        assert_eq!(tick(&mut grace, 120, 10), Some(at(120)));
        assert_eq!(grace.waits_until(), None);
    }

    #[test]
    fn a_lease_that_expires_after_the_wait_is_ended_when_it_expires() {
        let mut grace = awake();
        assert_eq!(grace.next_due(Some(at(33))), Some(at(33)));
        assert_eq!(tick(&mut grace, 33, 33), Some(at(33)));
        assert_eq!(grace.next_due(Some(at(93))), Some(at(53)), "called once a grace while there are leases");
        assert_eq!(grace.next_due(None), Some(at(53)), "one may be granted meanwhile");
    }

    #[test]
    fn a_late_tick_waits_again() {
        let mut grace = awake();
        assert_eq!(tick(&mut grace, 34, 33), Some(at(34)), "a second is tolerated");
        assert_eq!(tick(&mut grace, 42, 40), Some(at(0)), "only what had expired when it started");
        assert_eq!(grace.waits_until(), Some(at(62)));
        assert_eq!(tick(&mut grace, 61, 40), None);
        assert_eq!(tick(&mut grace, 62, 40), Some(at(62)));
    }

    #[test]
    fn a_suspended_machine_is_noticed_before_anything_expires() {
        let mut grace = awake();
        // Woken by another thread at 79, one second before the lease of a holder that also slept expires.
        assert_eq!(tick(&mut grace, 79, 80), Some(at(0)));
        assert_eq!((grace.waits_until(), tick(&mut grace, 80, 80)), (Some(at(99)), None));
        assert_eq!(tick(&mut grace, 99, 80), Some(at(99)));
    }

    #[test]
    fn a_clock_that_is_set_forward_ends_nothing_at_once() {
        let mut grace = awake();
        assert_eq!(tick(&mut grace, 3_621, 50), Some(at(0)));
        assert_eq!(grace.waits_until(), Some(at(3_641)));
    }

    #[test]
    fn a_clock_that_is_set_back_prolongs_no_wait() {
        let mut grace = Grace::new(Duration::from_secs(20));
        assert_eq!(tick(&mut grace, 3_600, 10), None);
        assert_eq!(tick(&mut grace, 5, 10), None);
        assert_eq!(grace.waits_until(), Some(at(25)));
        assert_eq!(tick(&mut grace, 25, 10), Some(at(25)));
    }

    #[test]
    fn ticks_that_failed_are_a_hold_up() {
        let mut grace = awake();
        for now in [25, 26, 27] {
            grace.failed(at(now));
        }
        assert_eq!(tick(&mut grace, 28, 28), Some(at(0)));
        // During a wait, time in which the store admits no caller does not count.
        grace.failed(at(40));
        assert_eq!((tick(&mut grace, 45, 28), grace.waits_until()), (None, Some(at(53))));
        // One failure after the wait is over does not delay leases that had their time.
        grace.failed(at(53));
        assert_eq!(tick(&mut grace, 55, 28), Some(at(33)));
    }

    #[test]
    fn a_tick_that_waited_for_other_writers_is_a_hold_up() {
        let mut grace = awake();
        let waited = Duration::from_secs(9);
        assert_eq!(grace.enter(at(30), waited, Some(at(30))), Some(at(0)));
        assert_eq!(grace.waits_until(), Some(at(59)), "counted from when it was let in");
    }

    #[test]
    fn a_loop_that_ticks_less_often_than_once_a_grace_ends_leases_at_its_second_tick() {
        let mut grace = awake();
        assert_eq!(tick(&mut grace, 80, 60), Some(at(0)));
        assert_eq!(tick(&mut grace, 140, 60), Some(at(80)));
        assert_eq!(tick(&mut grace, 200, 150), Some(at(140)));
    }

    #[test]
    fn a_store_that_makes_every_tick_wait_stops_no_upkeep() {
        let mut grace = awake();
        let waited = Duration::from_secs(2);
        assert_eq!(grace.enter(at(30), waited, Some(at(30))), Some(at(0)));
        assert_eq!(grace.enter(at(52), waited, Some(at(30))), Some(at(32)));
    }

    #[test]
    fn a_grace_of_zero_switches_the_rule_off() {
        let mut grace = Grace::new(Duration::ZERO);
        assert_eq!(tick(&mut grace, 100, 10), Some(at(100)));
        assert_eq!((grace.waits_until(), grace.next_due(Some(at(900)))), (None, Some(at(900))));
    }

    #[test]
    fn what_a_limit_left_over_is_no_hold_up() {
        let mut grace = awake();
        assert_eq!(tick(&mut grace, 33, 33), Some(at(33)));
        // More leases had expired at 33 than one tick may end, and the host took 3 s over those.
        assert_eq!(
            tick(&mut grace, 36, 33),
            Some(at(33)),
            "what expired since then may not have been able to renew"
        );
        assert_eq!(tick(&mut grace, 39, 33), Some(at(33)), "the rest of it waits for nothing");
        assert_eq!((tick(&mut grace, 42, 35), grace.waits_until()), (None, Some(at(56))));
        assert_eq!(tick(&mut grace, 56, 35), Some(at(56)));
    }

    #[test]
    fn extremes_overflow_nothing() {
        let mut grace = Grace::new(Duration::MAX);
        for now in [i64::MAX, i64::MAX, i64::MIN, 0] {
            grace.failed(Timestamp::from_micros(now));
            let expired_by = grace.enter(
                Timestamp::from_micros(now),
                Duration::MAX,
                Some(Timestamp::from_micros(i64::MIN)),
            );
            assert!(expired_by.is_none_or(|by| by <= Timestamp::from_micros(now)));
            grace.next_due(Some(Timestamp::from_micros(now)));
        }
    }
}
