//! One admission tick.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::attempt::tasks_under;
use crate::admission::limits::Families;
use crate::admission::{
    Behind, Candidate, LanePage, MARKS, NAMED, Need, Plan, Planner, Policy, Refusal, Serving, leave_unserved,
};
use crate::error::{Invalid, Result, StoreError, StoreResult};
use crate::id::{Holder, LimitKey, PoolName, QueueName, RequestId};
use crate::lease::LeaseRef;
use crate::pool::PoolRecord;
use crate::store::Tx;
use crate::store::contract::{Ahead, Forget, GrantBatch, LanesBehind, Mark, Survey, SurveyQuery, WhichPools};
use crate::task::TaskRecord;
use crate::time::Timestamp;

/// The most tasks that one tick makes ready. On PostgreSQL, other ticks wait in the meantime.
pub(super) const PROMOTE: usize = 10_000;

/// The most earlier ticks that one tick forgets.
const FORGET: usize = 64;
/// The most remembered ticks that no later tick has replaced.
const MOST: usize = 1_024;

/// A request for admission.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AdmitRequest {
    /// The holder of the granted leases.
    pub holder: Holder,
    /// The name of this tick, unique across all holders. While the store remembers the name, repeating it
    /// grants nothing more, and returns the leases from the first call that are still valid.
    pub request: RequestId,
    /// The request of an earlier tick whose result the caller has received or does not need. If this tick
    /// grants something, the store remembers it in place of the earlier one, which can then no longer be
    /// repeated. A caller that always names its last request here keeps one row in the store. Otherwise every
    /// tick that grants something leaves a row for a while.
    pub answered: Option<RequestId>,
    /// The most tasks to admit: the free capacity of the executor. 0 admits nothing, and reports why tasks
    /// wait.
    pub budget: usize,
    /// How long the leases last.
    pub lease: Duration,
    /// What happens to tasks that do not fit.
    pub policy: Policy,
    /// The queues to admit from, or `None` for all. See [`Self::serves`].
    pub serves: Option<BTreeSet<QueueName>>,
    /// How long the store remembers ticks. A tick that grants something makes the store forget up to 64 older
    /// ones. The store remembers at most 1,024 ticks that no later tick named in [`Self::answered`]. A
    /// forgotten tick cannot be repeated.
    pub remember: Duration,
    /// Whether the granted tasks start at once. See [`Self::started`].
    pub started: bool,
    /// The most lanes that a tick names, and that it reads before it starts to read in pages.
    pub(crate) named: usize,
    /// The most marks that a tick makes, and the most expired marks that it removes.
    pub(crate) marks: usize,
}

impl AdmitRequest {
    /// Creates a request for up to `budget` tasks for this holder, with leases of this length and
    /// [`Policy::Backfill`]. Ticks are remembered for an hour.
    pub fn new(holder: Holder, request: RequestId, budget: usize, lease: Duration) -> Self {
        Self {
            holder,
            request,
            answered: None,
            budget,
            lease,
            policy: Policy::default(),
            serves: None,
            remember: Duration::from_secs(3600),
            started: false,
            named: NAMED,
            marks: MARKS,
        }
    }

    /// Names the request of an earlier tick whose result the caller has received.
    #[must_use]
    pub fn answered(mut self, request: RequestId) -> Self {
        self.answered = Some(request);
        self
    }

    /// Sets what happens to tasks that do not fit.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Admits from these queues only. Slots and limits held by tasks of other queues still count. Under
    /// [`Policy::Reserve`], the first tasks of queues that other holders serve also reserve the next slots of
    /// a full pool, because slots belong to the pool.
    ///
    /// Each holder announces once per lease length which queues it serves. A queue that no holder has
    /// announced for twice that length is not served: its tasks reserve nothing, and
    /// [`queues`](crate::store::ReadTx::queues) and [`explain`](crate::store::ReadTx::explain) report it.
    #[must_use]
    pub fn serves(mut self, queues: impl IntoIterator<Item = QueueName>) -> Self {
        self.serves = Some(queues.into_iter().collect());
        self
    }

