//! Decisions and observers allocate nothing. A test file of its own, since it counts through the global allocator.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use stationmaster::backoff::{
    AirflowVersion, History, Jitter, RetryKey, RetryPolicy, decide, delay, preview,
};
use stationmaster::canonical::PokeContext;
use stationmaster::fingerprint::Fingerprint;
use stationmaster::id::SensorKind;
use stationmaster::service::{Admitter, Observer, Service, Upkeep};
use stationmaster::shard::{DEFAULT_CODES, code, range};
use stationmaster::store::MemoryStore;
use stationmaster::{NewTask, TaskKey, Timestamp};

fn allocations(work: impl FnOnce()) -> u64 {
    allocation_counter::measure(work).count_total
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(black_box(Box::new(1)))), 1);
}

#[test]
fn delays_and_decisions_allocate_nothing() {
    let task = TaskKey::new("prod", "nightly", "r".repeat(500), "日次").unwrap().mapped(7);
    let key = RetryKey::new(&task).logical_date(Timestamp::from_micros(1_700_000_000_123_456));
    let exponential =
        |jitter| RetryPolicy::exponential(Duration::from_secs(30)).multiplier(1.7).jitter(jitter);
    let airflow = |version| RetryPolicy::airflow(version, Duration::from_secs(30));
    let policies = [
        RetryPolicy::fixed(Duration::from_secs(30)),
        exponential(Jitter::None),
        exponential(Jitter::Full),
        exponential(Jitter::Equal),
        exponential(Jitter::Decorrelated),
        exponential(Jitter::Hashed),
        airflow(AirflowVersion::V2_5),
        airflow(AirflowVersion::V2_6),
        airflow(AirflowVersion::V2_10),
        airflow(AirflowVersion::V3_2).multiplier(1.7),
    ];
    for builder in policies {
        let policy = builder.budget(Duration::from_secs(3600)).build().unwrap();
        let count = allocations(|| {
            for attempt in [0, 1, 2, 5, 12, 300, u32::MAX] {
                black_box(delay(&policy, &key, attempt));
                let history = History::new(attempt, Timestamp::UNIX_EPOCH, Timestamp::from_micros(1))
                    .hint(Duration::from_secs(3));
                black_box(decide(&policy, &key, &history));
            }
            black_box(preview(&policy, &key, 20).count());
        });
        assert_eq!(count, 0, "{policy:?}");
    }
}

#[test]
fn fingerprints_and_codes_allocate_nothing() {
    let kind = SensorKind::new("hive.NamedPartition").unwrap();
    let context = PokeContext::from_json(r#"{"table":"sales","ds":"2026-01-01"}"#).unwrap();
    let count = allocations(|| {
        let limit = DEFAULT_CODES;
        let copy = black_box(context.clone());
        let code = code(black_box(Fingerprint::new(&kind, &copy)), limit);
        black_box(range(limit, std::num::NonZeroU32::MIN, 0).contains(&code));
    });
    assert_eq!(count, 0);
}

struct Idle;

impl Observer for Idle {}

/// Observed or not, with feature `tracing` or without it: what the ticks allocate is their own.
#[test]
fn observers_and_spans_allocate_nothing() {
    let count = |observed: bool| {
        let store = Arc::new(MemoryStore::new());
        let tasks: Vec<NewTask> = (0..200)
            .map(|n| NewTask::new(TaskKey::new("ns", "w", "r", format!("t{n:03}")).unwrap()))
            .collect();
        store.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &tasks)).unwrap();
        let mut admitter = Admitter::new(store.clone(), "h".try_into().unwrap());
        let mut upkeep = Upkeep::new(store).grace(Duration::ZERO);
        if observed {
            admitter = admitter.observed_by(Arc::new(Idle));
            upkeep = upkeep.observed_by(Arc::new(Idle));
        }
        let admission =
            allocations(|| assert_eq!(admitter.tick(Timestamp::UNIX_EPOCH).unwrap().granted.len(), 128));
        let expired = Timestamp::from_micros(1_000_000_000);
        (admission, allocations(|| assert_eq!(upkeep.tick(expired).unwrap().reaped.len(), 128)))
    };
    let (admission, reaping) = count(false);
    assert!(admission > 0 && reaping > 0, "the counter sees what the ticks take");
    assert_eq!(count(true), (admission, reaping));
}
