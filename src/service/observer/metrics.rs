//! Every metric, and what an [`Observer`](super::Observer) receives for it.
//!
//! [`ALL`] lists them. Names and labels are part of the crate's interface. Label values are fixed words, except for
//! `kind`, `pool`, `queue` and `limit`, which are the host's names. The number of kinds is not bounded. Of the other
//! three, [`capacity`] reports at most 1,000 each.
//!
//! | label | values |
//! |---|---|
//! | `service` | `admitter`, `keeper`, `upkeep`, `poker`, `feed` |
//! | `result` of a tick | `ok`, or as for a transaction |
//! | `result` of a transaction | `ok`; [`StoreErrorKind::as_str`](crate::error::StoreErrorKind::as_str); `invalid` for a refused argument, `aborted` by its caller, `no_runtime` outside of tokio, `stale` and `repeated` by `Fenced` |
//! | `result` of an event | `accepted`, `refused` (by its handler; it is delivered again), `lost` (it was deleted before it was read) |
//! | `mode` | `read`, `write` |
//! | `reason` of a refusal | [`Reason::name`](crate::admission::Reason::name) |
//! | `reason` of an end | `landed`, `failed`, `timed_out`, `unreachable` |
//! | `became` | `success`, `failed`, `skipped`, `cancelled`: it ended; `retry`: it is tried again later; `ready`: it is ready again; `already`: it was finished like this before; `stale`: it was no longer the caller's |
//! | `how` a lease was lost | `lost`: the store said so; `expired`: the store could not be asked in time |
//! | `to` | [`TaskState::as_str`](crate::TaskState::as_str) |
//! | `call` | `start`, `renew`, `move` (whatever takes a task out of its state) |
//! | `answer` to a registration | `waiting`, `not_running`, `stale`, `cancelled`, `ineligible` |
//! | `kind` | the kind of the sensors |
//! | `pool`, `queue`, `limit` | the name; `other` for the sum of those beyond the first 1,000 |
//! | `outcome` of a poke | `landed`, `not_yet`, `failed`, `unreachable`, `overran` (its deadline) |

pub use super::answers::{finished, registered};
pub use super::capacity::capacity;
pub use super::metric::Metric;

/// For ticks, transactions and pokes: 0.1 ms to 30 s.
const WORK: &[f64] =
    &[0.000_1, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// For tasks that wait: 10 ms to a day.
const WAITING: &[f64] =
    &[0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0];

macro_rules! metrics {
    ($(
        $metric:ident: $kind:ident $name:literal [$($first:literal $(, $label:literal)*)?] $(in $buckets:ident)?, $help:literal;
    )+) => {
        $(
            #[doc = concat!(
                $help, "\n\n", stringify!($kind), " `", $name, "`"
                $(, "; labels `", $first, "`" $(, ", `", $label, "`")*)?, "."
            )]
            pub static $metric: Metric = Metric {
                name: $name,
                kind: stringify!($kind),
                help: $help,
                labels: &[$($first $(, $label)*)?],
                buckets: metrics!(@buckets $($buckets)?),
            };
        )+

        /// Every metric, for exporters that need to know them in advance.
        pub static ALL: &[&Metric] = &[$(&$metric),+];
    };
    (@buckets) => { &[] };
    (@buckets $buckets:ident) => { $buckets };
}

