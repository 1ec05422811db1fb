//! Unreachable targets: how often they are tried, and how long sensors tolerate it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use stationmaster::TaskState;
use stationmaster::backoff::RetryPolicy;
use stationmaster::sensor::{EndReason, OnMissed, PokeOutcome, Settings};
use stationmaster::service::{PokeRequest, Poker, Service};
use stationmaster::store::Store;

use crate::scene::*;
use crate::stores::stores;

/// A poker of targets that cannot be looked at, except in these minutes; and the minutes of its pokes.
fn dark(store: &Arc<dyn Store>, breaker: u64, except: std::ops::Range<i64>) -> (Poker, Arc<Mutex<Vec<i64>>>) {
    let minutes: Arc<Mutex<Vec<i64>>> = Arc::default();
    let seen = minutes.clone();
    let poke = move |request: &PokeRequest| {
        let minute = request.now.as_micros() / 60_000_000;
        seen.lock().push(minute);
        match except.contains(&minute) {
            true => PokeOutcome::NotYet,
            false => PokeOutcome::Unreachable("no route to host".into()),
        }
    };
    let poker = patient(store).max_pause(secs(breaker));
    (poker.kind("kind".try_into().unwrap(), poke), minutes)
}

/// Ticks every ten seconds, and answers the minute at which the number of sensors changed.
fn minute_of_end(poker: &mut Poker, minutes: std::ops::Range<i64>) -> Option<i64> {
    for now in minutes.start * 6..minutes.end * 6 {
        let report = poker.tick(at(now * 10)).unwrap();
        if report.gave_up + report.timed_out > 0 {
            return Some(now / 6);
        }
    }
    None
}

#[test]
fn sensors_bear_a_target_that_cannot_be_looked_at_for_130_minutes() {
    for breaker in [0, 600, 36_000] {
        for store in stores() {
            let retry = RetryPolicy::fixed(secs(60)).max_attempts(3).build().unwrap();
            sense_with(&store, 0, "kind", &[("retried", "a")], waits(60, 1_000_000), &retry);
            sense(&store, 0, "kind", &[("fails", "a")], waits(60, 1_000_000));
            sense(&store, 0, "kind", &[("skipped", "a")], waits(60, 1_000_000).on_missed(OnMissed::Skip));
            let (mut poker, _) = dark(&store, breaker, 0..0);
            assert_eq!(minute_of_end(&mut poker, 0..129), None);
            assert_eq!(state(&store, "fails"), TaskState::Sensing);
            assert_eq!(minute_of_end(&mut poker, 129..140), Some(130));
            let states = ["retried", "fails", "skipped"].map(|task| state(&store, task));
            assert_eq!(states, [TaskState::UpForRetry, TaskState::Failed, TaskState::Skipped]);
            for event in events(&store) {
                assert_eq!(event.reason, Some(EndReason::Unreachable));
                let message = event.message.unwrap();
                assert!(message.contains("s; the last poke: no route to host"), "{message}");
            }
        }
    }
}

#[test]
fn one_look_in_between_begins_the_time_anew() {
    for store in stores() {
        sense(&store, 0, "kind", &[("t", "a")], waits(60, 1_000_000));
        let (mut poker, _) = dark(&store, 0, 100..101);
        assert_eq!(minute_of_end(&mut poker, 0..400), Some(231));
    }
}

#[test]
fn whoever_joins_a_dark_target_bears_it_as_long() {
    for store in stores() {
        sense(&store, 0, "kind", &[("first", "a")], waits(60, 1_000_000));
        let (mut poker, _) = dark(&store, 600, 0..0);
        assert_eq!(minute_of_end(&mut poker, 0..50), None);
        sense(&store, 50 * 60, "kind", &[("second", "a")], waits(60, 1_000_000));
        assert_eq!(minute_of_end(&mut poker, 50..170), Some(130));
        assert_eq!(state(&store, "second"), TaskState::Sensing);
        assert_eq!(minute_of_end(&mut poker, 131..200), Some(180));
    }
}

#[test]
fn who_leaves_a_dark_target_does_not_make_the_next_bear_it_longer() {
    for store in stores() {
        sense(&store, 0, "kind", &[("leaves", "a")], waits(100_000, 1_000_000));
        let (mut poker, minutes) = dark(&store, 100_000, 0..0);
        assert_eq!(minute_of_end(&mut poker, 0..60), None);
        sense(&store, 60 * 60, "kind", &[("stays", "a")], waits(100_000, 1_000_000));
        assert_eq!(minute_of_end(&mut poker, 60..129), None);
        leave(&store, 129 * 60, "leaves");
        // At minute 130 the target is due for the sensor that left. Its pause lasts for longer than a day.
        assert_eq!(minute_of_end(&mut poker, 129..200), Some(190));
        assert_eq!(*minutes.lock(), [0, 190], "the first look and the last");
    }
}

