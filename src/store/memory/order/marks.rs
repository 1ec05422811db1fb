//! Which classes and groups sleep, and what wakes them.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use super::super::pools::LimitRow;
use super::{Class, ClassKey, Closed, Order, Sleeps};
use crate::admission::{Cause, LaneId, LaneKey, Mark, Pair, ShareTurn, Subject};
use crate::id::{LimitKey, PoolName, QueueName};
use crate::pool::Slots;
use crate::time::Timestamp;

/// Making and removing marks.
impl Order {
    pub(in crate::store::memory) fn sleeps(&self, id: LaneId) -> bool {
        let Some(group) = self.lanes.get(&id).and_then(|filed| self.groups.get(&filed.group)) else {
            return false;
        };
        let class = self.classes.get(&group.class);
        group.asleep.is_some() || class.is_some_and(|class| class.closed.is_some())
    }

    /// Makes a mark for a lane with these needs. All lanes must be filed.
    pub(in crate::store::memory) fn mark(
        &mut self,
        mark: &Mark,
        key: &LaneKey,
        turn: impl Fn(&Pair) -> ShareTurn,
    ) {
        let (Mark::Class { lane, .. } | Mark::Group { lane, .. }) = mark;
        if !self.lanes.contains_key(lane) {
            return;
        }
        match mark {
            Mark::Class { by: Subject::Pool(full), is_full: true, .. } => {
                self.close_class(*lane, Closed::Full(full.clone()));
            }
            Mark::Class { by, .. } => self.close_class(*lane, Closed::By(by.clone())),
            Mark::Group { cause, next, .. } => {
                if self.causes.get(lane) != Some(cause) {
                    let head = self.lanes.get(lane).map(|filed| (filed.head, key));
                    self.causes.insert(*lane, cause.clone());
                    self.file(&[(*lane, head)], turn);
                }
                self.put_to_sleep(*lane, cause, *next);
            }
        }
    }

    fn close_class(&mut self, lane: LaneId, closed: Closed) {
        let Some(number) = self.class_of(lane) else { return };
        self.open_class(number);
        let Some(class) = self.classes.get_mut(&number) else { return };
        match &closed {
            Closed::Full(pool) => {
                let needs = class.needs(pool);
                self.full.entry(pool.clone()).or_default().insert((needs, number));
            }
            Closed::By(subject) => {
                self.closed.entry(subject.clone()).or_default().insert(number);
            }
        }
        class.closed = Some(closed);
        self.refile_class(number);
    }

    fn queue_of(&self, group: i64) -> Option<QueueName> {
        Some(self.classes.get(&self.groups.get(&group)?.class)?.key.0.clone())
    }

    fn class_of(&self, lane: LaneId) -> Option<i64> {
        Some(self.groups.get(&self.lanes.get(&lane)?.group)?.class)
    }

    fn put_to_sleep(&mut self, lane: LaneId, cause: &Cause, next: Option<Timestamp>) {
        let Some(number) = self.lanes.get(&lane).map(|filed| filed.group) else { return };
        self.wake_group(number);
        let Some(group) = self.groups.get_mut(&number) else { return };
        group.asleep = Some(next);
        match cause {
            Cause::Paused(subject) => {
                self.paused.entry(subject.clone()).or_default().insert(number);
            }
            Cause::Reached(key, _) | Cause::Spent(key) => {
                self.asleep.entry(key.clone()).or_default().insert(number);
            }
        }
        if let Some(next) = next {
            self.tokens.insert((next, number));
            if let Some(queue) = self.queue_of(number) {
                self.tokens_of.entry(queue).or_default().insert((next, number));
            }
        }
        self.refile_group(number);
    }

    pub(super) fn open_class(&mut self, number: i64) {
        let Some(class) = self.classes.get_mut(&number) else { return };
        match class.closed.take() {
            None => return,
            Some(Closed::By(subject)) => remove(&mut self.closed, &subject, &number),
            Some(Closed::Full(pool)) => {
                let needs = class.needs(&pool);
                remove(&mut self.full, &pool, &(needs, number));
            }
        }
        self.refile_class(number);
    }

    pub(super) fn wake_group(&mut self, number: i64) {
        let Some(next) = self.groups.get_mut(&number).and_then(|group| group.asleep.take()) else { return };
        if let Some(next) = next {
            self.tokens.remove(&(next, number));
            if let Some(queue) = self.queue_of(number) {
                remove(&mut self.tokens_of, &queue, &(next, number));
            }
        }
        let Some(group) = self.groups.get(&number) else { return };
        match &group.cause {
            Some(Cause::Reached(key, _) | Cause::Spent(key)) => {
                if let Some(asleep) = self.asleep.get_mut(key) {
                    asleep.remove(&number);
                    if asleep.is_empty() {
                        self.asleep.remove(key);
                    }
                }
            }
            Some(Cause::Paused(subject)) => remove(&mut self.paused, subject, &number),
            None => {}
        }
        if !group.lanes.is_empty() {
            self.refile_group(number);
        }
    }
}

/// Waking.
impl Order {
    /// Removes the marks of classes that fit into this pool now. If its size has changed, also removes those
    /// for which it was unknown or too small.
    pub(in crate::store::memory) fn wake_pool(
        &mut self,
        pool: &PoolName,
        was: Option<(Slots, Option<i64>)>,
        now: Option<(Slots, Option<i64>)>,
    ) {
        let (size, open) = (now.map(|(slots, _)| slots), now.and_then(|(_, open)| open));
        if was.map(|(slots, _)| slots) != size {
            self.open_closed(&Subject::Pool(pool.clone()));
        } else if was.and_then(|(_, open)| open).is_some_and(|was| open.is_some_and(|open| open <= was)) {
            return;
        }
        let fits = |closed: &BTreeSet<(u32, i64)>| -> Vec<i64> {
            // If there is no number of open slots, the pool was removed or is unlimited.
            let fits = |needs: u32| open.is_none_or(|open| i64::from(needs) <= open);
            closed.iter().take_while(|(needs, _)| fits(*needs)).map(|(_, class)| *class).collect()
        };
        for class in self.full.get(pool).map(fits).unwrap_or_default() {
            self.open_class(class);
        }
    }

