//! Walks over lanes that do not sleep, in the order of their first tasks.
//!
//! A *class* is all lanes of one queue that need the same slots of the same pools. A *group* is the lanes of a class
//! whose last refusal was by the same key. A mark closes a whole class or group. The entries that do not sleep are
//! ordered on three levels: lanes within their group, groups within their class, and classes.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use crate::admission::{LaneId, OrderKey};
use crate::id::QueueName;

/// Where the walk looks for the next entry.
#[derive(Debug, Clone, Copy)]
pub(super) enum Of<'a> {
    /// Among the classes of a queue, or of all queues, that do not sleep.
    Queue(Option<&'a QueueName>),
    /// Among the groups of this class that do not sleep.
    Class(i64),
    /// Among the lanes of this group.
    Group(i64),
}

/// The number of a class, a group or a lane, and its first task that does not sleep.
pub(super) type Entry = (OrderKey, i64);

/// Lanes in order, and the place after which there are others. `None` if there are none.
pub(super) type Page = (Vec<LaneId>, Option<OrderKey>);

/// Returns the first lanes of these queues after this place that do not sleep. `next` returns the first entry after a
/// place.
///
/// Reads the entries that do not sleep up to the last of these lanes. After that lane it reads only the next entry of
/// each class and group that it has entered.
pub(super) fn awake<E>(
    queues: Option<&BTreeSet<QueueName>>,
    after: OrderKey,
    limit: usize,
    mut next: impl FnMut(Of<'_>, OrderKey) -> Result<Option<Entry>, E>,
) -> Result<Page, E> {
    let lines: Vec<Option<&QueueName>> =
        queues.map_or_else(|| vec![None], |queues| queues.iter().map(Some).collect());
    let mut heap = BinaryHeap::new();
    for (line, queue) in lines.iter().enumerate() {
        let first = next(Of::Queue(*queue), OrderKey::FIRST)?;
        heap.extend(first.map(|(head, class)| Reverse((head, Step::Class { line, class }))));
    }
    walk(&lines, heap, after, limit, next)
}

/// Returns the first lanes of one class after this place that do not sleep.
pub(super) fn awake_in<E>(
    class: i64,
    after: OrderKey,
    limit: usize,
    mut next: impl FnMut(Of<'_>, OrderKey) -> Result<Option<Entry>, E>,
) -> Result<Page, E> {
    let first = next(Of::Class(class), OrderKey::FIRST)?;
    let first = first.map(|(head, group)| Reverse((head, Step::Group { class, group })));
    walk(&[], first.into_iter().collect(), after, limit, next)
}

fn walk<E>(
    lines: &[Option<&QueueName>],
    mut heap: BinaryHeap<Reverse<(OrderKey, Step)>>,
    after: OrderKey,
    limit: usize,
    mut next: impl FnMut(Of<'_>, OrderKey) -> Result<Option<Entry>, E>,
) -> Result<Page, E> {
    let (mut found, mut last) = (Vec::new(), after);
    while let Some(Reverse((head, step))) = heap.pop() {
        // Each step queues two more: `beside` is the next entry on the same level, and `within` is the first entry
        // inside it. Inside a group, that is the first lane after `after`.
        let (beside, within) = match step {
            Step::Class { line, class } => (
                next(Of::Queue(lines[line]), head)?.map(|(head, class)| (head, Step::Class { line, class })),
                next(Of::Class(class), OrderKey::FIRST)?
                    .map(|(head, group)| (head, Step::Group { class, group })),
            ),
            Step::Group { class, group } => (
                next(Of::Class(class), head)?.map(|(head, group)| (head, Step::Group { class, group })),
                next(Of::Group(group), after)?.map(|(head, lane)| (head, Step::Lane { group, lane })),
            ),
            Step::Lane { group, lane } => {
                if found.len() >= limit {
                    return Ok((found, Some(last)));
                }
                found.push(LaneId(lane));
                last = head;
                let beside = next(Of::Group(group), head)?;
                (beside.map(|(head, lane)| (head, Step::Lane { group, lane })), None)
            }
        };
        heap.extend(beside.into_iter().chain(within).map(Reverse));
    }
    Ok((found, None))
}

/// The entry that the walk visits next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Class { line: usize, class: i64 },
    Group { class: i64, group: i64 },
    Lane { group: i64, lane: i64 },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::TaskId;
    use crate::time::Timestamp;

    fn place(rank: i64) -> OrderKey {
        OrderKey::new(rank, Timestamp::UNIX_EPOCH, None, TaskId(rank))
    }

    /// A class whose two groups have the lanes with odd and with even numbers. Each lane stands at its number.
    fn next(of: Of<'_>, after: OrderKey) -> Result<Option<Entry>, ()> {
        let (entries, step): (std::ops::RangeInclusive<i64>, _) = match of {
            Of::Queue(_) => (1..=1, 1),
            Of::Class(_) => (1..=2, 1),
            Of::Group(group) => (group..=10, 2),
        };
        Ok(entries.step_by(step).map(|number| (place(number), number)).find(|(at, _)| *at > after))
    }

    /// A walk that began at the first lane each time would return the right lanes, too, once its pages are large enough.
    #[test]
    fn each_page_begins_behind_the_last() {
        let (mut pages, mut after) = (Vec::new(), Some(OrderKey::FIRST));
        while let Some(place) = after.filter(|_| pages.len() < 5) {
            let page = awake(None, place, 4, next).unwrap();
            let in_class = awake_in(1, place, 4, next).unwrap();
            assert_eq!(in_class, page);
            pages.push(page.0.iter().map(|lane| lane.0).collect::<Vec<_>>());
            after = page.1;
        }
        assert_eq!(pages, [vec![1, 2, 3, 4], vec![5, 6, 7, 8], vec![9, 10]]);
    }
}
