//! Tasks, their lanes and their leases, as the contract defines them.

use std::collections::{BTreeMap, HashSet};

use super::counters::{Use, Uses};
use super::requests::Request;
use super::state::Write;
use super::tasks::TaskRow;
use super::undo::{Transaction, misuse};
use crate::admission::{Candidate, LanePage, Mark, QueueRecord, Serving, Turn};
use crate::error::StoreResult;
use crate::id::{Holder, QueueName, RequestId, TaskKey};
use crate::lease::{Lease, LeaseRef, Renewal, TaskId};
use crate::store::contract::{
    CapUse, Change, Forget, GrantBatch, Granted, LanesBehind, Move, Overdue, PoolTx, Promote, Started,
    Survey, SurveyQuery, TaskInsert, TaskSums, TaskTx, TaskWalk, Walked, WhichPools,
};
use crate::store::{Discrepancy, Inserted};
use crate::task::{PastAttempt, TaskRecord, TaskState};
use crate::time::Timestamp;

/// The most expired announcements of served queues that one new announcement deletes.
const FORGOTTEN: usize = 64;

impl Transaction<'_> {
    fn insert_task_if_absent(&mut self, insert: &TaskInsert) -> Inserted {
        if let Some(id) = self.state.tasks.number(&insert.key) {
            return Inserted::Exists(id);
        }
        let (lane, needs) = self.lane_with(&insert.lane);
        for key in &needs.limits {
            self.make_limit_known(key);
        }
        self.state.last.task += 1;
        let id = TaskId(self.state.last.task);
        let record = TaskRecord { lane: needs, ..TaskRecord::inserted(id, insert.clone()) };
        self.write(Write::Task(id, Some(Box::new(TaskRow { record, lane }))));
        Inserted::New(id)
    }

    fn move_task_if(&mut self, order: &Move, uses: &mut Uses) -> bool {
        let Move { task: lease, from, .. } = order;
        let from = |task: &TaskRecord| lease.is_current(task.lease_ref()) && *from == task.state;
        // An ended task holds slots only if a caller moved it that way. Returning them needs a lane too.
        let needs_lane =
            |task: &TaskRecord| task.state.is_end() && (!order.to.is_end() || task.held_slots > 0);
        if self.state.tasks.get(order.task.id).is_some_and(|task| from(task) && needs_lane(task)) {
            self.return_to_lane(order.task.id);
        }
        if let Some(was) = self.state.tasks.get(order.task.id).filter(|task| from(task)).cloned() {
            self.keep_attempt(&was, order);
            self.write_event(&was, order);
        }
        let mut back = Use::default();
        let moved = self.change_task_if(order.task.id, from, |task| {
            if !order.keeps_slots {
                back.slots = -i64::from(task.held_slots);
                task.held_slots = 0;
            }
            back.leases = -i64::from(task.lease.is_some());
            task.state = order.to;
            task.due = order.due;
            task.ready_at = order.due.max(order.ended_at).unwrap_or(task.ready_at);
            task.lease = None;
            task.forgiven = task.forgiven.saturating_add(order.forgive);
            task.lost = order.lost.unwrap_or(task.lost);
            task.ended_at = order.ended_at.or(task.ended_at);
            task.message.clone_from(&order.message);
            task.value.clone_from(&order.value);
            task.finished = order.finished.then_some(order.to);
        });
        let lane = moved.map(|row| row.lane);
        if let Some(lane) = lane {
            uses.add(lane, back);
        }
        lane.is_some()
    }

    /// Puts an ended task back into the lane of its needs, which may have to be created again.
    fn return_to_lane(&mut self, id: TaskId) {
        let Some(mut row) = self.state.tasks.row(id).cloned() else { return };
        let (lane, needs) = self.lane_with(&row.record.lane);
        for key in &needs.limits {
            self.make_limit_known(key);
        }
        if lane != row.lane {
            (row.lane, row.record.lane) = (lane, needs);
            self.write(Write::Task(id, Some(Box::new(row))));
        }
    }

    fn grant_if_ready(&mut self, batch: &GrantBatch<'_>, uses: &mut Uses) -> Vec<TaskRecord> {
        let lease = Lease::new(batch.holder.clone(), batch.expires_at);
        let mut granted = Vec::with_capacity(batch.tasks.len());
        for id in batch.tasks {
            let mut kept = 0;
            let task = self.change_task_if(*id, TaskRecord::is_ready, |task| {
                kept = task.held_slots;
                task.queued_at = Some(task.recorded_at(batch.now));
                task.state = TaskState::Queued;
                task.epoch += 1;
                task.attempt = task.attempt.saturating_add(1);
                task.lease = Some(lease.clone());
                task.held_slots = task.lane.slots;
                if batch.started && !task.attempt_runs {
                    start(task, batch.now);
                }
            });
            let Some(TaskRow { record, lane }) = task else { continue };
            let taken = Use { slots: i64::from(record.held_slots.saturating_sub(kept)), leases: 1 };
            uses.add(*lane, taken);
            granted.push(record.clone());
        }
        granted
    }

    /// Adds the limits that the lanes of a survey carry, and what these limits owe.
    fn survey_limits(&mut self, survey: &mut Survey) -> StoreResult<()> {
        survey.limits = self.limits_of(&survey.lanes);
        let keys: Vec<_> = survey.limits.iter().map(|limit| limit.key.clone()).collect();
        (survey.rates, survey.clock) = self.rates(&keys)?;
        Ok(())
    }

    /// Removes marks of the surveyed queues that have expired by the instant of the tick. A survey that does
    /// not promote removes none, and returns whether there are any.
    fn wake_by_clock(&mut self, query: &SurveyQuery) -> bool {
        let Some(first) = query.first else { return false };
        let (clock, queues) = (self.state.rules.clock(), query.queues.as_ref());
        let clock = clock.map_or(first.now, |last| last.max(first.now));
        let order = &mut self.state.lanes.order;
        if query.promote.is_some() {
            order.wake_by(clock, queues, first.wakes);
            return false;
        }
        order.next_token(queues).is_some_and(|next| next <= clock)
    }

    fn forget_requests(&mut self, forget: Forget) -> usize {
        let old: Vec<RequestId> = self.state.requests.old(forget).cloned().collect();
        let forgotten = old.len();
        for id in old {
            self.write(Write::Request(id, None));
        }
        forgotten
    }
}

