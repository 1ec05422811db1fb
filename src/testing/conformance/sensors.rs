//! Registering sensors, following their changes, and ending them.

use std::num::NonZeroU32;
use std::time::Duration;

use super::snapshot::all_sensors;
use super::world::{World, at, holder, key, sensor, to};
use crate::lease::{LeaseRef, TaskId};
use crate::sensor::{NewSensor, SensorRecord, SensorState};
use crate::shard::code;
use crate::store::Store;
use crate::store::contract::{SensorQuery, WhichSensors};
use crate::task::TaskState;

cases!("sensors":
    a_sensor_is_stored_as_it_was_registered,
    found_by_task_in_the_order_of_the_arguments,
    a_new_registration_replaces_the_old_one,
    the_attempt_is_the_latest_of_the_task,
    only_waiting_sensors_of_the_epoch_end,
    a_replaced_registration_is_fenced,
    changes_come_in_order,
    changes_are_paged_without_gap_or_repetition,
    followers_can_leave_out_what_ended,
    changes_are_filtered_by_shard,
    equal_contexts_have_equal_fingerprints,
);

fn names(sensors: &[SensorRecord]) -> Vec<&str> {
    sensors.iter().map(|sensor| sensor.task.task.as_str()).collect()
}

fn changed(world: World<'_>, after: u64, which: WhichSensors, limit: usize) -> Vec<SensorRecord> {
    world.read(|tx| tx.changed_sensors(&all_sensors(after, which, limit)))
}

fn a_sensor_is_stored_as_it_was_registered(store: &dyn Store) {
    let world = World(store);
    assert_eq!(world.read(|tx| tx.sensor_changes()).last, 0);
    let ids = world.plain(&["a", "b"]);
    let leases = world.run(&ids);
    let ms = Duration::from_millis;
    let each = |lease| {
        let plain = sensor(lease, "over there");
        let settings = plain.settings.execution_timeout(ms(900)).unwrap().poke_timeout(ms(7)).unwrap();
        let settings = settings.max_interval(ms(80)).unwrap();
        [plain.clone(), NewSensor { settings, ..plain }]
    };
    let [plain, full] = each(leases[1]);
    let mut inserts = [plain, each(leases[0])[1].clone()].map(|sensor| sensor.insert(at(30)));
    inserts[1].registered_by = Some(holder("the runner"));
    assert_eq!((inserts[1].settings, inserts[1].times_out_at), (full.settings, at(30) + ms(900)));
    world.shift(&[to(leases[0], TaskState::Sensing), to(leases[1], TaskState::Sensing)]);
    let answered = world.write(|tx| tx.put_sensors(&inserts));
    assert!(
        0 < answered[0].changed && answered[0].changed < answered[1].changed,
        "each is a change of its own"
    );
    for ((sensor, insert), name) in answered.iter().zip(inserts).zip(["b", "a"]) {
        let expected = SensorRecord::registered(insert, key(name), 1, 1, sensor.changed);
        assert_eq!(sensor, &expected, "in the order of the arguments");
    }
    assert_eq!(world.read(|tx| tx.sensor_changes()).last, answered[1].changed);
    assert_eq!(changed(world, 0, WhichSensors::All, 9), answered);
}

fn found_by_task_in_the_order_of_the_arguments(store: &dyn Store) {
    let world = World(store);
    let sensors = world.sense(&world.plain(&["a", "b"]));
    world.plain(&["none"]);
    let found = world.read(|tx| tx.sensors(&["b", "none", "nobody", "a", "b"].map(key)));
    let [a, b] = [0, 1].map(|index: usize| Some(sensors[index].clone()));
    assert_eq!(found, [b.clone(), None, None, a, b]);
}