    /// Returns the holder's announcement of the queues that it serves.
    pub(super) fn serving(&self, now: Timestamp) -> Serving {
        Serving::new(self.holder.clone(), self.serves.clone(), now, self.lease)
    }

    /// Returns an error if the request cannot serve its queues.
    pub(super) fn check(&self) -> Result<(), Invalid> {
        match (&self.serves, &self.policy) {
            (Some(queues), _) if queues.is_empty() => Err(Invalid::NoQueues),
            (Some(_), Policy::AirflowWindow(_)) => Err(Invalid::WindowWith { what: "queues" }),
            _ => Ok(()),
        }
    }

    /// Sets how long the store remembers ticks.
    #[must_use]
    pub fn remember(mut self, length: Duration) -> Self {
        self.remember = length;
        self
    }

    /// Starts the granted tasks at the instant of the grant, as [`Tx::start`] would after the tick. They
    /// become [`Running`](crate::TaskState::Running), which saves the host a transaction.
    ///
    /// A task that [records its attempts as runs](crate::NewTask::attempts_as_runs) is only granted, and must
    /// still be started. Another transaction may hold a lock on its run, and a tick never waits for a row.
    #[must_use]
    pub fn started(mut self) -> Self {
        self.started = true;
        self
    }
}

/// The result of an [`AdmitRequest`].
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Admission {
    /// The admitted tasks with their leases, in order of admission.
    pub granted: Vec<TaskRecord>,
    /// The ready tasks left waiting, by lane, with the reason. Empty in the result of a repeated request.
    ///
    /// A tick names at most 256 of the lanes that had ready tasks when it began: those whose needs the store
    /// has known the longest.
    pub refusals: Vec<Refusal>,
    /// True if more lanes had ready tasks when the tick began than it names. Tasks in the other lanes may be
    /// waiting too.
    pub more_lanes: bool,
    /// Workflows for which the tick found no definition. The host fails their scheduled tasks. Only
    /// [`crate::admission::AirflowWindow`] fills this in.
    pub missing: Vec<LimitKey>,
    /// The number of overdue tasks that the tick made ready, at most 10,000.
    pub promoted: usize,
    /// The next instant at which a waiting task becomes due. It is the instant of the tick if some overdue
    /// tasks were not made ready, or if lanes that the tick did not read may have tasks that fit. If a task
    /// waits only for rates, `next_due` is not later than the instant at which all its keys have tokens. With
    /// a budget of 0 this holds only for the named lanes and for tasks that an earlier tick refused.
    pub next_due: Option<Timestamp>,
    /// When the holder must next announce which queues it serves.
    pub(crate) announces_at: Option<Timestamp>,
    /// The pools that had no open slot, if nothing was granted. A task that becomes ready in one of them
    /// waits for capacity.
    pub(crate) full: Vec<PoolName>,
}

impl Admission {
    /// Returns the number of ready tasks left waiting, by the name of the reason. Reasons without tasks are
    /// left out. Only tasks in named lanes are counted; see [`Self::more_lanes`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use stationmaster::ops::AdmitRequest;
    /// use stationmaster::store::MemoryStore;
    /// use stationmaster::{NewTask, TaskKey, Timestamp};
    ///
    /// let store = MemoryStore::new();
    /// let tasks = ["a", "b", "c"].map(|task| NewTask::new(TaskKey::new("prod", "nightly", "r1", task).unwrap()));
    /// let request = AdmitRequest::new("worker-1".try_into()?, "tick-1".try_into()?, 1, Duration::from_secs(30));
    /// let admission = store.write(|tx| {
    ///     tx.enqueue(Timestamp::UNIX_EPOCH, &tasks)?;
    ///     tx.admit(Timestamp::UNIX_EPOCH, &request)
    /// })?;
    /// assert_eq!(admission.refused_by_reason(), [("budget_spent", 2)].into());
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn refused_by_reason(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        for refusal in &self.refusals {
            *counts.entry(refusal.reason.name()).or_default() += refusal.tasks;
        }
        counts
    }
}

