//! The time of the database, told without asking for it each time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
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
}

/// Keeps the last reading of the database's clock.
#[derive(Debug, Default)]
pub(super) struct Timekeeper {
    reading: Mutex<Option<Reading>>,
    last: AtomicI64,
}

impl Timekeeper {
    pub(super) fn is_stale(&self) -> bool {
        self.reading.lock().is_none_or(|reading| reading.at.elapsed() > FRESH)
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
            self.note(Reading { at: asked + half, micros });
        }
        Ok(())
    }

    fn note(&self, reading: Reading) {
        *self.reading.lock() = Some(reading);
    }

    fn now(&self, instant: Instant) -> i64 {
        let told = match *self.reading.lock() {
            Some(Reading { at, micros }) => {
                micros.saturating_add(duration_micros(instant.saturating_duration_since(at)))
            }
            None => crate::time::micros(Utc::now()),
        };
        let next = |last: i64| Some(if last.saturating_sub(told) > SMALL { told } else { told.max(last) });
        match self.last.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next) {
            Ok(last) | Err(last) => next(last).unwrap_or(told),
        }
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
        keeper.note(Reading { at: start, micros: 50_000_000 });
        assert_eq!(keeper.now(later(7)), 50_000_007);
        keeper.note(Reading { at: later(10), micros: 49_999_999 });
        assert_eq!(keeper.now(later(11)), 50_000_007, "a little too fast: it stands");
        assert_eq!(keeper.now(later(30)), 50_000_019);
        keeper.note(Reading { at: later(40), micros: 1_000 });
        assert_eq!(keeper.now(later(41)), 1_001, "set back by much: it follows");
    }
}
