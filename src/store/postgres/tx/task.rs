//! The store's operations on tasks.

use super::super::news::{News, NewsSet};
use super::{PostgresBackend, notify};
use crate::admission::{Candidate, LanePage, Mark, QueueRecord, Serving};
use crate::error::StoreResult;
use crate::id::{Holder, TaskKey};
use crate::lease::{LeaseRef, Renewal, TaskId};
use crate::store::TxMode;
use crate::store::contract::{
    CapUse, Change, GrantBatch, Granted, Held, LanesBehind, Move, Overdue, Promote, Started, Survey,
    SurveyQuery, TaskSums, TaskTx, TaskWalk, Wait, Walked,
};
use crate::store::{Discrepancy, Inserted};
use crate::task::{PastAttempt, TaskInsert, TaskRecord, TaskState};
use crate::time::Timestamp;

impl PostgresBackend<'_> {
    fn insert(&mut self, tasks: &[TaskInsert], unless_capped: bool) -> StoreResult<Option<Vec<Inserted>>> {
        let may_bring = tasks.iter().map(notify::of_insert).collect();
        let inserted = |answers: &Option<Vec<Inserted>>| {
            answers.as_ref().map_or(NewsSet::NONE, |answers| notify::of_inserted(tasks, answers))
        };
        self.announce_of(may_bring, |db| db.insert_tasks(tasks, unless_capped), inserted)
    }
}

