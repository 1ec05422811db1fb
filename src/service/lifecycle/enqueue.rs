//! Handing tasks over.

use chrono::{DateTime, Utc};

use crate::error::{Invalid, Result};
use crate::store::{Inserted, TaskTx};
use crate::task::NewTask;

/// Enqueues tasks. A task whose key is known already is left as it is, so the call may be repeated after a crash.
///
/// # Errors
///
/// [`crate::Error::Invalid`] for a task that asks for what no store can give (see [`NewTask::check`]); then none of them is
/// enqueued. [`crate::Error::Store`] if the store fails.
///
/// # Examples
///
/// ```
/// use stationmaster::service::lifecycle::enqueue;
/// use stationmaster::store::{Inserted, MemoryStore, StoreExt};
/// use stationmaster::time::from_micros;
/// use stationmaster::{NewTask, TaskKey};
///
/// let store = MemoryStore::new();
/// let task = NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?);
/// let first = store.write(|tx| enqueue(tx, from_micros(0), std::slice::from_ref(&task)))?;
/// let again = store.write(|tx| enqueue(tx, from_micros(9), std::slice::from_ref(&task)))?;
/// assert!(matches!((first[0], again[0]), (Inserted::New(a), Inserted::Exists(b)) if a == b));
/// # Ok::<(), stationmaster::Error>(())
/// ```
pub fn enqueue(
    tx: &mut (impl TaskTx + ?Sized),
    now: DateTime<Utc>,
    tasks: &[NewTask],
) -> Result<Vec<Inserted>> {
    let rows = tasks.iter().map(|task| task.check(now)).collect::<std::result::Result<Vec<_>, Invalid>>()?;
    Ok(tx.insert_tasks_if_absent(&rows)?)
}
