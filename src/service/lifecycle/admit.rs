//! One admission tick.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::admission::{Deferral, Need, Planner, Policy, ReasonKind};
use crate::error::{Invalid, Result, StoreError};
use crate::id::{Holder, LimitKey, RequestId};
use crate::store::{GrantBatch, StoreTx};
use crate::task::TaskRecord;
use crate::time;

/// How many tasks are promoted at once from waiting for an instant to ready.
const PROMOTIONS: usize = 10_000;

/// Asks for admission.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AdmitOrder {
    /// Who gets the leases.
    pub holder: Holder,
    /// Names this tick, among those of all holders. The same name again answers what the first one was granted, and grants nothing more.
    pub request: RequestId,
    /// The most tasks to admit: free places of the executor. 0 admits none and tells why the others wait.
    pub budget: usize,
    /// How long the leases hold.
    pub lease: Duration,
    /// What becomes of tasks that do not fit.
    pub policy: Policy,
}

impl AdmitOrder {
    /// Asks for up to `budget` tasks for this holder, under leases of this length, by [`Policy::Backfill`].
    pub fn new(holder: Holder, request: RequestId, budget: usize, lease: Duration) -> Self {
        Self { holder, request, budget, lease, policy: Policy::default() }
    }

    /// Sets what becomes of tasks that do not fit.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }
}

/// The answer to an [`AdmitOrder`].
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Admission {
    /// The admitted tasks with their leases, in order of admission.
    pub granted: Vec<TaskRecord>,
    /// The ready tasks left waiting, by lane, with the reason. Empty in the answer to a repeated request.
    pub deferrals: Vec<Deferral>,
    /// Workflows that the tick found without a definition: the host fails their scheduled tasks. Only by
    /// [`crate::admission::AirflowWindow`].
    pub missing: Vec<LimitKey>,
    /// How many tasks came due.
    pub promoted: usize,
    /// The next instant at which a waiting task comes due.
    pub next_due: Option<DateTime<Utc>>,
}

impl Admission {
    /// How many ready tasks were left waiting, by the kind of reason; kinds that none has are left out.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use stationmaster::admission::ReasonKind;
    /// use stationmaster::service::lifecycle::{AdmitOrder, admit, enqueue};
    /// use stationmaster::store::{MemoryStore, StoreExt};
    /// use stationmaster::time::from_micros;
    /// use stationmaster::{NewTask, TaskKey};
    ///
    /// let store = MemoryStore::new();
    /// let tasks = ["a", "b", "c"].map(|task| NewTask::new(TaskKey::new("prod", "nightly", "r1", task).unwrap()));
    /// let order = AdmitOrder::new("worker-1".try_into()?, "tick-1".try_into()?, 1, Duration::from_secs(30));
    /// let admission = store.write(|tx| {
    ///     enqueue(tx, from_micros(0), &tasks)?;
    ///     admit(tx, from_micros(0), &order)
    /// })?;
    /// assert_eq!(admission.deferred_by_kind(), [(ReasonKind::BudgetSpent, 2)].into());
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn deferred_by_kind(&self) -> BTreeMap<ReasonKind, u64> {
        let mut counts = BTreeMap::new();
        for deferral in &self.deferrals {
            *counts.entry(deferral.reason.kind()).or_default() += deferral.tasks;
        }
        counts
    }
}

/// All that came due: an urgent one must not hide behind many others.
fn promote_all(tx: &mut (impl StoreTx + ?Sized), now: DateTime<Utc>) -> Result<usize> {
    let mut promoted = 0;
    loop {
        let page = tx.promote_due(now, PROMOTIONS)?;
        promoted += page;
        if page < PROMOTIONS {
            return Ok(promoted);
        }
    }
}

