//! Recording and ending runs.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::run::{RunBeat, RunClose, RunKey, RunRecord};
use crate::store::Tx;

/// What happens to a stop that is before the start of its run, which skewed clocks can report.
///
/// Default: rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopBeforeStart {
    /// It is an error.
    #[default]
    Reject,
    /// It is stored unchanged. The run is active in windows that contain both its stop and its start.
    Store,
}

impl StopBeforeStart {
    fn check(self, runs: &[RunRecord]) -> Result<()> {
        if self == Self::Reject {
            runs.iter().try_for_each(RunRecord::check)?;
        }
        Ok(())
    }
}

/// What happened to a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Stopped {
    /// The run was open and is now closed.
    Closed,
    /// The run was already closed. It now has the new stop and status.
    Corrected,
    /// There is no such run.
    Unknown,
}

impl Stopped {
    /// Returns true if the run exists. It now has the given stop.
    pub fn is_known(self) -> bool {
        self != Self::Unknown
    }
}

impl Tx<'_> {
    /// Records runs. Replaces those with the same key, which changes, corrects or re-opens them.
    ///
    /// # Errors
    ///
    /// Returns [`StopBeforeStart`](crate::error::Invalid::StopBeforeStart) for a run that stops before it
    /// starts, unless `early` allows it. Nothing is then recorded. Returns [`crate::Error::Store`] if the
    /// store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::run::{RunKey, RunRecord, RunStatus};
    /// use stationmaster::ops::StopBeforeStart;
    /// use stationmaster::store::{MemoryStore, Store};
    /// use stationmaster::Timestamp;
    ///
    /// let store = MemoryStore::new();
    /// let run = RunRecord::open(RunKey::new("prod", "nightly-1")?, Timestamp::from_micros(20));
    /// let skewed = run.clone().closed(Timestamp::from_micros(19), RunStatus::Completed);
    /// store.write(|tx| tx.record_runs(std::slice::from_ref(&run), StopBeforeStart::Reject))?;
    /// assert!(store.write(|tx| tx.record_runs(std::slice::from_ref(&skewed), StopBeforeStart::Reject)).is_err());
    /// store.write(|tx| tx.record_runs(std::slice::from_ref(&skewed), StopBeforeStart::Store))?;
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn record_runs(&mut self, runs: &[RunRecord], early: StopBeforeStart) -> Result<()> {
        early.check(runs)?;
        Ok(self.writes()?.put_runs(runs)?)
    }
}

impl Tx<'_> {
    /// Records heartbeats of open runs, whatever their status. A run keeps its latest heartbeat.
    ///
    /// Returns `false` for a run that does not exist or is closed. Stop working on it.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn beat_runs(&mut self, beats: &[RunBeat]) -> Result<Vec<bool>> {
        Ok(self.writes()?.beat_runs_if_open(beats)?)
    }

    /// Closes open runs. A stop before the start is stored as the start.
    ///
    /// Returns `false` for a run that does not exist or is closed, which is not changed. [`Self::stop_runs`]
    /// corrects closed runs.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn close_runs(&mut self, closes: &[RunClose]) -> Result<Vec<bool>> {
        Ok(self.writes()?.close_runs_if_open(closes)?)
    }

    /// Ends runs, and corrects the stop and status of those that have already ended. If one call names a key
    /// twice, the last counts.
    ///
    /// # Errors
    ///
    /// Returns [`StopBeforeStart`](crate::error::Invalid::StopBeforeStart) for a stop before its run's start,
    /// unless `early` allows it. Nothing is then ended. Returns [`crate::Error::Store`] if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::run::{RunClose, RunKey, RunRecord, RunStatus};
    /// use stationmaster::ops::{StopBeforeStart, Stopped};
    /// use stationmaster::store::MemoryStore;
    /// use stationmaster::Timestamp;
    ///
    /// let store = MemoryStore::new();
    /// let key = RunKey::new("prod", "nightly-1")?;
    /// let run = RunRecord::open(key.clone(), Timestamp::from_micros(20));
    /// let [first, later] = [30, 40].map(|at| RunClose::new(key.clone(), Timestamp::from_micros(at), RunStatus::Completed));
    /// let stopped = store.write(|tx| {
    ///     tx.record_runs(std::slice::from_ref(&run), StopBeforeStart::Reject)?;
    ///     Ok([tx.stop_runs(&[first.clone()], StopBeforeStart::Reject)?, tx.stop_runs(&[later.clone()], StopBeforeStart::Reject)?])
    /// })?;
    /// assert_eq!(stopped, [[Stopped::Closed], [Stopped::Corrected]]);
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn stop_runs(&mut self, stops: &[RunClose], early: StopBeforeStart) -> Result<Vec<Stopped>> {
        let keys: Vec<RunKey> = stops.iter().map(|stop| stop.key.clone()).collect();
        // Whole records are written back, so lock them: no other transaction may change them in between.
        self.writes()?.wait_for_runs(&keys)?;
        let mut known: HashMap<RunKey, RunRecord> =
            self.raw().runs(&keys)?.into_iter().flatten().map(|run| (run.key.clone(), run)).collect();
        let mut answers = Vec::with_capacity(stops.len());
        for stop in stops {
            answers.push(match known.get_mut(&stop.key) {
                None => Stopped::Unknown,
                Some(run) => {
                    let was = run.stop;
                    *run = run.clone().closed(stop.stop, stop.status);
                    if was.is_none() { Stopped::Closed } else { Stopped::Corrected }
                }
            });
        }
        let runs: Vec<RunRecord> = known.into_values().collect();
        self.record_runs(&runs, early)?;
        Ok(answers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::error::Invalid;
    use crate::run::RunStatus;
    use crate::store::MemoryStore;
    use crate::time::Timestamp;

    #[test]
    fn one_early_stop_refuses_the_whole_call() {
        let store = MemoryStore::new();
        let key = |id: &str| RunKey::new("n", id).unwrap();
        let runs = ["a", "b"].map(|id| RunRecord::open(key(id), Timestamp::from_micros(10)));
        store.write(|tx| tx.record_runs(&runs, StopBeforeStart::Reject)).unwrap();
        let close = |id: &str, at| RunClose::new(key(id), Timestamp::from_micros(at), RunStatus::Failed);
        let stops = [close("a", 20), close("b", 9)];
        let refused = store.write(|tx| tx.stop_runs(&stops, StopBeforeStart::Reject)).unwrap_err();
        assert!(matches!(refused, Error::Invalid(Invalid::StopBeforeStart { micros: 1, .. })));
        assert_eq!(store.read(|tx| tx.runs(&[key("a")])).unwrap(), [Some(runs[0].clone())]);

        let stops = [close("a", 20), close("b", 9), close("a", 30), close("c", 5)];
        let answers = store.write(|tx| tx.stop_runs(&stops, StopBeforeStart::Store)).unwrap();
        assert_eq!(answers, [Stopped::Closed, Stopped::Closed, Stopped::Corrected, Stopped::Unknown]);
        let found = store.read(|tx| tx.runs(&[key("a"), key("b")])).unwrap();
        let ends: Vec<_> = found.into_iter().flatten().map(|run| run.stop).collect();
        assert_eq!(ends, [30, 9].map(|at| Some(Timestamp::from_micros(at))));
    }
}
