//! One after another, without load: who goes on beside whom, what the texts for hosts do, and what connected processes meet.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::scope;
use std::time::Duration;

use crate::place::Place;
use crate::{new, old, refused_text};

pub fn play(kind: &str) {
    let scenes: [(&str, fn(&Place)); 4] = [
        ("both read what the other wrote", both_read_what_the_other_wrote),
        ("connected ones are refused by the contract", connected_ones_are_refused),
        ("an open transaction is waited for", an_open_transaction_is_waited_for),
        ("hosts migrate by hand", hosts_migrate_by_hand),
    ];
    for (name, scene) in scenes {
        let folder = tempfile::tempdir().unwrap();
        let place = match kind {
            "sqlite" => Place::of_file(&folder.path().join("jobs.db")),
            _ => Place::of_server(),
        };
        scene(&place);
        place.remove();
        println!("{kind}: {name}");
    }
}

fn both_read_what_the_other_wrote(place: &Place) {
    let first = old::open(place).unwrap();
    old::describe(&*first, "a", "from before").unwrap();
    let second = new::open(place).unwrap();
    assert_eq!(place.versions(), [1, 2], "opening leaves the contract");
    old::describe(&*first, "b", "by the old").unwrap();
    new::describe(&*second, "c", "by the new").unwrap();
    old::describe(&*first, "c", "by the old again").unwrap();
    new::describe(&*second, "b", "by the new again").unwrap();
    let described = old::descriptions(&*first).unwrap();
    assert_eq!(described, new::descriptions(&*second).unwrap());
    assert_eq!(described["a"], "from before");
    assert_eq!((&*described["b"], &*described["c"]), ("by the new again", "by the old again"));
    // Back to the version before, and again: migrating by it changes nothing.
    drop(second);
    old::upgrade(place, true).unwrap();
    old::open_with(place, false).unwrap();
    assert_eq!(place.versions(), [1, 2]);
    assert_eq!((first.info().schema, new::open(place).unwrap().info().schema), (1, 2));
}

fn connected_ones_are_refused(place: &Place) {
    let first = old::open(place).unwrap();
    old::describe(&*first, "a", "before").unwrap();
    let second = new::open(place).unwrap();
    old::describe(&*first, "a", "between").unwrap();
    new::upgrade(place, true).unwrap();
    for _ in 0..2 {
        // It touches nothing that the contract has changed. Whatever is refused, the next one connects again.
        refused_text(&old::refusal(old::enqueue(&*first)).expect("another write"));
        refused_text(&old::refusal(old::describe(&*first, "a", "after")).expect("a write"));
        refused_text(&old::refusal(old::descriptions(&*first)).expect("a read"));
    }
    let told = old::refusal(old::in_host_transaction(place, "late", || ())).expect("a host's transaction");
    assert!(told.contains("start one of"), "{told}");
    refused_text(&old::refusal(old::upgrade(place, true)).expect("a migrator"));
    assert_eq!(new::descriptions(&*second).unwrap()["a"], "between", "nothing of it was done");
    new::check(place, &[], &[]);
}

/// The contract comes before the transaction or after it.
fn an_open_transaction_is_waited_for(place: &Place) {
    let store = old::open(place).unwrap();
    new::upgrade(place, false).unwrap();
    let (begun, begins) = channel();
    let is_over = &AtomicBool::new(false);
    scope(|threads| {
        threads.spawn(move || {
            let end = || {
                begun.send(()).unwrap();
                std::thread::sleep(Duration::from_millis(1_500));
                is_over.store(true, Ordering::SeqCst);
            };
            old::in_host_transaction(place, "early", end).unwrap();
        });
        begins.recv().unwrap();
        new::upgrade(place, true).unwrap();
        assert!(is_over.load(Ordering::SeqCst), "the contract came in the middle of a transaction");
    });
    refused_text(&old::refusal(old::descriptions(&*store)).expect("a read"));
    let tasks = new::open(place).unwrap().read(|tx| tx.count_tasks(10)).unwrap();
    assert_eq!(tasks.iter().map(|count| count.tasks).sum::<u64>(), 1, "it is there");
}

fn hosts_migrate_by_hand(place: &Place) {
    let refused = |applied: usize| {
        let text = new::refusal(new::open_with(place, false)).expect("an older schema");
        let advice = if applied == 0 { "create them with" } else { "bring them up to date with" };
        assert!(text.contains(advice), "{text}");
    };
    if let Place::Postgres { .. } = place {
        refused(0);
    }
    place.run(&old::text_from(place, 0));
    let first = old::open_with(place, false).unwrap();
    refused(1);
    place.run(&new::text_from(place, 1));
    assert_eq!(place.versions(), [1, 2]);
    let second = new::open_with(place, false).unwrap();
    old::describe(&*first, "a", "by hand").unwrap();
    place.run(&new::text_from(place, 2));
    assert_eq!(place.versions(), [1, 2, 3]);
    assert_eq!(new::text_from(place, 3), "");
    refused_text(&old::refusal(old::descriptions(&*first)).expect("a read"));
    assert_eq!(new::descriptions(&*second).unwrap()["a"], "by hand");
    // As the crate does it.
    new::upgrade(place, true).unwrap();
    assert_eq!(place.versions(), [1, 2, 3]);
}
