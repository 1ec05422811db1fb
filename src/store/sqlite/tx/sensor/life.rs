//! What concerns many sensors at once: takeovers of their shard, and outages of their target.

use std::collections::BTreeSet;

use rusqlite::params;

use super::super::super::error::Outcome;
use super::super::{Db, clamp};
use crate::fingerprint::Fingerprint;
use crate::id::SensorKind;
use crate::sensor::{OutageRow, ShardTake};
use crate::store::contract::{FORGOTTEN_AT_ONCE, KEPT_OUTAGES, KEPT_TAKES};
use crate::store::sql::records;
use crate::time::Timestamp;

const PUT_TAKE: &str = "REPLACE INTO sm_shard_take (shard, epoch, holder, at, codes, shards, kind, left_at) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
pub(in super::super) const FORGET_TAKES: &str =
    "DELETE FROM sm_shard_take WHERE shard = ?1 AND kind = ?2 AND epoch <= ?3";
pub(in super::super) const FORGET_TAKES_OF_KINDS: &str = "DELETE FROM sm_shard_take WHERE (shard, kind, epoch) IN \
     (SELECT shard, kind, epoch FROM sm_shard_take take WHERE kind <> '' AND at < ?1 AND NOT EXISTS \
       (SELECT 1 FROM sm_shard WHERE sm_shard.shard = take.shard AND sm_shard.kind = take.kind) \
     ORDER BY at LIMIT ?2)";
const TAKES: &str = "SELECT shard, epoch, holder, at, codes, shards, kind, left_at FROM sm_shard_take \
     ORDER BY shard, kind, epoch";
const PUT_OUTAGE: &str = "REPLACE INTO sm_outage (fingerprint, since, until) VALUES (?1, ?2, ?3)";
pub(in super::super) const FORGET_EARLIER: &str = "DELETE FROM sm_outage WHERE fingerprint = ?1 AND since < \
     (SELECT since FROM sm_outage WHERE fingerprint = ?1 ORDER BY since DESC LIMIT 1 OFFSET ?2)";
pub(in super::super) const FORGET_ENDED: &str = "DELETE FROM sm_outage WHERE (fingerprint, since) IN \
     (SELECT fingerprint, since FROM sm_outage WHERE until < ?1 ORDER BY until LIMIT ?2)";
pub(in super::super) const OPEN_OUTAGES: &str =
    "SELECT fingerprint, since, until FROM sm_outage WHERE until IS NULL";
pub(in super::super) const OUTAGES_OF: &str =
    "SELECT fingerprint, since, until FROM sm_outage WHERE fingerprint = ?1";

impl Db<'_> {
    pub(super) fn put_shard_takes(&mut self, takes: &[ShardTake], before: Timestamp) -> Outcome<()> {
        let (mut put, mut forget) = (self.prepare(PUT_TAKE)?, self.prepare(FORGET_TAKES)?);
        for take in takes {
            let (codes, shards) = (take.codes.get(), take.shards.get());
            let (holder, at) = (take.holder.as_str(), take.at.as_micros());
            let kind = take.kind.as_ref().map_or("", SensorKind::as_str);
            let left_at = take.left_at.as_micros();
            put.execute(params![take.shard, take.epoch, holder, at, codes, shards, kind, left_at])?;
            forget.execute((take.shard, kind, take.epoch.saturating_sub(KEPT_TAKES)))?;
        }
        self.prepare(FORGET_TAKES_OF_KINDS)?.execute((before.as_micros(), clamp(FORGOTTEN_AT_ONCE)))?;
        Ok(())
    }

    pub(super) fn shard_takes(&mut self) -> Outcome<Vec<ShardTake>> {
        let mut statement = self.prepare(TAKES)?;
        statement.query_and_then([], |row| records::shard_take(row))?.collect()
    }

    pub(super) fn put_outages(&mut self, outages: &[OutageRow], forget: Timestamp) -> Outcome<()> {
        let (mut put, mut forget_earlier) = (self.prepare(PUT_OUTAGE)?, self.prepare(FORGET_EARLIER)?);
        for row in outages {
            let until = row.until.map(Timestamp::as_micros);
            put.execute((row.fingerprint.0.cast_signed(), row.since.as_micros(), until))?;
        }
        for row in outages {
            forget_earlier.execute((row.fingerprint.0.cast_signed(), clamp(KEPT_OUTAGES - 1)))?;
        }
        self.prepare(FORGET_ENDED)?.execute((forget.as_micros(), clamp(FORGOTTEN_AT_ONCE)))?;
        Ok(())
    }

    pub(super) fn outages(&mut self, of: Option<&[Fingerprint]>) -> Outcome<Vec<OutageRow>> {
        let mut rows: Vec<OutageRow> = match of {
            None => {
                let mut open = self.prepare(OPEN_OUTAGES)?;
                open.query_and_then([], |row| records::outage(row))?.collect::<Outcome<_>>()?
            }
            Some(of) => {
                let mut one = self.prepare(OUTAGES_OF)?;
                let mut rows = Vec::new();
                for target in of.iter().collect::<BTreeSet<_>>() {
                    let found = one.query_and_then([target.0.cast_signed()], |row| records::outage(row))?;
                    rows.extend(found.collect::<Outcome<Vec<_>>>()?);
                }
                rows
            }
        };
        rows.sort_unstable();
        Ok(rows)
    }
}
