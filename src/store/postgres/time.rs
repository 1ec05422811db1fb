//! Keeps the database's time, without asking for it each time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::Utc;
use parking_lot::Mutex;
use tokio_postgres::{Client, Error as PgError, SimpleQueryMessage};

use crate::clock::{Clock, SystemClock};
use crate::time::{Timestamp, duration_micros};

const ASK: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// After this long, the next transaction measures the difference between the clocks again.
const FRESH: Duration = Duration::from_secs(10);

/// In microseconds. A step back by at most this much is waited out, a larger one is followed. Also how far
/// the machine's clocks may drift apart.
const SMALL: i64 = 1_000_000;

/// A moment, by both of the machine's clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Moment {
    /// Is never set, but stops while the machine is suspended.
    steady: Instant,
    /// Continues while the machine is suspended, but may be set. In microseconds.
    wall: i64,
}

/// The time between two moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Passed {
    micros: i64,
    /// Whether both clocks agree.
    agreed: bool,
}

impl Moment {
    fn now() -> Self {
        Self { steady: Instant::now(), wall: Utc::now().timestamp_micros() }
    }

    fn later(self, length: Duration) -> Self {
        Self { steady: self.steady + length, wall: self.wall.saturating_add(duration_micros(length)) }
    }

    /// Returns the time since an earlier moment. If the clocks moved apart, the machine was suspended or its
    /// wall clock was set. The longer time is right after a suspension, and after a wall clock was set back.
    /// After it was set forward, the longer time is wrong until the next reading.
    fn since(self, earlier: Self) -> Passed {
        let steady = duration_micros(self.steady.saturating_duration_since(earlier.steady));
        let wall = self.wall.saturating_sub(earlier.wall);
        let agreed = wall.abs_diff(steady) <= SMALL.unsigned_abs();
        Passed { micros: if agreed { steady } else { steady.max(wall) }, agreed }
    }
}

/// What the database's clock said, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reading {
    at: Moment,
    micros: i64,
    /// How far off it may be, in microseconds.
    off: i64,
}

impl Reading {
    /// Assumes that the response is from the moment halfway between request and response. Returns `None` if
    /// the machine was suspended in between, because then it may be from any moment.
    fn new(asked: Moment, answered: Moment, micros: i64) -> Option<Self> {
        answered.since(asked).agreed.then(|| {
            let half = answered.steady.saturating_duration_since(asked.steady) / 2;
            Self { at: asked.later(half), micros, off: duration_micros(half) }
        })
    }

    fn at(&self, moment: Moment) -> i64 {
        self.micros.saturating_add(moment.since(self.at).micros)
    }

    /// Returns how far off it may be at a later moment. Clocks drift by less than a thousandth.
    fn off_at(&self, moment: Moment) -> i64 {
        self.off.saturating_add(moment.since(self.at).micros / 1000)
    }

    fn is_stale(&self, moment: Moment) -> bool {
        let passed = moment.since(self.at);
        !passed.agreed || passed.micros > duration_micros(FRESH)
    }
}

/// Keeps the database's clock.
#[derive(Debug, Default)]
pub(super) struct Timekeeper(Mutex<Kept>);

#[derive(Debug)]
struct Kept {
    reading: Option<Reading>,
    /// The last time that was returned.
    last: i64,
}

impl Default for Kept {
    fn default() -> Self {
        Self { reading: None, last: i64::MIN }
    }
}

impl Timekeeper {
    pub(super) fn is_stale(&self) -> bool {
        self.0.lock().reading.is_none_or(|reading| reading.is_stale(Moment::now()))
    }

    /// Asks for the time.
    pub(super) async fn measure(&self, client: &Client) -> Result<(), PgError> {
        let asked = Moment::now();
        let answer = client.simple_query(ASK).await?;
        let answered = Moment::now();
        let micros = answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
            _ => None,
        });
        if let Some(reading) = micros.and_then(|micros| Reading::new(asked, answered, micros)) {
            self.note(reading);
        }
        Ok(())
    }

    /// Notes a reading. A slow response is imprecise: a better reading that it does not contradict stays.
    /// After the machine's clocks moved apart, earlier readings are void.
    fn note(&self, reading: Reading) {
        let mut kept = self.0.lock();
        let Some(before) = kept.reading.replace(reading) else {
            kept.last = i64::MIN;
            return;
        };
        if !reading.at.since(before.at).agreed {
            if kept.last.saturating_sub(reading.micros) > reading.off.saturating_add(SMALL) {
                kept.last = i64::MIN;
            }
            return;
        }
        let (shown, off) = (before.at(reading.at), before.off_at(reading.at));
        let most = off.saturating_add(reading.off);
        if off < reading.off && shown.abs_diff(reading.micros) <= most.unsigned_abs() {
            kept.reading = Some(Reading { at: reading.at, micros: shown, off });
        } else if shown.saturating_sub(reading.micros) > most.saturating_add(SMALL) {
            kept.last = i64::MIN;
        }
    }

    fn now(&self, moment: Moment) -> i64 {
        let mut kept = self.0.lock();
        let shown = match kept.reading {
            Some(reading) => reading.at(moment),
            None => moment.wall,
        };
        kept.last = kept.last.max(shown);
        kept.last
    }
}

