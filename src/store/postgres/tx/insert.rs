//! Inserts and finds tasks.

use std::collections::HashMap;

use super::super::error::{Fault, Outcome};
use super::super::text::escape;
use super::super::wire::{Statement, ask};
use super::shapes::{Shapes, of_each};
use super::{Db, clamp, first, row};
use crate::admission::LaneKey;
use crate::backoff::RetryPolicy;
use crate::error::StoreError;
use crate::id::TaskKey;
use crate::lease::TaskId;
use crate::store::Inserted;
use crate::store::sql::codes::lease_loss;
use crate::store::sql::needs;
use crate::store::sql::records;
use crate::store::sql::statement::statement;
use crate::task::{TaskInsert, TaskRecord};
use crate::time::Timestamp;

/// The most tasks that one statement inserts. It must end within the server's limit for statements, however many
/// tasks a caller enqueues.
const PIECE: usize = 10_000;

/// Once a statement's payloads are longer than this together, it takes no further task.
const PIECE_BYTES: usize = 16 << 20;

/// How often the store looks for tasks that were neither inserted nor found. One look finds what was committed
/// meanwhile. Another one is needed for a task that was deleted again before that look.
const LOOKS: usize = 8;

pub(super) const ENQUEUE: &str = statement!("enqueue.sql");
/// Inserts tasks that are ready at once, and fails if one is not new.
pub(super) const ENQUEUE_ALL_NEW: &str = statement!("enqueue_all_new.sql");
/// Inserts one task. Most of a short statement's cost is setting up its plan.
pub(super) const ENQUEUE_ONE: &str = statement!("enqueue_one.sql");
/// Inserts one task that is ready at once, and fails if it is not new.
pub(super) const ENQUEUE_NEW: &str = statement!("enqueue_new.sql");
/// Draws numbers for tasks.
pub(super) const NUMBERS: &str = "SELECT array_agg(no ORDER BY no) FROM ( \
     SELECT nextval('sm.task_no') AS no FROM generate_series(1, $1::bigint)) drawn";
/// $1 to $5: namespaces, workflows, runs, tasks, map indexes.
pub(super) const BY_KEY: &str = statement!(
    "tasks.sql",
    given = "unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[]) \
         WITH ORDINALITY given (namespace, workflow, run, task, map_index, place)",
    is_given = "task.namespace = given.namespace AND task.workflow = given.workflow AND task.run = given.run \
         AND task.task = given.task AND task.map_index = given.map_index",
);
/// $1: numbers.
pub(super) const BY_NO: &str = statement!(
    "tasks.sql",
    given = "unnest($1::bigint[]) WITH ORDINALITY given (no, place)",
    is_given = "task.no = given.no",
);

/// Keys, with one array per column.
#[derive(Default)]
pub(super) struct Keys {
    pub(super) namespaces: Vec<String>,
    pub(super) workflows: Vec<String>,
    pub(super) runs: Vec<String>,
    pub(super) tasks: Vec<String>,
    pub(super) map_indices: Vec<i64>,
}

impl Keys {
    pub(super) fn push(&mut self, key: &TaskKey) {
        self.namespaces.push(key.namespace.as_str().into());
        self.workflows.push(key.workflow.as_str().into());
        self.runs.push(key.run.as_str().into());
        self.tasks.push(key.task.as_str().into());
        self.map_indices.push(row::map_index_value(key.map_index));
    }
}

/// Lanes, with one array per column.
#[derive(Default)]
pub(super) struct Lanes<'k> {
    places: HashMap<&'k LaneKey, i64>,
    pub(super) pools: Vec<String>,
    pub(super) slots: Vec<i64>,
    pub(super) limits: Vec<String>,
    pub(super) queues: Vec<Option<String>>,
}

/// The queue of a lane as it is stored: `None` for the default one.
pub(super) fn queue(lane: &LaneKey) -> Option<String> {
    (!lane.queue.is_default()).then(|| lane.queue.as_str().into())
}

