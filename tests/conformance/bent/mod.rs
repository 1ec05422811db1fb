//! A decorator that passes every call on, and gets one thing wrong on request.

use std::num::NonZeroU32;
use std::ops::Range;
/// Passes calls on as they are.
macro_rules! pass_on {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) -> $answer:ty;)+) => {$(
        fn $name(&mut self, $($arg: $ty),*) -> StoreResult<$answer> {
            self.tx.$name($($arg),*)
        }
    )+};
}

mod runs;
mod ticks;

use stationmaster::Timestamp;
use stationmaster::admission::limits::{LimitRecord, LimitSpec};
use stationmaster::admission::{QueueRecord, Subject, Undefined, WaitingCap};
use stationmaster::error::{Result, StoreResult};
use stationmaster::feed::{Consumer, TaskEvent};
use stationmaster::fingerprint::Fingerprint;
use stationmaster::id::{Holder, LimitKey, PoolName, TaskKey};
use stationmaster::lease::{LeaseRef, Renewal, TaskId};
use stationmaster::pool::{PoolRecord, PoolSpec, PoolStats};
use stationmaster::sensor::{PokeCounts, SensorRecord};
use stationmaster::shard::DEFAULT_CODES;
use stationmaster::store::contract::{
    Candidate, CapUse, Change, FeedTx, GrantBatch, Granted, LanePage, LanesBehind, LeasesByLane, Mark, Move,
    OutageRow, Overdue, PokeCountRow, PokerRow, PoolTx, Promote, RateUse, SensorChanges, SensorInsert,
    SensorQuery, SensorTx, Serving, ShardLease, ShardTake, ShardWrite, ShareUse, Started, StoreTx, Survey,
    SurveyQuery, TaskInsert, TaskSums, TaskTx, TaskWalk, Walked, WhichSensors,
};
use stationmaster::store::{Discrepancy, Inserted, Store, StoreInfo, Tx, TxMode};
use stationmaster::task::{PastAttempt, TaskRecord, TaskState};
use stationmaster::testing::raw;

