//! Many lanes: those without a share by their first tasks, and which of them sleep.
//!
//! Classes and groups are those of [`awake`](crate::store::awake).
//!
//! A first task that changes is noted alone, and filed when lanes are asked for in order. So a store with few lanes pays
//! for none of this. Nothing here is undone by a transaction: it follows from rows, and marks go with what they depend on.

mod marks;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;

use crate::admission::{Cause, LaneId, LaneKey, OrderKey, Subject};
use crate::id::{LimitKey, PoolName, QueueName};
use crate::store::awake::{Entry, Of};
use crate::store::marks::{ClassKey, Sleeps};
use crate::time::Timestamp;

pub(super) use marks::Marked;

type Line<T> = BTreeMap<OrderKey, T>;

#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Order {
    /// The lanes whose first tasks may have changed since they were filed.
    changed: HashSet<LaneId>,
    lanes: HashMap<LaneId, Filed>,
    /// What was the cause of a lane's last refusal by a key of its own.
    causes: HashMap<LaneId, Cause>,
    /// The classes that do not sleep, each by its first task in a group that does not.
    awake: Lines<i64>,
    classes: HashMap<i64, Class>,
    class_numbers: HashMap<ClassKey, i64>,
    groups: HashMap<i64, Group>,
    group_numbers: HashMap<(i64, Option<Cause>), i64>,
    last: i64,
    /// The classes that are closed, by the pool that is too full, with the slots that they need of it.
    full: HashMap<PoolName, BTreeSet<(u32, i64)>>,
    /// The classes that are closed for another reason, by their queue or the pool.
    closed: HashMap<Subject, BTreeSet<i64>>,
    /// The groups that sleep, by the key that they wait for.
    asleep: BTreeMap<LimitKey, BTreeSet<i64>>,
    /// Those that sleep until a key or a family is resumed.
    paused: HashMap<Subject, BTreeSet<i64>>,
    /// The groups that wake on their own.
    tokens: BTreeSet<(Timestamp, i64)>,
    /// The same, by queue.
    tokens_of: HashMap<QueueName, BTreeSet<(Timestamp, i64)>>,
}

#[derive(Debug, Clone)]
struct Filed {
    head: OrderKey,
    group: i64,
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct Class {
    key: ClassKey,
    groups: BTreeSet<i64>,
    awake: Line<i64>,
    closed: Option<Closed>,
    filed: Option<OrderKey>,
}

/// What closes a class.
#[derive(Debug, Clone)]
enum Closed {
    /// A pool with too few open slots.
    Full(PoolName),
    /// Its queue, which is paused, or a pool that is paused, unknown or too small.
    By(Subject),
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct Group {
    class: i64,
    cause: Option<Cause>,
    lanes: Line<i64>,
    /// Until when, if that is known.
    asleep: Option<Option<Timestamp>>,
    filed: Option<OrderKey>,
}

/// Something by its first task, of all queues and of each.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct Lines<T> {
    all: Line<T>,
    of: HashMap<QueueName, Line<T>>,
}

impl<T> Default for Lines<T> {
    fn default() -> Self {
        Self { all: Line::new(), of: HashMap::new() }
    }
}

impl<T: Copy> Lines<T> {
    fn insert(&mut self, queue: &QueueName, head: OrderKey, entry: T) {
        self.all.insert(head, entry);
        self.of.entry(queue.clone()).or_default().insert(head, entry);
    }

    fn remove(&mut self, queue: &QueueName, head: OrderKey) {
        self.all.remove(&head);
        if let Some(line) = self.of.get_mut(queue) {
            line.remove(&head);
            if line.is_empty() {
                self.of.remove(queue);
            }
        }
    }
}

/// What is filed.
impl Order {
    /// Notes that the first task of a lane may have changed.
    pub(super) fn changed(&mut self, id: LaneId) {
        if !id.keeps_slots() {
            self.changed.insert(id);
        }
    }

    pub(super) fn take_changed(&mut self) -> HashSet<LaneId> {
        std::mem::take(&mut self.changed)
    }

    /// Forgets a lane that is gone.
    pub(super) fn forget(&mut self, id: LaneId) {
        self.changed.remove(&id);
        self.file(&[(id, None)]);
        self.causes.remove(&id);
    }

