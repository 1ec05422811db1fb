//! Pokers that serve different kinds.

use super::*;
use stationmaster::id::SensorKind;

/// What was poked: by whom, of which kind, and how often.
pub type Poked = Arc<Mutex<BTreeMap<(&'static str, String), usize>>>;

fn kind(name: &str) -> SensorKind {
    name.try_into().unwrap()
}

/// Registers this many sensors of each kind, each on a target of its own.
pub fn sense_kinds(store: &Arc<dyn Store>, now: i64, kinds: &[&str], count: usize, settings: Settings) {
    let key = |of: &str, n: usize| TaskKey::new("ns", "w", format!("{of}-{now}"), n.to_string()).unwrap();
    let all = || kinds.iter().flat_map(|of| (0..count).map(move |n| (*of, n)));
    let tasks: Vec<NewTask> =
        all().map(|(of, n)| NewTask::new(key(of, n)).feed(Feed::EndsAndSensors)).collect();
    store.write(|tx| tx.enqueue(at(now), &tasks)).unwrap();
    let granted = Admitter::new(store.clone(), "h".try_into().unwrap()).tick(at(now)).unwrap().granted;
    assert_eq!(granted.len(), tasks.len());
    let leases: Vec<LeaseRef> = granted.iter().map(|task| task.lease_ref()).collect();
    let sensors: Vec<NewSensor> = granted
        .iter()
        .map(|task| {
            let (of, _) = task.key.run.as_str().split_once('-').unwrap();
            let context = PokeContext::from_json(&format!(r#"{{"n":{}}}"#, task.key.task)).unwrap();
            NewSensor::new(task.lease_ref(), kind(of), context, settings)
        })
        .collect();
    store
        .write(|tx| {
            tx.start(at(now), &leases)?;
            tx.register(at(now), &sensors)
        })
        .unwrap();
}

pub fn poker_of(store: &Arc<dyn Store>, name: &'static str, kinds: &[&str], poked: &Poked) -> Poker {
    let poker = Poker::new(store.clone(), name.try_into().unwrap())
        .shards(NonZeroU32::new(16).unwrap())
        .wait_for_answers(secs(60));
    kinds.iter().fold(poker, |poker, of| {
        let (poked, of) = (poked.clone(), of.to_string());
        poker.kind(kind(&of), move |_: &PokeRequest| {
            *poked.lock().unwrap().entry((name, of.clone())).or_default() += 1;
            PokeOutcome::NotYet
        })
    })
}

/// Ticks each at each of these instants.
pub fn tick(pokers: &mut [Poker], instants: impl Iterator<Item = i64>) -> Vec<PokeReport> {
    let mut last = Vec::new();
    for now in instants {
        last = pokers.iter_mut().map(|poker| poker.tick(at(now)).unwrap()).collect();
    }
    last
}

fn taken(poked: &Poked) -> BTreeMap<(&'static str, String), usize> {
    std::mem::take(&mut poked.lock().unwrap())
}

/// The pokes of each kind, by anyone.
fn of_kind(poked: &BTreeMap<(&'static str, String), usize>, of: &str) -> usize {
    poked.iter().filter(|((_, kind), _)| kind == of).map(|(_, count)| count).sum()
}

#[test]
fn each_poker_polls_only_its_own_kinds_and_all_sensors_are_polled() {
    for store in stores() {
        let poked = Poked::default();
        let mut pokers = [poker_of(&store, "a", &["x"], &poked), poker_of(&store, "b", &["y"], &poked)];
        tick(&mut pokers, 0..40);
        sense_kinds(&store, 40, &["x", "y"], 60, waits(10, 86_400));
        let reports = tick(&mut pokers, 40..41);
        assert_eq!(taken(&poked), BTreeMap::from([(("a", "x".into()), 60), (("b", "y".into()), 60)]));
        assert!(reports.iter().all(|report| report.unserved.is_empty() && report.unknown_kind == 0));
        assert_eq!(
            reports.iter().map(|report| report.sensors).sum::<usize>(),
            120,
            "none is in two memories"
        );
        assert_eq!(reports.iter().map(|report| report.shards).sum::<u32>(), 16, "loans are none");
        let reports = tick(&mut pokers, 41..141);
        assert_eq!(taken(&poked), BTreeMap::from([(("a", "x".into()), 600), (("b", "y".into()), 600)]));
        assert!(reports.iter().all(|report| report.gained == 0 && report.unserved.is_empty()));
    }
}

#[test]
fn kinds_of_a_poker_that_died_are_named_and_time_out_on_their_own() {
    for store in stores() {
        let poked = Poked::default();
        let mut pokers = vec![poker_of(&store, "a", &["x"], &poked), poker_of(&store, "b", &["y"], &poked)];
        sense_kinds(&store, 0, &["x", "y"], 40, waits(10, 200));
        tick(&mut pokers, 0..40);
        drop(pokers.pop());
        let mut reports = tick(&mut pokers, 40..100);
        assert_eq!(reports.remove(0).unserved, BTreeMap::from([(kind("y"), 40)]), "all of its sensors");
        taken(&poked);
        tick(&mut pokers, 100..190);
        let polled = taken(&poked);
        assert_eq!((of_kind(&polled, "x"), of_kind(&polled, "y")), (9 * 40, 0));
        assert!(told(&store).is_empty(), "no sensor ended because its worker died");
        tick(&mut pokers, 190..215);
        let ended = told(&store);
        assert_eq!(ended.len(), 80);
        assert!(ended.iter().all(|event| event.reason == Some(EndReason::TimedOut)));

        // Another one comes that serves the kind.
        sense_kinds(&store, 300, &["y"], 20, waits(10, 86_400));
        let reports = tick(&mut pokers, 300..301);
        assert_eq!(reports[0].unserved, BTreeMap::from([(kind("y"), 20)]));
        pokers.push(poker_of(&store, "c", &["y"], &poked));
        tick(&mut pokers, 301..340);
        taken(&poked);
        let reports = tick(&mut pokers, 340..350);
        assert_eq!(taken(&poked), BTreeMap::from([(("c", "y".into()), 20)]));
        assert!(reports.iter().all(|report| report.unserved.is_empty()));
    }
}

/// A worker that gains a kind of its shards sees what ends of the kinds that it had, in that tick as in any other.
#[test]
fn ends_are_seen_while_a_kind_of_the_same_shards_is_gained() {
    for store in stores() {
        let poked = Poked::default();
        let mut pokers = vec![poker_of(&store, "a", &["x"], &poked), poker_of(&store, "b", &["y"], &poked)];
        sense_kinds(&store, 0, &["x", "y"], 60, waits(10, 86_400));
        let reports = tick(&mut pokers, 0..40);
        assert_eq!(reports[0].sensors, 60);
        // What was lent to it comes back.
        drop(pokers.pop());
        for n in 0..50 {
            let key = TaskKey::new("ns", "w", "x-0", n.to_string()).unwrap();
            let mark = [Mark::new(key, TaskState::Skipped, "by hand")];
            store.write(|tx| tx.mark(at(40), &mark)).unwrap();
            tick(&mut pokers, 40 + n..41 + n);
        }
        let report = tick(&mut pokers, 90..91).remove(0);
        assert_eq!(report.unserved, BTreeMap::from([(kind("y"), 60)]));
        assert_eq!(report.sensors - 60, 10, "of the first kind those that wait");
        taken(&poked);
        tick(&mut pokers, 91..101);
        assert_eq!(taken(&poked), BTreeMap::from([(("a", "x".into()), 10)]));
    }
}

#[test]
fn three_pokers_with_overlapping_kinds_share_the_work() {
    for store in stores() {
        let poked = Poked::default();
        let kinds = [["x", "y"], ["y", "z"], ["z", "x"]];
        let mut pokers: Vec<Poker> = ["a", "b", "c"]
            .into_iter()
            .zip(kinds)
            .map(|(name, kinds)| poker_of(&store, name, &kinds, &poked))
            .collect();
        sense_kinds(&store, 0, &["x", "y", "z"], 40, waits(10, 86_400));
        tick(&mut pokers, 0..50);
        taken(&poked);
        let reports = tick(&mut pokers, 50..100);
        let polled = taken(&poked);
        for of in ["x", "y", "z"] {
            assert_eq!(of_kind(&polled, of), 5 * 40, "each target of {of} in each interval, once");
        }
        assert_eq!(polled.len(), 6, "each serves both of its kinds: {polled:?}");
        assert!(reports.iter().all(|report| report.gained == 0 && report.unserved.is_empty()));
        let leases = store.read(|tx| tx.sensor_workers(at(100))).unwrap().1;
        let loans = leases.iter().filter(|lease| lease.kind.is_some()).count();
        assert_eq!((leases.len() - loans, loans), (16, 16), "each shard lacks one kind");

        // One dies. The kinds that only one of the others serves are polled by that one.
        drop(pokers.remove(0));
        tick(&mut pokers, 100..160);
        taken(&poked);
        tick(&mut pokers, 160..210);
        let polled = taken(&poked);
        assert_eq!(["x", "y", "z"].map(|of| of_kind(&polled, of)), [5 * 40; 3]);
        assert_eq!(polled.get(&("b", "x".into())).copied(), None);
        assert_eq!(polled[&("c", "x".into())], 5 * 40);

        // The other two become equal: nothing is lent any more.
        pokers.iter_mut().for_each(|poker| poker.leave().unwrap());
        let mut pokers = ["d", "e"].map(|name| poker_of(&store, name, &["x", "y", "z"], &poked));
        tick(&mut pokers, 210..280);
        let leases = store.read(|tx| tx.sensor_workers(at(280))).unwrap().1;
        assert!(leases.iter().all(|lease| lease.kind.is_none()));
        taken(&poked);
        tick(&mut pokers, 280..290);
        let polled = taken(&poked);
        assert_eq!(["x", "y", "z"].map(|of| of_kind(&polled, of)), [40; 3]);
    }
}
