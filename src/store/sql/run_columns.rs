//! How stores in SQL file runs: the numbers of [`crate::run::index`] as signed ones, in the same order.

use chrono::{DateTime, Utc};

use crate::run::Suspension;
use crate::run::index::{self, Point};
use crate::time::{from_micros, micros};

/// A point in the order of its unsigned number, as a signed one: the microseconds of its instant.
fn signed(point: Point) -> i64 {
    (point ^ (1 << 63)).cast_signed()
}

/// Where a run is filed; none while it is open.
pub(in crate::store) fn node(start: DateTime<Utc>, stop: Option<DateTime<Utc>>) -> Option<i64> {
    stop.map(|stop| signed(index::node(index::point(start), index::point(stop))))
}

/// The lowest set bit of a node; none for 0, the instant of 1970.
pub(in crate::store) fn level(node: i64) -> i64 {
    node & node.wrapping_neg()
}

/// The bits above a level's; none if the level has none.
pub(in crate::store) fn bits_above(bit: i64) -> i64 {
    if bit == 0 { 0 } else { !(bit | bit.wrapping_sub(1)) }
}

/// Where closed runs are filed that both started and stopped before an instant.
#[derive(Debug, Default)]
pub(in crate::store) struct Before {
    /// Under nodes between these, both included: all of them.
    pub(in crate::store) spans: Vec<(i64, i64)>,
    /// Under these nodes: those that stopped before the instant.
    pub(in crate::store) nodes: Vec<i64>,
}

impl Before {
    pub(in crate::store) fn instant(before: DateTime<Utc>) -> Self {
        let point = index::point(before);
        let forks = index::forks(point).left;
        let highs = std::iter::once(point).chain(forks.iter().copied());
        let gaps = forks.iter().zip(highs).filter(|(low, high)| *high - *low > 1);
        Self {
            spans: gaps.map(|(low, high)| (signed(low + 1), signed(high - 1))).collect(),
            nodes: forks.iter().filter(|fork| **fork != 0).map(|fork| signed(*fork)).collect(),
        }
    }
}

/// The suspensions of a run as one text: a JSON array of [from, to or null]. None if there are none.
pub(in crate::store) fn suspensions(spans: &[Suspension]) -> serde_json::Result<Option<String>> {
    if spans.is_empty() {
        return Ok(None);
    }
    let pairs: Vec<(i64, Option<i64>)> =
        spans.iter().map(|span| (micros(span.from), span.to.map(micros))).collect();
    serde_json::to_string(&pairs).map(Some)
}

pub(in crate::store) fn read_suspensions(text: Option<&str>) -> serde_json::Result<Vec<Suspension>> {
    let Some(text) = text else { return Ok(Vec::new()) };
    let pairs: Vec<(i64, Option<i64>)> = serde_json::from_str(text)?;
    Ok(pairs.into_iter().map(|(from, to)| Suspension::new(from_micros(from), to.map(from_micros))).collect())
}
