//! Runs over time.

use std::time::Duration;

use crate::error::Result;
use crate::run::{ActiveQuery, Bucket, Group, RunRecord, Series, SeriesBy, SeriesSpec};
use crate::store::ReadTx;
use crate::time::Timestamp;

/// The most runs held in memory at once.
const PAGE: usize = 10_000;

impl ReadTx<'_> {
    /// Counts active runs, starts and stops, and sums time at work, per bucket of the query's window and per
    /// group. Time at work is exact: a sum of whole microseconds over the nodes that each run had at the time
    /// ([`RunRecord::nodes`]). Open runs are at work until `as_of`. The query's position and limit are
    /// ignored.
    ///
    /// Each run in the window is read once, however it is grouped and however many buckets it spans. At most
    /// 10,000 runs and the buckets of all groups are in memory at a time. [`SeriesBy::User`] bounds only what
    /// is returned: until the end, each user has a row.
    ///
    /// # Errors
    ///
    /// Returns [`Invalid::Duration`](crate::error::Invalid::Duration) or
    /// [`Invalid::Buckets`](crate::error::Invalid::Buckets) for a width that does not suit the window, or for
    /// more groups than the cap allows. Returns [`crate::Error::Store`] if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use stationmaster::ops::StopBeforeStart;
    /// use stationmaster::run::{ActiveQuery, RunKey, RunRecord, SeriesBy};
    /// use stationmaster::store::MemoryStore;
    /// use stationmaster::Timestamp;
    ///
    /// let store = MemoryStore::new();
    /// let hour = |n: i64| Timestamp::from_micros(n * 3_600_000_000);
    /// let run = RunRecord::open(RunKey::new("prod", "nightly-1")?, hour(2)).nodes(hour(4), 3);
    /// let day = ActiveQuery::new(hour(0), hour(24));
    /// let rows = store.write(|tx| {
    ///     tx.record_runs(std::slice::from_ref(&run), StopBeforeStart::Reject)?;
    ///     tx.run_series(&day, Duration::from_secs(3600), SeriesBy::Namespace, hour(5))
    /// })?;
    /// let (group, hours) = &rows[0];
    /// assert_eq!(group.namespace.as_ref().map(|name| name.as_str()), Some("prod"));
    /// assert_eq!((hours.len(), hours[2].starts, hours[1].active), (24, 1, 0));
    /// assert_eq!(hours.iter().map(|hour| hour.node_hours()).sum::<f64>(), 2.0 + 3.0);
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn run_series(
        &mut self,
        query: &ActiveQuery,
        width: Duration,
        by: SeriesBy,
        as_of: impl Into<Timestamp>,
    ) -> Result<Vec<(Group, Vec<Bucket>)>> {
        let mut series = Series::new(SeriesSpec::new(query.begin, query.end, width, by)?, as_of.into());
        let mut query = query.clone().limit(PAGE);
        query.after = None;
        loop {
            let page = self.raw().active_runs(&query)?;
            for run in &page {
                series.add(run)?;
            }
            match page.last().map(RunRecord::place) {
                Some(last) if page.len() == PAGE => query.after = Some(last),
                _ => return Ok(series.finish()),
            }
        }
    }
}