fn start(task: &mut TaskRecord, now: Timestamp) {
    let at = task.recorded_at(now);
    task.state = TaskState::Running;
    task.started_at = Some(at);
    task.first_started_at.get_or_insert(at);
}

impl TaskTx for Transaction<'_> {
    fn insert_tasks_if_absent(&mut self, tasks: &[TaskInsert]) -> StoreResult<Vec<Inserted>> {
        self.writable()?;
        Ok(tasks.iter().map(|insert| self.insert_task_if_absent(insert)).collect())
    }

    fn insert_tasks_if_uncapped(&mut self, tasks: &[TaskInsert]) -> StoreResult<Option<Vec<Inserted>>> {
        self.writable()?;
        if !self.state.rules.caps.is_empty() {
            return Ok(None);
        }
        self.insert_tasks_if_absent(tasks).map(Some)
    }

    fn hold_caps(&mut self, tasks: &[TaskInsert]) -> StoreResult<Vec<CapUse>> {
        self.writable()?;
        Ok(self.caps_of(tasks))
    }

    fn tasks(&mut self, keys: &[TaskKey]) -> StoreResult<Vec<Option<TaskRecord>>> {
        let tasks = &self.state.tasks;
        Ok(keys.iter().map(|key| tasks.number(key).and_then(|id| tasks.get(id)).cloned()).collect())
    }

    fn tasks_by_id(&mut self, ids: &[TaskId]) -> StoreResult<Vec<Option<TaskRecord>>> {
        Ok(ids.iter().map(|id| self.state.tasks.get(*id).cloned()).collect())
    }

    fn survey(&mut self, query: &SurveyQuery) -> StoreResult<Survey> {
        if query.promote.is_some() {
            self.writable()?;
        }
        if query.promote.is_some() {
            self.forget_unused_shares();
        }
        let mut survey = Survey::default();
        let requests = &self.state.requests;
        survey.granted =
            query.request.as_ref().and_then(|id| requests.get(id)).map(|request| request.grants.clone());
        if survey.granted.is_none() {
            survey.promoted = query.promote.map_or(0, |promote| self.promote(promote));
            survey.is_behind = self.wake_by_clock(query);
            (survey.lanes, survey.unread) = self.first_lanes(query);
            if survey.unread.is_some() {
                survey.unread_shares = Some(Turn::FIRST);
                survey.next_token = self.state.lanes.order.next_token(query.queues.as_ref());
            }
            survey.pools = match query.pools {
                WhichPools::All => self.all_pools()?,
                WhichPools::Named => self.pools_of(&survey.lanes),
            };
            self.survey_limits(&mut survey)?;
            survey.families = self.families()?;
            survey.paused = self.paused()?;
            (survey.shares, survey.grants) = (self.shares_of(&survey.lanes), self.state.last.grants);
        }
        survey.serving = self.serving()?;
        survey.next_due = self.state.tasks.next_due();
        Ok(survey)
    }

    fn lanes_behind(&mut self, page: &LanesBehind<'_>) -> StoreResult<Survey> {
        let mut survey = self.awake_lanes(page);
        survey.pools = self.pools_of(&survey.lanes);
        survey.shares = self.shares_of(&survey.lanes);
        self.survey_limits(&mut survey)?;
        Ok(survey)
    }

    fn put_marks(&mut self, marks: &[Mark]) -> StoreResult<()> {
        self.writable()?;
        // Marks need no undo. If a mark is due to a grant of this transaction, undoing the grant makes room,
        // which removes the mark. Any other refusal is still true afterwards.
        self.file_lanes(marks);
        Ok(())
    }

    fn overdue(&mut self, promote: Promote) -> StoreResult<Overdue> {
        Ok(self.overdue_tasks(promote))
    }

    fn put_serving(&mut self, serving: &Serving, forget: Timestamp) -> StoreResult<()> {
        self.writable()?;
        let key = |serving: &Serving| (serving.holder.clone(), serving.queues.clone());
        self.write(Write::Serving(key(serving), Some(Box::new(serving.clone()))));
        let others = self.state.serving.values().filter(|other| !other.is_replaced_by(serving));
        let mut over: Vec<_> =
            others.map(|other| (other.until(), key(other))).filter(|(until, _)| *until <= forget).collect();
        over.sort_unstable();
        for (_, key) in over.into_iter().take(FORGOTTEN) {
            self.write(Write::Serving(key, None));
        }
        Ok(())
    }

    fn serving(&mut self) -> StoreResult<Vec<Serving>> {
        Ok(self.state.serving.values().map(|serving| (**serving).clone()).collect())
    }

    fn queues(&mut self) -> StoreResult<Vec<QueueRecord>> {
        let mut queues: BTreeMap<QueueName, QueueRecord> = BTreeMap::new();
        let none = |name: &QueueName| QueueRecord::new(name.clone(), 0, 0, 0, 0);
        for (_, lane, [tasks, ready]) in self.state.lanes.all().filter(|(.., [tasks, _])| *tasks > 0) {
            let queue = queues.entry(lane.queue.clone()).or_insert_with(|| none(&lane.queue));
            queue.ready += ready;
            queue.waiting += tasks;
        }
        for task in self.state.tasks.leased_and_sensing() {
            let name = &task.lane.queue;
            let queue = queues.entry(name.clone()).or_insert_with(|| none(name));
            queue.waiting = queue.waiting.saturating_sub(1);
            match task.state {
                TaskState::Sensing => queue.sensing += 1,
                _ => queue.leased += 1,
            }
        }
        Ok(queues.into_values().collect())
    }

    fn walk_tasks(&mut self, walk: &TaskWalk<'_>) -> StoreResult<Walked> {
        self.state.walk_tasks(walk)
    }

    fn count_tasks(&mut self, cap: usize) -> StoreResult<TaskSums> {
        Ok(self.state.count_tasks(cap))
    }

    fn candidates(&mut self, pages: &[LanePage]) -> StoreResult<Vec<Candidate>> {
        let (lanes, tasks) = (&self.state.lanes, &self.state.tasks);
        let with_ready_at = |candidate: Candidate| {
            let task = tasks.get(candidate.order.id);
            task.map_or(candidate, |task| candidate.ready_at(task.ready_at))
        };
        let mut found = Vec::new();
        for page in pages {
            match page.with_ready_at {
                true => found.extend(lanes.page(*page).map(with_ready_at)),
                false => found.extend(lanes.page(*page)),
            }
        }
        Ok(found)
    }

    fn grant_if_open(&mut self, batch: &GrantBatch<'_>) -> StoreResult<Granted> {
        self.writable()?;
        self.state.tasks.fetch(batch.tasks);
        let is_ready = |id: &TaskId| self.state.tasks.get(*id).is_some_and(TaskRecord::is_ready);
        if batch.whole && !batch.tasks.iter().all(is_ready) {
            return Ok(Granted::new(Vec::new(), true, 0));
        }
        let mut uses = Uses::default();
        let tasks = self.grant_if_ready(batch, &mut uses);
        let had_room = self.count(uses);
        if let Some(request) = batch.request
            && !tasks.is_empty()
        {
            let grants = tasks.iter().map(TaskRecord::lease_ref).collect();
            let row = Request { at: batch.now, grants };
            if let Some(replaced) = batch.replaces {
                self.write(Write::Request(replaced.clone(), None));
            }
            self.write(Write::Request(request.clone(), Some(row)));
        }
        if !tasks.is_empty() {
            self.put_rates(batch.rates);
            self.stamp_shares(batch.shares);
        }
        let forgotten = batch.forget.map_or(0, |forget| self.forget_requests(forget));
        Ok(Granted::new(tasks, had_room, forgotten))
    }

    fn start_if_queued(&mut self, leases: &[LeaseRef], now: Timestamp) -> StoreResult<Vec<Option<Started>>> {
        self.writable()?;
        let start = |lease: &LeaseRef| {
            let is_queued =
                |task: &TaskRecord| task.state == TaskState::Queued && lease.is_current(task.lease_ref());
            let started = self.change_task_if(lease.id, is_queued, |task| start(task, now));
            started.map(|row| Started::new(row.record.attempt_runs))
        };
        Ok(leases.iter().map(start).collect())
    }

    fn renew_if_leased(&mut self, leases: &[LeaseRef], expires_at: Timestamp) -> StoreResult<Vec<Renewal>> {
        self.writable()?;
        let renew = |lease: &LeaseRef| {
            let is_leased = |task: &TaskRecord| task.lease.is_some() && lease.is_current(task.lease_ref());
            let renewed = self.change_task_if(lease.id, is_leased, |task| {
                if let Some(lease) = &mut task.lease {
                    let until = lease.cancel_at.map_or(expires_at, |deadline| deadline.min(expires_at));
                    lease.expires_at = lease.expires_at.max(until);
                }
            });
            let Some(lease) = renewed.and_then(|row| row.record.lease.as_ref()) else { return Renewal::Lost };
            lease.cancel_at.map_or(Renewal::Renewed, Renewal::Cancelled)
        };
        Ok(leases.iter().map(renew).collect())
    }

    fn note_if_leased(&mut self, notes: &[(LeaseRef, Timestamp, String)]) -> StoreResult<Vec<bool>> {
        self.writable()?;
        let note = |(lease, at, text): &(LeaseRef, Timestamp, String)| {
            let is_leased = |task: &TaskRecord| task.lease.is_some() && lease.is_current(task.lease_ref());
            let noted = self.change_task_if(lease.id, is_leased, |task| {
                if let Some(lease) = &mut task.lease {
                    (lease.note, lease.noted_at) = (Some(text.clone()), Some(*at));
                }
            });
            noted.is_some()
        };
        Ok(notes.iter().map(note).collect())
    }

    fn cancel_if_leased(
        &mut self,
        leases: &[LeaseRef],
        deadline: Timestamp,
        message: &str,
    ) -> StoreResult<Vec<Option<Timestamp>>> {
        self.writable()?;
        let cancel = |lease: &LeaseRef| {
            let is_later = |task: &TaskRecord| {
                let before = task.lease.as_ref().map(|lease| lease.cancel_at);
                lease.is_current(task.lease_ref())
                    && before.is_some_and(|before| before.is_none_or(|before| deadline < before))
            };
            self.change_task_if(lease.id, is_later, |task| {
                task.message = Some(message.to_owned());
                if let Some(lease) = &mut task.lease {
                    lease.cancel_at = Some(deadline);
                    lease.expires_at = lease.expires_at.min(deadline);
                }
            });
            let task = self.state.tasks.get(lease.id).filter(|task| lease.is_current(task.lease_ref()))?;
            task.lease.as_ref()?.cancel_at
        };
        Ok(leases.iter().map(cancel).collect())
    }

    fn move_if(&mut self, moves: &[Move]) -> StoreResult<Vec<bool>> {
        self.writable()?;
        if let Some(order) = moves.iter().find(|order| order.to.is_leased()) {
            let (id, to) = (order.task.id.0, order.to);
            return Err(misuse(format!("task {id} was to be moved to {to}: grant it, then start it")));
        }
        let mut uses = Uses::default();
        let mut moved = HashSet::with_capacity(moves.len());
        let answers = moves.iter().map(|order| {
            if moved.contains(&order.task.id) {
                return false;
            }
            let answer = self.move_task_if(order, &mut uses);
            if answer {
                moved.insert(order.task.id);
            }
            answer
        });
        let answers: Vec<bool> = answers.collect();
        self.count(uses);
        // Only after the count, which needs the lanes of the tasks.
        for (order, _) in moves.iter().zip(&answers).filter(|(order, moved)| **moved && order.to.is_end()) {
            if let Some(lane) = self.state.tasks.lane(order.task.id) {
                self.leave_lane(lane);
            }
        }
        Ok(answers)
    }

    fn attempts(&mut self, tasks: &[TaskId]) -> StoreResult<Vec<Vec<PastAttempt>>> {
        let kept = |id: &TaskId| self.state.attempts.get(id).cloned().unwrap_or_default();
        Ok(tasks.iter().map(kept).collect())
    }

    fn change_if(&mut self, changes: &[Change]) -> StoreResult<Vec<bool>> {
        self.writable()?;
        let mut changed = HashSet::with_capacity(changes.len());
        let answer = |change: &Change| {
            let answer = !changed.contains(&change.task.id) && self.change_task_if_waiting(change);
            if answer {
                changed.insert(change.task.id);
            }
            answer
        };
        Ok(changes.iter().map(answer).collect())
    }

    fn delete_if(&mut self, tasks: &[(LeaseRef, TaskState)]) -> StoreResult<Vec<bool>> {
        self.writable()?;
        Ok(tasks.iter().map(|(task, from)| self.delete_task_if(*task, *from)).collect())
    }

    fn hold_expired(&mut self, now: Timestamp, limit: usize) -> StoreResult<Vec<TaskRecord>> {
        self.writable()?;
        Ok(self.state.tasks.expired(now).take(limit).cloned().collect())
    }

    fn sizes(&mut self) -> StoreResult<Vec<(String, u64)>> {
        Ok(Vec::new())
    }

    fn next_expiry(&mut self) -> StoreResult<Option<Timestamp>> {
        Ok(self.state.tasks.next_expiry())
    }

    fn leases_of(
        &mut self,
        holder: &Holder,
        after: Option<TaskId>,
        limit: usize,
    ) -> StoreResult<Vec<TaskRecord>> {
        let is_of = |task: &&TaskRecord| {
            task.lease.as_ref().is_some_and(|lease| lease.holder == *holder)
                && after.is_none_or(|after| task.id > after)
        };
        let mut found: Vec<&TaskRecord> = self.state.tasks.leased().filter(is_of).collect();
        found.sort_unstable_by_key(|task| task.id);
        Ok(found.into_iter().take(limit).cloned().collect())
    }

    fn forget_ended(
        &mut self,
        in_state: TaskState,
        before: Timestamp,
        sensors_before: Timestamp,
        limit: usize,
    ) -> StoreResult<usize> {
        self.writable()?;
        let state = &self.state;
        let ended = state
            .tasks
            .forgettable(in_state, before)
            .filter(|(at, id)| *at < sensors_before || state.sensors.get(*id).is_none());
        let ended: Vec<TaskId> = ended.map(|(_, id)| id).take(limit).collect();
        for id in &ended {
            self.delete_task(*id);
        }
        Ok(ended.len())
    }

    fn audit(&mut self) -> StoreResult<Vec<Discrepancy>> {
        Ok(self.state.audit())
    }

    fn repair_counters(&mut self) -> StoreResult<Vec<Discrepancy>> {
        self.writable()?;
        Ok(Self::repair_counters(self))
    }
}

