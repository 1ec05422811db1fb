//! Folds when no admitter runs.
//!
//! Each tick folds the deltas that transactions appended to counters. Without ticks, readers of sums would have to add
//! up more and more deltas. So services also fold when a look shows that no one else did.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::error::Outcome;
use super::options::PostgresOptions;
use super::pool::Pool;
use super::sessions::transact;
use super::tick_lock;
use super::tx::{FOLD, Folded, MOST_FOLDED, first, is_whole, row};
use super::wire::{Touch, ask};
use crate::error::StoreError;
use crate::store::TxMode;

/// How often a store looks.
const PAUSE: Duration = Duration::from_secs(10);

/// Counts at most as many deltas as one fold takes. If there are that many, ticks do not keep up or do not run.
const BACKLOG: &str = "SELECT count(*) FROM (SELECT FROM sm.unfolded LIMIT $1::bigint) unfolded";

/// The most folds after one look. Each has its own transaction.
const FOLDS: usize = 10;

/// When to look next.
#[derive(Debug, Default)]
pub(super) struct Folding(Mutex<Option<Instant>>);

impl Folding {
    /// Checks the backlog after a transaction of a service, and folds if necessary. That transaction succeeded, so the
    /// next look retries after a failure here, and the next tick reports damage.
    pub(super) fn attend(&self, pool: &Arc<Pool>, options: &PostgresOptions) {
        if self.is_due(Instant::now()) {
            let _ = look(pool, options);
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        let mut next = self.0.lock();
        let is_due = next.is_none_or(|next| next <= now);
        if is_due {
            *next = Some(now + PAUSE);
        }
        is_due
    }
}

fn look(pool: &Arc<Pool>, options: &PostgresOptions) -> Result<(), StoreError> {
    let mut is_behind = false;
    transact(pool, options, TxMode::Read, |mut wire| -> Result<bool, StoreError> {
        let answers = wire.send(vec![ask!(BACKLOG, MOST_FOLDED)], Touch::Reads)?;
        let counted: Outcome<usize> = answers.first().map_or(Ok(0), |rows| row::whole(first(rows)?, 0));
        is_behind = i64::try_from(counted?).is_ok_and(|count| count >= MOST_FOLDED);
        Ok(false)
    })?;
    for _ in 0..FOLDS {
        if !is_behind {
            break;
        }
        transact(pool, options, TxMode::Write, |mut wire| -> Result<bool, StoreError> {
            let fold = vec![ask!(tick_lock::SHORT), ask!(tick_lock::TRY), ask!(FOLD, MOST_FOLDED, 0)];
            let answers = wire.send(fold, Touch::Writes)?;
            if let Some(answer) = answers.get(2) {
                let answer = first(answer)?;
                is_behind = !is_whole(answer)?;
                if let Some(changed) = Folded::read(answer)? {
                    wire.send(vec![changed.file()], Touch::Writes)?;
                }
            }
            // A fold that a server crash loses is repeated.
            Ok(false)
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_due_at_first_and_then_after_each_pause() {
        let (folding, now) = (Folding::default(), Instant::now());
        assert!(folding.is_due(now) && !folding.is_due(now));
        assert!(!folding.is_due(now + PAUSE / 2));
        assert!(folding.is_due(now + PAUSE) && !folding.is_due(now + PAUSE));
    }
}
