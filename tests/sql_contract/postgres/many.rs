//! Many items in one call.

use std::time::{Duration, Instant};

use stationmaster::ops::Finish;
use stationmaster::task::LeaseLoss;
use stationmaster::{LeaseRef, NewTask, TaskKey, TaskRecord, Timestamp};

use super::world;
use crate::many_kinds_of_tasks;
use crate::world::{NOW, Value, Why, World, arguments, key, now, values};

/// The tasks as `enqueue_many` takes them. What has its default is left out.
fn list(tasks: &[NewTask]) -> String {
    let columns = [
        "namespace",
        "workflow",
        "run",
        "task",
        "map_index",
        "pool",
        "slots",
        "limits",
        "priority",
        "rank",
        "logical_date",
        "not_before",
        "retry",
        "lease_losses",
        "payload",
        "queue",
    ];
    let default = arguments(&NewTask::new(key("t")), None);
    let object = |task: &NewTask| {
        let arguments = arguments(task, None);
        let given = columns.iter().zip(arguments.into_iter().zip(&default).skip(1)).enumerate();
        let given = given.filter(|(at, (_, (value, default)))| *at < 4 || value != *default);
        let members = given.map(|(_, (column, (value, _)))| match value {
            Value::Text(json) if matches!(*column, "limits" | "retry") => format!("\"{column}\":{json}"),
            Value::Text(text) => format!("\"{column}\":{}", serde_json::to_string(&text).unwrap()),
            value => format!("\"{column}\":{}", value.int()),
        });
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    };
    format!("[{}]", tasks.iter().map(object).collect::<Vec<_>>().join(","))
}

fn enqueue(world: &World, tasks: &[NewTask]) -> Vec<[i64; 3]> {
    let rows = world.run("enqueue_many", &values![NOW, list(tasks)]).unwrap();
    rows.iter().map(|row| [row[0].int(), row[1].int(), row[2].int()]).collect()
}

fn ints(leases: &[LeaseRef]) -> [Value; 2] {
    [
        Value::Ints(leases.iter().map(|lease| lease.id.0).collect()),
        Value::Ints(leases.iter().map(|lease| lease.epoch).collect()),
    ]
}

fn texts(values: &[Option<&str>]) -> Value {
    Value::Texts(values.iter().map(|value| value.map(str::to_owned)).collect())
}

#[test]
fn many_calls_do_what_the_crate_does_with_as_many_items() {
    let (ours, sql) = (world(), world());
    let tasks = many_kinds_of_tasks();
    let keys: Vec<TaskKey> = tasks.iter().map(|task| task.key.clone()).collect();
    let known = NewTask::new(key("idle"));
    for world in [&ours, &sql] {
        world.store.write(|tx| tx.enqueue(now(), std::slice::from_ref(&known))).unwrap();
    }
    ours.store.write(|tx| tx.enqueue(now(), &tasks)).unwrap();
    let answers = enqueue(&sql, &tasks);
    assert_eq!(sql.state(&keys), ours.state(&keys));
    let mut seen = std::collections::BTreeSet::from([known.key]);
    for (at, (answer, task)) in answers.iter().zip(&tasks).enumerate() {
        let expected = [at as i64 + 1, sql.id(&task.key), i64::from(seen.insert(task.key.clone()))];
        assert_eq!(*answer, expected, "{}", task.key);
    }

    for round in (1..9).map(|round| NOW + round * 1_000_000) {
        let granted = ours.admit(round);
        assert_eq!(sql.admit(round), granted);
        // The order of the call is not that of the numbers.
        let leases: Vec<LeaseRef> = granted.iter().rev().map(TaskRecord::lease_ref).collect();
        let at = Timestamp::from_micros(round);
        ours.store.write(|tx| tx.start(at, &leases)).unwrap();
        let [ids, epochs] = ints(&leases);
        for _ in 0..2 {
            sql.run("start_many", &[round.into(), ids.clone(), epochs.clone()]).unwrap();
        }
        assert_eq!(sql.state(&keys), ours.state(&keys));
        let kinds = [
            ("success", Some("7 rows"), None),
            ("failed", None, Some("no route")),
            ("skipped", None, Some("no")),
            ("given_back", None, None),
        ];
        let picked: Vec<_> = (0..leases.len()).map(|at| kinds[(at + round as usize) % 4]).collect();
        let ends: Vec<Finish> = leases
            .iter()
            .zip(&picked)
            .map(|(lease, (outcome, ..))| match *outcome {
                "success" => Finish::success_with(*lease, "7 rows"),
                "failed" => Finish::new(
                    *lease,
                    stationmaster::ops::Outcome::Failed {
                        message: "no route".into(),
                        retry: stationmaster::ops::RetryAdvice::Never,
                    },
                ),
                "skipped" => Finish::skipped(*lease, "no"),
                _ => Finish::given_back(*lease),
            })
            .collect();
        ours.store.write(|tx| tx.finish(at, &ends)).unwrap();
        let outcomes = texts(&picked.iter().map(|kind| Some(kind.0)).collect::<Vec<_>>());
        let (results, messages): (Vec<_>, Vec<_>) = picked.iter().map(|kind| (kind.1, kind.2)).unzip();
        let finish = [round.into(), ids, epochs, outcomes, texts(&results), texts(&messages), Value::Null];
        sql.run("finish_many", &finish).unwrap();
        assert_eq!(sql.state(&keys), ours.state(&keys));
        if !leases.is_empty() {
            assert_eq!(sql.run("finish_many", &finish).unwrap_err().why(), Why::Repeated);
        }
    }
}

