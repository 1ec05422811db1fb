//! Changes and events that were committed without numbers, as transactions leave them that do not get the lock
//! of numbers. The hosts here are connections of the tests, which write as the store's statements do.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use stationmaster::canonical::PokeContext;
use stationmaster::error::StoreError;
use stationmaster::ops::{AdmitRequest, Registered};
use stationmaster::sensor::{EndReason, NewSensor, SensorRecord, Settings};
use stationmaster::service::{FeedReader, Service};
use stationmaster::shard::DEFAULT_CODES;
use stationmaster::store::contract::{Ending, SensorChanges, SensorQuery, SensorState, WhichSensors};
use stationmaster::store::{PostgresStore, Store};
use stationmaster::task::Feed;
use stationmaster::testing::RawStoreExt;
use stationmaster::{Error, LeaseRef, NewTask, TaskRecord, TaskState, Timestamp};

use crate::postgres_server::Plain;
use crate::scratch::{Scratch, ScratchStore, url};
use crate::task;

const LATER: Duration = Duration::from_secs(1_000_000);

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

/// This many sensors that wait.
fn sense(store: &PostgresStore, count: usize) -> Vec<SensorRecord> {
    let tasks: Vec<NewTask> = (0..count).map(|n| task(&n.to_string()).feed(Feed::EndsAndSensors)).collect();
    let request = AdmitRequest::new(
        "h".try_into().unwrap(),
        "tick".try_into().unwrap(),
        count,
        Duration::from_secs(60),
    );
    let settings = Settings::new(Duration::from_secs(10), Duration::from_secs(1_000)).unwrap();
    store.write(|tx| tx.enqueue(at(0), &tasks)).unwrap();
    let granted = store.write(|tx| tx.admit(at(0), &request)).unwrap().granted;
    let granted: Vec<LeaseRef> = granted.iter().map(TaskRecord::lease_ref).collect();
    let answers = store.write(|tx| {
        tx.start(at(0), &granted)?;
        let sensor = |lease: &LeaseRef| {
            NewSensor::new(
                *lease,
                "kind".try_into().unwrap(),
                PokeContext::from_json("{}").unwrap(),
                settings,
            )
        };
        tx.register(at(0), &granted.iter().map(sensor).collect::<Vec<_>>())
    });
    let waiting = |answer| match answer {
        Registered::Waiting(sensor) => *sensor,
        other => panic!("{other:?}"),
    };
    answers.unwrap().into_iter().map(waiting).collect()
}

fn end(store: &dyn Store, sensor: &SensorRecord) {
    let landed = Ending::new(EndReason::Landed, TaskState::Success);
    let ends = [(LeaseRef::new(sensor.id, sensor.epoch), landed)];
    assert_eq!(store.write(|tx| tx.end_sensors(at(5), &ends)).unwrap(), [true]);
}

/// What a transaction that ends a sensor writes.
fn end_by_hand(scratch: &Scratch, sensor: &SensorRecord) -> String {
    let (schema, no) = (&scratch.0, sensor.id.0);
    format!(
        "UPDATE {schema}.sensor SET state = 1 WHERE no = {no};
         INSERT INTO {schema}.sensor_inbox (no, kind) VALUES ({no}, 1);
         INSERT INTO {schema}.feed_inbox (no, attempt, at, state, reason, map_index, namespace, workflow, run, task)
         VALUES ({no}, 1, 0, 6, 0, -1, 'n', 'w', 'r', 't');"
    )
}

/// A connection whose transaction holds the lock of numbers.
fn numberer(scratch: &Scratch) -> Plain {
    let other = Plain::connect(&url());
    other.ask(&format!(
        "BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('\"{}\".numbers', 0))",
        scratch.0
    ));
    other
}

fn changes(store: &dyn Store) -> SensorChanges {
    store.read_raw(|tx| tx.sensor_changes().map_err(Error::Store)).unwrap()
}

fn number(store: &dyn Store) -> usize {
    store.write_raw(|tx| tx.number_changes(99).map_err(Error::Store)).unwrap()
}

