//! Walks along the tasks, and counts of tasks by state.

use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Bound;

use super::state::State;
use crate::admission::{LaneId, OrderKey};
use crate::error::StoreResult;
use crate::id::{Holder, TaskKey};
use crate::lease::TaskId;
use crate::store::contract::{Place, TaskSums, TaskWalk, Walk, Walked};
use crate::store::read_counter;
use crate::task::{TaskRecord, TaskState};
use crate::time::Timestamp;

impl State {
    pub(super) fn walk_tasks(&self, walk: &TaskWalk<'_>) -> StoreResult<Walked> {
        let query = walk.query;
        match walk.walk {
            Walk::Numbers => {
                let end = walk
                    .place::<1, 0>()?
                    .map_or(i64::MAX, |([no], _)| no)
                    .min(self.last.task.saturating_add(1));
                let ids = (1..end).rev().map(TaskId).filter(|id| self.tasks.get(*id).is_some());
                Ok(self.gather(walk, ids.map(|id| (id, id)), |id| Place::new([id.0], [])))
            }
            Walk::Keys => self.walk_keys(walk),
            Walk::Due => self.walk_due(walk),
            Walk::Later(state) => self.walk_lanes(walk, state),
            Walk::Sensing => self.walk_lanes(walk, TaskState::Sensing),
            Walk::Ready => {
                let place = walk.place::<5, 0>()?.map(|([lane, rest @ ..], _)| (LaneId(lane), order(rest)));
                let from = place.map_or(LaneId(i64::MIN), |(lane, _)| lane);
                let ready = self
                    .lanes
                    .ready_behind(from, place.map(|(_, order)| order), |lane| query.wants_lane(lane));
                Ok(self.gather(walk, ready.map(|at| (at, at.1.id)), |(lane, order)| {
                    let [rank, date, index, no] = numbers(&order);
                    Place::new([lane.0, rank, date, index, no], [])
                }))
            }
            Walk::Leases => {
                let place = walk.place::<1, 1>()?.map(|([no], [holder])| (holder.as_str(), no));
                let holder = |task: &TaskRecord| task.lease.as_ref().map(|lease| lease.holder.clone());
                let leased = self.tasks.leased().filter_map(|task| Some((holder(task)?, task.id)));
                let is_asked = |of: &Holder| query.holder.as_ref().is_none_or(|asked| asked == of);
                let is_behind =
                    |of: &Holder, id: TaskId| place.is_none_or(|place| (of.as_str(), id.0) > place);
                let mut leased: Vec<_> =
                    leased.filter(|(of, id)| is_asked(of) && is_behind(of, *id)).collect();
                leased.sort_unstable();
                let leased = leased.into_iter().map(|at| (at.clone(), at.1));
                Ok(self.gather(walk, leased, |(holder, id)| Place::new([id.0], [holder.as_str().to_owned()])))
            }
            Walk::Ends => {
                let place = walk.place::<2, 0>()?;
                let place = place.map(|([at, no], _)| (Timestamp::from_micros(at), TaskId(no)));
                let since = query.ended_since;
                let states = query.possible().filter(|state| state.is_end());
                let ended = self.tasks.ended_before(states, place.map_or(Bound::Unbounded, Bound::Excluded));
                let ended = ended.take_while(move |(at, _)| since.is_none_or(|since| *at >= since));
                Ok(self.gather(walk, ended.map(|at| (at, at.1)), |(at, id)| {
                    Place::new([at.as_micros(), id.0], [])
                }))
            }
        }
    }

    fn gather<K>(
        &self,
        walk: &TaskWalk<'_>,
        tasks: impl Iterator<Item = (K, TaskId)>,
        place: impl Fn(K) -> Place,
    ) -> Walked {
        let is_wanted = |id| self.tasks.get(id).is_some_and(|task| walk.query.wants(task));
        let looked_at = tasks.inspect(|_| read_counter::rows(1));
        walk.gather(looked_at.map(|(key, id)| (key, id, is_wanted(id))), place)
    }

