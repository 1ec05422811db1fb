//! The lock that keeps ticks from each other, and from what they plan with. See `docs/postgresql-protocol.md`,
//! section 4.
//!
//! It is taken in modes that tell who holds it. Nothing else of the store excludes others for longer than a
//! row.

use std::time::Duration;

/// Taken by a tick, before its first statement that looks.
pub(super) const TICK: &str = "LOCK TABLE sm.tick_lock IN EXCLUSIVE MODE";

/// Taken by who folds beside ticks. While anybody else has the lock, it fails at once: a tick folds, too, and
/// nobody folds while a host changes definitions.
pub(super) const TRY: &str = "LOCK TABLE sm.tick_lock IN EXCLUSIVE MODE NOWAIT";

/// Taken by each call that changes pools or limits, before it looks. A rollback to a savepoint gives it up, so
/// it is taken each time.
pub(super) const DEFINE: &str = "LOCK TABLE sm.tick_lock IN SHARE ROW EXCLUSIVE MODE";

/// Once it has the lock, a transaction of the store's own waits for a row no longer than this: all ticks would
/// wait with it.
pub(super) const SHORT_WAITS: &str = "SET LOCAL lock_timeout = 250";

/// Asks for the level of a transaction, without taking a snapshot.
pub(super) const LEVEL: &str = "SHOW transaction_isolation";

/// What who folds beside ticks sets, see [`ENTER`]. A shorter limit stays as it is.
pub(super) const SHORT: &str = "SELECT set_config('synchronous_commit', 'off', true), \
  CASE WHEN NOT current_setting('idle_in_transaction_session_timeout')::interval \
    BETWEEN interval '1 ms' AND interval '4 s' \
  THEN set_config('idle_in_transaction_session_timeout', '4s', true) END";

macro_rules! enter {
    ($more:literal) => {
        concat!(
            "SET LOCAL synchronous_commit = off; ",
            $more,
            "LOCK TABLE sm.tick_lock IN EXCLUSIVE MODE; SET LOCAL lock_timeout = 250"
        )
    };
}

/// What a tick of the store's own sets before it asks for the lock, the lock, and that it waits for rows no longer than
/// [`SHORT_WAITS`] says. Its client may stop at any time, and then it is ended. Its commit waits for no flush: that is
/// what [`FLUSH`] is for. One text: the server answers each message by itself, and wakes its client for it. Of
/// commands that need no plan.
pub(super) const ENTER: &str = enter!("SET LOCAL idle_in_transaction_session_timeout = 4000; ");

/// [`ENTER`] where a shorter limit is set.
const ENTER_LIMITED: &str = enter!("");

/// The longest that a tick lets its client be silent.
const LONGEST_SILENCE: Duration = Duration::from_secs(4);

/// Returns the text of [`ENTER`] where a client that is silent in a transaction has so long, or for ever if it is zero.
pub(super) fn enter(limit: Duration) -> &'static str {
    if (Duration::from_millis(1)..=LONGEST_SILENCE).contains(&limit) { ENTER_LIMITED } else { ENTER }
}

pub(super) const COMMIT: &str = "COMMIT";

/// Commits an empty record as the session commits, after the tick, and with it all that was committed before.
pub(super) const FLUSH: &str = "SELECT pg_logical_emit_message(true, 'stationmaster', '')";
