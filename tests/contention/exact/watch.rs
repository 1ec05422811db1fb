//! Who looks while hosts work.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use stationmaster::store::postgres::Schema;

use super::{LIMITS, POOLS};
use crate::postgres_server::Plain;
use crate::postgres_server::host::Notify;
use crate::worker::Random;

/// What breaks the first invariant: a raw counter that is below what is held, or that stands there twice, and a
/// pool or limit of which more is leased than there is. By what, name, counted, held.
const COUNTERS: &str = "
WITH held AS MATERIALIZED (
  SELECT task.pool, task.limits, stands.slots, stands.leases
  FROM (SELECT no, slots, 1 AS leases FROM sm.lease
        UNION ALL SELECT no, slots, 0 FROM sm.idle WHERE slots IS NOT NULL) stands
  JOIN sm.task USING (no)
),
pools AS (SELECT pool AS name, sum(slots) AS held, sum(slots * leases) AS leased FROM held GROUP BY pool),
keys AS (
  SELECT carried.key AS name, sum(leases) AS held
  FROM held CROSS JOIN json_array_elements_text(held.limits::json) carried (key) GROUP BY carried.key
)
SELECT 'pool', name, coalesce(used, 0), held FROM pools LEFT JOIN sm.pool_use USING (name) WHERE coalesce(used, 0) < held
UNION ALL
SELECT 'limit', name, coalesce(used, 0), held FROM keys LEFT JOIN sm.limit_use ON key = name WHERE coalesce(used, 0) < held
UNION ALL
SELECT 'counters of pool', name, count(*), 1 FROM sm.pool_use GROUP BY name HAVING count(*) > 1
UNION ALL
SELECT 'counters of limit', key, count(*), 1 FROM sm.limit_use GROUP BY key HAVING count(*) > 1
UNION ALL
SELECT 'size of pool', name, {fixed}, held FROM pools WHERE name = 'fixed' AND held > {fixed}
UNION ALL
SELECT 'limit exceeded', name, max, held FROM keys JOIN (VALUES {limits}) firm (name, max) USING (name) WHERE held > max";

/// The locks that holders of the tick lock as a tick wait for. One look at the table of locks, so what is held and what is
/// awaited are of one instant.
const WAITS: &str = "
WITH locks AS MATERIALIZED (SELECT * FROM pg_locks),
holders AS (
  SELECT pid FROM locks WHERE relation = 'sm.tick_lock'::regclass AND mode = 'ExclusiveLock' AND granted
)
SELECT (SELECT count(*) FROM holders),
  (SELECT string_agg(concat_ws(' ', locktype, mode, relation::regclass, tuple, transactionid), ', ')
   FROM locks WHERE NOT granted AND pid IN (SELECT pid FROM holders) AND locktype <> 'extend')";

/// What watchers saw.
#[derive(Debug, Default, Clone)]
pub struct Seen {
    /// Snapshots in which the counters were compared.
    snapshots: usize,
    /// Looks that met a tick.
    ticks_met: usize,
    vacuums: usize,
    /// Transactions that were prepared and left.
    settled: usize,
}

#[derive(Default)]
struct State {
    is_over: AtomicBool,
    seen: Mutex<Seen>,
    violations: Mutex<Vec<String>>,
}

impl State {
    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::SeqCst)
    }

    fn violation(&self, what: String) {
        self.violations.lock().unwrap().push(what);
    }

    fn saw(&self, what: impl FnOnce(&mut Seen)) {
        what(&mut self.seen.lock().unwrap());
    }
}

/// Watchers, each with a connection of its own.
pub struct Watch {
    state: Arc<State>,
    threads: Vec<JoinHandle<()>>,
}

/// A watcher, until it is over.
type Watcher = fn(&State, &Plain, &str);

impl Watch {
    pub fn start(url: &str, schema: &str) -> Self {
        let state = Arc::<State>::default();
        let watchers: [Watcher; 4] = [look_at_counters, look_at_ticks, vacuum, settle];
        let threads = watchers.map(|watcher| {
            let (state, plain, schema) = (Arc::clone(&state), Plain::connect(url), schema.to_owned());
            std::thread::spawn(move || watcher(&state, &plain, &schema))
        });
        Self { state, threads: threads.into() }
    }

    pub fn has_failed(&self) -> bool {
        !self.state.violations.lock().unwrap().is_empty() || self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Fails the test if anything was broken.
    pub fn stop(self) -> Seen {
        self.state.is_over.store(true, Ordering::SeqCst);
        for thread in self.threads {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
        assert_eq!(*self.state.violations.lock().unwrap(), [""; 0]);
        let seen = self.state.seen.lock().unwrap().clone();
        assert!(seen.snapshots > 0 && seen.ticks_met > 0 && seen.vacuums > 0, "{seen:?}");
        seen
    }
}

/// I1 and I2: looks twice in one snapshot, so that folds and vacuums come between.
fn look_at_counters(state: &State, plain: &Plain, schema: &str) {
    let limits = LIMITS.map(|(key, max)| format!("('{key}', {max})")).join(", ");
    let counters = COUNTERS.replace("{fixed}", &POOLS[4].1.to_string()).replace("{limits}", &limits);
    let counters = counters.replace("sm.", &format!("{schema}."));
    let of = Schema::new(schema).unwrap();
    let mut random = Random(1);
    while state.goes_on() {
        plain.ask("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY");
        for look in ["first", "second"] {
            let below = plain.ask(&counters);
            let audit = plain.call(&of, Notify::No, |tx| tx.audit()).unwrap();
            if !below.is_empty() || !audit.is_empty() {
                state.violation(format!("{look} look at a snapshot: counters {below:?}, audit {audit:?}"));
            }
            std::thread::sleep(Duration::from_millis(20 + random.below(60)));
        }
        plain.ask("COMMIT");
        state.saw(|seen| seen.snapshots += 1);
    }
}

/// I5.
fn look_at_ticks(state: &State, plain: &Plain, schema: &str) {
    let waits = WAITS.replace("sm.", &format!("{schema}."));
    while state.goes_on() {
        let row = plain.ask(&waits).remove(0);
        if let Some(waits) = &row[1] {
            state.violation(format!("a tick waits: {waits}"));
        }
        if row[0].as_deref() != Some("0") {
            state.saw(|seen| seen.ticks_met += 1);
        }
        std::thread::sleep(Duration::from_millis(3));
    }
}

fn vacuum(state: &State, plain: &Plain, schema: &str) {
    let tables =
        ["ready", "lease", "idle", "delta", "lane_use", "pool_use", "limit_use", "beat", "request", "tick"];
    for table in tables.iter().cycle() {
        if !state.goes_on() {
            return;
        }
        plain.ask(&format!("VACUUM {schema}.{table}"));
        state.saw(|seen| seen.vacuums += 1);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Commits or rolls back what hosts prepared and left. At the end, everything.
fn settle(state: &State, plain: &Plain, schema: &str) {
    let mut random = Random(2);
    loop {
        let is_last = !state.goes_on();
        let age = if is_last { "0" } else { "700 ms" };
        let left = plain.ask(&format!(
            "SELECT gid FROM pg_prepared_xacts WHERE gid LIKE '{schema}.%' AND prepared <= clock_timestamp() - interval '{age}'"
        ));
        for row in left {
            let verb = ["COMMIT", "ROLLBACK"][random.below(2) as usize];
            // Its own host may have been faster.
            if plain.try_ask(&format!("{verb} PREPARED '{}'", row[0].as_deref().unwrap())).is_ok() {
                state.saw(|seen| seen.settled += 1);
            }
        }
        if is_last {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