impl<'k> Lanes<'k> {
    /// Returns the index of a lane, counted from 1.
    pub(super) fn place(&mut self, key: &'k LaneKey) -> Outcome<i64> {
        if let Some(place) = self.places.get(key) {
            return Ok(*place);
        }
        self.pools.push(key.pool.as_str().into());
        self.slots.push(key.slots.into());
        self.limits.push(needs::to_text(key)?);
        self.queues.push(queue(key));
        let place = clamp(self.pools.len());
        self.places.insert(key, place);
        Ok(place)
    }
}

/// The first task with its key in a call.
#[derive(Debug, Clone, Copy)]
struct Fresh<'t> {
    task: &'t TaskInsert,
    /// Its index among the distinct tasks of the call.
    place: usize,
    /// The number that was drawn for it.
    number: Option<i64>,
}

/// Returns a task's retry policy as it is stored: `None` if it never retries.
pub(super) fn retry(task: &TaskInsert) -> Outcome<Option<String>> {
    let retries_any = task.retry != RetryPolicy::none();
    Ok(retries_any.then(|| serde_json::to_string(&task.retry)).transpose()?)
}

/// When a task becomes ready, as far as the enqueue determines it.
fn ready_at(task: &TaskInsert) -> i64 {
    task.due.unwrap_or(task.enqueued_at).as_micros()
}

fn enqueue_one(task: &TaskInsert, is_last: bool, unless_capped: bool) -> Outcome<Statement> {
    // Most tasks are new.
    let is_expected_new = is_last && task.due.is_none();
    Ok(ask!(
        if is_expected_new { ENQUEUE_NEW } else { ENQUEUE_ONE },
        task.due.map(Timestamp::as_micros),
        task.rank,
        task.logical_date.as_micros(),
        row::map_index_value(task.key.map_index),
        i64::from(task.priority),
        lease_loss(task.lease_loss),
        records::notes(task),
        task.enqueued_at.as_micros(),
        ready_at(task),
        task.key.namespace.as_str(),
        task.key.workflow.as_str(),
        task.key.run.as_str(),
        task.key.task.as_str(),
        retry(task)?,
        escape(&task.payload).into_owned(),
        task.lane.pool.as_str(),
        i64::from(task.lane.slots),
        needs::to_text(&task.lane)?,
        queue(&task.lane),
        i64::from(is_last),
        i64::from(unless_capped),
    ))
}

/// Returns each task's place in the order of the call, counted from 1.
fn in_order_of_call(tasks: &[Fresh<'_>]) -> Vec<i64> {
    let mut called: Vec<usize> = (0..tasks.len()).collect();
    called.sort_unstable_by_key(|at| tasks[*at].place);
    let mut places = vec![0; tasks.len()];
    for (place, at) in (1..).zip(called) {
        places[at] = place;
    }
    places
}

/// Inserts tasks that are sorted by key.
fn enqueue(tasks: &[Fresh<'_>], are_new: bool, unless_capped: bool) -> Outcome<Statement> {
    let mut shapes = Shapes::default();
    let (mut shape_at, mut map_indices) = (Vec::new(), Vec::new());
    let (mut runs, mut names, mut payloads) = (Vec::new(), Vec::new(), Vec::new());
    for Fresh { task, .. } in tasks {
        shape_at.push(shapes.place(task)?);
        map_indices.push(row::map_index_value(task.key.map_index));
        runs.push(task.key.run.as_str().to_owned());
        names.push(task.key.task.as_str().to_owned());
        payloads.push(escape(&task.payload).into_owned());
    }
    let numbers: Option<Vec<i64>> = tasks.iter().map(|fresh| fresh.number).collect();
    let (shapes, lanes) = shapes.into_parts();
    Ok(ask!(
        if are_new { ENQUEUE_ALL_NEW } else { ENQUEUE },
        shape_at,
        map_indices,
        in_order_of_call(tasks),
        numbers,
        runs,
        names,
        payloads,
        of_each(&shapes, |shape| shape.lane),
        of_each(&shapes, |shape| shape.due),
        of_each(&shapes, |shape| shape.rank),
        of_each(&shapes, |shape| shape.logical_date),
        of_each(&shapes, |shape| i64::from(shape.priority)),
        of_each(&shapes, |shape| shape.lease_loss),
        of_each(&shapes, |shape| shape.attempt_runs),
        of_each(&shapes, |shape| shape.enqueued_at),
        of_each(&shapes, |shape| shape.namespace.to_owned()),
        of_each(&shapes, |shape| shape.workflow.to_owned()),
        of_each(&shapes, |shape| shape.retry.clone()),
        lanes.pools,
        lanes.slots,
        lanes.limits,
        lanes.queues,
        i64::from(unless_capped),
    ))
}

/// Splits the tasks into pieces of at most [`PIECE`] tasks and about [`PIECE_BYTES`] bytes.
fn pieces<'a, 't>(mut tasks: &'a [Fresh<'t>]) -> impl Iterator<Item = &'a [Fresh<'t>]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |fresh: &&Fresh<'t>| {
            let begun = bytes > PIECE_BYTES;
            bytes += fresh.task.payload.len();
            !begun
        };
        let len = tasks.iter().take(PIECE).take_while(fits).count();
        let (piece, rest) = tasks.split_at(len);
        tasks = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

