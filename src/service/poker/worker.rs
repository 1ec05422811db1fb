//! The poke service.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};

use super::groups::{Groups, Target};
use super::probe::{Poke, PokeLog, PokeRequest, poke_all};
use super::report::PokeReport;
use crate::bounds::{MAX_TEXT_BYTES, clip};
use crate::error::{Invalid, Result};
use crate::id::{Holder, SensorKind};
use crate::lease::LeaseRef;
use crate::sensor::{EndReason, Ending, Poked, SensorRecord, Worker, claims, settle};
use crate::service::lifecycle::end_sensors;
use crate::service::run::Service;
use crate::shard::{ShardLimit, ShardRange, range};
use crate::store::{Moved, SensorQuery, Store, StoreExt, StoreTx, WhichSensors};
use crate::time;

/// How long workers that expired can still be seen in the store.
const WORKERS_ARE_KEPT: Duration = Duration::from_secs(24 * 3600);

/// The most workers that one renewal forgets.
const WORKERS_FORGOTTEN: usize = 100;

/// How a [`Poker`] works. All workers of a store use the same `codes` and `shards`.
///
/// Defaults: 10,000 codes in 16 shards, leases of 30 seconds, no poke interval below one second, 4 threads, 10,000 sensors
/// to a read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PokerOptions {
    /// The number of shard codes (Airflow: `shard_code_upper_limit`).
    pub codes: ShardLimit,
    /// Into how many shards the codes are split (Airflow: `shards`). At most so many workers share the work.
    pub shards: NonZeroU32,
    /// How long a worker counts as alive and holds its shards without renewing.
    pub lease: Duration,
    /// No group is poked more often than this.
    pub floor: Duration,
    /// How many pokes are made at once.
    pub threads: usize,
    /// How many sensors are read at once.
    pub page: usize,
    /// How long at most until a tick looks for new registrations.
    pub follow: Duration,
}

impl Default for PokerOptions {
    fn default() -> Self {
        Self {
            codes: ShardLimit::default(),
            shards: NonZeroU32::MIN.saturating_add(15),
            lease: Duration::from_secs(30),
            floor: Duration::from_secs(1),
            threads: 4,
            page: 10_000,
            follow: Duration::from_secs(1),
        }
    }
}

impl PokerOptions {
    /// Sets into how many shards the codes are split.
    #[must_use]
    pub fn shards(mut self, shards: NonZeroU32) -> Self {
        self.shards = shards;
        self
    }

    /// Sets the number of shard codes.
    #[must_use]
    pub fn codes(mut self, codes: ShardLimit) -> Self {
        self.codes = codes;
        self
    }

    /// Sets how long a worker holds its shards without renewing.
    #[must_use]
    pub fn lease(mut self, length: Duration) -> Self {
        self.lease = length;
        self
    }

    /// Sets the smallest poke interval of all.
    #[must_use]
    pub fn floor(mut self, interval: Duration) -> Self {
        self.floor = interval;
        self
    }

    /// Sets how many pokes are made at once.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Sets how many sensors are read at once.
    #[must_use]
    pub fn page(mut self, sensors: usize) -> Self {
        self.page = sensors;
        self
    }

    /// Sets how long at most until a tick looks for new registrations.
    #[must_use]
    pub fn follow(mut self, interval: Duration) -> Self {
        self.follow = interval;
        self
    }
}

/// Polls what sensors wait for.
///
/// # One tick
///
/// 1. *Shards.* At a third of the lease's length the worker renews its life and its shards, gives up what exceeds its quota
///    and takes what is free ([`crate::sensor::claims`]).
/// 2. *Follow.* It reads what changed since its cursor, in its shards only, and the waiting sensors of the shards it just
///    took. When nothing changed it reads nothing else.
/// 3. *Poke.* Each group that is due is poked once, on up to `threads` threads; a panic is caught and counts as
///    [`Poked::Unreachable`]. No poke begins when the leases are about to end: the rest stays due.
/// 4. *Settle.* What landed, failed or timed out is ended in one transaction, with an event per sensor. When nothing ended,
///    nothing is written. A sensor that times out is looked at once more first.
///
/// # What holds
///
/// While its leases hold, a worker alone pokes the groups of its shards. A poke whose sensor was cancelled, registered
/// again or ended by another worker meanwhile changes nothing: every end is conditional on the registration's epoch and on
/// the task still sensing. A group is looked at when it is registered and then on a grid computed from fingerprint and
/// interval alone ([`crate::sensor::next_poke`]), so a restart needs no stored counter and pokes no more than usual. Sensors time out
/// only while some worker ticks.
///
/// When the clock is set back, the worker begins anew, as after a restart.
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
    store: Arc<dyn Store>,
    name: Holder,
    options: PokerOptions,
    kinds: HashMap<SensorKind, Arc<dyn Poke>>,
    log: Option<Arc<dyn PokeLog>>,
    groups: Groups,
    cursor: u64,
    /// Shards held whose sensors are in memory, with the instant until which they may be poked.
    shards: BTreeMap<u32, DateTime<Utc>>,
    renew_at: Option<DateTime<Utc>>,
    /// The instant of the last tick.
    last: Option<DateTime<Utc>>,
}

