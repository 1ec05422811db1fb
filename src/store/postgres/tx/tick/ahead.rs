//! A whole tick in one round trip, for ticks that have nothing to decide.

use super::super::super::error::Outcome;
use super::super::super::tick_lock::FLUSH_NOTED;
use super::super::super::wire::{Answer, ask};
use super::super::queue::serving_of_texts;
use super::super::rules::Beside;
use super::super::{Db, Digest, clamp, first, row};
use super::survey::{Around, Asked, POOL, SERVING};
use crate::store::contract::SurveyQuery;
use crate::store::sql::records;
use crate::task::TaskRecord;
use crate::time::duration_micros;

/// Takes the tick lock itself. So the lock is held while the server responds to one message, and not to four.
pub(in super::super::super) const TICK_AHEAD: &str = include_str!("ahead.sql");

/// For more than this, the plans of statements are a small part of a tick's cost.
const MOST: usize = 64;

/// The columns of the next due instant, of whether an end was fed, and of whether nothing was freed, and the first one
/// of a granted task.
const DUE: usize = SERVING + 1;
const FED: usize = DUE + 1;
const FREES_NOTHING: usize = FED + 1;
const TASK: usize = FREES_NOTHING + 1;

impl Db<'_> {
    /// Surveys, grants and commits in one round trip, if that is allowed and the tick probably has nothing to decide.
    /// Returns `None` if it did not try.
    pub(super) fn tick_ahead(&mut self, query: &SurveyQuery) -> Outcome<Option<(Asked, Vec<TaskRecord>)>> {
        let (Some(ahead), Some(promote), Some(request)) = (&query.ahead, query.promote, &query.request)
        else {
            return Ok(None);
        };
        let ends = self.deferred.as_ref().map_or(0, |deferred| deferred.ends.len());
        let may = self.is_last() && !self.reaches.holds_lock && query.budget.max(ends) <= MOST;
        if !may || !self.habits.ticks_ahead() {
            return Ok(None);
        }
        let now = promote.now.as_micros();
        let tick = ask!(
            TICK_AHEAD,
            request.as_str(),
            ahead.replaces.as_str(),
            ahead.holder.as_str(),
            duration_micros(ahead.lease),
            clamp(query.budget),
            now,
            ahead.forget.before.as_micros(),
            clamp(ahead.forget.limit),
            (promote.now + ahead.lease).as_micros(),
            i64::from(ahead.started),
        );
        let flush = ask!(FLUSH_NOTED, request.as_str(), i64::from(self.hands_out));
        let mut lanes = self.one_ahead(tick, flush)?;
        let grants = lanes.split_off(lanes.len().min(1));
        let asked = {
            let all = first(&lanes)?;
            let is_fed: Option<bool> = row::value(all, FED)?;
            self.announcements.fed(is_fed == Some(true));
            if row::value::<Option<bool>>(all, FREES_NOTHING)? == Some(true) {
                self.announcements.freed_nothing();
            }
            let serving = serving_of_texts(row::value(all, SERVING)?)?;
            let (due, is_ready) = (row::value(all, DUE)?, row::value::<Option<Digest>>(all, 0)?.is_some());
            let pools = if is_ready { vec![records::pool_at(all, POOL)?] } else { Vec::new() };
            if is_ready {
                // The rows of tasks have only the lane's digest.
                self.lane(all, 0, 2)?;
            } else {
                lanes.clear();
            }
            let around = Around { due: [due; 2], serving, beside: Beside::default() };
            let (limits, shares) = (Answer::new(), Answer::new());
            Asked {
                granted: None,
                promoted: 0,
                lanes,
                pools,
                limits,
                shares,
                around,
                is_behind: false,
                live: 0,
            }
        };
        let tasks =
            grants.iter().map(|row| row::task_from(self, row, TASK)).collect::<Outcome<Vec<TaskRecord>>>()?;
        Ok(Some((asked, in_order(tasks))))
    }
}

/// Sorts tasks in the order of admission. The rows of a grant have no order.
fn in_order(mut tasks: Vec<TaskRecord>) -> Vec<TaskRecord> {
    tasks.sort_by_key(TaskRecord::order);
    tasks
}
