//! What happens to a task once it was granted.

use std::collections::{HashMap, HashSet};

use tokio_postgres::Row;

use super::super::error::{Fault, Outcome};
use super::super::text::escape;
use super::super::wire::ask;
use super::{Db, clamp, row};
use crate::error::{StoreError, StoreErrorKind};
use crate::lease::{LeaseRef, Renewal};
use crate::store::contract::{Move, Started};
use crate::store::sql::codes::{Code, mask, task_state};
use crate::task::TaskRecord;
use crate::time::Timestamp;

pub(super) const START: &str = concat!(
    "UPDATE sm.task SET state = 2, started_at = ",
    row::recorded_at!("$3::bigint"),
    ", first_started_at = coalesce(first_started_at, ",
    row::recorded_at!("$3::bigint"),
    ") FROM unnest($1::bigint[], $2::bigint[]) given (no, epoch) \
     WHERE task.no = given.no AND task.epoch = given.epoch AND state = 1 \
     RETURNING task.no, task.epoch, task.attempt_runs"
);
pub(super) const RENEW: &str = "UPDATE sm.task SET expires_at = greatest(expires_at, $3::bigint) \
     FROM unnest($1::bigint[], $2::bigint[]) given (no, epoch) \
     WHERE task.no = given.no AND task.epoch = given.epoch AND holder IS NOT NULL RETURNING task.no, task.epoch";
/// Of several moves of one task the first counts that its state allows. What a task held goes back to its
/// pool, unless it keeps it; a lease that ends no longer counts against limits.
pub(super) const MOVE: &str = "WITH hit AS MATERIALIZED (SELECT DISTINCT ON (given.no) given.*, task.lane, task.was, task.held \
       FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], \
         $8::bigint[], $9::bigint[], $10::bigint[], $11::text[], $12::text[]) \
       WITH ORDINALITY given (no, epoch, allowed, state, due, keeps, forgive, lost, ended_at, finished, message, value, place) \
       CROSS JOIN LATERAL (SELECT lane, state AS was, held_slots AS held FROM sm.task \
         WHERE task.no = given.no AND task.epoch = given.epoch \
         AND (given.allowed >> state::int) & 1 = 1 OFFSET 0) task \
       ORDER BY given.no, place), \
     moved AS (UPDATE sm.task SET state = hit.state, due = hit.due, held_slots = hit.held * hit.keeps, \
         ready_at = coalesce(greatest(hit.due, hit.ended_at), task.ready_at), \
         forgiven = least(task.forgiven + hit.forgive, 4294967295), lost = coalesce(hit.lost, task.lost), \
         ended_at = coalesce(hit.ended_at, task.ended_at), message = hit.message, value = hit.value, \
         finished = hit.finished, holder = NULL, expires_at = NULL \
       FROM hit WHERE task.no = hit.no), \
     changed AS MATERIALIZED (SELECT sums.*, lane.pool, lane.limits \
       FROM (SELECT lane, (count(*) FILTER (WHERE state = 0)) - (count(*) FILTER (WHERE was = 0)) AS ready, \
               sum(held * (1 - keeps)) AS slots, count(*) FILTER (WHERE was IN (1, 2)) AS leases \
             FROM hit GROUP BY lane) sums \
       CROSS JOIN LATERAL (SELECT pool, limits FROM sm.lane WHERE lane.no = sums.lane OFFSET 0) lane), \
     counted AS (UPDATE sm.lane SET ready = lane.ready + changed.ready \
       FROM changed WHERE lane.no = changed.lane AND changed.ready <> 0), \
     freed AS (UPDATE sm.pool SET used = used - back.slots \
       FROM (SELECT pool, sum(slots)::bigint AS slots FROM changed WHERE slots > 0 GROUP BY pool) back \
       WHERE pool.name = back.pool), \
     released AS (UPDATE sm.task_limit SET used = used - back.leases \
       FROM (SELECT carried.key, sum(leases)::bigint AS leases FROM changed \
             CROSS JOIN LATERAL json_array_elements_text(changed.limits::json) carried (key) \
             WHERE leases > 0 GROUP BY carried.key) back \
       WHERE task_limit.key = back.key) \
     SELECT place FROM hit";
pub(super) const EXPIRED: &str = concat!(
    "SELECT ",
    row::task_columns!(),
    " FROM (SELECT * FROM sm.task WHERE expires_at IS NOT NULL AND expires_at <= $1::bigint \
        ORDER BY expires_at, no LIMIT $2::bigint) task \
     CROSS JOIN LATERAL (SELECT * FROM sm.lane WHERE lane.no = task.lane OFFSET 0) lane"
);
pub(super) const NEXT_EXPIRY: &str =
    "SELECT expires_at FROM sm.task WHERE expires_at IS NOT NULL ORDER BY expires_at, no LIMIT 1";

