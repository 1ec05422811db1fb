//! The fork-node index: where a run is filed, and which ranges hold the answer to a window.
//!
//! 1. Instants are mapped to unsigned numbers in order ([`Point`]). A closed run covers the numbers `start..=stop` and
//!    is filed under the *roundest* of them, the one with most trailing zero bits: its [`node`].
//! 2. Two ordered indexes: `(node, start)` and `(node, stop)`. An open run is filed apart, by its start.
//! 3. For the window `[begin, last]` with `last = end - 1`: open runs with `start <= last` are hits;
//! 4. so is every run with its node in `[begin, last]`, because a run contains its node;
//! 5. of the nodes below `begin` only those matter that are `begin` with its lowest set bits cleared one by one; there,
//!    the runs with `stop >= begin` are hits;
//! 6. of the nodes above `last` only `((last >> j) | 1) << j` for each zero bit `j` of `last`; there, the runs with
//!    `start <= last` are hits.
//!
//! Why 5 loses nothing: let `w < begin <= stop` be the node of a run, with `j` trailing zeros. No other number of the run
//! has as many, so `begin < w + 2^j`; hence `begin` and `w` agree from bit `j` up, and `w` is `begin` with its low `j` bits
//! cleared. 6 is the mirror image. At most 2 x 64 ranges and two more are read, every row in them is a hit, and age,
//! length of runs and storms of equal starts change nothing. Source: the RI-tree (Kriegel, Poetke, Seidl, VLDB 2000) in
//! its static form.
//!
//! A run whose stop lies before its start is filed under its start; the rule is checked again on every row read, so
//! that such runs are answered rightly too.

use chrono::{DateTime, Utc};

use crate::time;

/// An instant as an unsigned number, in the same order.
pub type Point = u64;

/// The number of an instant.
pub fn point(at: DateTime<Utc>) -> Point {
    (time::micros(at) as u64) ^ (1 << 63)
}

/// Where a run from `start` to `stop` is filed: the number in `start..=stop` with most trailing zero bits.
///
/// # Examples
///
/// ```
/// use stationmaster::run::index::node;
/// assert_eq!(node(5, 9), 8);
/// assert_eq!(node(5, 5), 5);
/// assert_eq!(node(9, 5), 9, "a stop before the start is filed under the start");
/// ```
pub fn node(start: Point, stop: Point) -> Point {
    if stop <= start {
        return start;
    }
    if start == 0 {
        return 0;
    }
    let shift = 63 - ((start - 1) ^ stop).leading_zeros();
    (stop >> shift) << shift
}

/// The ranges that hold all runs active in a window, and no others.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ranges {
    /// The window's first number.
    pub begin: Point,
    /// The window's last number.
    pub last: Point,
    /// Nodes below the window: there, runs with `stop >= begin` are hits.
    pub left: Vec<Point>,
    /// Nodes above the window: there, runs with `start <= last` are hits.
    pub right: Vec<Point>,
}

/// The ranges to be read for the window `[begin, end)`; none if it is empty.
///
/// Nodes outside `bounds`, the smallest start and the largest stop in the store, hold nothing and are left out; `None`
/// means that they are not known.
///
/// # Examples
///
/// ```
/// use stationmaster::run::index::ranges;
/// let ranges = ranges(5, 8, None).expect("the window is not empty");
/// assert_eq!((ranges.begin, ranges.last), (5, 7));
/// assert_eq!(ranges.left, [4, 0]);
/// assert_eq!(ranges.right[0], 8);
/// ```
pub fn ranges(begin: Point, end: Point, bounds: Option<(Point, Point)>) -> Option<Ranges> {
    if begin >= end {
        return None;
    }
    let (smallest, largest) = bounds.unwrap_or((0, Point::MAX));
    let last = end - 1;
    let mut left = Vec::new();
    let mut below = begin;
    while below != 0 {
        below &= below - 1;
        if below < smallest {
            break;
        }
        left.push(below);
    }
    let mut right = Vec::new();
    for bit in 0..64 {
        if last >> bit & 1 == 0 {
            let above = ((last >> bit) | 1) << bit;
            if above > largest {
                break;
            }
            right.push(above);
        }
    }
    Some(Ranges { begin, last, left, right })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn roundest(start: Point, stop: Point) -> Point {
        (start..=stop).max_by_key(|n| if *n == 0 { 64 } else { n.trailing_zeros() }).unwrap()
    }

    #[test]
    fn the_node_is_the_roundest_number_of_the_run() {
        for start in 0..70 {
            for stop in start..140 {
                assert_eq!(node(start, stop), roundest(start, stop), "{start}..={stop}");
            }
        }
    }

    fn hits(ranges: &Ranges, start: Point, stop: Point) -> usize {
        let node = node(start, stop);
        let middle = (ranges.begin..=ranges.last).contains(&node);
        let left = ranges.left.contains(&node) && stop >= ranges.begin;
        let right = ranges.right.contains(&node) && start <= ranges.last;
        usize::from(middle) + usize::from(left) + usize::from(right)
    }

    #[test]
    fn small_worlds_are_answered_exactly_once() {
        for begin in 0..20 {
            for end in 0..20 {
                let ranges = ranges(begin, end, None);
                for start in 0..20 {
                    for stop in start..20 {
                        let active = begin < end && start < end && stop >= begin;
                        let found = ranges.as_ref().map_or(0, |ranges| hits(ranges, start, stop));
                        assert_eq!(found, usize::from(active), "[{begin},{end}) of {start}..={stop}");
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn large_worlds_too(mut ends in proptest::array::uniform2(any::<u64>()), begin: u64, end: u64, near in 0_u64..3) {
            ends.sort_unstable();
            let [start, stop] = ends;
            for begin in [begin, start.saturating_sub(near), stop.saturating_sub(near), stop.saturating_add(near)] {
                for end in [end, start.saturating_add(near), stop.saturating_add(near), begin.saturating_add(near)] {
                    let active = begin < end && start < end && stop >= begin;
                    let ranges = ranges(begin, end, None);
                    let found = ranges.as_ref().map_or(0, |ranges| hits(ranges, start, stop));
                    prop_assert_eq!(found, usize::from(active));
                    if let Some(ranges) = ranges {
                        prop_assert!(ranges.left.len() + ranges.right.len() <= 128);
                    }
                }
            }
        }
    }

    #[test]
    fn points_keep_the_order_of_instants() {
        let instants =
            [DateTime::<Utc>::MIN_UTC, time::from_micros(-1), time::from_micros(0), DateTime::<Utc>::MAX_UTC];
        assert!(instants.windows(2).all(|pair| point(pair[0]) < point(pair[1])));
    }
}
