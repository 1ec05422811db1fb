//! Workers whose leases lapse.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use stationmaster::sensor::PokeOutcome;
use stationmaster::service::{PokeRequest, Poker, Service};
use stationmaster::store::{Store, TxMode};

use crate::scene::*;
use crate::stores::stores;

type Pokes = Arc<Mutex<HashMap<(String, i64), Vec<&'static str>>>>;

fn worker(store: &Arc<dyn Store>, name: &'static str, pokes: &Pokes) -> Poker {
    let pokes = pokes.clone();
    let poke = move |request: &PokeRequest| {
        let instant = (request.context.as_str().to_owned(), request.now.as_micros() / 1_000_000);
        pokes.lock().entry(instant).or_default().push(name);
        PokeOutcome::NotYet
    };
    let poker = patient_named(store, name).lease(secs(30));
    poker.kind("kind".try_into().unwrap(), poke)
}

#[test]
fn a_worker_whose_renewal_fails_until_its_leases_lapse_forgets_their_sensors() {
    for store in stores() {
        let names: Vec<String> = (0..64).map(|n| format!("t{n}")).collect();
        let tasks: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), name.as_str())).collect();
        sense(&store, 0, "kind", &tasks, waits(5, 1_000_000));
        let (shaky, faults) = refusing(&store);
        let pokes = Pokes::default();
        let (mut a, mut b) = (worker(&shaky, "a", &pokes), worker(&store, "b", &pokes));
        assert_eq!(a.tick(at(0)).unwrap().sensors, 64);

        faults.refuse(TxMode::Write, 1);
        assert!(a.tick(at(31)).is_err());
        assert_eq!(b.tick(at(31)).unwrap().shards, 4);
        for now in 32..100 {
            let (mine, theirs) = (a.tick(at(now)).unwrap(), b.tick(at(now)).unwrap());
            if mine.shards == 0 {
                assert_eq!((mine.sensors, mine.groups, mine.waiting, mine.poked), (0, 0, 0, 0), "{now}");
                assert!(mine.next_due.unwrap() > at(now), "it does not ask for the next tick at once");
            }
            assert!(mine.sensors + theirs.sensors <= 64, "{now}: {} and {}", mine.sensors, theirs.sensors);
        }
        let (mine, theirs) = (a.tick(at(100)).unwrap(), b.tick(at(100)).unwrap());
        assert_eq!((mine.shards, theirs.shards, mine.sensors + theirs.sensors), (2, 2, 64));
        let twice = pokes.lock().iter().filter(|((_, now), by)| *now > 0 && by.len() > 1).count();
        assert_eq!(twice, 0, "no target is poked by two workers");
    }
}
