//! All rows of the store, and the only way to change them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use super::lanes::Lanes;
use super::pools::{LimitRow, Limits, Pools};
use super::requests::{Request, Requests};
use super::rules::Rules;
use super::runs::Runs;
use super::sensors::Sensors;
use super::shares::{ShareRow, Shares};
use super::tasks::{TaskRow, Tasks};
use crate::admission::limits::{LimitSpec, RateUse};
use crate::admission::{LaneId, LaneKey, Pair, Serving, Subject, WaitingCap};
use crate::feed::{Consumer, TaskEvent};
use crate::fingerprint::Fingerprint;
use crate::id::{Holder, LimitKey, PoolName, QueueName, RequestId, SensorKind};
use crate::lease::TaskId;
use crate::pool::PoolRecord;
use crate::run::{RunKey, RunRecord};
use crate::sensor::{PokeCounts, SensorRecord};
use crate::store::contract::{PokerRow, ShardLease, ShardTake};
use crate::task::PastAttempt;
use crate::time::Timestamp;

/// Everything that is stored.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, PartialEq))]
pub(super) struct State {
    pub(super) tasks: Tasks,
    pub(super) lanes: Lanes,
    pub(super) attempts: BTreeMap<TaskId, Vec<PastAttempt>>,
    pub(super) requests: Requests,
    pub(super) serving: BTreeMap<ServingKey, Box<Serving>>,
    pub(super) pools: Pools,
    pub(super) limits: Limits,
    pub(super) rules: Rules,
    pub(super) shares: Shares,
    pub(super) sensors: Sensors,
    pub(super) feed: BTreeMap<u64, Box<TaskEvent>>,
    pub(super) consumers: BTreeMap<Holder, Box<Consumer>>,
    pub(super) workers: BTreeMap<Holder, PokerRow>,
    pub(super) shards: BTreeMap<OfShard, ShardLease>,
    pub(super) takes: BTreeMap<(OfShard, i64), ShardTake>,
    /// The end of each outage, by target and start.
    pub(super) outages: BTreeMap<(Fingerprint, Timestamp), Option<Timestamp>>,
    pub(super) poke_counts: BTreeMap<CountKey, PokeCounts>,
    pub(super) runs: Runs,
    pub(super) last: Numbers,
}

/// A holder and the queues that it announced, or `None` for all queues.
pub(super) type ServingKey = (Holder, Option<BTreeSet<QueueName>>);

/// The numbers assigned last. Deleting a row does not free its number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Numbers {
    pub(super) task: i64,
    pub(super) lane: i64,
    /// The number of the last grant to a task of a share.
    pub(super) grants: i64,
    pub(super) sensor_change: u64,
    /// The highest last change of a deleted sensor.
    pub(super) forgotten_change: u64,
    pub(super) feed: u64,
}

/// A shard, or a kind of the shard that is lent.
pub(super) type OfShard = (u32, Option<SensorKind>);

/// The hour and kind of a count of pokes, and the worker that made it, with its incarnation.
pub(super) type CountKey = (Timestamp, SensorKind, Holder, u64);

/// Replaces a row; `None` deletes it.
#[derive(Debug)]
pub(super) enum Write {
    Task(TaskId, Option<Box<TaskRow>>),
    Lane(LaneId, Option<Arc<LaneKey>>),
    Attempts(TaskId, Option<Vec<PastAttempt>>),
    Request(RequestId, Option<Request>),
    Serving(ServingKey, Option<Box<Serving>>),
    Pool(PoolName, Option<Box<PoolRecord>>),
    Limit(LimitKey, Option<Box<LimitRow>>),
    Family(LimitKey, Option<Box<LimitSpec>>),
    Rate(LimitKey, Option<Box<RateUse>>),
    Share(Pair, Option<Box<ShareRow>>),
    /// Whether the subject is paused.
    Pause(Subject, bool),
    Cap(Subject, Option<WaitingCap>),
    Sensor(TaskId, Option<Box<SensorRecord>>),
    Feed(u64, Option<Box<TaskEvent>>),
    Consumer(Holder, Option<Box<Consumer>>),
    Worker(Holder, Option<Box<PokerRow>>),
    Shard(OfShard, Option<Box<ShardLease>>),
    Take((OfShard, i64), Option<Box<ShardTake>>),
    Outage((Fingerprint, Timestamp), Option<Option<Timestamp>>),
    PokeCounts(Box<CountKey>, Option<Box<PokeCounts>>),
    Run(RunKey, Option<Box<RunRecord>>),
}