    /// No index has the keys in order, so this reads all tasks and keeps the first keys.
    fn walk_keys(&self, walk: &TaskWalk<'_>) -> StoreResult<Walked> {
        let place = walk.place::<1, 3>()?;
        let place = place
            .map(|([index], [workflow, run, task])| (workflow.as_str(), run.as_str(), task.as_str(), index));
        let mut first: BinaryHeap<&TaskKey> = BinaryHeap::new();
        for row in self.tasks.all() {
            let key = &row.record.key;
            if place.is_none_or(|place| names(key) > place) && walk.query.wants(&row.record) {
                first.push(key);
                if first.len() > walk.most {
                    first.pop();
                }
            }
        }
        let ids = first.into_sorted_vec().into_iter().filter_map(|key| Some((key, self.tasks.number(key)?)));
        Ok(self.gather(walk, ids, |key| {
            let (workflow, run, task, index) = names(key);
            Place::new([index], [workflow, run, task].map(str::to_owned))
        }))
    }

    fn walk_due(&self, walk: &TaskWalk<'_>) -> StoreResult<Walked> {
        let query = walk.query;
        let place =
            walk.place::<5, 0>()?.map(|([due, rest @ ..], _)| (Timestamp::from_micros(due), order(rest)));
        let first = query.due_since.map(|due| (due, order([i64::MIN, i64::MIN, -1, i64::MIN])));
        let from = place.map_or_else(|| first.map_or(Bound::Unbounded, Bound::Included), Bound::Excluded);
        let due = self.tasks.due_behind(from);
        let due = due.take_while(|(due, _)| query.due_before.is_none_or(|before| *due < before));
        Ok(self.gather(walk, due.map(|at| (at, at.1.id)), |(due, order)| {
            let [rank, date, index, no] = numbers(&order);
            Place::new([due.as_micros(), rank, date, index, no], [])
        }))
    }

    /// Walks along the tasks in one state, lane by lane.
    fn walk_lanes(&self, walk: &TaskWalk<'_>, state: TaskState) -> StoreResult<Walked> {
        let query = walk.query;
        let [lane, no] = walk.place::<2, 0>()?.map_or([i64::MIN; 2], |(place, _)| place);
        let from = (LaneId(lane), TaskId(no));
        let place = |(lane, id): (LaneId, TaskId)| Place::new([lane.0, id.0], []);
        if !query.asks_for_lanes() {
            let tasks = self.tasks.in_lanes(state, from, None);
            return Ok(self.gather(walk, tasks.map(|at| (at, at.1)), place));
        }
        let tasks = self.lanes.wanted(from.0, |key| query.wants_lane(key)).flat_map(|lane| {
            let from = if lane == from.0 { from } else { (lane, TaskId(i64::MIN)) };
            self.tasks.in_lanes(state, from, Some(lane))
        });
        Ok(self.gather(walk, tasks.map(|at| (at, at.1)), place))
    }

    pub(super) fn count_tasks(&self, cap: usize) -> TaskSums {
        let beyond = cap.saturating_add(1);
        let mut sums = TaskSums::default();
        for (_, _, [tasks, ready]) in self.lanes.all() {
            sums.open += tasks;
            sums.ready += ready;
        }
        let mut counted: BTreeMap<TaskState, u64> = BTreeMap::new();
        let mut count = |id: TaskId| {
            let Some(task) = self.tasks.get(id) else { return };
            *counted.entry(task.state).or_default() += 1;
        };
        self.tasks.leased_and_sensing().for_each(|task| count(task.id));
        let is_retry =
            |id: TaskId| self.tasks.get(id).is_some_and(|task| task.state == TaskState::UpForRetry);
        let due = self.tasks.due_behind(Bound::Unbounded).map(|(_, order)| order.id);
        due.filter(|id| is_retry(*id)).take(beyond).for_each(&mut count);
        for state in TaskState::ALL.into_iter().filter(|state| state.is_end()) {
            let ended = self.tasks.ended_before(std::iter::once(state), Bound::Unbounded);
            ended.take(beyond).for_each(|(_, id)| count(id));
        }
        sums.counted = counted.into_iter().collect();
        sums
    }
}

fn order([rank, date, index, no]: [i64; 4]) -> OrderKey {
    OrderKey::new(rank, Timestamp::from_micros(date), u32::try_from(index).ok(), TaskId(no))
}

fn numbers(order: &OrderKey) -> [i64; 4] {
    let index = order.map_index.map_or(-1, i64::from);
    [order.rank, order.logical_date.as_micros(), index, order.id.0]
}

/// Returns the parts of a key within its namespace.
fn names(key: &TaskKey) -> (&str, &str, &str, i64) {
    let index = key.map_index.map_or(-1, i64::from);
    (key.workflow.as_str(), key.run.as_str(), key.task.as_str(), index)
}