/// What is got wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    CommitsAfterAnError,
    SurveysWithoutFamilies,
    SurveysWithoutPauses,
    NotesNoRates,
    StampsNoShares,
    SurveysWithoutShares,
    RatesWithoutTheClock,
    PausesAgain,
    RunsTheBodyTwice,
    CandidatesIgnoreTheCursor,
    CandidatesIgnoreTheOrder,
    GrantWithoutTheReadiness,
    GrantsInOrderOfNumbers,
    GrantsWithoutTheStart,
    StartsWhatIsRecorded,
    MovesKeepTheirSlots,
    MovesKeepNoSlots,
    SurveysWithoutWhatKeepsSlots,
    CancelsUnderAnyEpoch,
    CancelsLater,
    CancelsWithoutTheMessage,
    TellsNoDeadline,
    RenewsBeyondTheDeadline,
    RenewsUnderAnyEpoch,
    RenewsOnlyWhatIsNotExpired,
    RefusesToRenewForLess,
    StartsTellOfNoRecords,
    StartsUnderAnyEpoch,
    MovesFromAnyState,
    MovesUnderAnyEpoch,
    MovesTellNoFinish,
    ChangesUnderAnyEpoch,
    ChangesFromAnyState,
    ChangesWithinTheLane,
    ChangesKeepTheDueInstant,
    DeletesUnderAnyEpoch,
    DeletesFromAnyState,
    DeletesWithTheEvents,
    AttemptsBackwards,
    AttemptsWithoutTheEarliest,
    AttemptsWithoutSuccesses,
    PromotesOneTooEarly,
    PromotesOneTooLate,
    PromotesOneTooMany,
    PromotesForAKnownRequest,
    SurveysBeforeItPromotes,
    OverdueOneTooMany,
    OverdueIsPromoted,
    OverdueTellsAllOfItsLanes,
    OverdueForgetsWhatIsDueNext,
    SurveysAllPools,
    SurveysAllQueues,
    ForgetsWhoServes,
    CountsServingForEver,
    CountsLeasesAsWaiting,
    InsertsDespiteCaps,
    CountsOneTooManyUnderCaps,
    HoldsNoCapsOfKeys,
    CapsAreNeverStrict,
    LiftsNoCap,
    SurveysDefinedLimitsOnly,
    SurveysWithoutTheRequest,
    CandidatesNeverTellSinceWhen,
    NotesNoRequest,
    NotesRequestsInOrderOfNumbers,
    ForgetsRequestsAtTheInstant,
    ForgetsOneRequestTooMany,
    ReplacesNoRequest,
    KeepsOneRequestTooMany,
    CountsNoRequests,
    ForgetsBeforeItNotes,
    SaysThatThereWasRoom,
    SaysThatThereWasNoRoom,
    ExpiresOneTooLate,
    LeasesIgnoreThePlace,
    LeasesOneTooMany,
    ForgetsOneTooMany,
    ForgetsHoweverTheyEnded,
    ForgetsSensorsWithTheRest,
    ActiveRunsStopExclusive,
    ActiveRunsInAnyOrder,
    NamespacesAreIgnored,
    FeedBackwards,
    TellsNoReason,
    FeedIgnoresThePlace,
    ForgetsTheFeedByAgeAlone,
    MovesTellNothing,
    EndsSensorsUnderAnyEpoch,
    ChangesIgnoreTheShard,
    ChangesLeaveOutWhatEnded,
    ShardsUnderAnyEpoch,
    RemembersOneTakeOfAShard,
    WorkersPokeAllKinds,
    LoansAreOfTheShard,
    KeepsLoansThatEnded,
    ShardsWhateverTheirEnd,
    DeletedWorkersKeepTheirLoans,
    ForgetsTakesOfAnyKind,
    KeepsTakesOfKinds,
    LeasesWithoutLoad,
    WorkersHoldAnyNumber,
    OutagesNeverEnd,
    KeepsOldOutages,
    AddsPokeCounts,
    PokeCountsOfOneWorker,
    PokeCountsOfAnyHour,
    KeepsOldPokeCounts,
    DeletedWorkersKeepTheirShards,
    PoolsInAnyOrder,
    DeletesBusyPools,
    TasksInOrderOfNumbers,
    AuditIsBlind,
    CloseKeepsAStopBeforeTheStart,
    BeatsGoBack,
    ForgetsOpenRuns,
    ForgetsRunsUnbounded,
    CountIgnoresTheFilter,
    SilentOneTooEarly,
    PagesByStartAlone,
    WalksLoseTheLastOfAPage,
    WalksTurnAround,
    WalksReadWithoutEnd,
    CountsRetriesAsScheduled,
}

/// A store that passes every call on to another one.
#[derive(Debug)]
pub(crate) struct Bent {
    inner: Box<dyn Store>,
    fault: Fault,
}

impl Bent {
    pub(crate) fn new(inner: Box<dyn Store>, fault: Fault) -> Self {
        Self { inner, fault }
    }
}

impl Store for Bent {
    fn info(&self) -> StoreInfo {
        self.inner.info()
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        let mut answer = Ok(());
        let committed = self.inner.transact(mode, &mut |tx| {
            let mut bent = BentTx { tx: raw(tx), fault: self.fault };
            answer = Tx::run(&mut bent, |tx| body(tx));
            match self.fault {
                Fault::RunsTheBodyTwice => Tx::run(&mut bent, |tx| body(tx)),
                Fault::CommitsAfterAnError => Ok(()),
                _ => std::mem::replace(&mut answer, Ok(())),
            }
        });
        committed.and(answer)
    }
}

struct BentTx<'a> {
    tx: &'a mut dyn StoreTx,
    fault: Fault,
}

impl BentTx<'_> {
    /// The same leases under the epochs that their tasks have now.
    fn refreshed(&mut self, leases: &[LeaseRef]) -> StoreResult<Vec<LeaseRef>> {
        let ids: Vec<TaskId> = leases.iter().map(|lease| lease.id).collect();
        let tasks = self.tx.tasks_by_id(&ids)?;
        let fresh =
            |(lease, task): (&LeaseRef, Option<TaskRecord>)| task.map_or(*lease, |task| task.lease_ref());
        Ok(leases.iter().zip(tasks).map(fresh).collect())
    }
}

fn later(at: Timestamp, micros: i64) -> Timestamp {
    Timestamp::from_micros(at.as_micros().saturating_add(micros))
}

