//! Spreads retries with numbers that look random but are a pure function of the task and the attempt.
//!
//! No random number is drawn or stored. The identity of the task (namespace, workflow, run, task, map index)
//! and the attempt go through SipHash-2-4 with a fixed key. So every process on every machine computes the
//! same delay, before and after a restart. Two tasks, two instances of one mapped task and two attempts are
//! still spread apart.

use std::hash::Hasher as _;

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher24;

use crate::id::TaskKey;

/// How retries are spread. In the table, `d` is the grown delay `base * multiplier^(attempt - 1)`, and `max`
/// is the smaller of the policy's cap and its maximum.
///
/// | | delay, half-open | at the maximum |
/// |---|---|---|
/// | `None` | `d` | `max` |
/// | `Full` | `[0, d)` | `[0, max)` |
/// | `Equal` | `[d/2, d)` | `[max/2, max)` |
/// | `Hashed` | `[d, 2d)` | `[max/2, max)` |
/// | `Decorrelated` | `[base, (2 * multiplier - 1) * previous)` | `[base, max)` |
///
/// The maximum shrinks the range before a delay is chosen from it. So retries stay spread at the maximum
/// instead of piling up on it. A fixed delay is the row with `multiplier` = 1.
///
/// `Full`, `Equal` and `Decorrelated` follow Marc Brooker, "Exponential Backoff And Jitter" (AWS Architecture
/// Blog, 2015); `Hashed` has the range that Airflow gives to its retries.
///
/// # Examples
///
/// ```
/// use stationmaster::backoff::Jitter;
/// assert_eq!(serde_json::to_string(&Jitter::Hashed)?, r#""hashed""#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Jitter {
    /// Every task waits the same time.
    None,
    /// From no delay to the full delay.
    Full,
    /// Half of the delay is fixed, the other half is spread.
    Equal,
    /// The range follows the previous delay: with a multiplier of 2, `[base, 3 * previous)`.
    ///
    /// The previous delays are recomputed rather than stored: all of them for the first 256 attempts. For
    /// later attempts at least the last 128 are computed, as if the one before them had been the maximum.
    /// This takes at most 256 multiplications.
    Decorrelated,
    /// From the delay to its double.
    Hashed,
}

/// The key of the hash that spreads retries: 16 bytes of ASCII.
///
/// The key and the message are fixed forever, because a change would move every planned retry. All numbers in
/// the message are little-endian. First come the lengths in bytes of namespace, workflow, run and task (32
/// bits each). Then come the map index plus one, or zero (64 bits), and the attempt (64 bits; zero for the
/// chain of [`Jitter::Decorrelated`]). The four names follow.
pub const JITTER_KEY: [u8; 16] = *b"stationmaster/rt";

/// Returns a number in `[0, 2^64)` that identifies this attempt of this task.
pub(super) fn identity(task: &TaskKey, attempt: u32) -> u64 {
    let names = [task.namespace.as_str(), task.workflow.as_str(), task.run.as_str(), task.task.as_str()];
    let mut head = [0; 32];
    let mapped = task.map_index.map_or(0, |index| u64::from(index) + 1);
    let mut lengths = names.map(|name| name.len() as u32).into_iter();
    let (first, rest) = head.split_at_mut(16);
    for four in first.chunks_exact_mut(4) {
        four.copy_from_slice(&lengths.next().unwrap_or(0).to_le_bytes());
    }
    rest[..8].copy_from_slice(&mapped.to_le_bytes());
    rest[8..].copy_from_slice(&u64::from(attempt).to_le_bytes());

    let mut hasher = SipHasher24::new_with_key(&JITTER_KEY);
    hasher.write(&head);
    for name in names {
        hasher.write(name.as_bytes());
    }
    hasher.finish()
}

/// Maps a 64-bit number to `[0, span)`; returns zero if the span is zero.
pub(super) fn scale(random: u64, span: u64) -> u64 {
    ((u128::from(random) * u128::from(span)) >> 64) as u64
}

/// The number of attempts in one chain. Within a chain, each delay's range depends on the previous delay.
const CHAIN: u32 = 128;

/// Returns the decorrelated delay, in microseconds, below `max`.
pub(super) fn decorrelated(task: &TaskKey, base: u64, multiplier: f64, attempt: u32, max: u64) -> u64 {
    // The range of each delay depends on the previous delay, and nothing is stored, so the n-th delay takes n
    // draws. Chains limit this to two chains of draws. A late attempt begins with the chain before its own,
    // at the maximum, which delays have reached by then. Over a whole chain the effect of that assumption
    // disappears.
    let low = base.min(max / 2);
    let factor = 2.0f64.mul_add(multiplier, -1.0);
    let seed = identity(task, 0);
    let chain = attempt.saturating_sub(1) / CHAIN;
    let (first, mut previous) = match chain.checked_sub(1) {
        None | Some(0) => (1, low),
        Some(before) => (before * CHAIN + 1, max),
    };
    for number in first..=attempt {
        let high = ((previous as f64 * factor).round() as u64).clamp(low, max);
        previous = low + scale(mixed(seed, number), high - low);
    }
    previous
}

/// Returns the output of the generator SplitMix64 at this position: Steele, Lea and Flood, "Fast Splittable
/// Pseudorandom Number Generators" (2014).
fn mixed(seed: u64, position: u32) -> u64 {
    let mut z = seed.wrapping_add(u64::from(position).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaling_stays_below_the_span() {
        assert_eq!(scale(u64::MAX, 0), 0);
        assert_eq!(scale(u64::MAX, 1), 0);
        assert_eq!(scale(u64::MAX, u64::MAX), u64::MAX - 1);
        assert_eq!(scale(1 << 63, 100), 50);
    }

    #[test]
    fn names_map_index_and_attempt_all_count() {
        let key = |names: [&str; 4]| TaskKey::new(names[0], names[1], names[2], names[3]).unwrap();
        let task = key(["a", "b", "c", "d"]);
        let mut seen = vec![
            identity(&task, 1),
            identity(&task, 2),
            identity(&task.clone().mapped(0), 1),
            identity(&task.clone().mapped(1), 1),
            identity(&key(["ab", "b", "c", "d"]), 1),
            identity(&key(["a", "bc", "c", "d"]), 1),
            identity(&key(["a", "b", "cd", "d"]), 1),
            identity(&key(["a", "b", "c", "dd"]), 1),
            identity(&key(["a", "b", "cd", "x"]), 1),
            identity(&key(["a", "bc", "d", "x"]), 1),
        ];
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count);
    }
}
