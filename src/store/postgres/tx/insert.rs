//! Inserting tasks, and finding them.

use std::collections::HashMap;

use sha1::{Digest, Sha1};

use super::super::error::{Fault, Outcome};
use super::super::text::escape;
use super::super::wire::{Statement, ask};
use super::{Db, row};
use crate::admission::LaneKey;
use crate::backoff::RetryPolicy;
use crate::id::TaskKey;
use crate::lease::TaskId;
use crate::store::Inserted;
use crate::store::sql::codes::{Code, lease_loss, task_state};
use crate::task::{TaskInsert, TaskRecord, TaskState};
use crate::time::Timestamp;

/// The most tasks that one statement inserts: it must end within the server's limit for statements, however
/// many tasks a caller enqueues, and takes about 0.15 s for them.
const PIECE: usize = 10_000;

/// One more task does not go into a statement whose payloads are longer than this together.
const PIECE_BYTES: usize = 16 << 20;

/// The keys differ from each other, and so do the lanes; `lane_at` is the place of a task's lane among them.
///
/// Numbers rise with the places of what is new: of tasks, and of lanes by the first new task in them. All of
/// it is decided on what was there before, which every part of the statement sees.
pub(super) const INSERT: &str = concat!(
    "WITH given AS MATERIALIZED (SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], \
       $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::text[], $13::text[], \
       $14::text[], $15::text[], $16::text[], $17::text[]) \
       WITH ORDINALITY given (lane_at, state, due, rank, logical_date, map_index, priority, lease_loss, attempt_runs, \
         enqueued_at, ready_at, namespace, workflow, run, task, retry, payload, place)), ",
    "found AS MATERIALIZED (SELECT given.place, task.no FROM given CROSS JOIN LATERAL ( \
       SELECT no FROM sm.task WHERE namespace = given.namespace AND workflow = given.workflow AND run = given.run \
         AND task = given.task AND map_index = given.map_index OFFSET 0) task), ",
    "fresh AS MATERIALIZED (SELECT given.*, row_number() OVER (ORDER BY place) AS nth FROM given \
       WHERE NOT EXISTS (SELECT FROM found WHERE found.place = given.place)), ",
    "entered AS MATERIALIZED (SELECT lane_at, min(place) AS first, count(*) AS tasks, \
       count(*) FILTER (WHERE due IS NULL) AS ready FROM fresh GROUP BY lane_at), ",
    "asked AS MATERIALIZED (SELECT lane.*, first, tasks, ready \
       FROM unnest($18::bigint[], $19::text[], $20::bigint[], $21::text[]) \
       WITH ORDINALITY lane (digest, pool, slots, limits, at) JOIN entered ON entered.lane_at = lane.at), ",
    "known AS MATERIALIZED (SELECT asked.at, lane.no FROM asked CROSS JOIN LATERAL ( \
       SELECT no FROM sm.lane WHERE lane.digest = asked.digest AND lane.pool = asked.pool AND lane.slots = asked.slots \
         AND lane.limits = asked.limits OFFSET 0) lane), ",
    "opened AS MATERIALIZED (SELECT asked.*, (SELECT value FROM sm.counter WHERE name = 'lane') \
         + row_number() OVER (ORDER BY first) AS no \
       FROM asked WHERE NOT EXISTS (SELECT FROM known WHERE known.at = asked.at)), ",
    "lanes AS MATERIALIZED (SELECT at, no FROM known UNION ALL SELECT at, no FROM opened), ",
    "new_lanes AS (INSERT INTO sm.lane (no, digest, pool, slots, limits, tasks, ready) \
       SELECT no, digest, pool, slots, limits, tasks, ready FROM opened), ",
    "old_lanes AS (UPDATE sm.lane SET tasks = lane.tasks + asked.tasks, ready = lane.ready + asked.ready \
       FROM known JOIN asked ON asked.at = known.at WHERE lane.no = known.no), ",
    "limits AS (INSERT INTO sm.task_limit AS task_limit (key, lanes) SELECT named.key, count(*) \
       FROM opened CROSS JOIN LATERAL json_array_elements_text(opened.limits::json) named (key) GROUP BY named.key \
       ON CONFLICT (key) DO UPDATE SET lanes = task_limit.lanes + excluded.lanes), ",
    "last AS MATERIALIZED (SELECT value FROM sm.counter WHERE name = 'task'), ",
    "new_tasks AS (INSERT INTO sm.task (no, state, due, lane, slots, rank, logical_date, map_index, priority, lease_loss, \
         attempt_runs, enqueued_at, ready_at, namespace, workflow, run, task, retry, payload) \
       SELECT last.value + fresh.nth, fresh.state, fresh.due, lanes.no, asked.slots, fresh.rank, fresh.logical_date, \
         fresh.map_index, fresh.priority, fresh.lease_loss, fresh.attempt_runs, fresh.enqueued_at, fresh.ready_at, \
         fresh.namespace, fresh.workflow, fresh.run, fresh.task, fresh.retry, fresh.payload \
       FROM last CROSS JOIN fresh JOIN lanes ON lanes.at = fresh.lane_at JOIN asked ON asked.at = fresh.lane_at), ",
    "counters AS (UPDATE sm.counter SET value = value + more \
       FROM (VALUES ('task', (SELECT count(*) FROM fresh)), ('lane', (SELECT count(*) FROM opened))) risen (name, more) \
       WHERE counter.name = risen.name AND more > 0) ",
    "SELECT place, no, FALSE FROM found UNION ALL SELECT place, last.value + nth, TRUE FROM last CROSS JOIN fresh"
);
pub(super) const BY_KEY: &str = concat!(
    "SELECT ",
    row::task_columns!(),
    ", place FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[]) \
       WITH ORDINALITY given (namespace, workflow, run, task, map_index, place) \
     CROSS JOIN LATERAL (SELECT * FROM sm.task WHERE namespace = given.namespace AND workflow = given.workflow \
       AND run = given.run AND task = given.task AND map_index = given.map_index OFFSET 0) task \
     CROSS JOIN LATERAL (SELECT * FROM sm.lane WHERE lane.no = task.lane OFFSET 0) lane"
);
pub(super) const BY_NO: &str = concat!(
    "SELECT ",
    row::task_columns!(),
    ", place FROM unnest($1::bigint[]) WITH ORDINALITY given (no, place) \
     CROSS JOIN LATERAL (SELECT * FROM sm.task WHERE task.no = given.no OFFSET 0) task \
     CROSS JOIN LATERAL (SELECT * FROM sm.lane WHERE lane.no = task.lane OFFSET 0) lane"
);