impl fmt::Debug for Poker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poker")
            .field("name", &self.name)
            .field("options", &self.options)
            .field("kinds", &self.kinds.keys())
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
            kinds: HashMap::new(),
            log: None,
            groups: Groups::default(),
            cursor: 0,
            shards: BTreeMap::new(),
            renew_at: None,
            last: None,
        })
    }

    /// Answers for this kind with this poke.
    ///
    /// All workers of a store should know the same kinds: sensors of a kind that the worker of their shard does not know are
    /// not poked, only timed out ([`PokeReport::unknown_kind`] counts them).
    #[must_use]
    pub fn kind(mut self, kind: SensorKind, poke: impl Poke + 'static) -> Self {
        self.kinds.insert(kind, Arc::new(poke));
        self
    }

    /// Tells this log of every poke.
    #[must_use]
    pub fn log(mut self, log: impl PokeLog + 'static) -> Self {
        self.log = Some(Arc::new(log));
        self
    }

    /// Releases the shards, so that other workers take them over at once.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Store`] if the store fails; the shards then come free when their leases expire.
    pub fn leave(&mut self) -> Result<()> {
        self.forget_all();
        let name = &self.name;
        self.store.write(|tx| Ok(tx.delete_worker(name)?))
    }

    /// Begins anew, as after a restart.
    fn forget_all(&mut self) {
        self.shards.clear();
        self.groups = Groups::default();
        self.renew_at = None;
    }

    /// Renews its life and its shards if it is time to, and forgets the sensors of shards it lost. Answers the shards
    /// whose sensors it does not have in memory yet.
    fn hold_shards(&mut self, now: DateTime<Utc>) -> Result<Vec<u32>> {
        let held_before = self.shards.len();
        self.shards.retain(|_, until| now < *until);
        if self.shards.len() == held_before && self.renew_at.is_some_and(|at| now < at) {
            return Ok(Vec::new());
        }
        let (name, options) = (&self.name, &self.options);
        let expires_at = time::add(now, options.lease);
        let (held, freed): (Vec<u32>, Option<DateTime<Utc>>) = self.store.write(|tx| {
            agree(name, options, &tx.live_workers(now)?)?;
            tx.put_worker(&Worker::new(name.clone(), options.codes, options.shards, expires_at))?;
            tx.forget_workers(time::sub(now, WORKERS_ARE_KEPT), WORKERS_FORGOTTEN)?;
            let (leases, live) = (tx.shard_leases()?, tx.live_workers(now)?);
            let writes = claims(name, now, options.lease, options.shards.get(), &leases, &live);
            let written = tx.put_shards_if_unchanged(&writes)?;
            let mine = writes.into_iter().zip(written).filter(|(write, written)| {
                *written == Moved::Yes && write.lease.holder.as_ref() == Some(name)
            });
            let others =
                leases.iter().filter(|lease| lease.holder.as_ref() != Some(name) && !lease.is_free(now));
            let freed = others.map(|lease| lease.expires_at).min();
            Ok((mine.map(|(write, _)| write.lease.shard).collect(), freed))
        })?;
        let gained = held.iter().copied().filter(|shard| !self.shards.contains_key(shard)).collect();
        self.shards.retain(|shard, _| held.contains(shard));
        let (codes, kept) = (options.codes, self.ranges(self.shards.keys().copied()));
        self.groups.retain(|print| kept.iter().any(|range| range.contains(codes.code(print))));
        self.shards = held.into_iter().map(|shard| (shard, expires_at)).collect();
        let renew_at = time::add(now, options.lease / 3);
        self.renew_at = Some(freed.map_or(renew_at, |at| at.min(renew_at)));
        Ok(gained)
    }

    fn ranges(&self, shards: impl Iterator<Item = u32>) -> Vec<ShardRange> {
        shards.map(|shard| range(self.options.codes, self.options.shards, shard)).collect()
    }

    /// Reads what changed in its shards, and all waiting sensors of those it just gained; of all, if a sensor was deleted
    /// that changed since it last looked. Answers how many sensors it read.
    fn follow(&mut self, now: DateTime<Utc>, gained: &[u32]) -> Result<usize> {
        let kept = self.shards.keys().copied().filter(|shard| !gained.contains(shard));
        let (kept, gained) = (self.ranges(kept), self.ranges(gained.iter().copied()));
        let (cursor, codes, page) = (self.cursor, self.options.codes, self.options.page.max(1));
        let (news, taken_over, last, missed) = self.store.read(|tx| {
            let last = tx.last_sensor_change()?;
            let missed = !kept.is_empty() && tx.last_forgotten_change()? > cursor;
            let (mut news, mut taken_over) = (Vec::new(), Vec::new());
            let mut anew = gained.clone();
            if missed {
                anew.extend(kept.iter().copied());
            } else if last > cursor && !kept.is_empty() {
                let query = SensorQuery::new(cursor, codes, kept.clone(), WhichSensors::All, page);
                read_all(tx, query, &mut news)?;
            }
            if !anew.is_empty() {
                let query = SensorQuery::new(0, codes, anew, WhichSensors::Waiting, page);
                read_all(tx, query, &mut taken_over)?;
            }
            Ok((news, taken_over, last, missed))
        })?;
        if missed {
            self.groups = Groups::default();
        }
        self.cursor = last;
        let loaded = news.len() + taken_over.len();
        for sensor in taken_over {
            let looked_at = self.looked_at_before(&sensor, now);
            self.groups.learn(sensor, looked_at, now, self.options.floor);
        }
        for sensor in news {
            self.groups.learn(sensor, None, now, self.options.floor);
        }
        Ok(loaded)
    }

    /// When the target of a sensor that was taken over counts as looked at: now, unless the sensor is so young that its first
    /// look may be missing. So a restart does not poke all targets at once, and none is passed over for more than an interval.
    fn looked_at_before(&self, sensor: &SensorRecord, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let is_young = now < time::add(sensor.registered_at, self.options.lease);
        (!is_young).then_some(now)
    }

    /// Pokes the groups that are due, as long as the leases of its shards hold for sure.
    fn poke(&self, due: &[Target], now: DateTime<Utc>, began: Instant) -> Vec<(Target, Poked)> {
        let until = self.shards.values().min().copied().unwrap_or(now);
        let deadline = began + time::since(until, now).saturating_sub(self.options.lease / 6);
        let mut jobs = Vec::with_capacity(due.len());
        let mut targets = Vec::with_capacity(due.len());
        for target in due {
            let (Some(poke), Some(group)) = (self.kinds.get(&target.0), self.groups.get(target)) else {
                continue;
            };
            let sensors = group.members.len();
            let request = PokeRequest { kind: &target.0, context: &target.1, sensors, now };
            jobs.push((Arc::clone(poke), request));
            targets.push(target.clone());
        }
        let answers = poke_all(&jobs, self.options.threads, deadline);
        targets
            .into_iter()
            .zip(answers)
            .filter_map(|(target, answer)| Some((target, bounded(answer?))))
            .collect()
    }

    /// What the answers, and the time that has passed, do to the sensors.
    fn endings(&self, answers: &[(Target, Poked)], now: DateTime<Utc>) -> Vec<(LeaseRef, Ending)> {
        let mut endings = BTreeMap::new();
        for (target, answer) in answers {
            let Some(group) = self.groups.get(target) else { continue };
            for sensor in group.members.values() {
                if let Some(log) = &self.log {
                    // What a log does wrong must not hold up the sensors.
                    let _ = catch_unwind(AssertUnwindSafe(|| log.poked(sensor, now, answer)));
                }
                if let Some(ending) = settle(sensor, answer, now) {
                    endings.insert(sensor.lease_ref(), ending);
                }
            }
        }
        for sensor in self.groups.timed_out(now) {
            if let Some(ending) = settle(&sensor, &Poked::NotYet, now) {
                endings.entry(sensor.lease_ref()).or_insert(ending);
            }
        }
        endings.into_iter().collect()
    }
}

