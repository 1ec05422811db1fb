//! Data about many sensors at once: who took their shard, and outages of their target.

use std::collections::BTreeMap;

use super::super::super::error::Outcome;
use super::super::super::wire::ask;
use super::super::{Db, clamp};
use crate::fingerprint::Fingerprint;
use crate::sensor::{OutageRow, ShardTake};
use crate::store::contract::{FORGOTTEN_AT_ONCE, KEPT_OUTAGES, KEPT_TAKES};
use crate::store::sql::records;
use crate::time::Timestamp;

/// The same shard, kind and epoch must not be given twice.
pub(in super::super) const PUT_TAKES: &str = "INSERT INTO sm.shard_take (shard, kind, epoch, holder, at, codes, shards, left_at) \
     SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], \
       $8::bigint[]) given (shard, kind, epoch, holder, at, codes, shards, left_at) \
     ORDER BY given.shard, given.kind COLLATE \"C\", given.epoch \
     ON CONFLICT (shard, kind, epoch) DO UPDATE SET holder = excluded.holder, at = excluded.at, \
       codes = excluded.codes, shards = excluded.shards, left_at = excluded.left_at";
/// Skips rows that other transactions are deleting. So do the statements below.
pub(in super::super) const FORGET_TAKES: &str = "WITH old AS MATERIALIZED ( \
       SELECT take.at FROM unnest($1::bigint[], $2::text[], $3::bigint[]) given (shard, kind, epoch) \
       CROSS JOIN LATERAL ( \
         SELECT ctid AS at FROM sm.shard_take \
         WHERE shard_take.shard = given.shard AND shard_take.kind = given.kind AND shard_take.epoch <= given.epoch FOR UPDATE SKIP LOCKED \
       ) take) \
     DELETE FROM sm.shard_take WHERE ctid = ANY (ARRAY(SELECT at FROM old))";
/// Also a separate statement. Lent shards keep their takes, which say who polls them.
pub(in super::super) const FORGET_TAKES_OF_KINDS: &str = "WITH old AS MATERIALIZED ( \
       SELECT ctid AS place FROM sm.shard_take take \
       WHERE kind <> '' AND take.at < $1::bigint AND NOT EXISTS ( \
         SELECT FROM sm.shard WHERE shard.shard = take.shard AND shard.kind = take.kind OFFSET 0) \
       ORDER BY take.at LIMIT $2::bigint FOR UPDATE SKIP LOCKED) \
     DELETE FROM sm.shard_take WHERE ctid = ANY (ARRAY(SELECT place FROM old))";
pub(in super::super) const TAKES: &str = "SELECT shard, epoch, holder, at, codes, shards, kind, left_at \
     FROM sm.shard_take ORDER BY shard, kind, epoch";
/// The same target and beginning must not be given twice.
pub(in super::super) const PUT_OUTAGES: &str = "INSERT INTO sm.outage (fingerprint, since, until) \
     SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) given (fingerprint, since, until) \
     ORDER BY given.fingerprint, given.since \
     ON CONFLICT (fingerprint, since) DO UPDATE SET until = excluded.until";
/// A separate statement, so that it sees what the previous one inserted.
pub(in super::super) const FORGET_EARLIER: &str = "WITH old AS MATERIALIZED ( \
       SELECT earlier.at FROM unnest($1::bigint[]) given (target) \
       CROSS JOIN LATERAL ( \
         SELECT since FROM sm.outage WHERE outage.fingerprint = given.target \
         ORDER BY since DESC LIMIT 1 OFFSET $2::bigint \
       ) kept \
       CROSS JOIN LATERAL ( \
         SELECT ctid AS at FROM sm.outage \
         WHERE outage.fingerprint = given.target AND outage.since < kept.since FOR UPDATE SKIP LOCKED \
       ) earlier) \
     DELETE FROM sm.outage WHERE ctid = ANY (ARRAY(SELECT at FROM old))";