impl TaskTx for BentTx<'_> {
    pass_on! {
        fn insert_tasks_if_absent(tasks: &[TaskInsert]) -> Vec<Inserted>;
        fn tasks_by_id(ids: &[TaskId]) -> Vec<Option<TaskRecord>>;
        fn serving() -> Vec<Serving>;
        fn next_expiry() -> Option<Timestamp>;
        fn sizes() -> Vec<(String, u64)>;
    }

    fn tasks(&mut self, keys: &[TaskKey]) -> StoreResult<Vec<Option<TaskRecord>>> {
        let mut found = self.tx.tasks(keys)?;
        if self.fault == Fault::TasksInOrderOfNumbers {
            found.sort_by_key(|task| task.as_ref().map(|task| task.id));
        }
        Ok(found)
    }

    fn insert_tasks_if_uncapped(&mut self, tasks: &[TaskInsert]) -> StoreResult<Option<Vec<Inserted>>> {
        match self.fault {
            Fault::InsertsDespiteCaps => self.tx.insert_tasks_if_absent(tasks).map(Some),
            _ => self.tx.insert_tasks_if_uncapped(tasks),
        }
    }

    fn hold_caps(&mut self, tasks: &[TaskInsert]) -> StoreResult<Vec<CapUse>> {
        let mut caps = self.tx.hold_caps(tasks)?;
        match self.fault {
            Fault::CountsOneTooManyUnderCaps => caps.iter_mut().for_each(|cap| cap.waiting += 1),
            Fault::HoldsNoCapsOfKeys => caps.retain(|cap| !matches!(cap.subject, Subject::Key(_))),
            _ => {}
        }
        Ok(caps)
    }

    fn survey(&mut self, query: &SurveyQuery) -> StoreResult<Survey> {
        let mut query = query.clone();
        let mut survey = self.tx.survey(&ticks::bent_query(self.fault, &mut query))?;
        if self.fault == Fault::SurveysWithoutWhatKeepsSlots {
            survey.lanes.retain(|lane| !lane.keeps_slots);
        }
        ticks::bent_survey(self, &query, survey)
    }

    fn lanes_behind(&mut self, page: &LanesBehind<'_>) -> StoreResult<Survey> {
        self.tx.lanes_behind(page)
    }

    fn put_marks(&mut self, marks: &[Mark]) -> StoreResult<()> {
        self.tx.put_marks(marks)
    }

    fn overdue(&mut self, promote: Promote) -> StoreResult<Overdue> {
        ticks::overdue(self, promote)
    }

    fn put_serving(&mut self, serving: &Serving, forget: Timestamp) -> StoreResult<()> {
        match self.fault {
            Fault::ForgetsWhoServes => Ok(()),
            Fault::CountsServingForEver => self.tx.put_serving(serving, Timestamp::MIN),
            _ => self.tx.put_serving(serving, forget),
        }
    }

    fn queues(&mut self) -> StoreResult<Vec<QueueRecord>> {
        let mut queues = self.tx.queues()?;
        if self.fault == Fault::CountsLeasesAsWaiting {
            queues.iter_mut().for_each(|queue| queue.waiting += queue.leased);
        }
        Ok(queues)
    }

    fn walk_tasks(&mut self, walk: &TaskWalk<'_>) -> StoreResult<Walked> {
        let mut walk = walk.clone();
        if self.fault == Fault::WalksReadWithoutEnd {
            walk.most_read = usize::MAX;
        }
        let mut walked = self.tx.walk_tasks(&walk)?;
        match self.fault {
            Fault::WalksLoseTheLastOfAPage if walked.next.is_some() => drop(walked.found.pop()),
            Fault::WalksTurnAround => walked.found.reverse(),
            _ => {}
        }
        Ok(walked)
    }

    fn count_tasks(&mut self, cap: usize) -> StoreResult<TaskSums> {
        let mut sums = self.tx.count_tasks(cap)?;
        if self.fault == Fault::CountsRetriesAsScheduled {
            sums.counted.retain(|(state, _)| *state != TaskState::UpForRetry);
        }
        Ok(sums)
    }

    fn candidates(&mut self, pages: &[LanePage]) -> StoreResult<Vec<Candidate>> {
        let mut pages = pages.to_vec();
        if self.fault == Fault::CandidatesIgnoreTheCursor {
            pages.iter_mut().for_each(|page| page.after = None);
        }
        if self.fault == Fault::CandidatesNeverTellSinceWhen {
            pages.iter_mut().for_each(|page| page.with_ready_at = false);
        }
        let mut found = self.tx.candidates(&pages)?;
        if self.fault == Fault::CandidatesIgnoreTheOrder {
            found.sort_by_key(|candidate| candidate.order.id);
        }
        Ok(found)
    }

    fn grant_if_open(&mut self, batch: &GrantBatch<'_>) -> StoreResult<Granted> {
        ticks::grant(self, batch)
    }

    fn start_if_queued(&mut self, leases: &[LeaseRef], now: Timestamp) -> StoreResult<Vec<Option<Started>>> {
        if self.fault == Fault::StartsUnderAnyEpoch {
            let fresh = self.refreshed(leases)?;
            return self.tx.start_if_queued(&fresh, now);
        }
        let mut started = self.tx.start_if_queued(leases, now)?;
        if self.fault == Fault::StartsTellOfNoRecords {
            started.iter_mut().flatten().for_each(|started| started.records_run = false);
        }
        Ok(started)
    }

    fn end_if_leased(&mut self, ends: &[Move]) -> StoreResult<Vec<Option<bool>>> {
        self.tx.end_if_leased(ends)
    }

    fn note_if_leased(&mut self, notes: &[(LeaseRef, Timestamp, String)]) -> StoreResult<Vec<bool>> {
        self.tx.note_if_leased(notes)
    }

    fn renew_if_leased(&mut self, leases: &[LeaseRef], expires_at: Timestamp) -> StoreResult<Vec<Renewal>> {
        match self.fault {
            Fault::RenewsUnderAnyEpoch => {
                let fresh = self.refreshed(leases)?;
                self.tx.renew_if_leased(&fresh, expires_at)
            }
            Fault::RefusesToRenewForLess => {
                let ids: Vec<TaskId> = leases.iter().map(|lease| lease.id).collect();
                let tasks = self.tx.tasks_by_id(&ids)?;
                let longer = |task: &Option<TaskRecord>| {
                    let lease = task.as_ref().and_then(|task| task.lease.as_ref());
                    lease.is_some_and(|lease| lease.expires_at > expires_at)
                };
                let renewals = self.tx.renew_if_leased(leases, expires_at)?;
                let less = |(renewal, task)| if longer(task) { Renewal::Lost } else { renewal };
                Ok(renewals.into_iter().zip(&tasks).map(less).collect())
            }
            Fault::RenewsOnlyWhatIsNotExpired => {
                let ids: Vec<TaskId> = leases.iter().map(|lease| lease.id).collect();
                let tasks = self.tx.tasks_by_id(&ids)?;
                let dead = |task: &TaskRecord| {
                    task.lease.as_ref().is_some_and(|lease| lease.expires_at < expires_at)
                };
                let left: Vec<LeaseRef> =
                    leases
                        .iter()
                        .zip(&tasks)
                        .map(|(lease, task)| {
                            if task.as_ref().is_some_and(dead) { LeaseRef::new(lease.id, -1) } else { *lease }
                        })
                        .collect();
                self.tx.renew_if_leased(&left, expires_at)
            }
            Fault::TellsNoDeadline => {
                let mut renewals = self.tx.renew_if_leased(leases, expires_at)?;
                let asked = renewals.iter_mut().filter(|renewal| matches!(renewal, Renewal::Cancelled(_)));
                asked.for_each(|renewal| *renewal = Renewal::Renewed);
                Ok(renewals)
            }
            Fault::RenewsBeyondTheDeadline => {
                let mut renewals = self.tx.renew_if_leased(leases, expires_at)?;
                for renewal in &mut renewals {
                    if let Renewal::Cancelled(deadline) = renewal {
                        *deadline = expires_at.max(*deadline);
                    }
                }
                Ok(renewals)
            }
            _ => self.tx.renew_if_leased(leases, expires_at),
        }
    }

    fn cancel_if_leased(
        &mut self,
        leases: &[LeaseRef],
        deadline: Timestamp,
        message: &str,
    ) -> StoreResult<Vec<Option<Timestamp>>> {
        match self.fault {
            Fault::CancelsUnderAnyEpoch => {
                let fresh = self.refreshed(leases)?;
                self.tx.cancel_if_leased(&fresh, deadline, message)
            }
            Fault::CancelsLater => self.tx.cancel_if_leased(leases, later(deadline, 1), message),
            Fault::CancelsWithoutTheMessage => self.tx.cancel_if_leased(leases, deadline, ""),
            _ => self.tx.cancel_if_leased(leases, deadline, message),
        }
    }

    fn move_if(&mut self, moves: &[Move]) -> StoreResult<Vec<bool>> {
        let mut moves = moves.to_vec();
        if self.fault == Fault::MovesFromAnyState {
            let ids: Vec<TaskId> = moves.iter().map(|wanted| wanted.task.id).collect();
            for (wanted, task) in moves.iter_mut().zip(self.tx.tasks_by_id(&ids)?) {
                wanted.from = task.map_or(wanted.from, |task| task.state);
            }
        }
        if self.fault == Fault::MovesUnderAnyEpoch {
            let refs: Vec<LeaseRef> = moves.iter().map(|wanted| wanted.task).collect();
            for (wanted, fresh) in moves.iter_mut().zip(self.refreshed(&refs)?) {
                wanted.task = fresh;
            }
        }
        if self.fault == Fault::MovesKeepTheirSlots {
            moves.iter_mut().for_each(|wanted| wanted.keeps_slots = true);
        }
        if self.fault == Fault::MovesKeepNoSlots {
            let goes_on = |wanted: &&mut Move| wanted.to == TaskState::Scheduled;
            moves.iter_mut().filter(goes_on).for_each(|wanted| wanted.keeps_slots = false);
        }
        if self.fault == Fault::MovesTellNoFinish {
            moves.iter_mut().for_each(|wanted| wanted.finished = false);
        }
        self.tx.move_if(&moves)
    }

    fn attempts(&mut self, tasks: &[TaskId]) -> StoreResult<Vec<Vec<PastAttempt>>> {
        let mut kept = self.tx.attempts(tasks)?;
        match self.fault {
            Fault::AttemptsBackwards => kept.iter_mut().for_each(|kept| kept.reverse()),
            Fault::AttemptsWithoutTheEarliest => {
                kept.iter_mut().filter(|kept| kept.len() == 16).for_each(|kept| drop(kept.remove(0)));
            }
            Fault::AttemptsWithoutSuccesses => {
                kept.iter_mut().for_each(|kept| kept.retain(|past| past.became != TaskState::Success));
            }
            _ => {}
        }
        Ok(kept)
    }

    fn change_if(&mut self, changes: &[Change]) -> StoreResult<Vec<bool>> {
        let mut changes = changes.to_vec();
        let refs: Vec<LeaseRef> = changes.iter().map(|wanted| wanted.task).collect();
        let ids: Vec<TaskId> = refs.iter().map(|task| task.id).collect();
        let fresh = self.refreshed(&refs)?;
        for ((wanted, fresh), task) in changes.iter_mut().zip(fresh).zip(self.tx.tasks_by_id(&ids)?) {
            match (self.fault, task) {
                (Fault::ChangesUnderAnyEpoch, _) => wanted.task = fresh,
                (Fault::ChangesFromAnyState, Some(task)) => wanted.from = task.state,
                (Fault::ChangesWithinTheLane, Some(task)) => wanted.to.lane = task.lane,
                (Fault::ChangesKeepTheDueInstant, Some(task)) => wanted.to.due = task.due,
                _ => {}
            }
        }
        self.tx.change_if(&changes)
    }

    fn delete_if(&mut self, tasks: &[(LeaseRef, TaskState)]) -> StoreResult<Vec<bool>> {
        let mut tasks = tasks.to_vec();
        let refs: Vec<LeaseRef> = tasks.iter().map(|(task, _)| *task).collect();
        let ids: Vec<TaskId> = refs.iter().map(|task| task.id).collect();
        let fresh = self.refreshed(&refs)?;
        for ((wanted, fresh), task) in tasks.iter_mut().zip(fresh).zip(self.tx.tasks_by_id(&ids)?) {
            match (self.fault, task) {
                (Fault::DeletesUnderAnyEpoch, _) => wanted.0 = fresh,
                (Fault::DeletesFromAnyState, Some(task)) => wanted.1 = task.state,
                _ => {}
            }
        }
        if self.fault == Fault::DeletesWithTheEvents {
            self.tx.forget_feed(u64::MAX, Timestamp::MIN, usize::MAX)?;
        }
        self.tx.delete_if(&tasks)
    }

    fn hold_expired(&mut self, now: Timestamp, limit: usize) -> StoreResult<Vec<TaskRecord>> {
        match self.fault {
            Fault::ExpiresOneTooLate => self.tx.hold_expired(later(now, -1), limit),
            _ => self.tx.hold_expired(now, limit),
        }
    }

    fn leases_of(
        &mut self,
        holder: &Holder,
        after: Option<TaskId>,
        limit: usize,
    ) -> StoreResult<Vec<TaskRecord>> {
        match self.fault {
            Fault::LeasesIgnoreThePlace => self.tx.leases_of(holder, None, limit),
            Fault::LeasesOneTooMany => self.tx.leases_of(holder, after, limit.saturating_add(1)),
            _ => self.tx.leases_of(holder, after, limit),
        }
    }

    fn forget_ended(
        &mut self,
        state: TaskState,
        before: Timestamp,
        sensors_before: Timestamp,
        limit: usize,
    ) -> StoreResult<usize> {
        let limit = limit.saturating_add(usize::from(self.fault == Fault::ForgetsOneTooMany));
        match self.fault {
            Fault::ForgetsSensorsWithTheRest => self.tx.forget_ended(state, before, before, limit),
            Fault::ForgetsHoweverTheyEnded => {
                let mut gone = 0;
                for state in TaskState::ALL.into_iter().filter(|state| state.is_end()) {
                    gone += self.tx.forget_ended(state, before, sensors_before, limit - gone)?;
                }
                Ok(gone)
            }
            _ => self.tx.forget_ended(state, before, sensors_before, limit),
        }
    }

    fn repair_counters(&mut self) -> StoreResult<Vec<Discrepancy>> {
        self.tx.repair_counters()
    }

    fn audit(&mut self) -> StoreResult<Vec<Discrepancy>> {
        if self.fault == Fault::AuditIsBlind { Ok(Vec::new()) } else { self.tx.audit() }
    }
}

