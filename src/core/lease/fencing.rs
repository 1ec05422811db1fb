//! Fencing: a verb under an outdated lease is refused.
//!
//! A holder that was considered dead may come back and report on work that another holder does now. Clocks
//! cannot tell the two apart, because those of two machines differ. So each grant of a task raises its epoch.
//! A verb under an older epoch changes nothing and says so.
//!
//! Verbs compare with the row that they read. Stores compare again in each conditional write, in the
//! statement that changes the row: see `attempt.rs` of each store.

use super::LeaseRef;

impl LeaseRef {
    /// Returns true if this is the latest grant. `latest` is the `lease_ref()` of the task's or sensor's row.
    ///
    /// A current lease may have ended, so the caller also checks the row's state.
    pub(crate) fn is_current(self, latest: Self) -> bool {
        self == latest
    }
}
