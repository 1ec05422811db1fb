//! Compares every counter with what it counts.

use std::collections::BTreeMap;

use super::pools::LimitRow;
use super::state::{State, Write};
use super::undo::Transaction;
use crate::admission::{LaneId, LaneKey, Pair};
use crate::id::{LimitKey, PoolName};
use crate::pool::PoolRecord;
use crate::store::Discrepancy;
use crate::store::contract::repaired;
use crate::task::{TaskRecord, TaskState};

/// The true values, summed over the tasks.
#[derive(Default)]
struct Sums {
    pools: BTreeMap<PoolName, i64>,
    limits: BTreeMap<LimitKey, i64>,
    lane_tasks: BTreeMap<LaneId, i64>,
    ready: BTreeMap<LaneId, i64>,
    limit_lanes: BTreeMap<LimitKey, i64>,
    shares: BTreeMap<Pair, i64>,
    share_lanes: BTreeMap<Pair, i64>,
}

impl State {
    /// Returns what is wrong: pools by name, then limits by key, lanes and tasks by number. Reads all tasks.
    pub(super) fn audit(&self) -> Vec<Discrepancy> {
        let mut sums = Sums::default();
        let mut broken = BTreeMap::new();
        for row in self.tasks.all() {
            let task = &row.record;
            for (pool, slots) in task.lane.pools().filter(|_| task.held_slots > 0) {
                *sums.pools.entry(pool.clone()).or_default() += i64::from(slots);
                if let Some(share) = &task.lane.share {
                    *sums.shares.entry((pool.clone(), share.clone())).or_default() += i64::from(slots);
                }
            }
            for (key, count) in task.lane.counted().filter(|_| task.state.is_leased()) {
                *sums.limits.entry(key.clone()).or_default() += i64::from(count);
            }
            if !task.state.is_end() {
                *sums.lane_tasks.entry(row.lane).or_default() += 1;
            }
            if task.is_ready() {
                *sums.ready.entry(row.lane).or_default() += 1;
            }
            if let Some(problem) = problem(task) {
                broken.insert(task.id, problem);
            }
        }
        let pools = self.pools.rows.iter().map(|(name, pool)| (name.clone(), pool.used));
        let limits = self.limits.all().map(|(key, row, _)| (key.clone(), row.used));
        let limit_lanes = self.limits.all().map(|(key, _, lanes)| (key.clone(), signed(lanes)));
        let lanes: BTreeMap<_, _> = self.lanes.all().map(|(id, key, counts)| (id, (key, counts))).collect();
        let lane_tasks = lanes.iter().map(|(id, (_, [tasks, _]))| (*id, signed(*tasks)));
        let ready = lanes.iter().map(|(id, (_, [_, ready]))| (*id, signed(*ready)));
        for key in lanes.values().flat_map(|(key, _)| &key.limits) {
            *sums.limit_lanes.entry(key.clone()).or_default() += 1;
        }

        for (pool, share) in lanes.values().filter_map(|(key, _)| Some((&key.pool, key.share.as_ref()?))) {
            *sums.share_lanes.entry((pool.clone(), share.clone())).or_default() += 1;
        }
        let shares = self.shares.all().map(|(pair, row)| (pair.clone(), row.used.held));
        let share_lanes = self.shares.all().map(|(pair, row)| (pair.clone(), row.lanes));

        let mut found = Vec::new();
        for (pool, counted, held) in differing(pools, sums.pools) {
            found.push(Discrepancy::Pool { pool, counted, held });
        }
        for (key, counted, held) in differing(limits, sums.limits) {
            found.push(Discrepancy::Limit { key, counted, held });
        }
        for (key, counted, held) in differing(limit_lanes, sums.limit_lanes) {
            found.push(Discrepancy::LimitLanes { key, counted, held });
        }
        for ((pool, share), counted, held) in differing(shares, sums.shares) {
            found.push(Discrepancy::Share { pool, share, counted, held });
        }
        for ((pool, share), counted, held) in differing(share_lanes, sums.share_lanes) {
            found.push(Discrepancy::ShareLanes { pool, share, counted, held });
        }
        for (id, counted, held) in differing(ready, sums.ready) {
            if let Some((key, _)) = lanes.get(&id) {
                found.push(Discrepancy::Lane { lane: LaneKey::clone(key), counted, held });
            }
        }
        for (id, counted, held) in differing(lane_tasks, sums.lane_tasks) {
            if let Some((key, _)) = lanes.get(&id) {
                found.push(Discrepancy::LaneTasks { lane: LaneKey::clone(key), counted, held });
            }
        }
        found.extend(self.wrong_marks());
        found.extend(broken.into_iter().map(|(task, problem)| Discrepancy::Task { task, problem }));
        found
    }
}

impl Transaction<'_> {
    /// Repairs the use of pools and limits, shares, and marks. The counts of a lane follow from the rows it
    /// holds, so they cannot be wrong.
    pub(super) fn repair_counters(&mut self) -> Vec<Discrepancy> {
        let found = self.state.audit();
        for counter in &found {
            match counter {
                Discrepancy::Pool { pool, held, .. } => {
                    let row = self.state.pools.rows.get(pool).map(|row| row.spec.clone());
                    if let Some(spec) = row {
                        let row = PoolRecord::new(spec, *held);
                        self.write(Write::Pool(pool.clone(), Some(Box::new(row))));
                    }
                }
                Discrepancy::Limit { key, held, .. } => {
                    let row = self.state.limits.row(key).unwrap_or_default();
                    self.write(Write::Limit(key.clone(), Some(Box::new(LimitRow { used: *held, ..row }))));
                    self.forget_limit_if_unused(key);
                }
                Discrepancy::Share { pool, share, held, .. } => {
                    self.change_share((pool.clone(), share.clone()), |row, _| row.used.held = *held);
                }
                Discrepancy::ShareLanes { pool, share, held, .. } => {
                    self.change_share((pool.clone(), share.clone()), |row, _| row.lanes = *held);
                }
                _ => {}
            }
        }
        if found.iter().any(|found| matches!(found, Discrepancy::Mark { .. })) {
            self.state.lanes.order.wake_all();
        }
        let left = self.state.audit();
        repaired(found, &left)
    }
}

