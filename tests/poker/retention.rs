//! What is kept of sensors that have ended.

use super::*;
use stationmaster::service::{Upkeep, UpkeepReport};

fn upkeep(store: &Arc<dyn Store>) -> Upkeep {
    Upkeep::new(store.clone())
}

fn reap(mut upkeep: Upkeep, now: i64) -> UpkeepReport {
    upkeep.tick(at(now)).unwrap()
}

/// "Delete what is done": each tick ends some sensors, and they are forgotten as soon as may be. Neither the worker that ended
/// them nor the other one reads more than what changed.
#[test]
fn a_short_retention_makes_no_worker_read_its_sensors_again() {
    let names: Vec<String> = (0..60).map(|n| format!("t{n}")).collect();
    for store in stores() {
        sense(&store, 0, &names.iter().map(String::as_str).collect::<Vec<_>>(), waits(5, 86_400));
        let landed = Arc::new(Mutex::new(BTreeSet::<String>::new()));
        let mut workers = ["a", "b"].map(|name| {
            let landed = landed.clone();
            let poke = move |request: &PokeRequest| {
                let mut landed = landed.lock().unwrap();
                let is_due =
                    landed.len() < usize::try_from(request.now.as_micros() / 1_000_000 - 20).unwrap_or(0) / 3;
                match is_due && landed.insert(request.context.to_string()) {
                    true => PokeOutcome::Landed(None),
                    false => PokeOutcome::NotYet,
                }
            };
            unkinded(&store, name).kind("kind".try_into().unwrap(), poke)
        });
        let (mut ended, mut forgotten) = (0, 0);
        for now in 0..170 {
            for worker in &mut workers {
                let report = worker.tick(at(now)).unwrap();
                ended += report.landed;
                // They settle in the first 20 seconds.
                assert!(now < 20 || report.loaded <= 4, "{} sensors were read at {now}", report.loaded);
            }
            // On PostgreSQL what has no number yet is not forgotten.
            told(&store);
            // Before the workers look again, so that they can miss an end.
            forgotten += reap(upkeep(&store).retain_ended_for(Duration::ZERO), now + 1).forgotten;
        }
        assert!(forgotten > 20 && ended - forgotten < 25, "of {ended} ended ones {forgotten} were forgotten");
    }
}

/// No more than the limit at once, and then again at once.
#[test]
fn events_are_forgotten_in_bounded_pieces() {
    for store in stores() {
        sense(&store, 0, &["a", "b", "c"], waits(5, 86_400));
        let asked = Arc::new(AtomicUsize::new(0));
        poker(&store, "w", &asked, PokeOutcome::Landed(None)).tick(at(0)).unwrap();
        assert_eq!(told(&store).len(), 3);
        let keeping = || upkeep(&store).limit(2).retain_feed_for(Duration::ZERO);
        let first = reap(keeping(), 1);
        assert_eq!((first.feed_forgotten, first.next_due), (2, Some(at(1))));
        let second = reap(keeping(), 1);
        assert_eq!(second.feed_forgotten, 1);
        assert!(second.next_due > Some(at(1)), "nothing is left to do at once");
    }
}
