//! Simulates what other transactions do at the same time, for tests of verbs on stores with one writer at a time.

use std::collections::HashSet;
use std::fmt;

use parking_lot::Mutex;

use crate::error::StoreResult;
use crate::lease::TaskId;
use crate::run::RunKey;
use crate::store::contract::StoreTx;

type Change = Box<dyn FnMut(&mut dyn StoreTx) -> StoreResult<()> + Send>;

/// A change that comes before each of the next calls of one method.
pub(super) struct Interference {
    pub(super) call: &'static str,
    pub(super) times: usize,
    pub(super) change: Change,
}

/// Other transactions: what they change in between, and what they hold.
#[derive(Default)]
pub(super) struct Others {
    interference: Mutex<Option<Interference>>,
    held: Mutex<(HashSet<TaskId>, HashSet<RunKey>)>,
}

impl fmt::Debug for Others {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Others").field("held", &self.held).finish_non_exhaustive()
    }
}

impl Others {
    pub(super) fn interfere(&self, interference: Interference) {
        *self.interference.lock() = Some(interference);
    }

    pub(super) fn hold(&self, tasks: &[TaskId], runs: &[RunKey]) {
        *self.held.lock() = (tasks.iter().copied().collect(), runs.iter().cloned().collect());
    }

    /// Makes the change that is due before this call.
    pub(super) fn come_before(&self, call: &'static str, tx: &mut dyn StoreTx) -> StoreResult<()> {
        let mut place = self.interference.lock();
        let Some(mut next) = place.take_if(|next| next.call == call) else { return Ok(()) };
        next.times -= 1;
        (next.change)(tx)?;
        if next.times > 0 {
            *place = Some(next);
        }
        Ok(())
    }

    pub(super) fn hold_task(&self, task: TaskId) -> bool {
        self.held.lock().0.contains(&task)
    }

    pub(super) fn hold_run(&self, run: &RunKey) -> bool {
        self.held.lock().1.contains(run)
    }
}
