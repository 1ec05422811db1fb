//! Fencing: a verb with an outdated lease is refused.
//!
//! A holder that was considered dead may come back and report on work that another holder now does. Clocks
//! cannot tell the two apart, because the clocks of different machines differ. So each grant of a task raises
//! its epoch. A verb with an older epoch changes nothing and reports that.
//!
//! Verbs compare their epoch with the row that they read. Stores compare it again in each conditional write,
//! in the statement that changes the row: see `attempt.rs` of each store.

use super::LeaseRef;

impl LeaseRef {
    /// Returns true if this is the latest grant. `latest` is the `lease_ref()` of the task's or sensor's row.
    ///
    /// The lease of the latest grant may have ended, so the caller also checks the row's state.
    pub(crate) fn is_current(self, latest: Self) -> bool {
        self == latest
    }
}