/// Admits tasks: promotes those that came due, plans over all that are ready, and grants leases.
///
/// # Errors
///
/// [`Invalid::RequestOfAnother`] if another holder used the request's name, and holds what it was granted.
/// [`crate::error::StoreErrorKind::Conflict`] if the store changed between plan and grant, which a transaction should
/// exclude: run it again. Other store errors as they come.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use stationmaster::service::lifecycle::{AdmitOrder, admit, enqueue};
/// use stationmaster::store::{MemoryStore, StoreExt};
/// use stationmaster::time::from_micros;
/// use stationmaster::{NewTask, TaskKey};
///
/// let store = MemoryStore::new();
/// let now = from_micros(0);
/// let task = NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?);
/// store.write(|tx| enqueue(tx, now, std::slice::from_ref(&task)))?;
///
/// let order = AdmitOrder::new("worker-1".try_into()?, "tick-1".try_into()?, 10, Duration::from_secs(30));
/// let admission = store.write(|tx| admit(tx, now, &order))?;
/// assert_eq!(admission.granted[0].key, task.key);
/// assert_eq!(store.write(|tx| admit(tx, now, &order))?.granted, admission.granted, "asked again: the same leases");
/// # Ok::<(), stationmaster::Error>(())
/// ```
pub fn admit(tx: &mut (impl StoreTx + ?Sized), now: DateTime<Utc>, order: &AdmitOrder) -> Result<Admission> {
    let now = time::truncate(now);
    if let Some(leases) = tx.granted(&order.request)? {
        let nos: Vec<_> = leases.iter().map(|lease| lease.no).collect();
        let tasks = tx.tasks_by_no(&nos)?;
        let same = |(task, lease): (Option<TaskRecord>, _)| task.filter(|task| task.lease_ref() == lease);
        let granted = tasks.into_iter().zip(leases).filter_map(same).filter(|task| task.state.is_leased());
        let granted: Vec<TaskRecord> = granted.collect();
        let others =
            |task: &&TaskRecord| task.lease.as_ref().is_some_and(|lease| lease.holder != order.holder);
        if let Some(lease) = granted.iter().find(others).and_then(|task| task.lease.as_ref()) {
            let (request, holder) = (order.request.clone(), lease.holder.clone());
            return Err(Invalid::RequestOfAnother { request, holder }.into());
        }
        return Ok(Admission { granted, next_due: tx.next_due()?, ..Admission::default() });
    }
    let promoted = promote_all(tx, now)?;
    let mut planner = Planner::new(order.budget, tx.ready_lanes()?).policy(&order.policy, now);
    loop {
        match planner.need() {
            Need::Capacity { pools, limits } => {
                let pools: Vec<_> = tx.pools(&pools)?.into_iter().flatten().collect();
                let limits: Vec<_> = tx.limits(&limits)?.into_iter().flatten().collect();
                planner.feed_capacity(&pools, &limits);
            }
            Need::AllPools { limits } => {
                let limits: Vec<_> = tx.limits(&limits)?.into_iter().flatten().collect();
                planner.feed_capacity(&tx.all_pools()?, &limits);
            }
            Need::ReadyAt(no) => {
                let task = tx.tasks_by_no(&[no])?.pop().flatten();
                planner.feed_ready_at(task.map_or(now, |task| task.ready_at));
            }
            Need::Candidates(pages) => {
                let candidates = tx.candidates(&pages)?;
                planner.feed_candidates(&pages, &candidates);
            }
            Need::Nothing => break,
        }
    }
    let plan = planner.finish();
    let mut granted = Vec::new();
    if !plan.admit.is_empty() {
        let nos: Vec<_> = plan.admit.iter().map(|candidate| candidate.order.no).collect();
        let expires_at = time::add(now, order.lease);
        let batch = GrantBatch { tasks: &nos, holder: &order.holder, now, expires_at };
        granted = tx.grant_if_ready(&batch)?;
        let pools = tx.take_slots_if_open(&plan.pools)?;
        let limits = tx.take_limits_if_open(&plan.limits)?;
        if (granted.len(), pools, limits) != (nos.len(), plan.pools.len(), plan.limits.len()) {
            return Err(StoreError::conflict(
                "another writer changed tasks, pools or limits during this tick",
            )
            .into());
        }
        let leases: Vec<_> = granted.iter().map(TaskRecord::lease_ref).collect();
        tx.note_request(&order.request, now, &leases)?;
    }
    Ok(Admission {
        granted,
        deferrals: plan.deferrals,
        missing: plan.missing,
        promoted,
        next_due: tx.next_due()?,
    })
}
