//! Outages: what happens to sensors whose target cannot be checked.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::lifecycle::{EndReason, Ending, PokeOutcome, Terms};
use crate::fingerprint::Fingerprint;
use crate::time::Timestamp;

/// A period in which a target cannot be checked. Its effects depend only on its beginning, so a worker that
/// takes over the target continues where the previous one stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outage {
    /// When a poke first could not check the target.
    pub(crate) since: Timestamp,
}

/// An outage as stored. Two targets whose fingerprints are equal share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OutageRow {
    /// The hash of the target.
    pub fingerprint: Fingerprint,
    /// When a poke first could not check the target.
    pub since: Timestamp,
    /// When a poke could check the target again, or when the last sensor stopped waiting for it. `None` while
    /// the outage lasts.
    pub until: Option<Timestamp>,
}

impl OutageRow {
    /// Creates the row of an outage. It has ended if `until` is set.
    pub fn new(fingerprint: Fingerprint, since: Timestamp, until: Option<Timestamp>) -> Self {
        Self { fingerprint, since, until }
    }
}

impl Outage {
    /// Returns the outage after a result at `now`, or `None` if the target is reachable.
    pub(crate) fn after(before: Option<Self>, poked: &PokeOutcome, now: Timestamp) -> Option<Self> {
        match (poked, before) {
            (PokeOutcome::Unreachable(_), None) => Some(Self { since: now }),
            (PokeOutcome::Unreachable(_), before) => before,
            _ => None,
        }
    }

    /// Returns how long the outage has lasted.
    pub(crate) fn age(&self, now: Timestamp) -> Duration {
        now.saturating_duration_since(self.since)
    }

    /// Returns when a sensor that registered at this instant will have tolerated the outage for `window`.
    pub(crate) fn borne_until(&self, registered_at: Timestamp, window: Duration) -> Timestamp {
        self.since.max(registered_at) + window
    }
}

/// Returns the poke interval of a target that could not be checked for `age`.
///
/// The interval doubles as the outage ages, up to `longest`, but is never less than `interval`. A target with
/// interval `i` is poked about `i`, `3i`, `7i`, `15i` … after the outage began. No failures are counted.
///
/// If `longest` is the interval times a power of two, the due times of the longer interval are also due times
/// of the shorter one.
pub(crate) fn backed_off(interval: Duration, age: Duration, longest: Duration) -> Duration {
    let length = interval.as_micros().max(1);
    // Rounded to the nearest: a poke may come a little early because the one before came late, and still
    // counts.
    let doublings = ((2 * age.as_micros() + 3 * length) / (2 * length)).ilog2();
    let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
    interval.saturating_mul(factor).min(longest).max(interval)
}

/// Returns the end of a sensor whose target could not be checked for as long as `window`, or `None` if the
/// sensor continues to wait.
///
/// The time runs from the first such result, or from the registration if that came later. The sensor's
/// settings decide whether the task is skipped or the attempt fails. If it fails, the task's retry policy
/// applies.
pub(crate) fn give_up(
    terms: &Terms,
    outage: &Outage,
    message: &str,
    window: Duration,
    now: Timestamp,
) -> Option<Ending> {
    if now < outage.borne_until(terms.registered_at, window) {
        return None;
    }
    let length = now.saturating_duration_since(outage.since.max(terms.registered_at)).as_secs_f64();
    let text = format!("could not be looked at for {length:.3} s; the last poke: {message}");
    Some(Ending::new(EndReason::Unreachable, terms.missed()).message(Some(text)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sensor::{OnMissed, Settings};
    use crate::task::TaskState;

    #[test]
    fn a_sensor_that_registers_during_an_outage_bears_it_as_long_as_the_others() {
        let second = Duration::from_secs(1);
        let at = |seconds| Timestamp::UNIX_EPOCH + second * seconds;
        let settings = Settings::new(second, second * 100_000).unwrap().on_missed(OnMissed::Skip);
        let outage = Outage { since: at(10) };
        let young = Terms::new(settings, at(50));
        assert_eq!(give_up(&young, &outage, "x", second * 100, at(149)), None);
        let end = give_up(&young, &outage, "x", second * 100, at(150)).unwrap();
        assert_eq!((end.reason, end.to), (EndReason::Unreachable, TaskState::Skipped));
        assert_eq!(end.message.unwrap(), "could not be looked at for 100.000 s; the last poke: x");
    }

    #[test]
    fn an_outage_lasts_until_a_poke_can_look() {
        let refused = PokeOutcome::Unreachable("connection refused".into());
        let at = Timestamp::from_micros;
        let first = Outage::after(None, &refused, at(10));
        let second = Outage::after(first, &refused, at(20)).unwrap();
        assert_eq!(second, Outage { since: at(10) });
        assert_eq!(Outage::after(Some(second), &PokeOutcome::NotYet, at(30)), None, "it is over");
    }

    #[test]
    fn a_sensor_is_given_up_when_it_has_borne_an_outage_for_the_window() {
        let (start, minute) = (Timestamp::UNIX_EPOCH, Duration::from_secs(60));
        let terms = Terms::new(Settings::new(minute, minute * 1000).unwrap(), start);
        let outage = Outage::after(None, &PokeOutcome::Unreachable("no route".into()), start).unwrap();
        let end = |minutes| give_up(&terms, &outage, "no route", minute * 130, start + minute * minutes);
        assert_eq!(end(129), None);
        assert_eq!(end(130).unwrap().reason, EndReason::Unreachable);
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let s = Duration::from_secs;
        let ages = [0, 29, 30, 60, 149, 150, 180, 420, 900, 99_999];
        let pauses = ages.map(|age| backed_off(s(60), s(age), s(600)).as_secs());
        assert_eq!(pauses, [60, 60, 120, 120, 120, 240, 240, 480, 600, 600]);
        assert_eq!(backed_off(s(3600), s(99_999), s(600)), s(3600));
    }

    #[test]
    fn a_target_is_poked_again_after_pauses_that_double() {
        let s = Duration::from_secs;
        let (mut age, mut pokes) = (0, vec![0]);
        while pokes.len() < 6 {
            age += backed_off(s(10), s(age), s(3600)).as_secs();
            pokes.push(age);
        }
        assert_eq!(pokes, [0, 10, 30, 70, 150, 310]);
    }

    #[test]
    fn pauses_saturate() {
        assert_eq!(backed_off(Duration::MAX, Duration::MAX, Duration::MAX), Duration::MAX);
        let ms = Duration::from_millis(1);
        assert_eq!(backed_off(ms, Duration::MAX, Duration::from_secs(1)), Duration::from_secs(1));
        assert_eq!(backed_off(ms, ms * 20, Duration::ZERO), ms);
    }
}
