//! The feed of task events and its consumers. See `migrations/0001_initial/sensors.sql`.

use super::super::error::Outcome;
use super::super::wire::ask;
use super::{Db, PostgresBackend, clamp, first, row};
use crate::error::StoreResult;
use crate::feed::{Consumer, TaskEvent};
use crate::id::Holder;
use crate::store::contract::FeedTx;
use crate::store::sql::codes::Code;
use crate::store::sql::records;
use crate::time::Timestamp;

pub(super) const FEED: &str = "SELECT seq, no, attempt, at, state, reason, value, message, namespace, workflow, run, task, map_index \
     FROM sm.feed WHERE seq > $1::bigint ORDER BY seq LIMIT $2::bigint";
pub(super) const LAST: &str = "SELECT feed FROM sm.numbers ORDER BY version DESC LIMIT 1";
/// Skips events that another transaction is deleting.
pub(super) const FORGET: &str = "WITH \
     old AS MATERIALIZED (SELECT feed.seq \
       FROM (SELECT seq, at FROM sm.feed WHERE seq > 0 ORDER BY seq LIMIT $3::bigint) first \
       CROSS JOIN LATERAL (SELECT seq FROM sm.feed WHERE feed.seq = first.seq FOR UPDATE SKIP LOCKED) feed \
       WHERE first.seq <= $1::bigint OR first.at < $2::bigint), \
     gone AS (DELETE FROM sm.feed WHERE seq = ANY (ARRAY(SELECT seq FROM old)) RETURNING 1) \
     SELECT count(*) FROM gone";
/// There are few consumers.
pub(super) const CONSUMERS: &str =
    "SELECT name, cursor, seen_at, lost, dropped, reader, until FROM sm.consumer ORDER BY name";
pub(super) const HOLD: &str = "SELECT name, cursor, seen_at, lost, dropped, reader, until FROM sm.consumer WHERE name = $1::text FOR UPDATE";
const REGISTER: &str = "SELECT pg_advisory_xact_lock(hashtextextended('sm.consumer', 0))";
pub(super) const PUT: &str = "INSERT INTO sm.consumer (name, cursor, seen_at, lost, dropped, reader, until) \
     VALUES ($1::text, $2::bigint, $3::bigint, $4::bigint, $5::bigint, $6::bigint, $7::bigint) \
     ON CONFLICT (name) DO UPDATE SET cursor = excluded.cursor, seen_at = excluded.seen_at, lost = excluded.lost, \
       dropped = excluded.dropped, reader = excluded.reader, until = excluded.until";
pub(super) const DELETE: &str =
    "WITH gone AS (DELETE FROM sm.consumer WHERE name = $1::text RETURNING 1) SELECT count(*) FROM gone";

impl Db<'_> {
    fn feed(&mut self, after: u64, limit: usize) -> Outcome<Vec<TaskEvent>> {
        let rows = self.one(ask!(FEED, clamp(after), clamp(limit)))?;
        rows.iter().map(|row| records::task_event(row, &mut self.names)).collect()
    }

    fn feed_last(&mut self) -> Outcome<u64> {
        let rows = self.one(ask!(LAST))?;
        row::number(first(&rows)?, 0)
    }

    fn consumers(&mut self) -> Outcome<Vec<Consumer>> {
        let rows = self.one(ask!(CONSUMERS))?;
        rows.iter().map(records::consumer).collect()
    }

    fn hold_consumer(&mut self, name: &Holder) -> Outcome<Option<Consumer>> {
        let mut rows = self.one(ask!(HOLD, name.as_str()))?;
        if rows.is_empty() {
            // There is no row to lock. So readers that are about to register take turns, and look again: the first
            // of two may have registered the name meanwhile.
            [_, rows] = self.all([ask!(REGISTER), ask!(HOLD, name.as_str())])?;
        }
        rows.iter().map(records::consumer).next().transpose()
    }

    fn put_consumer(&mut self, consumer: &Consumer) -> Outcome<()> {
        let (seen_at, until) = (consumer.seen_at.as_micros(), consumer.until.as_micros());
        let (cursor, lost) = (clamp(consumer.cursor), clamp(consumer.lost));
        let (name, dropped) = (consumer.name.as_str(), consumer.dropped.code());
        self.one(ask!(PUT, name, cursor, seen_at, lost, dropped, consumer.reader, until)).map(drop)
    }
}

impl FeedTx for PostgresBackend<'_> {
    fn feed(&mut self, after: u64, limit: usize) -> StoreResult<Vec<TaskEvent>> {
        self.read(|db| if limit == 0 { Ok(Vec::new()) } else { db.feed(after, limit) })
    }

    fn feed_last(&mut self) -> StoreResult<u64> {
        self.read(|db| db.feed_last())
    }

    fn forget_feed(&mut self, accepted: u64, before: Timestamp, limit: usize) -> StoreResult<usize> {
        self.write(|db| match limit {
            0 => Ok(0),
            limit => db.number(ask!(FORGET, clamp(accepted), before.as_micros(), clamp(limit))),
        })
    }

    fn consumers(&mut self) -> StoreResult<Vec<Consumer>> {
        self.read(|db| db.consumers())
    }

    fn hold_consumer(&mut self, name: &Holder) -> StoreResult<Option<Consumer>> {
        self.write(|db| db.hold_consumer(name))
    }

    fn put_consumer(&mut self, consumer: &Consumer) -> StoreResult<()> {
        self.write(|db| db.put_consumer(consumer))
    }

    fn delete_consumer(&mut self, name: &Holder) -> StoreResult<bool> {
        self.write(|db| Ok(db.number(ask!(DELETE, name.as_str()))? > 0))
    }
}
