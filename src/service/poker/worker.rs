//! The poke service.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};

use super::crew::{Crew, Haul, Job, Standing};
use super::groups::{GroupRef, Groups, Phase, Rules};
use super::kinds::Kinds;
use super::options::PokerOptions;
use super::probe::{Poke, PokeLog, PokeMany, Probe};
use super::report::PokeReport;
use crate::error::{Invalid, Result};
use crate::id::{Holder, SensorKind};
use crate::lease::LeaseRef;
use crate::sensor::Ending;
use crate::service::run::{LoopHandle, Service};
use crate::store::{Store, StoreExt};
use crate::time;

/// How soon at the latest a tick should follow while pokes run and nobody would wake its loop.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// How soon at the latest a tick looks whether a poke holds up others.
const LOOK_SOON: Duration = Duration::from_millis(20);

/// A tick waits no longer than this, whatever the options say.
const LONGEST_PATIENCE: Duration = Duration::from_secs(3600);

/// Polls what sensors wait for.
///
/// # One tick
///
/// 1. *Shards.* At a third of the lease's length, and when the lease of another worker's shard ends, the worker renews its life
///    and its shards, gives up what exceeds its quota and takes what is free ([`crate::sensor::claims`]).
/// 2. *Follow.* It reads what changed since its cursor, in its shards only, and the waiting sensors of the shards it just
///    took. When nothing changed it reads nothing else.
/// 3. *Poke.* Each group that is due is handed to the poker's threads once. The tick waits for the answers, at most
///    [`patience`](PokerOptions::patience); what comes later is taken up by a later tick, and no other group waits for it.
/// 4. *Settle.* What landed, failed, timed out or was given up is ended in one transaction (of 10,000 at most), with an event per
///    sensor. When nothing ended, nothing is written. A sensor that times out is looked at once more first.
///
/// # Pokes
///
/// A group is poked when it is new, then on a grid of the smallest interval of its members
/// ([`interval_at`](crate::sensor::interval_at), not below the floor) that is computed from fingerprint and interval alone
/// ([`crate::sensor::next_poke`]), and when a member times out. So a restart needs no stored counter and pokes no more than usual.
///
/// * *Threads* are the poker's own, made when there is work for them, at most [`threads`](PokerOptions::threads) that do not
///   hang. Kinds take turns; a kind may have a limit of calls at once ([`Self::at_once`]), and does not hold up the others.
/// * *Deadline.* A poke may take the smallest [`poke_timeout`](crate::sensor::Settings::poke_timeout) of its members, else that of
///   the options. Then it counts as [`Poked::Unreachable`](crate::sensor::Poked::Unreachable), its thread as hung, and another
///   takes its place, up to [`max_hung`](PokerOptions::max_hung); beyond, the poker works with fewer. While a poke hangs, its
///   group is not poked again; each due time counts as unreachable. A hung call does not count against the limit of its kind.
///   Its late answer changes nothing.
/// * *An answer reaches the registrations that were known when its poke began.* A sensor that registered later, or again,
///   waits for the next poke.
/// * *Leases.* No poke begins when the leases are about to end: the rest stays due.
/// * *A target that cannot be looked at* is poked after longer and longer pauses ([`crate::sensor::backed_off`]), until it can be. A
///   sensor bears that for [`retry_window`](PokerOptions::retry_window), then its attempt fails
///   ([`crate::sensor::give_up`]). This is kept in memory: after a takeover the time begins anew.
///
/// # What holds
///
/// While its leases hold, a worker alone pokes the groups of its shards. A poke whose sensor was cancelled, registered
/// again or ended by another worker meanwhile changes nothing: every end is conditional on the registration's epoch and on
/// the task still sensing. Sensors time out only while some worker ticks; one whose last look does not come within the poke timeout
/// (all threads hang) times out without it. When the store fails to take ends, the next tick tries again.
///
/// When the clock is set back, the worker begins anew, as after a restart.
///
/// [`Self::leave`] and dropping the poker wait for pokes that run, each until its deadline at most.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use stationmaster::canonical::PokeContext;
/// use stationmaster::sensor::{NewSensor, Poked, Settings};
/// use stationmaster::service::{Admitter, AdmitterOptions, Poker, PokerOptions, PokeRequest, Service, lifecycle};
/// use stationmaster::store::{MemoryStore, StoreExt};
/// use stationmaster::time::from_micros;
/// use stationmaster::{NewTask, TaskKey, TaskState};
///
/// let store = Arc::new(MemoryStore::new());
/// let now = from_micros(0);
/// let keys = ["a", "b"].map(|task| TaskKey::new("prod", "nightly", "r1", task).unwrap());
/// store.write(|tx| lifecycle::enqueue(tx, now, &keys.clone().map(NewTask::new)))?;
/// let granted = Admitter::new(store.clone(), "worker".try_into()?, AdmitterOptions::default())?.tick(now)?.granted;
///
/// // Both tasks wait for the same file: they give their slots back and share one poke.
/// let context = PokeContext::from_json(r#"{"path": "/data/in.csv"}"#)?;
/// let settings = Settings::new(Duration::from_secs(30), Duration::from_secs(3600))?;
/// let sensors: Vec<_> = granted
///     .iter()
///     .map(|task| NewSensor::new(task.lease_ref(), "file".try_into().unwrap(), context.clone(), settings))
///     .collect();
/// store.write(|tx| {
///     lifecycle::start(tx, now, &sensors.iter().map(|sensor| sensor.lease).collect::<Vec<_>>())?;
///     lifecycle::register(tx, now, &sensors)
/// })?;
///
/// let poke = |_: &PokeRequest<'_>| Poked::Landed(Some("2 MB".into()));
/// let mut poker = Poker::new(store.clone(), "poker".try_into()?, PokerOptions::default())?.kind("file".try_into()?, poke);
/// let report = poker.tick(now)?;
/// assert_eq!((report.poked, report.saved, report.landed), (1, 1, 2));
/// let tasks = store.read(|tx| Ok(tx.tasks(&keys)?))?;
/// assert!(tasks.iter().flatten().all(|task| task.state == TaskState::Success));
/// # Ok::<(), stationmaster::Error>(())
/// ```
pub struct Poker {
    pub(super) store: Arc<dyn Store>,
    pub(super) name: Holder,
    pub(super) options: PokerOptions,
    pub(super) kinds: Kinds,
    pub(super) log: Option<Arc<dyn PokeLog>>,
    pub(super) groups: Groups,
    pub(super) cursor: u64,
    /// Shards held whose sensors are in memory, with the instant until which they may be poked.
    pub(super) shards: BTreeMap<u32, DateTime<Utc>>,
    pub(super) renew_at: Option<DateTime<Utc>>,
    /// Counts the ticks.
    pub(super) ticks: u64,
    /// What ended, until the store knows.
    pub(super) endings: BTreeMap<LeaseRef, Arc<Ending>>,
    /// The instant of the last tick.
    last: Option<DateTime<Utc>>,
    crew: Option<Crew>,
    handle: Option<LoopHandle>,
    /// Due groups that wait for a place in the crew's queue, by kind.
    pending: Vec<Pending>,
}

