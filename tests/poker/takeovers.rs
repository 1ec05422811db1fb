//! Shards that pass from one worker to another: when their targets are poked, and what is noted of the workers.

use super::kinds_served::{poker_of, sense_kinds, tick};
use super::*;

/// What a worker notes of each task.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<(String, String)>>>);

impl PokeLog for Lines {
    fn poked(&self, _: &SensorRecord, _: Timestamp, _: &PokeOutcome) {}

    fn noted(&self, sensor: &SensorRecord, _: Timestamp, what: &str) {
        self.0.lock().unwrap().push((sensor.task.task.to_string(), what.to_owned()));
    }
}

impl Lines {
    fn of(&self, task: &str) -> Vec<String> {
        let lines = self.0.lock().unwrap();
        lines.iter().filter(|(of, _)| of == task).map(|(_, line)| line.clone()).collect()
    }
}

/// Runs a worker, and one that joins at `joins`, for 210 seconds. Each works this late: the first value is how much later
/// than it began a tick reads the store, because the store is slow; the second is how long after it was due a tick begins.
/// Returns when the targets were poked.
fn hand_over(
    store: &Arc<dyn Store>,
    joins: i64,
    late: [(Duration, Duration); 2],
) -> BTreeMap<String, Vec<Timestamp>> {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
    sense(store, 0, &names, waits(20, 86_400));
    let poked = Arc::new(Mutex::new(BTreeMap::<String, Vec<Timestamp>>::new()));
    let worker = |name: &str| {
        let poked = poked.clone();
        let poke = move |request: &PokeRequest| {
            poked.lock().unwrap().entry(request.context.to_string()).or_default().push(request.now);
            PokeOutcome::NotYet
        };
        let poker = unkinded(store, name).refresh_every(secs(3600));
        poker.kind("kind".try_into().unwrap(), poke)
    };
    let mut workers = [(at(0), worker("old"), late[0]), (at(joins), worker("new"), late[1])];
    loop {
        let next = workers.iter_mut().min_by_key(|(due, _, (slow_by, _))| *due + *slow_by);
        let (due, poker, (slow_by, late_by)) = next.unwrap();
        if *due + *slow_by > at(210) {
            break;
        }
        *due = poker.tick(*due).unwrap().next_due.unwrap() + *late_by;
    }
    assert_eq!(workers[1].1.tick(at(220)).unwrap().shards, 2);
    let poked = poked.lock().unwrap();
    assert_eq!(poked.len(), names.len());
    poked.clone()
}

/// Returns how many of these pokes came within 200 seconds. There should be 11: one at the registration, and one in each
/// interval.
fn in_time(times: &[Timestamp]) -> usize {
    times.iter().filter(|time| **time <= at(200)).count()
}

/// A due time that comes while a shard is between two workers is late. It is not skipped, and no one pokes
/// twice.
#[test]
fn a_worker_that_joins_takes_over_what_came_due_meanwhile() {
    let mut late = 0;
    for kind in kinds() {
        for joins in (100..=110).step_by(kind.stride(5)) {
            let poked = hand_over(&kind.shared(), joins, [(secs(0), secs(0)); 2]);
            for (target, times) in poked {
                for pair in times[1..].windows(2) {
                    let gap = pair[1].saturating_duration_since(pair[0]);
                    assert!(gap <= secs(20 + 10), "{}, {joins}: {target} {times:?}", kind.name);
                    late += usize::from(gap > secs(20));
                }
                assert_eq!(in_time(&times), 11, "{}, {joins}: {target} {times:?}", kind.name);
            }
        }
    }
    assert!(late > 0, "no due time came between two workers");
}

/// Meanwhile the other worker poked targets, and then released their shard. They are not poked again for the same due time.
#[test]
fn what_was_poked_before_a_release_is_not_poked_again_by_a_tick_that_began_earlier() {
    for kind in kinds() {
        for slow_by in (1..=9).step_by(kind.stride(4)) {
            for joins in (95..=105).step_by(kind.stride(2)) {
                let poked = hand_over(&kind.shared(), joins, [(secs(0), secs(0)), (secs(slow_by), secs(0))]);
                for (target, times) in poked {
                    assert_eq!(in_time(&times), 11, "{}, {joins}, {slow_by}: {target} {times:?}", kind.name);
                }
            }
        }
    }
}

