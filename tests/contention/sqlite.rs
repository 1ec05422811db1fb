//! Processes that share a SQLite file.

use crate::place::Place;
use crate::run::{Outcome, Trial, run, seconds};
use crate::worker::{Bears, Mood};

fn run_on_a_file(processes: usize, mood: Mood) -> Outcome {
    let dir = tempfile::tempdir().unwrap();
    let place = Place::Sqlite(dir.path().join("contention.db"));
    run(Trial {
        place,
        processes,
        seconds: seconds(10),
        mood,
        bears: Bears::Nothing,
        pause: 80,
        disturb: &mut |_| {},
    })
}

#[test]
fn four_processes_never_oversubscribe() {
    let outcome = run_on_a_file(4, Mood::Calm);
    outcome.print("4 processes");
    assert_eq!(outcome.summary.grants, outcome.summary.ended);
}

#[test]
fn eight_processes_survive_kills_resizes_and_expiries() {
    let outcome = run_on_a_file(8, Mood::Wild);
    outcome.print("8 processes");
    assert!(outcome.summary.reaped > 0 && outcome.summary.unknown > 0, "the wild mood was tame");
}