/// Keys as five arrays.
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

/// Lanes as four arrays.
#[derive(Default)]
struct Lanes<'k> {
    places: HashMap<&'k LaneKey, i64>,
    digests: Vec<i64>,
    pools: Vec<String>,
    slots: Vec<i64>,
    limits: Vec<String>,
}

impl<'k> Lanes<'k> {
    /// Returns the place of a lane, counted from 1.
    fn place(&mut self, key: &'k LaneKey) -> Outcome<i64> {
        if let Some(place) = self.places.get(key) {
            return Ok(*place);
        }
        let limits = serde_json::to_string(&key.limits)?;
        self.digests.push(digest(key, &limits));
        self.pools.push(key.pool.as_str().into());
        self.slots.push(key.slots.into());
        self.limits.push(limits);
        let place = super::clamp(self.digests.len());
        self.places.insert(key, place);
        Ok(place)
    }
}

/// Finds a lane. What is found is compared with all of the key.
fn digest(key: &LaneKey, limits: &str) -> i64 {
    let digest = Sha1::new()
        .chain_update(key.slots.to_be_bytes())
        .chain_update(key.pool.as_str().len().to_be_bytes())
        .chain_update(key.pool.as_str())
        .chain_update(limits)
        .finalize();
    digest.iter().take(8).fold(0, |number, byte| number << 8 | i64::from(*byte))
}

