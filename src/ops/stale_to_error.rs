//! Turns stale results into errors, for hosts whose own rows must not outlive a lease.

use super::attempt::Finished;
use super::sense::Registered;
use crate::error::{Error, Result};
use crate::lease::Renewal;

/// The result of a call for one lease.
trait UnderLease {
    /// Returns true if the lease was stale, so nothing was done under it.
    fn is_stale(&self) -> bool;

    /// Returns true if an earlier call had already done this, so this call did nothing.
    fn is_repeated(&self) -> bool {
        false
    }
}

impl UnderLease for Finished {
    fn is_stale(&self) -> bool {
        *self == Self::Stale
    }

    fn is_repeated(&self) -> bool {
        matches!(self, Self::Already(_))
    }
}

/// The result of [`start`](crate::store::Tx::start) and [`end_sensors`](crate::store::Tx::end_sensors).
impl UnderLease for bool {
    fn is_stale(&self) -> bool {
        !*self
    }
}

/// Only [`Renewal::Lost`] is stale: a lease that is busy, or whose task was cancelled, is still the caller's.
impl UnderLease for Renewal {
    fn is_stale(&self) -> bool {
        self.is_lost()
    }
}

/// Only [`Registered::Stale`] is stale. A task that was not started, or may not be a sensor, is still the
/// caller's. A cancelled one was the caller's until this call.
impl UnderLease for Registered {
    fn is_stale(&self) -> bool {
        *self == Self::Stale
    }
}

/// Results of calls under leases that must all still hold.
pub trait Fenced: Sized {
    /// Returns the results unchanged, or an error if a lease was stale.
    ///
    /// With `?`, the error leaves the body of the transaction. This rolls back the host's rows and what was
    /// done under the other leases.
    ///
    /// A repeated finish is a different error: the host's rows were committed with the first finish and must
    /// not be written twice.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Stale`] if a lease was stale, otherwise [`Error::Repeated`] if a finish was repeated.
    /// The transaction must be rolled back. The store's own transaction is rolled back automatically.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use stationmaster::ops::{AdmitRequest, Fenced, Finish};
    /// use stationmaster::store::MemoryStore;
    /// use stationmaster::{Error, NewTask, TaskKey, Timestamp};
    ///
    /// let (store, now) = (MemoryStore::new(), Timestamp::UNIX_EPOCH);
    /// let order = AdmitRequest::new("worker-1".try_into()?, "tick-1".try_into()?, 10, Duration::from_secs(30));
    /// let admission = store.write(|tx| {
    ///     tx.enqueue(now, &[NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?)])?;
    ///     tx.admit(now, &order)
    /// })?;
    /// let lease = admission.granted[0].lease_ref();
    /// let finish_it = || store.write(|tx| tx.finish(now, &[Finish::success(lease)])?.fenced());
    /// assert!(finish_it().is_ok());
    /// assert!(matches!(finish_it(), Err(Error::Repeated { .. })), "what it says is stored");
    /// let fail_it = store.write(|tx| tx.finish(now, &[Finish::failed(lease, "late")])?.fenced());
    /// assert!(matches!(fail_it, Err(Error::Stale { .. })), "the lease has ended");
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    fn fenced(self) -> Result<Self>;
}

impl<A: UnderLease> Fenced for Vec<A> {
    fn fenced(self) -> Result<Self> {
        let of = self.len();
        let places = |is: fn(&A) -> bool| -> Vec<usize> {
            self.iter().enumerate().filter(|(_, answer)| is(answer)).map(|(at, _)| at).collect()
        };
        let (stale, repeated) = (places(A::is_stale), places(A::is_repeated));
        match (stale.is_empty(), repeated.is_empty()) {
            (true, true) => Ok(self),
            (true, false) => Err(Error::Repeated { repeated, of }),
            (false, _) => Err(Error::Stale { stale, of }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::TaskState;

    #[test]
    fn the_places_of_the_stale_ones_are_reported() {
        assert_eq!(vec![true, true].fenced().unwrap().len(), 2);
        let error = vec![true, false, false].fenced().unwrap_err();
        assert!(!error.is_retryable());
        let text = "leases are stale: 2 of the 3 that were named, the first at place 2 (from 1): roll back, and stop that work";
        assert_eq!(error.to_string(), text);
        assert!(
            vec![Registered::NotRunning, Registered::Ineligible(crate::sensor::Ineligible::SwitchedOff)]
                .fenced()
                .is_ok()
        );
        assert!(vec![Renewal::Renewed, Renewal::Busy].fenced().is_ok());
        assert!(vec![Renewal::Lost].fenced().is_err());
        assert!(vec![Registered::Stale].fenced().is_err() && vec![Finished::Stale].fenced().is_err());
    }

    #[test]
    fn a_repeated_finish_is_another_error_than_a_stale_one() {
        let (ended, again) = (Finished::Ended(TaskState::Success), Finished::Already(TaskState::Success));
        let error = vec![ended, again].fenced().unwrap_err();
        assert!(
            matches!(&error, Error::Repeated { repeated, of: 2 } if *repeated == [1])
                && !error.is_retryable()
        );
        let text = "1 of the 2 that were named had been finished like this before, the first at place 2 (from 1): roll back, and \
                    call again without these, which are stored";
        assert_eq!(error.to_string(), text);
        assert!(matches!(vec![again, Finished::Stale].fenced(), Err(Error::Stale { .. })));
    }
}
