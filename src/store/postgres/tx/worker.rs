//! Workers and the shards they hold.

use std::collections::HashSet;

use super::super::error::Outcome;
use super::super::wire::ask;
use super::{Db, clamp, row};
use crate::id::Holder;
use crate::store::contract::{PokerRow, ShardLease, ShardWrite};
use crate::store::sql::records;
use crate::store::sql::statement::statement;
use crate::time::Timestamp;

pub(super) const PUT_WORKER: &str = "INSERT INTO sm.worker (name, codes, shards, expires_at, incarnation, kinds, most_shards) \
     VALUES ($1::text, $2::bigint, $3::bigint, $4::bigint, $5::bigint, $6::text, $7::bigint) ON CONFLICT (name) DO UPDATE \
     SET incarnation = excluded.incarnation, codes = excluded.codes, shards = excluded.shards, \
       expires_at = excluded.expires_at, kinds = excluded.kinds, most_shards = excluded.most_shards";
pub(super) const DELETE_WORKER: &str = "DELETE FROM sm.worker WHERE name = $1::text";
pub(super) const RELEASE: &str = statement!("release_shards.sql");
pub(super) const FORGET_WORKERS: &str = "WITH old AS MATERIALIZED ( \
       SELECT name FROM sm.worker WHERE expires_at < $1::bigint ORDER BY expires_at, name LIMIT $2::bigint \
       FOR UPDATE SKIP LOCKED), \
     gone AS (DELETE FROM sm.worker WHERE name = ANY (ARRAY(SELECT name FROM old)) RETURNING 1) \
     SELECT count(*) FROM gone";
pub(super) const LIVE_WORKERS: &str = "SELECT name, codes, shards, expires_at, incarnation, kinds, most_shards \
     FROM sm.worker WHERE expires_at > $1::bigint";
pub(super) const SHARDS: &str =
    "SELECT shard, holder, epoch, expires_at, kind, load FROM sm.shard ORDER BY shard, kind";
/// No shard is written twice. One that was never held has the epoch 0.
pub(super) const PUT_SHARDS: &str = statement!("put_shards.sql");

impl Db<'_> {
    pub(super) fn put_worker(&mut self, worker: &PokerRow) -> Outcome<()> {
        let (codes, shards) = (i64::from(worker.codes.get()), i64::from(worker.shards.get()));
        let (expires_at, incarnation) = (worker.expires_at.as_micros(), worker.incarnation.cast_signed());
        let kinds = serde_json::to_string(&worker.kinds)?;
        let most = worker.most_shards.map(|most| i64::from(most.get()));
        self.one(ask!(PUT_WORKER, worker.name.as_str(), codes, shards, expires_at, incarnation, kinds, most))
            .map(|_| ())
    }

    pub(super) fn delete_worker(&mut self, name: &Holder) -> Outcome<()> {
        self.all([ask!(DELETE_WORKER, name.as_str()), ask!(RELEASE, name.as_str())]).map(|_| ())
    }

    pub(super) fn forget_workers(&mut self, before: Timestamp, limit: usize) -> Outcome<usize> {
        self.number(ask!(FORGET_WORKERS, before.as_micros(), clamp(limit)))
    }

    pub(super) fn live_workers(&mut self, now: Timestamp) -> Outcome<Vec<PokerRow>> {
        let rows = self.one(ask!(LIVE_WORKERS, now.as_micros()))?;
        let mut workers = rows.iter().map(records::worker).collect::<Outcome<Vec<PokerRow>>>()?;
        workers.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(workers)
    }

    pub(super) fn shard_leases(&mut self) -> Outcome<Vec<ShardLease>> {
        let rows = self.one(ask!(SHARDS))?;
        rows.iter().map(records::shard_lease).collect()
    }

    pub(super) fn put_shards_if_unchanged(&mut self, writes: &[ShardWrite]) -> Outcome<Vec<bool>> {
        let mut answers = vec![false; writes.len()];
        let mut seen = HashSet::with_capacity(writes.len());
        let of = |write: &ShardWrite| (write.lease.shard, write.lease.kind.clone(), write.was);
        let first: Vec<usize> = (0..writes.len()).filter(|at| seen.insert(of(&writes[*at]))).collect();
        let given = || first.iter().map(|at| &writes[*at]);
        let rows = self.one(ask!(
            PUT_SHARDS,
            given().map(|write| i64::from(write.lease.shard)).collect::<Vec<i64>>(),
            given().map(|write| write.was).collect::<Vec<i64>>(),
            given()
                .map(|write| write.lease.holder.as_ref().map(ToString::to_string))
                .collect::<Vec<Option<String>>>(),
            given().map(|write| write.lease.epoch).collect::<Vec<i64>>(),
            given().map(|write| write.lease.expires_at.as_micros()).collect::<Vec<i64>>(),
            given()
                .map(|write| write.lease.kind.as_ref().map_or_else(String::new, ToString::to_string))
                .collect::<Vec<String>>(),
            given().map(|write| write.ended.map(Timestamp::as_micros)).collect::<Vec<Option<i64>>>(),
            given().map(|write| write.lease.load.cast_signed()).collect::<Vec<i64>>(),
        ))?;
        for row in &rows {
            if let Some(at) = first.get(row::place(row, 0)?) {
                answers[*at] = true;
            }
        }
        Ok(answers)
    }
}
