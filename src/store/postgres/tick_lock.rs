//! The lock that keeps ticks from each other, and from what they plan with. See `docs/postgresql-protocol.md`,
//! section 4.
//!
//! It is taken in modes that tell who holds it. Nothing else of the store excludes others for longer than a
//! row.

/// Taken by a tick, before its first statement that looks.
pub(super) const TICK: &str = "LOCK TABLE sm.tick_lock IN EXCLUSIVE MODE";

/// Taken by each call that changes pools or limits, before it looks. A rollback to a savepoint gives it up, so
/// it is taken each time.
pub(super) const DEFINE: &str = "LOCK TABLE sm.tick_lock IN SHARE ROW EXCLUSIVE MODE";

/// Fails outside of a transaction. Within one it waits for nobody and stops nobody.
pub(super) const OPEN: &str = "LOCK TABLE sm.tick_lock IN ACCESS SHARE MODE";

/// Once it has the lock, a transaction of the store's own waits for a row no longer than this: all ticks would
/// wait with it.
pub(super) const SHORT_WAITS: &str = "SET LOCAL lock_timeout = 250";

/// Asks for the level of a transaction, without taking a snapshot.
pub(super) const LEVEL: &str = "SHOW transaction_isolation";

/// Once it has the lock, a tick is ended if its client stops. A shorter limit stays as it is.
pub(super) const NO_PAUSES: &str = "SELECT set_config('idle_in_transaction_session_timeout', '2s', true) \
     WHERE NOT current_setting('idle_in_transaction_session_timeout')::interval \
       BETWEEN interval '1 ms' AND interval '2 s'";