    /// Files lanes by their first tasks, or takes them out. A task may have gone from one of them to another: first all
    /// that changes is taken out, on every level.
    pub(super) fn file(&mut self, lanes: &[(LaneId, Option<(OrderKey, &LaneKey)>)]) {
        let mut touched = BTreeSet::new();
        for (id, _) in lanes {
            let Some(filed) = self.lanes.remove(id) else { continue };
            touched.insert(filed.group);
            let Some(group) = self.groups.get_mut(&filed.group) else { continue };
            group.lanes.remove(&filed.head);
            let old = group.filed.take();
            let Some(class) = self.classes.get_mut(&group.class) else { continue };
            old.map(|head| class.awake.remove(&head));
            if let Some(head) = class.filed.take() {
                self.awake.remove(&class.key.0, head);
            }
        }
        for (id, head) in lanes {
            let Some((head, key)) = *head else { continue };
            let group = self.group_of(*id, key);
            touched.insert(group);
            self.lanes.insert(*id, Filed { head, group });
            if let Some(group) = self.groups.get_mut(&group) {
                group.lanes.insert(head, id.0);
            }
        }
        for group in touched {
            self.refile_group(group);
        }
    }

    /// Returns the group of a lane, which it makes if necessary.
    fn group_of(&mut self, id: LaneId, key: &LaneKey) -> i64 {
        let pools = key.pools().map(|(pool, slots)| (pool.clone(), slots)).collect();
        let class_key = (key.queue.clone(), pools);
        let class = self.class_numbers.get(&class_key).copied().unwrap_or_else(|| {
            self.last += 1;
            self.class_numbers.insert(class_key.clone(), self.last);
            let (groups, awake) = (BTreeSet::new(), Line::new());
            self.classes
                .insert(self.last, Class { key: class_key, groups, awake, closed: None, filed: None });
            self.last
        });
        let cause = self.causes.get(&id).cloned();
        if let Some(group) = self.group_numbers.get(&(class, cause.clone())) {
            return *group;
        }
        self.last += 1;
        self.group_numbers.insert((class, cause.clone()), self.last);
        self.groups.insert(self.last, Group { class, cause, lanes: Line::new(), asleep: None, filed: None });
        if let Some(class) = self.classes.get_mut(&class) {
            class.groups.insert(self.last);
        }
        self.last
    }

    /// Files a group by its first task where it belongs. Forgets an empty one, with its mark.
    fn refile_group(&mut self, number: i64) {
        let Some(group) = self.groups.get_mut(&number) else { return };
        let first = group.lanes.first_key_value().map(|(head, _)| *head);
        let due = first.filter(|_| group.asleep.is_none());
        let (class, was) = (group.class, std::mem::replace(&mut group.filed, due));
        if let Some(work) = self.classes.get_mut(&class)
            && was != due
        {
            was.map(|head| work.awake.remove(&head));
            due.map(|head| work.awake.insert(head, number));
        }
        if first.is_none() {
            self.wake_group(number);
            if let Some(group) = self.groups.remove(&number) {
                self.group_numbers.remove(&(class, group.cause));
            }
            if let Some(work) = self.classes.get_mut(&class) {
                work.groups.remove(&number);
            }
        }
        self.refile_class(class);
    }

    fn refile_class(&mut self, number: i64) {
        let Some(class) = self.classes.get_mut(&number) else { return };
        let first = class.awake.first_key_value().map(|(head, _)| *head);
        let due = first.filter(|_| class.closed.is_none());
        let was = std::mem::replace(&mut class.filed, due);
        if was != due {
            if let Some(head) = was {
                self.awake.remove(&class.key.0, head);
            }
            if let Some(head) = due {
                self.awake.insert(&class.key.0, head, number);
            }
        }
        if class.groups.is_empty() {
            self.open_class(number);
            if let Some(class) = self.classes.remove(&number) {
                self.class_numbers.remove(&class.key);
            }
        }
    }

    /// Returns the first entry behind this place.
    pub(super) fn next(&self, of: Of<'_>, behind: OrderKey) -> Option<Entry> {
        let line = match of {
            Of::Queue(None) => &self.awake.all,
            Of::Queue(Some(queue)) => self.awake.of.get(queue)?,
            Of::Class(class) => &self.classes.get(&class)?.awake,
            Of::Group(group) => &self.groups.get(&group)?.lanes,
        };
        line.range((Bound::Excluded(behind), Bound::Unbounded)).next().map(|(head, number)| (*head, *number))
    }
}

/// It follows from the rows, but for marks, which may be missing.
#[cfg(test)]
impl PartialEq for Order {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