impl PoolTx for BentTx<'_> {
    pass_on! {
        fn lock_definitions() -> ();
        fn put_pools(pools: &[PoolSpec]) -> ();
        fn pools(names: &[PoolName]) -> Vec<Option<PoolRecord>>;
        fn pool_stats(names: &[PoolName]) -> Vec<Option<PoolStats>>;
        fn put_limits(limits: &[LimitSpec]) -> ();
        fn delete_limits(keys: &[LimitKey]) -> Vec<bool>;
        fn delete_families(prefixes: &[LimitKey]) -> Vec<bool>;
        fn families() -> Vec<LimitSpec>;
        fn shares(pairs: &[(PoolName, LimitKey)]) -> (Vec<ShareUse>, i64);
        fn caps() -> Vec<(Subject, WaitingCap)>;
        fn paused() -> Vec<Subject>;
        fn leases() -> (Vec<Subject>, LeasesByLane);
        fn limits(keys: &[LimitKey]) -> Vec<Option<LimitRecord>>;
        fn all_limits() -> Vec<LimitRecord>;
    }

    fn rates(&mut self, keys: &[LimitKey]) -> StoreResult<(Vec<RateUse>, Option<Timestamp>)> {
        let (rates, clock) = self.tx.rates(keys)?;
        Ok((rates, clock.filter(|_| self.fault != Fault::RatesWithoutTheClock)))
    }

    fn put_caps(&mut self, caps: &[(Subject, Option<WaitingCap>)]) -> StoreResult<Vec<bool>> {
        let mut caps = caps.to_vec();
        match self.fault {
            Fault::CapsAreNeverStrict => {
                caps.iter_mut().for_each(|(_, cap)| *cap = cap.map(|cap| cap.strict(false)));
            }
            Fault::LiftsNoCap => caps.iter_mut().for_each(|(_, cap)| *cap = cap.or(WaitingCap::new(1).ok())),
            _ => {}
        }
        self.tx.put_caps(&caps)
    }

    fn put_paused(&mut self, subjects: &[Subject], paused: bool) -> StoreResult<Vec<bool>> {
        let mut changed = self.tx.put_paused(subjects, paused)?;
        if self.fault == Fault::PausesAgain {
            changed.fill(true);
        }
        Ok(changed)
    }

    fn delete_pools_if_unused(&mut self, pools: &[PoolName]) -> StoreResult<Vec<Undefined>> {
        let mut deleted = self.tx.delete_pools_if_unused(pools)?;
        if self.fault == Fault::DeletesBusyPools {
            for answer in deleted.iter_mut().filter(|answer| matches!(answer, Undefined::InUse(_))) {
                *answer = Undefined::Removed;
            }
        }
        Ok(deleted)
    }

    fn all_pools(&mut self) -> StoreResult<Vec<PoolRecord>> {
        let mut pools = self.tx.all_pools()?;
        if self.fault == Fault::PoolsInAnyOrder {
            pools.reverse();
        }
        Ok(pools)
    }
}