/// Refuses to share sensors with a worker that splits them otherwise.
fn agree(me: &Holder, options: &PokerOptions, live: &[Worker]) -> Result<()> {
    let same = |worker: &&Worker| worker.codes == options.codes && worker.shards == options.shards;
    match live.iter().find(|worker| worker.name != *me && !same(worker)) {
        None => Ok(()),
        Some(Worker { name, codes, shards, .. }) => {
            let (codes, shards) = (codes.get(), shards.get());
            Err(Invalid::Shards { other: name.clone(), codes, shards }.into())
        }
    }
}

/// The answer with texts that the store takes.
fn bounded(answer: Poked) -> Poked {
    match answer {
        Poked::Landed(Some(value)) if value.len() > MAX_TEXT_BYTES => {
            let bytes = value.len();
            Poked::Failed(format!(
                "landed with {bytes} bytes, more than {MAX_TEXT_BYTES}: land with a reference"
            ))
        }
        Poked::Failed(message) => Poked::Failed(clip(message)),
        // Shorter still: the message of a timeout quotes it.
        Poked::Unreachable(message) if message.len() > MAX_TEXT_BYTES / 2 => {
            Poked::Unreachable(message.chars().take(MAX_TEXT_BYTES / 8).collect())
        }
        other => other,
    }
}

