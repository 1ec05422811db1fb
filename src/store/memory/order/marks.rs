//! Which classes and groups sleep, and what wakes them.

use std::collections::BTreeSet;

use super::super::pools::LimitRow;
use super::{ClassKey, Order, Sleeps};
use crate::admission::{Cause, LaneId, LaneKey, Mark, Pair, ShareTurn};
use crate::id::{LimitKey, PoolName, QueueName};
use crate::pool::Slots;
use crate::time::Timestamp;

/// Marks.
impl Order {
    pub(in crate::store::memory) fn sleeps(&self, id: LaneId) -> bool {
        let Some(group) = self.lanes.get(&id).and_then(|filed| self.groups.get(&filed.group)) else {
            return false;
        };
        let class = self.classes.get(&group.class);
        group.asleep.is_some() || class.is_some_and(|class| class.closed.is_some())
    }

    /// Makes a mark, of a lane with these needs. All lanes are filed.
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
            Mark::Class { full, .. } => self.close_class(*lane, full.as_ref()),
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

    fn close_class(&mut self, lane: LaneId, full: Option<&PoolName>) {
        let Some(number) = self.class_of(lane) else { return };
        self.open_class(number);
        let Some(class) = self.classes.get_mut(&number) else { return };
        class.closed = Some(full.cloned());
        match full {
            Some(pool) => {
                let needs = class.key.1.iter().find(|(name, _)| name == pool).map_or(0, |(_, slots)| *slots);
                self.full.entry(pool.clone()).or_default().insert((needs, number));
            }
            None => drop(self.closed.insert(number)),
        }
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
            Cause::Paused(_) => drop(self.paused.insert(number)),
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
            Some(None) => drop(self.closed.remove(&number)),
            Some(Some(pool)) => {
                let needs = class.key.1.iter().find(|(name, _)| *name == pool).map_or(0, |(_, slots)| *slots);
                if let Some(closed) = self.full.get_mut(&pool) {
                    closed.remove(&(needs, number));
                    if closed.is_empty() {
                        self.full.remove(&pool);
                    }
                }
            }
        }
        self.refile_class(number);
    }

    pub(super) fn wake_group(&mut self, number: i64) {
        let Some(next) = self.groups.get_mut(&number).and_then(|group| group.asleep.take()) else { return };
        if let Some(next) = next {
            self.tokens.remove(&(next, number));
            if let Some(queue) = self.queue_of(number)
                && let Some(of_queue) = self.tokens_of.get_mut(&queue)
            {
                of_queue.remove(&(next, number));
                if of_queue.is_empty() {
                    self.tokens_of.remove(&queue);
                }
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
            Some(Cause::Paused(_)) | None => drop(self.paused.remove(&number)),
        }
        if !group.lanes.is_empty() {
            self.refile_group(number);
        }
    }
}

/// What wakes.
impl Order {
    /// Removes the marks of a pool which has more open slots than before, or all if its size has changed.
    pub(in crate::store::memory) fn wake_pool(
        &mut self,
        pool: &PoolName,
        was: Option<(Slots, Option<i64>)>,
        now: Option<(Slots, Option<i64>)>,
    ) {
        if was.map(|(slots, _)| slots) != now.map(|(slots, _)| slots) {
            return self.wake_all();
        }
        let Some(open) = now.and_then(|(_, open)| open).filter(|open| *open > 0) else { return };
        if was.and_then(|(_, open)| open).is_some_and(|was| open <= was) {
            return;
        }
        let fits = |closed: &BTreeSet<(u32, i64)>| -> Vec<i64> {
            closed
                .iter()
                .take_while(|(needs, _)| i64::from(*needs) <= open)
                .map(|(_, class)| *class)
                .collect()
        };
        for class in self.full.get(pool).map(fits).unwrap_or_default() {
            self.open_class(class);
        }
    }

    /// Removes the marks of a key against which less counts than before, or all if its definition has changed.
    pub(in crate::store::memory) fn wake_limit(&mut self, key: &LimitKey, was: LimitRow, now: LimitRow) {
        if (LimitRow { used: 0, ..was }) != (LimitRow { used: 0, ..now }) {
            self.wake_all();
        } else if now.used < was.used {
            self.wake_key(key);
        }
    }

    pub(in crate::store::memory) fn wake_key(&mut self, key: &LimitKey) {
        for group in self.asleep.get(key).cloned().unwrap_or_default() {
            self.wake_group(group);
        }
    }

    /// Removes marks of these queues that end by themselves until this instant, at most so many.
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

    /// Returns when the first mark of these queues ends by itself.
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

    /// Removes all marks. A definition may have changed weights, too.
    pub(in crate::store::memory) fn wake_all(&mut self) {
        self.weights_changed = true;
        let full = self.full.values().flatten().map(|(_, class)| *class);
        for class in full.chain(self.closed.iter().copied()).collect::<Vec<_>>() {
            self.open_class(class);
        }
        let asleep = self.asleep.values().flatten().chain(&self.paused).copied();
        for group in asleep.collect::<Vec<_>>() {
            self.wake_group(group);
        }
    }

    /// Returns each mark, with the queue and the pools of what it refuses.
    pub(in crate::store::memory) fn marks(&self) -> impl Iterator<Item = Marked<'_>> {
        let closed = self
            .classes
            .values()
            .filter_map(|class| Some((&class.key, Sleeps::Closed(class.closed.as_ref()?))));
        let asleep = self.groups.values().filter_map(|group| {
            let sleeps = Sleeps::Asleep(group.cause.as_ref()?, group.asleep?);
            Some((&self.classes.get(&group.class)?.key, sleeps))
        });
        closed.chain(asleep)
    }

    /// Returns the lanes that were moved to a group, with its cause.
    pub(in crate::store::memory) fn causes(&self) -> impl Iterator<Item = (LaneId, &Cause)> {
        self.causes.iter().map(|(lane, cause)| (*lane, cause))
    }
}

pub(in crate::store::memory) type Marked<'a> = (&'a ClassKey, Sleeps<'a>);
