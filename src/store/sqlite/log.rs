//! Keeps the write-ahead log bounded.
//!
//! SQLite restarts the log when a writer finds no reader in it. With overlapping readers that never happens,
//! and each commit makes the log longer. A TRUNCATE checkpoint forces such a moment. It keeps writers out,
//! moves the rest of the log into the database, and waits for readers that still use the log. Meanwhile new
//! readers read only the database. It also empties the file. Otherwise the next write of a host's own
//! connection would leave the file at its length, and each check would find it too long.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::probe::bytes_beside;

/// The most bytes that the log keeps on disk after a restart.
pub(super) const KEPT: i64 = 64 << 20;

/// A log longer than this is restarted.
const MOST: u64 = 128 << 20;

/// Commits between two checks of the log's length. Each check is a system call.
const STRIDE: u32 = 32;

/// How long an attempt keeps writers out, not counting the time that writing takes.
const PATIENCE: Duration = Duration::from_millis(500);

/// How long to leave writers alone after readers outlasted an attempt.
const PAUSE: Duration = Duration::from_secs(60);

/// What the writing connection remembers about the log.
#[derive(Debug)]
pub(super) struct Log {
    /// The database itself, not a link to it, because the log lies beside it.
    path: PathBuf,
    most: u64,
    commits: u32,
    not_before: Option<Instant>,
}

impl Log {
    /// Returns the log of the database in this file, which must exist.
    pub(super) fn of(path: &Path) -> Self {
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        Self { path, most: MOST, commits: 0, not_before: None }
    }

    /// Counts a commit, and restarts the log if it has become too long.
    ///
    /// Ignores failures, because the commit took effect in any case, and the log can wait.
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
                // The other connection may be in an ordinary checkpoint, which leaves the log at its length. It
                // ends soon, so the next commit checks again.
                Attempt::Collided => (self.not_before, self.commits) = (None, STRIDE - 1),
            }
            let _ = conn.busy_timeout(busy_timeout);
        }
    }

    fn is_long(&self) -> bool {
        bytes_beside(&self.path, "-wal") > self.most
    }

    /// Requests the checkpoint repeatedly, each time with twice the previous patience.
    ///
    /// One long wait is not enough. SQLite reads once which slot of the shared index the readers of an old
    /// state hold, and then waits for that slot. Meanwhile new readers may have taken it for the newest state.
    /// While they overlap, it never becomes free. The next attempt sees that no one reads an old state any
    /// more.
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
            // Another connection is in a checkpoint. SQLite does not wait for it, and reports no pages.
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

/// How an attempt to restart the log ended.
enum Attempt {
    Done,
    /// Another connection read from the log, or wrote to it, for longer than the patience.
    Outlasted,
    /// Other connections were in checkpoints the whole time.
    Collided,
}

/// SQLite's own busy handler sleeps longer each time. Beside a busy writer it would rarely find the gap between
/// two transactions.
const NAP: Duration = Duration::from_millis(1);

thread_local! {
    /// The patience that the busy handler has left. The handler is a plain function, so it reads this. Only
    /// time spent waiting counts, because the checkpoint's writes between two waits may take long on a slow
    /// disk.
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
