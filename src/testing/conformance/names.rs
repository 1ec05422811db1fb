//! Hostile text: every name comes back byte for byte, and sorts by its bytes.

use super::snapshot::{Snapshot, Watch};
use super::steps::Steps;
use super::world::{World, at, holder, limit, pool, rows, sized, task, to, worker};
use crate::TaskKey;
use crate::admission::limits::LimitSpec;
use crate::canonical::PokeContext;
use crate::feed::TaskEvent;
use crate::id::{MAX_BYTES, RequestId};
use crate::lease::LeaseRef;
use crate::run::{ActiveQuery, RunKey, RunRecord, RunStatus};
use crate::store::contract::{Move, ShardLease, ShardWrite};
use crate::store::{Inserted, Store};
use crate::task::{Feed, NewTask, TaskState};

cases!("names":
    task_keys_come_back_byte_for_byte,
    pools_and_limits_sort_by_their_bytes,
    holders_and_requests_come_back,
    runs_sort_by_the_bytes_of_their_names,
    free_text_comes_back_byte_for_byte,
    kinds_and_contexts_come_back,
);

/// Names that have broken programs. All differ, some only by a blank, by case or by normal form.
fn hostile() -> Vec<String> {
    let mut names: Vec<String> = [
        "plain",
        "Plain",
        "PLAIN",
        "plain ",
        " plain",
        " ",
        "   ",
        "\t",
        "\n",
        "\r\n",
        "'",
        "''",
        "\"",
        "`",
        "\\",
        "\\\\",
        "\\'",
        "%",
        "_",
        "%_%",
        "a_c",
        "abc",
        "a%c",
        "*",
        "?",
        "[a-z]",
        "--",
        "/*",
        "*/",
        ";",
        "'; DROP TABLE task; --",
        "$1",
        "?1",
        ":name",
        "@name",
        "{}",
        "{0}",
        "null",
        "NULL",
        "0",
        "-1",
        "1e3",
        "01",
        "true",
        "\u{1}",
        "\u{7f}",
        "\u{1b}[31m",
        "\u{feff}",
        "\u{feff}a",
        "\u{200b}",
        "\u{202e}abc",
        "مرحبا",
        "שלום",
        "日本語",
        "é",
        "e\u{301}",
        "\u{c5}",
        "\u{212b}",
        "ſ",
        "ß",
        "ẞ",
        "ss",
        "İ",
        "i",
        "ı",
        "I",
        "😀",
        "👩‍👩‍👧",
        "\u{fffd}",
        "\u{ffff}",
        "\u{10000}",
        "\u{10ffff}",
        "/",
        "a/b",
        "..",
        "a,b",
        "a\u{1f}b",
    ]
    .map(String::from)
    .to_vec();
    names.push("x".repeat(MAX_BYTES));
    names.push("é".repeat(MAX_BYTES / 2));
    names.push("😀".repeat(MAX_BYTES / 4));
    names
}

fn task_keys_come_back_byte_for_byte(store: &dyn Store) {
    let world = World(store);
    let names = hostile();
    let mut keys = Vec::new();
    for name in &names {
        keys.push(TaskKey::new(name, "w", "r", "t").unwrap());
        keys.push(TaskKey::new("n", name, "r", "t").unwrap());
        keys.push(TaskKey::new("n", "w", name, "t").unwrap());
        keys.push(TaskKey::new("n", "w", "r", name).unwrap());
        keys.push(TaskKey::new(name, name, name, name).unwrap().mapped(7));
    }
    let inserts = rows(&keys.iter().cloned().map(NewTask::new).collect::<Vec<_>>());
    let answers = world.write(|tx| tx.insert_tasks_if_absent(&inserts));
    assert!(answers.iter().all(|answer| matches!(answer, Inserted::New(_))), "no two of them are equal");
    let found = world.read(|tx| tx.tasks(&keys));
    for ((key, found), answer) in keys.iter().zip(found).zip(answers) {
        let found = found.unwrap_or_else(|| panic!("{key:?} is there"));
        assert_eq!((&found.key, Inserted::New(found.id)), (key, answer));
    }
    let again = world.write(|tx| tx.insert_tasks_if_absent(&inserts));
    assert!(again.iter().all(|answer| matches!(answer, Inserted::Exists(_))));
}

