//! What tasks that are enqueued together have in common.

use std::collections::HashMap;

use super::super::error::Outcome;
use super::clamp;
use super::insert::{Lanes, retry};
use crate::store::sql::codes::lease_loss;
use crate::store::sql::records;
use crate::task::TaskInsert;
use crate::time::Timestamp;

/// All of a task but its run, name, map index and payload.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Shape<'t> {
    /// The place of its needs among the lanes, from 1.
    pub(super) lane: i64,
    pub(super) due: Option<i64>,
    pub(super) rank: i64,
    pub(super) logical_date: i64,
    pub(super) priority: i32,
    pub(super) lease_loss: Option<i64>,
    pub(super) attempt_runs: i64,
    pub(super) enqueued_at: i64,
    pub(super) namespace: &'t str,
    pub(super) workflow: &'t str,
    pub(super) retry: Option<String>,
}

/// Shapes, each once. So a statement receives few columns for each task.
#[derive(Default)]
pub(super) struct Shapes<'t> {
    lanes: Lanes<'t>,
    places: HashMap<Shape<'t>, i64>,
    latest: Option<(&'t TaskInsert, i64)>,
}

impl<'t> Shapes<'t> {
    /// Returns the index of a task's shape, counted from 1.
    pub(super) fn place(&mut self, task: &'t TaskInsert) -> Outcome<i64> {
        if let Some((latest, place)) = self.latest
            && has_shape(task, latest)
        {
            return Ok(place);
        }
        let shape = Shape {
            lane: self.lanes.place(&task.lane)?,
            due: task.due.map(Timestamp::as_micros),
            rank: task.rank,
            logical_date: task.logical_date.as_micros(),
            priority: task.priority,
            lease_loss: lease_loss(task.lease_loss),
            attempt_runs: records::notes(task),
            enqueued_at: task.enqueued_at.as_micros(),
            namespace: task.key.namespace.as_str(),
            workflow: task.key.workflow.as_str(),
            retry: retry(task)?,
        };
        let next = clamp(self.places.len()) + 1;
        let place = *self.places.entry(shape).or_insert(next);
        self.latest = Some((task, place));
        Ok(place)
    }

    /// Returns the shapes by index, and the lanes.
    pub(super) fn into_parts(self) -> (Vec<Shape<'t>>, Lanes<'t>) {
        let mut shapes: Vec<(Shape<'t>, i64)> = self.places.into_iter().collect();
        shapes.sort_unstable_by_key(|(_, place)| *place);
        (shapes.into_iter().map(|(shape, _)| shape).collect(), self.lanes)
    }
}

/// Returns true if a task has the shape of another one, without the work of making it.
fn has_shape(task: &TaskInsert, other: &TaskInsert) -> bool {
    let of = |task: &TaskInsert| {
        let instants = (task.due, task.logical_date, task.enqueued_at);
        (instants, task.rank, task.priority, lease_loss(task.lease_loss), records::notes(task))
    };
    of(task) == of(other)
        && task.lane == other.lane
        && task.key.namespace == other.key.namespace
        && task.key.workflow == other.key.workflow
        && task.retry == other.retry
}

/// Returns a value of each shape.
pub(super) fn of_each<T>(shapes: &[Shape<'_>], of: impl Fn(&Shape<'_>) -> T) -> Vec<T> {
    shapes.iter().map(of).collect()
}
