//! Closing runs that fell silent.

use std::time::Duration;

use crate::error::{Invalid, Result};
use crate::run::{RunClose, RunRecord, RunStatus};
use crate::store::Tx;
use crate::time;
use crate::time::Timestamp;

/// When a watched run counts as dead, and how it is then closed.
///
/// Defaults: killed, at most 1,000 per call. The time has no default: use several intervals of your
/// heartbeats.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use stationmaster::ops::{StopBeforeStart, Silence};
/// let silence = Silence::after(Duration::from_secs(90))?.limit(100);
/// assert!(Silence::after(Duration::ZERO).is_err());
/// # Ok::<(), stationmaster::error::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Silence {
    /// How long a run is silent before it counts as dead.
    pub after: Duration,
    /// The status given to a run that is closed for its silence.
    pub status: RunStatus,
    /// The most runs that one call closes.
    pub limit: usize,
}

impl Silence {
    /// Creates the rule that a run is dead if it sent no heartbeat for longer than this.
    ///
    /// # Errors
    ///
    /// Returns [`Invalid::Duration`] for less than a microsecond.
    pub fn after(after: Duration) -> Result<Self, Invalid> {
        if time::duration_micros(after) == 0 {
            return Err(Invalid::Duration {
                what: "the silence of a dead run",
                expected: "a microsecond or more",
            });
        }
        Ok(Self { after, status: RunStatus::Killed, limit: 1_000 })
    }

    /// Sets the status given to a run that is closed.
    #[must_use]
    pub fn status(mut self, status: RunStatus) -> Self {
        self.status = status;
        self
    }

    /// Sets the most runs that one call closes.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }
}

impl Tx<'_> {
    /// Closes watched runs that have been silent for too long, each at its last heartbeat. Returns them as
    /// they were, the longest silent first. Call it again while it returns as many as its limit.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use stationmaster::run::{RunKey, RunRecord, RunStatus};
    /// use stationmaster::ops::{StopBeforeStart, Silence};
    /// use stationmaster::store::MemoryStore;
    /// use stationmaster::Timestamp;
    ///
    /// let store = MemoryStore::new();
    /// let key = RunKey::new("prod", "nightly-1")?;
    /// let run = RunRecord::open(key.clone(), Timestamp::UNIX_EPOCH).heartbeat(Timestamp::from_micros(5_000_000));
    /// let silence = Silence::after(Duration::from_secs(90))?;
    /// let closed = store.write(|tx| {
    ///     tx.record_runs(std::slice::from_ref(&run), StopBeforeStart::Reject)?;
    ///     assert!(tx.close_silent_runs(Timestamp::from_micros(95_000_000), &silence)?.is_empty(), "90 s are not too long");
    ///     tx.close_silent_runs(Timestamp::from_micros(95_000_001), &silence)
    /// })?;
    /// assert_eq!(closed, [run]);
    /// let found = store.read(|tx| tx.runs(&[key.clone()]))?.remove(0).expect("it is kept");
    /// assert_eq!((found.status, found.stop), (RunStatus::Killed, Some(Timestamp::from_micros(5_000_000))));
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn close_silent_runs(
        &mut self,
        now: impl Into<Timestamp>,
        silence: &Silence,
    ) -> Result<Vec<RunRecord>> {
        let silent = self.raw().silent_runs(now.into() - silence.after, silence.limit)?;
        let closes: Vec<RunClose> = silent
            .iter()
            .map(|run| RunClose::new(run.key.clone(), run.heartbeat.unwrap_or(run.start), silence.status))
            .collect();
        let moved = self.raw().close_runs_if_open(&closes)?;
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
        let silence = Silence::after(Duration::from_micros(10)).unwrap();
        store
            .write(|tx| {
                tx.raw().put_runs(std::slice::from_ref(&run))?;
                assert_eq!(tx.close_silent_runs(Timestamp::from_micros(50), &silence)?.len(), 1);
                let closed = tx.runs(std::slice::from_ref(&key))?.remove(0).unwrap();
                tx.raw().put_runs(&[closed.reopened(Timestamp::from_micros(60))])?;
                assert_eq!(tx.close_silent_runs(Timestamp::from_micros(70), &silence)?, []);
                let silent = tx.close_silent_runs(Timestamp::from_micros(71), &silence)?;
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
