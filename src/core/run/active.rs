//! The fork-node index in memory.

use super::index::{Point, forks, level, node};
use super::sorted::Sorted;

/// The stop of an open run. It comes after the stop of every closed run.
const OPEN: Point = Point::MAX;

/// Spans of time with a key each, open-ended or closed, and a search for the ones active in a window.
///
/// Inserts, closes and deletes may come in any order and take time logarithmic in the number of spans. A
/// window costs at most [`MOST_SEEKS`](super::index::MOST_SEEKS) searches plus its result.
/// [`crate::store::MemoryStore`] keeps one for each namespace. With keys of 4 bytes it takes about 100 bytes
/// per span. See [`super::index`] for the rules.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ActiveIndex<K> {
    /// Start, key, stop.
    starts: Sorted<(Point, K, Point)>,
    /// Open ones: start, key.
    open: Sorted<(Point, K)>,
    /// Closed ones: node, start, key.
    by_start: Sorted<(Point, Point, K)>,
    /// Closed ones: node, stop, key.
    by_stop: Sorted<(Point, Point, K)>,
    levels: Levels,
}

/// The number of closed runs filed at each level, and the levels that have any.
#[derive(Debug, Clone, PartialEq)]
struct Levels {
    counts: [usize; 65],
    used: u64,
}

impl Levels {
    fn change(&mut self, node: Point, by: isize) {
        let bit = level(node);
        let count = &mut self.counts[bit.trailing_zeros() as usize];
        *count = count.saturating_add_signed(by);
        self.used = if *count > 0 { self.used | bit } else { self.used & !bit };
    }

    /// Returns true if runs may be filed under this node.
    fn has(&self, node: Point) -> bool {
        self.used & level(node) != 0 || (node == 0 && self.counts[64] > 0)
    }
}

impl<K> Default for ActiveIndex<K> {
    fn default() -> Self {
        Self {
            starts: Sorted::default(),
            open: Sorted::default(),
            by_start: Sorted::default(),
            by_stop: Sorted::default(),
            levels: Levels { counts: [0; 65], used: 0 },
        }
    }
}

impl<K: Ord + Clone> ActiveIndex<K> {
    /// Returns the bytes that it occupies, not counting memory that keys own elsewhere.
    #[cfg(feature = "testing")]
    pub(crate) fn bytes(&self) -> usize {
        self.starts.bytes() + self.open.bytes() + self.by_start.bytes() + self.by_stop.bytes()
    }

    /// Files a span. The key must not be present with the same start. [`Point::MAX`] is not a valid stop: it
    /// means open.
    pub(crate) fn insert(&mut self, start: Point, stop: Option<Point>, key: K) {
        let end = stop.unwrap_or(OPEN);
        if end == OPEN {
            self.open.insert((start, key.clone()));
        } else {
            let node = node(start, end);
            self.by_start.insert((node, start, key.clone()));
            self.by_stop.insert((node, end, key.clone()));
            self.levels.change(node, 1);
        }
        self.starts.insert((start, key, end));
    }

    /// Removes a span that was filed with exactly these values. Returns true if it was present.
    pub(crate) fn remove(&mut self, start: Point, stop: Option<Point>, key: &K) -> bool {
        let end = stop.unwrap_or(OPEN);
        let there = self.starts.remove(&(start, key.clone(), end));
        if !there {
            return false;
        }
        if end == OPEN {
            self.open.remove(&(start, key.clone()));
        } else {
            let node = node(start, end);
            self.by_start.remove(&(node, start, key.clone()));
            self.by_stop.remove(&(node, end, key.clone()));
            self.levels.change(node, -1);
        }
        true
    }

