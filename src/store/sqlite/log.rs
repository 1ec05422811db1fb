//! Keeps the write-ahead log bounded.
//!
//! SQLite starts the log over when a writer finds nobody reading from it. Under readers that overlap that
//! never happens, and each commit makes the log longer. A checkpoint of the kind TRUNCATE brings such a
//! moment about: it keeps writers out, moves the rest of the log into the database, and waits for those who
//! still read from the log. Whoever begins to read meanwhile reads from the database alone. It also empties
//! the file: otherwise a connection of the host's that writes next would leave it as long as it was, and each
//! look would find it too long.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::probe::bytes_beside;

/// The most bytes that the log keeps on disk once it was started over.
pub(super) const KEPT: i64 = 64 << 20;

/// A log longer than this is started over.
const MOST: u64 = 128 << 20;

/// How many commits pass between two looks at the length of the log, each of which is a system call.
const STRIDE: u32 = 32;

/// How long an attempt keeps writers out, beside the time it takes to write.
const PATIENCE: Duration = Duration::from_millis(500);

/// How long to leave writers alone after an attempt that readers outlasted.
const PAUSE: Duration = Duration::from_secs(60);

/// What the connection that writes remembers of the log.
#[derive(Debug)]
pub(super) struct Log {
    /// The database itself, not a link to it: the log lies beside it.
    path: PathBuf,
    most: u64,
    commits: u32,
    not_before: Option<Instant>,
}

impl Log {
    /// The log of the database in this file, which is there.
    pub(super) fn of(path: &Path) -> Self {
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        Self { path, most: MOST, commits: 0, not_before: None }
    }

    /// Counts a commit, and starts the log over if it has become too long.
    ///
    /// Fails silently: the commit took effect whatever happens here, and the log can wait.
    pub(super) fn committed(&mut self, conn: &mut Connection, busy_timeout: Duration) {
        self.commits += 1;
        if self.commits < STRIDE {
            return;
        }
        self.commits = 0;
        if self.is_long() && self.not_before.is_none_or(|instant| Instant::now() >= instant) {
            let attempt = self.start_over(conn, PATIENCE.min(busy_timeout)).unwrap_or(Attempt::Outlasted);
            match attempt {
                Attempt::Done => self.not_before = None,
                Attempt::Outlasted => self.not_before = Instant::now().checked_add(PAUSE),
                // Whoever was in the way may be at a checkpoint of the ordinary kind, which leaves the log as long as it is.
                // It ends soon, so the next commit looks again.
                Attempt::Collided => (self.not_before, self.commits) = (None, STRIDE - 1),
            }
            let _ = conn.busy_timeout(busy_timeout);
        }
    }

    fn is_long(&self) -> bool {
        bytes_beside(&self.path, "-wal") > self.most
    }

    /// Asks for the checkpoint again and again, each time with twice the patience of the time before.
    ///
    /// One long wait would not do. SQLite reads once which place in the shared index is held by readers of an
    /// old state, and then waits for that place; meanwhile new readers may have taken it for the newest
    /// state, and as long as they overlap it never becomes free. The next attempt sees that nobody reads an
    /// old state any more.
    fn start_over(&self, conn: &mut Connection, patience: Duration) -> rusqlite::Result<Attempt> {
        conn.busy_handler(Some(is_patient as fn(i32) -> bool))?;
        let (mut round, mut spent) = (patience / 16, Duration::ZERO);
        loop {
            PATIENCE_LEFT.set(round);
            let (is_busy, pages): (bool, i64) =
                conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| Ok((row.get(0)?, row.get(1)?)))?;
            if !is_busy {
                return Ok(Attempt::Done);
            }
            // Another connection is at a checkpoint, which SQLite does not wait for, and of which it counts no pages.
            let has_collided = pages < 0;
            if has_collided {
                std::thread::sleep(NAP);
                if !self.is_long() {
                    return Ok(Attempt::Done);
                }
                spent += NAP;
            } else {
                spent += round.saturating_sub(PATIENCE_LEFT.get()).max(NAP);
                round *= 2;
            }
            if spent >= patience {
                return Ok(if has_collided { Attempt::Collided } else { Attempt::Outlasted });
            }
            round = round.min(patience - spent);
        }
    }
}

/// How an attempt to start the log over ended.
enum Attempt {
    Done,
    /// Somebody read from the log, or wrote to it, for longer than the patience.
    Outlasted,
    /// Other connections were at checkpoints all the while.
    Collided,
}

/// SQLite's own busy handler sleeps for longer and longer. Beside a busy writer it would hardly ever find the
/// moment between two transactions.
const NAP: Duration = Duration::from_millis(1);

thread_local! {
    /// How a busy handler, which is a plain function, learns when to give up. Only what is spent waiting
    /// counts: what the checkpoint writes between two waits may take long on a slow disk.
    static PATIENCE_LEFT: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

fn is_patient(_: i32) -> bool {
    let begun = Instant::now();
    std::thread::sleep(NAP);
    let left = PATIENCE_LEFT.get().saturating_sub(begun.elapsed());
    PATIENCE_LEFT.set(left);
    !left.is_zero()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_stays_is_waited_for_once_and_then_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("app.db");
        let (mut conn, reader) = (Connection::open(&path).unwrap(), Connection::open(&path).unwrap());
        conn.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE app (x)").unwrap();
        let mut log = Log { most: 0, ..Log::of(&path) };
        let timeout = Duration::from_millis(30);
        let mut commit = |times: u32| {
            for _ in 0..times {
                conn.execute_batch("INSERT INTO app VALUES (1)").unwrap();
                log.committed(&mut conn, timeout);
            }
            let set: u32 = conn.query_row("PRAGMA busy_timeout", [], |row| row.get(0)).unwrap();
            (log.not_before, set)
        };
        let free = commit(STRIDE - 1);
        assert_eq!(free.0, None);
        reader.execute_batch("BEGIN; SELECT * FROM app").unwrap();
        let (first, set) = commit(1);
        assert!(first.is_some_and(|instant| instant > Instant::now()));
        assert_eq!(set, 30, "the connection waits as long as before");
        assert_eq!(commit(2 * STRIDE), (first, 30), "no other attempt was made");
        reader.execute_batch("COMMIT").unwrap();
        log.not_before = None;
        for _ in 0..STRIDE {
            log.committed(&mut conn, timeout);
        }
        assert_eq!(log.not_before, None);
        assert_eq!(bytes_beside(&log.path, "-wal"), 0, "nobody reads, so the log was started over");
    }
}
