//! Repairing counters.

use crate::error::Result;
use crate::store::{Discrepancy, Tx};

impl Tx<'_> {
    /// Sets every counter to the number that it counts. Returns those that differed, as they were before.
    ///
    /// A correct store never has a wrong counter, so also find out what happened. The tables may have been
    /// written by hand, or restored in part. Only what can be computed from the tasks is changed. The
    /// counters are the used slots of pools, what counts against limits, what shares hold, and how many tasks
    /// each lane has and how many are ready. Wrong marks ([`Discrepancy::Mark`]) are removed. Anything else
    /// that [`audit`](crate::store::ReadTx::audit) finds stays as it is: [`Discrepancy::Task`] and missing
    /// lanes. No store can know what such a row should contain. Restore a backup.
    ///
    /// It reads all tasks that have not ended, and on SQLite all tasks. No other transaction writes in the
    /// meantime, except on PostgreSQL, where only ticks wait. Nothing else may be written in the transaction
    /// afterwards.
    ///
    /// # Errors
    ///
    /// Returns [`Invalid::TickInHostTransaction`](crate::error::Invalid::TickInHostTransaction) in a host's
    /// transaction on PostgreSQL. Returns [`crate::Error::Store`] if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::store::MemoryStore;
    ///
    /// let store = MemoryStore::new();
    /// if !store.read(|tx| tx.audit())?.is_empty() {
    ///     for counter in store.write(|tx| tx.repair_counters())? {
    ///         eprintln!("was wrong: {counter:?}");
    ///     }
    /// }
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn repair_counters(&mut self) -> Result<Vec<Discrepancy>> {
        self.tick(|tx| {
            let repaired = tx.raw().repair_counters()?;
            if !repaired.is_empty() {
                tx.capacity_changed();
            }
            Ok(repaired)
        })
    }
}