    /// Returns the keys of the spans active in `[begin, end)`. The spans that [surround](Self::surrounding)
    /// its first instant come first, in no particular order. The spans that start in it follow, by start and
    /// key.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn active(&self, begin: Point, end: Point) -> impl Iterator<Item = &K> {
        let (begin, end) = if begin < end { (begin, end) } else { (0, 0) };
        let started =
            self.started(begin, None, end).filter(move |(_, _, stop)| stop.is_none_or(|stop| stop >= begin));
        self.surrounding(begin).chain(started.map(|(_, key, _)| key))
    }

    /// Returns the spans that start at or after `begin` and before `end`, by start and key. With a key, spans
    /// at `begin` are returned only after that key. A span that stops before it starts may have stopped
    /// before `begin` too.
    pub(crate) fn started<'a>(
        &'a self,
        begin: Point,
        after: Option<&'a K>,
        end: Point,
    ) -> impl Iterator<Item = (Point, &'a K, Option<Point>)> {
        let before = move |(start, key, _): &(Point, K, Point)| {
            *start < begin || after.is_some_and(|after| *start == begin && key <= after)
        };
        let rest = self.starts.from(before).take_while(move |(start, ..)| *start < end);
        rest.map(|(start, key, stop)| (*start, key, (*stop != OPEN).then_some(*stop)))
    }

    /// Returns the keys of the spans that started before `begin` and have not stopped before it, in no
    /// particular order.
    pub(crate) fn surrounding(&self, begin: Point) -> impl Iterator<Item = &K> {
        let open = self.open.from(|_| false).take_while(move |(start, _)| *start < begin).map(|(_, key)| key);
        let forks = forks(begin);
        let left = forks.left.into_iter().filter(|at| self.levels.has(*at)).flat_map(move |at| {
            let entries = self.by_stop.from(move |(node, stop, _)| (*node, *stop) < (at, begin));
            entries.take_while(move |(node, ..)| *node == at)
        });
        let right = forks.right.into_iter().filter(|at| self.levels.has(*at)).flat_map(move |at| {
            let entries = self.by_start.from(move |(node, ..)| *node < at);
            entries.take_while(move |(node, start, _)| *node == at && *start < begin)
        });
        open.chain(left.chain(right).map(|(.., key)| key))
    }

    /// Returns how many searches [`Self::active`] makes for a window that begins at this point.
    pub(crate) fn seeks(&self, begin: Point) -> usize {
        let forks = forks(begin);
        2 + forks.left.iter().chain(&forks.right).filter(|at| self.levels.has(**at)).count()
    }

    /// Returns the keys of at most `limit` closed spans that both start and stop before this point. If there
    /// are more, it is unspecified which ones are returned.
    pub(crate) fn stopped_before(&self, before: Point, limit: usize) -> Vec<K> {
        let mut found = Vec::new();
        let mut high = before;
        for low in forks(before).left {
            let between =
                self.by_stop.from(move |(node, ..)| *node <= low).take_while(|(node, ..)| *node < high);
            let at = self.by_stop.from(move |(node, ..)| *node < low);
            let at = at.take_while(|(node, stop, _)| *node == low && *stop < before);
            found.extend(between.chain(at).take(limit - found.len()).map(|(.., key)| key.clone()));
            high = low;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Span = (u64, Option<u64>);

    fn filled(spans: &[Span]) -> ActiveIndex<usize> {
        let mut index = ActiveIndex::default();
        for (key, (start, stop)) in spans.iter().enumerate() {
            index.insert(*start, *stop, key);
        }
        index
    }

    fn by_the_rule(spans: &[Span], begin: u64, end: u64) -> Vec<usize> {
        let hit = |(start, stop): &Span| begin < end && *start < end && stop.is_none_or(|stop| stop >= begin);
        (0..spans.len()).filter(|key| hit(&spans[*key])).collect()
    }

    #[test]
    fn open_runs_come_first_and_a_closed_one_is_filed_again() {
        let mut index = ActiveIndex::default();
        index.insert(10, Some(20), "closed");
        index.insert(12, None, "open");
        assert_eq!(index.active(15, 16).collect::<Vec<_>>(), [&"open", &"closed"]);
        assert_eq!(index.active(21, 99).collect::<Vec<_>>(), [&"open"]);
        index.remove(12, None, &"open");
        index.insert(12, Some(14), "open");
        assert_eq!(index.active(15, 16).count(), 1);
    }

    proptest! {
        #[test]
        fn answers_as_the_rule_does(
            spans in proptest::collection::vec((0_u64..80, proptest::option::of(0_u64..90)), 0..40),
            gone in proptest::collection::vec(0_usize..40, 0..10),
            begin in 0_u64..100,
            length in 0_u64..40,
        ) {
            let mut index = filled(&spans);
            let end = begin + length;
            for key in gone {
                if let Some((start, stop)) = spans.get(key) {
                    index.remove(*start, *stop, &key);
                    prop_assert!(!index.remove(*start, *stop, &key));
                    index.insert(*start, *stop, key);
                }
            }
            let mut found: Vec<usize> = index.active(begin, end).copied().collect();
            found.sort_unstable();
            prop_assert_eq!(found, by_the_rule(&spans, begin, end));
            let mut stopped = index.stopped_before(begin, 99);
            stopped.sort_unstable();
            let ended = |(start, stop): &Span| *start < begin && stop.is_some_and(|stop| stop < begin);
            let expected: Vec<usize> = (0..spans.len()).filter(|key| ended(&spans[*key])).collect();
            prop_assert_eq!(index.stopped_before(begin, 2).len(), expected.len().min(2));
            prop_assert_eq!(stopped, expected);
            for (key, (start, stop)) in spans.iter().enumerate() {
                prop_assert!(index.remove(*start, *stop, &key));
            }
            prop_assert_eq!(index, ActiveIndex::default());
        }
    }
}