fn a_new_registration_replaces_the_old_one(store: &dyn Store) {
    let world = World(store);
    let id = world.plain(&["a"])[0];
    let first = world.sense(&[id]).remove(0);
    let ended = world.write(|tx| tx.end_sensors_if_waiting(&[first.lease_ref()])).remove(0).unwrap();
    world.shift(&[to(first.lease_ref(), TaskState::Scheduled)]);
    let second = world.sense(&[id]).remove(0);
    assert_eq!((first.generation, first.epoch), (1, 1));
    assert_eq!((second.generation, second.epoch, second.state), (2, 2, SensorState::Waiting));
    assert!(first.changed < ended.changed && ended.changed < second.changed);
    assert_eq!(world.read(|tx| tx.sensors(&[key("a")])), [Some(second.clone())]);
    assert_eq!(changed(world, 0, WhichSensors::All, 9), [second], "one row for each task");
}

fn the_attempt_is_the_latest_of_the_task(store: &dyn Store) {
    let world = World(store);
    let id = world.plain(&["a"])[0];
    for attempt in 1..=3 {
        let sensor = world.sense(&[id]).remove(0);
        assert_eq!((sensor.attempt, sensor.epoch), (attempt, i64::from(attempt)));
        world.write(|tx| tx.end_sensors_if_waiting(&[sensor.lease_ref()]));
        world.shift(&[to(sensor.lease_ref(), TaskState::Scheduled)]);
    }
}

fn only_waiting_sensors_of_the_epoch_end(store: &dyn Store) {
    let world = World(store);
    let sensors = world.sense(&world.plain(&["a", "b"]));
    let [a, b] = [0, 1].map(|index: usize| sensors[index].lease_ref());
    let stale = LeaseRef::new(a.id, 0);
    let later = LeaseRef::new(b.id, 2);
    let unknown = LeaseRef::new(TaskId(i64::MAX), 1);
    let last = world.read(|tx| tx.sensor_changes()).last;
    let answers = world.write(|tx| tx.end_sensors_if_waiting(&[stale, later, unknown]));
    assert_eq!(answers, [None, None, None]);
    assert_eq!(world.read(|tx| tx.sensor_changes()).last, last, "nothing was changed");
    let answers = world.write(|tx| tx.end_sensors_if_waiting(&[b, a, b]));
    let ended = answers[0].clone().unwrap();
    let mut expected = sensors[1].clone();
    expected.state = SensorState::Ended;
    expected.changed = ended.changed;
    assert_eq!(ended, expected);
    assert!(answers[1].is_some() && answers[2].is_none(), "once");
    assert!(ended.changed > last);
    assert_eq!(world.write(|tx| tx.end_sensors_if_waiting(&[a, b])), [None, None]);
}

fn a_replaced_registration_is_fenced(store: &dyn Store) {
    let world = World(store);
    let id = world.plain(&["a"])[0];
    let old = world.sense(&[id]).remove(0).lease_ref();
    world.shift(&[to(old, TaskState::Scheduled)]);
    let new = world.sense(&[id]).remove(0);
    assert_eq!(world.write(|tx| tx.end_sensors_if_waiting(&[old])), [None]);
    assert_eq!(world.read(|tx| tx.sensors(&[key("a")])), [Some(new.clone())]);
    assert!(world.write(|tx| tx.end_sensors_if_waiting(&[new.lease_ref()]))[0].is_some());
}

fn changes_come_in_order(store: &dyn Store) {
    let world = World(store);
    let sensors = world.sense(&world.plain(&["a", "b", "c", "d"]));
    let all = changed(world, 0, WhichSensors::All, 99);
    assert_eq!(names(&all), ["a", "b", "c", "d"]);
    assert!(all.windows(2).all(|pair| pair[0].changed < pair[1].changed));
    world.write(|tx| tx.end_sensors_if_waiting(&[sensors[2].lease_ref(), sensors[0].lease_ref()]));
    let all = changed(world, 0, WhichSensors::All, 99);
    let (_, ended) = all.split_at(2);
    assert_eq!(names(&all)[..2], ["b", "d"]);
    assert_eq!(ended.iter().filter(|sensor| sensor.state == SensorState::Ended).count(), 2);
    assert!(all.windows(2).all(|pair| pair[0].changed < pair[1].changed));
    assert_eq!(world.read(|tx| tx.sensor_changes()).last, all[3].changed);
    assert_eq!(changed(world, sensors[3].changed, WhichSensors::All, 99), ended);
    assert_eq!(changed(world, all[3].changed, WhichSensors::All, 99), []);
}

