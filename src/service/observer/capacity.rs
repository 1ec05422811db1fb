//! The gauges of pools, queues and limits.

use std::collections::{BTreeMap, BTreeSet};

use super::Observer;
use super::emitter::safely;
use super::metrics::{
    LIMIT_MAX, LIMIT_PAUSED, LIMIT_USED, Metric, POOL_OPEN, POOL_PAUSED, POOL_READY, POOL_USED, QUEUE_LEASED,
    QUEUE_PAUSED, QUEUE_SERVED, QUEUE_WAITING,
};
use crate::admission::Subject;
use crate::error::Result;
use crate::id::PoolName;
use crate::store::ReadTx;
use crate::store::contract::SurveyQuery;
use crate::time::Timestamp;

/// The most labels of each metric. The rest are summed under [`OTHER`].
const LABELS: usize = 1_000;

const OTHER: &str = "other";

/// Reports as gauges what pools, queues and defined limits hold, and what waits for them.
///
/// Call it when the numbers are needed, for example when metrics are scraped. Nothing is read at other times, and
/// schedulers of one store need not report the same numbers. `now` decides whether a queue is served. The observer is
/// called within the transaction. A name that no longer exists is no longer reported: clear the old values before the
/// call.
///
/// Each metric has at most 1,000 labels: the first ones in byte order. The rest are summed under the label `other`.
/// Keys of families have no label, because their number is not bounded. An unlimited pool has no
/// [`POOL_OPEN`](super::metrics::POOL_OPEN), and a key without a maximum has no
/// [`LIMIT_MAX`](super::metrics::LIMIT_MAX).
///
/// It costs five store calls, which read pools, queues, defined limits, pauses, and the lanes that have ready tasks.
///
/// # Errors
///
/// Returns [`crate::Error::Store`] if the store fails. In that case nothing was reported.
///
/// # Examples
///
/// ```
/// use stationmaster::service::{Observer, metrics};
/// use stationmaster::store::{MemoryStore, Store};
/// use stationmaster::Timestamp;
///
/// struct Page;
///
/// impl Observer for Page {
///     fn gauge(&self, metric: &'static metrics::Metric, labels: &[(&'static str, &str)], value: f64) {
///         println!("{}{labels:?} {value}", metric.name);
///     }
/// }
///
/// let store = MemoryStore::new();
/// store.read(|tx| metrics::capacity(tx, Timestamp::UNIX_EPOCH, &Page))?;
/// # Ok::<(), stationmaster::Error>(())
/// ```
pub fn capacity(tx: &mut ReadTx<'_>, now: impl Into<Timestamp>, observer: &dyn Observer) -> Result<()> {
    let now = now.into();
    let (pools, queues, limits) = (tx.all_pools()?, tx.queues()?, tx.all_limits()?);
    let paused: BTreeSet<Subject> = tx.paused()?.into_iter().collect();
    let mut ready: BTreeMap<PoolName, u64> = BTreeMap::new();
    for lane in tx.raw().survey(&SurveyQuery::new())?.lanes {
        for (pool, _) in lane.key.pools() {
            *ready.entry(pool.clone()).or_default() += lane.ready;
        }
    }

    let mut gauges = Gauges { observer, counted: BTreeMap::new() };
    for pool in &pools {
        let name = &pool.spec.name;
        gauges.set(&POOL_USED, name.as_str(), pool.used as f64);
        if let Some(open) = pool.open() {
            gauges.set(&POOL_OPEN, name.as_str(), open as f64);
        }
        gauges.set(&POOL_READY, name.as_str(), ready.get(name).copied().unwrap_or(0) as f64);
        gauges.is(&POOL_PAUSED, name.as_str(), paused.contains(&Subject::Pool(name.clone())));
    }
    for queue in &queues {
        gauges.set(&QUEUE_WAITING, queue.name.as_str(), queue.waiting as f64);
        gauges.set(&QUEUE_LEASED, queue.name.as_str(), queue.leased as f64);
        gauges.is(&QUEUE_SERVED, queue.name.as_str(), queue.served_until.is_some_and(|until| until > now));
        gauges.is(&QUEUE_PAUSED, queue.name.as_str(), paused.contains(&Subject::Queue(queue.name.clone())));
    }
    for limit in &limits {
        gauges.set(&LIMIT_USED, limit.key.as_str(), limit.used as f64);
        if let Some(max) = limit.max {
            gauges.set(&LIMIT_MAX, limit.key.as_str(), max.into());
        }
        gauges.is(&LIMIT_PAUSED, limit.key.as_str(), paused.contains(&Subject::Key(limit.key.clone())));
    }
    gauges.report_the_rest();
    Ok(())
}

/// Gauges with one label, which arrive in its byte order.
struct Gauges<'a> {
    observer: &'a dyn Observer,
    /// For each metric, how many labels were reported, and the sum of the others.
    counted: BTreeMap<&'static str, (&'static Metric, usize, f64)>,
}

impl Gauges<'_> {
    fn set(&mut self, metric: &'static Metric, label: &str, value: f64) {
        let (_, count, rest) = self.counted.entry(metric.name).or_insert((metric, 0, 0.0));
        *count += 1;
        if *count > LABELS {
            *rest += value;
            return;
        }
        safely(|| self.observer.gauge(metric, &[(metric.labels[0], label)], value));
    }

    fn is(&mut self, metric: &'static Metric, label: &str, holds: bool) {
        self.set(metric, label, u8::from(holds).into());
    }

    fn report_the_rest(self) {
        for (metric, _, rest) in self.counted.into_values().filter(|(_, count, _)| *count > LABELS) {
            safely(|| self.observer.gauge(metric, &[(metric.labels[0], OTHER)], rest));
        }
    }
}
