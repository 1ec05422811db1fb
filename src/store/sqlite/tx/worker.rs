//! Workers and the shards they hold.

use std::collections::HashSet;
use std::num::NonZeroU32;

use super::super::error::Outcome;
use super::{Db, clamp};
use crate::id::{Holder, SensorKind};
use crate::store::contract::{PokerRow, ShardLease, ShardWrite};
use crate::store::sql::records;
use crate::time::Timestamp;

const PUT_WORKER: &str = "INSERT INTO sm_worker (name, codes, shards, expires_at, incarnation, kinds, most_shards) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (name) DO UPDATE SET incarnation = excluded.incarnation, \
     codes = excluded.codes, shards = excluded.shards, expires_at = excluded.expires_at, kinds = excluded.kinds, \
     most_shards = excluded.most_shards";
const DELETE_WORKER: &str = "DELETE FROM sm_worker WHERE name = ?1";
pub(super) const RELEASE: &str =
    "UPDATE sm_shard SET holder = NULL, epoch = epoch + 1 WHERE holder = ?1 AND kind = ''";
pub(super) const DELETE_LOANS: &str = "DELETE FROM sm_shard WHERE holder = ?1 AND kind <> ''";
const DELETE_LOAN: &str = "DELETE FROM sm_shard WHERE shard = ?1 AND kind = ?2 AND epoch = ?3 AND ifnull(?4, expires_at) = expires_at";
const LIVE_WORKERS: &str = "SELECT name, codes, shards, expires_at, incarnation, kinds, most_shards \
     FROM sm_worker WHERE expires_at > ?1 ORDER BY name";
pub(super) const FORGET_WORKERS: &str = "DELETE FROM sm_worker WHERE name IN \
     (SELECT name FROM sm_worker WHERE expires_at < ?1 ORDER BY expires_at, name LIMIT ?2)";
const SHARDS: &str = "SELECT shard, holder, epoch, expires_at, kind, load FROM sm_shard ORDER BY shard, kind";
const FIRST_LEASE: &str = "INSERT INTO sm_shard (shard, kind, holder, epoch, expires_at, load) VALUES (?1, ?2, ?3, ?4, ?5, ?7) \
     ON CONFLICT (shard, kind) DO UPDATE SET holder = excluded.holder, epoch = excluded.epoch, \
     expires_at = excluded.expires_at, load = excluded.load \
     WHERE epoch = 0 AND ifnull(?6, sm_shard.expires_at) = sm_shard.expires_at";
pub(super) const LATER_LEASE: &str = "UPDATE sm_shard SET holder = ?3, epoch = ?4, expires_at = ?5, load = ?8 \
     WHERE shard = ?1 AND kind = ?2 AND epoch = ?6 AND ifnull(?7, expires_at) = expires_at";

impl Db<'_> {
    pub(super) fn put_worker(&mut self, worker: &PokerRow) -> Outcome<()> {
        let (codes, shards) = (worker.codes.get(), worker.shards.get());
        self.prepare(PUT_WORKER)?.execute((
            worker.name.as_str(),
            codes,
            shards,
            worker.expires_at.as_micros(),
            worker.incarnation.cast_signed(),
            serde_json::to_string(&worker.kinds)?,
            worker.most_shards.map(NonZeroU32::get),
        ))?;
        Ok(())
    }

    pub(super) fn delete_worker(&mut self, name: &Holder) -> Outcome<()> {
        self.prepare(DELETE_WORKER)?.execute([name.as_str()])?;
        self.prepare(RELEASE)?.execute([name.as_str()])?;
        self.prepare(DELETE_LOANS)?.execute([name.as_str()])?;
        Ok(())
    }

    pub(super) fn forget_workers(&mut self, before: Timestamp, limit: usize) -> Outcome<usize> {
        Ok(self.prepare(FORGET_WORKERS)?.execute((before.as_micros(), clamp(limit)))?)
    }

    pub(super) fn live_workers(&mut self, now: Timestamp) -> Outcome<Vec<PokerRow>> {
        let mut statement = self.prepare(LIVE_WORKERS)?;
        statement.query_and_then([now.as_micros()], |row| records::worker(row))?.collect()
    }

    pub(super) fn shard_leases(&mut self) -> Outcome<Vec<ShardLease>> {
        let mut statement = self.prepare(SHARDS)?;
        statement.query_and_then([], |row| records::shard_lease(row))?.collect()
    }

    pub(super) fn put_shards_if_unchanged(&mut self, writes: &[ShardWrite]) -> Outcome<Vec<bool>> {
        let (mut first, mut later) = (self.prepare(FIRST_LEASE)?, self.prepare(LATER_LEASE)?);
        let mut delete = self.prepare(DELETE_LOAN)?;
        let mut written = HashSet::with_capacity(writes.len());
        let mut answers = Vec::with_capacity(writes.len());
        for write in writes {
            let lease = &write.lease;
            let of = (lease.shard, lease.kind.as_ref().map_or("", SensorKind::as_str));
            if written.contains(&of) {
                answers.push(false);
                continue;
            }
            let holder = lease.holder.as_ref().map(Holder::as_str);
            let expires_at = lease.expires_at.as_micros();
            let ((shard, kind), ended) = (of, write.ended.map(Timestamp::as_micros));
            let load = lease.load.cast_signed();
            let rows = match write.was {
                was if lease.kind.is_some() && holder.is_none() => {
                    delete.execute((shard, kind, was, ended))?
                }
                0 => first.execute((shard, kind, holder, lease.epoch, expires_at, ended, load))?,
                was => later.execute((shard, kind, holder, lease.epoch, expires_at, was, ended, load))?,
            };
            let answer = rows > 0;
            if answer {
                written.insert(of);
            }
            answers.push(answer);
        }
        Ok(answers)
    }
}
