//! One admission tick.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::admission::{Need, Plan, Planner, Policy, Refusal};
use crate::error::{Invalid, Result, StoreError};
use crate::id::{Holder, LimitKey, RequestId};
use crate::lease::LeaseRef;
use crate::store::Tx;
use crate::store::contract::{Forget, GrantBatch, SurveyQuery, WhichPools};
use crate::task::TaskRecord;
use crate::time;

/// The most tasks that one tick makes ready: PostgreSQL takes about 0.15 s for them, and other writers wait
/// that long.
const PROMOTE: usize = 10_000;

/// How many ticks one tick forgets at most.
const FORGET: usize = 64;
/// How many ticks are remembered of those that no later one replaced.
const MOST: usize = 1_024;

/// Asks for admission.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AdmitRequest {
    /// Who gets the leases.
    pub holder: Holder,
    /// Names this tick, among those of all holders. While the store remembers it, the same name again returns
    /// what is left of what the first one was granted, and grants nothing more.
    pub request: RequestId,
    /// The request of an earlier tick whose answer the caller has had, or does not care about. If this tick
    /// grants something, the store remembers it instead of that one, which cannot be repeated any more. A
    /// caller that names its last request here leaves one row in the store; otherwise each tick that grants
    /// something leaves one for a while.
    pub answered: Option<RequestId>,
    /// The most tasks to admit: free places of the executor. 0 admits none and tells why the others wait.
    pub budget: usize,
    /// How long the leases hold.
    pub lease: Duration,
    /// What becomes of tasks that do not fit.
    pub policy: Policy,
    /// How long the store remembers ticks: one that grants something makes it forget up to 64 that are older.
    /// It remembers at most 1,024 of those that no later tick named in [`Self::answered`]. What is forgotten
    /// cannot be repeated.
    pub remember: Duration,
}

impl AdmitRequest {
    /// Asks for up to `budget` tasks for this holder, under leases of this length, by [`Policy::Backfill`].
    /// Ticks are remembered for an hour.
    pub fn new(holder: Holder, request: RequestId, budget: usize, lease: Duration) -> Self {
        let (policy, remember) = (Policy::default(), Duration::from_secs(3600));
        Self { holder, request, answered: None, budget, lease, policy, remember }
    }

    /// Names the request of an earlier tick whose answer the caller has had.
    #[must_use]
    pub fn answered(mut self, request: RequestId) -> Self {
        self.answered = Some(request);
        self
    }

    /// Sets what becomes of tasks that do not fit.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets how long the store remembers ticks.
    #[must_use]
    pub fn remember(mut self, length: Duration) -> Self {
        self.remember = length;
        self
    }
}

/// The answer to an [`AdmitRequest`].
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Admission {
    /// The admitted tasks with their leases, in order of admission.
    pub granted: Vec<TaskRecord>,
    /// The ready tasks left waiting, by lane, with the reason. Empty in the answer to a repeated request.
    pub refusals: Vec<Refusal>,
    /// Workflows that the tick found without a definition: the host fails their scheduled tasks. Only by
    /// [`crate::admission::AirflowWindow`].
    pub missing: Vec<LimitKey>,
    /// How many overdue tasks it made ready, at most 10,000.
    pub promoted: usize,
    /// The next instant at which a waiting task comes due; the instant of the tick if more were overdue than
    /// it made ready.
    pub next_due: Option<DateTime<Utc>>,
}

