//! The door to the runs, awaited.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::store::AsyncStore;
use crate::error::Result;
use crate::run::{ActiveQuery, Bucket, Group, RunBeat, RunClose, RunRecord, SeriesBy};
use crate::service::runs::{self, EarlyStop, Silence, Stopped};
use crate::store::Moved;

/// The operations of [`crate::service::runs`], each in a transaction of its own. See [`AsyncStore::runs`].
///
/// Each answers and fails as the function of its name, and with [`crate::Error::Runtime`] outside a runtime.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use stationmaster::run::{ActiveQuery, RunClose, RunKey, RunRecord, RunStatus};
/// use stationmaster::service::runs::{EarlyStop, Stopped};
/// use stationmaster::store::MemoryStore;
/// use stationmaster::time::from_micros;
/// use stationmaster::tokio::AsyncStore;
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let store = AsyncStore::new(Arc::new(MemoryStore::new()));
/// let key = RunKey::new("prod", "nightly-1")?;
/// store.runs().record([RunRecord::open(key.clone(), from_micros(20))], EarlyStop::Refuse).await?;
/// let stop = RunClose::new(key, from_micros(30), RunStatus::Completed);
/// assert_eq!(store.runs().stop([stop], EarlyStop::Refuse).await?, [Stopped::Closed]);
/// assert_eq!(store.runs().active(ActiveQuery::new(from_micros(25), from_micros(26))).await?.len(), 1);
/// # Ok::<(), stationmaster::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct AsyncRuns(AsyncStore);

impl AsyncStore {
    /// The operations on runs.
    pub fn runs(&self) -> AsyncRuns {
        AsyncRuns(self.clone())
    }
}

impl AsyncRuns {
    /// Records runs: [`runs::record`]. Repeat it if its future was dropped.
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn record(&self, runs: impl Into<Vec<RunRecord>> + Send, early: EarlyStop) -> Result<()> {
        let runs = runs.into();
        self.0.write(move |tx| runs::record(tx, &runs, early)).await
    }

    /// Ends runs: [`runs::stop`]. Repeated after a dropped future it answers `Corrected` for what the first call ended.
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn stop(
        &self,
        stops: impl Into<Vec<RunClose>> + Send,
        early: EarlyStop,
    ) -> Result<Vec<Stopped>> {
        let stops = stops.into();
        self.0.write(move |tx| runs::stop(tx, &stops, early)).await
    }

    /// Tells that runs are alive: [`RunTx::beat_runs_if_open`](crate::store::RunTx::beat_runs_if_open). Repeat it if its
    /// future was dropped.
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn beat(&self, beats: impl Into<Vec<RunBeat>> + Send) -> Result<Vec<Moved>> {
        let beats = beats.into();
        self.0.write(move |tx| Ok(tx.beat_runs_if_open(&beats)?)).await
    }

    /// Closes watched runs that have been silent for too long: [`runs::close_silent`]. What a call whose future was dropped
    /// closed is in the runs' records only.
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn close_silent(&self, now: DateTime<Utc>, silence: Silence) -> Result<Vec<RunRecord>> {
        self.0.write(move |tx| runs::close_silent(tx, now, &silence)).await
    }

    /// The runs that were active in a window: [`RunTx::active_runs`](crate::store::RunTx::active_runs).
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn active(&self, query: ActiveQuery) -> Result<Vec<RunRecord>> {
        self.0.read(move |tx| Ok(tx.active_runs(&query)?)).await
    }

    /// Runs over time: [`runs::series`].
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn series(
        &self,
        query: ActiveQuery,
        width: Duration,
        by: SeriesBy,
        as_of: DateTime<Utc>,
    ) -> Result<Vec<(Group, Vec<Bucket>)>> {
        self.0.read(move |tx| runs::series(tx, &query, width, by, as_of)).await
    }
}