fn changes_are_paged_without_gap_or_repetition(store: &dyn Store) {
    let world = World(store);
    let names: Vec<String> = (0..11).map(|n| n.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let sensors = world.sense(&world.plain(&names));
    for size in [1, 4, 11, 12] {
        let (mut after, mut found) = (0, Vec::new());
        loop {
            let page = changed(world, after, WhichSensors::All, size);
            assert!(page.len() <= size);
            after = page.last().map_or(after, |sensor| sensor.changed);
            let last = page.len() < size;
            found.extend(page);
            assert!(found.len() <= sensors.len(), "pages of {size} repeat a sensor");
            if last {
                break;
            }
        }
        assert_eq!(found, sensors, "in pages of {size}");
    }
    assert_eq!(changed(world, 0, WhichSensors::All, 0), []);
    assert_eq!(changed(world, 0, WhichSensors::All, usize::MAX), sensors);
    assert_eq!(changed(world, u64::MAX, WhichSensors::All, 9), [], "any place is taken");
}

fn followers_can_leave_out_what_ended(store: &dyn Store) {
    let world = World(store);
    let sensors = world.sense(&world.plain(&["a", "b", "c"]));
    world.write(|tx| tx.end_sensors_if_waiting(&[sensors[0].lease_ref()]));
    assert_eq!(names(&changed(world, 0, WhichSensors::Waiting, 9)), ["b", "c"]);
    assert_eq!(names(&changed(world, 0, WhichSensors::All, 9)), ["b", "c", "a"]);
    assert_eq!(names(&changed(world, 0, WhichSensors::Waiting, 1)), ["b"]);
    assert_eq!(names(&changed(world, sensors[1].changed, WhichSensors::Waiting, 9)), ["c"]);
    assert_eq!(names(&changed(world, sensors[2].changed, WhichSensors::Waiting, 9)), [""; 0]);
}

fn changes_are_filtered_by_shard(store: &dyn Store) {
    let world = World(store);
    let names: Vec<String> = (0..40).map(|n| n.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let sensors = world.sense(&world.plain(&names));
    let range = |start, end| start..end;
    for codes in [1_u32, 7, 10_000, u32::MAX] {
        let limit = NonZeroU32::new(codes).unwrap();
        let half = codes / 2;
        let lists = [
            vec![],
            vec![range(0, codes)],
            vec![range(0, half)],
            vec![range(half, codes)],
            vec![range(half, half)],
            vec![range(half / 2, half), range(half + half / 2, codes), range(0, 1.min(half))],
            vec![range(half, codes), range(0, half)],
        ];
        for ranges in lists {
            let within = |sensor: &&SensorRecord| {
                let code = code(sensor.fingerprint, limit);
                ranges.iter().any(|range| range.contains(&code))
            };
            let expected: Vec<SensorRecord> = sensors.iter().filter(within).cloned().collect();
            for size in [3, 99] {
                let query = SensorQuery::new(0, limit, ranges.clone(), WhichSensors::All, size);
                let found = world.read(|tx| tx.changed_sensors(&query));
                assert_eq!(found, expected[..size.min(expected.len())], "{codes} codes, {ranges:?}");
            }
        }
    }
}

fn equal_contexts_have_equal_fingerprints(store: &dyn Store) {
    let world = World(store);
    let leases = world.run(&world.plain(&["a", "b"]));
    let inserts: Vec<_> = leases.iter().map(|lease| sensor(*lease, "there").insert(at(30))).collect();
    world.shift(&[to(leases[0], TaskState::Sensing), to(leases[1], TaskState::Sensing)]);
    let answered = world.write(|tx| tx.put_sensors(&inserts));
    assert_eq!(answered[0].fingerprint, answered[1].fingerprint);
    assert_eq!(answered[0].context.as_str(), answered[1].context.as_str());
}