#[cfg(test)]
mod tests {
    use crate::NewTask;
    use crate::admission::LanePage;
    use crate::error::{Error, StoreErrorKind};
    use crate::id::{Holder, LimitKey, RequestId, TaskKey};
    use crate::lease::Renewal;
    use crate::lease::{LeaseRef, TaskId};
    use crate::store::contract::{Forget, GrantBatch, Move, Started, SurveyQuery};
    use crate::store::{Inserted, MemoryStore};
    use crate::task::{TaskInsert, TaskState};
    use crate::testing::RawStoreExt;
    use crate::time::Timestamp;

    fn task(name: &str, not_before: Option<i64>) -> TaskInsert {
        let mut task = NewTask::new(TaskKey::new("n", "w", "r", name).unwrap());
        task.not_before = not_before.map(Timestamp::from_micros);
        task.limits = vec![LimitKey::new("k").unwrap()];
        task.check(Timestamp::UNIX_EPOCH).unwrap()
    }

    #[test]
    fn a_task_goes_all_the_way() {
        let store = MemoryStore::new();
        let holder = Holder::new("h").unwrap();
        let result = store.write_raw(|tx| {
            let tasks = [task("a", None), task("b", Some(7)), task("a", None)];
            assert_eq!(
                tx.insert_tasks_if_absent(&tasks)?,
                [Inserted::New(TaskId(1)), Inserted::New(TaskId(2)), Inserted::Exists(TaskId(1))]
            );
            let early = tx.survey(&SurveyQuery::new().promote(Timestamp::from_micros(6), 9))?;
            assert_eq!((early.promoted, early.next_due), (0, Some(Timestamp::from_micros(7))));
            let survey = tx.survey(&SurveyQuery::new().promote(Timestamp::from_micros(7), 9))?;
            assert_eq!((survey.promoted, survey.next_due), (1, None));
            let lanes = survey.lanes;
            assert_eq!((lanes.len(), lanes[0].ready), (1, 2));
            assert_eq!(tx.candidates(&[LanePage::new(lanes[0].id, None, 9)])?.len(), 2);

            let (now, expires_at) = (Timestamp::from_micros(8), Timestamp::from_micros(20));
            let ids = [TaskId(2), TaskId(1), TaskId(2), TaskId(9)];
            let request = RequestId::new("t").unwrap();
            let batch = GrantBatch::new(&ids, &holder, now, expires_at).request(&request);
            let granted = tx.grant_if_open(&batch)?.tasks;
            assert_eq!(granted.iter().map(|task| task.id.0).collect::<Vec<_>>(), [2, 1]);
            let (lease, stale) = (granted[0].lease_ref(), LeaseRef::new(TaskId(2), 0));
            let started = tx.start_if_queued(&[stale, lease, lease], now)?;
            assert_eq!(started, [None, Some(Started::new(false)), None]);
            assert_eq!(
                tx.renew_if_leased(&[lease, stale, lease], Timestamp::from_micros(30))?,
                [Renewal::Renewed, Renewal::Lost, Renewal::Renewed]
            );
            assert_eq!(tx.next_expiry()?, Some(Timestamp::from_micros(20)));
            assert_eq!(tx.hold_expired(Timestamp::from_micros(30), 9)?.len(), 2);
            let noted = tx.survey(&SurveyQuery::new().request(request.clone()))?.granted;
            assert_eq!(noted, Some(granted.iter().map(|task| task.lease_ref()).collect()));
            let forget = GrantBatch::new(&[], &holder, now, expires_at)
                .forget(Forget::before(Timestamp::from_micros(9), 9));
            assert_eq!(tx.grant_if_open(&forget)?.forgotten, 1);

            let mut end = Move::new(lease, TaskState::Running, TaskState::Success);
            end.ended_at = Some(Timestamp::from_micros(9));
            assert_eq!(tx.move_if(&[end.clone(), end])?, [true, false]);
            assert_eq!(
                tx.forget_ended(
                    TaskState::Success,
                    Timestamp::from_micros(10),
                    Timestamp::from_micros(10),
                    9
                )?,
                1
            );
            assert_eq!(tx.tasks_by_id(&[TaskId(2)])?, [None]);
            assert_eq!(tx.tasks(&[tasks[0].key.clone()])?[0].as_ref().map(|task| task.attempt), Some(1));
            assert_eq!(tx.insert_tasks_if_absent(&[task("b", None)])?, [Inserted::New(TaskId(3))]);
            Ok(())
        });
        result.unwrap();
    }

    #[test]
    fn a_move_to_a_leased_state_is_refused_as_a_whole() {
        let store = MemoryStore::new();
        store.write_raw(|raw| Ok(raw.insert_tasks_if_absent(&[task("a", None)])?)).unwrap();
        let before = store.state.lock().borrow().clone();
        let any = TaskState::Scheduled;
        let lease = LeaseRef::new(TaskId(1), 0);
        let moves = [Move::new(lease, any, TaskState::Skipped), Move::new(lease, any, TaskState::Running)];
        store
            .write_raw(|tx| {
                assert_eq!(tx.move_if(&moves).unwrap_err().kind(), StoreErrorKind::Backend);
                Ok::<_, Error>(())
            })
            .unwrap();
        assert_eq!(*store.state.lock().borrow(), before, "also what stood before the bad move");
    }
}
