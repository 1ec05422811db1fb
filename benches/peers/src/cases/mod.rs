//! The cases: what is run in a round, and the bars.

mod cost;
mod disturbed;
mod enqueue;
mod frozen;
mod latency;
mod sqlite;
mod throughput;

use crate::{Bench, Outcome, Scene};

pub const NAMES: [&str; 14] = [
    "interference",
    "snapshot",
    "frozen",
    "single",
    "each",
    "batch64",
    "pool64",
    "enqueue",
    "idle",
    "latency",
    "million",
    "cost",
    "worker",
    "sqlite",
];

pub fn scenes(name: &str, bench: &Bench) -> Outcome<Vec<Scene>> {
    Ok(match name {
        "interference" => disturbed::interference(bench),
        "snapshot" => disturbed::snapshot(bench),
        "frozen" => frozen::frozen(bench),
        "single" => throughput::single(),
        "each" => throughput::each(),
        "batch64" => throughput::batch64(),
        "pool64" => throughput::pool64(),
        "enqueue" => enqueue::enqueue(),
        "idle" => enqueue::idle(),
        "latency" => latency::latency(bench),
        "million" => throughput::million(),
        "cost" => cost::cost(),
        "worker" => throughput::worker().into_iter().chain([latency::of_worker(bench)]).collect(),
        "sqlite" => sqlite::sqlite(),
        other => return Err(format!("no case {other}: {}", NAMES.join(", ")).into()),
    })
}
