//! What the cases are written in: a store with some tasks on their way through it.

use std::num::NonZeroU32;
use std::time::Duration;

use super::steps::Steps;
use crate::canonical::PokeContext;
use crate::error::{StoreError, StoreErrorKind, StoreResult};
use crate::id::{Holder, LimitKey, PoolName, RequestId, TaskKey};
use crate::lease::{LeaseRef, TaskId};
use crate::pool::{PoolSpec, Slots};
use crate::sensor::{NewSensor, SensorRecord, Settings};
use crate::shard::DEFAULT_CODES;
use crate::store::contract::{GrantBatch, Move, PokerRow, StoreTx};
use crate::store::{Inserted, Store};
use crate::task::{NewTask, TaskInsert, TaskRecord, TaskState};
use crate::testing::RawStoreExt;
use crate::time::Timestamp;

/// Returns the instant this many microseconds after 1970.
pub(super) fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

/// Returns the first and the last instant that can be stored.
pub(super) fn ends_of_time() -> (Timestamp, Timestamp) {
    (at(i64::MIN), at(i64::MAX))
}

pub(super) fn key(name: &str) -> TaskKey {
    TaskKey::new("n", "w", "r", name).unwrap()
}

/// Creates a task of one slot of the default pool.
pub(super) fn task(name: &str) -> NewTask {
    NewTask::new(key(name))
}

pub(super) fn pool(name: &str) -> PoolName {
    PoolName::new(name).unwrap()
}

pub(super) fn sized(name: &str, slots: u32) -> PoolSpec {
    PoolSpec::new(name, Slots::Limited(slots)).unwrap()
}

pub(super) fn limit(name: &str) -> LimitKey {
    LimitKey::new(name).unwrap()
}

pub(super) fn holder(name: &str) -> Holder {
    Holder::new(name).unwrap()
}

/// Creates a worker that splits the codes in the usual way.
pub(super) fn worker(name: &str, until: Timestamp) -> PokerRow {
    PokerRow::new(holder(name), DEFAULT_CODES, NonZeroU32::MIN.saturating_add(15), until)
}

/// Rows as they are inserted at instant 0.
pub(super) fn rows(tasks: &[NewTask]) -> Vec<TaskInsert> {
    tasks.iter().map(|task| task.check(at(0)).unwrap()).collect()
}

/// Creates a sensor of this lease that looks at `what`.
pub(super) fn sensor(lease: LeaseRef, what: &str) -> NewSensor {
    let context = PokeContext::from_json(&format!("{{\"at\":{what:?}}}")).unwrap();
    let settings = Settings::new(Duration::from_millis(50), Duration::from_secs(60)).unwrap();
    NewSensor::new(lease, "file".try_into().unwrap(), context, settings)
}

/// Creates a move of a running task. [`World::shift`] moves it from any state.
pub(super) fn to(task: LeaseRef, state: TaskState) -> Move {
    Move::new(task, TaskState::Running, state)
}

#[derive(Clone, Copy)]
pub(super) struct World<'a>(pub(super) &'a dyn Store);

