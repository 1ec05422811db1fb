//! An admission tick: what it plans with, what may be admitted, and what it commits. Each is one round trip.

use std::collections::{HashMap, HashSet};

use tokio_postgres::Row;

use super::super::error::Outcome;
use super::super::wire::{Statement, ask};
use super::{Db, clamp, first, pool, promote, row};
use crate::admission::{Candidate, Lane, LaneId, LanePage, OrderKey};
use crate::lease::{LeaseRef, TaskId};
use crate::store::contract::{GrantBatch, Granted, Survey, SurveyQuery, WhichPools};
use crate::time::Timestamp;

pub(super) const REQUEST: &str = "SELECT nos, epochs FROM sm.request WHERE id = $1::text";
pub(super) const NEXT_DUE: &str = "SELECT due FROM sm.task WHERE due IS NOT NULL ORDER BY due LIMIT 1";
pub(super) const READY_LANES: &str =
    "SELECT no, pool, slots, limits, ready FROM sm.lane WHERE ready > 0 ORDER BY no";
pub(super) const NAMED_POOLS: &str = "SELECT pool.name, pool.slots, used, keeps_slots, description \
     FROM (SELECT DISTINCT pool FROM sm.lane WHERE ready > 0) named \
     CROSS JOIN LATERAL (SELECT * FROM sm.pool WHERE pool.name = named.pool OFFSET 0) pool";
pub(super) const NAMED_LIMITS: &str = "SELECT task_limit.key, max, used \
     FROM (SELECT DISTINCT carried.key FROM sm.lane \
           CROSS JOIN LATERAL json_array_elements_text(lane.limits::json) carried (key) WHERE ready > 0) named \
     CROSS JOIN LATERAL (SELECT * FROM sm.task_limit WHERE task_limit.key = named.key OFFSET 0) task_limit";
pub(super) const CANDIDATES: &str = "SELECT page.lane, rank, logical_date, map_index, no, ready_at, place \
     FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[]) \
     WITH ORDINALITY page (lane, after_rank, after_date, after_index, after_no, most, place) \
     CROSS JOIN LATERAL (SELECT rank, logical_date, map_index, no, ready_at FROM sm.task \
       WHERE task.lane = page.lane AND state = 0 \
         AND (rank, logical_date, map_index, no) > (after_rank, after_date, after_index, after_no) \
       ORDER BY rank, logical_date, map_index, no LIMIT page.most) task";
