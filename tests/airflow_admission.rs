//! Recorded admissions of Airflow 2.11.2 on every store, a file that was tampered with, and the crate's own
//! policy on the same rows against a walk that knows nothing of the crate.

mod stores;
#[path = "../examples/airflow_vectors/admission/mod.rs"]
mod vectors;

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};
use stationmaster::store::{MemoryStore, Store};
use stores::kinds;

const SMALL: &str = include_str!("data/airflow/admission_small.jsonl");
const LARGE: &str = include_str!("data/airflow/admission_large.jsonl");

fn rows(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

/// Rows of a file that has this many: all, or one in this many if they are sampled.
fn rows_pass_on_every_store(text: &str, count: usize, sample: usize) {
    let rows = rows(text);
    assert_eq!(rows.len(), count);
    for kind in kinds() {
        for row in rows.iter().step_by(kind.stride(sample)) {
            assert_eq!(vectors::check(row, &kind.shared()), Ok(()), "{}", row["id"]);
        }
    }
}

#[test]
fn the_small_rows() {
    rows_pass_on_every_store(SMALL, 396, 99);
}

#[test]
fn the_large_rows() {
    rows_pass_on_every_store(LARGE, 8, 8);
}

#[test]
fn a_changed_answer_is_noticed() {
    let mut noticed = [0; 4];
    for row in rows(SMALL) {
        let admits = |call: usize| !row["admitted"][call].as_array().unwrap().is_empty();
        let mut tampered = Vec::new();
        if let Some(call) = (0..3).find(|call| admits(*call)) {
            let mut fewer = row.clone();
            fewer["admitted"][call].as_array_mut().unwrap().pop();
            tampered.push((0, fewer));
        }
        if row["admitted"][0].as_array().unwrap().len() > 1 {
            let mut exchanged = row.clone();
            exchanged["admitted"][0].as_array_mut().unwrap().swap(0, 1);
            tampered.push((1, exchanged));
        }
        if let Some(stats) = row["pool_stats"].as_object().filter(|stats| !stats.is_empty()) {
            let mut more = row.clone();
            let pool = stats.keys().next().unwrap();
            let scheduled = stats[pool]["scheduled"].as_i64().unwrap();
            more["pool_stats"][pool]["scheduled"] = json!(scheduled + 1);
            tampered.push((2, more));
        }
        if !row["failed"].as_array().unwrap().is_empty() {
            let mut spared = row.clone();
            spared["failed"].as_array_mut().unwrap().pop();
            tampered.push((3, spared));
        }
        for (kind, row) in tampered {
            assert!(vectors::check(&row, &memory()).is_err(), "{} {kind}", row["id"]);
            noticed[kind] += 1;
        }
    }
    assert!(noticed.iter().all(|rows| *rows > 20), "{noticed:?}");
}

/// What a walk over all candidates admits in three ticks, from the fields of the row alone.
fn walk(row: &Value) -> Vec<Vec<usize>> {
    let list = |name: &str| row[name].as_array().unwrap();
    let of =
        |name: &str, dag: &Value| list(name).iter().filter(|item| item["dag_id"] == *dag).collect::<Vec<_>>();
    let tis: Vec<&Vec<Value>> = list("tis").iter().map(|ti| ti.as_array().unwrap()).collect();
    let mut open: HashMap<&str, Option<i64>> = HashMap::new();
    for pool in list("pools") {
        let slots = pool["slots"].as_i64().unwrap();
        open.insert(pool["name"].as_str().unwrap(), (slots >= 0).then_some(slots));
    }
    // Counts by DAG, by DAG and task, by DAG, run and task.
    let mut active: HashMap<[String; 3], u64> = HashMap::new();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let counts = |ti: &[Value]| {
        let (dag, run, task) = (text(&ti[0]), text(&ti[1]), text(&ti[2]));
        [
            [dag.clone(), String::new(), String::new()],
            [dag.clone(), String::new(), task.clone()],
            [dag, run, task],
        ]
    };
    let mut candidates = Vec::new();
    for (at, ti) in tis.iter().enumerate() {
        let (state, pool) = (ti[4].as_str().unwrap(), ti[6].as_str().unwrap());
        let leased = matches!(state, "queued" | "running");
        let keeps = list("pools").iter().any(|p| p["name"] == *pool && p["include_deferred"] == true);
        if (leased || state == "deferred" && keeps)
            && let Some(Some(open)) = open.get_mut(pool)
        {
            *open -= ti[7].as_i64().unwrap();
        }
        if leased {
            for count in counts(ti) {
                *active.entry(count).or_default() += 1;
            }
        }
        let run = of("runs", &ti[0]).into_iter().find(|run| run["run_id"] == ti[1]).unwrap();
        let paused = of("dags", &ti[0])[0]["paused"] == true;
        if state == "scheduled" && !paused && run["state"] == "running" && run["type"] != "backfill" {
            let date = chrono::DateTime::parse_from_rfc3339(run["logical_date"].as_str().unwrap()).unwrap();
            candidates.push((-ti[5].as_i64().unwrap(), date, ti[3].as_i64().unwrap(), at));
        }
    }
    candidates.sort_unstable();

    let mut calls = Vec::new();
    for _ in 0..3 {
        let mut left = row["executor_slots"].as_u64().unwrap_or(u64::MAX);
        let mut admitted = Vec::new();
        candidates.retain(|(.., at)| {
            let ti = tis[*at];
            let dag = of("dags", &ti[0])[0];
            let tasks = dag["tasks"].as_array().unwrap();
            let task = tasks.iter().find(|task| task["task_id"] == ti[2]).unwrap();
            let limits = [
                &dag["max_active_tasks"],
                &task["max_active_tis_per_dag"],
                &task["max_active_tis_per_dagrun"],
            ];
            let counts = counts(ti);
            let within = counts.iter().zip(limits).all(|(count, limit)| {
                limit.as_u64().is_none_or(|limit| active.get(count).copied().unwrap_or(0) < limit)
            });
            let needs = ti[7].as_i64().unwrap();
            let fits = match open.get_mut(ti[6].as_str().unwrap()) {
                Some(Some(open)) if *open >= needs && within && left > 0 => {
                    *open -= needs;
                    true
                }
                Some(None) => within && left > 0,
                _ => false,
            };
            if fits {
                left -= 1;
                admitted.push(*at);
                for count in counts {
                    *active.entry(count).or_default() += 1;
                }
            }
            !fits
        });
        calls.push(admitted);
    }
    calls
}

#[test]
fn the_default_policy_equals_a_walk_over_all_candidates() {
    let (mut compared, mut more) = (0, 0);
    for row in rows(SMALL).into_iter().chain(rows(LARGE)) {
        let Some(answer) = vectors::by_default_policy(&row, &memory()).unwrap() else { continue };
        assert_eq!((answer.id, &answer.admitted), (row["id"].clone(), &walk(&row)));
        let recorded = row["admitted"].as_array().unwrap().iter().map(|call| call.as_array().unwrap().len());
        more += usize::from(answer.admitted.concat().len() > recorded.sum());
        compared += 1;
    }
    assert_eq!(compared, 404 - 45, "rows without a missing DAG");
    assert!(more > 30, "rows in which Airflow's window admits less in three calls: {more}");
}