impl SensorTx for BentTx<'_> {
    pass_on! {
        fn put_sensors(sensors: &[SensorInsert]) -> Vec<SensorRecord>;
        fn sensors(tasks: &[TaskKey]) -> Vec<Option<SensorRecord>>;
        fn sensor_changes() -> SensorChanges;
        fn number_changes(limit: usize) -> usize;
        fn forget_workers(before: Timestamp, limit: usize) -> usize;
        fn live_workers(now: Timestamp) -> Vec<PokerRow>;
        fn shard_leases() -> Vec<ShardLease>;
    }

    fn put_worker(&mut self, worker: &PokerRow) -> StoreResult<()> {
        let mut worker = worker.clone();
        if self.fault == Fault::WorkersPokeAllKinds {
            worker.kinds = worker.kinds.filter(|kinds| !kinds.is_empty());
        }
        if self.fault == Fault::WorkersHoldAnyNumber {
            worker.most_shards = None;
        }
        self.tx.put_worker(&worker)
    }

    fn put_shard_takes(&mut self, takes: &[ShardTake], forget: Timestamp) -> StoreResult<()> {
        let mut takes = takes.to_vec();
        let forget = if self.fault == Fault::KeepsTakesOfKinds { Timestamp::MIN } else { forget };
        if self.fault == Fault::ForgetsTakesOfAnyKind {
            takes.iter_mut().for_each(|take| take.kind = None);
        }
        self.tx.put_shard_takes(&takes, forget)
    }

    fn changed_sensors(&mut self, query: &SensorQuery) -> StoreResult<Vec<SensorRecord>> {
        let mut query = query.clone();
        match self.fault {
            Fault::ChangesIgnoreTheShard => {
                query.ranges = std::iter::once(0..u32::MAX).collect();
            }
            Fault::ChangesLeaveOutWhatEnded => query.which = WhichSensors::Waiting,
            _ => {}
        }
        self.tx.changed_sensors(&query)
    }

    fn end_sensors_if_waiting(&mut self, sensors: &[LeaseRef]) -> StoreResult<Vec<Option<SensorRecord>>> {
        if self.fault == Fault::EndsSensorsUnderAnyEpoch {
            let fresh = self.refreshed(sensors)?;
            return self.tx.end_sensors_if_waiting(&fresh);
        }
        self.tx.end_sensors_if_waiting(sensors)
    }

    fn delete_worker(&mut self, name: &Holder) -> StoreResult<()> {
        if self.fault == Fault::DeletedWorkersKeepTheirShards {
            let (codes, shards) = (DEFAULT_CODES, NonZeroU32::MIN);
            return self.tx.put_worker(&PokerRow::new(name.clone(), codes, shards, Timestamp::MIN));
        }
        if self.fault == Fault::DeletedWorkersKeepTheirLoans {
            let loans = self.tx.shard_leases()?;
            let loans =
                loans.into_iter().filter(|lease| lease.kind.is_some() && lease.holder.as_ref() == Some(name));
            let loans: Vec<ShardWrite> = loans.map(|loan| ShardWrite::new(0, loan)).collect();
            self.tx.delete_worker(name)?;
            return self.tx.put_shards_if_unchanged(&loans).map(drop);
        }
        self.tx.delete_worker(name)
    }

    fn put_shards_if_unchanged(&mut self, writes: &[ShardWrite]) -> StoreResult<Vec<bool>> {
        let mut writes = writes.to_vec();
        if self.fault == Fault::ShardsUnderAnyEpoch {
            let leases = self.tx.shard_leases()?;
            for write in &mut writes {
                let now = leases.iter().find(|lease| lease.shard == write.lease.shard);
                write.was = now.map_or(0, |lease| lease.epoch);
            }
        }
        if self.fault == Fault::LeasesWithoutLoad {
            writes.iter_mut().for_each(|write| write.lease.load = 0);
        }
        if self.fault == Fault::ShardsWhateverTheirEnd {
            writes.iter_mut().for_each(|write| write.ended = None);
        }
        if self.fault == Fault::LoansAreOfTheShard {
            writes.iter_mut().for_each(|write| write.lease.kind = None);
        }
        if self.fault == Fault::KeepsLoansThatEnded {
            let nobody: Holder = "nobody".try_into().unwrap();
            for write in writes.iter_mut().filter(|write| write.lease.kind.is_some()) {
                write.lease.holder.get_or_insert_with(|| nobody.clone());
            }
        }
        self.tx.put_shards_if_unchanged(&writes)
    }

    fn shard_takes(&mut self) -> StoreResult<Vec<ShardTake>> {
        let mut takes = self.tx.shard_takes()?;
        if self.fault == Fault::RemembersOneTakeOfAShard {
            takes.dedup_by(|later, earlier| later.shard == earlier.shard);
        }
        Ok(takes)
    }

    fn put_outages(&mut self, outages: &[OutageRow], forget: Timestamp) -> StoreResult<()> {
        let mut outages = outages.to_vec();
        if self.fault == Fault::OutagesNeverEnd {
            outages.iter_mut().for_each(|row| row.until = None);
        }
        self.tx
            .put_outages(&outages, if self.fault == Fault::KeepsOldOutages { Timestamp::MIN } else { forget })
    }

    fn outages(&mut self, of: Option<&[Fingerprint]>) -> StoreResult<Vec<OutageRow>> {
        self.tx.outages(of)
    }

    fn put_poke_counts(&mut self, counts: &[PokeCountRow], forget: Timestamp) -> StoreResult<()> {
        let mut counts = counts.to_vec();
        match self.fault {
            // A row with other totals is a row of its own.
            Fault::AddsPokeCounts => {
                counts.iter_mut().for_each(|row| row.incarnation += 1_000 * row.counts.poked);
            }
            Fault::PokeCountsOfOneWorker => counts.iter_mut().for_each(|row| {
                (row.worker, row.incarnation) = ("one".try_into().unwrap(), 0);
            }),
            _ => {}
        }
        let keeps = self.fault == Fault::KeepsOldPokeCounts;
        self.tx.put_poke_counts(&counts, if keeps { Timestamp::MIN } else { forget })
    }

    fn poke_counts(&mut self, hours: Range<Timestamp>) -> StoreResult<Vec<PokeCounts>> {
        let any = self.fault == Fault::PokeCountsOfAnyHour;
        self.tx.poke_counts(if any { Timestamp::MIN..Timestamp::MAX } else { hours })
    }
}

impl FeedTx for BentTx<'_> {
    pass_on! {
        fn feed_last() -> u64;
        fn consumers() -> Vec<Consumer>;
        fn hold_consumer(name: &Holder) -> Option<Consumer>;
        fn put_consumer(consumer: &Consumer) -> ();
        fn delete_consumer(name: &Holder) -> bool;
    }

    fn feed(&mut self, after: u64, limit: usize) -> StoreResult<Vec<TaskEvent>> {
        let after = if self.fault == Fault::FeedIgnoresThePlace { 0 } else { after };
        let mut events = self.tx.feed(after, limit)?;
        match self.fault {
            Fault::MovesTellNothing => events.retain(|event| event.state.is_end()),
            Fault::FeedBackwards => events.reverse(),
            Fault::TellsNoReason => events.iter_mut().for_each(|event| event.reason = None),
            _ => {}
        }
        Ok(events)
    }

    fn forget_feed(&mut self, accepted: u64, before: Timestamp, limit: usize) -> StoreResult<usize> {
        let accepted = if self.fault == Fault::ForgetsTheFeedByAgeAlone { 0 } else { accepted };
        self.tx.forget_feed(accepted, before, limit)
    }
}
