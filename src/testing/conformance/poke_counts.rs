//! The pokes that workers made and saved.

use std::time::Duration;

use super::world::{World, at, ends_of_time, holder, worker};
use crate::sensor::PokeCounts;
use crate::store::Store;
use crate::store::contract::PokeCountRow;
use crate::time::Timestamp;

cases!("poke_counts":
    none_were_made_at_first,
    a_row_is_replaced,
    the_last_of_equal_rows_counts,
    workers_are_summed_by_hour_and_kind,
    only_hours_in_the_window_are_returned,
    hours_and_kinds_come_in_order,
    kinds_need_no_sensor,
    old_hours_are_forgotten,
    the_earliest_rows_are_forgotten_first,
    a_deleted_worker_keeps_its_counts,
    a_write_that_is_rolled_back_counts_nothing,
    a_host_sees_what_sharing_saved,
);

fn counts(hour: i64, kind: &str, poked: u64, saved: u64, micros: u64) -> PokeCounts {
    PokeCounts::new(at(hour), kind.try_into().unwrap(), poked, saved, Duration::from_micros(micros))
}

fn row(worker: &str, incarnation: u64, counts: PokeCounts) -> PokeCountRow {
    PokeCountRow::new(holder(worker), incarnation, counts)
}

fn put(world: World<'_>, rows: &[PokeCountRow]) {
    world.write(|tx| tx.put_poke_counts(rows, Timestamp::MIN));
}

fn all(world: World<'_>) -> Vec<PokeCounts> {
    let (first, last) = ends_of_time();
    world.read(|tx| tx.poke_counts(first..last))
}

fn none_were_made_at_first(store: &dyn Store) {
    assert_eq!(all(World(store)), []);
    put(World(store), &[]);
    assert_eq!(all(World(store)), []);
}

fn a_row_is_replaced(store: &dyn Store) {
    put(World(store), &[row("w", 7, counts(10, "x", 1, 2, 3)), row("w", 7, counts(10, "y", 4, 5, 6))]);
    put(World(store), &[row("w", 7, counts(10, "x", 11, 12, 13))]);
    put(World(store), &[row("w", 7, counts(10, "x", 11, 12, 13))]);
    assert_eq!(all(World(store)), [counts(10, "x", 11, 12, 13), counts(10, "y", 4, 5, 6)]);
}

fn the_last_of_equal_rows_counts(store: &dyn Store) {
    put(World(store), &[row("w", 7, counts(10, "x", 5, 6, 7)), row("w", 7, counts(10, "x", 1, 2, 3))]);
    assert_eq!(all(World(store)), [counts(10, "x", 1, 2, 3)]);
}

fn workers_are_summed_by_hour_and_kind(store: &dyn Store) {
    let rows = [
        row("a", 1, counts(10, "x", 1, 10, 100)),
        row("b", 1, counts(10, "x", 2, 20, 200)),
        row("b", u64::MAX, counts(10, "x", 4, 40, 400)),
        row("a", 1, counts(10, "y", 8, 80, 800)),
        row("a", 1, counts(20, "x", 16, 160, 1600)),
    ];
    put(World(store), &rows);
    let sums = [counts(10, "x", 7, 70, 700), counts(10, "y", 8, 80, 800), counts(20, "x", 16, 160, 1600)];
    assert_eq!(all(World(store)), sums);
}

fn only_hours_in_the_window_are_returned(store: &dyn Store) {
    let rows: Vec<PokeCountRow> = (0..5).map(|hour| row("w", 1, counts(hour, "x", 1, 0, 0))).collect();
    put(World(store), &rows);
    let within = |from, to| {
        let found = World(store).read(|tx| tx.poke_counts(at(from)..at(to)));
        found.iter().map(|counts| counts.hour.as_micros()).collect::<Vec<i64>>()
    };
    assert_eq!(within(1, 4), [1, 2, 3], "the end does not belong to it");
    assert_eq!(within(4, 99), [4]);
    assert_eq!(within(2, 2), [0_i64; 0]);
    assert_eq!(within(3, 1), [0_i64; 0]);
}