impl TaskTx for PostgresBackend<'_> {
    fn insert_tasks_if_absent(&mut self, tasks: &[TaskInsert]) -> StoreResult<Vec<Inserted>> {
        Ok(self.insert(tasks, false)?.unwrap_or_default())
    }

    fn insert_tasks_if_uncapped(&mut self, tasks: &[TaskInsert]) -> StoreResult<Option<Vec<Inserted>>> {
        self.insert(tasks, true)
    }

    fn hold_caps(&mut self, tasks: &[TaskInsert]) -> StoreResult<Vec<CapUse>> {
        self.write(|db| db.hold_caps(tasks))
    }

    fn tasks(&mut self, keys: &[TaskKey]) -> StoreResult<Vec<Option<TaskRecord>>> {
        self.read(|db| db.tasks(keys))
    }

    fn tasks_by_id(&mut self, ids: &[TaskId]) -> StoreResult<Vec<Option<TaskRecord>>> {
        self.read(|db| db.tasks_by_id(ids))
    }

    fn survey(&mut self, query: &SurveyQuery) -> StoreResult<Survey> {
        // A commit of unknown outcome may still be in progress. It holds the lock until it is over.
        let asks = self.mode == TxMode::Write && query.request.is_some();
        match query.promote.is_some() || asks {
            true => self.tick(|db| db.survey(query, true)),
            false => self.read(|db| db.survey(query, false)),
        }
    }

    fn overdue(&mut self, promote: Promote) -> StoreResult<Overdue> {
        self.read(|db| db.overdue(promote))
    }

    fn put_serving(&mut self, serving: &Serving, forget: Timestamp) -> StoreResult<()> {
        self.tick(|db| db.put_serving(serving, forget))
    }

    fn serving(&mut self) -> StoreResult<Vec<Serving>> {
        self.read(|db| db.serving())
    }

    fn queues(&mut self) -> StoreResult<Vec<QueueRecord>> {
        self.read(|db| db.queues())
    }

    fn walk_tasks(&mut self, walk: &TaskWalk<'_>) -> StoreResult<Walked> {
        self.read(|db| db.walk_tasks(walk))
    }

    fn count_tasks(&mut self, cap: usize) -> StoreResult<TaskSums> {
        self.read(|db| db.count_tasks(cap))
    }

    fn candidates(&mut self, pages: &[LanePage]) -> StoreResult<Vec<Candidate>> {
        self.read(|db| db.candidates(pages))
    }

    fn lanes_behind(&mut self, page: &LanesBehind<'_>) -> StoreResult<Survey> {
        self.read(|db| db.lanes_behind(page))
    }

    fn put_marks(&mut self, marks: &[Mark]) -> StoreResult<()> {
        self.tick(|db| db.put_marks(marks))
    }

    fn grant_if_open(&mut self, batch: &GrantBatch<'_>) -> StoreResult<Granted> {
        self.tick(|db| db.grant_if_open(batch))
    }

    fn start_if_queued(&mut self, leases: &[LeaseRef], now: Timestamp) -> StoreResult<Vec<Option<Started>>> {
        self.write(|db| db.start_if_queued(leases, now))
    }

    fn renew_if_leased(&mut self, leases: &[LeaseRef], expires_at: Timestamp) -> StoreResult<Vec<Renewal>> {
        self.renew(|db| db.renew_if_leased(leases, expires_at))
    }

    fn note_if_leased(&mut self, notes: &[(LeaseRef, Timestamp, String)]) -> StoreResult<Vec<bool>> {
        self.renew(|db| db.note_if_leased(notes))
    }

    fn cancel_if_leased(
        &mut self,
        leases: &[LeaseRef],
        deadline: Timestamp,
        message: &str,
    ) -> StoreResult<Vec<Option<Timestamp>>> {
        let asked = |deadlines: &Vec<Option<Timestamp>>| match deadlines.iter().any(Option::is_some) {
            true => News::Cancels.into(),
            false => NewsSet::NONE,
        };
        self.announce_of(News::Cancels.into(), |db| db.cancel_if_leased(leases, deadline, message), asked)
    }

    fn move_if(&mut self, moves: &[Move]) -> StoreResult<Vec<bool>> {
        let may_bring =
            moves.iter().map(|change| notify::of_move(change).and(notify::of_feed(change))).collect();
        let moved = |answers: &Vec<bool>| notify::of_moved(moves, answers);
        self.announce_of(may_bring, |db| db.move_if(moves), moved)
    }

    fn end_if_leased(&mut self, ends: &[Move]) -> StoreResult<Vec<Option<bool>>> {
        let ended = |answers: &Vec<Option<bool>>| match answers.iter().any(Option::is_some) {
            true => News::Capacity.into(),
            false => NewsSet::NONE,
        };
        let may_bring = NewsSet::from(News::Capacity).and(News::Events);
        self.announce_of(may_bring, |db| db.end_if_leased(ends), ended)
    }

    fn last(&mut self) {
        self.say_last();
    }

    fn is_committed(&self) -> bool {
        self.is_over()
    }

    fn attempts(&mut self, tasks: &[TaskId]) -> StoreResult<Vec<Vec<PastAttempt>>> {
        self.read(|db| db.attempts(tasks))
    }

    fn change_if(&mut self, changes: &[Change]) -> StoreResult<Vec<bool>> {
        let may_bring = changes.iter().map(notify::of_change).collect();
        let changed = |answers: &Vec<bool>| {
            let changed = changes.iter().zip(answers).filter(|(_, changed)| **changed);
            changed.map(|(change, _)| notify::of_change(change)).collect()
        };
        self.announce_of(may_bring, |db| db.change_if(changes), changed)
    }

    fn delete_if(&mut self, tasks: &[(LeaseRef, TaskState)]) -> StoreResult<Vec<bool>> {
        let may_bring = tasks.iter().map(|(_, from)| notify::of_leaving(*from)).collect();
        let gone = |answers: &Vec<bool>| {
            let gone = tasks.iter().zip(answers).filter(|(_, gone)| **gone);
            gone.map(|((_, from), _)| notify::of_leaving(*from)).collect()
        };
        self.announce_of(may_bring, |db| db.delete_if(tasks), gone)
    }

    fn hold_expired(&mut self, now: Timestamp, limit: usize) -> StoreResult<Vec<TaskRecord>> {
        self.write(|db| db.hold_expired(now, limit))
    }

    fn sizes(&mut self) -> StoreResult<Vec<(String, u64)>> {
        self.read(|db| db.sizes())
    }

    fn next_expiry(&mut self) -> StoreResult<Option<Timestamp>> {
        let writes = self.mode == TxMode::Write;
        self.read(|db| db.next_expiry(writes))
    }

    fn next_look(&mut self, now: Timestamp) -> StoreResult<Option<Timestamp>> {
        let is_upkeep = self.mode == TxMode::Write && self.db.is_own;
        if !is_upkeep {
            return self.next_expiry();
        }
        self.read(|db| db.next_look(now))
    }

    fn hold_tasks(&mut self, ids: &[TaskId], wait: Wait) -> StoreResult<Vec<Held>> {
        self.write(|db| db.hold_tasks(ids, wait))
    }

    fn serialize(&mut self, names: &[&str]) -> StoreResult<()> {
        self.write(|db| db.serialize(names))
    }

    fn leases_of(
        &mut self,
        holder: &Holder,
        after: Option<TaskId>,
        limit: usize,
    ) -> StoreResult<Vec<TaskRecord>> {
        self.read(|db| db.leases_of(holder, after, limit))
    }

    fn forget_ended(
        &mut self,
        state: TaskState,
        before: Timestamp,
        sensors_before: Timestamp,
        limit: usize,
    ) -> StoreResult<usize> {
        self.write(|db| db.forget_ended(state, before, sensors_before, limit))
    }

    fn audit(&mut self) -> StoreResult<Vec<Discrepancy>> {
        self.read(|db| db.audit())
    }

    fn repair_counters(&mut self) -> StoreResult<Vec<Discrepancy>> {
        let repaired = |counters: &Vec<Discrepancy>| match counters.is_empty() {
            false => News::Capacity.into(),
            true => NewsSet::NONE,
        };
        self.announce_of(News::Capacity.into(), |db| db.repair_counters(), repaired)
    }
}