impl Tx<'_> {
    /// Admits tasks: makes overdue tasks ready, plans over all ready tasks and grants leases.
    ///
    /// A call makes at most 10,000 overdue tasks ready, so no call takes long, however many tasks become due
    /// at once. Tasks that are due earlier go first; ties go in admission order. If more tasks are overdue,
    /// [`Admission::next_due`] is `now`. An overdue task that has not been made ready is not part of the
    /// plan, even if it has a higher priority.
    ///
    /// A call makes few store calls, however many pools, limits and tasks there are:
    ///
    /// * Usually three: [`survey`](crate::store::contract::TaskTx::survey),
    ///   [`candidates`](crate::store::contract::TaskTx::candidates) and
    ///   [`grant_if_open`](crate::store::contract::TaskTx::grant_if_open).
    /// * One if nothing is ready or nothing fits.
    /// * Two if the request is repeated.
    /// * One more, once per lease length, to record which queues the holder serves.
    /// * Further calls of `candidates`, if all candidates of a lane were admitted and it has room for more. A
    ///   lane's first page has twice the budget divided by the number of lanes with ready tasks, and at least
    ///   16 candidates (fewer if there are more than 256 lanes). The page size doubles each time, so `n` such
    ///   lanes cost at most about log2(`n`) further calls.
    ///
    /// **It is the last verb of its transaction that writes.** Afterwards the transaction may only read or
    /// admit again. Any other verb returns [`Invalid::AfterAdmit`] and needs a new transaction. So a tick
    /// never waits for a row, and other ticks wait only for its commit.
    ///
    /// # Errors
    ///
    /// Returns [`Invalid::NoQueues`] for a request that serves no queue, and [`Invalid::WindowWith`] for
    /// Airflow's window with named queues or anything else that it does not support. Returns
    /// [`Invalid::TickInHostTransaction`] in a PostgreSQL transaction that the host owns. In these cases
    /// nothing was granted. Returns [`Invalid::RequestOfAnother`] if another holder used the request's name
    /// and holds what it was granted. Returns [`crate::error::StoreErrorKind::Conflict`] if the store changed
    /// between plan and grant: run the transaction again. Returns other store errors unchanged.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use stationmaster::ops::AdmitRequest;
    /// use stationmaster::store::MemoryStore;
    /// use stationmaster::{NewTask, TaskKey, Timestamp};
    ///
    /// let store = MemoryStore::new();
    /// let now = Timestamp::UNIX_EPOCH;
    /// let task = NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?);
    /// store.write(|tx| tx.enqueue(now, std::slice::from_ref(&task)))?;
    ///
    /// let request = AdmitRequest::new("worker-1".try_into()?, "tick-1".try_into()?, 10, Duration::from_secs(30));
    /// let admission = store.write(|tx| tx.admit(now, &request))?;
    /// assert_eq!(admission.granted[0].key, task.key);
    /// assert_eq!(store.write(|tx| tx.admit(now, &request))?.granted, admission.granted, "asked again: the same leases");
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn admit(&mut self, now: impl Into<Timestamp>, request: &AdmitRequest) -> Result<Admission> {
        let now = now.into();
        request.check()?;
        self.tick(|tx| {
            let mut query = looks_for(request).request(request.request.clone()).promote(now, PROMOTE);
            // A window considers more tasks than it admits.
            if query.pools == WhichPools::Named {
                query = query.budget(request.budget);
            }
            if request.policy == Policy::Backfill {
                query = query.first(request.named, now, request.marks);
            }
            query.ahead = ahead(now, request);
            let mut survey = tx.survey(&query)?;
            apply_families(&mut survey, &request.policy)?;
            // Tasks that are still overdue wait for the next tick, which is due at once.
            let next_due = survey.next_due.map(|due| due.max(now));
            let announces_at = Some(announce(tx, &request.serving(now), &survey.serving)?);
            if let Some(leases) = &survey.granted {
                let granted = granted_before(tx, request, leases)?;
                return Ok(Admission { granted, next_due, announces_at, ..Admission::default() });
            }
            // Another transaction may be changing a planned task. The store leaves such tasks out of a second
            // plan. It identifies them by what the first plan read, so the lanes are not read again.
            let first = survey.unread.is_some().then(|| survey.lanes.clone());
            for _ in 0..2 {
                let mut planner = plan_over(now, request, &mut survey, &mut Ticking { tx, request })?;
                let plan = planner.finish();
                let granted = match survey.ahead.take() {
                    Some(granted) => Some(as_planned(granted, &plan)),
                    None => commit(tx, now, request, &plan)?,
                };
                if let Some(granted) = granted {
                    let at_once = plan.is_cut.then_some(now);
                    let next_due = next_due.into_iter().chain(at_once);
                    // `next_token` may be in the past: one tick removes only some of the expired marks.
                    let next_token = survey.next_token.map(|next| next.max(now));
                    let next_due = next_due.chain(plan.next_token).chain(next_token).min();
                    let (Plan { refusals, more_lanes, missing, .. }, promoted) = (plan, survey.promoted);
                    let full = if granted.is_empty() { full_pools(&survey, request) } else { Vec::new() };
                    return Ok(Admission {
                        granted,
                        refusals,
                        more_lanes,
                        missing,
                        promoted,
                        next_due,
                        announces_at,
                        full,
                    });
                }
                // The marks made for this plan are gone, so the lanes that it read in pages must be read
                // again.
                survey.lanes = first.clone().unwrap_or_else(|| planner.into_lanes());
            }
            Err(changed().into())
        })
    }
}

