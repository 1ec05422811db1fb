//! The PostgreSQL store: a tick, a drain, and many schedulers on one database, each beside the same state changes in
//! hand-written SQL.
//!
//! ```text
//! cargo bench --features postgres --bench postgres
//! STATIONMASTER_BENCH_MOST=1000 cargo bench --features postgres --bench postgres      a small form: that it runs, not how fast
//! ```
//!
//! The server is the one that `STATIONMASTER_TEST_POSTGRES` names, or `postgres://postgres@127.0.0.1:5432/test`. Client and
//! server share the machine. A bar that is missed is marked, and makes the program fail, except in the small form.

mod backlog;
mod bare;
#[path = "../shared/bars.rs"]
mod bars;
mod schedulers;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use backlog::{Place, now};
use bars::{Bars, figure, median};
use stationmaster::LeaseRef;
use stationmaster::ops::{Finish, Outcome};
use stationmaster::service::Admitter;
use stationmaster::store::Durability;
use stationmaster::store::Store;

const BUDGET: usize = 512;
const SAMPLES: usize = 41;

fn most() -> usize {
    std::env::var("STATIONMASTER_BENCH_MOST").map_or(100_000, |text| text.parse().expect("a number"))
}

fn admitter(store: &Arc<dyn Store>, name: &str) -> Admitter {
    Admitter::new(Arc::clone(store), name.try_into().expect("a name"))
        .budget(BUDGET)
        .lease(Duration::from_secs(3_600))
}

/// Makes granted tasks ready again, in their old places.
fn give_back(store: &dyn Store, leases: &[LeaseRef]) {
    let finishes: Vec<Finish> = leases.iter().map(|lease| Finish::new(*lease, Outcome::GivenBack)).collect();
    store.write(|tx| tx.finish(now(), &finishes)).expect("given back");
}

fn seconds(mut once: impl FnMut() -> Duration) -> f64 {
    // The first ones prepare statements and fill caches.
    for _ in 0..3 {
        once();
    }
    let mut samples: Vec<f64> = (0..SAMPLES).map(|_| once().as_secs_f64()).collect();
    median(&mut samples)
}

/// A tick of the store's, and one of hand-written SQL, over this backlog.
fn tick(waiting: usize, commit: Durability) -> (f64, f64) {
    let place = Place::new(commit);
    let store = place.open();
    backlog::fill(&store, waiting);
    place.analyze();
    let mut admitter = admitter(&store, "bench");
    let ours = seconds(|| {
        let began = Instant::now();
        let granted = admitter.admit(now(), BUDGET).expect("a tick").granted;
        let took = began.elapsed();
        assert_eq!(granted.len(), BUDGET.min(waiting));
        give_back(&*store, &granted.iter().map(|task| task.lease_ref()).collect::<Vec<_>>());
        took
    });
    let bare = bare::Client::connect(&place);
    let limit = seconds(|| {
        let began = Instant::now();
        let granted = bare.tick(BUDGET);
        let took = began.elapsed();
        assert_eq!(granted.len(), BUDGET.min(waiting));
        give_back(&*store, &bare.leases(&granted));
        took
    });
    (ours, limit)
}

/// How long it takes to admit everything, in ticks.
fn drain(waiting: usize) -> (f64, f64) {
    let fresh = || {
        let place = Place::new(Durability::Process);
        let store = place.open();
        backlog::fill(&store, waiting);
        place.analyze();
        (place, store)
    };
    let (_place, store) = fresh();
    let mut admitter = admitter(&store, "bench");
    let (began, mut admitted) = (Instant::now(), 0);
    while admitted < waiting {
        admitted += admitter.admit(now(), BUDGET).expect("a tick").granted.len();
    }
    let ours = began.elapsed().as_secs_f64();
    let (place, _store) = fresh();
    let bare = bare::Client::connect(&place);
    let (began, mut admitted) = (Instant::now(), 0);
    while admitted < waiting {
        admitted += bare.tick(BUDGET).len();
    }
    (ours, began.elapsed().as_secs_f64())
}

fn main() -> ExitCode {
    let (most, mut bars) = (most(), Bars::default());
    println!("| a tick of {BUDGET} | measured, ms | hand-written SQL, ms | times |\n|---|---|---|---|");
    let mut ticks = Vec::new();
    for waiting in [1_000, most] {
        for commit in [Durability::Process, Durability::Power] {
            let (ours, limit) = tick(waiting, commit);
            let (ms, ratio) = (|seconds: f64| figure(seconds * 1e3), ours / limit);
            println!(
                "| {waiting} wait, synchronous_commit {commit:?} | {} | {} | {ratio:.2} |",
                ms(ours),
                ms(limit)
            );
            if commit == Durability::Process {
                ticks.push(ours);
                bars.at_most(format!("a tick over {waiting}, to hand-written SQL"), ratio, 2.5);
            }
        }
    }
    bars.at_most(format!("a tick over {most}, to one over 1000"), ticks[1] / ticks[0], 2.0);

    let waiting = most.min(50_000);
    let (ours, limit) = drain(waiting);
    let rate = |seconds: f64| figure(waiting as f64 / seconds);
    println!(
        "\ndrain of {waiting} in ticks of {BUDGET}: {} a second, hand-written SQL {} a second",
        rate(ours),
        rate(limit)
    );
    bars.at_most("a drain, to hand-written SQL", ours / limit, 2.5);

    schedulers::compare(most.min(20_000), &mut bars);
    bars.print();
    if bars.missed() && most >= 100_000 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
