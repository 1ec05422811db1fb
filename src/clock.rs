//! Where services get the time from. Everything below the services takes `now` as an argument.

use std::fmt::Debug;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::time;

/// Tells the time.
pub trait Clock: Debug + Send + Sync {
    /// The present instant, truncated to the microsecond.
    fn now(&self) -> DateTime<Utc>;
}

/// The operating system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> DateTime<Utc> {
        time::truncate(Utc::now())
    }
}

/// A clock that moves when it is told to: for tests and simulations.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use stationmaster::clock::{Clock, ManualClock};
/// use stationmaster::time::from_micros;
///
/// let clock = ManualClock::new(from_micros(0));
/// clock.advance(Duration::from_secs(1));
/// assert_eq!(clock.now(), from_micros(1_000_000));
/// ```
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that stands at this instant.
    pub fn new(start: DateTime<Utc>) -> Self {
        Self(AtomicI64::new(time::micros(start)))
    }

    /// Sets the clock, forwards or backwards.
    pub fn set(&self, now: DateTime<Utc>) {
        self.0.store(time::micros(now), Ordering::SeqCst);
    }

    /// Moves the clock forwards.
    pub fn advance(&self, length: Duration) {
        let later = |now| Some(time::micros(time::add(time::from_micros(now), length)));
        // The closure always answers, so the update cannot fail.
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, later);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> DateTime<Utc> {
        time::from_micros(self.0.load(Ordering::SeqCst))
    }
}