/// The due groups of a kind that this worker can poke.
struct Pending {
    kind: u32,
    groups: VecDeque<GroupRef>,
}

impl fmt::Debug for Poker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poker")
            .field("name", &self.name)
            .field("options", &self.options)
            .field("kinds", &self.kinds.known().map(|(_, name, _)| name).collect::<Vec<_>>())
            .field("shards", &self.shards)
            .field("groups", &self.groups.len())
            .finish_non_exhaustive()
    }
}

impl Poker {
    /// A worker of this name, which must be unique among the living.
    ///
    /// # Errors
    ///
    /// [`Invalid::Duration`] for a lease below ten milliseconds.
    pub fn new(store: Arc<dyn Store>, name: Holder, options: PokerOptions) -> Result<Self> {
        if options.lease < Duration::from_millis(10) {
            return Err(Invalid::Duration { what: "a worker's lease", expected: "at least 10 ms" }.into());
        }
        Ok(Self {
            store,
            name,
            options,
            kinds: Kinds::default(),
            log: None,
            groups: Groups::default(),
            cursor: 0,
            shards: BTreeMap::new(),
            renew_at: None,
            ticks: 0,
            endings: BTreeMap::new(),
            last: None,
            crew: None,
            handle: None,
            pending: Vec::new(),
        })
    }

