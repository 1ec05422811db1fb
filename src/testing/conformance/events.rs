//! Events: kept in order until they are acknowledged.

use super::scene::landed;
use super::steps::Steps;
use super::world::{World, at, to};
use crate::error::Error;
use crate::sensor::{EndReason, Ending, SensorEvent, SensorRecord};
use crate::store::Store;
use crate::store::contract::EventNote;
use crate::task::TaskState;
use crate::testing::RawStoreExt;

cases!("events":
    an_event_is_kept_as_it_was_noted,
    events_come_in_the_order_of_their_notes,
    events_are_paged,
    an_acknowledged_event_is_gone,
    acknowledging_again_finds_nothing,
    events_noted_before_an_instant_are_forgotten,
    places_are_not_used_again,
    an_undone_note_is_no_event,
);

fn note(sensor: &SensorRecord, micros: i64) -> EventNote {
    EventNote::new(sensor.clone(), at(micros), landed())
}

fn seqs(world: World<'_>) -> Vec<u64> {
    world.read(|tx| tx.events(0, 99)).iter().map(|event| event.seq).collect()
}

fn an_event_is_kept_as_it_was_noted(store: &dyn Store) {
    let world = World(store);
    let sensors = world.sense(&world.plain(&["a", "b"]));
    let endings = [
        landed(),
        Ending {
            reason: EndReason::TimedOut,
            to: TaskState::Failed,
            value: None,
            message: Some("late".into()),
        },
        Ending {
            reason: EndReason::Failed,
            to: TaskState::Skipped,
            value: None,
            message: Some(String::new()),
        },
        Ending { reason: EndReason::ExecutionTimedOut, to: TaskState::Failed, value: None, message: None },
        Ending { reason: EndReason::Unreachable, to: TaskState::UpForRetry, value: None, message: None },
        Ending { reason: EndReason::Cancelled, to: TaskState::Skipped, value: None, message: None },
        Ending { reason: EndReason::Landed, to: TaskState::Scheduled, value: None, message: None },
    ];
    for ending in endings {
        world.write(|tx| tx.note_events(&[EventNote::new(sensors[1].clone(), at(-3), ending.clone())]));
        let event = world.read(|tx| tx.events(0, 9)).remove(0);
        assert!(event.seq > 0, "a place after 0, so that 0 asks for all");
        assert_eq!(event, SensorEvent::new(event.seq, &sensors[1], at(-3), ending));
        world.write(|tx| tx.acknowledge_events(&[event.seq]));
    }
}

fn events_come_in_the_order_of_their_notes(store: &dyn Store) {
    let world = World(store);
    let sensors = world.sense(&world.plain(&["a", "b", "c"]));
    world.write(|tx| tx.note_events(&[note(&sensors[2], 9), note(&sensors[0], 7), note(&sensors[1], 8)]));
    world.write(|tx| tx.note_events(&[note(&sensors[0], 1)]));
    let events = world.read(|tx| tx.events(0, 99));
    let expected = [2, 0, 1, 0].map(|index: usize| sensors[index].id);
    assert_eq!(events.iter().map(|event| event.id).collect::<Vec<_>>(), expected);
    assert!(events.windows(2).all(|pair| pair[0].seq < pair[1].seq));
}

fn events_are_paged(store: &dyn Store) {
    let world = World(store);
    let sensor = world.sense(&world.plain(&["a"])).remove(0);
    let notes: Vec<EventNote> = (0..7).map(|micros| note(&sensor, micros)).collect();
    world.write(|tx| tx.note_events(&notes));
    for size in [1, 3, 7, 8] {
        let (mut after, mut found) = (0, Vec::new());
        loop {
            let page = world.read(|tx| tx.events(after, size));
            assert!(page.len() <= size);
            after = page.last().map_or(after, |event| event.seq);
            found.extend(page.iter().map(|event| event.at));
            assert!(found.len() <= notes.len(), "pages of {size} repeat an event");
            if page.len() < size {
                break;
            }
        }
        assert_eq!(found, (0..7).map(at).collect::<Vec<_>>(), "in pages of {size}");
    }
    assert_eq!(world.read(|tx| tx.events(0, usize::MAX)).len(), 7, "any limit is taken");
    assert_eq!(world.read(|tx| tx.events(u64::MAX, 9)), [], "and any place");
}

