//! What a store's last transactions were like. The next ones are expected to be similar. A wrong guess only costs
//! more.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use super::looks::Looks;
use crate::store::TxMode;

/// How many transactions pass before something that failed is tried again.
const PAUSE: u32 = 64;

/// For how many more transactions something is not tried.
#[derive(Debug, Default)]
struct Pause(AtomicU32);

impl Pause {
    /// Returns true if the pause is over. Otherwise counts one transaction of it.
    fn is_over(&self) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err()
    }

    fn begin(&self) {
        self.0.store(PAUSE, Ordering::Relaxed);
    }

    fn end(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
pub(super) struct Habits {
    /// While commits are sent separately.
    commits_apart: Pause,
    /// While folds are expected to have many deltas.
    folds_many: Pause,
    /// While surveys are expected to return more than a few lanes.
    surveys_many: Pause,
    /// While no tick is sent ahead.
    ticks_in_parts: Pause,
    /// How many lanes the last short survey returned.
    lanes: AtomicUsize,
    /// Whether ready lanes carried limits.
    has_limits: AtomicBool,
    /// Whether lanes were filed.
    files_lanes: AtomicBool,
    /// How many ticks might have counted lanes.
    counted_lanes: AtomicU32,
    /// Where to look for leases that expire.
    pub(super) looks: Looks,
}

impl Habits {
    /// Returns true if the commit may be sent along with the last statement of a transaction, and ends with the
    /// statements after them.
    ///
    /// If a verb has to continue after its commit was sent along, it is rolled back and runs again. If that happens
    /// once, for example when tasks end whose attempts are recorded as runs, it will happen to the next ones.
    pub(super) fn commits_along(&self, mode: TxMode) -> bool {
        mode == TxMode::Write && self.commits_apart.is_over()
    }

    /// Notes that a commit was sent along too early.
    pub(super) fn committed_too_soon(&self) {
        self.commits_apart.begin();
    }

    /// Returns true if a tick should expect a few deltas of lanes without limits.
    pub(super) fn folds_few(&self) -> bool {
        !self.has_limits() && self.folds_many.is_over()
    }

    /// Notes that a fold had more deltas than expected.
    pub(super) fn folded_many(&self) {
        self.folds_many.begin();
    }

    /// Returns true if a tick that folds a few deltas should expect a few ready lanes and nothing rare.
    pub(super) fn surveys_few(&self) -> bool {
        self.surveys_many.is_over()
    }

    /// Notes that a survey had to return more than expected.
    pub(super) fn surveyed_many(&self) {
        self.surveys_many.begin();
    }

    /// Returns true if a tick should expect that it has nothing to decide.
    pub(super) fn ticks_ahead(&self) -> bool {
        !self.has_limits() && !self.files_lanes() && !self.is_to_count() && self.ticks_in_parts.is_over()
    }

    /// Notes that a tick that was sent ahead had something to decide.
    pub(super) fn had_to_decide(&self) {
        self.ticks_in_parts.begin();
    }

    /// Notes that a holder announced which queues it serves. Its ticks can be sent ahead only after that.
    pub(super) fn announced(&self) {
        self.ticks_in_parts.end();
    }

    /// Returns how many ready lanes a tick should expect.
    pub(super) fn lanes(&self) -> usize {
        self.lanes.load(Ordering::Relaxed)
    }

    pub(super) fn met_lanes(&self, lanes: usize) {
        self.lanes.store(lanes, Ordering::Relaxed);
    }

    /// Returns true if a tick should ask for limits before it knows whether a lane has one.
    pub(super) fn has_limits(&self) -> bool {
        self.has_limits.load(Ordering::Relaxed)
    }

    /// Returns true if a tick should expect that lanes are filed.
    pub(super) fn files_lanes(&self) -> bool {
        self.files_lanes.load(Ordering::Relaxed)
    }

    pub(super) fn file_lanes(&self, filed: bool) {
        self.files_lanes.store(filed, Ordering::Relaxed);
    }

    /// Returns true if this tick should count lanes, as one tick in many does. Counts the tick.
    pub(super) fn counts_lanes(&self) -> bool {
        is_last_of_pause(self.counted_lanes.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns true if the next tick should count lanes. A tick that is sent ahead does not.
    fn is_to_count(&self) -> bool {
        is_last_of_pause(self.counted_lanes.load(Ordering::Relaxed))
    }

    pub(super) fn met_limits(&self, met: bool) {
        self.has_limits.store(met, Ordering::Relaxed);
    }
}

fn is_last_of_pause(passed: u32) -> bool {
    passed % PAUSE == PAUSE - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_commit_that_was_too_soon_none_goes_along_for_a_while() {
        let habits = Habits::default();
        assert!(habits.commits_along(TxMode::Write) && !habits.commits_along(TxMode::Read));
        habits.committed_too_soon();
        assert_eq!((0..1_000).position(|_| habits.commits_along(TxMode::Write)), Some(64));
        assert!(habits.commits_along(TxMode::Write));
    }

    #[test]
    fn after_a_survey_of_many_lanes_none_is_short_for_a_while() {
        let habits = Habits::default();
        assert!(habits.surveys_few());
        habits.surveyed_many();
        assert_eq!((0..1_000).position(|_| habits.surveys_few()), Some(64));
    }

    #[test]
    fn folds_are_of_many_for_a_while_after_one_and_wherever_lanes_carry_limits() {
        let habits = Habits::default();
        habits.met_limits(true);
        assert!(!habits.folds_few());
        habits.met_limits(false);
        assert!(habits.folds_few());
        habits.folded_many();
        assert_eq!((0..1_000).position(|_| habits.folds_few()), Some(64));
    }
}