    /// Answers for this kind with this poke.
    ///
    /// All workers of a store should know the same kinds: sensors of a kind that the worker of their shard does not know are
    /// not poked, only timed out ([`PokeReport::unknown_kind`] counts them).
    #[must_use]
    pub fn kind(self, kind: SensorKind, poke: impl Poke + 'static) -> Self {
        self.probe(&kind, Probe::One(Arc::new(poke)))
    }

    /// Answers for this kind with this poke, at most `at_most` targets in one call.
    ///
    /// A call takes what is due when a thread is free for it. Its deadline is the smallest of its groups.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::num::NonZeroUsize;
    /// use std::sync::Arc;
    /// use stationmaster::sensor::Poked;
    /// use stationmaster::service::{PokeRequest, Poker, PokerOptions};
    /// use stationmaster::store::MemoryStore;
    ///
    /// let store = Arc::new(MemoryStore::new());
    /// let poke = |requests: &[PokeRequest<'_>]| vec![Poked::NotYet; requests.len()];
    /// let thousand = NonZeroUsize::new(1_000).unwrap();
    /// let poker = Poker::new(store, "poker".try_into()?, PokerOptions::default())?
    ///     .kind_many("partition".try_into()?, thousand, poke)
    ///     .at_once("partition".try_into()?, NonZeroUsize::new(2).unwrap());
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    #[must_use]
    pub fn kind_many(self, kind: SensorKind, at_most: NonZeroUsize, poke: impl PokeMany + 'static) -> Self {
        self.probe(&kind, Probe::Many(Arc::new(poke), at_most.get()))
    }

    fn probe(mut self, kind: &SensorKind, probe: Probe) -> Self {
        self.begin_anew();
        if let Some(kind) = self.kinds.kind_mut(kind) {
            kind.probe = Some(probe);
        }
        self
    }

    /// Pokes this kind with at most so many calls at once. A call that passed its deadline does not count.
    #[must_use]
    pub fn at_once(mut self, kind: SensorKind, calls: NonZeroUsize) -> Self {
        self.begin_anew();
        if let Some(kind) = self.kinds.kind_mut(&kind) {
            kind.at_once = Some(calls);
        }
        self
    }

    /// Tells this log of every answer. The poker then keeps the whole sensors in memory.
    #[must_use]
    pub fn log(mut self, log: impl PokeLog + 'static) -> Self {
        self.begin_anew();
        self.log = Some(Arc::new(log));
        self
    }

    /// Waits for the pokes that run, each until its deadline at most, and releases the shards, so that other workers take them
    /// over at once. What the pokes answered counts.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Store`] if the store fails; the shards then come free when their leases expire.
    pub fn leave(&mut self) -> Result<()> {
        let settled = self.dismiss();
        self.begin_anew();
        let name = &self.name;
        self.store.write(|tx| Ok(tx.delete_worker(name)?))?;
        settled
    }

    /// Ends the threads, and settles what their pokes answered.
    fn dismiss(&mut self) -> Result<()> {
        let (Some(mut crew), Some(now)) = (self.crew.take(), self.last) else { return Ok(()) };
        let (mut haul, mut report) = (Haul::default(), PokeReport::default());
        crew.close(&mut haul);
        self.take_up(&mut haul, now, &mut report);
        self.store_ends(now, &mut report)
    }

    /// Forgets all that it holds, and its threads.
    fn begin_anew(&mut self) {
        self.crew = None;
        self.pending.clear();
        self.forget_all();
        self.groups = Groups::default();
    }

    /// Begins anew, as after a restart, with the threads as they are.
    fn forget_all(&mut self) {
        self.shards.clear();
        self.groups.clear();
        self.endings.clear();
        self.renew_at = None;
        self.withdraw();
    }

    pub(super) fn rules(&self) -> Rules {
        let PokerOptions { floor, breaker, retry_window, .. } = self.options;
        Rules { floor, breaker, window: retry_window }
    }