/// Takes slots and counts against limits whether or not there is room; the last column is false if there was
/// none, or if a pool is unknown. Notes what it granted, if a name is given for that, and then only deletes
/// the note that this one replaces.
/// `state + 0`: not to be mistaken for the condition of an index.
pub(super) const GRANT: &str = concat!(
    "WITH granted AS (UPDATE sm.task SET state = 1, epoch = epoch + 1, attempt = least(attempt + 1, 4294967295), \
       held_slots = slots, holder = $2::text, expires_at = $3::bigint, queued_at = ",
    row::recorded_at!("$4::bigint"),
    " FROM unnest($1::bigint[]) WITH ORDINALITY given (no, place) \
       WHERE task.no = given.no AND state + 0 = 0 RETURNING task.*, place), \
     taken AS MATERIALIZED (SELECT sums.*, lane.pool, lane.limits \
       FROM (SELECT lane, count(*) AS tasks, sum(held_slots) AS slots FROM granted GROUP BY lane) sums \
       CROSS JOIN LATERAL (SELECT pool, limits FROM sm.lane WHERE lane.no = sums.lane OFFSET 0) lane), \
     counted AS (UPDATE sm.lane SET ready = ready - taken.tasks FROM taken WHERE lane.no = taken.lane), \
     asked AS MATERIALIZED (SELECT pool, sum(slots)::bigint AS slots FROM taken GROUP BY pool), \
     held AS (UPDATE sm.pool SET used = used + asked.slots FROM asked WHERE pool.name = asked.pool \
       RETURNING pool.slots IS NULL OR used <= pool.slots AS had_room), \
     charged AS (UPDATE sm.task_limit SET used = used + carried.tasks \
       FROM (SELECT carried.key, sum(tasks)::bigint AS tasks FROM taken \
             CROSS JOIN LATERAL json_array_elements_text(taken.limits::json) carried (key) GROUP BY carried.key) carried \
       WHERE task_limit.key = carried.key RETURNING max IS NULL OR used <= max AS had_room), \
     replaced AS (DELETE FROM sm.request WHERE id = $6::text AND $6::text <> $5::text AND EXISTS (SELECT FROM granted)), \
     noted AS (INSERT INTO sm.request (id, at, nos, epochs) \
       SELECT $5::text, $4::bigint, array_agg(no ORDER BY place), array_agg(epoch ORDER BY place) FROM granted \
       HAVING $5::text IS NOT NULL AND count(*) > 0 \
       ON CONFLICT (id) DO UPDATE SET at = excluded.at, nos = excluded.nos, epochs = excluded.epochs) \
     SELECT ",
    row::task_columns!(),
    ", place, (SELECT count(*) FROM asked) = (SELECT count(*) FROM held WHERE had_room) \
       AND NOT EXISTS (SELECT FROM charged WHERE NOT had_room) \
     FROM granted task CROSS JOIN LATERAL (SELECT * FROM sm.lane WHERE lane.no = task.lane OFFSET 0) lane"
);
/// Both kinds of ticks to forget are the earliest ones, up to the same number, so the larger set contains the
/// other. If what is beyond the number is older than the instant, it is in the first.
pub(super) const FORGET_REQUESTS: &str = "WITH beyond AS MATERIALIZED ( \
       SELECT at, id FROM sm.request WHERE at >= $1::bigint AND $3::bigint IS NOT NULL \
       ORDER BY at DESC, id DESC OFFSET $3::bigint LIMIT 1), \
     old AS MATERIALIZED ( \
       (SELECT id FROM sm.request WHERE at < $1::bigint ORDER BY at, id LIMIT $2::bigint) \
       UNION (SELECT request.id FROM beyond CROSS JOIN LATERAL (SELECT id FROM sm.request \
         WHERE (request.at, request.id) <= (beyond.at, beyond.id) ORDER BY at, id LIMIT $2::bigint) request)), \
     gone AS (DELETE FROM sm.request USING old WHERE request.id = old.id) \
     SELECT count(*) FROM old";

/// Where [`GRANT`] returns whether there was room, behind a task's columns and its place.
const HAD_ROOM: usize = row::AFTER_TASK + 1;

fn lane(db: &mut Db<'_>, row: &Row) -> Outcome<Lane> {
    Ok(Lane::new(LaneId(row::value(row, 0)?), db.lane(row, 0, 1)?, row::number(row, 4)?))
}

fn leases(row: &Row) -> Outcome<Vec<LeaseRef>> {
    let (ids, epochs): (Vec<i64>, Vec<i64>) = (row::value(row, 0)?, row::value(row, 1)?);
    Ok(ids.into_iter().zip(epochs).map(|(id, epoch)| LeaseRef::new(TaskId(id), epoch)).collect())
}

