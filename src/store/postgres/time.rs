//! The time of the database, told without asking for it each time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use parking_lot::Mutex;
use tokio_postgres::{Client, Error as PgError, SimpleQueryMessage};

use crate::clock::Clock;
use crate::time::{duration_micros, from_micros};

const ASK: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// After this long the difference of the clocks is measured again, with the next transaction.
const FRESH: Duration = Duration::from_secs(10);

/// A step back up to this is waited out, a larger one is followed.
const SMALL: i64 = 1_000_000;

/// What the database's clock said, and when.
#[derive(Debug, Clone, Copy)]
struct Reading {
    at: Instant,
    micros: i64,
    /// By how much it may be wrong, in microseconds.
    off: i64,
}

impl Reading {
    fn at(&self, instant: Instant) -> i64 {
        self.micros.saturating_add(duration_micros(instant.saturating_duration_since(self.at)))
    }

    /// How wrong it may be at a later instant. Clocks differ by less than a thousandth.
    fn off_at(&self, instant: Instant) -> i64 {
        let passed = duration_micros(instant.saturating_duration_since(self.at));
        self.off.saturating_add(passed / 1000)
    }
}

/// Keeps the database's clock.
#[derive(Debug, Default)]
pub(super) struct Timekeeper(Mutex<Kept>);

#[derive(Debug)]
struct Kept {
    reading: Option<Reading>,
    /// What was told last.
    last: i64,
}

impl Default for Kept {
    fn default() -> Self {
        Self { reading: None, last: i64::MIN }
    }
}

impl Timekeeper {
    pub(super) fn is_stale(&self) -> bool {
        self.0.lock().reading.is_none_or(|reading| reading.at.elapsed() > FRESH)
    }

    /// Asks for the time. The answer is taken to be of the moment half way between question and answer.
    pub(super) async fn measure(&self, client: &Client) -> Result<(), PgError> {
        let asked = Instant::now();
        let answer = client.simple_query(ASK).await?;
        let half = asked.elapsed() / 2;
        let micros = answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
            _ => None,
        });
        if let Some(micros) = micros {
            self.note(Reading { at: asked + half, micros, off: duration_micros(half) });
        }
        Ok(())
    }

    /// An answer that took long tells little: what it does not contradict, and is known better, stays.
    fn note(&self, reading: Reading) {
        let mut kept = self.0.lock();
        let Some(before) = kept.reading.replace(reading) else {
            kept.last = i64::MIN;
            return;
        };
        let (told, off) = (before.at(reading.at), before.off_at(reading.at));
        let most = off.saturating_add(reading.off);
        if off < reading.off && told.abs_diff(reading.micros) <= most.unsigned_abs() {
            kept.reading = Some(Reading { at: reading.at, micros: told, off });
        } else if told.saturating_sub(reading.micros) > most.saturating_add(SMALL) {
            kept.last = i64::MIN;
        }
    }

    fn now(&self, instant: Instant) -> i64 {
        let mut kept = self.0.lock();
        let told = match kept.reading {
            Some(reading) => reading.at(instant),
            None => crate::time::micros(Utc::now()),
        };
        kept.last = kept.last.max(told);
        kept.last
    }
}

/// The database's clock: [`super::PostgresStore::clock`].
///
/// It runs between readings by the machine's monotonic clock. It is read when the store connects and then, at most every ten
/// seconds, with a transaction; each reading is off by at most half the time that its answer took. It does not go back, unless the
/// database's clock was set back by more than a second.
#[derive(Debug, Clone)]
pub struct PostgresClock(pub(super) Arc<Timekeeper>);

impl Clock for PostgresClock {
    fn now(&self) -> DateTime<Utc> {
        from_micros(self.0.now(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_runs_between_readings_and_steps_back_only_when_the_server_did() {
        let (keeper, start) = (Timekeeper::default(), Instant::now());
        let later = |micros: i64| start + Duration::from_micros(micros.unsigned_abs());
        keeper.note(Reading { at: start, micros: 50_000_000, off: 0 });
        assert_eq!(keeper.now(later(7)), 50_000_007);
        keeper.note(Reading { at: later(10), micros: 49_999_999, off: 0 });
        assert_eq!(keeper.now(later(11)), 50_000_007, "a little too fast: it stands");
        assert_eq!(keeper.now(later(30)), 50_000_019);
        keeper.note(Reading { at: later(40), micros: 1_000, off: 0 });
        assert_eq!(keeper.now(later(41)), 1_001, "set back by much: it follows");
    }

    #[test]
    fn an_answer_that_took_long_neither_sets_it_back_nor_makes_it_worse() {
        let (keeper, start) = (Timekeeper::default(), Instant::now());
        let second = |n: u64| start + Duration::from_secs(n);
        // The answer was made at its end, and is taken to be of its middle.
        keeper.note(Reading { at: second(5), micros: 10_000_000, off: 5_000_000 });
        assert_eq!(keeper.now(second(10)), 15_000_000);
        keeper.note(Reading { at: second(11), micros: 11_000_000, off: 100 });
        assert_eq!(keeper.now(second(11)), 15_000_000, "it was too fast, but was not set back: it stands");
        assert_eq!(keeper.now(second(20)), 20_000_000);
        keeper.note(Reading { at: second(25), micros: 30_000_000, off: 5_000_000 });
        assert_eq!(keeper.now(second(26)), 26_000_000, "known better than that");
        keeper.note(Reading { at: second(36), micros: 96_000_000, off: 5_000_000 });
        assert_eq!(keeper.now(second(37)), 97_000_000, "set forward");
    }
}
