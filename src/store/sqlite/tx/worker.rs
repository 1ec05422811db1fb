//! Workers and the shards they hold.

use std::collections::HashSet;

use super::super::error::Outcome;
use super::{Db, clamp};
use crate::id::Holder;
use crate::store::contract::{ShardLease, ShardWrite, Worker};
use crate::store::sql::records;
use crate::time::Timestamp;

const PUT_WORKER: &str = "INSERT INTO sm_worker (name, codes, shards, expires_at, incarnation) \
     VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (name) DO UPDATE SET incarnation = excluded.incarnation, codes = excluded.codes, shards = excluded.shards, \
     expires_at = excluded.expires_at";
const DELETE_WORKER: &str = "DELETE FROM sm_worker WHERE name = ?1";
pub(super) const RELEASE: &str = "UPDATE sm_shard SET holder = NULL, epoch = epoch + 1 WHERE holder = ?1";
const LIVE_WORKERS: &str =
    "SELECT name, codes, shards, expires_at, incarnation FROM sm_worker WHERE expires_at > ?1 ORDER BY name";
pub(super) const FORGET_WORKERS: &str = "DELETE FROM sm_worker WHERE name IN \
     (SELECT name FROM sm_worker WHERE expires_at < ?1 ORDER BY expires_at, name LIMIT ?2)";
const SHARDS: &str = "SELECT shard, holder, epoch, expires_at FROM sm_shard ORDER BY shard";
const FIRST_LEASE: &str = "INSERT INTO sm_shard (shard, holder, epoch, expires_at) VALUES (?1, ?2, ?3, ?4) \
     ON CONFLICT (shard) DO UPDATE SET holder = excluded.holder, epoch = excluded.epoch, \
     expires_at = excluded.expires_at WHERE epoch = 0";
pub(super) const LATER_LEASE: &str =
    "UPDATE sm_shard SET holder = ?2, epoch = ?3, expires_at = ?4 WHERE shard = ?1 AND epoch = ?5";

impl Db<'_> {
    pub(super) fn put_worker(&mut self, worker: &Worker) -> Outcome<()> {
        let (codes, shards) = (worker.codes.get(), worker.shards.get());
        self.prepare(PUT_WORKER)?.execute((
            worker.name.as_str(),
            codes,
            shards,
            worker.expires_at.as_micros(),
            worker.incarnation.cast_signed(),
        ))?;
        Ok(())
    }

    pub(super) fn delete_worker(&mut self, name: &Holder) -> Outcome<()> {
        self.prepare(DELETE_WORKER)?.execute([name.as_str()])?;
        self.prepare(RELEASE)?.execute([name.as_str()])?;
        Ok(())
    }

    pub(super) fn forget_workers(&mut self, before: Timestamp, limit: usize) -> Outcome<usize> {
        Ok(self.prepare(FORGET_WORKERS)?.execute((before.as_micros(), clamp(limit)))?)
    }

    pub(super) fn live_workers(&mut self, now: Timestamp) -> Outcome<Vec<Worker>> {
        let mut statement = self.prepare(LIVE_WORKERS)?;
        statement.query_and_then([now.as_micros()], |row| records::worker(row))?.collect()
    }

    pub(super) fn shard_leases(&mut self) -> Outcome<Vec<ShardLease>> {
        let mut statement = self.prepare(SHARDS)?;
        statement.query_and_then([], |row| records::shard_lease(row))?.collect()
    }

    pub(super) fn put_shards_if_unchanged(&mut self, writes: &[ShardWrite]) -> Outcome<Vec<bool>> {
        let (mut first, mut later) = (self.prepare(FIRST_LEASE)?, self.prepare(LATER_LEASE)?);
        let mut written = HashSet::with_capacity(writes.len());
        let mut put = |write: &ShardWrite| {
            let lease = &write.lease;
            if written.contains(&lease.shard) {
                return Ok(false);
            }
            let holder = lease.holder.as_ref().map(Holder::as_str);
            let expires_at = lease.expires_at.as_micros();
            let rows = match write.was {
                0 => first.execute((lease.shard, holder, lease.epoch, expires_at))?,
                was => later.execute((lease.shard, holder, lease.epoch, expires_at, was))?,
            };
            let answer = rows > 0;
            if answer {
                written.insert(lease.shard);
            }
            Ok(answer)
        };
        writes.iter().map(&mut put).collect()
    }
}
