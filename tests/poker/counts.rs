//! What the store remembers of the pokes that were made and saved.

use std::sync::atomic::AtomicBool;

use super::*;
use stationmaster::error::{StoreError, StoreErrorKind};
use stationmaster::sensor::PokeCounts;

/// The pokes by hour and kind.
type Counted = BTreeMap<(Timestamp, String), (u64, u64, Duration)>;

/// What the reports of ticks say.
#[derive(Default)]
struct Reported(Counted);

impl Reported {
    fn tick(&mut self, poker: &mut Poker, now: i64) {
        let report = poker.tick(at(now)).unwrap();
        for (kind, own) in &report.by_kind {
            let counted = self.0.entry((at(now / 3_600 * 3_600), kind.to_string())).or_default();
            counted.0 += own.poked as u64;
            counted.1 += own.saved as u64;
            counted.2 += Duration::from_micros(own.duration.as_micros() as u64);
        }
    }
}

fn stored(store: &Arc<dyn Store>) -> Counted {
    let counts = store.read(|tx| tx.poke_counts(Timestamp::MIN..Timestamp::MAX)).unwrap();
    let one = |PokeCounts { hour, kind, poked, saved, duration, .. }| {
        ((hour, kind.to_string()), (poked, saved, duration))
    };
    counts.into_iter().map(one).collect()
}

