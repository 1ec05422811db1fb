//! A transaction: the state, and how to undo the changes made to it.

use super::course::Course;
use super::state::{Numbers, State, Write};
use crate::error::{StoreError, StoreErrorKind, StoreResult};
use crate::lease::TaskId;
use crate::store::TxMode;

/// What undoes the changes of a transaction, from the last to the first.
#[derive(Debug, Default)]
pub(super) struct Undo {
    steps: Vec<Step>,
    /// The previous courses of tasks. Most changes are of a course, and a list of their own saves an allocation for
    /// each.
    courses: Vec<Course>,
}

#[derive(Debug)]
enum Step {
    Write(Write),
    /// The last of the courses.
    Course(TaskId),
}

impl Undo {
    pub(super) fn push_course(&mut self, id: TaskId, before: Course) {
        self.steps.push(Step::Course(id));
        self.courses.push(before);
    }

    fn apply(&mut self, state: &mut State) {
        while let Some(step) = self.steps.pop() {
            match step {
                Step::Write(write) => drop(state.swap(write)),
                Step::Course(id) => {
                    if let Some(course) = self.courses.pop() {
                        state.tasks.put_course(id, course, &mut state.lanes);
                    }
                }
            }
        }
    }
}

/// Writes directly to the state. Undoes everything when dropped without a commit: after an error, and while a
/// panic of its body unwinds.
#[derive(Debug)]
pub(super) struct Transaction<'a> {
    pub(super) state: &'a mut State,
    mode: TxMode,
    pub(super) undo: Undo,
    began: Numbers,
}

impl<'a> Transaction<'a> {
    pub(super) fn begin(state: &'a mut State, mode: TxMode) -> Self {
        let began = state.last;
        Self { state, mode, undo: Undo::default(), began }
    }

    /// Keeps what was written. Returns the replaced rows, so that the caller can drop them after it has
    /// released the lock.
    pub(super) fn commit(mut self) -> Undo {
        self.began = self.state.last;
        std::mem::take(&mut self.undo)
    }

    /// Returns an error in a transaction that only reads.
    pub(super) fn writable(&self) -> StoreResult<()> {
        match self.mode {
            TxMode::Write => Ok(()),
            TxMode::Read => Err(StoreError::new(
                StoreErrorKind::ReadOnly,
                "a transaction that only reads was asked to write: begin it with TxMode::Write",
            )),
        }
    }

    pub(super) fn write(&mut self, write: Write) {
        let undo = self.state.swap(write);
        self.note(undo);
    }

    /// Records the write that undoes a change.
    pub(super) fn note(&mut self, undo: Write) {
        self.undo.steps.push(Step::Write(undo));
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        std::mem::take(&mut self.undo).apply(self.state);
        self.state.last = self.began;
    }
}

/// Returns the error for a caller's mistake. The call changed nothing.
pub(super) fn misuse(what: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Backend, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::PoolName;

    fn forget_the_default_pool(transaction: &mut Transaction<'_>) {
        transaction.state.last.task += 1;
        transaction.write(Write::Pool(PoolName::default_pool(), None));
    }

    #[test]
    fn a_drop_undoes_and_a_commit_keeps() {
        let mut state = State::default();
        let before = state.clone();
        forget_the_default_pool(&mut Transaction::begin(&mut state, TxMode::Write));
        assert_eq!(state, before);

        let mut transaction = Transaction::begin(&mut state, TxMode::Write);
        forget_the_default_pool(&mut transaction);
        assert_eq!(transaction.commit().steps.len(), 1);
        assert_ne!(state, before);
    }

    #[test]
    fn writes_are_undone_from_the_last_to_the_first() {
        let mut state = State::default();
        let before = state.clone();
        let mut transaction = Transaction::begin(&mut state, TxMode::Write);
        let pool = transaction.state.pools.rows[&PoolName::default_pool()].clone();
        forget_the_default_pool(&mut transaction);
        transaction.write(Write::Pool(PoolName::default_pool(), Some(pool)));
        forget_the_default_pool(&mut transaction);
        drop(transaction);
        assert_eq!(state, before);
    }
}
