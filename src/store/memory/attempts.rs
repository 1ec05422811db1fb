//! The kept attempts of tasks.

use super::state::Write;
use super::undo::Transaction;
use crate::core::task::attempt::{PastAttempt, is_of_latest_grants};
use crate::store::contract::Move;
use crate::task::TaskRecord;

impl Transaction<'_> {
    /// Keeps the attempt that this move of the task ends, if the task opted in.
    pub(super) fn keep_attempt(&mut self, was: &TaskRecord, order: &Move) {
        if !was.keep_attempts.keep(was.state, order.to) {
            return;
        }
        let at = order.ended_at.or(order.at).unwrap_or(was.ready_at);
        let past = PastAttempt::of(was, order.to, order.finished, at, order.message.as_ref());
        let mut kept = self.state.attempts.get(&was.id).cloned().unwrap_or_default();
        if kept.iter().all(|other| other.epoch != was.epoch) {
            kept.push(past);
        }
        kept.retain(|other| is_of_latest_grants(other.epoch, was.epoch));
        self.write(Write::Attempts(was.id, Some(kept)));
    }
}