#[test]
fn who_joins_while_a_poke_finds_a_dark_target_again_does_not_wait_for_its_grid() {
    for store in stores() {
        sense(&store, 0, "kind", &[("first", "a")], waits(1_000, 1_000_000));
        let (gate, pokes) = (Arc::new(Gate::default()), Arc::new(Mutex::new(Vec::new())));
        let (passes, seen) = (gate.clone(), pokes.clone());
        let poke = move |request: &PokeRequest| {
            let before = {
                let mut seen = seen.lock();
                seen.push((request.now, request.sensors));
                seen.len() - 1
            };
            match before {
                0 => PokeOutcome::Unreachable("no route to host".into()),
                1 => {
                    passes.pass();
                    PokeOutcome::NotYet
                }
                _ => PokeOutcome::NotYet,
            }
        };
        let poker = patient(&store).wait_for_answers(millis(1)).min_interval(secs(5));
        let mut poker = poker.kind("kind".try_into().unwrap(), poke);
        tick_until(&mut poker, 0, |report| report.backed_off == 1);
        let begun = (1..=1_000).find(|now| poker.tick(at(*now)).unwrap().due == 1).unwrap();
        tick_until(&mut poker, begun, |_| pokes.lock().len() == 2);
        sense(&store, begun + 1, "kind", &[("joins", "a")], waits(1_000, 1_000_000));
        assert_eq!(poker.tick(at(begun + 1)).unwrap().loaded, 1);
        gate.open();
        tick_until(&mut poker, begun + 2, |report| (report.backed_off, report.in_flight) == (0, 0));
        assert_eq!(poker.tick(at(begun + 4)).unwrap().due, 0, "not before `min_interval` has passed");
        tick_until(&mut poker, begun + 5, |_| pokes.lock().len() == 3);
        assert_eq!(pokes.lock().last(), Some(&(at(begun + 5), 2)));
    }
}

#[test]
fn registrations_while_a_poke_hangs_are_no_further_failures() {
    for store in stores() {
        sense(&store, 0, "kind", &[("first", "a")], waits(1_000, 1_000_000));
        let gate = Arc::new(Gate::default());
        let passes = gate.clone();
        let poke = move |_: &PokeRequest| {
            passes.pass();
            PokeOutcome::NotYet
        };
        let mut poker = patient(&store).poke_timeout(millis(50)).kind("kind".try_into().unwrap(), poke);
        assert_eq!(poker.tick(at(0)).unwrap().hung, 1);
        leave(&store, 1, "first");
        assert_eq!(poker.tick(at(1)).unwrap().groups, 0);
        sense(&store, 2, "kind", &[("second", "a")], waits(1_000, 1_000_000));
        let report = poker.tick(at(2)).unwrap();
        assert_eq!((report.due, report.unreachable, report.backed_off), (1, 1, 1), "it still hangs");
        sense(&store, 3, "kind", &[("third", "a")], waits(1_000, 1_000_000));
        let report = poker.tick(at(3)).unwrap();
        assert_eq!((report.sensors, report.due), (2, 0), "the outage keeps its pause");
        gate.open();
    }
}

#[test]
fn pauses_double_up_to_the_breaker_and_end_with_the_first_look() {
    for store in stores() {
        sense(&store, 0, "kind", &[("t", "a")], waits(60, 1_000_000));
        let (mut poker, minutes) = dark(&store, 480, 90..400);
        assert_eq!(minute_of_end(&mut poker, 0..120), None);
        let minutes = std::mem::take(&mut *minutes.lock());
        let dark: Vec<i64> = minutes.iter().copied().take_while(|minute| *minute < 90).collect();
        let gaps: Vec<i64> = dark.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!((12..=16).contains(&dark.len()), "{dark:?}");
        assert!(
            gaps.iter().all(|gap| *gap <= 8) && gaps.iter().filter(|gap| **gap == 8).count() >= 8,
            "{gaps:?}"
        );
        let light: Vec<i64> = minutes.iter().copied().skip_while(|minute| *minute < 90).collect();
        assert!(light[0] <= 98, "{light:?}");
        assert!(light.windows(2).all(|pair| pair[1] - pair[0] == 1), "{light:?}");
        assert_eq!(poker.tick(at(120 * 60)).unwrap().backed_off, 0);
    }
}

#[test]
fn a_breaker_never_reaches_beyond_a_timeout() {
    for store in stores() {
        sense(&store, 0, "kind", &[("t", "a")], waits(60, 95 * 60));
        let (mut poker, minutes) = dark(&store, 1_000_000, 95..96);
        assert_eq!(minute_of_end(&mut poker, 0..200), Some(95));
        assert_eq!(minutes.lock().last(), Some(&95), "the last look");
        assert_eq!(events(&store)[0].reason, Some(EndReason::TimedOut));
    }
}

#[test]
fn an_interval_that_doubles_is_followed() {
    for store in stores() {
        let minute = Duration::from_secs(60);
        let settings = Settings::new(minute, minute * 100_000).unwrap().max_interval(minute * 32).unwrap();
        sense(&store, 0, "kind", &[("t", "a")], settings);
        let (mut poker, minutes) = dark(&store, 0, 0..100_000);
        assert_eq!(minute_of_end(&mut poker, 0..640), None);
        let minutes = minutes.lock();
        // About 0, 1, 3, 7, 15, 31, 63, then every 32 minutes.
        assert!((23..=27).contains(&minutes.len()), "{minutes:?}");
        let gaps: Vec<i64> = minutes.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.iter().rev().take(15).all(|gap| *gap == 32), "{gaps:?}");
    }
}

#[test]
fn registrations_at_a_steady_pace_do_not_defeat_the_breaker() {
    for store in stores() {
        sense(&store, 0, "kind", &[("first", "a")], waits(60, 1_000_000));
        let (mut poker, minutes) = dark(&store, 480, 0..0);
        for minute in 0..100 {
            assert_eq!(minute_of_end(&mut poker, minute..minute + 1), None);
            let name = format!("t{minute}");
            sense(&store, minute * 60 + 55, "kind", &[(&name, "a")], waits(60, 1_000_000));
        }
        let minutes = minutes.lock();
        assert!(minutes.len() <= 17, "{minutes:?}");
    }
}