impl Db<'_> {
    /// Inserts tasks. With `unless_capped`, it inserts none and returns `None` if one of them may be capped.
    pub(super) fn insert_tasks(
        &mut self,
        tasks: &[TaskInsert],
        unless_capped: bool,
    ) -> Outcome<Option<Vec<Inserted>>> {
        let mut places: HashMap<&TaskKey, usize> = HashMap::with_capacity(tasks.len());
        let mut distinct = Vec::with_capacity(tasks.len());
        for task in tasks {
            places.entry(&task.key).or_insert_with(|| {
                distinct.push(Fresh { task, place: distinct.len(), number: None });
                distinct.len() - 1
            });
        }
        let mut found: Vec<Option<Inserted>> = vec![None; distinct.len()];
        let mut unless_capped = unless_capped;
        if pieces(&distinct).nth(1).is_some() {
            // Before the first piece is inserted.
            if unless_capped
                && self.is_capped(&distinct.iter().map(|fresh| fresh.task).collect::<Vec<_>>())?
            {
                return Ok(None);
            }
            unless_capped = false;
            self.number_in_order(&mut distinct)?;
        }
        for piece in pieces(&distinct) {
            if !self.insert_piece(piece, &mut found, unless_capped)? {
                return Ok(None);
            }
        }
        let answer = |task: &TaskInsert| {
            let answer = places.get(&task.key).and_then(|at| found.get_mut(*at)).and_then(Option::as_mut);
            let answer = answer
                .ok_or_else(|| Fault::Damaged(format!("task {} was neither inserted nor found", task.key)))?;
            let once = answer.clone();
            if let Inserted::New(id) = once {
                *answer = Inserted::Exists(id);
            }
            Ok(once)
        };
        tasks.iter().map(answer).collect::<Outcome<_>>().map(Some)
    }

    /// Numbers tasks that several statements insert in the order of the call, and then sorts them by key. So numbers
    /// follow the call, and all calls wait for keys in the same order.
    fn number_in_order(&mut self, tasks: &mut [Fresh<'_>]) -> Outcome<()> {
        let rows = self.one(ask!(NUMBERS, clamp(tasks.len())))?;
        let numbers: Vec<i64> = row::value(first(&rows)?, 0)?;
        for (fresh, number) in tasks.iter_mut().zip(numbers) {
            fresh.number = Some(number);
        }
        tasks.sort_unstable_by(|a, b| a.task.key.cmp(&b.task.key));
        Ok(())
    }

    /// Inserts distinct tasks, and notes the outcome of each at its index. Returns false if it inserted none because
    /// one of them may be capped.
    fn insert_piece(
        &mut self,
        tasks: &[Fresh<'_>],
        found: &mut [Option<Inserted>],
        unless_capped: bool,
    ) -> Outcome<bool> {
        let mut left = tasks.to_vec();
        left.sort_unstable_by(|a, b| a.task.key.cmp(&b.task.key));
        for _ in 0..LOOKS {
            // All of them are sent at once.
            let is_last = self.is_last() && left.len() == found.len();
            let are_plain = || left.iter().all(|fresh| fresh.number.is_none() && fresh.task.due.is_none());
            // Most tasks are new.
            let are_new = is_last && left.len() > 1 && are_plain();
            let (is_last, statement) = match &left[..] {
                [Fresh { task, number: None, .. }] => (is_last, enqueue_one(task, is_last, unless_capped)?),
                left => (are_new, enqueue(left, are_new, unless_capped)?),
            };
            let answer = self.one_or_last(is_last, statement)?;
            if are_new {
                let numbers: Vec<i64> = row::value(first(&answer)?, 0)?;
                let new = numbers.into_iter().map(|no| Inserted::New(TaskId(no)));
                found.iter_mut().zip(new).for_each(|(found, new)| *found = Some(new));
                return Ok(true);
            }
            let mut is_capped = false;
            for row in answer {
                if row::value::<Option<i64>>(&row, 0)?.is_none() {
                    is_capped = true;
                    continue;
                }
                let id = TaskId(row::value(&row, 1)?);
                let answer = if row::value(&row, 2)? { Inserted::New(id) } else { Inserted::Exists(id) };
                let asked = left.get(row::place(&row, 0)?);
                if let Some(found) = asked.and_then(|fresh| found.get_mut(fresh.place)) {
                    *found = Some(answer);
                }
            }
            // A task with the same key was committed after the statement began.
            left.retain(|fresh| found.get(fresh.place).is_some_and(Option::is_none));
            if left.is_empty() {
                self.repeats |= found.iter().flatten().all(|answer| matches!(answer, Inserted::Exists(_)));
                return Ok(true);
            }
            if is_capped {
                return Ok(false);
            }
        }
        let text = "a task was inserted and deleted by others, again and again: call again";
        Err(Fault::Server(StoreError::conflict(text)))
    }

    pub(super) fn tasks(&mut self, keys: &[TaskKey]) -> Outcome<Vec<Option<TaskRecord>>> {
        let mut asked = Keys::default();
        keys.iter().for_each(|key| asked.push(key));
        let Keys { namespaces, workflows, runs, tasks, map_indices } = asked;
        self.found(keys.len(), ask!(BY_KEY, namespaces, workflows, runs, tasks, map_indices))
    }

    pub(super) fn tasks_by_id(&mut self, ids: &[TaskId]) -> Outcome<Vec<Option<TaskRecord>>> {
        let asked: Vec<i64> = ids.iter().map(|id| id.0).collect();
        self.found(ids.len(), ask!(BY_NO, asked))
    }

    fn found(&mut self, len: usize, statement: Statement) -> Outcome<Vec<Option<TaskRecord>>> {
        let mut found = vec![None; len];
        if len == 0 {
            return Ok(found);
        }
        for row in self.one(statement)? {
            if let Some(found) = found.get_mut(row::place(&row, row::AFTER_TASK)?) {
                *found = Some(row::noted_task(self, &row, row::AFTER_TASK + 1)?);
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::NewTask;

    fn lengths(payloads: &[usize]) -> Vec<usize> {
        let task = |bytes: &usize| {
            let task = NewTask::new(TaskKey::new("n", "w", "r", "t").unwrap()).payload("x".repeat(*bytes));
            task.check(Timestamp::UNIX_EPOCH).unwrap()
        };
        let tasks: Vec<TaskInsert> = payloads.iter().map(task).collect();
        let fresh: Vec<Fresh<'_>> = tasks.iter().map(|task| Fresh { task, place: 0, number: None }).collect();
        pieces(&fresh).map(<[Fresh<'_>]>::len).collect()
    }

    #[test]
    fn a_piece_ends_after_so_many_tasks_or_so_many_bytes() {
        assert!(lengths(&[]).is_empty());
        assert_eq!(lengths(&[1; 3]), [3]);
        assert_eq!(lengths(&vec![0; 2 * PIECE + 1]), [PIECE, PIECE, 1]);
        let megabyte = 1 << 20;
        assert_eq!(lengths(&[megabyte; 40]), [17, 17, 6]);
    }
}
