//! Outages of targets, from worker to worker.

use super::*;

/// A worker that dies in an outage leaves its beginning behind, and the heir gives the sensor up in time. So does one
/// that leaves.
#[test]
fn an_outage_goes_on_after_a_takeover() {
    for kind in kinds() {
        for leaves in [false, true] {
            let store = kind.shared();
            sense(&store, 0, &["a"], waits(5, 86_400));
            let asked = Arc::new(AtomicUsize::new(0));
            let make = |name| {
                let down = PokeOutcome::Unreachable("no route".into());
                poker(&store, name, &asked, down).retry_window(secs(300)).max_pause(secs(40))
            };
            let mut victim = make("victim");
            for now in 0..=100 {
                victim.tick(at(now)).unwrap();
            }
            let before = asked.load(Ordering::SeqCst);
            assert!((5..=8).contains(&before), "{before} pokes in 100 s, after pauses of 5, 10, 20 and 40 s");
            if leaves {
                victim.leave().unwrap();
            }
            drop(victim);
            let mut heir = make("heir");
            let mut gave_up = None;
            for now in 101..=400 {
                let report = heir.tick(at(now)).unwrap();
                if report.gave_up > 0 {
                    gave_up = gave_up.or(Some(now));
                }
                assert!(report.groups == 0 || report.backed_off == 1, "{}: {now} s", kind.name);
            }
            assert_eq!(gave_up, Some(300), "{}: since the first poke, whoever made it", kind.name);
            let after = asked.load(Ordering::SeqCst) - before;
            assert!((4..=7).contains(&after), "{}: {after} pokes in 200 s: the pause is kept", kind.name);
        }
    }
}

/// If no one looked for long, nothing is known of the target: sensors that waited all the time are not failed by the first
/// look, and the outage of before has ended when its last watcher was gone.
#[test]
fn an_outage_that_no_one_watched_does_not_go_on() {
    for kind in kinds() {
        let store = kind.shared();
        sense(&store, 0, &["a"], waits(5, 86_400));
        let asked = Arc::new(AtomicUsize::new(0));
        let make = |name| {
            let down = PokeOutcome::Unreachable("no route".into());
            poker(&store, name, &asked, down).retry_window(secs(300))
        };
        let mut victim = make("victim");
        for now in 0..=100 {
            victim.tick(at(now)).unwrap();
        }
        drop(victim);
        let mut heir = make("heir");
        let gave_up = (5_000..=5_400).find(|now| heir.tick(at(*now)).unwrap().gave_up > 0);
        assert!(gave_up.is_some_and(|now| (5_300..=5_310).contains(&now)), "{}: {gave_up:?}", kind.name);
        let rows = store.read(|tx| Ok(raw(tx).outages(None)?)).unwrap();
        let rows = store.read(|tx| Ok(raw(tx).outages(Some(&[rows[0].fingerprint]))?)).unwrap();
        assert!(rows[0].since < at(100), "{rows:?}");
        assert!(rows[0].until.is_some_and(|until| until < at(1_000)), "{}: {rows:?}", kind.name);
    }
}

/// The store records each outage twice, whatever the number of pokes.
#[test]
fn an_outage_is_written_when_it_lasts_and_when_it_ends() {
    for kind in kinds() {
        let store = kind.shared();
        sense(&store, 0, &["a", "b", "c"], waits(1, 86_400));
        let poke = |request: &PokeRequest| {
            let now = request.now;
            let is_down = match request.context.as_str() {
                r#"{"target":"a"}"# => now >= at(3) && now < at(5),
                r#"{"target":"b"}"# => now >= at(3) && now < at(65),
                _ => false,
            };
            if is_down { PokeOutcome::Unreachable("down".into()) } else { PokeOutcome::NotYet }
        };
        let make = |name| unkinded(&store, name).max_pause(secs(1)).kind("kind".try_into().unwrap(), poke);
        let mut worker = make("worker");
        let rows = || store.read(|tx| Ok(raw(tx).outages(None)?)).unwrap();
        let mut seen = Vec::new();
        for now in 0..=90 {
            worker.tick(at(now)).unwrap();
            let open = rows().len();
            if seen.last().is_none_or(|(_, before)| *before != open) {
                seen.push((now, open));
            }
        }
        assert_eq!(seen, [(0, 0), (10, 1), (70, 0)], "{}: with the renewals, every 10 s", kind.name);
        let sensors =
            store.read(|tx| Ok(raw(tx).sensors(&[TaskKey::new("ns", "w", "r", "b").unwrap()])?)).unwrap();
        let target = sensors[0].as_ref().unwrap().fingerprint;
        let told = store.read(|tx| Ok(raw(tx).outages(Some(&[target]))?)).unwrap();
        assert_eq!((told[0].since, told[0].until), (at(3), Some(at(65))));

        // A target that no sensor waits for has no outage, even if its last sensor ended between two workers.
        let mut down = make("down")
            .kind("kind".try_into().unwrap(), |_: &PokeRequest| PokeOutcome::Unreachable("x".into()));
        worker.leave().unwrap();
        for now in 91..=120 {
            down.tick(at(now)).unwrap();
        }
        assert_eq!(rows().len(), 3);
        drop(down);
        let key = TaskKey::new("ns", "w", "r", "a").unwrap();
        store.write(|tx| tx.mark(at(121), &[Mark::new(key.clone(), TaskState::Skipped, "by hand")])).unwrap();
        let mut last = make("last");
        for now in 122..=190 {
            last.tick(at(now)).unwrap();
        }
        assert_eq!(rows(), [], "{}", kind.name);
    }
}

/// A kind that no worker serves for a while: no one looked, so the outage of before is over, even if none of its targets
/// became due meanwhile. The next worker that serves it begins another one.
#[test]
fn an_outage_of_a_kind_that_no_one_serves_is_over() {
    for kind in kinds() {
        let store = kind.shared();
        sense(&store, 0, &["a"], waits(5, 86_400));
        let down = |_: &PokeRequest| PokeOutcome::Unreachable("no route".into());
        let server = |name| unkinded(&store, name).kind("kind".try_into().unwrap(), down);
        let mut first = server("first");
        let mut other = unkinded(&store, "other").kind("other".try_into().unwrap(), down);
        for now in 0..=100 {
            first.tick(at(now)).unwrap();
            other.tick(at(now)).unwrap();
        }
        let open = || store.read(|tx| Ok(raw(tx).outages(None)?)).unwrap();
        assert_eq!(open().iter().map(|row| row.since).collect::<Vec<_>>(), [at(0)], "{}", kind.name);
        drop(first);
        let mut unserved = 0;
        for now in 101..=134 {
            unserved = other.tick(at(now)).unwrap().unserved.len();
        }
        assert_eq!(unserved, 1);
        let mut second = server("second");
        for now in 135..=170 {
            second.tick(at(now)).unwrap();
            other.tick(at(now)).unwrap();
        }
        let since: Vec<Timestamp> = open().iter().map(|row| row.since).collect();
        assert!(since.len() == 1 && since[0] >= at(135), "{}: {since:?}", kind.name);
    }
}