    /// Removes the marks of classes that this queue or pool closes, except those closed because a pool is
    /// full.
    fn open_closed(&mut self, by: &Subject) {
        for class in self.closed.get(by).cloned().unwrap_or_default() {
            self.open_class(class);
        }
    }

    /// Removes the marks caused by a pause of this subject.
    pub(in crate::store::memory) fn wake_resumed(&mut self, subject: &Subject) {
        self.open_closed(subject);
        for group in self.paused.get(subject).cloned().unwrap_or_default() {
            self.wake_group(group);
        }
    }

    /// Removes the marks of a key if less counts against it than before, or if its definition has changed.
    /// Notes that its weight may have changed.
    pub(in crate::store::memory) fn wake_limit(&mut self, key: &LimitKey, was: LimitRow, now: LimitRow) {
        if now.used < was.used || (LimitRow { used: 0, ..was }) != (LimitRow { used: 0, ..now }) {
            self.wake_key(key);
            self.changed_share(key);
        }
    }

    /// Does the same for all keys with this prefix.
    pub(in crate::store::memory) fn wake_family(&mut self, prefix: &LimitKey) {
        let keys = self.asleep.range(prefix.clone()..);
        let keys = keys.take_while(|(key, _)| key.as_str().starts_with(prefix.as_str()));
        for group in keys.flat_map(|(_, groups)| groups.iter().copied()).collect::<Vec<_>>() {
            self.wake_group(group);
        }
        let shares = self.contenders_of.keys().filter(|share| share.as_str().starts_with(prefix.as_str()));
        self.changed_shares.extend(shares.cloned());
    }

    pub(in crate::store::memory) fn wake_key(&mut self, key: &LimitKey) {
        for group in self.asleep.get(key).cloned().unwrap_or_default() {
            self.wake_group(group);
        }
    }

    /// Removes at most `most` marks of these queues that expire by this instant.
    pub(in crate::store::memory) fn wake_by(
        &mut self,
        clock: Timestamp,
        queues: Option<&BTreeSet<QueueName>>,
        most: usize,
    ) {
        let due = |tokens: &BTreeSet<(Timestamp, i64)>, most: usize| -> Vec<i64> {
            let due = tokens.iter().take_while(|(next, _)| *next <= clock);
            due.take(most).map(|(_, group)| *group).collect()
        };
        let mut groups = Vec::new();
        match queues {
            None => groups = due(&self.tokens, most),
            Some(queues) => {
                for tokens in queues.iter().filter_map(|queue| self.tokens_of.get(queue)) {
                    groups.extend(due(tokens, most - groups.len()));
                }
            }
        }
        for group in groups {
            self.wake_group(group);
        }
    }

    /// Returns when the first mark of these queues expires.
    pub(in crate::store::memory) fn next_token(
        &self,
        queues: Option<&BTreeSet<QueueName>>,
    ) -> Option<Timestamp> {
        let first = |tokens: &BTreeSet<(Timestamp, i64)>| tokens.first().map(|(next, _)| *next);
        match queues {
            None => first(&self.tokens),
            Some(queues) => queues.iter().filter_map(|queue| first(self.tokens_of.get(queue)?)).min(),
        }
    }

    /// Removes all marks.
    pub(in crate::store::memory) fn wake_all(&mut self) {
        let full = self.full.values().flatten().map(|(_, class)| *class);
        for class in full.chain(self.closed.values().flatten().copied()).collect::<Vec<_>>() {
            self.open_class(class);
        }
        let asleep = self.asleep.values().chain(self.paused.values()).flatten().copied();
        for group in asleep.collect::<Vec<_>>() {
            self.wake_group(group);
        }
    }

    /// Returns each mark, with the queue and the pools of the tasks that it refuses.
    pub(in crate::store::memory) fn marks(&self) -> impl Iterator<Item = Marked<'_>> {
        let closed = self.classes.values().filter_map(|class| {
            let mark = match class.closed.as_ref()? {
                Closed::Full(pool) => Sleeps::Full(pool),
                Closed::By(subject) => Sleeps::By(subject),
            };
            Some((&class.key, mark))
        });
        let asleep = self.groups.values().filter_map(|group| {
            let sleeps = Sleeps::Asleep(group.cause.as_ref()?, group.asleep?);
            Some((&self.classes.get(&group.class)?.key, sleeps))
        });
        closed.chain(asleep)
    }

    /// Returns the lanes that were moved to a group with a cause, and that cause.
    pub(in crate::store::memory) fn causes(&self) -> impl Iterator<Item = (LaneId, &Cause)> {
        self.causes.iter().map(|(lane, cause)| (*lane, cause))
    }
}

/// Removes an entry, and also its set if that is then empty.
fn remove<K: Hash + Eq, T: Ord>(sets: &mut HashMap<K, BTreeSet<T>>, key: &K, entry: &T) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(entry);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}

impl Class {
    /// Returns the number of slots of a pool that the lanes of the class need.
    fn needs(&self, pool: &PoolName) -> u32 {
        self.key.1.iter().find(|(name, _)| name == pool).map_or(0, |(_, slots)| *slots)
    }
}

pub(in crate::store::memory) type Marked<'a> = (&'a ClassKey, Sleeps<'a>);