/// The reads of a plan beyond its survey.
pub(super) trait Reads {
    /// Returns the ready tasks of these pages.
    fn candidates(&mut self, pages: &[LanePage]) -> StoreResult<Vec<Candidate>>;

    /// Records marks and returns lanes that the survey left out.
    fn lanes(&mut self, of: &Behind, limit: usize, marks: &[Mark]) -> StoreResult<Survey>;
}

/// The reads of a tick, in a transaction that may write.
struct Ticking<'a, 't> {
    tx: &'a mut Tx<'t>,
    request: &'a AdmitRequest,
}

impl Reads for Ticking<'_, '_> {
    fn candidates(&mut self, pages: &[LanePage]) -> StoreResult<Vec<Candidate>> {
        self.tx.raw().candidates(pages)
    }

    fn lanes(&mut self, of: &Behind, limit: usize, marks: &[Mark]) -> StoreResult<Survey> {
        if !marks.is_empty() {
            self.tx.raw().put_marks(marks)?;
        }
        self.tx.raw().lanes_behind(&LanesBehind::of(of, limit, self.request.serves.as_ref()))
    }
}

/// Returns the query for what a tick plans with, before it makes any task ready.
pub(super) fn looks_for(request: &AdmitRequest) -> SurveyQuery {
    let query = SurveyQuery::new().pools(needed_pools(&request.policy));
    match request.policy {
        // Slots are reserved for tasks of other queues, too.
        Policy::Reserve { .. } => query,
        Policy::Backfill | Policy::AirflowWindow(_) => query.queues(request.serves.clone()),
    }
}

