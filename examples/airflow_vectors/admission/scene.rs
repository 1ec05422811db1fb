//! Sets a row up in a store, by the operations that a host would have called.
//!
//! | in the row | in the store |
//! |---|---|
//! | pool | a pool `airflow:NAME`; the store's own `default_pool` gets no slots |
//! | queued, running, deferred | enqueued, admitted, started, registered as a sensor, while pools are unlimited; these get their sizes afterwards, which may be less than is held |
//! | the same in a pool that does not exist | in a pool without slots, so that they count against limits and nowhere else |
//! | scheduled, run is running and no backfill, DAG not paused | enqueued, in the order of `tis` |
//! | any other scheduled one | held back by the host: not enqueued |
//! | other states | not enqueued |
//! | `max_active_tasks`, `max_active_tis_per_dag`, `max_active_tis_per_dagrun` | limits on the keys of workflow, task, task in a run, which every task carries |

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stationmaster::admission::IfExists;
use stationmaster::admission::{AirflowWindow, Policy, limits};
use stationmaster::id::PoolName;
use stationmaster::ops::Mark;
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::sensor::Settings;
use stationmaster::service::Admitter;
use stationmaster::service::kinds::Condition;
use stationmaster::store::Store;
use stationmaster::{LeaseRef, NewTask, Result, TaskKey, TaskRecord, TaskState, Timestamp};

use super::row::{Row, Ti};

/// The length of every lease: nothing expires while a row is checked.
const LEASE: Duration = Duration::from_secs(1_000_000_000);
/// Holds the leased instances of pools that do not exist.
const GONE: &str = "gone";

pub(crate) struct Scene<'a> {
    store: &'a Arc<dyn Store>,
    row: &'a Row,
    /// Scheduled instances in the store that were neither admitted nor failed yet.
    waiting: BTreeSet<usize>,
    /// Scheduled instances that the host holds back.
    held_back: BTreeSet<usize>,
    calls: i64,
}

/// What a deferred instance waits for. Nothing pokes it.
#[derive(Serialize, Deserialize)]
struct Anything {}

impl Condition for Anything {
    const KIND: &'static str = "any";
    const EXAMPLE: &'static str = "{}";
}

