//! Several schedulers on one database: each admits a few tasks and ends them, until none is left.

use std::sync::Barrier;
use std::time::Instant;

use stationmaster::ops::Finish;
use stationmaster::store::Durability;

use crate::backlog::{self, Place, now};
use crate::bars::{Bars, figure};
use crate::{admitter, bare};

/// Free places of each scheduler's executor.
const FREE: usize = 64;

/// Lets this many workers empty the backlog. Returns tasks per second, and the ratio of the smallest worker's
/// share to the largest.
fn race<W>(
    workers: usize,
    tasks: usize,
    connect: impl Fn(usize) -> W + Sync,
    once: impl Fn(&mut W) -> usize + Sync,
) -> (f64, f64) {
    let barrier = Barrier::new(workers + 1);
    let work = |n: usize| {
        let mut worker = connect(n);
        barrier.wait();
        let mut done = 0;
        loop {
            match once(&mut worker) {
                0 => return done,
                more => done += more,
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|n| scope.spawn(move || work(n))).collect();
        barrier.wait();
        let began = Instant::now();
        let shares: Vec<usize> = threads.into_iter().map(|thread| thread.join().expect("a share")).collect();
        let took = began.elapsed().as_secs_f64();
        assert_eq!(shares.iter().sum::<usize>(), tasks, "every task once");
        let (least, most) = (shares.iter().min().expect("one"), shares.iter().max().expect("one"));
        (tasks as f64 / took, *least as f64 / *most as f64)
    })
}

fn filled(tasks: usize) -> Place {
    let place = Place::new(Durability::Process);
    backlog::fill(&place.open(), tasks);
    place.analyze();
    place
}

fn ours(workers: usize, tasks: usize) -> (f64, f64) {
    let place = filled(tasks);
    let connect = |n: usize| {
        let store = place.open();
        let admitter = admitter(&store, &format!("scheduler-{n}"));
        (store, admitter)
    };
    race(workers, tasks, connect, |(store, admitter)| {
        let granted = admitter.admit(now(), FREE).expect("a tick").granted;
        let ends: Vec<Finish> = granted.iter().map(|task| Finish::success(task.lease_ref())).collect();
        store.write(|tx| tx.finish(now(), &ends)).expect("ended").len()
    })
}

fn hand_written(workers: usize, tasks: usize) -> (f64, f64) {
    let place = filled(tasks);
    race(
        workers,
        tasks,
        |_| bare::Client::connect(&place),
        |client| {
            let granted = client.tick(FREE);
            client.end(&granted);
            granted.len()
        },
    )
}

pub(crate) fn compare(tasks: usize, bars: &mut Bars) {
    println!("\n{tasks} tasks, admitted and ended {FREE} at a time, a second:\n");
    println!(
        "| schedulers | measured | to one | slowest to fastest | hand-written SQL | to one | times |\n|---|---|---|---|---|---|---|"
    );
    let mut first = None;
    for workers in [1, 2, 4, 8] {
        let ((rate, share), (limit, _)) = (ours(workers, tasks), hand_written(workers, tasks));
        let (alone, bare_alone) = *first.get_or_insert((rate, limit));
        println!(
            "| {workers} | {} | {:.2} | {share:.2} | {} | {:.2} | {:.2} |",
            figure(rate),
            rate / alone,
            figure(limit),
            limit / bare_alone,
            limit / rate
        );
        bars.at_most(format!("{workers} schedulers, to hand-written SQL"), limit / rate, 2.5);
        if workers == 8 {
            bars.at_least("8 schedulers, to one", rate / alone, 0.7);
        }
    }
}