fn an_acknowledged_event_is_gone(store: &dyn Store) {
    let world = World(store);
    let sensor = world.sense(&world.plain(&["a"])).remove(0);
    world.write(|tx| tx.note_events(&[note(&sensor, 0), note(&sensor, 1), note(&sensor, 2)]));
    let all = seqs(world);
    assert_eq!(world.write(|tx| tx.acknowledge_events(&[all[2], all[0]])), 2, "in any order");
    assert_eq!(seqs(world), all[1..2]);
    assert_eq!(world.read(|tx| tx.events(all[1], 9)), []);
}

fn acknowledging_again_finds_nothing(store: &dyn Store) {
    let world = World(store);
    let sensor = world.sense(&world.plain(&["a"])).remove(0);
    world.write(|tx| tx.note_events(&[note(&sensor, 0), note(&sensor, 1)]));
    let all = seqs(world);
    assert_eq!(world.write(|tx| tx.acknowledge_events(&[all[0], all[0], u64::MAX, 0])), 1);
    assert_eq!(world.write(|tx| tx.acknowledge_events(&[all[0]])), 0);
    assert_eq!(world.write(|tx| tx.acknowledge_events(&all)), 1);
}

fn events_noted_before_an_instant_are_forgotten(store: &dyn Store) {
    let world = World(store);
    let id = world.plain(&["a"])[0];
    let sensor = world.sense(&[id]).remove(0);
    world.write(|tx| {
        tx.end_sensors_if_waiting(&[sensor.lease_ref()])?;
        tx.note_events(&[5, 9, 4, 3, 2].map(|noted| note(&sensor, noted)))
    });
    let mut ending = to(world.task(id).lease_ref(), TaskState::Success);
    ending.ended_at = Some(at(10));
    world.shift(&[ending]);
    let all = seqs(world);
    assert_eq!(world.write(|tx| tx.forget_events(at(3), 4)), 0, "the fifth is not looked at");
    assert_eq!(world.write(|tx| tx.forget_events(at(5), 4)), 2, "not at the instant itself");
    assert_eq!(seqs(world), [all[0], all[1], all[4]]);
    assert_eq!(world.write(|tx| tx.forget_events(at(99), 0)), 0);
    assert_eq!(world.write(|tx| tx.forget_all_ended(at(99), at(99), 9)), 0, "three events keep the task");
    assert_eq!(world.write(|tx| tx.forget_events(at(99), usize::MAX)), 3);
    assert_eq!(world.read(|tx| tx.audit()), []);
    assert_eq!(world.write(|tx| tx.forget_all_ended(at(99), at(99), 9)), 1);
}

fn places_are_not_used_again(store: &dyn Store) {
    let world = World(store);
    let sensor = world.sense(&world.plain(&["a"])).remove(0);
    world.write(|tx| tx.note_events(&[note(&sensor, 0)]));
    let first = seqs(world);
    world.write(|tx| tx.acknowledge_events(&first));
    world.write(|tx| tx.note_events(&[note(&sensor, 1)]));
    assert!(seqs(world)[0] > first[0], "a follower that asks for what came after misses nothing");
}

fn an_undone_note_is_no_event(store: &dyn Store) {
    let world = World(store);
    let sensor = world.sense(&world.plain(&["a"])).remove(0);
    let undone: Result<(), Error> = store.write_raw(|tx| {
        tx.note_events(&[note(&sensor, 0)])?;
        assert_eq!(tx.events(0, 9)?.len(), 1);
        Err(Error::abort("on purpose"))
    });
    assert!(undone.is_err());
    assert_eq!(seqs(world), [0; 0]);
}
