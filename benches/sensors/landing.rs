//! One target lands, and many sensors with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use stationmaster::TaskState;
use stationmaster::error::Result;
use stationmaster::sensor::PokeOutcome;
use stationmaster::service::{PokeRequest, Service};
use stationmaster::store::{MemoryStore, Store, StoreInfo, Tx, TxMode};

use crate::bars::{Bars, figure};
use crate::fleet::{self, INTERVAL, now};
use crate::worker;

/// Counts the transactions that write.
#[derive(Debug)]
struct Counted {
    store: Arc<dyn Store>,
    writes: AtomicUsize,
}

impl Store for Counted {
    fn info(&self) -> StoreInfo {
        self.store.info()
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        self.writes.fetch_add(usize::from(mode == TxMode::Write), Ordering::Relaxed);
        self.store.transact(mode, body)
    }
}

/// The length of the cycle that finds the landing, and how many transactions wrote in it.
fn once(store: Arc<dyn Store>, members: usize) -> (Duration, usize) {
    fleet::made(&store, members, 1);
    let counted = Arc::new(Counted { store, writes: AtomicUsize::new(0) });
    let store: Arc<dyn Store> = counted.clone();
    let landed = Arc::new(AtomicBool::new(false));
    let has = Arc::clone(&landed);
    let poke = move |_: &PokeRequest| match has.load(Ordering::Relaxed) {
        true => PokeOutcome::Landed(Some("42 files".into())),
        false => PokeOutcome::NotYet,
    };
    let lease = Duration::from_secs(3600);
    let mut poker =
        worker::poker(&store, "lander", lease).kind("partition".try_into().expect("a name"), poke);
    while poker.tick(now()).expect("a tick").poked == 0 {}
    landed.store(true, Ordering::Relaxed);
    counted.writes.store(0, Ordering::Relaxed);

    let began = Instant::now();
    let mut ended = 0;
    while ended < members {
        ended += poker.tick(now() + INTERVAL).expect("a tick").landed;
        assert!(began.elapsed() < Duration::from_secs(60), "{ended} of {members} landed");
    }
    let took = began.elapsed();
    let counts = store.read(|tx| tx.count_tasks(members + 1)).expect("counts");
    let ended = counts.iter().find(|count| count.state == TaskState::Success).map_or(0, |count| count.tasks);
    assert_eq!(ended, members as u64, "each has ended");
    (took, counted.writes.load(Ordering::Relaxed))
}

pub(crate) fn fan_out(members: usize, bars: &mut Bars) {
    let runs: Vec<(Duration, usize)> = (0..7)
        .map(|_| {
            let dir = tempfile::tempdir().expect("a folder");
            once(worker::open(&dir.path().join("landing.db")), members)
        })
        .collect();
    let took = runs.iter().map(|(took, _)| took.as_secs_f64() * 1e3).fold(f64::MAX, f64::min);
    let writes = runs.iter().map(|(_, writes)| *writes).max().unwrap_or(0);
    let (in_memory, _) = once(Arc::new(MemoryStore::new()), members);
    println!(
        "\n{members} members of one group land: {} ms on SQLite in {writes} transaction(s), {} ms in memory.",
        figure(took),
        figure(in_memory.as_secs_f64() * 1e3)
    );
    if members == 5_000 {
        bars.at_most("5,000 land at once: ms", took, 200.0);
        bars.at_most("5,000 land at once: transactions", writes as f64, 1.0);
    }
}