#[derive(Debug, Clone)]
pub(super) struct PostgresClock(pub(super) Arc<Timekeeper>);

impl Clock for PostgresClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.now(Moment::now()))
    }

    /// Returns the machine's instant, because a server's clock that is set back is followed.
    fn steady(&self) -> Timestamp {
        SystemClock.steady()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    /// Returns moments that are this far after some moment on the steady clock and on the wall clock.
    fn clocks() -> impl Fn(i64, i64) -> Moment {
        let start = Moment::now();
        move |steady, wall| Moment {
            steady: start.steady + Duration::from_micros(steady.unsigned_abs()),
            wall: start.wall + wall,
        }
    }

    #[test]
    fn it_runs_between_readings_and_steps_back_only_when_the_server_did() {
        let (keeper, clocks) = (Timekeeper::default(), clocks());
        let later = |micros| clocks(micros, micros);
        keeper.note(Reading { at: later(0), micros: 50_000_000, off: 0 });
        assert_eq!(keeper.now(later(7)), 50_000_007);
        keeper.note(Reading { at: later(10), micros: 49_999_999, off: 0 });
        assert_eq!(keeper.now(later(11)), 50_000_007, "a little too fast: it stands");
        assert_eq!(keeper.now(later(30)), 50_000_019);
        keeper.note(Reading { at: later(40), micros: 1_000, off: 0 });
        assert_eq!(keeper.now(later(41)), 1_001, "set back by much: it follows");
    }

    #[test]
    fn an_answer_that_took_long_neither_sets_it_back_nor_makes_it_worse() {
        let (keeper, clocks) = (Timekeeper::default(), clocks());
        let second = |n: i64| clocks(n * SECOND, n * SECOND);
        // The response was made at the end of the round trip, but counts as from its middle.
        keeper.note(Reading::new(second(0), second(10), 10_000_000).unwrap());
        assert_eq!(keeper.now(second(10)), 15_000_000);
        keeper.note(Reading { at: second(11), micros: 11_000_000, off: 100 });
        assert_eq!(keeper.now(second(11)), 15_000_000, "it was too fast, but was not set back: it stands");
        assert_eq!(keeper.now(second(20)), 20_000_000);
        keeper.note(Reading { at: second(25), micros: 30_000_000, off: 5_000_000 });
        assert_eq!(keeper.now(second(26)), 26_000_000, "known better than that");
        keeper.note(Reading { at: second(36), micros: 96_000_000, off: 5_000_000 });
        assert_eq!(keeper.now(second(37)), 97_000_000, "set forward");
    }

    /// On a suspended machine, the steady clock stops and the wall clock does not.
    #[test]
    fn after_a_suspension_it_is_right_at_once_and_is_read_again() {
        let (keeper, clocks) = (Timekeeper::default(), clocks());
        let reading = Reading { at: clocks(0, 0), micros: 50 * SECOND, off: 0 };
        keeper.note(reading);
        assert!(!reading.is_stale(clocks(SECOND, 2 * SECOND)), "a leap second");
        let awake = clocks(SECOND, 3_601 * SECOND);
        assert_eq!(keeper.now(awake), (50 + 3_601) * SECOND);
        assert!(reading.is_stale(awake));
        keeper.note(Reading { at: awake, micros: 3_650 * SECOND, off: 5 * SECOND });
        let later = clocks(3 * SECOND, 3_603 * SECOND);
        assert_eq!(keeper.now(later), 3_652 * SECOND, "what was known better before it is known no more");
        assert_eq!(Reading::new(clocks(0, 0), awake, 50 * SECOND), None, "asked before, answered after");
    }

    #[test]
    fn a_wall_clock_that_is_set_makes_it_wrong_until_it_is_read_again_at_most() {
        let (keeper, clocks) = (Timekeeper::default(), clocks());
        let reading = Reading { at: clocks(0, 0), micros: 50 * SECOND, off: 0 };
        keeper.note(reading);
        let back = clocks(SECOND, -600 * SECOND);
        assert!(reading.is_stale(back));
        assert_eq!(keeper.now(back), 51 * SECOND);
        let forward = clocks(2 * SECOND, 600 * SECOND);
        assert!(reading.is_stale(forward));
        assert_eq!(keeper.now(forward), 650 * SECOND, "as after a suspension");
        keeper.note(Reading { at: forward, micros: 52 * SECOND, off: 0 });
        assert_eq!(keeper.now(forward), 52 * SECOND);
    }
}
