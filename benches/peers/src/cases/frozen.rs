//! Clients that stop in the middle of anything, several at once, beside healthy ones.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::bars::{Bar, Sample};
use crate::cases::disturbed::longest;
use crate::cases::throughput::{counts, seconds, workers};
use crate::programs::Program;
use crate::running::{Running, longest_gap};
use crate::{Bench, Outcome, Scene};

const LEASE: &str = "15";
/// So that five rounds stop 30 clients.
const FREEZES: usize = 2;
/// What those that are stopped do: every operation, or nothing but ticks.
const VICTIMS: [&str; 3] = ["everything", "everything", "ticks"];

/// Sleeps at least so long, and up to two seconds more.
fn sleep_for_some_time(least: Duration) {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
    sleep(least + Duration::from_micros(u64::from(nanos) % 2_000_000));
}

/// Stops all of them at random points for this long. They go on however this ends.
fn freeze(victims: &[Running], length: Duration) -> Outcome<()> {
    let stop = |victim: &Running| {
        sleep_for_some_time(Duration::ZERO);
        victim.signal("-STOP")
    };
    let stopped: Outcome<()> = victims.iter().try_for_each(stop);
    if stopped.is_ok() {
        sleep(length);
    }
    victims.iter().try_for_each(|victim| victim.signal("-CONT"))?;
    stopped
}

fn round(bench: &mut Bench, length: Duration) -> Outcome<Vec<Sample>> {
    let url = bench.fresh(Program::Ours, 200_000, "unlimited")?;
    let mut healthy = workers(bench, Program::Ours, &url, &["work", "load", LEASE], 4)?;
    let mut victims = Vec::new();
    for shape in VICTIMS {
        victims.extend(workers(bench, Program::Ours, &url, &["work", shape, LEASE], 1)?);
    }
    // run.sh ends them if this program cannot.
    let ids: String = victims.iter().map(|victim| format!("{}\n", victim.id())).collect();
    fs::write(bench.folder.join("frozen"), ids)?;
    healthy.iter_mut().chain(&mut victims).try_for_each(Running::go)?;
    sleep(Duration::from_secs(2));
    let began = seconds();
    for _ in 0..FREEZES {
        sleep_for_some_time(Duration::from_secs(2));
        freeze(&victims, length)?;
    }
    sleep(Duration::from_secs(2));
    let gap = longest_gap(&counts(&healthy), began, seconds());
    let lost = longest(&mut healthy)?.lost;
    drop(victims);
    fs::remove_file(bench.folder.join("frozen"))?;
    Ok(vec![Sample::Plain(lost), Sample::Plain(gap)])
}

pub fn frozen(bench: &Bench) -> Vec<Scene> {
    let length = Duration::from_secs(if bench.short { 20 } else { 60 });
    vec![Scene {
        name: format!("frozen: {} stops of {} s a round", FREEZES * VICTIMS.len(), length.as_secs()),
        bars: vec![
            Bar::at_most("leases that healthy workers lost", 0.0).worst(),
            Bar::at_most("longest time in which none of them ended a task, s", 5.0).worst(),
        ],
        rounds: None,
        round: Box::new(move |bench| round(bench, length)),
    }]
}
