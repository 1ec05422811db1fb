//! Which reader of a consumer has the turn, and what the consumer lost.

use std::time::Duration;

use super::{Consumer, TaskEvent};
use crate::id::Holder;
use crate::time::Timestamp;

/// Whether a reader has the turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Turn {
    /// This reader has it. Contains the consumer as it is from now on.
    Mine(Consumer),
    /// Another reader has it until this instant, unless it renews its turn.
    Others(Timestamp),
}

/// Returns until when another reader has the turn; `None` if no other reader has it. A turn that would end
/// more than two turns from now counts as over: the clock that took it has since been set back. A turn that
/// ends sooner may belong to a reader whose clock is ahead or whose turn is longer.
pub(crate) fn others_until(
    was: &Consumer,
    reader: i64,
    (now, turn): (Timestamp, Duration),
) -> Option<Timestamp> {
    let is_theirs = was.reader != reader && was.until > now && was.until <= now + turn * 2;
    is_theirs.then_some(was.until)
}

/// Decides whether `reader` may read. A consumer without a row begins after event `begin`.
pub(crate) fn take(
    was: Option<Consumer>,
    (name, reader): (&Holder, i64),
    (now, turn): (Timestamp, Duration),
    begin: u64,
) -> Turn {
    if let Some(until) = was.as_ref().and_then(|was| others_until(was, reader, (now, turn))) {
        return Turn::Others(until);
    }
    let until = now + turn;
    let (cursor, lost, seen_at) = was.map_or((begin, 0, now), |was| (was.cursor, was.lost, was.seen_at));
    let seen_at = now.max(seen_at);
    Turn::Mine(Consumer { name: name.clone(), cursor, seen_at, lost, dropped: false, reader, until })
}

/// Returns how many events are missing between the cursor and the next event. Numbers have no gaps, so these
/// events were deleted.
pub(crate) fn lost_before(cursor: u64, next: &TaskEvent) -> u64 {
    next.seq.saturating_sub(cursor).saturating_sub(1)
}

/// Returns the number up to which events are accepted and may be deleted: 0 if there are no consumers, and
/// the maximum if every consumer was dropped.
pub(crate) fn accepted(consumers: &[Consumer]) -> u64 {
    match consumers {
        [] => 0,
        some => {
            some.iter().filter(|consumer| !consumer.dropped).map(|one| one.cursor).min().unwrap_or(u64::MAX)
        }
    }
}

/// Returns true if this consumer must be dropped, because it was not seen for too long. It then no longer
/// holds back deletion.
pub(crate) fn is_gone(consumer: &Consumer, now: Timestamp, after: Duration) -> bool {
    !consumer.dropped && consumer.seen_at < now - after
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: Duration = Duration::from_secs(30);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    fn taken(was: Option<Consumer>, reader: i64, now: i64) -> Turn {
        take(was, (&"c".try_into().unwrap(), reader), (at(now), TURN), 7)
    }

    fn mine(was: Option<Consumer>, reader: i64, now: i64) -> Consumer {
        match taken(was, reader, now) {
            Turn::Mine(mine) => mine,
            Turn::Others(until) => panic!("others until {until}"),
        }
    }

    #[test]
    fn a_turn_is_taken_once_and_by_others_when_it_is_over() {
        let first = mine(None, 1, 100);
        assert_eq!((first.cursor, first.until, first.seen_at), (7, at(130), at(100)));
        assert_eq!(mine(Some(first.clone()), 1, 110).until, at(140), "its own is renewed");
        assert_eq!(taken(Some(first.clone()), 2, 129), Turn::Others(at(130)));
        let second = mine(Some(first), 2, 130);
        assert_eq!((second.reader, second.cursor), (2, 7));
    }

    /// Two readers come at once. The one that read its clock first comes second.
    #[test]
    fn a_clock_that_is_behind_takes_no_turn_that_was_just_taken() {
        let first = mine(None, 1, 100);
        for behind in [99, 90, 70] {
            assert_eq!(taken(Some(first.clone()), 2, behind), Turn::Others(at(130)), "{behind}");
        }
        assert_eq!(mine(Some(first), 2, 69).reader, 2, "the other clock was set back");
    }

    #[test]
    fn a_consumer_that_was_dropped_comes_back_where_it_was() {
        let was = Consumer { dropped: true, lost: 3, cursor: 5, ..mine(None, 1, 100) };
        let back = mine(Some(was.clone()), 1, 50);
        assert_eq!((back.dropped, back.lost, back.cursor, back.seen_at), (false, 3, 5, at(100)));
        assert!(!is_gone(&was, at(999), TURN), "once");
        assert!(is_gone(&back, at(131), TURN) && !is_gone(&back, at(130), TURN));
    }

    #[test]
    fn what_all_accepted_may_go_and_those_that_were_dropped_do_not_count() {
        let with = |cursor, dropped| Consumer { cursor, dropped, ..mine(None, 1, 100) };
        assert_eq!(accepted(&[]), 0);
        assert_eq!(accepted(&[with(9, false), with(4, false), with(2, true)]), 4);
        assert_eq!(accepted(&[with(2, true)]), u64::MAX);
    }
}
