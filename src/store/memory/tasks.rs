//! Tasks, and the indexes that follow from their rows.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;

use super::by_number::ByNumber;
use super::course::Course;
use super::lanes::Lanes;
#[cfg(test)]
use super::state::Write;
use super::state::{Filing, State};
use super::undo::Transaction;
use crate::admission::{LaneId, OrderKey};
use crate::id::TaskKey;
use crate::lease::TaskId;
use crate::task::{TaskRecord, TaskState};
use crate::time::Timestamp;

/// A stored task.
#[derive(Debug, Clone)]
#[cfg_attr(test, derive(PartialEq))]
pub(super) struct TaskRow {
    pub(super) record: TaskRecord,
    /// The number of the lane that the record names by key. Once the task has ended, the lane may no longer
    /// exist.
    pub(super) lane: LaneId,
}

#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, PartialEq))]
pub(super) struct Tasks {
    rows: ByNumber<TaskId, Box<TaskRow>>,
    by_key: HashMap<TaskKey, TaskId>,
    index: Index,
}

/// Indexes over the rows, except for tasks that wait in lanes.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, PartialEq))]
struct Index {
    /// Tasks with a due instant, by that instant, then in the order of admission.
    due: BTreeSet<(Timestamp, OrderKey)>,
    /// Tasks with a lease, by its expiry.
    leases: Timeline,
    /// Tasks in state `Sensing`, and those with a due instant or with slots that they kept, by state and
    /// lane.
    by_lane: BTreeSet<(TaskState, LaneId, TaskId)>,
    /// Ended tasks, by how and when they ended.
    ended: Ends,
}

/// Ended tasks, by how and when they ended, then by number.
type Ends = BTreeSet<(TaskState, Timestamp, TaskId)>;

/// Tasks by one of their instants, then by number.
type Timeline = BTreeSet<(Timestamp, TaskId)>;

impl Index {
    fn alter(&mut self, row: &mut TaskRow, change: impl FnOnce(&mut TaskRecord), lanes: &mut Lanes) {
        self.file(row, lanes, Filing::Out);
        change(&mut row.record);
        self.file(row, lanes, Filing::In);
    }

    fn file(&mut self, row: &TaskRow, lanes: &mut Lanes, filing: Filing) {
        let record = &row.record;
        if !record.state.is_end() {
            lanes.count_task(row.lane, filing);
        }
        if record.is_ready() {
            let lane = if record.keeps_slots() { row.lane.keeping() } else { row.lane };
            match filing {
                Filing::In => lanes.add_ready(lane, record.order()),
                Filing::Out => lanes.remove_ready(lane, &record.order()),
            }
        }
        if let Some(due) = record.due {
            filing.entry(&mut self.due, (due, record.order()));
        }
        if let Some(lease) = &record.lease {
            filing.entry(&mut self.leases, (lease.expires_at, record.id));
        }
        if record.state == TaskState::Sensing || record.due.is_some() || record.keeps_slots() {
            filing.entry(&mut self.by_lane, (record.state, row.lane, record.id));
        }
        if let Some(entry) = ended(record) {
            filing.entry(&mut self.ended, entry);
        }
    }
}

impl Tasks {
    pub(super) fn swap(
        &mut self,
        id: TaskId,
        row: Option<Box<TaskRow>>,
        lanes: &mut Lanes,
    ) -> Option<Box<TaskRow>> {
        if let Some(old) = self.rows.get(&id) {
            self.index.file(old, lanes, Filing::Out);
        }
        let Some(row) = row else {
            let old = self.rows.remove(&id)?;
            self.by_key.remove(&old.record.key);
            return Some(old);
        };
        self.index.file(&row, lanes, Filing::In);
        match self.rows.entry(id) {
            Entry::Occupied(mut place) => Some(place.insert(row)),
            Entry::Vacant(place) => {
                self.by_key.insert(row.record.key.clone(), id);
                place.insert(row);
                None
            }
        }
    }

    /// Gives a task the course that it had.
    pub(super) fn put_course(&mut self, id: TaskId, course: Course, lanes: &mut Lanes) {
        if let Some(row) = self.rows.get_mut(&id) {
            self.index.alter(row, |task| course.put_into(task), lanes);
        }
    }