impl World<'_> {
    pub(super) fn write<T>(self, mut body: impl FnMut(&mut dyn StoreTx) -> StoreResult<T>) -> T {
        self.0.write_raw(|tx| Ok(body(tx)?)).expect("a write transaction")
    }

    pub(super) fn read<T>(self, mut body: impl FnMut(&mut dyn StoreTx) -> StoreResult<T>) -> T {
        self.0.read_raw(|tx| Ok(body(tx)?)).expect("a read transaction")
    }

    /// Inserts new tasks at instant 0.
    pub(super) fn insert(self, tasks: &[NewTask]) -> Vec<TaskId> {
        let answers = self.write(|tx| tx.insert_tasks_if_absent(&rows(tasks)));
        answers
            .into_iter()
            .map(|answer| match answer {
                Inserted::New(id) => id,
                other => panic!("{other}"),
            })
            .collect()
    }

    /// Inserts plain tasks of these names.
    pub(super) fn plain(self, names: &[&str]) -> Vec<TaskId> {
        self.insert(&names.iter().map(|name| task(name)).collect::<Vec<_>>())
    }

    /// Grants tasks to `h` at instant 10 until instant 1000.
    pub(super) fn admit(self, tasks: &[TaskId]) -> Vec<TaskRecord> {
        self.admit_until(tasks, at(1000))
    }

    pub(super) fn admit_until(self, tasks: &[TaskId], expires_at: Timestamp) -> Vec<TaskRecord> {
        self.write(|tx| admit(tx, tasks, at(10), expires_at))
    }

    /// Grants tasks to `h` at this instant until instant 1000 in a tick of this name.
    pub(super) fn admit_as(self, request: &RequestId, tasks: &[TaskId], now: Timestamp) -> Vec<TaskRecord> {
        self.write(|tx| admit_if_room(tx, tasks, [Some(request), None], now, at(1000)))
    }

    /// Admits tasks and starts them at instant 20.
    pub(super) fn run(self, tasks: &[TaskId]) -> Vec<LeaseRef> {
        let leases: Vec<LeaseRef> = self.admit(tasks).iter().map(TaskRecord::lease_ref).collect();
        assert!(self.start(&leases, at(20)).into_iter().all(|started| started), "granted tasks start");
        leases
    }

    /// Starts tasks, and returns which of them started.
    pub(super) fn start(self, leases: &[LeaseRef], now: Timestamp) -> Vec<bool> {
        let started = self.write(|tx| tx.start_if_queued(leases, now));
        started.iter().map(Option::is_some).collect()
    }

    /// Admits tasks if there is room for all of them, and changes nothing otherwise. Returns whether there
    /// was.
    pub(super) fn admit_if_room(self, tasks: &[TaskId]) -> bool {
        let admitted = self.0.write_raw(|tx| {
            let granted = admit_if_room(tx, tasks, [None, None], at(10), at(1000))?;
            assert_eq!(granted.len(), tasks.len(), "the tasks are ready");
            Ok(())
        });
        admitted.is_ok()
    }

    /// Moves tasks, each from the state in which it is.
    pub(super) fn shift(self, moves: &[Move]) -> Vec<bool> {
        let ids: Vec<TaskId> = moves.iter().map(|wanted| wanted.task.id).collect();
        self.write(|tx| {
            let mut moves = moves.to_vec();
            for (wanted, task) in moves.iter_mut().zip(tx.tasks_by_id(&ids)?) {
                wanted.from = task.map_or(wanted.from, |task| task.state);
            }
            tx.move_if(&moves)
        })
    }

    /// Ends tasks under these leases.
    pub(super) fn end(self, leases: &[LeaseRef]) {
        let moves: Vec<Move> = leases.iter().map(|lease| to(*lease, TaskState::Success)).collect();
        assert!(self.shift(&moves).iter().all(|moved| *moved), "leases end");
    }

    /// Runs tasks that turn into sensors of the same names.
    pub(super) fn sense(self, tasks: &[TaskId]) -> Vec<SensorRecord> {
        let leases = self.run(tasks);
        let names: Vec<String> = tasks.iter().map(|id| self.task(*id).key.task.to_string()).collect();
        let inserts: Vec<_> =
            leases.iter().zip(&names).map(|(lease, name)| sensor(*lease, name).insert(at(30))).collect();
        let moves: Vec<Move> = leases.iter().map(|lease| to(*lease, TaskState::Sensing)).collect();
        self.write(|tx| {
            tx.move_if(&moves)?;
            tx.put_sensors(&inserts)
        })
    }

    pub(super) fn task(self, id: TaskId) -> TaskRecord {
        self.read(|tx| tx.tasks_by_id(&[id])).remove(0).expect("the task is there")
    }

    pub(super) fn used(self, name: &PoolName) -> i64 {
        self.read(|tx| tx.pools(std::slice::from_ref(name))).remove(0).expect("the pool is there").used
    }

    /// Returns how many tasks are ready, by the counters of the lanes.
    pub(super) fn ready(self) -> u64 {
        self.read(|tx| tx.ready_lanes()).iter().map(|lane| lane.ready).sum()
    }
}

/// Grants tasks to `h`, as a tick does.
pub(super) fn admit(
    tx: &mut dyn StoreTx,
    tasks: &[TaskId],
    now: Timestamp,
    expires_at: Timestamp,
) -> StoreResult<Vec<TaskRecord>> {
    let granted = admit_if_room(tx, tasks, [None, None], now, expires_at);
    if let Err(error) = &granted {
        assert_ne!(error.kind(), StoreErrorKind::Conflict, "the pools and the limits have room");
    }
    granted
}

/// As [`admit`], in a tick that has the first name and replaces the second one. A conflict if a pool or a
/// limit has too little open.
pub(super) fn admit_if_room(
    tx: &mut dyn StoreTx,
    tasks: &[TaskId],
    [request, replaces]: [Option<&RequestId>; 2],
    now: Timestamp,
    expires_at: Timestamp,
) -> StoreResult<Vec<TaskRecord>> {
    let holder = holder("h");
    let mut batch = GrantBatch::new(tasks, &holder, now, expires_at);
    (batch.request, batch.replaces) = (request, replaces);
    let granted = tx.grant_if_open(&batch)?;
    if granted.had_room { Ok(granted.tasks) } else { Err(StoreError::conflict("no room")) }
}
