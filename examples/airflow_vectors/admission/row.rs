//! A row: the complete state of a scheduler, and its results for three successive calls.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use stationmaster::Timestamp;

#[derive(Deserialize)]
pub(crate) struct Row {
    pub(crate) max_tis: usize,
    /// `None` is unlimited. Available again in each call.
    pub(crate) executor_slots: Option<usize>,
    pub(crate) pools: Vec<Pool>,
    pub(crate) dags: Vec<Dag>,
    pub(crate) runs: Vec<Run>,
    ti_columns: Vec<String>,
    pub(crate) tis: Vec<Ti>,
    /// `None` is infinity.
    pub(crate) pool_stats: BTreeMap<String, BTreeMap<String, Option<i64>>>,
    /// Indices in `tis`, in order of admission, for each call.
    pub(crate) admitted: Vec<Vec<usize>>,
    /// Indices in `tis` of the instances that the calls set to failed, sorted.
    pub(crate) failed: Vec<usize>,
}

#[derive(Deserialize)]
pub(crate) struct Pool {
    pub(crate) name: String,
    /// -1 is unlimited.
    pub(crate) slots: i64,
    pub(crate) include_deferred: bool,
}

#[derive(Deserialize)]
pub(crate) struct Dag {
    pub(crate) dag_id: String,
    pub(crate) paused: bool,
    pub(crate) max_active_tasks: u32,
    /// Whether its stored definition is gone, although it has limits on tasks.
    pub(crate) missing: bool,
    pub(crate) tasks: Vec<Task>,
}

#[derive(Deserialize)]
pub(crate) struct Task {
    pub(crate) task_id: String,
    pub(crate) max_active_tis_per_dag: Option<u32>,
    pub(crate) max_active_tis_per_dagrun: Option<u32>,
}

#[derive(Deserialize)]
pub(crate) struct Run {
    pub(crate) dag_id: String,
    pub(crate) run_id: String,
    pub(crate) logical_date: Timestamp,
    state: String,
    #[serde(rename = "type")]
    kind: String,
}

const COLUMNS: [&str; 9] =
    ["dag_id", "run_id", "task_id", "map_index", "state", "priority", "pool", "pool_slots", "db_order"];

/// A task instance, in the order of [`COLUMNS`].
#[derive(Deserialize)]
#[serde(from = "Columns")]
pub(crate) struct Ti {
    pub(crate) dag_id: String,
    pub(crate) run_id: String,
    pub(crate) task_id: String,
    pub(crate) map_index: Option<u32>,
    pub(crate) state: String,
    pub(crate) priority: i32,
    pub(crate) pool: String,
    pub(crate) pool_slots: u32,
}

type Columns = (String, String, String, i64, String, i32, String, u32, Option<u64>);

impl From<Columns> for Ti {
    fn from((dag_id, run_id, task_id, map_index, state, priority, pool, pool_slots, _): Columns) -> Self {
        let map_index = u32::try_from(map_index).ok();
        Self { dag_id, run_id, task_id, map_index, state, priority, pool, pool_slots }
    }
}

impl Row {
    pub(crate) fn read(row: &Value) -> Result<Self, String> {
        let row = Self::deserialize(row).map_err(|error| error.to_string())?;
        if row.ti_columns != COLUMNS {
            return Err(format!("ti_columns are {:?}", row.ti_columns));
        }
        Ok(row)
    }

    pub(crate) fn run(&self, ti: &Ti) -> Result<&Run, String> {
        let found = self.runs.iter().find(|run| run.dag_id == ti.dag_id && run.run_id == ti.run_id);
        found.ok_or_else(|| format!("there is no run {} of {}", ti.run_id, ti.dag_id))
    }

    /// Returns whether the scheduler may admit it at all: it is scheduled, its run is running and no backfill, and its
    /// DAG is not paused.
    pub(crate) fn is_candidate(&self, ti: &Ti) -> Result<bool, String> {
        let run = self.run(ti)?;
        let paused = self.dags.iter().any(|dag| dag.dag_id == ti.dag_id && dag.paused);
        Ok(ti.state == "scheduled" && run.state == "running" && run.kind != "backfill" && !paused)
    }
}