fn changed(store: &dyn Store, after: u64) -> Vec<SensorRecord> {
    let query =
        SensorQuery::new(after, DEFAULT_CODES, std::iter::once(0..u32::MAX).collect(), WhichSensors::All, 99);
    store.read_raw(|tx| tx.changed_sensors(&query).map_err(Error::Store)).unwrap()
}

fn events(store: &dyn Store) -> Vec<i64> {
    store.read(|tx| tx.feed(0, 99)).unwrap().iter().map(|event| event.id.0).collect()
}

/// The tasks of the events that a tick gives to a handler, in their order.
fn delivered(store: PostgresStore) -> Vec<i64> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&seen);
    let mut reader = FeedReader::new(Arc::new(store), "c".try_into().unwrap(), move |event| {
        told.lock().unwrap().push(event.id.0);
        Ok(())
    });
    reader.tick(at(9)).unwrap();
    seen.lock().unwrap().clone()
}

#[test]
fn what_an_open_transaction_noted_is_numbered_when_it_committed() {
    let ScratchStore { store, scratch } = ScratchStore::open(|options| options);
    let sensors = sense(&store, 2);
    let (late, early) = (&sensors[0], &sensors[1]);
    let begun = changes(&store).last;

    let host = Plain::connect(&url());
    host.ask(&format!("BEGIN; {}", end_by_hand(&scratch, late)));
    end(&store, early);
    assert_eq!(
        (changes(&store).last, changes(&store).unnumbered),
        (begun + 1, false),
        "it waited for no one"
    );
    assert_eq!(events(&store), [early.id.0]);

    host.ask("COMMIT");
    assert_eq!((changes(&store).last, changes(&store).unnumbered), (begun + 1, true));
    assert_eq!(changed(&store, begun + 1), [], "what has no number is not found");
    assert_eq!(delivered(scratch.open(|options| options)), [early.id.0, late.id.0]);
    assert_eq!((changes(&store).last, changes(&store).unnumbered), (begun + 2, false));
    let found = changed(&store, begun + 1);
    assert_eq!((found.len(), found[0].id, found[0].state), (1, late.id, SensorState::Ended));
}

#[test]
fn a_transaction_that_numbers_at_once_finds_what_it_changed_itself() {
    let ScratchStore { store, scratch: _scratch } = ScratchStore::open(|options| options);
    let store = store.numbering();
    let sensor = &sense(&store, 1)[0];
    let begun = changes(&store).last;
    assert_eq!((sensor.changed, begun), (1, 1));
    let found = store.write_raw(|tx| {
        let ended = tx.end_sensors_if_waiting(&[LeaseRef::new(sensor.id, sensor.epoch)])?.remove(0).unwrap();
        let query = SensorQuery::new(
            begun,
            DEFAULT_CODES,
            std::iter::once(0..u32::MAX).collect(),
            WhichSensors::All,
            99,
        );
        Ok((ended.changed, tx.changed_sensors(&query)?, tx.sensor_changes()?.last))
    });
    let (number, found, last) = found.unwrap();
    assert_eq!((number, last), (begun + 1, begun + 1));
    assert_eq!(found.iter().map(|sensor| sensor.changed).collect::<Vec<_>>(), [number]);
}

/// They are given last, so a long transaction keeps no other from giving them.
#[test]
fn numbers_come_with_the_commit() {
    let ScratchStore { store, scratch } = ScratchStore::open(|options| options);
    let sensors = sense(&store, 2);
    let begun = changes(&store).last;
    assert_eq!((sensors[0].changed, begun), (0, 2), "no number yet when it was registered");
    let other = scratch.open(|options| options);
    let lease = LeaseRef::new(sensors[0].id, sensors[0].epoch);
    let ended = store.write_raw(|tx| {
        let ended = tx.end_sensors_if_waiting(&[lease])?.remove(0).unwrap();
        end(&other, &sensors[1]);
        assert_eq!((changes(&other).last, changes(&other).unnumbered), (begun + 1, false));
        Ok(ended.changed)
    });
    assert_eq!(ended.unwrap(), 0);
    assert_eq!((changes(&store).last, changes(&store).unnumbered), (begun + 2, false));
}

