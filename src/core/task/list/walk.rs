//! The walks that make up a list of tasks, and places on them.

use serde::{Deserialize, Serialize};

use super::query::TaskQuery;
use crate::error::{StoreError, StoreErrorKind, StoreResult};
use crate::lease::TaskId;
use crate::task::TaskState;

/// The stage of its life that a task is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Waiting,
    Leased,
    Sensing,
    Ended,
}

impl Stage {
    pub(super) fn of(state: TaskState) -> Self {
        match state {
            state if state.is_end() => Self::Ended,
            state if state.is_leased() => Self::Leased,
            TaskState::Sensing => Self::Sensing,
            _ => Self::Waiting,
        }
    }

    pub(super) fn states(self) -> impl Iterator<Item = TaskState> {
        TaskState::ALL.into_iter().filter(move |state| Self::of(*state) == self)
    }
}

/// A walk through some of the tasks. No change to a task on it reverses the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Walk {
    /// All tasks, highest number first.
    Numbers,
    /// The tasks of the query's namespace, workflow and run, by key.
    Keys,
    /// The tasks that wait for an instant within the query's bounds, earliest first. Ties are in the order of
    /// admission.
    Due,
    /// The tasks in this state that wait for an instant, in the query's lanes.
    Later(TaskState),
    /// The ready tasks in the query's lanes, lane after lane, each in the order of admission.
    Ready,
    /// The tasks with a lease, or only those of the query's holder, by holder, then by number.
    Leases,
    /// The tasks that wait as sensors, in the query's lanes.
    Sensing,
    /// The tasks that ended in one of the query's states, no earlier than its bound, latest end first.
    Ends,
}

/// A place on a [`Walk`], right after a task. Only the store that returned it, and stores on the same rows,
/// can read it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Place {
    /// The numbers by which the walk is ordered.
    pub numbers: Vec<i64>,
    /// The texts by which the walk is ordered.
    pub texts: Vec<String>,
}

impl Place {
    /// Creates a place.
    pub fn new(numbers: impl Into<Vec<i64>>, texts: impl Into<Vec<String>>) -> Self {
        Self { numbers: numbers.into(), texts: texts.into() }
    }
}

/// One step on a [`Walk`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TaskWalk<'a> {
    /// Selects the tasks: those that it [wants](TaskQuery::wants).
    pub query: &'a TaskQuery,
    /// The walk.
    pub walk: Walk,
    /// Where to begin; `None` means at the beginning of the walk.
    pub after: Option<&'a Place>,
    /// The most tasks to find.
    pub most: usize,
    /// The most tasks to read, at least `most`.
    pub most_read: usize,
}

impl<'a> TaskWalk<'a> {
    /// Creates a step that starts at this place.
    pub fn new(query: &'a TaskQuery, walk: Walk, after: Option<&'a Place>, most: usize) -> Self {
        let most_read = most.saturating_add(TaskQuery::MOST_PASSED);
        Self { query, walk, after, most, most_read }
    }

    /// Returns the numbers and texts of the place after which the walk continues, or `None` at the beginning.
    ///
    /// # Errors
    ///
    /// Returns an error (kind `Backend`) if their count does not fit a place on this walk.
    pub(crate) fn place<const N: usize, const T: usize>(
        &self,
    ) -> StoreResult<Option<([i64; N], &'a [String; T])>> {
        let Some(place) = self.after else { return Ok(None) };
        let numbers = <[i64; N]>::try_from(&place.numbers[..]).ok();
        let texts = <&[String; T]>::try_from(&place.texts[..]).ok();
        numbers.zip(texts).map(Some).ok_or_else(|| {
            let text = "a list of tasks cannot go on here: this place is of another kind of store";
            StoreError::new(StoreErrorKind::Backend, text)
        })
    }

    /// Reads tasks in the order of the walk until it should stop. Each task comes with its number and whether
    /// it is wanted. `place` returns the place right after the task.
    pub(crate) fn gather<K>(
        &self,
        tasks: impl IntoIterator<Item = (K, TaskId, bool)>,
        place: impl Fn(K) -> Place,
    ) -> Walked {
        let mut gathered = Gathered::default();
        for (key, id, is_wanted) in tasks {
            if gathered.is_full_with(self, id, is_wanted) {
                return Walked::new(gathered.found, Some(place(key)));
            }
        }
        Walked::new(gathered.found, None)
    }
}

/// What a step has found so far.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) found: Vec<TaskId>,
    read: usize,
}

impl Gathered {
    /// Adds the next task if it is wanted. Returns true if the step ends with it.
    pub(crate) fn is_full_with(&mut self, step: &TaskWalk<'_>, id: TaskId, is_wanted: bool) -> bool {
        self.read += 1;
        self.found.extend(is_wanted.then_some(id));
        self.found.len() >= step.most || self.read >= step.most_read
    }
}

/// What a [`TaskWalk`] found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Walked {
    /// The tasks, in the order of the walk.
    pub found: Vec<TaskId>,
    /// Where to continue; `None` at the end of the walk.
    pub next: Option<Place>,
}

impl Walked {
    /// Creates the result of a step.
    pub fn new(found: Vec<TaskId>, next: Option<Place>) -> Self {
        Self { found, next }
    }
}

impl TaskQuery {
    /// Returns the walks whose results, one after the other, form the list.
    pub(crate) fn walks(&self) -> Vec<Walk> {
        if self.namespace.is_some() {
            return vec![Walk::Keys];
        }
        let states: Vec<TaskState> = self.possible().collect();
        let [first, rest @ ..] = &states[..] else { return Vec::new() };
        let stage = Stage::of(*first);
        if rest.iter().any(|state| Stage::of(*state) != stage) {
            return vec![Walk::Numbers];
        }
        let is_due = self.due_since.is_some() || self.due_before.is_some();
        match stage {
            Stage::Leased => vec![Walk::Leases],
            Stage::Sensing => vec![Walk::Sensing],
            Stage::Ended => vec![Walk::Ends],
            Stage::Waiting if is_due => vec![Walk::Due],
            // Tasks that wait for an instant come first, because they may become ready between two pages.
            Stage::Waiting => {
                let mut walks: Vec<Walk> = states.iter().rev().map(|state| Walk::Later(*state)).collect();
                walks.extend(states.contains(&TaskState::Scheduled).then_some(Walk::Ready));
                walks
            }
        }
    }

    /// Returns true if every task that the walk finds belongs to the list.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn is_exact(&self, walk: Walk) -> bool {
        let states = self.possible().count();
        match walk {
            Walk::Numbers => states == TaskState::ALL.len() && !self.asks_for_lanes(),
            Walk::Keys => states == TaskState::ALL.len() && !self.asks_for_lanes(),
            Walk::Due => states == Stage::Waiting.states().count() && !self.asks_for_lanes(),
            Walk::Later(_) | Walk::Ready | Walk::Sensing => true,
            Walk::Leases => states == Stage::Leased.states().count() && !self.asks_for_lanes(),
            Walk::Ends => !self.asks_for_lanes(),
        }
    }
}