/// The tick that releases a shard comes late, after targets in it became due. The next worker pokes them.
#[test]
fn what_became_due_since_the_last_tick_before_a_release_is_poked_by_the_next_worker() {
    for kind in kinds() {
        for joins in (95..=115).step_by(kind.stride(4)) {
            let poked = hand_over(&kind.shared(), joins, [(secs(0), secs(3)), (secs(0), secs(0))]);
            for (target, times) in poked {
                for pair in times[1..].windows(2) {
                    let gap = pair[1].saturating_duration_since(pair[0]);
                    // A third of a lease until the next worker takes the shard, and two late ticks.
                    let longest = secs(20 + 10 + 3 + 3);
                    assert!(gap <= longest, "{}, {joins}: {target} {times:?}", kind.name);
                }
            }
        }
    }
}

/// A worker left, or its lease ended. What registered before was its own, and what registered later no one's, however
/// soon the next worker came, and whatever its name.
#[test]
fn a_sensor_that_registers_between_two_workers_was_no_ones() {
    for kind in kinds() {
        for (leaves, registers, heir) in
            [(true, 25, "b"), (true, 25, "a"), (false, 52, "b"), (false, 52, "a")]
        {
            for comes in [60, 500] {
                let store = kind.shared();
                let asked = Arc::new(AtomicUsize::new(0));
                sense(&store, 0, &["old"], waits(5, 86_400));
                let mut first = poker(&store, "a", &asked, PokeOutcome::NotYet).log(Lines::default());
                (0..=20).for_each(|now| drop(first.tick(at(now)).unwrap()));
                if leaves {
                    first.leave().unwrap();
                }
                drop(first);
                sense(&store, registers, &["new"], waits(5, 86_400));
                let lines = Lines::default();
                let mut second = poker(&store, heir, &asked, PokeOutcome::NotYet).log(lines.clone());
                second.tick(at(comes)).unwrap();

                let taken = if heir == "a" { "taken again by a" } else { "taken over by b from a" };
                let case = format!("{}: {leaves} {heir} {comes}", kind.name);
                assert_eq!(lines.of("old")[0], taken, "{case}");
                let new = lines.of("new");
                assert!(
                    new[0].starts_with("registered") && new[1].starts_with("poked by"),
                    "{case}: {new:?}"
                );
                let stored = |name| {
                    let key = TaskKey::new("ns", "w", "r", name).unwrap();
                    let lines = store.read(|tx| tx.sensor_log(std::slice::from_ref(&key))).unwrap().remove(0);
                    lines.into_iter().map(|(_, line)| line).filter(|line| line.starts_with("taken")).collect()
                };
                let (old, new): (Vec<String>, Vec<String>) = (stored("old"), stored("new"));
                // A worker that takes back what it held writes no take.
                let is_back = heir == "a" && !leaves;
                assert_eq!(old, if is_back { vec![] } else { vec![taken.to_owned()] }, "{case}");
                assert_eq!(new, if is_back { vec![] } else { vec![format!("taken by {heir}")] }, "{case}");
            }
        }
    }
}

/// A worker whose kind came back with its shard notes that once, however often it reads its sensors again. After a week
/// nothing is kept of who had kinds that are not lent any more.
#[test]
fn who_has_a_kind_is_noted_once_and_not_forever() {
    let takes = |store: &Arc<dyn Store>| {
        let mut takes = store.read(|tx| Ok(raw(tx).shard_takes()?)).unwrap();
        takes.retain(|take| take.kind.is_some());
        takes
    };
    for store in stores() {
        let poked = Default::default();
        let mut pokers = vec![poker_of(&store, "a", &["x"], &poked), poker_of(&store, "b", &["y"], &poked)];
        sense_kinds(&store, 0, &["x", "y"], 20, waits(10, 86_400));
        tick(&mut pokers, 0..40);
        assert_eq!(takes(&store).len(), 16, "one for each loan");
        drop(pokers.pop());
        tick(&mut pokers, 40..100);
        let noted = takes(&store);
        assert_eq!(noted.len(), 24, "and one for each that it lent");
        let mut pokers = [poker_of(&store, "a", &["x"], &poked)];
        tick(&mut pokers, 140..145);
        assert_eq!(takes(&store), noted, "at the instant at which it happened");

        let later = 8 * 24 * 3_600;
        tick(&mut [poker_of(&store, "c", &["x"], &poked)], later..later + 1);
        let kept = takes(&store);
        assert!(kept.len() == 16 && kept.iter().all(|take| take.at == at(later)), "{kept:?}");
    }
}
