//! Random numbers that depend only on the seed and their purpose.
//!
//! Nothing is drawn from a stream, so one task does not affect another task's numbers: a day simulated with another
//! pool size has the same durations, failures and landings. It uses only integer arithmetic, equal on every machine.

use std::hash::Hasher;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher24;
use stationmaster::seconds;

/// A seed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// Returns a 64-bit number for the `n`-th use of this purpose by this thing.
    pub(crate) fn roll(self, what: &str, of: &str, n: u64) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.0, u64::from_le_bytes(*b"simulate"));
        for text in [what, of] {
            hasher.write_u64(text.len() as u64);
            hasher.write(text.as_bytes());
        }
        hasher.write_u64(n);
        hasher.finish()
    }

    /// Returns true with this probability.
    pub(crate) fn happens(self, probability: f64, what: &str, of: &str, n: u64) -> bool {
        // 2^64 is exact, so the product is rounded once, in the same way everywhere.
        let bound = (probability * 18_446_744_073_709_551_616.0) as u128;
        u128::from(self.roll(what, of, n)) < bound
    }

    /// Returns a number from `0` to `below - 1`.
    pub(crate) fn below(self, below: u64, what: &str, of: &str, n: u64) -> u64 {
        ((u128::from(self.roll(what, of, n)) * u128::from(below)) >> 64) as u64
    }
}

/// A distribution of durations, given by its median and some percentiles, and linear between them.
///
/// Only `p50` is required. An omitted percentile equals its neighbour on the side of the median, so `{"p50": 60}` is
/// always a minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spread {
    #[serde(default, with = "seconds::option", skip_serializing_if = "Option::is_none")]
    pub(crate) min: Option<Duration>,
    #[serde(with = "seconds")]
    pub(crate) p50: Duration,
    #[serde(default, with = "seconds::option", skip_serializing_if = "Option::is_none")]
    pub(crate) p90: Option<Duration>,
    #[serde(default, with = "seconds::option", skip_serializing_if = "Option::is_none")]
    pub(crate) p99: Option<Duration>,
    #[serde(default, with = "seconds::option", skip_serializing_if = "Option::is_none")]
    pub(crate) max: Option<Duration>,
}

impl Spread {
    fn knots(&self) -> [(u128, Duration); 5] {
        let p90 = self.p90.unwrap_or(self.p50);
        let p99 = self.p99.unwrap_or(p90);
        let whole = 1_u128 << 64;
        [
            (0, self.min.unwrap_or(self.p50)),
            (whole / 2, self.p50),
            (whole / 10 * 9, p90),
            (whole / 100 * 99, p99),
            (whole, self.max.unwrap_or(p99)),
        ]
    }

    pub(crate) fn is_ordered(&self) -> bool {
        self.knots().is_sorted_by_key(|(_, length)| *length)
    }

    pub(crate) fn max(&self) -> Duration {
        self.knots()[4].1
    }

    /// Returns the value at this position among all 64-bit numbers.
    pub(crate) fn at(&self, roll: u64) -> Duration {
        let (knots, place) = (self.knots(), u128::from(roll));
        let upper = knots.iter().position(|(knot, _)| *knot > place).unwrap_or(4).max(1);
        let ((from, low), (to, high)) = (knots[upper - 1], knots[upper]);
        let (low, high) = (low.as_micros(), high.as_micros());
        // A duration of up to 2^60 microseconds times 2^64 fits.
        let more = high.saturating_sub(low) * (place - from) / (to - from);
        Duration::from_micros(u64::try_from(low + more).unwrap_or(u64::MAX))
    }
}