metrics! {
    TICKS: counter "stationmaster_ticks_total" ["service", "result"],
        "Ticks of a service, by how they ended.";
    TICK_SECONDS: histogram "stationmaster_tick_duration_seconds" ["service"] in WORK,
        "How long a tick took.";

    GRANTED: counter "stationmaster_granted_total" [],
        "Tasks that were admitted.";
    WAIT_SECONDS: histogram "stationmaster_wait_seconds" [] in WAITING,
        "How long an admitted task had been ready.";
    PROMOTED: counter "stationmaster_promoted_total" [],
        "Tasks that came due: their instant came, or their retry did.";
    REFUSED: gauge "stationmaster_refused" ["reason"],
        "Ready tasks that the last tick left waiting, by reason: of the lanes that it named.";
    ADMISSION_CONFLICTS: counter "stationmaster_admission_conflicts_total" [],
        "Admissions that were decided again because another writer came between.";

    POOL_OPEN: gauge "stationmaster_pool_open_slots" ["pool"],
        "Open slots of a pool; below 0 after it was shrunk.";
    POOL_USED: gauge "stationmaster_pool_used_slots" ["pool"],
        "Slots of a pool that tasks hold.";
    POOL_READY: gauge "stationmaster_pool_ready_tasks" ["pool"],
        "Ready tasks that need slots of a pool.";
    POOL_PAUSED: gauge "stationmaster_pool_paused" ["pool"],
        "1 while a pool is paused, else 0.";
    QUEUE_WAITING: gauge "stationmaster_queue_waiting_tasks" ["queue"],
        "Tasks of a queue that wait, whether or not they are due.";
    QUEUE_LEASED: gauge "stationmaster_queue_leased_tasks" ["queue"],
        "Tasks of a queue that hold a lease.";
    QUEUE_SERVED: gauge "stationmaster_queue_served" ["queue"],
        "1 while an admitter serves a queue, else 0.";
    QUEUE_PAUSED: gauge "stationmaster_queue_paused" ["queue"],
        "1 while a queue is paused, else 0.";
    LIMIT_USED: gauge "stationmaster_limit_used" ["limit"],
        "What counts against a limit that is defined.";
    LIMIT_MAX: gauge "stationmaster_limit_max" ["limit"],
        "The most that may count against a limit.";
    LIMIT_PAUSED: gauge "stationmaster_limit_paused" ["limit"],
        "1 while the key of a limit is paused itself, else 0.";

    LEASES_RENEWED: counter "stationmaster_leases_renewed_total" [],
        "Renewals of leases that a keeper made.";
    LEASES_LOST: counter "stationmaster_leases_lost_total" ["how"],
        "Leases whose holders a keeper asked to stop.";

    REAPED: counter "stationmaster_reaped_total" ["became"],
        "Leases that expired, by what became of their tasks.";
    FORGOTTEN: counter "stationmaster_forgotten_total" [],
        "Ended tasks that were deleted.";
    FEED_FORGOTTEN: counter "stationmaster_feed_forgotten_total" [],
        "Events of the feed that were deleted.";
    CONSUMERS_DROPPED: counter "stationmaster_consumers_dropped_total" [],
        "Consumers of the feed that were dropped, because they did not read.";
    SILENT_RUNS: counter "stationmaster_silent_runs_total" [],
        "Runs that were closed because their heartbeats stopped.";
    RUNS_FORGOTTEN: counter "stationmaster_runs_forgotten_total" [],
        "Stopped runs that were deleted.";
    REQUESTS_FORGOTTEN: counter "stationmaster_requests_forgotten_total" [],
        "Remembered ticks that upkeep deleted.";
    DISCREPANCIES: gauge "stationmaster_discrepancies" [],
        "What the last audit found: 0 in a sound store.";

    POKES: counter "stationmaster_pokes_total" ["kind", "outcome"],
        "Pokes whose answers were taken up.";
    POKE_SECONDS: histogram "stationmaster_poke_duration_seconds" ["kind"] in WORK,
        "How long a call of a poke took; one that passed its deadline counts with that.";
    POKES_SAVED: counter "stationmaster_pokes_saved_total" ["kind"],
        "Pokes that were not needed, because sensors share them.";
    POKES_LATE: counter "stationmaster_pokes_late_total" [],
        "Answers that came after their deadline and changed nothing.";
    POKES_HELD_BACK: counter "stationmaster_pokes_held_back_total" [],
        "Due times at which a target was not poked because too many pokes of its kind hang.";
    GROUPS_DUE: counter "stationmaster_poke_groups_due_total" [],
        "Poke groups that came due.";
    SENSORS_LOADED: counter "stationmaster_sensors_loaded_total" [],
        "Sensors that a poker read from the store.";
    SENSORS_ENDED: counter "stationmaster_sensors_ended_total" ["reason"],
        "Sensors that a poker ended.";
    SENSORS_UNKNOWN_KIND: counter "stationmaster_sensors_unknown_kind_total" [],
        "Sensors that were due and of a kind that the poker does not know.";
    SHARDS_GAINED: counter "stationmaster_shards_gained_total" [],
        "Shards that a poker took, at its start or from another one that left or died.";
    LOG_PANICS: counter "stationmaster_poke_log_panics_total" [],
        "How often the log of a poker panicked.";
    SHARDS: gauge "stationmaster_shards" [],
        "Shards that a poker holds.";
    SHARDS_UNCLAIMED: gauge "stationmaster_shards_unclaimed" [],
        "Shards that nobody held when the poker last renewed.";
    POKER_NAME_TAKEN: gauge "stationmaster_poker_name_taken" [],
        "1 while a poker does nothing because a living one has its name, else 0.";
    SENSORS: gauge "stationmaster_sensors" ["kind"],
        "Sensors that a poker holds in memory.";
    POKE_GROUPS: gauge "stationmaster_poke_groups" ["kind"],
        "Distinct targets of those sensors.";
    POKE_GROUPS_WAITING: gauge "stationmaster_poke_groups_waiting" [],
        "Poke groups that are due and wait for a thread.";
    POKES_IN_FLIGHT: gauge "stationmaster_pokes_in_flight" [],
        "Pokes that run.";
    POKE_THREADS: gauge "stationmaster_poke_threads" [],
        "Threads that may poke.";
    POKE_THREADS_HUNG: gauge "stationmaster_poke_threads_hung" [],
        "Threads whose poke passed its deadline and has not returned.";
    OUTAGES: gauge "stationmaster_poke_outages" [],
        "Poke groups whose target could not be looked at last time.";

    EVENTS: counter "stationmaster_events_total" ["result"],
        "Events of the feed that were given to a handler, or lost.";

    TRANSACTIONS: counter "stationmaster_transactions_total" ["mode", "result"],
        "Transactions of the store, by how they ended.";
    TRANSACTION_SECONDS: histogram "stationmaster_transaction_duration_seconds" ["mode"] in WORK,
        "How long a transaction took, waiting for its turn included.";
    ENQUEUED: counter "stationmaster_tasks_enqueued_total" [],
        "Tasks that are new to the store.";
    TASK_MOVES: counter "stationmaster_task_moves_total" ["to"],
        "Changes of the state of tasks, except that a waiting task came due.";
    STALE_CALLS: counter "stationmaster_stale_calls_total" ["call"],
        "Items of a call that changed nothing, because the lease or the state was another one.";

    FINISHED: counter "stationmaster_finished_total" ["became"],
        "Attempts that the host finished, by what became of their tasks.";
    REGISTERED: counter "stationmaster_registered_total" ["answer"],
        "Running tasks that asked to wait as sensors, by the answer.";
}