fn pools_and_limits_sort_by_their_bytes(store: &dyn Store) {
    let world = World(store);
    let mut names = hostile();
    let specs: Vec<_> = names.iter().map(|name| sized(name, 3).described(name)).collect();
    let limits: Vec<_> = names.iter().map(|name| LimitSpec::new(limit(name), 3).unwrap()).collect();
    world.write(|tx| {
        tx.put_pools(&specs)?;
        tx.put_limits(&limits)
    });
    let news: Vec<NewTask> = names
        .iter()
        .map(|name| {
            NewTask::new(super::world::key(name)).pool(pool(name)).limit(limit(name)).limit(limit("plain"))
        })
        .collect();
    let ids = world.insert(&news);
    let one_by_one: Vec<_> =
        ids.iter().filter(|id| world.task(**id).key.task.as_str() != "plain").take(3).collect();
    for id in &one_by_one {
        world.admit(&[**id]);
    }
    let (pools, keys) = world.read(|tx| Ok((tx.all_pools()?, tx.all_limits()?)));
    names.sort_unstable();
    let pools: Vec<_> = pools.into_iter().filter(|pool| pool.spec.name.as_str() != "default_pool").collect();
    assert_eq!(pools.iter().map(|pool| pool.spec.name.to_string()).collect::<Vec<_>>(), names);
    assert_eq!(keys.iter().map(|limit| limit.key.to_string()).collect::<Vec<_>>(), names);
    assert!(pools.iter().all(|pool| pool.spec.description == pool.spec.name.as_str()));
    assert_eq!(pools.iter().map(|pool| pool.used).sum::<i64>(), 3, "each counts for itself");
    let lanes = world.read(|tx| tx.ready_lanes());
    assert_eq!(lanes.len(), names.len() - 3, "each is a lane of its own");
}

fn holders_and_requests_come_back(store: &dyn Store) {
    let world = World(store);
    let mut names = hostile();
    let tasks: Vec<String> = (0..names.len()).map(|n| n.to_string()).collect();
    let ids = world.plain(&tasks.iter().map(String::as_str).collect::<Vec<_>>());
    for (name, id) in names.iter().zip(&ids) {
        world.admit_as(&RequestId::new(name).unwrap(), &[*id], at(5));
    }
    world.write(|tx| {
        for (name, epoch) in names.iter().zip(1..) {
            tx.put_worker(&worker(name, at(9)))?;
            let lease = ShardLease::new(epoch as u32, Some(holder(name)), 1, at(9));
            tx.put_shards_if_unchanged(&[ShardWrite::new(0, lease)])?;
        }
        Ok(())
    });
    for (name, id) in names.iter().zip(ids) {
        let granted = world.read(|tx| tx.granted(&RequestId::new(name).unwrap()));
        assert_eq!(granted, Some(vec![LeaseRef::new(id, 1)]), "{name:?}");
    }
    let holders: Vec<String> = world
        .read(|tx| tx.shard_leases())
        .into_iter()
        .flat_map(|lease| lease.holder)
        .map(|h| h.to_string())
        .collect();
    assert_eq!(holders, names);
    names.sort_unstable();
    let workers = world.read(|tx| tx.live_workers(at(0)));
    assert_eq!(workers.iter().map(|worker| worker.name.to_string()).collect::<Vec<_>>(), names);
    world.write(|tx| tx.delete_worker(&holder("plain")));
    assert_eq!(world.read(|tx| tx.live_workers(at(0))).len(), names.len() - 1);
    let released = world.read(|tx| tx.shard_leases()).iter().filter(|lease| lease.holder.is_none()).count();
    assert_eq!(released, 1);
}

