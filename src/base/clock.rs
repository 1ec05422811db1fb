//! The source of time for services. Everything below the services takes `now` as an argument.
//!
//! # Testing with your own clock
//!
//! A tick takes its instant from the caller. [`service::drive`](crate::service::drive), its tokio counterpart
//! and a [`Worker`](crate::service::Worker) read the clock that you give them, but sleep in real time. So do
//! not use a driver in a test with a virtual clock. Instead, tick the services at the instants of a
//! [`ManualClock`], and jump to whatever is due next: an entry of your calendar or the `next_due` of a
//! report. Nothing sleeps, a simulated day takes seconds, and the same input produces the same day.
//! `examples/simulate_a_day` does this for 200 workflows with retries, sensors and crashes.
//!
//! Only a [`Poker`](crate::service::Poker) reads the machine's clock, because it waits for the host's pokes.
//! Three options depend on it: how long a tick waits (`wait_for_answers`), how long a poke may take
//! (`poke_timeout`, including that of a sensor's settings), and the `lease`, within which pokes may begin.
//! Make these much longer than the test itself. Each tick then collects the results of all its pokes, even on
//! a busy machine. If pokes compute their results from [`PokeRequest::now`](crate::service::PokeRequest::now)
//! and the context, the effect of a tick depends only on its instant. (The order in which a
//! [`PokeLog`](crate::service::PokeLog) receives the results still varies if there is more than one thread.)
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use stationmaster::clock::{Clock, ManualClock};
//! use stationmaster::sensor::Settings;
//! use stationmaster::service::kinds::{Condition, TimeReached, time_reached};
//! use stationmaster::service::{Admitter, Poker, Service};
//! use stationmaster::store::MemoryStore;
//! use stationmaster::{NewTask, TaskKey, Timestamp};
//!
//! let hours = |n: u64| Duration::from_secs(n * 3600);
//! let (clock, store) = (ManualClock::new(Timestamp::UNIX_EPOCH), Arc::new(MemoryStore::new()));
//! let mut poker = Poker::new(store.clone(), "poker".try_into()?).wait_for_answers(hours(1)).poke_timeout(hours(1)).lease(hours(12)).kind(TimeReached::kind()?, time_reached);
//! let mut admitter = Admitter::new(store.clone(), "worker".try_into()?).lease(hours(2));
//!
//! // A task that may start at one o'clock, and then waits as a sensor until nine.
//! let key = TaskKey::new("prod", "nightly", "r1", "wait")?;
//! let task = NewTask::new(key).not_before(clock.now() + hours(1));
//! store.write(|tx| tx.enqueue(clock.now(), std::slice::from_ref(&task)))?;
//! clock.set(admitter.tick(clock.now())?.next_due.expect("one o'clock"));
//! let lease = admitter.tick(clock.now())?.granted[0].lease_ref();
//! let settings = Settings::new(Duration::from_secs(600), hours(24))?;
//! let sensor = TimeReached::new(clock.now() + hours(8)).sensor(lease, settings)?;
//! store.write(|tx| {
//!     tx.start(clock.now(), &[lease])?;
//!     tx.register(clock.now(), std::slice::from_ref(&sensor))
//! })?;
//!
//! while {
//!     let report = poker.tick(clock.now())?;
//!     clock.set(report.next_due.expect("a poker is always due again").max(clock.now()));
//!     report.landed == 0
//! } {}
//! let waited = clock.now().saturating_duration_since(Timestamp::UNIX_EPOCH);
//! assert!(waited >= hours(9) && waited < hours(9) + Duration::from_secs(1200), "seen within an interval");
//! # Ok::<(), stationmaster::Error>(())
//! ```

use std::fmt::Debug;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use chrono::Utc;

use crate::time::Timestamp;

/// A source of the current time.
pub trait Clock: Debug + Send + Sync {
    /// Returns the current instant.
    fn now(&self) -> Timestamp;

    /// Returns an instant from which a [`Worker`](crate::service::Worker) measures how long it waits. Only
    /// the difference between two such instants is meaningful.
    ///
    /// It advances like [`Self::now`], which is also the default. A clock that can be set should return an
    /// instant that setting the clock does not change, so that setting it back does not lengthen a wait.
    /// [`SystemClock`] and the clock of a PostgreSQL store do this.
    fn steady(&self) -> Timestamp {
        self.now()
    }
}

/// The operating system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Utc::now().into()
    }

    fn steady(&self) -> Timestamp {
        static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
        Timestamp::UNIX_EPOCH + FIRST.elapsed()
    }
}

/// A clock that moves only when it is set or advanced, for tests and simulations.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use stationmaster::clock::{Clock, ManualClock};
/// use stationmaster::Timestamp;
///
/// let clock = ManualClock::new(Timestamp::UNIX_EPOCH);
/// clock.advance(Duration::from_secs(1));
/// assert_eq!(clock.now(), Timestamp::from_micros(1_000_000));
/// ```
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// Creates a clock stopped at this instant.
    pub fn new(start: impl Into<Timestamp>) -> Self {
        Self(AtomicI64::new(start.into().as_micros()))
    }

    /// Sets the clock, forwards or backwards.
    pub fn set(&self, now: impl Into<Timestamp>) {
        self.0.store(now.into().as_micros(), Ordering::SeqCst);
    }

    /// Moves the clock forwards.
    pub fn advance(&self, length: Duration) {
        let later = |now| Some((Timestamp::from_micros(now) + length).as_micros());
        // The closure always returns a value, so the update cannot fail.
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, later);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}
