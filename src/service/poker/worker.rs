//! The poke service.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use super::counts::CountedPokes;
use super::engine::{Collected, Engine};
use super::follow::Unread;
use super::kinds::{Kind, Kinds};
use super::life::FormerHolders;
use super::options::Options;
use super::poke::{Poke, PokeLog, PokeMany, Probe};
use super::report::PokeReport;
use super::savings::ReportedKinds;
use super::shards::{Renewal, take_turns};
use crate::base::setters;
use crate::error::Result;
use crate::id::{Holder, SensorKind};
use crate::sensor::plan::Plan;
use crate::service::incarnation;
use crate::service::observer::{Emitter, Observer, Reported};
use crate::store::Store;
use crate::store::serving::for_service;
use crate::time::Timestamp;

/// Polls what sensors wait for.
///
/// # One tick
///
/// 1. *Shards.* The worker renews its heartbeat and its shards, releases what other workers should have and
///    takes what is free. It does so every third of the lease, and when the lease on another worker's shard
///    ends. A worker that starts, or that did not renew in time, leaves the other workers' shards alone for a
///    third of a lease. The store may have kept all of them from renewing, so they may come back. The same
///    transaction stores how many pokes it has made and saved
///    ([`poke_counts`](crate::store::ReadTx::poke_counts)).
/// 2. *Follow.* It reads what changed since its cursor, in its shards only, and the waiting sensors of the
///    shards it just took. If nothing changed, it reads nothing else.
/// 3. *Poke.* Each overdue group is assigned to the poker's threads once. The tick waits for the outcomes, at
///    most [`wait_for_answers`](Self::wait_for_answers). A later tick processes those that come later, and no
///    other group waits for them.
/// 4. *Settle.* Sensors that landed, failed, timed out or were given up are ended in one transaction (of
///    10,000 at most). If none ended, nothing is written. A sensor that times out is first poked once more.
///
/// # Pokes
///
/// A group is poked when one of its sensors registers, at most once per
/// [`min_interval`](Self::min_interval), and not while its target is unreachable. After that it is
/// poked on a grid of the smallest interval of its members (not below that minimum), and when a member times
/// out. The grid is computed from fingerprint and interval alone. So a restart needs no stored counter and
/// pokes no more than usual.
///
/// * *Threads* are the poker's own, created when there is work for them. At most
///   [`threads`](Self::threads) of them do not hang. Kinds take turns. A kind may have a limit of
///   concurrent calls ([`Self::at_once`]), and does not delay the others.
/// * *Async pokes* (feature `tokio`: `kind_async`) are tasks of the host's runtime instead. They have the
///   same deadlines, fences and limits by kind. A future past its deadline is dropped, so it hangs only if it
///   blocks its runtime.
/// * *Deadline.* A poke may take the smallest [`poke_timeout`](crate::sensor::Settings::poke_timeout) of its
///   members, but no more than [`max_poke_timeout`](Self::max_poke_timeout). If no member sets one, the
///   options' timeout applies. A poke is also given up when all its sensors have timed out.
/// * *A poke past its deadline* hangs. It counts as
///   [`PokeOutcome::Unreachable`](crate::sensor::PokeOutcome::Unreachable), and its late outcome changes
///   nothing. Until it returns, its group is not poked again, and each due time counts as unreachable.
/// * *Hung threads* are replaced, up to [`max_hung`](Self::max_hung). Beyond that the poker works with fewer
///   threads. A hung call does not count against [`Self::at_once`]. But a kind with too many hung calls is
///   not poked until one of them returns ([`max_hung`](Self::max_hung)).
/// * *An outcome applies to the registrations that were known when its poke began.* A sensor that registered
///   later, or again, waits for the next poke.
/// * *Leases.* No poke begins when the leases are about to end. A due group stays due.
/// * *An unreachable target* is poked after longer and longer pauses, until it is reachable. A sensor
///   tolerates that for [`retry_window`](Self::retry_window), then its attempt fails. A worker that takes
///   over continues the outage, unless the target was not poked for longer than a takeover takes.
///
/// # Guarantees
///
/// * While its leases last, only this worker pokes the groups of its shards.
/// * An outcome does not affect a sensor that was meanwhile cancelled, registered again or ended by another
///   worker. Every end is conditional on the registration's epoch and on the task still sensing.
/// * Sensors time out only while some worker ticks.
/// * A sensor that times out is poked once more. It waits for that poke no longer than the options'
///   [`poke_timeout`](Self::poke_timeout), and then times out without it.
/// * If the store fails to record ends, the next tick tries again.
/// * When the clock is set back, the worker starts over, as after a restart.
/// * [`Self::leave`] and dropping the poker wait for pokes on threads, each at most until its deadline. They
///   drop async pokes.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use stationmaster::canonical::PokeContext;
/// use stationmaster::sensor::{NewSensor, PokeOutcome, Settings};
/// use stationmaster::service::{Admitter, Poker, PokeRequest, Service};
/// use stationmaster::store::MemoryStore;
/// use stationmaster::{NewTask, TaskKey, TaskState, Timestamp};
///
/// let store = Arc::new(MemoryStore::new());
/// let now = Timestamp::UNIX_EPOCH;
/// let keys = ["a", "b"].map(|task| TaskKey::new("prod", "nightly", "r1", task).unwrap());
/// store.write(|tx| tx.enqueue(now, &keys.clone().map(NewTask::new)))?;
/// let granted = Admitter::new(store.clone(), "worker".try_into()?).tick(now)?.granted;
///
/// // Both tasks wait for the same file: they give their slots back and share one poke.
/// let context = PokeContext::from_json(r#"{"path": "/data/in.csv"}"#)?;
/// let settings = Settings::new(Duration::from_secs(30), Duration::from_secs(3600))?;
/// let sensors: Vec<_> = granted
///     .iter()
///     .map(|task| NewSensor::new(task.lease_ref(), "file".try_into().unwrap(), context.clone(), settings))
///     .collect();
/// store.write(|tx| {
///     tx.start(now, &sensors.iter().map(|sensor| sensor.lease).collect::<Vec<_>>())?;
///     tx.register(now, &sensors)
/// })?;
///
/// let poke = |_: &PokeRequest| PokeOutcome::Landed(Some("2 MB".into()));
/// let mut poker = Poker::new(store.clone(), "poker".try_into()?).kind("file".try_into()?, poke);
/// let report = poker.tick(now)?;
/// assert_eq!((report.poked, report.saved, report.landed), (1, 1, 2));
/// let tasks = store.read(|tx| tx.tasks(&keys))?;
/// assert!(tasks.iter().flatten().all(|task| task.state == TaskState::Success));
/// # Ok::<(), stationmaster::Error>(())
/// ```
pub struct Poker {
    pub(super) store: Arc<dyn Store>,
    pub(super) name: Holder,
    pub(super) options: Options,
    pub(super) kinds: Kinds,
    pub(super) log: Option<Arc<dyn PokeLog>>,
    pub(super) plan: Plan,
    pub(super) cursor: u64,
    pub(super) unread: Unread,
    /// Distinguishes it from others with the same name.
    pub(super) incarnation: u64,
    pub(super) renewal: Renewal,
    /// Who held the unread shards before it.
    pub(super) former_holders: FormerHolders,
    /// How often the log panicked since the last report.
    pub(super) log_panics: usize,
    pub(super) engine: Engine,
    /// Whether the engine wakes its loop for outcomes.
    pub(super) is_woken: bool,
    pub(super) emitter: Emitter,
    pub(super) reported: ReportedKinds,
    pub(super) counted: CountedPokes,
}