/// Registers this many sensors of a kind for each target.
fn share(store: &Arc<dyn Store>, now: i64, kind: &str, targets: &[(&str, usize)]) {
    let names: Vec<String> = targets
        .iter()
        .flat_map(|(target, count)| (0..*count).map(move |n| format!("{target}.{kind}.{n}")))
        .collect();
    let tasks = names.iter().map(|name| NewTask::new(TaskKey::new("ns", "w", "r", name).unwrap()));
    let tasks: Vec<NewTask> = tasks.collect();
    store.write(|tx| tx.enqueue(at(now), &tasks)).unwrap();
    let granted = Admitter::new(store.clone(), "h".try_into().unwrap()).tick(at(now)).unwrap().granted;
    assert_eq!(granted.len(), tasks.len());
    let sensor = |task: &stationmaster::TaskRecord| {
        let target = task.key.task.as_str().split('.').next().unwrap().to_owned();
        let context = PokeContext::from_json(&format!(r#"{{"target":"{target}"}}"#)).unwrap();
        NewSensor::new(task.lease_ref(), kind.try_into().unwrap(), context, waits(5, 86_400 * 40))
    };
    let sensors: Vec<NewSensor> = granted.iter().map(sensor).collect();
    store
        .write(|tx| {
            tx.start(at(now), &sensors.iter().map(|sensor| sensor.lease).collect::<Vec<_>>())?;
            tx.register(at(now), &sensors)
        })
        .unwrap();
}

fn of_two_kinds(store: &Arc<dyn Store>, name: &str) -> Poker {
    let poke = |_: &PokeRequest| PokeOutcome::NotYet;
    let poker = unkinded(store, name);
    poker.kind("file".try_into().unwrap(), poke).kind("table".try_into().unwrap(), poke)
}

/// Two workers, the end of an hour, a worker that leaves and goes on, one that is replaced by another of its name, and
/// a clock that is set back.
#[test]
fn the_store_counts_what_the_reports_say() {
    for kind in kinds() {
        let store = kind.shared();
        share(&store, 3_550, "file", &[("a", 3), ("b", 1), ("c", 5), ("d", 2), ("e", 4)]);
        share(&store, 3_550, "table", &[("a", 2), ("b", 2), ("c", 2), ("d", 2)]);
        let mut reported = Reported::default();
        let mut workers = ["ada", "bo"].map(|name| of_two_kinds(&store, name));
        let mut run = |workers: &mut [Poker], instants: std::ops::RangeInclusive<i64>| {
            for now in instants {
                workers.iter_mut().for_each(|worker| reported.tick(worker, now));
            }
            workers.iter_mut().for_each(|worker| worker.leave().unwrap());
            assert_eq!(stored(&store), reported.0, "{}", kind.name);
        };
        run(&mut workers, 3_551..=3_640);
        run(&mut workers, 3_641..=3_660);
        let mut workers = ["ada", "bo"].map(|name| of_two_kinds(&store, name));
        run(&mut workers, 3_661..=3_680);
        run(&mut workers, 3_590..=3_610);
        let counted = stored(&store);
        assert_eq!(counted.len(), 4, "two kinds in two hours: {counted:?}");
        for ((hour, kind), (poked, saved, _)) in counted {
            // Two sensors share each table, and all but one file have several.
            let is_right = if kind == "table" { saved == poked } else { saved > 0 };
            assert!(poked > 0 && is_right, "{hour} {kind}: {poked} made, {saved} saved");
        }
    }
}

/// A clock that was two days ahead is corrected. What is counted after that is added up, too.
#[test]
fn counts_go_on_after_a_clock_that_was_ahead() {
    for kind in kinds() {
        let store = kind.shared();
        share(&store, 0, "file", &[("a", 3), ("b", 2)]);
        let (mut reported, mut worker) = (Reported::default(), of_two_kinds(&store, "ada"));
        let ahead = 2 * 24 * 3_600;
        (ahead..ahead + 20).for_each(|now| reported.tick(&mut worker, now));
        (20..100).for_each(|now| reported.tick(&mut worker, now));
        worker.leave().unwrap();
        assert_eq!(stored(&store), reported.0, "{}", kind.name);
        assert_eq!(reported.0.len(), 2, "pokes in two hours");
    }
}

/// What a worker counted after its last renewal is lost with it. The pokes of a tick come after its renewal.
#[test]
fn a_worker_that_dies_has_stored_what_it_counted_before_its_last_renewal() {
    for kind in kinds() {
        let store = kind.shared();
        share(&store, 0, "file", &[("a", 3), ("b", 2)]);
        let (mut reported, mut worker) = (Reported::default(), of_two_kinds(&store, "ada"));
        let mut before = Counted::new();
        for now in 0..=28 {
            reported.tick(&mut worker, now);
            if now % 10 == 9 {
                assert_eq!(stored(&store), before, "{}: nothing is stored between renewals", kind.name);
                before.clone_from(&reported.0);
            }
        }
        drop(worker);
        assert_eq!(stored(&store), before, "{}", kind.name);
        assert_ne!(reported.0, before);
    }
}

/// Counts are written with the renewals, and nothing is written between them.
#[test]
fn pokes_are_counted_without_a_transaction() {
    let (store, transactions) = Counting::over(MemoryStore::new());
    share(&store, 0, "file", &[("a", 3), ("b", 2)]);
    let mut worker = of_two_kinds(&store, "ada");
    worker.tick(at(0)).unwrap();
    let mut wrote = Vec::new();
    for now in 1..=60 {
        let before = transactions.load(Ordering::SeqCst) / 1_000;
        worker.tick(at(now)).unwrap();
        let writes = transactions.load(Ordering::SeqCst) / 1_000 - before;
        wrote.extend((writes > 0).then_some((now, writes)));
    }
    let renewals: Vec<(i64, usize)> = (10..=60).step_by(10).map(|now| (now, 1)).collect();
    assert_eq!(wrote, renewals);
    assert!(stored(&store).values().all(|(poked, ..)| *poked > 0) && stored(&store).len() == 1);
}

/// Commits, and does not say so when it is asked not to.
#[derive(Debug)]
struct Silent {
    inner: Arc<dyn Store>,
    is_silent: Arc<AtomicBool>,
}

impl Store for Silent {
    fn info(&self) -> StoreInfo {
        self.inner.info()
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        self.inner.transact(mode, body)?;
        if mode != TxMode::Read && self.is_silent.swap(false, Ordering::SeqCst) {
            return Err(StoreError::new(StoreErrorKind::Indeterminate, "the connection broke").into());
        }
        Ok(())
    }
}

#[test]
fn a_renewal_or_a_leave_of_unknown_outcome_counts_once() {
    for kind in kinds() {
        let is_silent = Arc::new(AtomicBool::new(false));
        let store: Arc<dyn Store> = Arc::new(Silent { inner: kind.shared(), is_silent: is_silent.clone() });
        share(&store, 0, "file", &[("a", 3), ("b", 2)]);
        let (mut reported, mut worker) = (Reported::default(), of_two_kinds(&store, "ada"));
        (0..10).for_each(|now| reported.tick(&mut worker, now));
        is_silent.store(true, Ordering::SeqCst);
        assert!(worker.tick(at(10)).is_err(), "the renewal");
        assert_eq!(stored(&store), reported.0, "{}: it was committed", kind.name);
        (11..25).for_each(|now| reported.tick(&mut worker, now));
        is_silent.store(true, Ordering::SeqCst);
        assert!(worker.leave().is_err());
        assert_eq!(stored(&store), reported.0, "{}: it left", kind.name);
        (25..60).for_each(|now| reported.tick(&mut worker, now));
        worker.leave().unwrap();
        assert_eq!(stored(&store), reported.0, "{}", kind.name);
    }
}

#[test]
fn counts_are_kept_for_a_month() {
    for kind in kinds() {
        let store = kind.shared();
        share(&store, 0, "file", &[("a", 3)]);
        let mut worker = of_two_kinds(&store, "ada");
        let day = 24 * 3_600;
        let late = 32 * day - 7_200;
        for now in [0, 5, day, day + 10, late, late + 10] {
            worker.tick(at(now)).unwrap();
        }
        worker.leave().unwrap();
        let hours: Vec<Timestamp> = stored(&store).into_keys().map(|(hour, _)| hour).collect();
        assert_eq!(hours, [at(day), at(late)], "{}", kind.name);
    }
}
