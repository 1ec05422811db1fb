//! How SQL stores index runs: the numbers of [`crate::run::index`] as signed integers in the same order.

use std::collections::BTreeMap;

use crate::run::Suspension;
use crate::run::index::{self, Point};
use crate::time::Timestamp;

/// Returns a point as a signed number, in the same order: the microseconds of its instant.
fn signed(point: Point) -> i64 {
    (point ^ (1 << 63)).cast_signed()
}

/// Returns the node under which a run is filed, or `None` while it is open.
pub(in crate::store) fn node(start: Timestamp, stop: Option<Timestamp>) -> Option<i64> {
    stop.map(|stop| signed(index::node(index::point(start), index::point(stop))))
}

/// Returns the lowest set bit of a node; no bit for 0, the start of 1970.
pub(in crate::store) fn level(node: i64) -> i64 {
    node & node.wrapping_neg()
}

/// Returns the bits above a level's bit; no bits if the level has none.
pub(in crate::store) fn bits_above(bit: i64) -> i64 {
    if bit == 0 { 0 } else { !(bit | bit.wrapping_sub(1)) }
}

/// The places of closed runs that both started and stopped before an instant.
#[derive(Debug, Default)]
pub(in crate::store) struct Before {
    /// All runs under nodes between these, both included.
    pub(in crate::store) spans: Vec<(i64, i64)>,
    /// Under these nodes, the runs that stopped before the instant.
    pub(in crate::store) nodes: Vec<i64>,
}

impl Before {
    pub(in crate::store) fn instant(before: Timestamp) -> Self {
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

/// Returns the suspensions of a run as one text: a JSON array of [from, to or null]. `None` if there are
/// none.
pub(in crate::store) fn suspensions(spans: &[Suspension]) -> serde_json::Result<Option<String>> {
    if spans.is_empty() {
        return Ok(None);
    }
    let pairs: Vec<(i64, Option<i64>)> =
        spans.iter().map(|span| (span.from.as_micros(), span.to.map(Timestamp::as_micros))).collect();
    serde_json::to_string(&pairs).map(Some)
}

pub(in crate::store) fn read_suspensions(text: Option<&str>) -> serde_json::Result<Vec<Suspension>> {
    let Some(text) = text else { return Ok(Vec::new()) };
    let pairs: Vec<(i64, Option<i64>)> = serde_json::from_str(text)?;
    Ok(pairs
        .into_iter()
        .map(|(from, to)| Suspension::new(Timestamp::from_micros(from), to.map(Timestamp::from_micros)))
        .collect())
}

/// Returns the numbers of nodes of a run as one text: a JSON array of [since, nodes]. `None` if there are none.
pub(in crate::store) fn nodes(nodes: &BTreeMap<Timestamp, u32>) -> serde_json::Result<Option<String>> {
    if nodes.is_empty() {
        return Ok(None);
    }
    let pairs: Vec<(i64, u32)> = nodes.iter().map(|(since, nodes)| (since.as_micros(), *nodes)).collect();
    serde_json::to_string(&pairs).map(Some)
}

pub(in crate::store) fn read_nodes(text: Option<&str>) -> serde_json::Result<BTreeMap<Timestamp, u32>> {
    let Some(text) = text else { return Ok(BTreeMap::new()) };
    let pairs: Vec<(i64, u32)> = serde_json::from_str(text)?;
    Ok(pairs.into_iter().map(|(since, nodes)| (Timestamp::from_micros(since), nodes)).collect())
}
