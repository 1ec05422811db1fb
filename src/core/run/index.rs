//! The fork-node index: where a run is filed, and which ranges hold the result of a window.
//!
//! 1. Instants are mapped to unsigned numbers in order ([`Point`]). A closed run covers the numbers
//!    `start..=stop`. It is filed under the *roundest* of them, the one with the most trailing zero bits: its
//!    [`node`].
//! 2. Four orders are kept: all runs by `start`; the open ones by `start`; the closed ones by `(node, start)`
//!    and by `(node, stop)`.
//! 3. The result for the window `[begin, end)` has two parts. A run that *starts in it* is a hit: one range
//!    of the starts.
//! 4. A run that *surrounds its first instant* started before `begin` and has not stopped before it. Among
//!    the open runs, these are the ones with `start < begin`: one range.
//! 5. For the closed runs with a node below `begin`, only some nodes matter: `begin` with its lowest set bits
//!    cleared one by one. At those nodes, the runs with `stop >= begin` are hits.
//! 6. For the nodes from `begin` on, only `((last >> j) | 1) << j` matters for each zero bit `j` of
//!    `last = begin - 1`. At those nodes, the runs with `start < begin` are hits.
//! 7. On each [`level`] an instant has at most one fork. The fork is skipped if no run is filed on that
//!    level, or if no run filed there reaches from before the instant to after it.
//!
//! Step 5 misses no run: let `w < begin <= stop` be the node of a run, with `j` trailing zeros. No other
//! number of the run has that many, so `begin < w + 2^j`. Hence `begin` and `w` agree from bit `j` up, and
//! `w` is `begin` with its low `j` bits cleared. Step 6 is the mirror image. A set bit of `begin` makes a
//! fork of step 5, and a zero bit of `begin - 1` makes one of step 6. The two numbers differ only in the
//! lowest set bit of `begin` and below. So there are at most 65 forks, and with steps 3 and 4 at most
//! [`MOST_SEEKS`] ranges. Every row in them is a hit, whatever the age and length of the runs and however
//! many start at once. Source: the RI-tree (Kriegel, Poetke, Seidl, VLDB 2000) in its static form. The
//! two-part lookup and the skipped levels are additions.
//!
//! A run whose stop is before its start is filed under its start. Such a run can be a false hit only in the
//! range of step 3, so the rule is checked again on every row of that range.

use crate::time::Timestamp;

/// An instant as an unsigned number, in the same order.
pub(crate) type Point = u64;

/// The most ranges that one window reads in one namespace: the bits of an instant, plus three.
pub const MOST_SEEKS: usize = 67;

/// Returns an instant as a number.
pub(crate) fn point(at: Timestamp) -> Point {
    at.as_micros().cast_unsigned() ^ (1 << 63)
}

/// Returns the number under which a run from `start` to `stop` is filed: the one in `start..=stop` with the
/// most trailing zero bits.
pub(crate) fn node(start: Point, stop: Point) -> Point {
    if stop <= start {
        return start;
    }
    if start == 0 {
        return 0;
    }
    let shift = 63 - ((start - 1) ^ stop).leading_zeros();
    (stop >> shift) << shift
}

/// Returns the lowest set bit of a node; 0 for 0.
pub(crate) fn level(node: Point) -> u64 {
    node & node.wrapping_neg()
}

/// The nodes under which closed runs that surround an instant can be filed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Forks {
    /// Nodes before the instant, the latest first. There, the runs with `stop >= begin` are hits.
    pub(crate) left: Vec<Point>,
    /// Nodes from the instant on, the earliest first. There, the runs with `start < begin` are hits.
    pub(crate) right: Vec<Point>,
}

/// Returns the forks of the runs with `start < begin <= stop`. Every such run is filed under exactly one of
/// them.
pub(crate) fn forks(begin: Point) -> Forks {
    let (mut left, mut right) = (Vec::new(), Vec::new());
    let mut below = begin;
    while below != 0 {
        below &= below - 1;
        left.push(below);
    }
    if let Some(last) = begin.checked_sub(1) {
        let zeros = (0..64).filter(|bit| last >> bit & 1 == 0);
        right.extend(zeros.map(|bit| ((last >> bit) | 1) << bit));
    }
    Forks { left, right }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_run_is_filed_under_its_roundest_number() {
        assert_eq!(node(5, 9), 8);
        assert_eq!(node(5, 5), 5);
        assert_eq!(node(9, 5), 9, "a stop before the start is filed under the start");
        assert_eq!([12, 7, 0].map(level), [4, 1, 0]);
        let forks = forks(6);
        assert_eq!(forks.left, [4, 0]);
        assert_eq!(forks.right[..2], [6, 8]);
        assert_eq!(point(Timestamp::UNIX_EPOCH), 1 << 63);
        assert!(point(Timestamp::from_micros(-1)) < point(Timestamp::UNIX_EPOCH));
    }

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

    fn hits(forks: &Forks, begin: Point, start: Point, stop: Point) -> usize {
        let node = node(start, stop);
        let left = forks.left.iter().filter(|fork| **fork == node && stop >= begin).count();
        left + forks.right.iter().filter(|fork| **fork == node && start < begin).count()
    }

    #[test]
    fn small_worlds_are_answered_exactly_once() {
        for begin in 0..40 {
            let forks = forks(begin);
            for start in 0..40 {
                for stop in 0..40 {
                    let surrounds = start < begin && stop >= begin;
                    assert_eq!(
                        hits(&forks, begin, start, stop),
                        usize::from(surrounds),
                        "{begin} of {start}..={stop}"
                    );
                }
            }
        }
    }

    proptest! {
        #[test]
        fn large_worlds_too(start: u64, stop: u64, begin: u64, near in 0_u64..3) {
            for begin in [begin, start.wrapping_sub(near), stop.wrapping_sub(near), start.wrapping_add(near), stop.wrapping_add(near)] {
                let forks = forks(begin);
                let surrounds = start < begin && stop >= begin;
                prop_assert_eq!(hits(&forks, begin, start, stop), usize::from(surrounds));
                prop_assert!(forks.left.len() + forks.right.len() + 2 <= MOST_SEEKS);
            }
        }
    }

    #[test]
    fn no_instant_has_more_forks() {
        let most = (0..64).flat_map(|bit| [1 << bit, (1 << bit) - 1, u64::MAX - (1 << bit), u64::MAX]);
        let most = most.map(forks).map(|forks| forks.left.len() + forks.right.len()).max();
        assert_eq!(most, Some(MOST_SEEKS - 2));
    }

    #[test]
    fn points_keep_the_order_of_instants() {
        let instants = [Timestamp::MIN, Timestamp::from_micros(-1), Timestamp::UNIX_EPOCH, Timestamp::MAX];
        assert!(instants.windows(2).all(|pair| point(pair[0]) < point(pair[1])));
        assert!(point(Timestamp::MIN) > 0 && point(Timestamp::MAX) < Point::MAX);
    }
}
