//! What a poker reads again, late, or in several ticks.

use super::*;
use stationmaster::error::StoreErrorKind;
use stationmaster::ops::Changed;
use stationmaster::testing::{Fault, When};

const NAMES: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];

fn key(name: &str) -> TaskKey {
    TaskKey::new("ns", "w", "r", name).unwrap()
}

/// Deletes a task whose sensor has just ended, so that no worker can have seen the end.
fn end_and_delete(store: &Arc<dyn Store>, now: i64, name: &str) {
    store.write(|tx| tx.mark(at(now), &[Mark::new(key(name), TaskState::Skipped, "by hand")])).unwrap();
    // On PostgreSQL what has no number yet is not deleted.
    told(store);
    assert_eq!(store.write(|tx| tx.delete(&[key(name)])).unwrap(), [Changed::Done]);
}

/// Since when the outages go on that the store knows.
fn outages(store: &Arc<dyn Store>) -> Vec<Timestamp> {
    store.read(|tx| Ok(raw(tx).outages(None)?)).unwrap().iter().map(|row| row.since).collect()
}

/// How often a target of `sense` becomes due after one instant and up to another.
fn due_times(name: &str, interval: i64, after: i64, until: i64) -> i64 {
    let context = PokeContext::from_json(&format!(r#"{{"target":"{name}"}}"#)).unwrap();
    let print = PokeRequest::new("kind".try_into().unwrap(), context, at(0)).fingerprint();
    let (second, interval) = (1_000_000, interval * 1_000_000);
    let phase = (print.0 % interval.unsigned_abs()) as i64;
    (until * second - phase).div_euclid(interval) - (after * second - phase).div_euclid(interval)
}

/// How many of these targets become due exactly once.
fn due_once(names: &[&str], interval: i64, after: i64, until: i64) -> usize {
    names.iter().filter(|name| due_times(name, interval, after, until) == 1).count()
}

/// A worker that may have missed an end reads its sensors again. What it knows of the others stays: when they were
/// looked at, and outages of which the store was not told yet.
#[test]
fn an_end_that_was_missed_costs_the_other_sensors_nothing() {
    for store in stores() {
        sense(&store, 0, &["down", "up", "gone"], waits(5, 86_400));
        let looks = Arc::new(Mutex::new(Vec::new()));
        let seen = looks.clone();
        let poke = move |request: &PokeRequest| match request.context.as_str() {
            r#"{"target":"down"}"# => PokeOutcome::Unreachable("no route".into()),
            other => {
                seen.lock().unwrap().push((other.to_owned(), request.now));
                PokeOutcome::NotYet
            }
        };
        let poker = unkinded(&store, "p").max_pause(secs(5));
        let mut poker = poker.kind("kind".try_into().unwrap(), poke);
        for now in 0..=40 {
            if now == 5 {
                end_and_delete(&store, now, "gone");
            }
            let report = poker.tick(at(now)).unwrap();
            assert_eq!((report.sensors, report.backed_off), (if now < 5 { 3 } else { 2 }, 1), "at {now}");
            assert_eq!(
                report.loaded,
                if now == 0 {
                    3
                } else if now == 5 {
                    2
                } else {
                    0
                },
                "at {now}"
            );
        }
        assert_eq!(outages(&store), [at(0)], "it went on all the time");
        let looks = looks.lock().unwrap();
        let times: Vec<_> = looks.iter().filter(|(of, _)| of.contains("up")).map(|(_, now)| *now).collect();
        assert_eq!(times.len(), 9, "one at the registration, and one in each interval: {times:?}");
    }
}

/// A load that fails after an end was missed leaves the worker with what it knew, and it says no more than that.
#[test]
fn an_outage_goes_on_although_a_load_fails() {
    for store in stores() {
        let faults = Arc::new(FaultStore::new(store));
        let store: Arc<dyn Store> = faults.clone();
        sense(&store, 0, &["down", "gone"], waits(5, 86_400));
        let asked = Arc::new(AtomicUsize::new(0));
        let down = || PokeOutcome::Unreachable("no route".into());
        let mut first = poker(&store, "first", &asked, down());
        (0..=20).for_each(|now| drop(first.tick(at(now)).unwrap()));
        assert_eq!(outages(&store), [at(0); 2]);
        end_and_delete(&store, 21, "gone");
        // Begin, the change counter and commit; begin, and the page.
        faults.arm(Fault::new(5, When::Before, StoreErrorKind::Io));
        assert!(first.tick(at(21)).is_err());
        assert_eq!(faults.disarm().map(|struck| struck.call), Some("changed_sensors"));
        assert_eq!(first.tick(at(22)).unwrap().backed_off, 1);
        (23..=32).for_each(|now| drop(first.tick(at(now)).unwrap()));
        assert_eq!(outages(&store), [at(0)], "that of the sensor that is gone is over");
        first.leave().unwrap();

        // One that takes over and cannot read renews all the same, and then leaves.
        let mut second = poker(&store, "second", &asked, down());
        faults.refuse(TxMode::Read, u32::MAX);
        for now in 33..=50 {
            assert!(second.tick(at(now)).is_err());
        }
        second.leave().unwrap();
        faults.refuse(TxMode::Read, 0);
        assert_eq!(outages(&store), [at(0)]);
        assert_eq!(poker(&store, "third", &asked, down()).tick(at(51)).unwrap().backed_off, 1);
    }
}

/// A due time that came while no worker was up is made up for, whether that was long or the first load failed. Of several
/// none is, or all targets would be due at once.
#[test]
fn one_due_time_that_no_one_looked_at_is_made_up_for() {
    for kind in kinds() {
        let cases = [
            (120, true, false),
            (120, true, true),
            (150, false, false),
            (150, true, false),
            (1_000, false, false),
        ];
        for (comes, fails, leaves) in cases {
            let faults = Arc::new(FaultStore::new(kind.shared()));
            let store: Arc<dyn Store> = faults.clone();
            sense(&store, 0, &NAMES, waits(60, 86_400));
            let asked = Arc::new(AtomicUsize::new(0));
            let mut first = poker(&store, "first", &asked, PokeOutcome::NotYet);
            (0..=100).for_each(|now| drop(first.tick(at(now)).unwrap()));
            first.leave().unwrap();
            asked.store(0, Ordering::SeqCst);
            let mut second = poker(&store, "second", &asked, PokeOutcome::NotYet);
            if fails {
                faults.refuse(TxMode::Read, 1);
                assert!(second.tick(at(comes - 1)).is_err());
            }
            if leaves {
                second.leave().unwrap();
                second = poker(&store, "third", &asked, PokeOutcome::NotYet);
            }
            second.tick(at(comes)).unwrap();
            let due = due_once(&NAMES, 60, 100, comes);
            assert!((comes < 1_000) == (due > 0), "the targets say nothing");
            assert_eq!(asked.load(Ordering::SeqCst), due, "{}: {comes}, {fails}, {leaves}", kind.name);
            (comes + 1..=comes + 60).for_each(|now| drop(second.tick(at(now)).unwrap()));
            assert_eq!(asked.load(Ordering::SeqCst), due + NAMES.len(), "then one in each interval");
        }
    }
}

/// Who gets a shard from a worker that could not read it learns since when no one has looked after it.
#[test]
fn a_due_time_is_made_up_for_in_a_shard_that_was_given_up_unread() {
    for kind in kinds() {
        let store: Arc<dyn Store> = kind.shared();
        sense(&store, 0, &NAMES, waits(60, 86_400));
        let asked = Arc::new(AtomicUsize::new(0));
        let mut first = poker(&store, "first", &asked, PokeOutcome::NotYet);
        (0..=100).for_each(|now| drop(first.tick(at(now)).unwrap()));
        first.leave().unwrap();
        asked.store(0, Ordering::SeqCst);

        let faults = Arc::new(FaultStore::new(store.clone()));
        faults.refuse(TxMode::Read, u32::MAX);
        let hindered: Arc<dyn Store> = faults;
        let mut second = poker(&hindered, "second", &asked, PokeOutcome::NotYet);
        assert!(second.tick(at(115)).is_err(), "it takes all shards, and reads nothing");
        let mut third = poker(&store, "third", &asked, PokeOutcome::NotYet);
        for now in 116..=140 {
            assert!(second.tick(at(now)).is_err());
            third.tick(at(now)).unwrap();
        }
        let name = "third".try_into().unwrap();
        let leases = store.read(|tx| Ok(raw(tx).shard_leases()?)).unwrap();
        let held: Vec<u32> = leases
            .iter()
            .filter(|lease| lease.holder.as_ref() == Some(&name))
            .map(|lease| lease.shard)
            .collect();
        let shards = NonZeroU32::new(4).unwrap();
        let of_third: Vec<&str> =
            NAMES.into_iter().filter(|name| held.contains(&super::balance::shard_of(name, shards))).collect();
        assert!(!held.is_empty() && held.len() < 4 && due_once(&of_third, 60, 100, 120) > 0);
        assert_eq!(asked.load(Ordering::SeqCst), due_once(&of_third, 60, 100, 140), "{}", kind.name);
    }
}

/// A sensor that registered while no worker was up was never looked at, however long ago that was.
#[test]
fn a_sensor_that_registers_while_no_worker_is_up_is_looked_at_when_one_comes() {
    for store in stores() {
        sense(&store, 0, &NAMES, waits(5_000, 1_000_000));
        let asked = Arc::new(AtomicUsize::new(0));
        let mut first = poker(&store, "first", &asked, PokeOutcome::NotYet);
        first.tick(at(1_000)).unwrap();
        assert_eq!(asked.swap(0, Ordering::SeqCst), NAMES.len());
        first.leave().unwrap();
        sense(&store, 1_100, &["m", "n"], waits(5_000, 1_000_000));
        let mut second = poker(&store, "second", &asked, PokeOutcome::NotYet);
        second.tick(at(1_500)).unwrap();
        assert_eq!(asked.load(Ordering::SeqCst), 2 + due_once(&NAMES, 5_000, 1_000, 1_500));
    }
}

/// Sensors of one target come, land and go. The target is looked at no more often than if one had stayed.
#[test]
fn a_target_whose_sensors_come_and_go_keeps_the_shortest_interval() {
    for store in stores() {
        let asked = Arc::new(AtomicUsize::new(0));
        let mut poker = poker(&store, "p", &asked, PokeOutcome::Landed(None)).min_interval(secs(10));
        for now in 0..30 {
            let key = TaskKey::new("ns", "w", format!("r{now}"), "t").unwrap();
            store.write(|tx| tx.enqueue(at(now), &[NewTask::new(key.clone())])).unwrap();
            let mut admitter = Admitter::new(store.clone(), "h".try_into().unwrap());
            let lease = admitter.tick(at(now)).unwrap().granted[0].lease_ref();
            let context = PokeContext::from_json(r#"{"target":"t"}"#).unwrap();
            let sensor = NewSensor::new(lease, "kind".try_into().unwrap(), context, waits(600, 10_000));
            store
                .write(|tx| {
                    tx.start(at(now), &[lease])?;
                    tx.register(at(now), std::slice::from_ref(&sensor))
                })
                .unwrap();
            poker.tick(at(now)).unwrap();
        }
        assert_eq!(asked.load(Ordering::SeqCst), 3, "at 0, 10 and 20 s");
    }
}

/// A store whose reads take half a lease.
#[derive(Debug)]
struct Slow(Arc<dyn Store>);

impl Slow {
    const READ: Duration = Duration::from_millis(100);
}

impl Store for Slow {
    fn info(&self) -> StoreInfo {
        self.0.info()
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        if mode == TxMode::Read {
            std::thread::sleep(Self::READ);
        }
        self.0.transact(mode, body)
    }
}

/// A worker renews while it reads, so its leases last however long that takes. Meanwhile it follows what changes.
#[test]
fn a_load_that_takes_longer_than_the_lease_goes_on_in_the_next_tick() {
    for store in stores() {
        sense(&store, 0, &["a", "b", "c", "d"], waits(60, 86_400));
        let asked = Arc::new(AtomicUsize::new(0));
        let slow: Arc<dyn Store> = Arc::new(Slow(store.clone()));
        let mut poker = poker(&slow, "p", &asked, PokeOutcome::NotYet).lease(2 * Slow::READ).page_size(1);
        for read in 1..=4 {
            let report = poker.tick(at(read)).unwrap();
            assert_eq!((report.sensors, report.loaded), (1, 1), "one page in a tick, since the lease ended");
        }
        let instants = (1_u32..).map(|n| at(4) + Duration::from_millis(10) * n);
        let mut ticks =
            instants.map(|now| poker.tick(now).map(|report| (report.sensors, report.next_due, now)));
        for read in 2..=4 {
            let (sensors, due, now) = ticks.next().unwrap().unwrap();
            assert_eq!((sensors, due), (read, Some(now)), "it goes on at once");
        }
        // One that was read already ends before the last page, which is empty, was read.
        store.write(|tx| tx.mark(at(4), &[Mark::new(key("a"), TaskState::Skipped, "by hand")])).unwrap();
        told(&store);
        let last: Vec<usize> = ticks.by_ref().take(3).map(|tick| tick.unwrap().0).collect();
        assert_eq!(last, [3; 3]);
    }
}

#[test]
fn lengths_and_numbers_at_their_limits_are_refused_or_work() {
    for store in stores() {
        sense(&store, 0, &["a"], waits(60, 86_400));
        let asked = Arc::new(AtomicUsize::new(0));
        for name in ["first", "second"] {
            let mut poker = poker(&store, name, &asked, PokeOutcome::NotYet).lease(Duration::MAX);
            assert_eq!(poker.tick(at(0)).unwrap().sensors, 1);
            poker.leave().unwrap();
        }
        let many = NonZeroU32::new(65_537).unwrap();
        let refused = poker(&store, "third", &asked, PokeOutcome::NotYet).shards(many).tick(at(0));
        assert_eq!(refused.unwrap_err().to_string(), "the number of shards must be at most 65536");
    }
}
