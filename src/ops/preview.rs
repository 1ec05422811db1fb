//! Shows what a tick would admit, without a tick.

use std::collections::{BTreeMap, BTreeSet};

use super::admit::{Admission, AdmitRequest, PROMOTE, Reads, apply_families, looks_for, plan_over};
use crate::admission::{Behind, Candidate, LaneId, LanePage, Plan};
use crate::error::{Result, StoreResult};
use crate::id::{LimitKey, PoolName, QueueName};
use crate::store::ReadTx;
use crate::store::contract::{Mark, Overdue, Promote, StoreTx, Survey, SurveyQuery, WhichPools};
use crate::time::Timestamp;

impl ReadTx<'_> {
    /// Returns what a tick with this request would admit at this instant, and why the other ready tasks would
    /// be left waiting. Changes nothing.
    ///
    /// The plan includes the overdue tasks that the tick would make ready, at most 10,000. The granted tasks
    /// are returned as they are now, without leases. The request is treated as new, even if the store
    /// remembers a tick of that name. The plan treats the request's queues as served, but the store does not
    /// record that.
    ///
    /// A preview takes no locks and does not wait for ticks, so it may differ from the tick that follows it:
    ///
    /// * Commits in between may change the plan.
    /// * On PostgreSQL, a task that another transaction is changing is part of the preview, but the tick
    ///   skips it.
    /// * With more than 256 lanes, a tick may end before it has read all of them, and is due again at once. A
    ///   preview reads all of them.
    /// * On PostgreSQL, a tick adds up at most 10,000 changes that other transactions made to counters. A
    ///   preview adds up all of them.
    ///
    /// A call makes three store calls, or one if nothing is ready or nothing fits. It reads more candidates
    /// as often as [`Tx::admit`](crate::store::Tx::admit) does. If tasks are overdue, up to five more calls
    /// read them and what they need. The call reads what the tick would read, and the granted tasks.
    ///
    /// # Errors
    ///
    /// Returns [`Invalid::NoQueues`](crate::error::Invalid::NoQueues) and
    /// [`Invalid::WindowWith`](crate::error::Invalid::WindowWith) like a tick. Returns
    /// [`crate::Error::Store`] if the store fails.
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
    /// let due = Timestamp::from_micros(60_000_000);
    /// let task = NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?).not_before(due);
    /// store.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, std::slice::from_ref(&task)))?;
    ///
    /// let request = AdmitRequest::new("worker-1".try_into()?, "what if".try_into()?, 10, Duration::from_secs(30));
    /// let early = store.read(|tx| tx.preview(Timestamp::UNIX_EPOCH, &request))?;
    /// assert_eq!((early.granted.len(), early.next_due), (0, Some(due)));
    ///
    /// let preview = store.read(|tx| tx.preview(due, &request))?;
    /// assert_eq!((&preview.granted[0].key, preview.promoted), (&task.key, 1));
    /// assert!(preview.granted[0].lease.is_none(), "nothing was granted");
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn preview(&mut self, now: impl Into<Timestamp>, request: &AdmitRequest) -> Result<Admission> {
        let now = now.into();
        request.check()?;
        let store = self.raw();
        let query = looks_for(request);
        let mut survey = store.survey(&query)?;
        let mut promoted = Promoted::default();
        if survey.next_due.is_some_and(|due| due <= now) {
            promoted = Promoted::put_into(&mut survey, &query, store.overdue(Promote::new(now, PROMOTE))?);
            name_capacity(store, &query, &mut survey)?;
            name_shares(store, &mut survey)?;
        }
        apply_families(&mut survey, &request.policy)?;
        let mut planner =
            plan_over(now, request, &mut survey, &mut Previewing { store, promoted: &promoted })?;
        let Plan { admit, refusals, more_lanes, missing, next_token, .. } = planner.finish();
        let ids: Vec<_> = admit.iter().map(|candidate| candidate.order.id).collect();
        let granted = if ids.is_empty() { Vec::new() } else { store.tasks_by_id(&ids)? };
        Ok(Admission {
            granted: granted.into_iter().flatten().collect(),
            refusals,
            more_lanes,
            missing,
            promoted: promoted.count,
            next_due: survey.next_due.map(|due| due.max(now)).into_iter().chain(next_token).min(),
            announces_at: None,
            full: Vec::new(),
        })
    }
}

/// The reads of a preview. Its survey already has all lanes.
struct Previewing<'a> {
    store: &'a mut dyn StoreTx,
    promoted: &'a Promoted,
}

impl Reads for Previewing<'_> {
    fn candidates(&mut self, pages: &[LanePage]) -> StoreResult<Vec<Candidate>> {
        self.promoted.candidates(self.store, pages)
    }

    fn lanes(&mut self, _: &Behind, _: usize, _: &[Mark]) -> StoreResult<Survey> {
        Ok(Survey::default())
    }
}