impl Admission {
    /// How many ready tasks were left waiting, by the name of the reason; names that none has are left out.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use stationmaster::ops::AdmitRequest;
    /// use stationmaster::store::MemoryStore;
    /// use stationmaster::time::from_micros;
    /// use stationmaster::{NewTask, TaskKey};
    ///
    /// let store = MemoryStore::new();
    /// let tasks = ["a", "b", "c"].map(|task| NewTask::new(TaskKey::new("prod", "nightly", "r1", task).unwrap()));
    /// let order = AdmitRequest::new("worker-1".try_into()?, "tick-1".try_into()?, 1, Duration::from_secs(30));
    /// let admission = store.write(|tx| {
    ///     tx.enqueue(from_micros(0), &tasks)?;
    ///     tx.admit(from_micros(0), &order)
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
    /// Admits tasks: makes overdue tasks ready, plans over all that are ready, and grants leases.
    ///
    /// A call makes at most 10,000 overdue tasks ready, so that none takes long, however many come due at
    /// once: the earliest due first, and of those due at one instant the first in the order of admission. If
    /// more are overdue, [`Admission::next_due`] is `now`. Until its turn comes, an overdue task is not among
    /// those the plan looks at, even if its priority is higher than theirs.
    ///
    /// That is three calls of the store, [`survey`](crate::store::contract::TaskTx::survey),
    /// [`candidates`](crate::store::contract::TaskTx::candidates) and
    /// [`grant_if_open`](crate::store::contract::TaskTx::grant_if_open), however many pools, limits and tasks
    /// there are; one if nothing is ready or nothing fits. Candidates are asked for again only when a lane
    /// that has room for more got all of its first share admitted: the share is twice the budget over the
    /// number of lanes with ready tasks, and at least 16. The shares double each time, so `n` such lanes cost
    /// at most about log2(`n`) further calls. A repeated request costs two calls.
    ///
    /// # Errors
    ///
    /// [`Invalid::RequestOfAnother`] if another holder used the request's name, and holds what it was
    /// granted. [`crate::error::StoreErrorKind::Conflict`] if the store changed between plan and grant, which
    /// a transaction should exclude: run it again. Other store errors as they come.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use stationmaster::ops::AdmitRequest;
    /// use stationmaster::store::MemoryStore;
    /// use stationmaster::time::from_micros;
    /// use stationmaster::{NewTask, TaskKey};
    ///
    /// let store = MemoryStore::new();
    /// let now = from_micros(0);
    /// let task = NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?);
    /// store.write(|tx| tx.enqueue(now, std::slice::from_ref(&task)))?;
    ///
    /// let order = AdmitRequest::new("worker-1".try_into()?, "tick-1".try_into()?, 10, Duration::from_secs(30));
    /// let admission = store.write(|tx| tx.admit(now, &order))?;
    /// assert_eq!(admission.granted[0].key, task.key);
    /// assert_eq!(store.write(|tx| tx.admit(now, &order))?.granted, admission.granted, "asked again: the same leases");
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn admit(&mut self, now: DateTime<Utc>, order: &AdmitRequest) -> Result<Admission> {
        self.whole(|tx| {
            let now = time::truncate(now);
            let pools = match order.policy {
                Policy::AirflowWindow(_) => WhichPools::All,
                Policy::Backfill | Policy::Reserve { .. } => WhichPools::Named,
            };
            let query = SurveyQuery::new().request(order.request.clone()).promote(now, PROMOTE).pools(pools);
            let survey = tx.raw().survey(&query)?;
            // Tasks that are still overdue wait for the next tick, which is due at once.
            let next_due = survey.next_due.map(|due| due.max(now));
            if let Some(leases) = &survey.granted {
                let granted = granted_before(tx, order, leases)?;
                return Ok(Admission { granted, next_due, ..Admission::default() });
            }
            let mut planner = Planner::new(order.budget, survey.lanes).policy(&order.policy, now);
            loop {
                match planner.need() {
                    Need::Capacity { .. } | Need::AllPools { .. } => {
                        planner.feed_capacity(&survey.pools, &survey.limits);
                    }
                    Need::Candidates(pages) => {
                        let candidates = tx.raw().candidates(&pages)?;
                        planner.feed_candidates(&pages, &candidates);
                    }
                    Need::Nothing => break,
                }
            }
            let plan = planner.finish();
            let granted = if plan.admit.is_empty() { Vec::new() } else { commit(tx, now, order, &plan)? };
            Ok(Admission {
                granted,
                refusals: plan.refusals,
                missing: plan.missing,
                promoted: survey.promoted,
                next_due,
            })
        })
    }
}

/// What is left of the leases that a tick of the same name granted.
fn granted_before(tx: &mut Tx<'_>, order: &AdmitRequest, leases: &[LeaseRef]) -> Result<Vec<TaskRecord>> {
    let ids: Vec<_> = leases.iter().map(|lease| lease.id).collect();
    let tasks = tx.raw().tasks_by_id(&ids)?;
    let same = |(task, lease): (Option<TaskRecord>, &_)| task.filter(|task| task.lease_ref() == *lease);
    let granted = tasks.into_iter().zip(leases).filter_map(same).filter(|task| task.state.is_leased());
    let granted: Vec<TaskRecord> = granted.collect();
    let others = |task: &&TaskRecord| task.lease.as_ref().is_some_and(|lease| lease.holder != order.holder);
    if let Some(lease) = granted.iter().find(others).and_then(|task| task.lease.as_ref()) {
        let (request, holder) = (order.request.clone(), lease.holder.clone());
        return Err(Invalid::RequestOfAnother { request, holder }.into());
    }
    Ok(granted)
}

fn commit(tx: &mut Tx<'_>, now: DateTime<Utc>, order: &AdmitRequest, plan: &Plan) -> Result<Vec<TaskRecord>> {
    let ids: Vec<_> = plan.admit.iter().map(|candidate| candidate.order.id).collect();
    let mut forget = Forget::before(time::sub(now, order.remember), FORGET);
    let mut batch =
        GrantBatch::new(&ids, &order.holder, now, time::add(now, order.lease)).request(&order.request);
    match &order.answered {
        Some(answered) => batch = batch.replaces(answered),
        // Counting costs as much as there are, so only a tick that adds one counts.
        None => forget = forget.most(MOST),
    }
    batch = batch.forget(forget);
    let granted = tx.grant(&batch)?;
    if !granted.is_whole(&batch) {
        return Err(
            StoreError::conflict("another writer changed tasks, pools or limits during this tick").into()
        );
    }
    Ok(granted.tasks)
}