impl Db<'_> {
    pub(super) fn survey(&mut self, query: &SurveyQuery) -> Outcome<Survey> {
        let request = query.request.as_ref().map(|request| request.as_str().to_owned());
        let promote = match query.promote {
            Some(promote) => {
                ask!(promote::PROMOTE, promote.now.as_micros(), request.clone(), clamp(promote.limit))
            }
            None => ask!("SELECT 0::bigint"),
        };
        let pools = match query.pools {
            WhichPools::All => ask!(pool::ALL_POOLS),
            WhichPools::Named => ask!(NAMED_POOLS),
        };
        let [granted, promoted, lanes, pools, limits, next_due] = self.unticketed([
            ask!(REQUEST, request),
            promote,
            ask!(READY_LANES),
            pools,
            ask!(NAMED_LIMITS),
            ask!(NEXT_DUE),
        ])?;
        let mut survey = Survey {
            granted: granted.first().map(leases).transpose()?,
            next_due: next_due
                .first()
                .map(|row| row::value(row, 0).map(Timestamp::from_micros))
                .transpose()?,
            ..Survey::default()
        };
        if survey.granted.is_none() {
            survey.promoted = row::whole(first(&promoted)?, 0)?;
            survey.lanes = lanes.iter().map(|row| lane(self, row)).collect::<Outcome<_>>()?;
            survey.pools = pools.iter().map(pool::pool).collect::<Outcome<_>>()?;
            survey.limits = limits.iter().map(pool::limit).collect::<Outcome<_>>()?;
            survey.pools.sort_unstable_by(|a, b| a.spec.name.cmp(&b.spec.name));
            survey.limits.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        }
        Ok(survey)
    }

    pub(super) fn candidates(&mut self, pages: &[LanePage]) -> Outcome<Vec<Candidate>> {
        if pages.is_empty() {
            return Ok(Vec::new());
        }
        // No task stands before this place, or in it.
        let begin = (i64::MIN, i64::MIN, i64::MIN, i64::MIN);
        let place = |after: OrderKey| {
            (after.rank, after.logical_date.as_micros(), row::map_index_value(after.map_index), after.id.0)
        };
        let after: Vec<_> = pages.iter().map(|page| page.after.map_or(begin, place)).collect();
        let statement = ask!(
            CANDIDATES,
            pages.iter().map(|page| page.lane.0).collect::<Vec<_>>(),
            after.iter().map(|after| after.0).collect::<Vec<_>>(),
            after.iter().map(|after| after.1).collect::<Vec<_>>(),
            after.iter().map(|after| after.2).collect::<Vec<_>>(),
            after.iter().map(|after| after.3).collect::<Vec<_>>(),
            pages.iter().map(|page| clamp(page.limit)).collect::<Vec<_>>(),
        );
        let mut found = Vec::new();
        for row in self.one(statement)? {
            let order = OrderKey::new(
                row::value(&row, 1)?,
                row::instant(&row, 2)?,
                row::map_index(&row, 3)?,
                TaskId(row::value(&row, 4)?),
            );
            let place = row::place(&row, 6)?;
            let candidate = Candidate::new(LaneId(row::value(&row, 0)?), order);
            found.push(match pages.get(place) {
                Some(page) if page.with_ready_at => (place, candidate.ready_at(row::instant(&row, 5)?)),
                _ => (place, candidate),
            });
        }
        found.sort_unstable_by_key(|(place, candidate)| (*place, candidate.order));
        Ok(found.into_iter().map(|(_, candidate)| candidate).collect())
    }

    pub(super) fn grant_if_open(&mut self, batch: &GrantBatch<'_>) -> Outcome<Granted> {
        let mut seen = HashSet::with_capacity(batch.tasks.len());
        let ids: Vec<i64> = batch.tasks.iter().filter(|id| seen.insert(**id)).map(|id| id.0).collect();
        let place: HashMap<i64, usize> = ids.iter().enumerate().map(|(at, id)| (*id, at)).collect();
        let request = batch.request.map(|request| request.as_str().to_owned());
        let (expires_at, now) = (batch.expires_at.as_micros(), batch.now.as_micros());
        let replaces = batch.replaces.map(|request| request.as_str().to_owned());
        let (before, limit, most) = match batch.forget {
            Some(forget) => (forget.before.as_micros(), clamp(forget.limit), forget.most.map(clamp)),
            None => (i64::MIN, 0, None),
        };
        let statements: [Statement; 2] = [
            ask!(GRANT, ids, batch.holder.as_str(), expires_at, now, request, replaces),
            ask!(FORGET_REQUESTS, before, limit, most),
        ];
        let [tasks, forgotten] = self.all(statements)?;
        let mut granted = tasks.iter().map(|row| row::task(self, row)).collect::<Outcome<Vec<_>>>()?;
        granted.sort_unstable_by_key(|task| place.get(&task.id.0));
        let had_room = tasks.first().map_or(Ok(true), |row| row::value(row, HAD_ROOM))?;
        Ok(Granted::new(granted, had_room, row::whole(first(&forgotten)?, 0)?))
    }
}