#[test]
fn who_holds_the_lock_of_numbers_delays_nothing_but_numbers() {
    let ScratchStore { store, scratch } = ScratchStore::open(|options| options);
    let sensors = sense(&store, 2);
    let begun = changes(&store).last;
    let other = numberer(&scratch);
    end(&store, &sensors[0]);
    end(&store, &sensors[1]);
    assert_eq!((changes(&store).last, changes(&store).unnumbered), (begun, true));
    assert_eq!((number(&store), events(&store)), (0, vec![]));
    other.ask("COMMIT");
    assert_eq!(number(&store), 2);
    assert_eq!(events(&store), [sensors[0].id.0, sensors[1].id.0]);
    let order: Vec<_> = changed(&store, begun).iter().map(|sensor| (sensor.id, sensor.changed)).collect();
    assert_eq!(order, [(sensors[0].id, begun + 1), (sensors[1].id, begun + 2)]);
    assert!(!changes(&store).unnumbered);
}

#[test]
fn a_numberer_that_is_rolled_back_took_nothing() {
    let ScratchStore { store, scratch } = ScratchStore::open(|options| options);
    let sensor = &sense(&store, 1)[0];
    let (begun, plain) = (changes(&store).last, Plain::connect(&url()));
    plain.ask(&end_by_hand(&scratch, sensor));
    let undone = store.write_raw(|tx| -> stationmaster::Result<()> {
        assert_eq!(tx.number_changes(99)?, 1);
        Err(StoreError::conflict("undone").into())
    });
    assert!(undone.is_err());
    assert_eq!((changes(&store).last, changes(&store).unnumbered), (begun, true));
    assert_eq!(number(&store), 1);
    assert_eq!((changes(&store).last, changes(&store).unnumbered), (begun + 1, false));
    assert_eq!(
        plain.number(&format!("SELECT count(*) FROM {}.numbers", scratch.0)),
        1,
        "one version is left"
    );
}

#[test]
fn as_many_get_numbers_as_were_asked_for() {
    let ScratchStore { store, scratch } = ScratchStore::open(|options| options);
    let sensors = sense(&store, 3);
    let plain = Plain::connect(&url());
    for sensor in &sensors {
        plain.ask(&end_by_hand(&scratch, sensor));
    }
    let few = |limit| store.write_raw(|tx| tx.number_changes(limit).map_err(Error::Store)).unwrap();
    assert_eq!((few(0), few(2), changes(&store).unnumbered), (0, 2, true));
    assert_eq!((events(&store).len(), few(2), few(2)), (2, 1, 0));
    assert_eq!(events(&store), sensors.iter().map(|sensor| sensor.id.0).collect::<Vec<_>>());
}

/// A sensor whose end has no number is kept. A follower that has not seen the end of
/// a sensor learns that it was deleted, also before the deletion was numbered.
#[test]
fn what_has_no_number_is_not_forgotten() {
    let ScratchStore { store, scratch } = ScratchStore::open(|options| options);
    let sensors = sense(&store, 2);
    let begun = changes(&store).last;
    let forget = || store.write(|tx| tx.forget_ended(at(10) + LATER, Duration::ZERO, 9)).unwrap();
    let other = numberer(&scratch);
    end(&store, &sensors[0]);
    assert_eq!(forget(), 0, "its end has no number");
    other.ask("COMMIT");
    assert_eq!(number(&store), 1);

    let other = numberer(&scratch);
    assert_eq!((changes(&store).last_forgotten, forget()), (0, 1));
    let deleted = changes(&store);
    assert_eq!((deleted.last, deleted.last_forgotten, deleted.unnumbered), (begun + 1, begun + 1, true));
    other.ask("COMMIT");
    assert_eq!(number(&store), 1);
    let numbered = changes(&store);
    assert_eq!((numbered.last, numbered.last_forgotten, numbered.unnumbered), (begun + 1, begun + 1, false));
    let left = format!("SELECT count(*) FROM {}.sensor_change", scratch.0);
    assert_eq!(Plain::connect(&url()).number(&left), 1, "the other sensor's");
}