fn read_all(tx: &mut dyn StoreTx, mut query: SensorQuery, into: &mut Vec<SensorRecord>) -> Result<()> {
    loop {
        let page = tx.changed_sensors(&query)?;
        let full = page.len() == query.limit;
        query.after = page.last().map_or(query.after, |sensor| sensor.changed);
        into.extend(page);
        if !full {
            return Ok(());
        }
    }
}

impl Service for Poker {
    type Report = PokeReport;

    fn tick(&mut self, now: DateTime<Utc>) -> Result<PokeReport> {
        let began = Instant::now();
        let now = time::truncate(now);
        let mut report = PokeReport::default();
        if self.last.is_some_and(|last| now < last) {
            // The clock was set back: due times and leases lie in a future that may never come.
            self.forget_all();
        }
        self.last = Some(now);
        let gained = self.hold_shards(now)?;
        report.loaded = match self.follow(now, &gained) {
            Ok(loaded) => loaded,
            Err(error) => {
                self.shards.retain(|shard, _| !gained.contains(shard));
                self.renew_at = None;
                return Err(error);
            }
        };

        let due = self.groups.due(now);
        let answers = self.poke(&due, now, began);
        let endings = self.endings(&answers, now);
        let moved = self.store_ends(now, &endings)?;
        let is_known = |target: &&Target| self.kinds.contains_key(&target.0);
        let unknown = due.iter().filter(|target| !is_known(target));
        for target in answers.iter().map(|(target, _)| target).chain(unknown) {
            self.groups.looked_at(target, now, self.options.floor);
        }
        self.count(&mut report, &due, &answers);
        for ((sensor, ending), moved) in endings.iter().zip(moved) {
            self.groups.remove(sensor.no);
            if moved == Moved::No {
                continue;
            }
            match ending.reason {
                EndReason::Landed => report.landed += 1,
                EndReason::Failed | EndReason::Unreachable => report.failed += 1,
                _ => report.timed_out += 1,
            }
        }
        report.shards = u32::try_from(self.shards.len()).unwrap_or(u32::MAX);
        report.sensors = self.groups.sensors();
        report.groups = self.groups.len();
        let follow = time::add(now, self.options.follow);
        report.next_due = [self.groups.next_due(), self.renew_at, Some(follow)].into_iter().flatten().min();
        report.duration = began.elapsed();
        Ok(report)
    }
}

impl Poker {
    fn store_ends(&self, now: DateTime<Utc>, endings: &[(LeaseRef, Ending)]) -> Result<Vec<Moved>> {
        if endings.is_empty() {
            return Ok(Vec::new());
        }
        self.store.write(|tx| end_sensors(tx, now, endings))
    }

    /// The numbers of this cycle, before those that ended are taken out.
    fn count(&self, report: &mut PokeReport, due: &[Target], answers: &[(Target, Poked)]) {
        let members = |target: &Target| self.groups.get(target).map_or(0, |group| group.members.len());
        report.poked = answers.len();
        for (target, answer) in answers {
            report.saved += members(target).saturating_sub(1);
            report.unreachable += usize::from(matches!(answer, Poked::Unreachable(_)));
        }
        let unknown = due.iter().filter(|target| !self.kinds.contains_key(&target.0));
        report.unknown_kind = unknown.map(members).sum();
    }
}
