//! What the programs of this benchmark share: how each receives its instructions, and how it reports what it
//! did.
//!
//! A program is called as `COMMAND ARGUMENT...` and finds its database in `PEERS_URL`. A worker says READY,
//! waits for a line on its standard input, and then prints `done MICROSECONDS COUNT`, until its input ends.
#![allow(dead_code)]

use std::collections::HashMap;
use std::io::BufRead;
use std::process::exit;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How many tasks this process has ended; for peers whose ends cannot be seen, how many handlers ran.
pub static DONE: AtomicU64 = AtomicU64::new(0);
/// The longest end and the longest renewal, in microseconds, since a line was last read.
pub static LONGEST_END: AtomicU64 = AtomicU64::new(0);
pub static LONGEST_RENEWAL: AtomicU64 = AtomicU64::new(0);
/// Calls that failed, and leases that were found lost.
pub static ERRORS: AtomicU64 = AtomicU64::new(0);
pub static LOST: AtomicU64 = AtomicU64::new(0);

/// When the handler of a task with this number began.
pub static BEGUN: LazyLock<Mutex<HashMap<u64, Instant>>> = LazyLock::new(Mutex::default);

pub fn arguments() -> Vec<String> {
    std::env::args().skip(1).collect()
}

/// The argument at this place, as a number.
pub fn number(arguments: &[String], at: usize) -> usize {
    arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("argument {at}: a number"))
}

pub fn url() -> String {
    std::env::var("PEERS_URL").expect("PEERS_URL names the database")
}

pub fn micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_micros() as u64
}

/// Says that this worker is ready, and waits until it may begin. Then prints how far it is, 200 times a second.
///
/// Each further line on its input makes it print and forget the longest calls. It exits when its input ends.
pub fn gate() {
    println!("READY");
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).expect("a line");
    std::thread::spawn(|| {
        let mut last = None;
        loop {
            let done = DONE.load(Relaxed);
            if last.replace(done) != Some(done) {
                println!("done {} {done}", micros());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    std::thread::spawn(|| {
        let said = |_: std::io::Result<String>| {
            let take = |longest: &AtomicU64| longest.swap(0, Relaxed);
            let (end, renewal) = (take(&LONGEST_END), take(&LONGEST_RENEWAL));
            println!("longest {end} {renewal} {} {}", ERRORS.load(Relaxed), LOST.load(Relaxed));
        };
        std::io::stdin().lock().lines().for_each(said);
        exit(0);
    });
}

/// Runs a call, and keeps how long it took if none took longer.
pub fn timed<T>(longest: &AtomicU64, call: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let result = call();
    longest.fetch_max(began.elapsed().as_micros() as u64, Relaxed);
    result
}

/// Prints how many a second there were.
pub fn print_rate(count: usize, began: Instant) {
    println!("rate {}", count as f64 / began.elapsed().as_secs_f64());
}

/// Notes that the handler of this task has begun.
pub fn begun(number: u64) {
    BEGUN.lock().expect("not poisoned").insert(number, Instant::now());
}

/// Samples before the first one that counts, and what their tasks are numbered from.
pub const WARM: u64 = 20;
pub const FIRST_SAMPLE: u64 = 10_000_000;

/// Measures from the commit of an enqueue to the first line of its handler, and prints p50 and p99 in
/// microseconds. `enqueue` returns once it has committed. Zero if the handler began before that.
pub fn measure_latency(samples: usize, mut enqueue: impl FnMut(u64)) {
    let mut late = Vec::with_capacity(samples);
    for sample in 0..samples as u64 + WARM {
        let number = FIRST_SAMPLE + sample;
        enqueue(number);
        let committed = Instant::now();
        let began = loop {
            if let Some(began) = BEGUN.lock().expect("not poisoned").remove(&number) {
                break began;
            }
            assert!(committed.elapsed() < Duration::from_secs(20), "a task was not handled within 20 s");
            std::thread::sleep(Duration::from_micros(200));
        };
        if sample >= WARM {
            late.push(began.saturating_duration_since(committed).as_secs_f64() * 1e6);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    late.sort_by(f64::total_cmp);
    let at = |part: f64| late[((late.len() as f64 * part).ceil() as usize).clamp(1, late.len()) - 1];
    println!("latency {} {}", at(0.5), at(0.99));
}
