//! The feed of ends and its consumers.

use super::super::error::Outcome;
use super::codes::Code;
use super::{Db, SqliteBackend, clamp};
use crate::error::StoreResult;
use crate::feed::{Consumer, TaskEvent};
use crate::id::Holder;
use crate::store::contract::{FeedTx, Move};
use crate::store::sql::records::{self, TELLS_ENDS, TELLS_SENSORS};
use crate::task::TaskState;
use crate::time::Timestamp;

/// Reads the task as it was before the move.
pub(super) const EVENT: &str = "INSERT INTO sm_feed (seq, no, attempt, at, state, reason, map_index, namespace, workflow, run, task, value, message) \
     SELECT ?2, no, attempt, coalesce(?3, ready_at), ?4, ?5, map_index, namespace, workflow, run, task, ?6, ?7 \
     FROM sm_task WHERE no = ?1";
pub(super) const FEED: &str = "SELECT seq, no, attempt, at, state, reason, value, message, namespace, workflow, run, task, map_index \
     FROM sm_feed WHERE seq > ?1 ORDER BY seq LIMIT ?2";
pub(super) const FORGET: &str = "DELETE FROM sm_feed WHERE seq IN ( \
       SELECT seq FROM (SELECT seq, at FROM sm_feed WHERE seq > 0 ORDER BY seq LIMIT ?3) first \
       WHERE seq <= ?1 OR at < ?2)";
/// There are few consumers, so all are read.
pub(super) const CONSUMERS: &str =
    "SELECT name, cursor, seen_at, lost, dropped, reader, until FROM sm_consumer ORDER BY name";
pub(super) const CONSUMER: &str =
    "SELECT name, cursor, seen_at, lost, dropped, reader, until FROM sm_consumer WHERE name = ?1";
const PUT: &str = "INSERT OR REPLACE INTO sm_consumer (name, cursor, seen_at, lost, dropped, reader, until) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
pub(super) const DELETE: &str = "DELETE FROM sm_consumer WHERE name = ?1";

impl Db<'_> {
    /// Writes the event of this move, if the task's `attempt_runs` ask for it. Must run before the move.
    pub(super) fn write_event(&mut self, change: &Move, notes: i64) -> Outcome<()> {
        let of_sensor = change.from == TaskState::Sensing
            && matches!(change.to, TaskState::Scheduled | TaskState::UpForRetry);
        let is_fed =
            (change.to.is_end() && notes & TELLS_ENDS != 0) || (of_sensor && notes & TELLS_SENSORS != 0);
        if !is_fed {
            return Ok(());
        }
        let seq = self.counter("feed")? + 1;
        let at = change.ended_at.or(change.at).map(Timestamp::as_micros);
        let (reason, value, message) = (change.reason.map(Code::code), &change.value, &change.message);
        let row = (change.task.id.0, seq, at, change.to.code(), reason, value, message);
        self.prepare(EVENT)?.execute(row)?;
        self.set_counter("feed", seq)
    }

    fn feed(&mut self, after: u64, limit: usize) -> Outcome<Vec<TaskEvent>> {
        let mut statement = self.prepare(FEED)?;
        let mut rows = statement.query((clamp(after), clamp(limit)))?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(records::task_event(row, &mut self.names)?);
        }
        Ok(found)
    }

    fn consumers(&mut self) -> Outcome<Vec<Consumer>> {
        let mut statement = self.prepare(CONSUMERS)?;
        statement.query_and_then([], |row| records::consumer(row))?.collect()
    }

    fn consumer(&mut self, name: &Holder) -> Outcome<Option<Consumer>> {
        let mut statement = self.prepare(CONSUMER)?;
        statement.query_and_then([name.as_str()], |row| records::consumer(row))?.next().transpose()
    }

    fn put_consumer(&mut self, consumer: &Consumer) -> Outcome<()> {
        self.prepare(PUT)?.execute((
            consumer.name.as_str(),
            clamp(consumer.cursor),
            consumer.seen_at.as_micros(),
            clamp(consumer.lost),
            consumer.dropped,
            consumer.reader,
            consumer.until.as_micros(),
        ))?;
        Ok(())
    }
}

impl FeedTx for SqliteBackend<'_> {
    fn feed(&mut self, after: u64, limit: usize) -> StoreResult<Vec<TaskEvent>> {
        self.read(|db| db.feed(after, limit))
    }

    fn feed_last(&mut self) -> StoreResult<u64> {
        self.read(|db| Ok(db.counter("feed")?.cast_unsigned()))
    }

    fn forget_feed(&mut self, accepted: u64, before: Timestamp, limit: usize) -> StoreResult<usize> {
        self.write(|db| {
            Ok(db.prepare(FORGET)?.execute((clamp(accepted), before.as_micros(), clamp(limit)))?)
        })
    }

    fn consumers(&mut self) -> StoreResult<Vec<Consumer>> {
        self.read(|db| db.consumers())
    }

    fn hold_consumer(&mut self, name: &Holder) -> StoreResult<Option<Consumer>> {
        self.write(|db| db.consumer(name))
    }

    fn put_consumer(&mut self, consumer: &Consumer) -> StoreResult<()> {
        self.write(|db| db.put_consumer(consumer))
    }

    fn delete_consumer(&mut self, name: &Holder) -> StoreResult<bool> {
        self.write(|db| Ok(db.prepare(DELETE)?.execute([name.as_str()])? > 0))
    }
}
