//! The lock that keeps ticks from each other, and from what they plan with. See `docs/postgresql-protocol.md`,
//! section 4.
//!
//! It is taken in modes that tell who holds it. Nothing else of the store excludes others for longer than a
//! row.

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

/// What a tick of the store's own sets before it asks for the lock: its client may stop at any time. Its commit
/// waits for no flush: that is what [`FLUSH`] is for. It is ended if its client stops; a shorter limit stays as it is.
macro_rules! short {
    () => {
        "SELECT set_config('synchronous_commit', 'off', true), \
           CASE WHEN NOT current_setting('idle_in_transaction_session_timeout')::interval \
             BETWEEN interval '1 ms' AND interval '4 s' \
           THEN set_config('idle_in_transaction_session_timeout', '4s', true) END"
    };
}

/// See [`short`], for who folds beside ticks.
pub(super) const SHORT: &str = short!();

/// What a tick of the store's own sets, the lock, and that it waits for rows no longer than [`SHORT_WAITS`] says. One
/// text: the server answers each message by itself, and wakes its client for it.
pub(super) const ENTER: &str =
    concat!(short!(), "; LOCK TABLE sm.tick_lock IN EXCLUSIVE MODE; SET LOCAL lock_timeout = 250");

/// Commits an empty record as the session commits, after the tick, and with it all that was committed before.
pub(super) const FLUSH: &str = "SELECT pg_logical_emit_message(true, 'stationmaster', '')";
