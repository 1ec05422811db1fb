//! Rows with recorded results of `SchedulerJobRunner._executable_task_instances_to_queued` and `Pool.slots_stats`
//! of Airflow 2.11.2, for three successive calls each.

mod row;
mod scene;

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use stationmaster::admission::Policy;
use stationmaster::store::Store;

use self::row::Row;
use self::scene::Scene;

/// Calls per row.
const CALLS: usize = 3;

/// Compares Airflow's window, in an empty store, with the recorded results.
pub(crate) fn check(row: &Value, store: &Arc<dyn Store>) -> Result<(), String> {
    let row = Row::read(row)?;
    let mut scene = Scene::set_up(store, &row)?;
    for (name, recorded) in &row.pool_stats {
        let stats = scene.stats(name).map_err(|error| error.to_string())?;
        let stats = stats.ok_or_else(|| format!("pool {name} is not in the store"))?;
        for (what, recorded) in recorded {
            let (_, number) = stats
                .iter()
                .find(|(name, _)| name == what)
                .ok_or_else(|| format!("unknown statistic {what}"))?;
            same(&format!("{what} of pool {name}"), recorded, number)?;
        }
    }
    let mut failed = Vec::new();
    for call in 0..CALLS {
        let (admitted, gone) = scene.call_as_airflow().map_err(|error| error.to_string())?;
        let recorded = row.admitted.get(call).ok_or("has fewer than three answers")?;
        same(&format!("admissions of call {}", call + 1), recorded, &admitted)?;
        failed.extend(scene.fail(&gone).map_err(|error| error.to_string())?);
    }
    failed.sort_unstable();
    same("failed instances", &row.failed, &failed)?;
    let audit = store.read(|tx| tx.audit()).map_err(|error| error.to_string())?;
    same("discrepancies in the store", &Vec::new(), &audit)
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, recorded: &T, got: &T) -> Result<(), String> {
    if recorded == got { Ok(()) } else { Err(format!("{what}: expected {recorded:?}, got {got:?}")) }
}

/// What the default policy admits for one row.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Answer {
    pub(crate) id: Value,
    /// Indices in `tis`, in order of admission, for each tick.
    pub(crate) admitted: Vec<Vec<usize>>,
}

/// Returns what three ticks of the crate's own default policy admit in an empty store. `None` for a row with a
/// missing DAG.
///
/// The budget of each tick is `executor_slots`. `max_tis` is ignored.
pub(crate) fn by_default_policy(row: &Value, store: &Arc<dyn Store>) -> Result<Option<Answer>, String> {
    let id = row.get("id").cloned().unwrap_or_default();
    let row = Row::read(row)?;
    if row.dags.iter().any(|dag| dag.missing) {
        return Ok(None);
    }
    let mut scene = Scene::set_up(store, &row)?;
    let mut admitted = Vec::new();
    for _ in 0..CALLS {
        admitted.push(scene.call(Policy::default()).map_err(|error| error.to_string())?.0);
    }
    Ok(Some(Answer { id, admitted }))
}
