//! Rates: how many starts a limit key allows per period.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use crate::bounds::MAX_SLOTS;
use crate::error::Invalid;
use crate::id::LimitKey;
use crate::time::{Timestamp, duration_micros};

/// The longest period of a rate, in microseconds: 366 days.
const MAX_PERIOD: i64 = 366 * 24 * 3_600 * 1_000_000;

/// The most that a key may owe, in units of one token divided by the period. It fits into 64 bits with room
/// to add.
const MOST_OWED: i128 = 1 << 61;

/// Limits how often tasks that carry a key start: `starts` per `period`, and up to `burst` at once.
///
/// Each grant takes one token from each rate of the task's keys. A retry is another grant, and no token is
/// given back. The burst is full at first. In each `period`, `starts` tokens come back, evenly spread.
///
/// **In any window of length t there are at most `burst + starts * t / period` grants.** For never more than
/// N in any minute, choose `burst = b` and `starts = N - b` per minute, for any b from 1 to N - 1. With
/// `b = 1` the starts are spread evenly. With a larger b, more of them may come at once.
///
/// Time is the latest instant that a tick of the store received. A clock that steps back therefore creates no
/// token, and one that steps forward creates at most one burst, once. A rate is exact across processes and
/// restarts.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use stationmaster::admission::limits::{LimitSpec, Rate};
///
/// // Never more than 100 calls in any minute: 20 at once, and 80 more.
/// let rate = Rate::new(80, Duration::from_secs(60))?.burst(20)?;
/// let api = LimitSpec::of("api".try_into()?).rate(rate);
/// assert_eq!(serde_json::to_string(&rate)?, r#"{"starts":80,"period_s":60,"burst":20}"#);
/// # drop(api);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Rate {
    starts: u32,
    #[serde(rename = "period_s", with = "crate::seconds")]
    period: Duration,
    burst: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RateForm {
    starts: u32,
    #[serde(rename = "period_s", with = "crate::seconds")]
    period: Duration,
    #[serde(default = "one")]
    burst: u32,
}

fn one() -> u32 {
    1
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let RateForm { starts, period, burst } = RateForm::deserialize(deserializer)?;
        Self::new(starts, period).and_then(|rate| rate.burst(burst)).map_err(serde::de::Error::custom)
    }
}

impl Rate {
    /// Creates a rate of `starts` starts per period, with a burst of one. The period is truncated to whole
    /// microseconds.
    ///
    /// # Errors
    ///
    /// Returns [`Invalid::Zero`] for no starts, [`Invalid::TooLarge`] above [`MAX_SLOTS`], and
    /// [`Invalid::Duration`] for a period that is not between a microsecond and 366 days.
    pub fn new(starts: u32, period: Duration) -> Result<Self, Invalid> {
        counted("the starts of a rate", starts)?;
        let micros = duration_micros(period);
        if !(1..=MAX_PERIOD).contains(&micros) {
            return Err(Invalid::Duration { what: "the period of a rate", expected: "1 us to 366 days" });
        }
        Ok(Self { starts, period: Duration::from_micros(micros.unsigned_abs()), burst: 1 })
    }

    /// Sets how many starts may happen at once.
    ///
    /// # Errors
    ///
    /// Returns [`Invalid::Zero`] for 0. Returns [`Invalid::TooLarge`] above [`MAX_SLOTS`], or if the burst
    /// takes longer than 73,000 years of periods.
    pub fn burst(mut self, burst: u32) -> Result<Self, Invalid> {
        counted("the burst of a rate", burst)?;
        if i128::from(burst) * i128::from(self.micros()) > MOST_OWED {
            return Err(Invalid::TooLarge {
                what: "the burst of a rate with this period",
                value: burst.into(),
            });
        }
        self.burst = burst;
        Ok(self)
    }

    /// Returns how many tokens come back per period.
    pub fn starts(&self) -> u32 {
        self.starts
    }

    /// Returns the period.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// Returns how many starts may happen at once: see [`Self::burst`].
    pub fn most_at_once(&self) -> u32 {
        self.burst
    }

    fn micros(&self) -> i64 {
        duration_micros(self.period)
    }
}

fn counted(what: &'static str, value: u32) -> Result<(), Invalid> {
    match value {
        0 => Err(Invalid::Zero { what }),
        1..=MAX_SLOTS => Ok(()),
        _ => Err(Invalid::TooLarge { what, value: value.into() }),
    }
}

