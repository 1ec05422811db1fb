//! What a decision costs. Run with `cargo bench --no-default-features --bench backoff`.
#![allow(missing_docs)] // of the functions that criterion's macros make

use std::hint::black_box;
use std::time::Duration;

use backon::BackoffBuilder as _;
use chrono::DateTime;
use criterion::{Criterion, criterion_group, criterion_main};
use stationmaster::backoff::{
    AirflowVersion, History, Jitter, RetryKey, RetryPolicy, RetryPolicyBuilder, decide, delay,
};
use stationmaster::canonical::PokeContext;
use stationmaster::fingerprint::Fingerprint;
use stationmaster::id::SensorKind;
use stationmaster::{TaskKey, Timestamp};

const BASE: Duration = Duration::from_secs(30);

fn policies() -> Vec<(&'static str, RetryPolicyBuilder)> {
    let exponential = || RetryPolicy::exponential(BASE);
    vec![
        ("none", exponential().jitter(Jitter::None)),
        ("hashed", exponential()),
        ("hashed, multiplier 1.7", exponential().multiplier(1.7)),
        ("equal", exponential().jitter(Jitter::Equal)),
        ("decorrelated", exponential().jitter(Jitter::Decorrelated)),
        ("airflow 2.10", RetryPolicy::airflow(AirflowVersion::V2_10, BASE)),
    ]
}

fn delays(criterion: &mut Criterion) {
    let task = TaskKey::new(
        "prod",
        "nightly_sales_rollup",
        "scheduled__2026-01-01T00:00:00+00:00",
        "load_partitions",
    )
    .unwrap_or_else(|error| unreachable!("{error}"))
    .mapped(17);
    let date = DateTime::from_timestamp(1_767_225_600, 0).unwrap_or_default();
    let key = RetryKey::new(&task).logical_date(date);

    let mut group = criterion.benchmark_group("delay of attempt 5");
    for (name, builder) in policies() {
        let Ok(policy) = builder.build() else { continue };
        group.bench_function(name, |b| b.iter(|| delay(black_box(&policy), black_box(&key), black_box(5))));
    }
    // Its delays are those of an iterator: the fifth one takes five steps, as it does after a restart.
    group.bench_function("backon, exponential with jitter", |b| {
        let builder =
            backon::ExponentialBuilder::default().with_min_delay(BASE).with_jitter().without_max_times();
        b.iter(|| black_box(&builder).build().nth(black_box(4)));
    });
    group.finish();

    let mut group = criterion.benchmark_group("delay of attempt 4294967295");
    for (name, builder) in policies() {
        let Ok(policy) = builder.build() else { continue };
        group.bench_function(name, |b| {
            b.iter(|| delay(black_box(&policy), black_box(&key), black_box(u32::MAX)))
        });
    }
    group.finish();

    if let Ok(policy) =
        RetryPolicy::exponential(BASE).max_attempts(9).budget(Duration::from_secs(86_400)).build()
    {
        let history = History::new(5, Timestamp::UNIX_EPOCH, Timestamp::from_micros(60_000_000)).hint(BASE);
        criterion.bench_function("decide, hashed", |b| {
            b.iter(|| decide(black_box(&policy), black_box(&key), black_box(&history)));
        });
    }
}

fn fingerprints(criterion: &mut Criterion) {
    let json = concat!(
        r#"{"metastore_conn_id":"metastore_default","partition_names":["warehouse.sales/ds=2026-01-01/region=emea","#,
        r#""warehouse.sales/ds=2026-01-01/region=apac"],"schema":"warehouse","table":"sales","min":1.0,"retry":true}"#
    );
    let (Ok(kind), Ok(context)) = (SensorKind::new("hive.NamedPartition"), PokeContext::from_json(json))
    else {
        return;
    };
    let value = context.to_value();
    let mut group = criterion.benchmark_group(format!("context of {} bytes", context.as_str().len()));
    group.bench_function("fingerprint", |b| {
        b.iter(|| Fingerprint::new(black_box(&kind), black_box(&context)))
    });
    group.bench_function("from_value", |b| b.iter(|| PokeContext::from_value(black_box(&value))));
    group.bench_function("from_json", |b| b.iter(|| PokeContext::from_json(black_box(json))));
    group.bench_function("from_json and fingerprint", |b| {
        b.iter(|| {
            PokeContext::from_json(black_box(json))
                .map(|context| Fingerprint::new(black_box(&kind), &context))
        });
    });
    group.finish();
}

criterion_group!(benches, delays, fingerprints);
criterion_main!(benches);