fn insert<'t>(tasks: impl Iterator<Item = &'t TaskInsert>) -> Outcome<Statement> {
    let (mut keys, mut lanes) = (Keys::default(), Lanes::default());
    let mut lane_at = Vec::new();
    let (mut states, mut dues, mut ranks, mut dates) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut priorities, mut losses, mut attempt_runs) = (Vec::new(), Vec::new(), Vec::new());
    let (mut enqueued, mut ready, mut retries, mut payloads) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for task in tasks {
        keys.push(&task.key);
        lane_at.push(lanes.place(&task.lane)?);
        states.push(task_state(TaskState::Scheduled, task.due));
        dues.push(task.due.map(Timestamp::as_micros));
        ranks.push(task.rank);
        dates.push(task.logical_date.as_micros());
        priorities.push(i64::from(task.priority));
        losses.push(lease_loss(task.lease_loss));
        attempt_runs.push(task.attempt_runs.code());
        enqueued.push(task.enqueued_at.as_micros());
        ready.push(task.due.unwrap_or(task.enqueued_at).as_micros());
        let retries_any = task.retry != RetryPolicy::none();
        retries.push(retries_any.then(|| serde_json::to_string(&task.retry)).transpose()?);
        payloads.push(escape(&task.payload).into_owned());
    }
    Ok(ask!(
        INSERT,
        lane_at,
        states,
        dues,
        ranks,
        dates,
        keys.map_indices,
        priorities,
        losses,
        attempt_runs,
        enqueued,
        ready,
        keys.namespaces,
        keys.workflows,
        keys.runs,
        keys.tasks,
        retries,
        payloads,
        lanes.digests,
        lanes.pools,
        lanes.slots,
        lanes.limits,
    ))
}

/// Returns the tasks in pieces of at most [`PIECE`] and about [`PIECE_BYTES`].
fn pieces(mut tasks: &[TaskInsert]) -> impl Iterator<Item = &[TaskInsert]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |task: &&TaskInsert| {
            let begun = bytes > PIECE_BYTES;
            bytes += task.payload.len();
            !begun
        };
        let len = tasks.iter().take(PIECE).take_while(fits).count();
        let (piece, rest) = tasks.split_at(len);
        tasks = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

impl Db<'_> {
    pub(super) fn insert_tasks_if_absent(&mut self, tasks: &[TaskInsert]) -> Outcome<Vec<Inserted>> {
        let mut answers = Vec::with_capacity(tasks.len());
        for piece in pieces(tasks) {
            answers.extend(self.insert_piece(piece)?);
        }
        Ok(answers)
    }

    fn insert_piece(&mut self, tasks: &[TaskInsert]) -> Outcome<Vec<Inserted>> {
        let mut first: HashMap<&TaskKey, usize> = HashMap::with_capacity(tasks.len());
        let mut distinct = Vec::with_capacity(tasks.len());
        for task in tasks {
            first.entry(&task.key).or_insert_with(|| {
                distinct.push(task);
                distinct.len() - 1
            });
        }
        let mut found: Vec<Option<Inserted>> = vec![None; distinct.len()];
        for row in self.one(insert(distinct.into_iter())?)? {
            let id = TaskId(row::value(&row, 1)?);
            let answer = if row::value(&row, 2)? { Inserted::New(id) } else { Inserted::Exists(id) };
            if let Some(found) = found.get_mut(row::place(&row, 0)?) {
                *found = Some(answer);
            }
        }
        let answer = |task: &TaskInsert| {
            let answer = first.get(&task.key).and_then(|at| found.get_mut(*at)).and_then(Option::as_mut);
            let answer = answer
                .ok_or_else(|| Fault::Damaged(format!("task {} was neither inserted nor found", task.key)))?;
            let told = *answer;
            if let Inserted::New(id) = told {
                *answer = Inserted::Exists(id);
            }
            Ok(told)
        };
        tasks.iter().map(answer).collect()
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
                *found = Some(row::task(self, &row)?);
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
        pieces(&tasks).map(<[TaskInsert]>::len).collect()
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