#[test]
fn one_wrong_item_fails_the_call_and_nothing_is_changed() {
    let world = world();
    let tasks = ["a", "b", "c"].map(|name| NewTask::new(key(name)).lease_loss(LeaseLoss::Fail));
    let keys = ["a", "b", "c"].map(key);
    world.store.write(|tx| tx.enqueue(now(), &tasks)).unwrap();
    let mut leases: Vec<LeaseRef> = world.admit(NOW).iter().map(TaskRecord::lease_ref).collect();
    world.finish(leases[0], NOW, "success", None, None).unwrap();
    let before = world.state(&keys);
    let one_length = |outcomes: &[Option<&str>], retry: Value| {
        let [ids, epochs] = ints(&leases);
        let end = [NOW.into(), ids, epochs, texts(outcomes), Value::Null, Value::Null, retry];
        world.run("finish_many", &end).unwrap_err().why()
    };
    let success = Some("success");
    assert_eq!(one_length(&[success; 3], Value::Null), Why::Repeated);
    assert_eq!(one_length(&[Some("failed"), success, success], Value::Null), Why::Stale);
    assert_eq!(one_length(&[success, success, None], Value::Null), Why::Argument);
    assert_eq!(one_length(&[success; 2], Value::Null), Why::Argument);
    assert_eq!(one_length(&[success; 3], Value::Ints(vec![1])), Why::Argument);
    leases[0] = leases[1];
    let [ids, epochs] = ints(&leases);
    let twice =
        [NOW.into(), ids.clone(), epochs, texts(&[success; 3]), Value::Null, Value::Null, Value::Null];
    assert_eq!(world.run("finish_many", &twice).unwrap_err().why(), Why::Argument);
    for epochs in [Value::Ints(vec![1]), Value::Null] {
        let start = [NOW.into(), ids.clone(), epochs];
        assert_eq!(world.run("start_many", &start).unwrap_err().why(), Why::Argument);
    }
    // One lease of a task is its latest, and another one is not.
    let later = LeaseRef::new(leases[1].id, leases[1].epoch + 1);
    let [ids, epochs] = ints(&[leases[1], later]);
    let both = [NOW.into(), ids, epochs, texts(&[success; 2]), Value::Null, Value::Null, Value::Null];
    assert_eq!(world.run("finish_many", &both).unwrap_err().why(), Why::Stale);
    let stale = [NOW.into(), Value::Ints(vec![leases[1].id.0, 99]), Value::Ints(vec![leases[1].epoch, 1])];
    assert_eq!(world.run("start_many", &stale).unwrap_err().why(), Why::Stale);
    for list in [
        "",
        "{}",
        "null",
        "[3]",
        "[null]",
        r#"[{"namespace":"n","workflow":"w","run":"r"}]"#,
        r#"[{"namespace":"n","workflow":"w","run":"r","task":"t","map_index":"x"}]"#,
        r#"[{"namespace":"n","workflow":"w","run":"r","task":"t","prioriti":1}]"#,
        r#"[{"namespace":"n","workflow":"w","run":"r","task":"t","payload":"\u0000"}]"#,
        r#"[{"namespace":"n","workflow":"w","run":"r","task":"t"},{"namespace":"n","workflow":"w","run":"r","task":""}]"#,
    ] {
        assert_eq!(
            world.run("enqueue_many", &values![NOW, list]).expect_err(list).why(),
            Why::Argument,
            "{list}"
        );
    }
    assert_eq!(world.run("enqueue_many", &[NOW.into(), Value::Null]).unwrap_err().why(), Why::Argument);
    assert_eq!(world.run("enqueue_many", &values![NOW, "[]"]).unwrap(), Vec::<Vec<Value>>::new());
    assert_eq!(world.state(&keys), before);
}

