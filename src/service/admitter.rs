//! The admitter: grants leases to one holder.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::driver::{LoopHandle, Report, Service};
use super::incarnation;
use super::keeper::Keeper;
use super::observer::metrics::{ADMISSION_CONFLICTS, GRANTED, PROMOTED, REFUSED, WAIT_SECONDS};
use super::observer::{Emitter, Observer, Reported, Tick, spans};
use super::wanted::TaskWish;
use crate::admission::{Policy, Reason};
use crate::base::setters;
use crate::error::{Error, Invalid, Result};
use crate::id::{Holder, QueueName, RequestId};
use crate::ops::{Admission, AdmitRequest, Finish};
use crate::store::Store;
use crate::store::contract::SurveyQuery;
use crate::store::serving::for_service;
use crate::time::Timestamp;

/// After this many ticks in a row that found no task, it looks before it ticks. The first two often directly
/// follow the last task of a burst: its end wakes the admitter, in some hosts twice.
const LOOKS_AFTER: u32 = 3;

/// Admits waiting tasks for one holder, tick by tick.
///
/// Several admitters, in one process or in many, may work on one store. Together they never grant more slots
/// than a pool has, and never grant a task twice. Give each its own holder name. Two that share a name still get
/// separate leases, but a lease does not show which of them it belongs to.
///
/// The store remembers the admitter's latest tick that granted something. So the admitter can find out what
/// happened to a commit with an unknown outcome.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use stationmaster::service::Admitter;
/// use stationmaster::store::MemoryStore;
/// use stationmaster::{NewTask, TaskKey, Timestamp};
///
/// let store = Arc::new(MemoryStore::new());
/// let now = Timestamp::UNIX_EPOCH;
/// let task = NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?);
/// store.write(|tx| tx.enqueue(now, std::slice::from_ref(&task)))?;
///
/// let mut admitter = Admitter::new(store, "worker-1".try_into()?);
/// let granted = admitter.admit(now, 4)?.granted;
/// assert_eq!(granted.len(), 1);
/// # Ok::<(), stationmaster::Error>(())
/// ```
#[derive(Debug)]
pub struct Admitter {
    store: Arc<dyn Store>,
    /// The same store for the keeper. Its renewals are not marked as a service's.
    plain: Arc<dyn Store>,
    holder: Holder,
    budget: usize,
    lease: Duration,
    remember: Duration,
    policy: Policy,
    serves: Option<BTreeSet<QueueName>>,
    started: bool,
    emitter: Emitter,
    /// A random number that distinguishes it from others with its name, wherever they run.
    incarnation: u64,
    ticks: u64,
    /// The latest request that the store may remember. The next one replaces it in the store.
    last: Option<RequestId>,
    /// How many ticks in a row found nothing to do.
    idle_ticks: u32,
    /// The tasks that it looks for, to be woken for them.
    wish: Option<Arc<TaskWish>>,
}

impl Admitter {
    /// Creates an admitter for this holder: at most 512 tasks a tick, leases of 60 seconds,
    /// [`Policy::Backfill`].
    pub fn new(store: Arc<dyn Store>, holder: Holder) -> Self {
        Self {
            store: for_service(store.clone()),
            plain: store,
            holder,
            budget: 512,
            lease: Duration::from_secs(60),
            remember: Duration::from_secs(3600),
            policy: Policy::default(),
            serves: None,
            started: false,
            emitter: Emitter::default(),
            incarnation: incarnation::draw(),
            ticks: 0,
            last: None,
            idle_ticks: 0,
            wish: None,
        }
    }

    setters! {
        /// Sets the most tasks that one tick admits. Default: 512.
        budget: usize;
        /// Sets how long leases last, at least one millisecond. Its [keeper](Self::keeper) renews them.
        /// Default: 60 seconds.
        lease: Duration;
        /// Sets how long the store remembers what a tick granted, unless a later tick of the same admitter
        /// replaces it. See [`AdmitRequest::remember`]. Default: one hour.
        remember: Duration;
        /// Sets what happens to tasks that do not fit. Default: [`Policy::Backfill`].
        policy: Policy;
        /// Admits only from these queues. See [`AdmitRequest::serves`]. Default: all queues.
        serves(queues: impl IntoIterator<Item = QueueName>) { serves = Some(queues.into_iter().collect()) }
        /// Starts what it grants at the same instant. See [`AdmitRequest::started`].
        started() { started = true }
        /// Reports what it counts and measures to this observer.
        observed_by(observer: Arc<dyn Observer>) { emitter = observer.into() }
    }