/// What the starts of a key owe to its rate: the tokens missing from a full burst.
///
/// The unit is one token divided by the period in microseconds. A token is therefore as many units as the
/// period has microseconds, and each microsecond gives back as many units as the rate has starts. Nothing is
/// rounded, unless the rate was changed. Then the amount owed is rounded up.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RateUse {
    /// The key.
    pub key: LimitKey,
    /// The amount owed at `at`.
    pub owed: i64,
    /// When this amount was owed.
    pub at: Timestamp,
    /// The starts of the rate in effect when it was written.
    pub starts: u32,
    /// The period of that rate.
    pub period: Duration,
}

impl RateUse {
    /// Creates what a key owes, from a store's data.
    pub fn new(key: LimitKey, owed: i64, at: Timestamp, starts: u32, period: Duration) -> Self {
        Self { key, owed, at, starts, period }
    }

    /// Returns when nothing is owed any longer.
    pub fn full_at(&self) -> Timestamp {
        let micros = div_ceil(self.owed.max(0).into(), self.starts.max(1).into());
        instant(i128::from(self.at.as_micros()) + micros)
    }

    /// Returns what is owed at this instant to `rate`. Until the next start, it is repaid at the rate under
    /// which it was owed. The rest is converted to the same fraction of a token of `rate`.
    fn owed_at(&self, now: Timestamp, rate: Rate) -> i128 {
        let passed = i128::from(now.as_micros()) - i128::from(self.at.as_micros());
        let owed = (i128::from(self.owed) - i128::from(self.starts) * passed.max(0)).max(0);
        div_ceil(owed * i128::from(rate.micros()), self.token())
    }

    /// Returns the first instant at which `rate` has a token, if no other start takes it.
    pub(crate) fn next(&self, rate: Rate) -> Timestamp {
        let missing = i128::from(self.owed) - (i128::from(rate.burst) - 1) * self.token();
        instant(i128::from(self.at.as_micros()) + div_ceil(missing.max(0), self.starts.max(1).into()))
    }

    fn token(&self) -> i128 {
        duration_micros(self.period).max(1).into()
    }
}

/// The tokens of one key during a tick.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bucket {
    pub(super) rate: Rate,
    now: Timestamp,
    owed: i128,
    /// When the next token comes, if there is none now and the tick takes none.
    next: Timestamp,
}

impl Bucket {
    /// Computes the tokens available at this instant.
    pub(super) fn new(rate: Rate, used: Option<&RateUse>, now: Timestamp) -> Self {
        let owed = used.map_or(0, |used| used.owed_at(now, rate));
        Self { rate, now, owed, next: used.map_or(now, |used| used.next(rate)) }
    }

    fn token(&self) -> i128 {
        self.rate.micros().into()
    }

    /// Returns how many tokens are left after this many were taken. May be negative.
    pub(super) fn left(&self, taken: u64) -> i64 {
        let most = i128::from(self.rate.burst) * self.token();
        let left = (most - self.owed).div_euclid(self.token()) - i128::from(taken);
        i64::try_from(left).unwrap_or(if left < 0 { i64::MIN } else { i64::MAX })
    }

    /// Returns when the next token comes, after this many were taken and none is left.
    pub(super) fn next(&self, taken: u64) -> Timestamp {
        if taken == 0 {
            return self.next;
        }
        let owed = self.owed + i128::from(taken) * self.token();
        let missing = owed + self.token() - i128::from(self.rate.burst) * self.token();
        instant(i128::from(self.now.as_micros()) + div_ceil(missing.max(0), self.rate.starts.into()))
    }

    /// Returns what is owed after this many tokens were taken.
    pub(super) fn after(&self, key: &LimitKey, taken: u64) -> RateUse {
        let owed = self.owed + i128::from(taken) * self.token();
        let owed = i64::try_from(owed).unwrap_or(i64::MAX);
        RateUse::new(key.clone(), owed, self.now, self.rate.starts, self.rate.period)
    }
}

/// Returns true if a key that owes this much has a token at this instant.
pub(crate) fn has_token(rate: Rate, used: Option<&RateUse>, now: Timestamp) -> bool {
    Bucket::new(rate, used, now).left(0) > 0
}

/// Divides non-negative numbers and rounds up.
fn div_ceil(number: i128, by: i128) -> i128 {
    (number + by - 1).div_euclid(by)
}