fn runs_sort_by_the_bytes_of_their_names(store: &dyn Store) {
    let world = World(store);
    let names = hostile();
    let mut runs = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let mut first = RunRecord::open(RunKey::new(name, "r").unwrap(), at(5)).user(name).attributes(name);
        let mut second = RunRecord::open(RunKey::new("n", name).unwrap(), at(5))
            .workflow(name.as_str().try_into().unwrap());
        if index % 2 == 0 {
            first = first.closed(at(9), RunStatus::Completed);
            second = second.closed(at(9), RunStatus::Killed);
        }
        runs.extend([first, second]);
    }
    world.write(|tx| tx.put_runs(&runs));
    runs.sort_by(|a, b| a.key.cmp(&b.key));
    assert_eq!(world.read(|tx| tx.active_runs(&ActiveQuery::new(at(0), at(6)))), runs);
    for name in &names {
        let query = ActiveQuery::new(at(0), at(6)).namespace(name.as_str().try_into().unwrap());
        let found = world.read(|tx| tx.active_runs(&query));
        assert_eq!(found.iter().map(|run| run.key.namespace.as_str()).collect::<Vec<_>>(), [name]);
    }
}

fn free_text_comes_back_byte_for_byte(store: &dyn Store) {
    let world = World(store);
    let mut texts = hostile();
    texts.extend([String::new(), "a".repeat(1 << 20), "\u{10ffff}".repeat(1000)]);
    let news: Vec<NewTask> = texts
        .iter()
        .enumerate()
        .map(|(index, text)| super::world::task(&index.to_string()).payload(text))
        .collect();
    let ids = world.insert(&news);
    let moves: Vec<_> = ids
        .iter()
        .zip(&texts)
        .map(|(id, text)| {
            let mut wanted = to(LeaseRef::new(*id, 0), TaskState::Failed);
            wanted.message = Some(text.clone());
            wanted.value = Some(text.clone());
            wanted
        })
        .collect();
    world.shift(&moves);
    for (task, text) in world.read(|tx| tx.tasks_by_id(&ids)).into_iter().flatten().zip(&texts) {
        assert!(
            task.payload == *text && task.message.as_ref() == Some(text) && task.value.as_ref() == Some(text)
        );
    }
}

fn kinds_and_contexts_come_back(store: &dyn Store) {
    let world = World(store);
    let names = hostile();
    let tasks: Vec<String> = (0..names.len()).map(|index| index.to_string()).collect();
    let ids = world.insert(&tasks.iter().map(|name| task(name).feed(Feed::Ends)).collect::<Vec<_>>());
    let leases = world.run(&ids);
    let mut inserts = Vec::new();
    for (lease, name) in leases.iter().zip(&names) {
        let mut new = super::world::sensor(*lease, "x");
        new.kind = name.as_str().try_into().unwrap();
        let text = serde_json::to_string(&serde_json::json!({ "where": name })).unwrap();
        new.context = PokeContext::from_json(&text).unwrap();
        inserts.push(new.insert(at(30)));
    }
    let moves: Vec<_> = leases.iter().map(|lease| to(*lease, TaskState::Sensing)).collect();
    let sensors = world.write(|tx| {
        tx.move_if(&moves)?;
        tx.put_sensors(&inserts)
    });
    let found = world.read(|tx| Snapshot::of(tx, &Watch::default())).changed;
    assert_eq!(found, sensors);
    for (sensor, insert) in sensors.iter().zip(&inserts) {
        assert_eq!((&sensor.kind, &sensor.context), (&insert.kind, &insert.context));
    }
    let ends = leases.iter().zip(&names).map(|(lease, name)| Move {
        from: TaskState::Sensing,
        value: Some(name.clone()),
        message: Some(name.clone()),
        ..to(*lease, TaskState::Success)
    });
    let ends: Vec<Move> = ends.collect();
    world.shift(&ends);
    world.write(|tx| tx.number_changes(999));
    let events = world.read(|tx| tx.feed(0, 999));
    let texts = |event: &TaskEvent| [event.value.clone(), event.message.clone()];
    assert!(
        events.iter().zip(&names).all(|(event, name)| texts(event) == [(); 2].map(|()| Some(name.clone())))
    );
    assert_eq!(events.len(), names.len());
}
