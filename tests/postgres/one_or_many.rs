//! One task and many go by statements of their own. Both leave the same behind.

use std::time::Duration;

use stationmaster::backoff::RetryPolicy;
use stationmaster::ops::{AdmitRequest, Finish};
use stationmaster::store::{Inserted, PostgresStore, Tx};
use stationmaster::{NewTask, TaskKey, TaskRecord, Timestamp};

use crate::scratch::{Scratch, rows};
use crate::task;

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

/// Everything that calls on tasks write, but for how their changes are spread over deltas.
fn left_behind(scratch: &Scratch) -> Vec<String> {
    let tables = ["task", "ready", "lease", "idle", "run"].map(|table| {
        format!("SELECT '{table} ' || row_to_json(t)::text AS text FROM \"{}\".{table} t", scratch.0)
    });
    let deltas = format!(
        "SELECT 'delta ' || row_to_json(t)::text FROM (
           SELECT lane, sum(ready) AS ready, sum(tasks) AS tasks, sum(slots) AS slots, sum(leases) AS leases,
             sum(came) AS came, min(ARRAY[rank, logical_date, map_index, no]) FILTER (WHERE came > 0) AS head,
             min(due) AS due, min(first) AS first, min(pool) AS pool, min(lane_slots) AS lane_slots,
             min(limits) AS limits, min(queue) AS queue
           FROM \"{}\".delta GROUP BY lane) t",
        scratch.0
    );
    let all = format!("{} UNION ALL {deltas} ORDER BY 1", tables.join(" UNION ALL "));
    rows(&all).iter().map(|row| row.get(0)).collect()
}

fn tasks() -> Vec<NewTask> {
    let retry = RetryPolicy::fixed(Duration::from_secs(1)).max_attempts(3).build().unwrap();
    vec![
        task("plain"),
        NewTask::new(TaskKey::new("n", "w", "r", "mapped").unwrap().mapped(7))
            .priority(-3)
            .logical_date(at(5)),
        task("limited").limit("l".try_into().unwrap()).pool_slots(2).queue("gpu".try_into().unwrap()),
        task("retried").retry(retry).payload("ü \u{1a} \0"),
        task("recorded").attempts_as_runs(true),
        task("later").not_before(at(1_000_000)),
    ]
}

/// Runs a verb, and commits along with it if it is the last.
fn write<T>(
    store: &PostgresStore,
    is_last: bool,
    verb: impl Fn(&mut Tx<'_>) -> stationmaster::Result<T>,
) -> T {
    store.write(|tx| if is_last { tx.last(&verb) } else { verb(tx) }).unwrap()
}

/// Enqueues, grants, starts and ends this many tasks per call, and returns what is there after each.
fn course(each: usize, is_last: bool) -> Vec<Vec<String>> {
    let scratch = Scratch::new();
    let store: PostgresStore = scratch.open(|options| options);
    let mut left = Vec::new();
    // The second time every task is there.
    for is_new in [true, false] {
        for tasks in tasks().chunks(each) {
            let inserted = write(&store, is_last, |tx| tx.enqueue(at(0), tasks));
            assert!(inserted.iter().all(|one| matches!(one, Inserted::New(_)) == is_new), "{inserted:?}");
        }
        left.push(left_behind(&scratch));
    }
    let order =
        AdmitRequest::new("h".try_into().unwrap(), "t".try_into().unwrap(), 9, Duration::from_secs(60));
    let granted = store.write(|tx| tx.admit(at(10), &order.clone().started())).unwrap().granted;
    assert_eq!(granted.len(), 5);
    let leases: Vec<_> = granted.iter().map(TaskRecord::lease_ref).collect();
    store.write(|tx| tx.start(at(20), &leases[3..])).unwrap();
    let ends: Vec<Finish> = leases
        .iter()
        .enumerate()
        .map(|(nth, lease)| match nth {
            0 => Finish::success(*lease),
            1 => Finish::skipped(*lease, "not needed"),
            _ => Finish::success_with(*lease, "a value \0"),
        })
        .collect();
    let mut ended = Vec::new();
    // Earlier than the start; and again, when nothing is left to end.
    for now in [at(15), at(30)] {
        for ends in ends.chunks(each) {
            ended.extend(write(&store, is_last, |tx| tx.finish(now, ends)));
        }
        left.push(left_behind(&scratch));
    }
    left.push(ended.iter().map(|end| format!("{end:?}")).collect());
    assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
    left
}

#[test]
fn one_call_for_each_task_leaves_what_one_call_for_all_does() {
    let (single, all) = (course(1, false), course(9, false));
    for (step, (single, all)) in single.iter().zip(&all).enumerate() {
        assert_eq!(single, all, "step {step}");
    }
    assert_eq!(single, course(1, true), "whose commit is sent along");
    assert_eq!(single, course(5, true), "first five that are ready, whose commit is sent along");
    assert_eq!(single[0], single[1], "a task that is there stays as it is");
    assert_eq!(single[2], single[3], "an end is stored once");
}
