//! Processes that share a PostgreSQL schema.

use crate::place::Place;
use crate::place::postgres::{Database, Level, Owner};
use crate::postgres_server::{Plain, with};
use crate::run::{Outcome, Trial, run, seconds};
use crate::scratch::{Scratch, url};
use crate::worker::{Bears, Mood, Random};

/// Eight processes that are killed, whose backends are terminated, whose leases expire and whose pools change.
#[test]
fn eight_processes_survive_kills_and_terminations() {
    let scratch = Scratch::new();
    let plain = Plain::connect(&url());
    let schema = scratch.0.to_string();
    let url = with(&url(), &format!("application_name={schema}"));
    let place = Place::Postgres(Database {
        url,
        schema: schema.clone(),
        level: Level::ReadCommitted,
        owner: Owner::Store,
    });
    let mut terminated = 0;
    let terminate = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity
         WHERE application_name = '{schema}' ORDER BY random() LIMIT 1) AS one"
    );
    let mut disturb = |random: &mut Random| {
        for _ in 0..random.below(3) {
            terminated += plain.number(&terminate);
        }
    };
    let outcome = run(Trial {
        place,
        processes: 8,
        seconds: seconds(7),
        mood: Mood::Wild,
        bears: Bears::LostConnections,
        // A process needs its time to connect and to prepare statements.
        pause: 240,
        disturb: &mut disturb,
    });
    outcome.print(&format!("8 processes, {terminated} backends terminated"));
    assert!(outcome.summary.reaped > 0 && outcome.summary.unknown > 0, "the wild mood was tame");
    assert!(terminated > 0);
}

/// No process is killed.
fn undisturbed(owner: Owner, processes: usize, level: Level, bears: Bears) -> Outcome {
    let scratch = Scratch::new();
    let place = Place::Postgres(Database { url: url(), schema: scratch.0.to_string(), level, owner });
    let seconds = seconds(3).min(10);
    let outcome =
        run(Trial { place, processes, seconds, mood: Mood::Calm, bears, pause: 0, disturb: &mut |_| {} });
    outcome.print(&format!("{level:?}, transactions of {owner:?}: {processes} processes"));
    outcome
}

#[test]
fn four_processes_never_oversubscribe_and_meet_no_error() {
    let outcome = undisturbed(Owner::Store, 4, Level::ReadCommitted, Bears::Nothing);
    assert_eq!(outcome.summary.grants, outcome.summary.ended);
}

#[test]
fn eight_processes_in_transactions_of_their_own_meet_no_error_either() {
    for level in Level::ALL {
        let outcome = undisturbed(Owner::Host, 8, level, Bears::Nothing);
        assert_eq!(outcome.summary.grants, outcome.summary.ended);
    }
}

/// A transaction that looked before another writer committed is refused above READ COMMITTED, and never decides on what it saw.
#[test]
fn transactions_that_looked_too_early_are_refused_and_change_nothing() {
    undisturbed(Owner::HostThatLooks, 4, Level::ReadCommitted, Bears::Nothing);
    for level in [Level::RepeatableRead, Level::Serializable] {
        undisturbed(Owner::HostThatLooks, 4, level, Bears::Conflicts);
    }
}