    /// Reads a little of each of these rows. The reads are independent, so the processor fetches many rows
    /// from memory at once, and later work on the rows finds them in the cache.
    pub(super) fn fetch(&self, ids: &[TaskId]) {
        let rows = ids.iter().filter_map(|id| self.rows.get(id));
        let some_of_each = rows.fold(0, |sum: usize, row| {
            let record = &row.record;
            let name = usize::from(record.key.task.as_str().as_bytes().first().copied().unwrap_or(0));
            let parts = [name, record.held_slots as usize, record.payload.len(), record.lane.limits.len()];
            let texts = [&record.message, &record.value].map(|text| usize::from(text.is_some()));
            let dates = [record.queued_at, record.ended_at].map(|at| usize::from(at.is_some()));
            let all = parts.into_iter().chain(texts).chain(dates);
            all.fold(sum, usize::wrapping_add).wrapping_add(record.epoch as usize)
        });
        std::hint::black_box(some_of_each);
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn get(&self, id: TaskId) -> Option<&TaskRecord> {
        self.rows.get(&id).map(|row| &row.record)
    }

    pub(super) fn row(&self, id: TaskId) -> Option<&TaskRow> {
        self.rows.get(&id).map(Box::as_ref)
    }

    /// Returns the lane that a task is in.
    pub(super) fn lane(&self, id: TaskId) -> Option<LaneId> {
        self.rows.get(&id).map(|row| row.lane)
    }

    pub(super) fn number(&self, key: &TaskKey) -> Option<TaskId> {
        self.by_key.get(key).copied()
    }

    /// Returns every task, in no particular order.
    pub(super) fn all(&self) -> impl Iterator<Item = &TaskRow> {
        self.rows.values().map(Box::as_ref)
    }

    /// Returns tasks due at `now` or earlier, earliest first, with ties in admission order.
    pub(super) fn due(&self, now: Timestamp) -> impl Iterator<Item = TaskId> {
        self.index.due.iter().take_while(move |(due, _)| *due <= now).map(|(_, order)| order.id)
    }

    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.due_after(0)
    }

    /// Returns the earliest due instant after skipping the first `tasks` tasks.
    pub(super) fn due_after(&self, tasks: usize) -> Option<Timestamp> {
        self.index.due.iter().nth(tasks).map(|(due, _)| *due)
    }

    /// Returns tasks whose leases expired at `now` or earlier, earliest first.
    pub(super) fn expired(&self, now: Timestamp) -> impl Iterator<Item = &TaskRecord> {
        let expired = self.index.leases.iter().take_while(move |(expires_at, _)| *expires_at <= now);
        expired.filter_map(|(_, id)| self.get(*id))
    }

    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        self.index.leases.first().map(|(expires_at, _)| *expires_at)
    }

    /// Returns tasks with a lease.
    pub(super) fn leased(&self) -> impl Iterator<Item = &TaskRecord> {
        self.index.leases.iter().filter_map(|(_, id)| self.get(*id))
    }

    /// Returns tasks with a lease, and tasks that wait as sensors.
    pub(super) fn leased_and_sensing(&self) -> impl Iterator<Item = &TaskRecord> {
        let sensing = self.in_lanes(TaskState::Sensing, (LaneId(i64::MIN), TaskId(i64::MIN)), None);
        self.leased().chain(sensing.filter_map(|(_, id)| self.get(id)))
    }

    /// Returns tasks that wait for an instant, earliest first, with ties in admission order.
    pub(super) fn due_behind(
        &self,
        place: Bound<(Timestamp, OrderKey)>,
    ) -> impl Iterator<Item = (Timestamp, OrderKey)> {
        self.index.due.range((place, Bound::Unbounded)).copied()
    }

    /// Returns the tasks in this state that are indexed by lane, behind a place, by lane and number. Returns
    /// those of one lane if `only` is given.
    pub(super) fn in_lanes(
        &self,
        state: TaskState,
        (lane, id): (LaneId, TaskId),
        only: Option<LaneId>,
    ) -> impl Iterator<Item = (LaneId, TaskId)> {
        let last = (state, only.unwrap_or(LaneId(i64::MAX)), TaskId(i64::MAX));
        let range = (Bound::Excluded((state, lane, id)), Bound::Included(last));
        self.index.by_lane.range(range).map(|(_, lane, id)| (*lane, *id))
    }

    /// Returns tasks that ended in one of these states before a place in the order of instant and number. The
    /// latest end comes first.
    pub(super) fn ended_before(
        &self,
        states: impl Iterator<Item = TaskState>,
        place: Bound<(Timestamp, TaskId)>,
    ) -> impl Iterator<Item = (Timestamp, TaskId)> {
        let lines = states.map(|state| {
            let before = match place {
                Bound::Excluded((at, id)) => Bound::Excluded((state, at, id)),
                _ => Bound::Included((state, Timestamp::MAX, TaskId(i64::MAX))),
            };
            let first = Bound::Included((state, Timestamp::MIN, TaskId(i64::MIN)));
            self.index.ended.range((first, before)).rev().map(|(_, at, id)| (*at, *id)).peekable()
        });
        let mut lines: Vec<_> = lines.collect();
        std::iter::from_fn(move || {
            let heads = lines.iter_mut().map(|line| line.peek().copied());
            let (last, _) = heads.enumerate().max_by_key(|(_, head)| *head)?;
            lines[last].next()
        })
    }

    /// Returns tasks that ended in this state before this instant, earliest first, each with its end.
    pub(super) fn forgettable(
        &self,
        state: TaskState,
        before: Timestamp,
    ) -> impl Iterator<Item = (Timestamp, TaskId)> {
        let first = (state, Timestamp::MIN, TaskId(i64::MIN));
        let ended =
            self.index.ended.range(first..).take_while(move |(of, at, _)| *of == state && *at < before);
        ended.map(|(_, at, id)| (*at, *id))
    }
}

