//! Shards are shared by what their pokes cost.

use super::*;
use stationmaster::shard::{DEFAULT_CODES, code, range};
use stationmaster::store::contract::{ShardLease, ShardWrite};

pub(super) fn shard_of(name: &str, shards: NonZeroU32) -> u32 {
    let context = PokeContext::from_json(&format!(r#"{{"target":"{name}"}}"#)).unwrap();
    let request = PokeRequest::new("kind".try_into().unwrap(), context, at(0));
    let code = code(request.fingerprint(), DEFAULT_CODES);
    (0..shards.get()).find(|shard| range(DEFAULT_CODES, shards, *shard).contains(&code)).unwrap()
}

/// Returns the names of targets, one in each shard.
fn one_in_each(shards: NonZeroU32) -> Vec<String> {
    let mut names = BTreeMap::new();
    let mut n = 0;
    while names.len() < shards.get() as usize {
        let name = format!("t{n}");
        names.entry(shard_of(&name, shards)).or_insert(name);
        n += 1;
    }
    names.into_values().collect()
}

fn leases(store: &Arc<dyn Store>) -> Vec<ShardLease> {
    store.read(|tx| tx.sensor_workers(at(0))).unwrap().1
}

/// Eight workers, and shards whose cost falls with their rank.
struct Fleet {
    store: Arc<dyn Store>,
    shards: NonZeroU32,
    workers: Vec<Poker>,
    now: i64,
    step: usize,
}

impl Fleet {
    /// The former workers have measured what the shards cost, and left. Their sensors are poked once a day, so nothing is
    /// measured that would change that.
    fn new(store: Arc<dyn Store>, shards: u32, step: usize) -> Self {
        let shards = NonZeroU32::new(shards).unwrap();
        let names = one_in_each(shards);
        for names in names.chunks(100) {
            sense(&store, 0, &names.iter().map(String::as_str).collect::<Vec<_>>(), waits(86_400, 8_640_000));
        }
        // Neighbours in rank are spread.
        let load = |shard: u32| 4_000_000 / u64::from(shard * 7 % shards.get() + 1);
        let left = |shard| ShardWrite::new(0, ShardLease::new(shard, None, 1, at(999)).load(load(shard)));
        let writes: Vec<ShardWrite> = (0..shards.get()).map(left).collect();
        store.write(|tx| Ok(raw(tx).put_shards_if_unchanged(&writes)?)).unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let worker = |n| poker(&store, &format!("w{n}"), &asked, PokeOutcome::NotYet).shards(shards);
        let workers = (0..8).map(worker).collect();
        Self { store, shards, workers, now: 1_000, step }
    }

    /// Ticks for so long. Returns how many shards changed hands.
    fn run(&mut self, seconds: i64) -> usize {
        let mut moves = 0;
        for now in (self.now..self.now + seconds).step_by(self.step) {
            moves +=
                self.workers.iter_mut().map(|worker| worker.tick(at(now)).unwrap().gained).sum::<usize>();
        }
        self.now += seconds;
        moves
    }

    /// Checks that each shard has a worker that knows its sensor, and that their loads are near each other, or the
    /// busiest has little besides the heaviest shard.
    fn check(&mut self, case: &str) {
        let mut loads = BTreeMap::<_, u64>::new();
        let leases = leases(&self.store);
        assert_eq!(leases.len(), self.shards.get() as usize);
        for lease in &leases {
            assert!(lease.holder.is_some() && lease.expires_at > at(self.now), "{case}: {lease:?}");
            *loads.entry(lease.holder.clone()).or_default() += lease.load;
        }
        let reports: Vec<PokeReport> =
            self.workers.iter_mut().map(|worker| worker.tick(at(self.now)).unwrap()).collect();
        assert_eq!(reports.iter().map(|report| report.sensors).sum::<usize>(), leases.len(), "{case}");
        let heaviest = leases.iter().map(|lease| lease.load).max().unwrap() as f64;
        let (busiest, all) = (*loads.values().max().unwrap() as f64, loads.values().sum::<u64>() as f64);
        let mean = all / self.workers.len() as f64;
        println!(
            "{case}: the busiest has {:.2} of the mean, {:.2} of the heaviest",
            busiest / mean,
            busiest / heaviest
        );
        assert!(busiest <= 1.3 * mean || busiest <= 1.05 * heaviest, "{case}: {loads:?}");
    }
}

#[test]
fn shards_are_shared_by_their_load_and_hardly_any_moves_afterwards() {
    for kind in kinds() {
        for shards in [16, 1_024].into_iter().filter(|shards| *shards == 16 || !kind.is_sampled()) {
            let case = format!("{}, {shards} shards", kind.name);
            let mut fleet = Fleet::new(kind.shared(), shards, kind.stride(5));
            let moves = fleet.run(90);
            println!("{case}: {moves} shards changed hands, the first time included");
            fleet.check(&case);
            assert_eq!(fleet.run(300), 0, "{case}");

            // What a killed worker held has another one a lease and a third later.
            drop(fleet.workers.remove(3));
            let moves = fleet.run(40);
            println!("{case}: {moves} shards changed hands after a kill");
            fleet.check(&format!("{case}, after a kill"));
        }
    }
}

/// What the pokes take is stored with the lease, and stays with the shard.
#[test]
fn what_pokes_cost_is_stored_with_the_renewal() {
    let shards = NonZeroU32::new(4).unwrap();
    let names = one_in_each(shards);
    for store in stores() {
        sense(&store, 0, &[&names[1], &names[2]], waits(1, 86_400));
        let slow = format!(r#"{{"target":"{}"}}"#, names[1]);
        let mut worker =
            unkinded(&store, "w").kind("kind".try_into().unwrap(), move |request: &PokeRequest| {
                if request.context.as_str() == slow {
                    std::thread::sleep(Duration::from_millis(20));
                }
                PokeOutcome::NotYet
            });
        (0..=20).for_each(|now| drop(worker.tick(at(now)).unwrap()));
        let loads: Vec<u64> = leases(&store).iter().map(|lease| lease.load).collect();
        // Once a second, each at least as long as it sleeps.
        assert!(loads[1] >= 20_000 && loads[2] > 0, "{loads:?}");
        assert_eq!((loads[0], loads[3]), (0, 0), "nothing is poked there");
        worker.leave().unwrap();
        assert_eq!(leases(&store).iter().map(|lease| lease.load).collect::<Vec<_>>(), loads);
    }
}