/// Plans over the candidates that `reads` finds now. Moves the lanes out of the survey.
pub(super) fn plan_over(
    now: Timestamp,
    request: &AdmitRequest,
    survey: &mut Survey,
    reads: &mut impl Reads,
) -> StoreResult<Planner> {
    let mut lanes = std::mem::take(&mut survey.lanes);
    if let Some(queues) = &request.serves {
        leave_unserved(&mut lanes, queues, &survey.serving, now);
    }
    let planner = Planner::new(request.budget, lanes).policy(&request.policy, now);
    let planner = planner.serving(request.serves.as_ref()).paused(&survey.paused);
    let planner = planner.shares(&survey.shares, survey.grants);
    let planner = planner.naming(request.named, survey.unread, survey.unread_shares.clone());
    let mut planner = planner.marking(request.marks);
    loop {
        match planner.need() {
            Need::Capacity => feed(&mut planner, survey, now),
            Need::Candidates(pages) => {
                let candidates = reads.candidates(&pages)?;
                planner.feed_candidates(&pages, &candidates);
            }
            Need::Lanes { of, limit, marks } => {
                let more = reads.lanes(&of, limit, &marks)?;
                feed_more(&mut planner, of, survey, more, now);
            }
            Need::Nothing => return Ok(planner),
        }
    }
}

/// Feeds the planner lanes that the survey left out, with the capacity that they name.
fn feed_more(planner: &mut Planner, of: Behind, survey: &Survey, mut more: Survey, now: Timestamp) {
    let families = Families::new(&survey.families);
    more.limits.iter_mut().for_each(|limit| families.apply(limit));
    more.clock = survey.clock;
    planner.feed_lanes(of, std::mem::take(&mut more.lanes), more.unread, more.unread_shares.take());
    planner.feed_shares(&more.shares, &more.unread_of);
    feed(planner, &more, now);
}

/// Applies the definitions of families to the keys of a survey. Under Airflow's window, refuses what the
/// window does not support.
pub(crate) fn apply_families(survey: &mut Survey, policy: &Policy) -> Result<(), Invalid> {
    let families = Families::new(&survey.families);
    survey.limits.iter_mut().for_each(|limit| families.apply(limit));
    if let Policy::AirflowWindow(_) = policy {
        let has_rate = survey.limits.iter().any(|limit| limit.rate.is_some());
        let has_pools = survey.lanes.iter().any(|lane| !lane.key.also.is_empty());
        let has_counts = survey.lanes.iter().any(|lane| !lane.key.counts.is_empty());
        let has_shares = survey.lanes.iter().any(|lane| lane.key.share.is_some());
        let unknown = [
            (!survey.families.is_empty(), "families"),
            (has_rate, "rates"),
            (has_pools, "tasks with several pools"),
            (has_counts, "counts above 1"),
            (has_shares, "shares"),
        ];
        if let Some((_, what)) = unknown.into_iter().find(|(is_there, _)| *is_there) {
            return Err(Invalid::WindowWith { what });
        }
    }
    Ok(())
}

/// Feeds the planner the counted capacity. The clock never goes back before the latest token taken.
pub(crate) fn feed(planner: &mut Planner, survey: &Survey, now: Timestamp) {
    let clock = survey.clock.map_or(now, |last| last.max(now));
    planner.feed_capacity(&survey.pools, &survey.limits, &survey.rates, clock);
}

/// Returns the pools of a survey without an open slot. Returns none for policies other than backfill, which
/// look at more than what fits.
pub(super) fn full_pools(survey: &Survey, request: &AdmitRequest) -> Vec<PoolName> {
    if request.policy != Policy::Backfill {
        return Vec::new();
    }
    let is_full = |pool: &&PoolRecord| pool.open().is_some_and(|open| open <= 0);
    survey.pools.iter().filter(is_full).map(|pool| pool.spec.name.clone()).collect()
}

/// How long announcements are kept after they expire, to allow for clock skew between holders.
const KEPT: Duration = Duration::from_secs(600);

/// Returns when the holder must next announce what it serves, or `None` if it must do so now.
pub(super) fn announces_at(new: &Serving, serving: &[Serving]) -> Option<Timestamp> {
    let known = serving.iter().find(|known| known.is_replaced_by(new));
    known.filter(|known| !known.is_outdated_by(new)).map(Serving::due)
}

