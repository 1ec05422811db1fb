//! Sensors that wait for a run to end.

use std::collections::BTreeSet;
use std::slice;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Condition;
use crate::base::setters;
use crate::run::{RunKey, RunStatus};
use crate::sensor::PokeOutcome;
use crate::service::poker::{Poke, PokeRequest};
use crate::store::Store;
use crate::store::serving::for_service;

/// Waits until a run of the active-run index has stopped. It lands with the run's status.
///
/// Defaults: it lands on `completed`, and fails on `failed`, `killed` and `rejected`. The outcome is "not
/// yet" for a run that does not exist, is open, or stopped with any other status. A status in both sets
/// lands.
///
/// # Examples
///
/// ```
/// use stationmaster::run::RunKey;
/// use stationmaster::service::kinds::{Condition, RunEnded};
/// let context = RunEnded::new(RunKey::new("prod", "ingest-7")?).context()?;
/// assert_eq!(
///     context.as_str(),
///     r#"{"fails_on":["failed","killed","rejected"],"lands_on":["completed"],"run":{"id":"ingest-7","namespace":"prod"}}"#,
/// );
/// # Ok::<(), stationmaster::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunEnded {
    run: RunKey,
    #[serde(default = "well")]
    lands_on: BTreeSet<RunStatus>,
    #[serde(default = "badly")]
    fails_on: BTreeSet<RunStatus>,
}

fn well() -> BTreeSet<RunStatus> {
    [RunStatus::Completed].into()
}

fn badly() -> BTreeSet<RunStatus> {
    [RunStatus::Failed, RunStatus::Killed, RunStatus::Rejected].into()
}

impl RunEnded {
    /// Waits for the completion of this run.
    pub fn new(run: RunKey) -> Self {
        Self { run, lands_on: well(), fails_on: badly() }
    }

    setters! {
        /// Sets the statuses on which it lands.
        lands_on(statuses: impl IntoIterator<Item = RunStatus>) { lands_on = statuses.into_iter().collect() }
        /// Sets the statuses on which it fails.
        fails_on(statuses: impl IntoIterator<Item = RunStatus>) { fails_on = statuses.into_iter().collect() }
    }

    fn look(&self, store: &dyn Store) -> PokeOutcome {
        let found = match store.read(|tx| tx.runs(slice::from_ref(&self.run))) {
            Ok(mut found) => found.pop().flatten(),
            Err(error) => return PokeOutcome::Unreachable(error.to_string()),
        };
        let Some(run) = found.filter(|run| run.stop.is_some()) else { return PokeOutcome::NotYet };
        let status = serde_json::to_value(run.status).ok();
        let status = status.as_ref().and_then(|name| name.as_str()).unwrap_or_default();
        if self.lands_on.contains(&run.status) {
            PokeOutcome::Landed(Some(status.to_owned()))
        } else if self.fails_on.contains(&run.status) {
            PokeOutcome::Failed(format!("run {} of {} is {status}", self.run.id, self.run.namespace))
        } else {
            PokeOutcome::NotYet
        }
    }
}

impl Condition for RunEnded {
    const KIND: &'static str = "run_ended";
    const EXAMPLE: &'static str = r#"{"run": {"namespace": "prod", "id": "ingest-7"}}"#;
}

/// Returns the poke of [`RunEnded`], which looks in this store.
pub fn run_ended(store: Arc<dyn Store>) -> impl Poke + 'static {
    let store = for_service(store);
    move |request: &PokeRequest| match RunEnded::read(&request.context) {
        Ok(wanted) => wanted.look(store.as_ref()),
        Err(wrong) => wrong,
    }
}