impl fmt::Debug for Poker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poker")
            .field("name", &self.name)
            .field("options", &self.options)
            .field("rules", &self.plan.rules)
            .field("kinds", &self.kinds.served().collect::<Vec<_>>())
            .field("shards", self.plan.held())
            .field("groups", &self.plan.groups())
            .finish_non_exhaustive()
    }
}

impl Poker {
    /// Creates a worker with this name. If two live workers have the same name, the second holds nothing, and
    /// reports that ([`PokeReport::name_taken_until`]). A worker that replaces another with its name takes
    /// over once the other has left ([`Self::leave`]), or otherwise when the other's lease ends.
    pub fn new(store: Arc<dyn Store>, name: Holder) -> Self {
        Self {
            store: for_service(store),
            name,
            options: Options::default(),
            kinds: Kinds::default(),
            log: None,
            plan: Plan::default(),
            cursor: 0,
            unread: Unread::new(),
            incarnation: incarnation::draw(),
            renewal: Renewal::default(),
            former_holders: FormerHolders::new(),
            log_panics: 0,
            engine: Engine::new(),
            is_woken: false,
            emitter: Emitter::default(),
            reported: ReportedKinds::new(),
            counted: CountedPokes::default(),
        }
    }

    setters! {
        /// Reports what it counts and measures to this observer.
        observed_by(observer: Arc<dyn Observer>) { emitter = observer.into() }
    }

    /// Sets the poke of this kind.
    ///
    /// Workers of one store may serve different kinds. Sensors are poked by a live worker that serves their
    /// kind. Those whose kind no worker serves only time out ([`PokeReport::unserved`] names the kinds).
    #[must_use]
    pub fn kind(self, kind: SensorKind, poke: impl Poke + 'static) -> Self {
        self.poked_by(&kind, Probe::one(poke))
    }

