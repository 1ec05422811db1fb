//! Priority that grows with waiting, at no cost per tick.
//!
//! Linear ageing raises a task by one point of priority for each *period* that it waits:
//!
//! ```text
//! effective priority at t  =  priority + (t - since) / period
//! ```
//!
//! All waiting tasks rise at the same speed, so their order never changes while they wait. Multiply by the
//! period and drop the terms that all tasks share: the order is that of `since - priority * period`. That
//! number is the rank. It is known when the task is enqueued and never changes. In other words, **a point of
//! priority is a head start of one period**. (BFS, a scheduler for Linux, orders by such virtual deadlines.)

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time;
use crate::time::Timestamp;

/// How the priority of a task grows while it waits.
///
/// Plain data: a host keeps one value and passes it to each
/// [`Tx::enqueue_ageing`](crate::store::Tx::enqueue_ageing).
///
/// A rank has no unit of its own, so use one policy for all tasks of a store. If policies are mixed, the
/// order is still total and fixed. Tasks with different periods are ordered by `since - priority * period`,
/// each with its own period. A task without ageing has a rank near zero. A task with ageing has a rank near
/// the microseconds since 1970, unless its head start reaches back that far. So the task without ageing goes
/// first.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use stationmaster::admission::Ageing;
/// use stationmaster::Timestamp;
///
/// let hourly = Ageing::Linear { period: Duration::from_secs(3600) };
/// let old = hourly.rank(0, Timestamp::UNIX_EPOCH);
/// let urgent = hourly.rank(3, Timestamp::from_micros(2 * 3_600_000_000));
/// let later = hourly.rank(3, Timestamp::from_micros(4 * 3_600_000_000));
/// assert!(urgent < old, "three points are a head start of three hours");
/// assert!(old < later, "which the first task has made up after four");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Ageing {
    /// The priority does not grow: a higher priority always goes first.
    #[default]
    None,
    /// The priority grows by one point for each period of waiting.
    Linear {
        /// The waiting time worth one point of priority, truncated to whole microseconds. With zero, waiting
        /// outweighs every priority: first come, first served.
        #[serde(rename = "period_s", with = "crate::seconds")]
        period: Duration,
    },
}

impl Ageing {
    /// Returns the rank of a task with this priority that has waited since this instant. The rank is the
    /// first criterion of the order; smaller goes first.
    ///
    /// The rank is exact while `priority * period` is within 250,000 years either way and the instant is
    /// within 40,000 years of 1970. The first holds for every priority with periods up to an hour. Beyond
    /// that the rank saturates: such tasks are equal in rank, and the date decides.
    pub fn rank(self, priority: i32, since: Timestamp) -> i64 {
        let Self::Linear { period } = self else {
            return -i64::from(priority);
        };
        let ahead = i128::from(priority) * i128::from(time::duration_micros(period));
        let rank = i128::from(since.as_micros()) - ahead;
        i64::try_from(rank).unwrap_or(if rank < 0 { i64::MIN } else { i64::MAX })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns `effective priority * period` in microseconds, from the definition.
    fn effective(priority: i32, since: i64, period: i64, at: i64) -> i128 {
        i128::from(priority) * i128::from(period) + i128::from(at) - i128::from(since)
    }

    /// Within 120,000 years of 1970, in microseconds.
    const SPAN: std::ops::Range<i64> = -3_800_000_000_000_000_000..3_800_000_000_000_000_000;

    fn instants() -> impl Strategy<Value = i64> {
        prop_oneof![SPAN, -10_i64..10, 1_700_000_000_000_000_i64..1_800_000_000_000_000]
    }

    fn priorities() -> impl Strategy<Value = i32> {
        prop_oneof![any::<i32>(), -3..4, Just(i32::MIN), Just(i32::MAX)]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        /// Periods up to 40 minutes keep every product within 165,000 years, and so every rank within its
        /// range.
        #[test]
        fn the_order_by_rank_is_the_order_by_effective_priority(
            a in (priorities(), instants()),
            b in (priorities(), instants()),
            period in prop_oneof![0_i64..2_400_000_000, Just(1), Just(1_000_000)],
            at in instants(),
        ) {
            let ageing = Ageing::Linear { period: Duration::from_micros(period.unsigned_abs()) };
            let by_rank = ageing.rank(a.0, Timestamp::from_micros(a.1)).cmp(&ageing.rank(b.0, Timestamp::from_micros(b.1)));
            let by_priority = effective(b.0, b.1, period, at).cmp(&effective(a.0, a.1, period, at));
            prop_assert_eq!(by_rank, by_priority);
        }

        /// Where ranks saturate, two tasks may become equal but never swap places.
        #[test]
        fn saturation_never_turns_the_order_around(
            a in (priorities(), any::<i64>()),
            b in (priorities(), any::<i64>()),
            period in prop_oneof![any::<Duration>(), Just(Duration::MAX)],
        ) {
            let ageing = Ageing::Linear { period };
            let (from_a, from_b) = (Timestamp::from_micros(a.1), Timestamp::from_micros(b.1));
            let micros = time::duration_micros(period);
            let exact = effective(b.0, from_b.as_micros(), micros, 0)
                .cmp(&effective(a.0, from_a.as_micros(), micros, 0));
            let ranked = ageing.rank(a.0, from_a).cmp(&ageing.rank(b.0, from_b));
            prop_assert!(ranked == exact || ranked.is_eq(), "{:?} instead of {:?}", ranked, exact);
        }
    }

    #[test]
    fn the_extremes_saturate() {
        let for_ever = Ageing::Linear { period: Duration::MAX };
        let (first, last) = (Timestamp::from_micros(i64::MIN), Timestamp::from_micros(i64::MAX));
        assert_eq!(for_ever.rank(i32::MAX, first), i64::MIN);
        assert_eq!(for_ever.rank(i32::MIN, last), i64::MAX);
        assert_eq!(for_ever.rank(0, Timestamp::from_micros(7)), 7);
        let at_once = Ageing::Linear { period: Duration::ZERO };
        assert_eq!(at_once.rank(i32::MAX, Timestamp::from_micros(7)), 7);
        assert_eq!(Ageing::None.rank(i32::MIN, last), 2_147_483_648);
    }

    #[test]
    fn is_plain_json() {
        let ageing = Ageing::Linear { period: Duration::from_millis(1500) };
        let text = serde_json::to_string(&ageing).unwrap();
        assert_eq!(text, r#"{"linear":{"period_s":1.5}}"#);
        assert_eq!(serde_json::from_str::<Ageing>(&text).unwrap(), ageing);
        assert_eq!(serde_json::from_str::<Ageing>("\"none\"").unwrap(), Ageing::None);
        assert!(serde_json::from_str::<Ageing>(r#"{"linear":{"period_s":-1}}"#).is_err());
    }
}