fn hours_and_kinds_come_in_order(store: &dyn Store) {
    let kinds = ["b", "a", "B", "a-b", "\u{10ffff}", "\u{ffff}", "A"];
    let hours = [3, -2, 0];
    for hour in hours {
        let rows: Vec<PokeCountRow> = kinds.map(|kind| row("w", 1, counts(hour, kind, 1, 1, 1))).into();
        put(World(store), &rows);
    }
    let mut sorted = kinds;
    sorted.sort_unstable();
    let expected = [-2, 0, 3].into_iter().flat_map(|hour| sorted.map(|kind| counts(hour, kind, 1, 1, 1)));
    assert_eq!(all(World(store)), expected.collect::<Vec<_>>());
}

fn kinds_need_no_sensor(store: &dyn Store) {
    put(World(store), &[row("unknown worker", 0, counts(0, "unknown kind", 3, 0, 1))]);
    assert_eq!(all(World(store)), [counts(0, "unknown kind", 3, 0, 1)]);
}

fn old_hours_are_forgotten(store: &dyn Store) {
    let world = World(store);
    let rows: Vec<PokeCountRow> =
        (0..4).flat_map(|hour| ["a", "b"].map(|worker| row(worker, 1, counts(hour, "x", 1, 0, 0)))).collect();
    put(World(store), &rows);
    assert_eq!(all(World(store)).len(), 4, "none began before the instant");
    world.write(|tx| tx.put_poke_counts(&[], at(2)));
    assert_eq!(all(World(store)), [counts(2, "x", 2, 0, 0), counts(3, "x", 2, 0, 0)]);
    world.write(|tx| tx.put_poke_counts(&[row("c", 1, counts(9, "x", 5, 5, 5))], at(3)));
    assert_eq!(all(World(store)), [counts(3, "x", 2, 0, 0), counts(9, "x", 5, 5, 5)]);
}

fn the_earliest_rows_are_forgotten_first(store: &dyn Store) {
    let world = World(store);
    let last = 10_001;
    let rows: Vec<PokeCountRow> = (0..=last).map(|hour| row("w", 1, counts(hour, "x", 1, 0, 0))).collect();
    put(world, &rows);
    world.write(|tx| tx.put_poke_counts(&[], at(last + 9)));
    assert_eq!(all(World(store)), [counts(last - 1, "x", 1, 0, 0), counts(last, "x", 1, 0, 0)]);
    world.write(|tx| tx.put_poke_counts(&[], at(last)));
    assert_eq!(all(World(store)), [counts(last, "x", 1, 0, 0)]);
}

fn a_deleted_worker_keeps_its_counts(store: &dyn Store) {
    let world = World(store);
    let counted = [counts(0, "x", 3, 4, 5)];
    world.write(|tx| {
        tx.put_worker(&worker("w", at(9)))?;
        tx.put_poke_counts(&[row("w", 0, counted[0].clone())], Timestamp::MIN)
    });
    world.write(|tx| tx.delete_worker(&holder("w")));
    assert_eq!(all(World(store)), counted);
    world.write(|tx| {
        tx.put_worker(&worker("w", at(9)))?;
        tx.forget_workers(at(10), 9)
    });
    assert_eq!(all(World(store)), counted);
}

fn a_write_that_is_rolled_back_counts_nothing(store: &dyn Store) {
    put(World(store), &[row("w", 1, counts(5, "x", 1, 1, 1))]);
    let failed: crate::error::Result<()> = store.write(|tx| {
        let rows = [row("w", 1, counts(5, "x", 9, 9, 9)), row("v", 1, counts(6, "x", 9, 9, 9))];
        tx.raw().put_poke_counts(&rows, at(6))?;
        Err(crate::error::Invalid::Duration { what: "it", expected: "rolled back" }.into())
    });
    assert!(failed.is_err());
    assert_eq!(all(World(store)), [counts(5, "x", 1, 1, 1)]);
}

fn a_host_sees_what_sharing_saved(store: &dyn Store) {
    put(World(store), &[row("a", 1, counts(5, "x", 1, 2, 3)), row("b", 1, counts(5, "x", 4, 5, 6))]);
    let seen = |from, to| store.read(|tx| tx.poke_counts(at(from)..at(to))).unwrap();
    assert_eq!(seen(5, 6), [counts(5, "x", 5, 7, 9)]);
    assert_eq!(seen(6, 9), []);
}