/// The tasks that the tick would make ready. In the store they are not yet in their lanes.
#[derive(Debug, Default)]
struct Promoted {
    count: usize,
    by_lane: BTreeMap<LaneId, Vec<Candidate>>,
    /// Those of their lanes that have no other ready tasks.
    new: BTreeSet<LaneId>,
}

impl Promoted {
    /// Updates the lanes and instants of the survey to what they would be after promotion.
    fn put_into(survey: &mut Survey, query: &SurveyQuery, overdue: Overdue) -> Self {
        let mut promoted = Self { count: overdue.tasks.len(), ..Self::default() };
        survey.promoted = promoted.count;
        survey.next_due = overdue.next_due;
        for task in overdue.tasks {
            promoted.by_lane.entry(task.lane).or_default().push(task);
        }
        let is_asked = |queue: &QueueName| query.queues.as_ref().is_none_or(|queues| queues.contains(queue));
        for lane in overdue.lanes.into_iter().filter(|lane| is_asked(&lane.key.queue)) {
            match survey.lanes.binary_search_by_key(&lane.id, |lane| lane.id) {
                Ok(at) => survey.lanes[at].ready = survey.lanes[at].ready.saturating_add(lane.ready),
                Err(at) => {
                    promoted.new.insert(lane.id);
                    survey.lanes.insert(at, lane);
                }
            }
        }
        promoted
    }

    /// Returns the candidates of these pages as they would be after promotion.
    fn candidates(&self, store: &mut dyn StoreTx, pages: &[LanePage]) -> StoreResult<Vec<Candidate>> {
        let stored: Vec<LanePage> =
            pages.iter().filter(|page| !self.new.contains(&page.lane)).copied().collect();
        let found = if stored.is_empty() { Vec::new() } else { store.candidates(&stored)? };
        if self.count == 0 {
            return Ok(found);
        }
        let mut by_lane: BTreeMap<LaneId, Vec<Candidate>> = BTreeMap::new();
        for candidate in found {
            by_lane.entry(candidate.lane).or_default().push(candidate);
        }
        let mut merged = Vec::new();
        for page in pages {
            let mut candidates = by_lane.remove(&page.lane).unwrap_or_default();
            let promoted = self.by_lane.get(&page.lane).into_iter().flatten();
            candidates.extend(promoted.filter(|task| page.after.is_none_or(|after| task.order > after)));
            candidates.sort_unstable_by_key(|candidate| candidate.order);
            // Below snapshot isolation, a tick may have made a task ready between two calls.
            candidates.dedup_by_key(|candidate| candidate.order);
            candidates.truncate(page.limit);
            merged.append(&mut candidates);
        }
        Ok(merged)
    }
}

/// Reads the pools and limits that lanes name but the survey lacks, because nothing was ready there.
fn name_capacity(store: &mut dyn StoreTx, query: &SurveyQuery, survey: &mut Survey) -> StoreResult<()> {
    let known: BTreeSet<&PoolName> = survey.pools.iter().map(|pool| &pool.spec.name).collect();
    let named = survey.lanes.iter().flat_map(|lane| lane.key.pools());
    let named = named.map(|(pool, _)| pool).filter(|pool| !known.contains(pool));
    let pools: BTreeSet<&PoolName> = match query.pools {
        WhichPools::Named => named.collect(),
        WhichPools::All => BTreeSet::new(),
    };
    let known: BTreeSet<&LimitKey> = survey.limits.iter().map(|limit| &limit.key).collect();
    let carried = survey.lanes.iter().flat_map(|lane| &lane.key.limits);
    let limits: BTreeSet<&LimitKey> = carried.filter(|key| !known.contains(key)).collect();
    let pools: Vec<PoolName> = pools.into_iter().cloned().collect();
    let limits: Vec<LimitKey> = limits.into_iter().cloned().collect();
    if !pools.is_empty() {
        survey.pools.extend(store.pools(&pools)?.into_iter().flatten());
    }
    if !limits.is_empty() {
        survey.limits.extend(store.limits(&limits)?.into_iter().flatten());
        // If there is no clock, no key owes anything.
        if survey.clock.is_some() {
            survey.rates.extend(store.rates(&limits)?.0);
        }
    }
    Ok(())
}

/// Reads the shares of lanes that the survey lacks.
fn name_shares(store: &mut dyn StoreTx, survey: &mut Survey) -> StoreResult<()> {
    let known: BTreeSet<(&PoolName, &LimitKey)> =
        survey.shares.iter().map(|used| (&used.pool, &used.share)).collect();
    let shared = survey.lanes.iter().filter_map(|lane| Some((&lane.key.pool, lane.key.share.as_ref()?)));
    let unknown: BTreeSet<_> = shared.filter(|pair| !known.contains(pair)).collect();
    if !unknown.is_empty() {
        let pairs: Vec<_> = unknown.into_iter().map(|(pool, share)| (pool.clone(), share.clone())).collect();
        let (shares, grants) = store.shares(&pairs)?;
        survey.shares.extend(shares);
        survey.grants = grants;
    }
    Ok(())
}
