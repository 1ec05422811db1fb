//! The lock that makes ticks exclude each other, and changes of what they plan with. See `docs/postgresql-protocol.md`,
//! section 4.
//!
//! Its modes show who holds it. Nothing else in the store locks more than a row.

use std::time::Duration;

/// Taken by a tick, before its first statement that looks.
pub(super) const TICK: &str = "LOCK TABLE sm.tick_lock IN EXCLUSIVE MODE";

/// Taken by folds outside ticks. It fails at once while another transaction has the lock: a tick folds, too, and there
/// is no fold while a host changes definitions.
pub(super) const TRY: &str = "LOCK TABLE sm.tick_lock IN EXCLUSIVE MODE NOWAIT";

/// Taken by each call that changes pools or limits, before it looks. A rollback to a savepoint releases it, so it is
/// taken each time.
pub(super) const DEFINE: &str = "LOCK TABLE sm.tick_lock IN SHARE ROW EXCLUSIVE MODE";

/// Once a store's transaction has the lock, it waits for a row no longer than this, because all ticks would wait with
/// it.
pub(super) const SHORT_WAITS: &str = "SET LOCAL lock_timeout = 250";

/// Asks for the level of a transaction, without taking a snapshot.
pub(super) const LEVEL: &str = "SHOW transaction_isolation";

/// The settings of folds outside ticks, see [`ENTER`]. A shorter limit stays as it is.
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

/// The beginning of a store's tick: its settings, the lock, and the limit on waits for rows from [`SHORT_WAITS`]. Its
/// client may stop at any time; the server then ends the tick. Its commit waits for no flush, because [`FLUSH`] does
/// that. It is one text of commands that need no plan, because the server responds to each message separately, and
/// wakes its client for it.
pub(super) const ENTER: &str = enter!("SET LOCAL idle_in_transaction_session_timeout = 4000; ");

/// [`ENTER`] where a shorter limit is set.
const ENTER_LIMITED: &str = enter!("");

/// The longest that a tick lets its client be silent.
const LONGEST_SILENCE: Duration = Duration::from_secs(4);

/// Returns the text of [`ENTER`] if a client may be silent in a transaction for this long; zero means forever.
pub(super) fn enter(limit: Duration) -> &'static str {
    if (Duration::from_millis(1)..=LONGEST_SILENCE).contains(&limit) { ENTER_LIMITED } else { ENTER }
}

pub(super) const COMMIT: &str = "COMMIT";

/// Commits an empty record as the session commits, after the tick, and with it all that was committed before.
pub(super) const FLUSH: &str = "SELECT pg_logical_emit_message(true, 'stationmaster', '')";

/// [`FLUSH`] if the tick with this name granted something, or if the second value is 1.
pub(super) const FLUSH_NOTED: &str = "SELECT pg_logical_emit_message(true, 'stationmaster', '') \
  WHERE $2::bigint = 1 OR EXISTS (SELECT FROM sm.request WHERE id = $1::text)";