/// Returns the counters that differ from their sums. One that is missing on either side counts as 0.
fn differing<K: Ord + Clone>(
    counters: impl Iterator<Item = (K, i64)>,
    sums: BTreeMap<K, i64>,
) -> Vec<(K, i64, i64)> {
    let mut both: BTreeMap<K, (i64, i64)> = sums.into_iter().map(|(key, held)| (key, (0, held))).collect();
    for (key, counted) in counters {
        both.entry(key).or_default().0 = counted;
    }
    both.retain(|_, (counted, held)| counted != held);
    both.into_iter().map(|(key, (counted, held))| (key, counted, held)).collect()
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn problem(task: &TaskRecord) -> Option<String> {
    let (state, held) = (task.state, task.held_slots);
    if state.is_leased() && task.lease.is_none() {
        Some(format!("it is {state} without a lease"))
    } else if !state.is_leased() && task.lease.is_some() {
        Some(format!("it is {state} and has a lease"))
    } else if held != 0 && held != task.lane.slots {
        Some(format!("it holds {held} slots and needs {}", task.lane.slots))
    } else if held > 0 && !state.is_leased() && state != TaskState::Sensing && !task.is_ready() {
        Some(format!("it is {state} and holds {held} slots"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NewTask;
    use crate::id::{Holder, TaskKey};
    use crate::lease::{LeaseRef, TaskId};
    use crate::store::contract::{GrantBatch, Move, TaskTx};
    use crate::store::{MemoryStore, TxMode};
    use crate::testing::RawStoreExt;
    use crate::time::Timestamp;

    #[test]
    fn finds_slots_and_limits_that_were_not_taken() {
        let mut state = State::default();
        let limit = LimitKey::new("k").unwrap();
        let task = NewTask::new(TaskKey::new("n", "w", "r", "t").unwrap()).pool_slots(3).limit(limit.clone());
        let mut tx = Transaction::begin(&mut state, TxMode::Write);
        tx.insert_tasks_if_absent(&[task.check(Timestamp::UNIX_EPOCH).unwrap()]).unwrap();
        assert_eq!(tx.audit().unwrap(), []);
        let holder = Holder::new("h").unwrap();
        tx.grant_if_open(&GrantBatch::new(
            &[TaskId(1)],
            &holder,
            Timestamp::from_micros(1),
            Timestamp::from_micros(2),
        ))
        .unwrap();
        assert_eq!(tx.audit().unwrap(), []);
        let pool = PoolName::default_pool();
        let counted = PoolRecord::new(tx.state.pools.rows[&pool].spec.clone(), 1);
        tx.write(Write::Pool(pool.clone(), Some(Box::new(counted))));
        tx.write(Write::Limit(limit.clone(), Some(Box::new(LimitRow { used: 2, ..LimitRow::default() }))));
        assert_eq!(
            tx.audit().unwrap(),
            [
                Discrepancy::Pool { pool, counted: 1, held: 3 },
                Discrepancy::Limit { key: limit.clone(), counted: 2, held: 1 },
            ]
        );
        tx.write(Write::Limit(
            LimitKey::new("gone").unwrap(),
            Some(Box::new(LimitRow { used: 1, ..LimitRow::default() })),
        ));
        assert_eq!(TaskTx::repair_counters(&mut tx).unwrap().len(), 3);
        assert_eq!((tx.audit().unwrap(), TaskTx::repair_counters(&mut tx).unwrap()), (vec![], vec![]));
        assert_eq!(tx.state.pools.rows[&PoolName::default_pool()].used, 3);
        let known: Vec<&LimitKey> = tx.state.limits.all().map(|(key, ..)| key).collect();
        assert_eq!(known, [&limit], "a key that nothing carries is forgotten");
    }

    #[test]
    fn finds_slots_held_by_a_task_that_ended() {
        let store = MemoryStore::new();
        let insert =
            NewTask::new(TaskKey::new("n", "w", "r", "t").unwrap()).check(Timestamp::UNIX_EPOCH).unwrap();
        let result = store.write_raw(|tx| {
            tx.insert_tasks_if_absent(std::slice::from_ref(&insert))?;
            let lease = LeaseRef::new(TaskId(1), 1);
            let holder = Holder::new("h")?;
            tx.grant_if_open(&GrantBatch::new(
                &[TaskId(1)],
                &holder,
                Timestamp::from_micros(1),
                Timestamp::from_micros(2),
            ))?;
            let mut end = Move::new(lease, TaskState::Queued, TaskState::Skipped);
            end.keeps_slots = true;
            tx.move_if(&[end])?;
            tx.audit().map_err(Into::into)
        });
        let found = result.unwrap();
        assert!(matches!(found[..], [Discrepancy::Task { task: TaskId(1), .. }]), "{found:?}");
    }
}
