//! The lock that excludes ticks from each other, and from changes of the definitions that they plan with. See
//! `docs/postgresql-protocol.md`, section 4.
//!
//! Its modes show who holds it. The store locks nothing else that is larger than a row.

use std::time::Duration;

/// Taken by a tick, before its first statement that reads.
pub(super) const TICK: &str = "LOCK TABLE sm.tick_lock IN EXCLUSIVE MODE";

/// Taken by folds outside ticks. Fails at once while another transaction has the lock: a tick folds anyway, and
/// nothing folds while a host changes definitions.
pub(super) const TRY: &str = "LOCK TABLE sm.tick_lock IN EXCLUSIVE MODE NOWAIT";

/// Taken by each call that changes pools or limits, before it reads. A rollback to a savepoint releases the lock, so
/// each call takes it again.
pub(super) const DEFINE: &str = "LOCK TABLE sm.tick_lock IN SHARE ROW EXCLUSIVE MODE";

/// Limits how long a store's transaction waits for a row once it has the lock, because all ticks wait with it.
pub(super) const SHORT_WAITS: &str = "SET LOCAL lock_timeout = 250";

/// Asks for the isolation level of a transaction, without taking a snapshot.
pub(super) const LEVEL: &str = "SHOW transaction_isolation";

/// The settings of folds outside ticks. See [`ENTER`]. A shorter limit stays in force.
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

/// The beginning of a store's tick: its settings, the lock, and the limit on waits for rows from [`SHORT_WAITS`]. The
/// client may stop at any time, and the server then ends the tick. The commit does not wait for its flush, because
/// [`FLUSH`] does. It is one text of commands that need no plan: the server responds to each message separately, and
/// each response wakes the client.
pub(super) const ENTER: &str = enter!("SET LOCAL idle_in_transaction_session_timeout = 4000; ");

/// [`ENTER`] when a shorter limit is set.
const ENTER_LIMITED: &str = enter!("");

/// The longest time that a tick lets its client be silent.
const LONGEST_SILENCE: Duration = Duration::from_secs(4);

/// Returns the text of [`ENTER`] for a limit on a client's silence in a transaction. Zero means no limit.
pub(super) fn enter(limit: Duration) -> &'static str {
    if (Duration::from_millis(1)..=LONGEST_SILENCE).contains(&limit) { ENTER_LIMITED } else { ENTER }
}

pub(super) const COMMIT: &str = "COMMIT";

/// Commits an empty record after the tick, as the session commits. That flushes everything committed before.
pub(super) const FLUSH: &str = "SELECT pg_logical_emit_message(true, 'stationmaster', '')";

/// [`FLUSH`] if the tick with this name granted something, or if the second value is 1.
pub(super) const FLUSH_NOTED: &str = "SELECT pg_logical_emit_message(true, 'stationmaster', '') \
  WHERE $2::bigint = 1 OR EXISTS (SELECT FROM sm.request WHERE id = $1::text)";