fn ended(record: &TaskRecord) -> Option<(TaskState, Timestamp, TaskId)> {
    let at = record.ended_at.filter(|_| record.state.is_end())?;
    Some((record.state, at, record.id))
}

impl Transaction<'_> {
    /// Changes the course of a task if it exists and meets the condition. Returns the changed task.
    pub(super) fn change_task_if(
        &mut self,
        id: TaskId,
        condition: impl FnOnce(&TaskRecord) -> bool,
        change: impl FnOnce(&mut TaskRecord),
    ) -> Option<&TaskRow> {
        let State { tasks, lanes, .. } = &mut *self.state;
        let row = tasks.rows.get_mut(&id).filter(|row| condition(&row.record))?;
        let before = Course::of(&row.record);
        tasks.index.alter(row, change, lanes);
        self.undo.push_course(id, before);
        Some(row)
    }
}

#[cfg(test)]
impl Tasks {
    pub(super) fn writes(&self) -> impl Iterator<Item = Write> {
        self.rows.iter().map(|(id, row)| Write::Task(*id, Some(row.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::NewTask;

    fn ended(id: i64, at: i64) -> Option<Box<TaskRow>> {
        let key = TaskKey::new("n", "w", "r", format!("t{id}")).unwrap();
        let insert = NewTask::new(key).check(Timestamp::UNIX_EPOCH).unwrap();
        let mut record = TaskRecord::inserted(TaskId(id), insert);
        (record.state, record.ended_at) = (TaskState::Success, Some(Timestamp::from_micros(at)));
        Some(Box::new(TaskRow { record, lane: LaneId(1) }))
    }

    #[test]
    fn what_ended_before_an_instant_can_be_forgotten_earliest_first() {
        let (mut tasks, mut lanes) = (Tasks::default(), Lanes::default());
        tasks.swap(TaskId(1), ended(1, 5), &mut lanes);
        tasks.swap(TaskId(2), ended(2, 4), &mut lanes);
        let forgettable = |before| -> Vec<i64> {
            let before = Timestamp::from_micros(before);
            tasks.forgettable(TaskState::Success, before).map(|(_, id)| id.0).collect()
        };
        assert_eq!(forgettable(9), [2, 1]);
        assert_eq!(forgettable(5), [2], "before means before");
    }

    #[test]
    fn a_deleted_task_leaves_nothing_behind() {
        let (mut tasks, mut lanes) = (Tasks::default(), Lanes::default());
        tasks.swap(TaskId(1), ended(1, 5), &mut lanes);
        tasks.swap(TaskId(1), ended(1, 6), &mut lanes);
        tasks.swap(TaskId(1), None, &mut lanes);
        assert_eq!(tasks, Tasks::default());
    }
}