impl Db<'_> {
    pub(super) fn start_if_queued(
        &mut self,
        leases: &[LeaseRef],
        now: Timestamp,
    ) -> Outcome<Vec<Option<Started>>> {
        let mut started = HashMap::with_capacity(leases.len());
        for row in self.touch(START, leases, now)? {
            let lease: (i64, i64) = (row::value(&row, 0)?, row::value(&row, 1)?);
            started.insert(lease, Started::new(row::code(&row, 2)?));
        }
        Ok(leases.iter().map(|lease| started.remove(&(lease.id.0, lease.epoch))).collect())
    }

    pub(super) fn renew_if_leased(
        &mut self,
        leases: &[LeaseRef],
        expires_at: Timestamp,
    ) -> Outcome<Vec<Renewal>> {
        let rows = self.touch(RENEW, leases, expires_at)?;
        let renewed: HashSet<(i64, i64)> =
            rows.iter().map(|row| Ok((row::value(row, 0)?, row::value(row, 1)?))).collect::<Outcome<_>>()?;
        let renewal = |lease: &LeaseRef| match renewed.contains(&(lease.id.0, lease.epoch)) {
            true => Renewal::Renewed,
            false => Renewal::Lost,
        };
        Ok(leases.iter().map(renewal).collect())
    }

    fn touch(&mut self, sql: &'static str, leases: &[LeaseRef], at: Timestamp) -> Outcome<Vec<Row>> {
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        let (ids, epochs): (Vec<i64>, Vec<i64>) =
            leases.iter().map(|lease| (lease.id.0, lease.epoch)).unzip();
        self.one(ask!(sql, ids, epochs, at.as_micros()))
    }

    pub(super) fn move_if(&mut self, moves: &[Move]) -> Outcome<Vec<bool>> {
        if let Some(wrong) = moves.iter().find(|change| change.to.is_leased()) {
            let text = format!(
                "task number {} cannot be moved to {}: grant it, then start it",
                wrong.task.id.0, wrong.to
            );
            return Err(Fault::Refused(StoreError::new(StoreErrorKind::Backend, text)));
        }
        let mut answers = vec![false; moves.len()];
        if moves.is_empty() {
            return Ok(answers);
        }
        let each = |part: fn(&Move) -> i64| moves.iter().map(part).collect::<Vec<i64>>();
        let instants = |part: fn(&Move) -> Option<Timestamp>| {
            moves.iter().map(|change| part(change).map(Timestamp::as_micros)).collect::<Vec<Option<i64>>>()
        };
        let texts = |part: fn(&Move) -> &Option<String>| {
            let stored = |change| part(change).as_deref().map(|text| escape(text).into_owned());
            moves.iter().map(stored).collect::<Vec<Option<String>>>()
        };
        let statement = ask!(
            MOVE,
            each(|change| change.task.id.0),
            each(|change| change.task.epoch),
            each(|change| mask(change.from)),
            each(|change| task_state(change.to, change.due)),
            instants(|change| change.due),
            each(|change| change.keeps_slots.into()),
            each(|change| change.forgive.into()),
            moves.iter().map(|change| change.lost.map(i64::from)).collect::<Vec<Option<i64>>>(),
            instants(|change| change.ended_at),
            moves.iter().map(|change| change.finished.then(|| change.to.code())).collect::<Vec<_>>(),
            texts(|change| &change.message),
            texts(|change| &change.value),
        );
        for row in self.one(statement)? {
            if let Some(answer) = answers.get_mut(row::place(&row, 0)?) {
                *answer = true;
            }
        }
        Ok(answers)
    }

    pub(super) fn hold_expired(&mut self, now: Timestamp, limit: usize) -> Outcome<Vec<TaskRecord>> {
        let rows = self.one(ask!(EXPIRED, now.as_micros(), clamp(limit)))?;
        let mut found = rows.iter().map(|row| row::task(self, row)).collect::<Outcome<Vec<TaskRecord>>>()?;
        found.sort_by_key(|task| (task.lease.as_ref().map(|lease| lease.expires_at), task.id));
        Ok(found)
    }

    pub(super) fn next_expiry(&mut self) -> Outcome<Option<Timestamp>> {
        let rows = self.one(ask!(NEXT_EXPIRY))?;
        rows.first().map(|row| row::value(row, 0).map(Timestamp::from_micros)).transpose()
    }
}