fn instant(micros: i128) -> Timestamp {
    Timestamp::from_micros(i64::try_from(micros).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    /// Takes a token as soon as one is available, and waits in between for random lengths of time.
    #[test]
    fn no_window_has_more_starts_than_the_formula_says() {
        let mut seed = 7_u64;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let key = LimitKey::new("api").unwrap();
        for _ in 0..300 {
            let (starts, burst) = (1 + random(7) as u32, 1 + random(5) as u32);
            let period = 1 + random(40);
            let rate = Rate::new(starts, Duration::from_micros(period)).unwrap().burst(burst).unwrap();
            let (mut now, mut used, mut granted) = (0_i64, None::<RateUse>, Vec::new());
            for _ in 0..60 {
                // A clock that steps back does not move the store's clock.
                let bucket = Bucket::new(rate, used.as_ref(), at(now));
                let left = bucket.left(0);
                if left > 0 {
                    let taken = 1 + random(left.unsigned_abs());
                    granted.extend((0..taken).map(|_| now));
                    used = Some(bucket.after(&key, taken));
                } else {
                    let next = bucket.next(0).as_micros();
                    assert!(next > now);
                    assert!(Bucket::new(rate, used.as_ref(), at(next)).left(0) > 0, "a token at {next}");
                    assert!(Bucket::new(rate, used.as_ref(), at(next - 1)).left(0) < 1, "none before");
                }
                now += random(2 * period) as i64;
            }
            for (first, from) in granted.iter().enumerate() {
                for (last, to) in granted.iter().enumerate().skip(first) {
                    let (count, length) = ((last - first + 1) as u64, (to - from) as u64);
                    assert!(
                        count * period <= u64::from(burst) * period + u64::from(starts) * length,
                        "{count} starts in {length} us: {starts} per {period} us, burst {burst}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_rate_that_is_changed_keeps_what_is_owed() {
        let key = LimitKey::new("api").unwrap();
        let slow = Rate::new(1, Duration::from_micros(100)).unwrap().burst(2).unwrap();
        let used = Bucket::new(slow, None, at(0)).after(&key, 2);
        assert_eq!((used.owed, used.full_at()), (200, at(200)));
        let fast = Rate::new(10, Duration::from_micros(100)).unwrap().burst(2).unwrap();
        assert_eq!(Bucket::new(fast, Some(&used), at(0)).left(0), 0);
        // What is owed to the slow rate comes back at the slow rate, until the next start.
        let waits = Bucket::new(fast, Some(&used), at(99));
        assert_eq!((waits.left(0), waits.next(0)), (0, at(100)));
        let has = Bucket::new(fast, Some(&used), at(100));
        assert_eq!((has.left(0), has.next(1)), (1, at(110)));
        let long = Rate::new(1, Duration::from_micros(1_000)).unwrap().burst(2).unwrap();
        let moved = Bucket::new(long, Some(&used), at(100));
        assert_eq!((moved.left(0), moved.next(1)), (1, at(1_100)), "half of what was owed, in its own units");
        assert_eq!(Bucket::new(long, Some(&used), at(50)).next(0), at(100), "and not later than it comes");
        assert_eq!(Bucket::new(long, Some(&used), at(200)).left(0), 2, "it was full by then");
    }

    #[test]
    fn refuses_what_is_no_rate() {
        assert!(matches!(Rate::new(0, Duration::from_secs(1)), Err(Invalid::Zero { .. })));
        assert!(matches!(Rate::new(1, Duration::from_nanos(999)), Err(Invalid::Duration { .. })));
        let days = Duration::from_secs(367 * 24 * 3_600);
        assert!(matches!(Rate::new(1, days), Err(Invalid::Duration { .. })));
        assert!(matches!(Rate::new(u32::MAX, Duration::from_secs(1)), Err(Invalid::TooLarge { .. })));
        let year = Rate::new(1, Duration::from_secs(366 * 24 * 3_600)).unwrap();
        assert!(matches!(year.burst(0), Err(Invalid::Zero { .. })));
        assert!(matches!(year.burst(MAX_SLOTS), Err(Invalid::TooLarge { .. })));
        let wrong = serde_json::from_str::<Rate>(r#"{"starts":1}"#).unwrap_err().to_string();
        assert!(wrong.contains("period_s"), "{wrong}");
        let text = r#"{"starts":6,"period_s":60,"burst":2}"#;
        assert_eq!(serde_json::to_string(&serde_json::from_str::<Rate>(text).unwrap()).unwrap(), text);
    }
}
