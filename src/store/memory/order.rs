//! The order of many lanes: lanes without a share by their first tasks, lanes of shares by their turns. Also
//! records which of them sleep.
//!
//! Classes and groups are those of [`awake`](crate::store::awake). A *contender* consists of all groups of a
//! class with the same share and level.
//!
//! If the first task of a lane changes, only the lane is noted. It is filed when lanes are requested in
//! order, so this costs nothing in a store with few lanes. A rollback undoes nothing here: everything follows
//! from rows, and marks are removed with what they depend on.

mod contenders;
mod marks;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;

use crate::admission::{Cause, LaneId, LaneKey, OrderKey, Pair, ShareTurn, Subject, Turn};
use crate::id::{LimitKey, PoolName, QueueName};
use crate::store::awake::{Entry, Of};
use crate::store::marks::{ClassKey, Sleeps};
use crate::time::Timestamp;

use contenders::Contender;

pub(super) use marks::Marked;

type Line<T> = BTreeMap<OrderKey, T>;

#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Order {
    /// The lanes whose first tasks may have changed since they were filed.
    changed: BTreeSet<LaneId>,
    lanes: HashMap<LaneId, Filed>,
    /// The cause of each lane's last refusal by one of its own keys.
    causes: HashMap<LaneId, Cause>,
    /// The classes that do not sleep, by the first task in a group that does not sleep.
    awake: Lines<OrderKey>,
    /// The same, by the first turn of a share in the class.
    turns: Lines<Turn>,
    contenders: HashMap<i64, Contender>,
    /// The numbers of contenders by share, then by class and level.
    contenders_of: HashMap<LimitKey, BTreeMap<(i64, i64), i64>>,
    /// The shares whose turns may have changed since they were filed.
    changed_shares: HashSet<LimitKey>,
    classes: HashMap<i64, Class>,
    class_numbers: HashMap<ClassKey, i64>,
    groups: HashMap<i64, Group>,
    /// The numbers of groups by their contender or class, and cause.
    group_numbers: HashMap<(i64, Option<Cause>), i64>,
    last: i64,
    /// The classes that are closed by a pool that is too full, by pool, with the slots that they need of it.
    full: HashMap<PoolName, BTreeSet<(u32, i64)>>,
    /// The classes that are closed for another reason, by the queue or pool that closes them.
    closed: HashMap<Subject, BTreeSet<i64>>,
    /// The groups that sleep, by the key that they wait for.
    asleep: BTreeMap<LimitKey, BTreeSet<i64>>,
    /// The groups that sleep until a key or a family is resumed.
    paused: HashMap<Subject, BTreeSet<i64>>,
    /// The groups that wake on their own, by the instant.
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
    /// The groups without a share.
    awake: Line<i64>,
    /// The contenders, by their turns.
    turns: BTreeMap<Turn, i64>,
    closed: Option<Closed>,
    filed: Option<OrderKey>,
    filed_turn: Option<Turn>,
}

impl Class {
    fn new(key: ClassKey) -> Self {
        let (groups, awake, turns) = (BTreeSet::new(), Line::new(), BTreeMap::new());
        Self { key, groups, awake, turns, closed: None, filed: None, filed_turn: None }
    }
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
    /// The contender, or the class itself.
    parent: i64,
    cause: Option<Cause>,
    lanes: Line<i64>,
    /// Set while the group sleeps; the inner value is the instant at which it wakes, if that is known.
    asleep: Option<Option<Timestamp>>,
    filed: Option<OrderKey>,
}

/// Entries by their first task or turn: those of all queues, and those of each queue.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct Lines<K> {
    all: BTreeMap<K, i64>,
    of: HashMap<QueueName, BTreeMap<K, i64>>,
}

impl<K> Default for Lines<K> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), of: HashMap::new() }
    }
}

impl<K: Ord + Clone> Lines<K> {
    /// Moves an entry of this queue from where it was filed to `due`, or removes it.
    fn refile(&mut self, queue: &QueueName, filed: &mut Option<K>, due: Option<K>, number: i64) {
        if *filed != due {
            let line = self.of.entry(queue.clone()).or_default();
            refile(&mut self.all, &mut filed.clone(), due.clone(), number);
            refile(line, filed, due, number);
            if line.is_empty() {
                self.of.remove(queue);
            }
        }
    }

    fn of(&self, queue: Option<&QueueName>) -> Option<&BTreeMap<K, i64>> {
        queue.map_or(Some(&self.all), |queue| self.of.get(queue))
    }
}

/// Moves an entry from where it was filed to `due`, or removes it.
fn refile<K: Ord + Clone>(line: &mut BTreeMap<K, i64>, filed: &mut Option<K>, due: Option<K>, number: i64) {
    if *filed != due {
        filed.take().map(|was| line.remove(&was));
        due.clone().map(|due| line.insert(due, number));
        *filed = due;
    }
}

/// Filing lanes, groups and classes.
impl Order {
    /// Notes that the first task of a lane may have changed.
    pub(super) fn changed(&mut self, id: LaneId) {
        if !id.keeps_slots() {
            self.changed.insert(id);
        }
    }

    pub(super) fn take_changed(&mut self) -> BTreeSet<LaneId> {
        std::mem::take(&mut self.changed)
    }

    /// Notes that a share's slots, stamp or weight may have changed.
    pub(super) fn changed_share(&mut self, share: &LimitKey) {
        if self.contenders_of.contains_key(share) {
            self.changed_shares.insert(share.clone());
        }
    }