/// Records which queues a tick serves, unless a record less than a lease old exists. Returns when to announce
/// again.
fn announce(tx: &mut Tx<'_>, new: &Serving, serving: &[Serving]) -> Result<Timestamp> {
    if let Some(at) = announces_at(new, serving) {
        return Ok(at);
    }
    tx.raw().put_serving(new, new.announced_at - KEPT)?;
    Ok(new.due())
}

fn changed() -> StoreError {
    StoreError::conflict("another writer changed tasks, pools or limits during this tick")
}

/// Returns which pools a plan by this policy needs.
pub(super) fn needed_pools(policy: &Policy) -> WhichPools {
    match policy {
        Policy::AirflowWindow(_) => WhichPools::All,
        Policy::Backfill | Policy::Reserve { .. } => WhichPools::Named,
    }
}

/// Returns the tasks whose leases from an earlier tick of the same name are still held.
fn granted_before(tx: &mut Tx<'_>, request: &AdmitRequest, leases: &[LeaseRef]) -> Result<Vec<TaskRecord>> {
    let tasks = tasks_under(tx, leases)?.into_iter().flatten();
    let granted: Vec<TaskRecord> = tasks.filter(|task| task.state.is_leased()).collect();
    let others = |task: &&TaskRecord| task.lease.as_ref().is_some_and(|lease| lease.holder != request.holder);
    if let Some(lease) = granted.iter().find(others).and_then(|task| task.lease.as_ref()) {
        let (request, holder) = (request.request.clone(), lease.holder.clone());
        return Err(Invalid::RequestOfAnother { request, holder }.into());
    }
    Ok(granted)
}

/// Returns how the store may grant as part of the survey. Returns `None` unless the request is plain and
/// names the caller's last tick.
fn ahead(now: Timestamp, request: &AdmitRequest) -> Option<Ahead> {
    let is_plain = request.policy == Policy::Backfill && request.serves.is_none() && request.budget > 0;
    let replaces = request.answered.clone().filter(|_| is_plain)?;
    let (holder, lease, started) = (request.holder.clone(), request.lease, request.started);
    Some(Ahead { holder, lease, replaces, forget: Forget::before(now - request.remember, FORGET), started })
}

/// Returns what was granted ahead, which is decisive. The plan only explains why the other tasks wait.
fn as_planned(granted: Vec<TaskRecord>, plan: &Plan) -> Vec<TaskRecord> {
    let ids = |tasks: &[TaskRecord]| tasks.iter().map(|task| task.id).collect::<Vec<_>>();
    let planned = || plan.admit.iter().map(|candidate| candidate.order.id).collect::<Vec<_>>();
    debug_assert_eq!(ids(&granted), planned(), "what was granted ahead is the plan");
    granted
}

/// Grants the whole plan. Returns `None` if nothing was granted because one of its tasks is no longer ready.
fn commit(
    tx: &mut Tx<'_>,
    now: Timestamp,
    request: &AdmitRequest,
    plan: &Plan,
) -> Result<Option<Vec<TaskRecord>>> {
    if !plan.marks.is_empty() {
        tx.raw().put_marks(&plan.marks)?;
    }
    if plan.admit.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let ids: Vec<_> = plan.admit.iter().map(|candidate| candidate.order.id).collect();
    let mut forget = Forget::before(now - request.remember, FORGET);
    let mut batch =
        GrantBatch::new(&ids, &request.holder, now, now + request.lease).request(&request.request);
    match &request.answered {
        Some(answered) => batch = batch.replaces(answered),
        // The cost of counting grows with the number of remembered ticks, so only a tick that adds one
        // counts.
        None => forget = forget.most(MOST),
    }
    batch = batch.forget(forget).rates(&plan.rates).shares(&plan.shares).whole();
    batch.started = request.started;
    let granted = tx.grant(&batch)?;
    if granted.tasks.is_empty() {
        return Ok(None);
    }
    if !granted.is_whole(&batch) {
        return Err(changed().into());
    }
    Ok(Some(granted.tasks))
}
