//! Queues: what waits in each, and who serves it.

use std::collections::BTreeMap;

use crate::admission::{QueueRecord, Subject, served_until};
use crate::error::Result;
use crate::id::QueueName;
use crate::store::ReadTx;

impl ReadTx<'_> {
    /// Returns, by name, the queues that are defined, that admitters serve by name, or that have tasks that
    /// have not ended.
    ///
    /// The cost grows with the number of leases, lanes and sensors.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use stationmaster::ops::AdmitRequest;
    /// use stationmaster::store::MemoryStore;
    /// use stationmaster::{NewTask, TaskKey, Timestamp};
    ///
    /// let store = MemoryStore::new();
    /// let now = Timestamp::UNIX_EPOCH;
    /// let task = NewTask::new(TaskKey::new("prod", "films", "r1", "render")?).queue("gpu".try_into()?);
    /// store.write(|tx| tx.enqueue(now, std::slice::from_ref(&task)))?;
    ///
    /// let order = AdmitRequest::new("worker-1".try_into()?, "tick-1".try_into()?, 10, Duration::from_secs(30));
    /// let order = order.serves(["cpu".try_into()?]);
    /// assert!(store.write(|tx| tx.admit(now, &order))?.granted.is_empty());
    ///
    /// let queues = store.read(|tx| tx.queues())?;
    /// assert_eq!((queues[0].name.as_str(), queues[0].waiting), ("cpu", 0));
    /// assert_eq!((queues[1].name.as_str(), queues[1].waiting, queues[1].served_until), ("gpu", 1, None));
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn queues(&mut self) -> Result<Vec<QueueRecord>> {
        let serving = self.raw().serving()?;
        let counted = self.raw().queues()?.into_iter().map(|queue| (queue.name.clone(), queue));
        let mut queues: BTreeMap<QueueName, QueueRecord> = counted.collect();
        let caps = self.caps()?;
        let capped = caps.keys().filter_map(|subject| match subject {
            Subject::Queue(name) => Some(name),
            _ => None,
        });
        for name in serving.iter().flat_map(|served| served.queues.iter().flatten()).chain(capped) {
            queues.entry(name.clone()).or_insert_with(|| QueueRecord::new(name.clone(), 0, 0, 0, 0));
        }
        let with_servers = |queue: QueueRecord| QueueRecord {
            served_until: served_until(&serving, &queue.name),
            cap: caps.get(&Subject::Queue(queue.name.clone())).copied(),
            ..queue
        };
        Ok(queues.into_values().map(with_servers).collect())
    }
}