    /// Forgets a deleted lane.
    pub(super) fn forget(&mut self, id: LaneId) {
        self.changed.remove(&id);
        if let Some(group) = self.take_out(id) {
            self.refile_group(group);
        }
        self.causes.remove(&id);
    }

    /// Files lanes by their first tasks, or removes them, and files shares by their turns. A task may have
    /// moved from one lane to another, so everything that changes is first taken out on every level.
    pub(super) fn file(
        &mut self,
        lanes: &[(LaneId, Option<(OrderKey, &LaneKey)>)],
        turn: impl Fn(&Pair) -> ShareTurn,
    ) {
        let mut touched: BTreeSet<i64> = lanes.iter().filter_map(|(id, _)| self.take_out(*id)).collect();
        let contenders = self.take_out_changed(&turn);
        for (id, head) in lanes {
            let Some((head, key)) = *head else { continue };
            let group = self.group_of(*id, key, &turn);
            touched.insert(group);
            self.lanes.insert(*id, Filed { head, group });
            if let Some(group) = self.groups.get_mut(&group) {
                group.lanes.insert(head, id.0);
            }
        }
        for group in touched {
            self.refile_group(group);
        }
        for contender in contenders {
            self.refile_contender(contender);
        }
    }

    /// Takes out a lane and everything that contains it, on every level. Returns the group that it was in.
    fn take_out(&mut self, id: LaneId) -> Option<i64> {
        let filed = self.lanes.remove(&id)?;
        if let Some(group) = self.groups.get_mut(&filed.group) {
            group.lanes.remove(&filed.head);
            let parent = group.parent;
            if let Some(contender) = self.contenders.get_mut(&parent) {
                refile(&mut contender.awake, &mut group.filed, None, filed.group);
                self.take_out_contender(parent);
            } else if let Some(class) = self.classes.get_mut(&parent) {
                refile(&mut class.awake, &mut group.filed, None, filed.group);
                self.awake.refile(&class.key.0, &mut class.filed, None, parent);
            }
        }
        Some(filed.group)
    }

    /// Returns the group of a lane. Creates the group if necessary.
    fn group_of(&mut self, id: LaneId, key: &LaneKey, turn: impl Fn(&Pair) -> ShareTurn) -> i64 {
        let pools = key.pools().map(|(pool, slots)| (pool.clone(), slots)).collect();
        let class_key = (key.queue.clone(), pools);
        let class = self.class_numbers.get(&class_key).copied().unwrap_or_else(|| {
            self.last += 1;
            self.class_numbers.insert(class_key.clone(), self.last);
            self.classes.insert(self.last, Class::new(class_key));
            self.last
        });
        let parent = match &key.share {
            None => class,
            Some(share) => self.contender_of(class, (key.pool.clone(), share.clone()), key.level(), turn),
        };
        let cause = self.causes.get(&id).cloned();
        if let Some(group) = self.group_numbers.get(&(parent, cause.clone())) {
            return *group;
        }
        self.last += 1;
        self.group_numbers.insert((parent, cause.clone()), self.last);
        let group = Group { class, parent, cause, lanes: Line::new(), asleep: None, filed: None };
        self.groups.insert(self.last, group);
        if let Some(class) = self.classes.get_mut(&class) {
            class.groups.insert(self.last);
        }
        if let Some(contender) = self.contenders.get_mut(&parent) {
            contender.groups += 1;
        }
        self.last
    }

    /// Files a group by its first task. Forgets an empty group and its mark.
    fn refile_group(&mut self, number: i64) {
        let Some(group) = self.groups.get_mut(&number) else { return };
        let first = group.lanes.first_key_value().map(|(head, _)| *head);
        let due = first.filter(|_| group.asleep.is_none());
        let (class, parent) = (group.class, group.parent);
        let contender = self.contenders.get_mut(&parent).map(|contender| &mut contender.awake);
        let awake = contender.or_else(|| self.classes.get_mut(&class).map(|class| &mut class.awake));
        if let Some(awake) = awake {
            refile(awake, &mut group.filed, due, number);
        }
        if first.is_none() {
            self.wake_group(number);
            if let Some(group) = self.groups.remove(&number) {
                self.group_numbers.remove(&(parent, group.cause));
            }
            if let Some(work) = self.classes.get_mut(&class) {
                work.groups.remove(&number);
            }
            if let Some(contender) = self.contenders.get_mut(&parent) {
                contender.groups -= 1;
            }
        }
        if parent == class {
            self.refile_class(class);
        } else {
            self.refile_contender(parent);
        }
    }

    fn refile_class(&mut self, number: i64) {
        let Some(class) = self.classes.get_mut(&number) else { return };
        let is_open = class.closed.is_none();
        let first = class.awake.keys().next().filter(|_| is_open).copied();
        self.awake.refile(&class.key.0, &mut class.filed, first, number);
        let first = class.turns.keys().next().filter(|_| is_open).cloned();
        self.turns.refile(&class.key.0, &mut class.filed_turn, first, number);
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
            Of::Queue(queue) => self.awake.of(queue)?,
            Of::Class(number) => match self.contenders.get(&number) {
                // The class of a share's lanes may have gone to sleep since the last page.
                Some(contender) if self.classes.get(&contender.class)?.closed.is_some() => return None,
                Some(contender) => &contender.awake,
                None => &self.classes.get(&number)?.awake,
            },
            Of::Group(group) => &self.groups.get(&group)?.lanes,
        };
        line.range((Bound::Excluded(behind), Bound::Unbounded)).next().map(|(head, number)| (*head, *number))
    }
}

/// The order follows from the rows, except for marks, which may be missing. So it is not compared.
#[cfg(test)]
impl PartialEq for Order {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