/// One call of 10,000 items takes about as long as ten calls of 1,000, which others on the machine delay as much.
/// If its time grew with the square of the items, it would take ten times as long.
#[test]
fn the_cost_grows_with_the_items() {
    const ITEMS: usize = 10_000;
    let world = world();
    let mut round = 0;
    let mut times = |piece: usize| {
        round += 1;
        let task = |n: usize| {
            let key = TaskKey::new("prod", "nightly", format!("r{round}"), format!("t{n}")).unwrap();
            NewTask::new(key).pool("db".try_into().unwrap()).pool_slots(1 + n as u32 % 3_000)
        };
        let tasks: Vec<NewTask> = (0..ITEMS).map(task).collect();
        let lists: Vec<[Value; 2]> = tasks.chunks(piece).map(|tasks| values![NOW, list(tasks)]).collect();
        let timed = |name: &str, calls: &[&[Value]]| {
            let begun = Instant::now();
            calls.iter().for_each(|values| drop(world.run(name, values).unwrap()));
            begun.elapsed()
        };
        let enqueued = timed("enqueue_many", &lists.iter().map(|list| &list[..]).collect::<Vec<_>>());
        let (mut granted, mut ticks) = (Vec::new(), 0);
        // A tick folds a limited number of deltas at a time.
        while granted.len() < ITEMS {
            ticks += 1;
            assert!(ticks < 9, "{} tasks in round {round}", granted.len());
            let order = stationmaster::ops::AdmitRequest::new(
                "h".try_into().unwrap(),
                format!("tick {round} {ticks}").as_str().try_into().unwrap(),
                ITEMS,
                Duration::from_secs(600),
            );
            granted.extend(world.store.write(|tx| tx.admit(now(), &order)).unwrap().granted);
        }
        let leases: Vec<LeaseRef> = granted.iter().map(TaskRecord::lease_ref).collect();
        let ends = |leases: &[LeaseRef]| {
            let ([ids, epochs], null) = (ints(leases), Value::Null);
            let outcomes = texts(&vec![Some("success"); leases.len()]);
            [NOW.into(), ids, epochs, outcomes, null.clone(), null.clone(), null]
        };
        let ends: Vec<[Value; 7]> = leases.chunks(piece).map(ends).collect();
        let started = timed("start_many", &ends.iter().map(|end| &end[..3]).collect::<Vec<_>>());
        let finished = timed("finish_many", &ends.iter().map(|end| &end[..]).collect::<Vec<_>>());
        [enqueued, started, finished]
    };
    let (mut pieces, mut whole) = ([Duration::MAX; 3], [Duration::MAX; 3]);
    for _ in 0..2 {
        for (least, piece) in [(&mut pieces, ITEMS / 10), (&mut whole, ITEMS)] {
            least.iter_mut().zip(times(piece)).for_each(|(least, time)| *least = time.min(*least));
        }
    }
    println!("ten calls {pieces:?}, one call {whole:?}");
    for (pieces, whole) in pieces.into_iter().zip(whole) {
        assert!(whole <= pieces * 3, "{pieces:?} became {whole:?}");
    }
}