    /// Admits at most `free` tasks, and no more than its budget. `free` is the number of free places in the executor.
    /// While there are none, call it with 0, so that others can see that it still serves its queues.
    ///
    /// After a tick that granted nothing although tasks wait, or after three that found none, it first looks in a read
    /// transaction. So it delays no writer while there is nothing to do. An admitter that has just run out of tasks
    /// does not look first: the next wake is probably for a task that it can grant.
    ///
    /// If the outcome of the commit is unknown, it asks the store. It returns an error that
    /// [`is_indeterminate`](crate::Error::is_indeterminate) only if the store cannot tell either.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Store`] if the store fails. [`Invalid::Duration`] for a lease below one millisecond. The errors
    /// of [`Tx::admit`](crate::store::Tx::admit) for the queues that it serves.
    pub fn admit(&mut self, now: impl Into<Timestamp>, free: usize) -> Result<Admission> {
        let now = now.into();
        if self.lease < Duration::from_millis(1) {
            return Err(Invalid::Duration { what: "a lease", expected: "at least 1 ms" }.into());
        }
        let budget = self.budget.min(free);
        let (tick, mut runs) = (Tick::begin("admitter", spans::admit(&self.holder, budget)), 0);
        let wish = self.wish.clone().unwrap_or_default();
        wish.full(Vec::new());
        let mut answer = self.admit_within(budget, now, &mut runs);
        if let Ok(admission) = &mut answer {
            wish.full(std::mem::take(&mut admission.full));
        }
        let conflicts = runs.saturating_sub(1);
        let report = Admitted { admission: answer.as_ref().ok(), now, conflicts };
        self.emitter.ticked(&tick, Some(&report), answer.as_ref().err());
        answer
    }

    /// Returns a keeper for the leases that it grants, with the same store, lease length and observer. Create one, and
    /// clone it.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use stationmaster::service::{Admitter, Kept, Service};
    /// use stationmaster::store::MemoryStore;
    /// use stationmaster::Timestamp;
    ///
    /// let mut admitter = Admitter::new(Arc::new(MemoryStore::new()), "worker-1".try_into()?);
    /// let keeper = admitter.keeper();
    /// let granted = admitter.tick(Timestamp::UNIX_EPOCH)?.granted;
    /// let kept: Vec<Kept> = granted.iter().map(|task| keeper.keep(task)).collect();
    /// # drop(kept);
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn keeper(&self) -> Keeper {
        Keeper::new(self.plain.clone(), self.lease).emitting(self.emitter.clone())
    }

    /// Admits within a budget. Adds to `runs` how often it decided.
    fn admit_within(&mut self, budget: usize, now: Timestamp, runs: &mut usize) -> Result<Admission> {
        let request = self.request(now)?;
        let mut order = AdmitRequest::new(self.holder.clone(), request, budget, self.lease)
            .policy(self.policy.clone())
            .remember(self.remember);
        (order.answered, order.started) = (self.last.clone(), self.started);
        order.serves.clone_from(&self.serves);
        let idle_ticks = std::mem::take(&mut self.idle_ticks);
        if idle_ticks >= LOOKS_AFTER
            && let Some(idle) = self.store.read(|tx| tx.idle_tick(now, &order))?
        {
            self.idle_ticks = idle_ticks;
            return Ok(idle);
        }
        let answer = self.store.write(|tx| {
            let admission = tx.last(|tx| tx.admit(now, &order));
            *runs += usize::from(!matches!(&admission, Err(Error::Store(error)) if error.is_again()));
            admission
        });
        match answer {
            Ok(admission) => {
                if !admission.granted.is_empty() {
                    self.last = Some(order.request);
                }
                self.idle_ticks = match admission.is_idle() {
                    true if admission.refusals.is_empty() => idle_ticks.saturating_add(1),
                    // Tasks that did not fit will most likely still not fit.
                    true => LOOKS_AFTER,
                    false => 0,
                };
                Ok(admission)
            }
            Err(unknown) if unknown.is_indeterminate() => self.settle(now, &order, unknown),
            Err(known) => Err(known),
        }
    }

