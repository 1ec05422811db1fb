//! The workload file: what is scheduled, on which workers, and how the day goes.
//!
//! One JSON object. Unknown fields are refused. Fields in `_s` are seconds. `examples/workloads/night.json` uses all
//! of them.
//!
//! | field | |
//! |---|---|
//! | `begin` | the first instant of the simulation, such as `"2026-01-05T00:00:00Z"` |
//! | `workers` | `count` processes with `places` for tasks each, under leases of `lease_s` |
//! | `crashes` | worker number `worker` dies `at_s` after the beginning, and another one takes its place `back_after_s` later |
//! | `pools` | as [`PoolSpec`]: `name`, `slots` (a number or `"unlimited"`), `deferred` (`"give_back"` or `"keep"`) |
//! | `limits` | at most `max` tasks that name this limit at once |
//! | `targets` | what sensors wait for: a `name`, and one instance per `every_s`, which lands `lands_after_s` into it |
//! | `workflows` | see below |
//!
//! A workflow has a `name`, `max_active_tasks` (optional), `tasks`, and `starts`: `{"cron": "*/15 8-18 * * 1-5"}` (UTC), or
//! `{"every": {"period_s": 900, "first_s": 60}}`, counted from the beginning. A task has a `name` and
//!
//! | field | default | |
//! |---|---|---|
//! | `after` | `[]` | tasks of the workflow that stand before it, and must end well first |
//! | `takes_s` | none | how long an attempt holds its slots, a [`Spread`] |
//! | `fails` | 0 | the probability that an attempt fails, at its end |
//! | `wait_for` | none | `target`, `interval_s`, `timeout_s`, `soft_fail`: waits as a sensor first, without slots |
//! | `pool`, `pool_slots`, `priority`, `limits` | `default_pool`, 1, 0, `[]` | |
//! | `retry` | never | a [`RetryPolicy`] |
//! | `lease_loss` | `{"requeue": {"at_most": 3}}` | when its worker crashes: that does not count as a failed attempt, up to 3 times; `"fail"` does |
//!
//! A task with `takes_s` works. One with `wait_for` waits. One with both waits and then works.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stationmaster::Timestamp;
use stationmaster::backoff::RetryPolicy;
use stationmaster::id::PoolName;
use stationmaster::pool::PoolSpec;
use stationmaster::seconds;
use stationmaster::task::LeaseLoss;

use crate::cron::Cron;
use crate::spread::Spread;
use crate::trouble::Trouble;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Workload {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) description: String,
    pub(crate) begin: Timestamp,
    pub(crate) workers: Workers,
    #[serde(default)]
    pub(crate) crashes: Vec<Crash>,
    #[serde(default)]
    pub(crate) pools: Vec<PoolSpec>,
    #[serde(default)]
    pub(crate) limits: Vec<Limit>,
    #[serde(default)]
    pub(crate) targets: Vec<Target>,
    pub(crate) workflows: Vec<Workflow>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Workers {
    pub(crate) count: usize,
    pub(crate) places: usize,
    #[serde(with = "seconds")]
    pub(crate) lease_s: Duration,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Crash {
    /// Counted from 1.
    pub(crate) worker: usize,
    #[serde(with = "seconds")]
    pub(crate) at_s: Duration,
    #[serde(with = "seconds")]
    pub(crate) back_after_s: Duration,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limit {
    pub(crate) name: String,
    pub(crate) max: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Target {
    pub(crate) name: String,
    #[serde(with = "seconds")]
    pub(crate) every_s: Duration,
    pub(crate) lands_after_s: Spread,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Workflow {
    pub(crate) name: String,
    pub(crate) starts: Starts,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) max_active_tasks: Option<u32>,
    pub(crate) tasks: Vec<Task>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Starts {
    Cron(Cron),
    Every {
        #[serde(with = "seconds")]
        period_s: Duration,
        #[serde(default, with = "seconds")]
        first_s: Duration,
    },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Task {
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) after: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) takes_s: Option<Spread>,
    #[serde(default)]
    pub(crate) fails: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) wait_for: Option<WaitFor>,
    #[serde(default = "PoolName::default_pool")]
    pub(crate) pool: PoolName,
    #[serde(default = "one")]
    pub(crate) pool_slots: u32,
    #[serde(default)]
    pub(crate) priority: i32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) limits: Vec<String>,
    #[serde(default)]
    pub(crate) retry: RetryPolicy,
    #[serde(default)]
    pub(crate) lease_loss: LeaseLoss,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WaitFor {
    pub(crate) target: String,
    #[serde(with = "seconds")]
    pub(crate) interval_s: Duration,
    #[serde(with = "seconds")]
    pub(crate) timeout_s: Duration,
    /// Whether a sensor that times out is skipped instead of failed.
    #[serde(default)]
    pub(crate) soft_fail: bool,
}

fn one() -> u32 {
    1
}

impl Starts {
    /// Returns the instants in `[begin, end)`, in order.
    pub(crate) fn instants(&self, begin: Timestamp, end: Timestamp) -> Vec<Timestamp> {
        match self {
            Self::Cron(cron) => {
                cron.instants(begin.into(), end.into()).into_iter().map(Timestamp::from).collect()
            }
            Self::Every { period_s, first_s } => {
                let first = begin + *first_s;
                std::iter::successors(Some(first), |at| Some(*at + *period_s))
                    .take_while(|at| *at < end)
                    .collect()
            }
        }
    }
}

impl Workload {
    pub(crate) fn read(file: &Path) -> Result<Self, Trouble> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| Trouble::Input(format!("cannot read {}: {error}", file.display())))?;
        serde_json::from_str(&text)
            .map_err(|error| Trouble::Input(format!("{}: {error}: correct the file there", file.display())))
    }

    pub(crate) fn write(&self, file: &Path) -> Result<(), Trouble> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        std::fs::write(file, text)
            .map_err(|error| Trouble::Input(format!("cannot write {}: {error}", file.display())))
    }

    /// Every store has the default pool. Here it is added to the list, so that it can be resized like the others.
    pub(crate) fn list_the_default_pool(&mut self) {
        let default_pool = PoolSpec::default_pool();
        if self.pools.iter().all(|pool| pool.name != default_pool.name) {
            self.pools.push(default_pool);
        }
        self.pools.sort_by(|one, other| one.name.cmp(&other.name));
    }
}
