//! Which reader of a consumer has its turn, and what the consumer lost.

use std::time::Duration;

use super::{Consumer, TaskEvent};
use crate::id::Holder;
use crate::time::Timestamp;

/// Whether a reader has its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It has, and the consumer is this from now on.
    Mine(Consumer),
    /// Another reader has it until this instant, unless it renews its turn.
    Others(Timestamp),
}

/// Decides whether `reader` may read. A consumer without a row begins behind event `begin`.
pub(crate) fn take(
    was: Option<Consumer>,
    (name, reader): (&Holder, i64),
    (now, turn): (Timestamp, Duration),
    begin: u64,
) -> Turn {
    let until = now + turn;
    match was {
        // A clock that was set back must not make it wait longer than a turn.
        Some(was) if was.reader != reader && was.until > now && was.until <= until => Turn::Others(was.until),
        Some(was) => {
            Turn::Mine(Consumer { seen_at: now.max(was.seen_at), dropped: false, reader, until, ..was })
        }
        None => Turn::Mine(Consumer {
            name: name.clone(),
            cursor: begin,
            seen_at: now,
            lost: 0,
            dropped: false,
            reader,
            until,
        }),
    }
}

/// Returns how many events stood between the cursor and the next one. Numbers have no gap, so these are gone.
pub(crate) fn lost_before(cursor: u64, next: &TaskEvent) -> u64 {
    next.seq.saturating_sub(cursor).saturating_sub(1)
}

/// Returns up to which number events may be deleted as accepted: none without consumers, all if each of them was
/// dropped.
pub(crate) fn accepted(consumers: &[Consumer]) -> u64 {
    match consumers {
        [] => 0,
        some => {
            some.iter().filter(|consumer| !consumer.dropped).map(|one| one.cursor).min().unwrap_or(u64::MAX)
        }
    }
}

/// Returns true if this consumer was not seen for so long that it holds back no deletion any more.
pub(crate) fn is_gone(consumer: &Consumer, now: Timestamp, after: Duration) -> bool {
    !consumer.dropped && consumer.seen_at < now - after
}
