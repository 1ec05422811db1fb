//! Closing runs that have gone silent.

use std::time::Duration;

use crate::error::{Invalid, Result};
use crate::run::{RunClose, RunRecord, RunStatus};
use crate::store::Tx;
use crate::time;
use crate::time::Timestamp;

impl Tx<'_> {
    /// Closes at most `limit` watched runs that sent no heartbeat for longer than `silent_for`, each at its
    /// last heartbeat and with this status. Returns them as they were before, the longest silent first. Call
    /// it again while it returns `limit` runs.
    ///
    /// Set `silent_for` to several heartbeat intervals, and use [`RunStatus::Killed`] for runs whose process
    /// died.
    ///
    /// # Errors
    ///
    /// Returns [`Invalid::Duration`] if `silent_for` is below a microsecond, and
    /// [`Invalid::AboveReadCommitted`] in a host's transaction on PostgreSQL that would not see the latest
    /// heartbeats. Returns [`crate::Error::Store`] if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use stationmaster::run::{RunKey, RunRecord, RunStatus};
    /// use stationmaster::ops::StopBeforeStart;
    /// use stationmaster::store::MemoryStore;
    /// use stationmaster::Timestamp;
    ///
    /// let store = MemoryStore::new();
    /// let key = RunKey::new("prod", "nightly-1")?;
    /// let run = RunRecord::open(key.clone(), Timestamp::UNIX_EPOCH).heartbeat(Timestamp::from_micros(5_000_000));
    /// let (silent_for, status) = (Duration::from_secs(90), RunStatus::Killed);
    /// let closed = store.write(|tx| {
    ///     tx.record_runs(std::slice::from_ref(&run), StopBeforeStart::Reject)?;
    ///     let none = tx.close_silent_runs(Timestamp::from_micros(95_000_000), silent_for, status, 100)?;
    ///     assert!(none.is_empty(), "90 s are not too long");
    ///     tx.close_silent_runs(Timestamp::from_micros(95_000_001), silent_for, status, 100)
    /// })?;
    /// assert_eq!(closed, [run]);
    /// let found = store.read(|tx| tx.runs(&[key.clone()]))?.remove(0).expect("it is kept");
    /// assert_eq!((found.status, found.stop), (RunStatus::Killed, Some(Timestamp::from_micros(5_000_000))));
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn close_silent_runs(
        &mut self,
        now: impl Into<Timestamp>,
        silent_for: Duration,
        status: RunStatus,
        limit: usize,
    ) -> Result<Vec<RunRecord>> {
        if time::duration_micros(silent_for) == 0 {
            let (what, expected) = ("the silence of a dead run", "a microsecond or more");
            return Err(Invalid::Duration { what, expected }.into());
        }
        let silent = self.decides()?.silent_runs(now.into() - silent_for, limit)?;
        let closes: Vec<RunClose> = silent
            .iter()
            .map(|run| RunClose::new(run.key.clone(), run.heartbeat.unwrap_or(run.start), status))
            .collect();
        let moved = self.writes()?.close_runs_if_open(&closes)?;
        Ok(silent.into_iter().zip(moved).filter(|(_, moved)| *moved).map(|(run, _)| run).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{RunKey, RunStatus};
    use crate::store::MemoryStore;

    #[test]
    fn a_run_that_was_opened_again_is_not_closed_before_it_is_silent_again() {
        let store = MemoryStore::new();
        let key = RunKey::new("prod", "r").unwrap();
        let run = RunRecord::open(key.clone(), Timestamp::UNIX_EPOCH).heartbeat(Timestamp::UNIX_EPOCH);
        let (ten, dead) = (Duration::from_micros(10), RunStatus::Killed);
        assert!(
            store
                .write(|tx| tx.close_silent_runs(Timestamp::from_micros(50), Duration::ZERO, dead, 9))
                .is_err()
        );
        store
            .write(|tx| {
                tx.raw().put_runs(std::slice::from_ref(&run))?;
                assert_eq!(tx.close_silent_runs(Timestamp::from_micros(50), ten, dead, 9)?.len(), 1);
                let closed = tx.runs(std::slice::from_ref(&key))?.remove(0).unwrap();
                tx.raw().put_runs(&[closed.reopened(Timestamp::from_micros(60))])?;
                assert_eq!(tx.close_silent_runs(Timestamp::from_micros(70), ten, dead, 9)?, []);
                let silent = tx.close_silent_runs(Timestamp::from_micros(71), ten, dead, 9)?;
                assert_eq!(silent[0].heartbeat, Some(Timestamp::from_micros(60)));
                let closed = tx.runs(std::slice::from_ref(&key))?.remove(0).unwrap();
                assert_eq!(
                    (closed.status, closed.stop),
                    (RunStatus::Killed, Some(Timestamp::from_micros(60)))
                );
                Ok(())
            })
            .unwrap();
    }
}