    /// Sets the poke of this kind, which receives at most `at_most` targets in one call.
    ///
    /// A call takes the groups that are due when a thread becomes free for it. Its deadline is the earliest
    /// one of its groups.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::num::NonZeroUsize;
    /// use std::sync::Arc;
    /// use stationmaster::sensor::PokeOutcome;
    /// use stationmaster::service::{PokeRequest, Poker};
    /// use stationmaster::store::MemoryStore;
    ///
    /// let store = Arc::new(MemoryStore::new());
    /// let poke = |requests: &[PokeRequest]| vec![PokeOutcome::NotYet; requests.len()];
    /// let thousand = NonZeroUsize::new(1_000).unwrap();
    /// let poker = Poker::new(store, "poker".try_into()?)
    ///     .kind_many("partition".try_into()?, thousand, poke)
    ///     .at_once("partition".try_into()?, NonZeroUsize::new(2).unwrap());
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    #[must_use]
    pub fn kind_many(self, kind: SensorKind, at_most: NonZeroUsize, poke: impl PokeMany + 'static) -> Self {
        self.poked_by(&kind, Probe::many(poke, at_most))
    }

    /// Registers how this kind is poked: by threads or futures, for one target or many in a call.
    pub(crate) fn poked_by(self, kind: &SensorKind, probe: Probe) -> Self {
        self.serve(kind, |kind| kind.probe = Some(probe))
    }

    fn serve(mut self, name: &SensorKind, change: impl FnOnce(&mut Kind)) -> Self {
        self.begin_anew();
        let kind = self.kinds.register(name);
        change(kind);
        if let Some(probe) = kind.probe.clone() {
            let at_once = kind.at_once.map_or_else(|| probe.usual_at_once(), NonZeroUsize::get);
            self.engine.serve(name.clone(), probe, at_once);
        }
        self
    }

    /// Limits this kind to this many calls at once. A call that passed its deadline does not count. Without
    /// this limit, only the number of threads limits blocking pokes, and async ones are limited to 1,000 of a
    /// kind.
    #[must_use]
    pub fn at_once(self, kind: SensorKind, calls: NonZeroUsize) -> Self {
        self.serve(&kind, |kind| kind.at_once = Some(calls))
    }

    /// Passes every outcome to this log. The poker then keeps whole sensors in memory.
    #[must_use]
    pub fn log(mut self, log: impl PokeLog + 'static) -> Self {
        self.begin_anew();
        self.log = Some(Arc::new(log));
        self
    }

    /// Releases the shards, so that other workers can take them over at once. First waits for the pokes on
    /// threads, each at most until its deadline, and drops async ones. Outcomes of those pokes count. Hung
    /// threads stay until their pokes return. If the poker ticks again, they count against
    /// [`max_hung`](Self::max_hung) as before.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Store`] if the store fails. The shards then become free when their leases expire.
    pub fn leave(&mut self) -> Result<()> {
        let settled = self.dismiss();
        let (name, incarnation) = (&self.name, self.incarnation);
        let now = self.plan.now().unwrap_or(Timestamp::MIN);
        let left = self.store.write(|tx| {
            // Whether or not it counts as alive: what is held under the name belongs to its last incarnation.
            take_turns(tx, name)?;
            let known = tx.raw().live_workers(Timestamp::MIN)?;
            if known.iter().all(|worker| worker.name != *name || worker.incarnation == incarnation) {
                self.release(tx)?;
                tx.raw().delete_worker(name)?;
            }
            // The counts are this incarnation's own, even if another worker has the name now.
            self.counted.store(tx, (name, incarnation), now)
        });
        if left.is_ok() {
            self.counted.stored(now);
        }
        self.begin_anew();
        // No kind has numbers to show any more.
        self.emit_kinds();
        left.and(settled)
    }

    /// Ends the threads, and applies the outcomes of their pokes.
    fn dismiss(&mut self) -> Result<()> {
        let (mut collected, mut report) = (Collected::default(), PokeReport::default());
        self.engine.close(&mut collected);
        let Some(now) = self.plan.now() else { return Ok(()) };
        self.take_up(&mut collected, now, &mut report);
        let settled = self.store_ends(now, &mut report);
        self.counted.add(now, &report.by_kind);
        report.emit(&self.emitter);
        self.emit_kinds();
        settled
    }

    /// Forgets all shards, sensors and pokes.
    fn begin_anew(&mut self) {
        self.engine.close(&mut Collected::default());
        self.kinds.withdraw(|_| false);
        self.plan.forget_pokes();
        self.forget_renewal();
    }

    /// Makes the next renewal like the first one after a restart.
    pub(super) fn forget_renewal(&mut self) {
        self.renewal = Renewal::default();
        self.unread.clear();
    }
}