    /// Takes back what waits to be poked for nobody.
    pub(super) fn withdraw(&mut self) {
        let (now, rules) = (self.last.unwrap_or_default(), self.rules());
        let groups = &mut self.groups;
        let deserted = |group: GroupRef| groups.get(group).is_none_or(|found| found.members == 0);
        let mut withdrawn = Vec::new();
        for pending in &mut self.pending {
            pending.groups.retain(|group| {
                let keep = !deserted(*group);
                if !keep {
                    withdrawn.push(*group);
                }
                keep
            });
        }
        if let Some(crew) = &mut self.crew {
            withdrawn.extend(crew.withdraw(|job| !deserted(job.group)));
        }
        withdrawn.into_iter().for_each(|group| groups.rest(group, now, rules));
    }

    /// Sorts out what is due: what is to be poked, what hangs, and what this worker cannot poke.
    fn take_due(&mut self, now: DateTime<Utc>, report: &mut PokeReport) {
        let rules = self.rules();
        let mut hung = Vec::new();
        let mut unknown = Vec::new();
        while let Some(group) = self.groups.next_due(now, rules) {
            let Some(found) = self.groups.get(group) else { continue };
            let kind = found.kind;
            if found.phase == Phase::Hung {
                hung.push(group);
            } else if !self.kinds.is_known(kind) {
                unknown.push(group);
            } else if let Some(pending) = self.pending.iter_mut().find(|pending| pending.kind == kind) {
                pending.groups.push_back(group);
            }
        }
        hung.into_iter().for_each(|group| self.still_hangs(group, now, report));
        unknown.into_iter().for_each(|group| self.not_known(group, now, report));
    }

    /// Hands out what is to be poked, as far as there are places for it. Answers how many jobs that were.
    fn hand_out(&mut self, now: DateTime<Utc>) -> usize {
        let (tick, usual, rules) = (self.ticks, self.options.poke_timeout, self.rules());
        let Some(crew) = &mut self.crew else { return 0 };
        let mut handed = 0;
        for (kind, pending) in self.pending.iter_mut().enumerate() {
            let places = if pending.groups.is_empty() { 0 } else { crew.places(kind) };
            let mut jobs = Vec::with_capacity(places.min(pending.groups.len()));
            while jobs.len() < places {
                let Some(group) = pending.groups.pop_front() else { break };
                match self.groups.get(group) {
                    Some(found) if found.members > 0 => jobs.push(Job {
                        group,
                        context: found.context.clone(),
                        sensors: found.members,
                        now,
                        timeout: found.poke_timeout.unwrap_or(usual),
                        tick,
                    }),
                    _ => self.groups.rest(group, now, rules),
                }
            }
            handed += jobs.len();
            if !jobs.is_empty() {
                crew.hand_out(kind, jobs);
            }
        }
        handed
    }

    /// Makes the threads' queues, if there are none yet.
    fn hire(&mut self) {
        if self.crew.is_some() {
            return;
        }
        let mut crew = Crew::new(self.options.threads, self.options.max_hung);
        self.pending.clear();
        for (number, name, kind) in self.kinds.known() {
            if let Some(probe) = &kind.probe {
                crew.add_kind(name.clone(), probe.clone(), kind.at_once);
                self.pending.push(Pending { kind: number, groups: VecDeque::new() });
            }
        }
        if let Some(handle) = &self.handle {
            crew.wake(handle.clone());
        }
        self.crew = Some(crew);
    }

    /// Until when pokes may begin: the leases of its shards hold for sure.
    fn begin_until(&self, now: DateTime<Utc>, began: Instant) -> Option<Instant> {
        let until = self.shards.values().min().copied().unwrap_or(now);
        let length = time::since(until, now).saturating_sub(self.options.lease / 6);
        began.checked_add(length)
    }