impl State {
    /// Performs one write, and returns the write that undoes it.
    pub(super) fn swap(&mut self, write: Write) -> Write {
        match write {
            Write::Task(id, row) => {
                let old = self.tasks.swap(id, row, &mut self.lanes);
                Write::Task(id, old)
            }
            Write::Lane(id, key) => {
                if let Some(key) = &key {
                    self.limits.count_lane(key, Filing::In);
                }
                let old = self.lanes.swap(id, key);
                if let Some(old) = &old {
                    self.limits.count_lane(old, Filing::Out);
                }
                Write::Lane(id, old)
            }
            Write::Attempts(id, attempts) => {
                let old = replace(&mut self.attempts, &id, attempts);
                Write::Attempts(id, old)
            }
            Write::Request(id, request) => {
                let old = self.requests.swap(&id, request);
                Write::Request(id, old)
            }
            Write::Serving(key, serving) => {
                let old = replace(&mut self.serving, &key, serving);
                Write::Serving(key, old)
            }
            Write::Pool(name, pool) => {
                let open = pool.as_ref().map(|pool| (pool.spec.slots, pool.open()));
                let old = replace_named(&mut self.pools.rows, &name, pool);
                let was = old.as_ref().map(|pool| (pool.spec.slots, pool.open()));
                self.lanes.order.wake_pool(&name, was, open);
                Write::Pool(name, old)
            }
            Write::Limit(key, limit) => {
                let limit = limit.map(|limit| *limit);
                let old = self.limits.swap(&key, limit);
                self.lanes.order.wake_limit(&key, old.unwrap_or_default(), limit.unwrap_or_default());
                Write::Limit(key, old.map(Box::new))
            }
            Write::Family(prefix, family) => {
                let old = replace(&mut self.rules.families, &prefix, family.map(|family| *family));
                self.lanes.order.wake_family(&prefix);
                Write::Family(prefix, old.map(Box::new))
            }
            Write::Rate(key, used) => {
                let debt = used.as_ref().map(|used| (used.at, used.owed));
                let old = self.rules.swap_rate(&key, used.map(|used| *used));
                // The key is forgotten, or a rollback returns a token.
                if old.as_ref().is_some_and(|old| debt < Some((old.at, old.owed))) {
                    self.lanes.order.wake_key(&key);
                }
                Write::Rate(key, old.map(Box::new))
            }
            Write::Share(pair, row) => {
                self.lanes.order.changed_share(&pair.1);
                let old = self.shares.swap(&pair, row.map(|row| *row));
                Write::Share(pair, old.map(Box::new))
            }
            Write::Pause(subject, is_paused) => {
                let was = self.rules.paused.contains(&subject);
                let filing = if is_paused { Filing::In } else { Filing::Out };
                filing.entry(&mut self.rules.paused, subject.clone());
                if !is_paused {
                    self.lanes.order.wake_resumed(&subject);
                }
                Write::Pause(subject, was)
            }
            Write::Cap(subject, cap) => {
                let old = replace(&mut self.rules.caps, &subject, cap);
                Write::Cap(subject, old)
            }
            Write::Sensor(id, sensor) => Write::Sensor(id, self.sensors.swap(id, sensor)),
            Write::Feed(seq, event) => Write::Feed(seq, replace(&mut self.feed, &seq, event)),
            Write::Consumer(name, consumer) => {
                let old = replace(&mut self.consumers, &name, consumer);
                Write::Consumer(name, old)
            }
            Write::Worker(name, worker) => {
                let old = replace(&mut self.workers, &name, worker.map(|worker| *worker));
                Write::Worker(name, old.map(Box::new))
            }
            Write::Shard(shard, lease) => {
                let old = replace(&mut self.shards, &shard, lease.map(|lease| *lease));
                Write::Shard(shard, old.map(Box::new))
            }
            Write::Take(key, take) => {
                let old = replace(&mut self.takes, &key, take.map(|take| *take));
                Write::Take(key, old.map(Box::new))
            }
            Write::Outage(key, until) => Write::Outage(key, replace(&mut self.outages, &key, until)),
            Write::PokeCounts(key, counts) => {
                let old = replace(&mut self.poke_counts, &key, counts.map(|counts| *counts));
                Write::PokeCounts(key, old.map(Box::new))
            }
            Write::Run(key, run) => {
                let old = self.runs.swap(&key, run);
                Write::Run(key, old)
            }
        }
    }
}

/// Replaces a row, or removes it, and returns the previous one.
pub(super) fn replace<K: Ord + Clone, V>(rows: &mut BTreeMap<K, V>, key: &K, row: Option<V>) -> Option<V> {
    match row {
        Some(row) => rows.insert(key.clone(), row),
        None => rows.remove(key),
    }
}

/// Does the same for rows that are found only by name, never by range. A tree would compare several names per
/// lookup, and each is far away in memory.
pub(super) fn replace_named<K: Hash + Eq + Clone, V>(
    rows: &mut HashMap<K, V>,
    key: &K,
    row: Option<V>,
) -> Option<V> {
    match row {
        Some(row) => rows.insert(key.clone(), row),
        None => rows.remove(key),
    }
}

/// Whether a row enters the indexes or leaves them.
#[derive(Clone, Copy)]
pub(super) enum Filing {
    In,
    Out,
}

impl Filing {
    pub(super) fn entry<T: Ord>(self, index: &mut BTreeSet<T>, entry: T) {
        match self {
            Self::In => index.insert(entry),
            Self::Out => index.remove(&entry),
        };
    }
}

#[cfg(test)]
impl State {
    /// Returns the same rows, with every index and derived counter rebuilt from them.
    pub(super) fn rebuilt(&self) -> Self {
        let mut state = Self { pools: self.pools.clone(), last: self.last, ..Self::default() };
        for write in self.lanes.writes().chain(self.tasks.writes()).chain(self.limits.writes()) {
            state.swap(write);
        }
        for write in self.requests.writes().chain(self.sensors.writes()).chain(self.runs.writes()) {
            state.swap(write);
        }
        (state.workers, state.shards) = (self.workers.clone(), self.shards.clone());
        (state.takes, state.outages) = (self.takes.clone(), self.outages.clone());
        state.poke_counts = self.poke_counts.clone();
        state.serving = self.serving.clone();
        (state.feed, state.consumers) = (self.feed.clone(), self.consumers.clone());
        state.attempts = self.attempts.clone();
        state.rules = self.rules.rebuilt();
        state.shares = self.shares.rebuilt();
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swap_is_undone_by_its_answer() {
        let mut state = State::default();
        let before = state.clone();
        let name = PoolName::default_pool();
        let undo = state.swap(Write::Pool(name, None));
        assert_ne!(state, before);
        state.swap(undo);
        assert_eq!(state, before);
    }
}