    /// Finds out what happened to a tick whose commit had an unknown outcome.
    fn settle(&mut self, now: Timestamp, request: &AdmitRequest, unknown: Error) -> Result<Admission> {
        let query = SurveyQuery::new().request(request.request.clone());
        // In a write transaction, because it waits for a commit that may still be in progress.
        let survey = self.store.write(|tx| tx.raw().survey(&query).map_err(Error::from));
        if !matches!(&survey, Ok(survey) if survey.granted.is_none()) {
            // The store has recorded it, certainly or perhaps. If it has not, the row of the previous tick is deleted
            // by age.
            self.last = Some(request.request.clone());
        }
        match survey.map_err(|_| unknown)?.granted {
            // The lost result may have contained more tasks. The next tick returns them.
            Some(_) => {
                let admission = self.store.write(|tx| tx.admit(now, request))?;
                Ok(Admission { next_due: Some(now), ..admission })
            }
            None => Ok(Admission { next_due: Some(now), announces_at: Some(now), ..Admission::default() }),
        }
    }

    /// Returns a unique name for the next tick. It differs even from the names of another admitter with the same
    /// holder name, in another container, that ticks at the same instant. The process id distinguishes a process from
    /// its forks.
    fn request(&mut self, now: Timestamp) -> Result<RequestId> {
        self.ticks += 1;
        let holder = self.holder.as_str();
        let (at, process) = (now.as_micros(), std::process::id());
        let tail = format!("@{at}#{process}.{:016x}.{}", self.incarnation, self.ticks);
        let room = crate::id::MAX_BYTES - tail.len();
        let cut = (0..=room.min(holder.len())).rev().find(|at| holder.is_char_boundary(*at)).unwrap_or(0);
        Ok(RequestId::new(format!("{}{tail}", &holder[..cut]))?)
    }
}

impl Service for Admitter {
    type Report = Admission;

    fn woken_by(&mut self, handle: &LoopHandle) {
        handle.wants_tasks(self.wish.insert(Arc::new(TaskWish::new(self.serves.as_ref()))));
    }

    /// Runs [`Self::admit`] with the whole budget. The next tick is due at once if the budget was used up. Otherwise
    /// it is due at the latest when the queues that it serves must be announced again.
    fn tick(&mut self, now: Timestamp) -> Result<Admission> {
        let mut admission = self.admit(now, usize::MAX)?;
        admission.next_due = admission.next_due.into_iter().chain(admission.announces_at).min();
        if !admission.granted.is_empty() && admission.granted.len() >= self.budget {
            admission.next_due = Some(now);
        }
        Ok(admission)
    }

    /// Gives back the leases that were granted.
    fn undelivered(&mut self, now: Timestamp, report: Admission) -> Result<()> {
        let back: Vec<Finish> =
            report.granted.iter().map(|task| Finish::given_back(task.lease_ref())).collect();
        if !back.is_empty() {
            self.store.write(|tx| tx.last(|tx| tx.finish(now, &back)))?;
        }
        Ok(())
    }
}

impl Report for Admission {
    fn next_due(&self) -> Option<Timestamp> {
        self.next_due
    }

    fn is_idle(&self) -> bool {
        self.granted.is_empty() && self.promoted == 0
    }
}

/// An admission, and what its metrics need in addition.
struct Admitted<'a> {
    /// `None` if it failed.
    admission: Option<&'a Admission>,
    now: Timestamp,
    /// How often it had to decide again because of another writer.
    conflicts: usize,
}