/// Airflow's name for a number of a pool, and the number; `None` is infinity.
type Statistic = (&'static str, Option<i64>);

/// What each of the instances becomes in the store.
#[derive(Default)]
struct Parts {
    leased: Vec<usize>,
    started: Vec<usize>,
    sensing: Vec<usize>,
}

fn key(ti: &Ti) -> Result<TaskKey> {
    let key = TaskKey::new("airflow", &ti.dag_id, &ti.run_id, &ti.task_id)?;
    Ok(match ti.map_index {
        Some(index) => key.mapped(index),
        None => key,
    })
}

fn pool_name(name: &str) -> Result<PoolName> {
    Ok(PoolName::new(format!("airflow:{name}"))?)
}

/// Returns the key of some task of a DAG, which has the DAG's limit.
fn any_task(dag_id: &str) -> Result<TaskKey> {
    TaskKey::new("airflow", dag_id, "any", "any")
}

/// Returns the index in `tis` that a task carries as its payload.
fn place(task: &TaskRecord) -> usize {
    task.payload.parse().unwrap_or(usize::MAX)
}

impl<'a> Scene<'a> {
    /// Sets the row up in an empty store.
    pub(crate) fn set_up(store: &'a Arc<dyn Store>, row: &'a Row) -> Result<Self, String> {
        let mut parts = Parts::default();
        let (mut waiting, mut held_back) = (BTreeSet::new(), BTreeSet::new());
        for (at, ti) in row.tis.iter().enumerate() {
            match ti.state.as_str() {
                "scheduled" if row.is_candidate(ti)? => drop(waiting.insert(at)),
                "scheduled" => drop(held_back.insert(at)),
                "queued" => parts.leased.push(at),
                "running" => {
                    parts.leased.push(at);
                    parts.started.push(at);
                }
                "deferred" => {
                    parts.leased.push(at);
                    parts.started.push(at);
                    parts.sensing.push(at);
                }
                _ => {}
            }
        }
        let scene = Self { store, row, waiting, held_back, calls: 0 };
        scene.lease(&parts).and_then(|()| scene.bound()).map_err(|error| error.to_string())?;
        Ok(scene)
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_micros(1_700_000_000_000_000 + self.calls)
    }

    fn task(&self, at: usize, pool: PoolName) -> Result<NewTask> {
        let (ti, key) = (&self.row.tis[at], key(&self.row.tis[at])?);
        let run = self.row.run(ti).map_err(stationmaster::Error::abort)?;
        let keys = [limits::workflow(&key)?, limits::task(&key)?, limits::task_in_run(&key)?];
        let task = NewTask::new(key)
            .pool(pool)
            .pool_slots(ti.pool_slots)
            .priority(ti.priority)
            .logical_date(run.logical_date)
            .payload(at.to_string());
        Ok(keys.into_iter().fold(task, NewTask::limit))
    }

    fn pools(&self, size: impl Fn(i64) -> Slots) -> Result<Vec<PoolSpec>> {
        let pools = self.row.pools.iter().map(|pool| {
            let spec = PoolSpec::new(pool_name(&pool.name)?, size(pool.slots))?;
            Ok(spec.sensing_keeps_slots(pool.include_deferred))
        });
        pools.collect()
    }

    /// Admits, starts and registers the instances that should be in progress.
    fn lease(&self, parts: &Parts) -> Result<()> {
        let mut pools = self.pools(|_| Slots::Unlimited)?;
        pools.push(PoolSpec::new(GONE, Slots::Unlimited)?);
        let known = |name: &str| self.row.pools.iter().any(|pool| pool.name == name);
        let tasks = parts.leased.iter().map(|at| {
            let name = &self.row.tis[*at].pool;
            self.task(*at, if known(name) { pool_name(name)? } else { PoolName::new(GONE)? })
        });
        let tasks: Vec<NewTask> = tasks.collect::<Result<_>>()?;
        let now = self.now();
        self.store.write(|tx| {
            tx.define(&pools, IfExists::Replace)?;
            tx.enqueue(now, &tasks)?;
            Ok(())
        })?;
        let granted = self.admitter(Policy::default())?.admit(now, usize::MAX)?.granted;
        let leases = |places: &[usize]| -> Vec<LeaseRef> {
            let within = granted.iter().filter(|task| places.contains(&place(task)));
            within.map(TaskRecord::lease_ref).collect()
        };
        let started = self.store.write(|tx| tx.start(now, &leases(&parts.started)))?;
        let settings = Settings::new(Duration::from_secs(60), LEASE)?;
        let sensing = leases(&parts.sensing).into_iter();
        let sensors = sensing.map(|lease| Anything {}.sensor(lease, settings)).collect::<Result<Vec<_>>>()?;
        let registered = self.store.write(|tx| tx.register(now, &sensors))?;
        let complete = granted.len() == parts.leased.len()
            && started.iter().all(|moved| *moved)
            && registered.iter().all(|sensor| sensor.is_waiting());
        if complete {
            Ok(())
        } else {
            Err(stationmaster::Error::abort("what is under way could not be set up"))
        }
    }

    /// Sizes the pools, defines the limits, and enqueues the waiting instances.
    fn bound(&self) -> Result<()> {
        let size = |slots: i64| u32::try_from(slots).map_or(Slots::Unlimited, Slots::Limited);
        let mut pools = self.pools(size)?;
        pools.push(PoolSpec::new(GONE, Slots::Limited(0))?);
        pools.push(PoolSpec::new(PoolName::DEFAULT, Slots::Limited(0))?);
        let mut specs = Vec::new();
        for dag in &self.row.dags {
            let whole = limits::workflow(&any_task(&dag.dag_id)?)?;
            specs.push(limits::LimitSpec::new(whole, dag.max_active_tasks)?);
            for task in &dag.tasks {
                let key = |run: &str| TaskKey::new("airflow", &dag.dag_id, run, &task.task_id);
                if let Some(max) = task.max_active_tis_per_dag {
                    specs.push(limits::LimitSpec::new(limits::task(&key("any")?)?, max)?);
                }
                let Some(max) = task.max_active_tis_per_dagrun else { continue };
                for run in self.row.runs.iter().filter(|run| run.dag_id == dag.dag_id) {
                    specs.push(limits::LimitSpec::new(limits::task_in_run(&key(&run.run_id)?)?, max)?);
                }
            }
        }
        let tasks = self.waiting.iter().map(|at| self.task(*at, pool_name(&self.row.tis[*at].pool)?));
        let tasks: Vec<NewTask> = tasks.collect::<Result<_>>()?;
        let now = self.now();
        self.store.write(|tx| {
            tx.define(&pools, IfExists::Replace)?;
            tx.define(&specs, IfExists::Replace)?;
            tx.enqueue(now, &tasks)?;
            Ok(())
        })
    }

    /// Returns the statistics of a pool. Instances that the host holds back count as scheduled.
    pub(crate) fn stats(&self, name: &str) -> Result<Option<[Statistic; 6]>> {
        let stats = self.store.read(|tx| tx.pool_stats(&[pool_name(name)?]))?.pop().flatten();
        let held_back = self.held_back.iter().map(|at| &self.row.tis[*at]).filter(|ti| ti.pool == name);
        let slots: i64 = held_back.map(|ti| i64::from(ti.pool_slots)).sum();
        Ok(stats.map(|stats| {
            [
                ("total", stats.total.total().map(i64::from)),
                ("running", Some(stats.running)),
                ("queued", Some(stats.queued)),
                ("deferred", Some(stats.sensing)),
                ("scheduled", Some(stats.scheduled + slots)),
                ("open", stats.open),
            ]
        }))
    }

    fn admitter(&self, policy: Policy) -> Result<Admitter> {
        let admitter = Admitter::new(self.store.clone(), "holder".try_into()?);
        Ok(admitter.budget(usize::MAX).lease(LEASE).policy(policy))
    }

    /// Makes one call by Airflow's rules.
    pub(crate) fn call_as_airflow(&mut self) -> Result<(Vec<usize>, Vec<&'a str>)> {
        let missing = self.row.dags.iter().filter(|dag| dag.missing);
        let missing = missing.map(|dag| Ok(limits::workflow(&any_task(&dag.dag_id)?)?));
        let window = AirflowWindow::new(self.row.max_tis).missing(missing.collect::<Result<_>>()?);
        self.call(Policy::AirflowWindow(window))
    }

    /// Runs one tick. Returns the indices of what it admitted, and the DAGs that it found without a
    /// definition.
    pub(crate) fn call(&mut self, policy: Policy) -> Result<(Vec<usize>, Vec<&'a str>)> {
        self.calls += 1;
        let budget = self.row.executor_slots.unwrap_or(usize::MAX);
        let admission = self.admitter(policy)?.admit(self.now(), budget)?;
        let admitted: Vec<usize> = admission.granted.iter().map(place).collect();
        for at in &admitted {
            self.waiting.remove(at);
        }
        let mut gone = Vec::new();
        for dag in &self.row.dags {
            if admission.missing.contains(&limits::workflow(&any_task(&dag.dag_id)?)?) {
                gone.push(dag.dag_id.as_str());
            }
        }
        Ok((admitted, gone))
    }

    /// Fails all scheduled instances of these DAGs, including those that the host holds back. Returns their
    /// indices.
    pub(crate) fn fail(&mut self, dags: &[&str]) -> Result<Vec<usize>> {
        let mut failed = Vec::new();
        for (at, ti) in self.row.tis.iter().enumerate() {
            if dags.contains(&ti.dag_id.as_str())
                && (self.waiting.contains(&at) || self.held_back.contains(&at))
            {
                failed.push(at);
            }
        }
        let stored = failed.iter().filter(|at| self.waiting.contains(at));
        let marks =
            stored.map(|at| Ok(Mark::new(key(&self.row.tis[*at])?, TaskState::Failed, "its DAG is gone")));
        let marks: Vec<Mark> = marks.collect::<Result<_>>()?;
        let now = self.now();
        self.store.write(|tx| tx.mark(now, &marks))?;
        for at in &failed {
            self.waiting.remove(at);
            self.held_back.remove(at);
        }
        Ok(failed)
    }
}
