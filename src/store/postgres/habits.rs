//! What a store's last transactions were like. The next ones are expected to be alike, and cost more if they are not.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::store::TxMode;

/// For how many transactions no commit is sent along after one that was too early.
const PAUSE: u32 = 64;

#[derive(Debug, Default)]
pub(super) struct Habits {
    /// For how many more transactions no commit is sent along.
    commits_apart: AtomicU32,
    /// Whether ready lanes carried limits.
    has_limits: AtomicBool,
}

impl Habits {
    /// Returns true if the commit may go along with the last statement of a transaction.
    ///
    /// If a verb has to go on after a commit was sent along, it is undone, and run again. If that happens to one verb,
    /// such as the ends of tasks whose attempts are recorded as runs, it will happen to the next ones.
    pub(super) fn commits_along(&self, mode: TxMode) -> bool {
        let apart = &self.commits_apart;
        mode == TxMode::Write
            && apart.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err()
    }

    /// Notes that a commit that was sent along was too early.
    pub(super) fn committed_too_soon(&self) {
        self.commits_apart.store(PAUSE, Ordering::Relaxed);
    }

    /// Returns true if a tick should ask for limits before it knows whether a lane carries one.
    pub(super) fn has_limits(&self) -> bool {
        self.has_limits.load(Ordering::Relaxed)
    }

    pub(super) fn met_limits(&self, met: bool) {
        self.has_limits.store(met, Ordering::Relaxed);
    }
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
}