impl Reported for Admitted<'_> {
    fn emit(&self, to: &Emitter) {
        to.counter(&ADMISSION_CONFLICTS, &[], self.conflicts);
        let Some(Admission { granted, refusals, promoted, .. }) = self.admission else { return };
        to.counter(&GRANTED, &[], granted.len());
        to.counter(&PROMOTED, &[], *promoted);
        for task in granted {
            to.seconds(&WAIT_SECONDS, &[], self.now.saturating_duration_since(task.ready_at));
        }
        // A tick knows only the queues that it serves.
        for name in Reason::NAMES.into_iter().filter(|name| *name != "unserved") {
            let of_name = refusals.iter().filter(|refusal| refusal.reason.name() == name);
            to.gauge(&REFUSED, &[("reason", name)], of_name.map(|refusal| refusal.tasks).sum());
        }
    }

    #[cfg(feature = "tracing")]
    fn trace(&self, took_s: f64) {
        let Some(Admission { granted, refusals, promoted, .. }) = self.admission else { return };
        tracing::debug!(target: "stationmaster::admitter",
            granted = granted.len(), promoted, refused = refusals.iter().map(|refusal| refusal.tasks).sum::<u64>(),
            conflicts = self.conflicts, took_s, "admitted");
        for task in granted {
            tracing::trace!(target: "stationmaster::admitter",
                task = %task.key, attempt = task.attempt, epoch = task.epoch,
                waited_s = self.now.saturating_duration_since(task.ready_at).as_secs_f64(), "granted");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{StoreError, StoreErrorKind};
    use crate::id::TaskKey;
    use crate::store::{MemoryStore, StoreInfo, Tx, TxMode};
    use crate::task::{NewTask, TaskState};
    use crate::testing::RawStoreExt;
    use parking_lot::Mutex;

    /// How a write transaction ends.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum End {
        Plain,
        /// Committed, but the response is lost.
        Unknown,
        /// Not committed, and the response is lost.
        UnknownAndUndone,
        /// It cannot begin.
        Refused,
    }

    #[derive(Debug)]
    struct Fickle {
        inner: MemoryStore,
        /// The ends of the next transactions, the last one first.
        ends: Mutex<Vec<End>>,
    }

    impl Store for Fickle {
        fn info(&self) -> StoreInfo {
            self.inner.info()
        }

        fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
            let fault = |kind| Err(Error::Store(StoreError::new(kind, "on purpose")));
            let end = if mode == TxMode::Write { self.ends.lock().pop() } else { None };
            match end.unwrap_or(End::Plain) {
                End::Plain => self.inner.transact(mode, body),
                End::Unknown => self.inner.transact(mode, body).and(fault(StoreErrorKind::Indeterminate)),
                End::UnknownAndUndone => {
                    self.inner.transact(mode, &mut |tx| body(tx).and(fault(StoreErrorKind::Indeterminate)))
                }
                End::Refused => fault(StoreErrorKind::Io),
            }
        }
    }

    #[test]
    fn the_store_remembers_the_latest_request_and_no_other() {
        use End::{Plain, Refused, Unknown, UnknownAndUndone};
        let store = Arc::new(Fickle { inner: MemoryStore::new(), ends: Mutex::default() });
        let mut admitter = Admitter::new(store.clone(), Holder::new("h").unwrap());
        // Whether the tick has something to grant, how its transactions end, and how many of the requests the store
        // then remembers.
        let ticks: [(bool, &[End], usize); 10] = [
            (true, &[], 1),
            (true, &[], 1),
            (false, &[], 1),
            (true, &[Refused], 1),
            (true, &[Unknown], 1),
            (true, &[UnknownAndUndone], 1),
            (true, &[Unknown, Refused], 1),
            (true, &[], 1),
            // It is unknown whether the previous one still exists, so it is deleted by age.
            (true, &[UnknownAndUndone, Refused], 1),
            (true, &[Plain], 2),
        ];
        let mut requests = Vec::new();
        for (tick, (has_task, ends, remembered)) in (0..).zip(ticks) {
            if has_task {
                let task = NewTask::new(TaskKey::new("n", "w", "r", format!("{tick}")).unwrap());
                let store: &dyn Store = &*store;
                store
                    .write(|tx| tx.enqueue(Timestamp::from_micros(tick), std::slice::from_ref(&task)))
                    .unwrap();
            }
            *store.ends.lock() = ends.iter().rev().copied().collect();
            let _failed_or_not = admitter.admit(Timestamp::from_micros(tick), 9);
            requests.extend(admitter.last.clone());
            requests.dedup();
            let is_known = |request: &&RequestId| {
                let query = SurveyQuery::new().request((*request).clone());
                store.read_raw(|raw| Ok(raw.survey(&query)?.granted.is_some())).unwrap()
            };
            assert_eq!(requests.iter().filter(is_known).count(), remembered, "tick {tick}");
        }
    }

    #[test]
    fn it_starts_what_it_grants_if_the_host_asks() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let task = |name: &str| NewTask::new(TaskKey::new("n", "w", "r", name).unwrap());
        let tasks = [task("plain"), task("recorded").attempts_as_runs(true)];
        store.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &tasks)).unwrap();
        let mut admitter = Admitter::new(store, Holder::new("h").unwrap()).started();
        let granted = admitter.admit(Timestamp::from_micros(1), 9).unwrap().granted;
        let states: Vec<TaskState> = granted.iter().map(|task| task.state).collect();
        assert_eq!(states, [TaskState::Running, TaskState::Queued], "a run is opened by its start");
    }

    #[test]
    fn a_request_has_a_length_that_is_allowed_and_is_never_used_twice() {
        let holder = Holder::new("\u{e4}".repeat(256)).unwrap();
        let admitter = || Admitter::new(Arc::new(MemoryStore::new()), holder.clone());
        let [mut one, mut other] = [admitter(), admitter()];
        let now = Timestamp::from_micros(i64::MIN);
        let requests = [one.request(now), one.request(now), other.request(now)].map(Result::unwrap);
        assert!(requests[0] != requests[1] && requests[0] != requests[2]);
    }
}