    /// Has what is due poked, and takes up answers as long as it has the patience.
    fn poke(&mut self, now: DateTime<Utc>, began: Instant, report: &mut PokeReport) {
        let begin_until = self.begin_until(now, began);
        if let Some(crew) = &self.crew {
            crew.begin_until(begin_until);
        }
        let patience = self.options.patience.min(LONGEST_PATIENCE);
        let end = Instant::now() + patience;
        let mut haul = Haul::default();
        // Jobs of this tick that were handed out and not answered.
        let mut open = 0;
        loop {
            let handed = self.hand_out(now);
            open += handed;
            let Some(crew) = &mut self.crew else { return };
            crew.collect(&mut haul);
            open -= haul.answers.iter().filter(|answer| answer.tick == self.ticks).count().min(open);
            let progress = handed > 0 || !haul.answers.is_empty();
            self.take_up(&mut haul, now, report);
            let time = Instant::now();
            let handed_all = self.pending.iter().all(|kind| kind.groups.is_empty());
            if time >= end || open == 0 && (handed_all || !progress) {
                return;
            }
            if progress && !handed_all {
                continue;
            }
            let Some(crew) = &self.crew else { return };
            let standing = crew.standing();
            if standing.running == 0 && (!crew.may_begin() || crew.usable() == 0) {
                return;
            }
            let soon = time + LOOK_SOON;
            let mut until = standing.deadline.map_or(end, |deadline| deadline.min(end));
            // Deadlines of calls that have not begun are not known yet.
            if standing.stuck || standing.queued > 0 || standing.running < open {
                until = until.min(soon);
            }
            crew.wait(until);
        }
    }

    /// Takes back what may not begin any more: a later tick hands it out again.
    fn take_back(&mut self) {
        let Some(crew) = self.crew.as_mut().filter(|crew| !crew.may_begin()) else { return };
        for group in crew.withdraw(|_| false).into_iter().rev() {
            let kind = self.groups.get(group).map(|found| found.kind);
            if let Some(pending) = self.pending.iter_mut().find(|pending| Some(pending.kind) == kind) {
                pending.groups.push_front(group);
            }
        }
    }

    /// When the next tick has something to do.
    fn due_next(&self, now: DateTime<Utc>, standing: Standing, waiting: usize) -> Option<DateTime<Utc>> {
        let follow = time::add(now, self.options.follow);
        let mut due: Vec<DateTime<Utc>> =
            [self.groups.earliest(), self.renew_at, Some(follow)].into_iter().flatten().collect();
        let crew = self.crew.as_ref();
        if waiting > 0 && crew.is_some_and(|crew| !crew.may_begin()) {
            due.push(now);
        }
        if waiting > 0 || standing.stuck || standing.running > 0 && self.handle.is_none() {
            due.push(time::add(now, LOOK_AGAIN));
        }
        if let Some(deadline) = standing.deadline {
            due.push(time::add(now, deadline.saturating_duration_since(Instant::now())));
        }
        due.into_iter().min()
    }
}

impl Service for Poker {
    type Report = PokeReport;

    fn tick(&mut self, now: DateTime<Utc>) -> Result<PokeReport> {
        let began = Instant::now();
        let now = time::truncate(now);
        let mut report = PokeReport::default();
        if self.last.is_some_and(|last| now < last) {
            // Due times and leases lie in a future that may never come.
            self.forget_all();
        }
        self.last = Some(now);
        self.ticks += 1;
        let gained = self.hold_shards(now)?;
        report.loaded = match self.follow(now, &gained) {
            Ok(loaded) => loaded,
            Err(error) => {
                self.shards.retain(|shard, _| !gained.contains(shard));
                self.keep_only_held();
                self.renew_at = None;
                return Err(error);
            }
        };
        self.hire();
        if let Some(crew) = &self.crew {
            crew.followed(self.ticks);
        }
        if self.groups.deserted() > 0 {
            self.withdraw();
        }
        self.take_due(now, &mut report);
        self.poke(now, began, &mut report);
        self.take_back();
        self.end_overdue(now);
        self.store_ends(now, &mut report)?;

        let standing = self.crew.as_ref().map(Crew::standing).unwrap_or_default();
        let pending: usize = self.pending.iter().map(|kind| kind.groups.len()).sum();
        report.waiting = pending + standing.queued;
        (report.in_flight, report.hung) = (standing.running, standing.hung);
        report.threads = self.crew.as_ref().map_or(0, Crew::usable);
        report.backed_off = self.groups.outages();
        report.shards = u32::try_from(self.shards.len()).unwrap_or(u32::MAX);
        report.sensors = self.groups.sensors();
        report.groups = self.groups.len();
        report.next_due = self.due_next(now, standing, report.waiting);
        report.duration = began.elapsed();
        Ok(report)
    }

    fn woken_by(&mut self, handle: &LoopHandle) {
        self.handle = Some(handle.clone());
        if let Some(crew) = &self.crew {
            crew.wake(handle.clone());
        }
    }
}