pub(in super::super) const FORGET_ENDED: &str = "WITH old AS MATERIALIZED ( \
       SELECT ctid AS at FROM sm.outage WHERE until < $1::bigint ORDER BY until LIMIT $2::bigint \
       FOR UPDATE SKIP LOCKED) \
     DELETE FROM sm.outage WHERE ctid = ANY (ARRAY(SELECT at FROM old))";
pub(in super::super) const OPEN_OUTAGES: &str =
    "SELECT fingerprint, since, until FROM sm.outage WHERE until IS NULL";
pub(in super::super) const OUTAGES_OF: &str =
    "SELECT fingerprint, since, until FROM sm.outage WHERE fingerprint = ANY ($1::bigint[])";

impl Db<'_> {
    pub(super) fn put_shard_takes(&mut self, takes: &[ShardTake], before: Timestamp) -> Outcome<()> {
        let of = |take: &ShardTake| (take.shard, take.kind.clone(), take.epoch);
        let last: BTreeMap<_, &ShardTake> = takes.iter().map(|take| (of(take), take)).collect();
        let kinds =
            || last.keys().map(|(_, kind, _)| kind.as_ref().map_or_else(String::new, ToString::to_string));
        let numbers =
            |number: fn(&ShardTake) -> i64| last.values().map(|take| number(take)).collect::<Vec<i64>>();
        let put = ask!(
            PUT_TAKES,
            numbers(|take| take.shard.into()),
            kinds().collect::<Vec<String>>(),
            numbers(|take| take.epoch),
            last.values().map(|take| take.holder.to_string()).collect::<Vec<String>>(),
            numbers(|take| take.at.as_micros()),
            numbers(|take| take.codes.get().into()),
            numbers(|take| take.shards.get().into()),
            numbers(|take| take.left_at.as_micros()),
        );
        let forget = ask!(
            FORGET_TAKES,
            numbers(|take| take.shard.into()),
            kinds().collect::<Vec<String>>(),
            numbers(|take| take.epoch.saturating_sub(KEPT_TAKES)),
        );
        let of_kinds = ask!(FORGET_TAKES_OF_KINDS, before.as_micros(), clamp(FORGOTTEN_AT_ONCE));
        self.all([put, forget, of_kinds]).map(|_| ())
    }

    pub(super) fn shard_takes(&mut self) -> Outcome<Vec<ShardTake>> {
        self.one(ask!(TAKES))?.iter().map(records::shard_take).collect()
    }

    pub(super) fn put_outages(&mut self, outages: &[OutageRow], forget: Timestamp) -> Outcome<()> {
        let last: BTreeMap<(i64, i64), Option<i64>> = outages
            .iter()
            .map(|row| {
                let key = (row.fingerprint.0.cast_signed(), row.since.as_micros());
                (key, row.until.map(Timestamp::as_micros))
            })
            .collect();
        let mut targets: Vec<i64> = last.keys().map(|(target, _)| *target).collect();
        let since: Vec<i64> = last.keys().map(|(_, since)| *since).collect();
        let until: Vec<Option<i64>> = last.into_values().collect();
        let put = ask!(PUT_OUTAGES, targets.clone(), since, until);
        targets.dedup();
        let forget_earlier = ask!(FORGET_EARLIER, targets, clamp(KEPT_OUTAGES - 1));
        let forget_ended = ask!(FORGET_ENDED, forget.as_micros(), clamp(FORGOTTEN_AT_ONCE));
        self.all([put, forget_earlier, forget_ended]).map(|_| ())
    }

    pub(super) fn outages(&mut self, of: Option<&[Fingerprint]>) -> Outcome<Vec<OutageRow>> {
        let asked = of.map(|of| of.iter().map(|target| target.0.cast_signed()).collect::<Vec<i64>>());
        let rows = match asked {
            None => self.one(ask!(OPEN_OUTAGES))?,
            Some(of) => self.one(ask!(OUTAGES_OF, of))?,
        };
        let mut rows = rows.iter().map(records::outage).collect::<Outcome<Vec<OutageRow>>>()?;
        rows.sort_unstable();
        Ok(rows)
    }
}
