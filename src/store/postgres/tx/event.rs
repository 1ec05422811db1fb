//! Events: kept until they are acknowledged.

use super::super::error::Outcome;
use super::super::text::escape;
use super::super::wire::ask;
use super::{Db, clamp};
use crate::sensor::{Ending, SensorEvent};
use crate::store::contract::EventNote;
use crate::store::sql::codes::Code;
use crate::store::sql::records;
use crate::time::Timestamp;

/// Into the inbox: an event is found once it has a number.
pub(super) const NOTE: &str = "INSERT INTO sm.event_inbox (no, generation, at, reason, next, value, message) \
     SELECT given.no, given.generation, given.at, given.reason, given.next, given.value, given.message \
     FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::text[]) \
       WITH ORDINALITY given (no, generation, at, reason, next, value, message, place) \
     ORDER BY given.place";
pub(super) const EVENTS: &str = "SELECT event.seq, event.no, event.generation, event.at, event.reason, event.next, \
       event.value, event.message, task.namespace, task.workflow, task.run, task.task, task.map_index \
     FROM (SELECT * FROM sm.event WHERE seq > $1::bigint ORDER BY seq LIMIT $2::bigint) event \
     CROSS JOIN LATERAL (SELECT * FROM sm.task WHERE task.no = event.no OFFSET 0) task";
/// Those that somebody else is acknowledging are passed over.
pub(super) const ACKNOWLEDGE: &str = "WITH \
     gone AS (DELETE FROM sm.event WHERE seq = ANY (ARRAY( \
       SELECT seq FROM sm.event WHERE seq = ANY ($1::bigint[]) FOR UPDATE SKIP LOCKED)) RETURNING 1) \
     SELECT count(*) FROM gone";
pub(super) const FORGET: &str = "WITH \
     old AS MATERIALIZED (SELECT event.seq \
       FROM (SELECT seq, at FROM sm.event WHERE seq > 0 ORDER BY seq LIMIT $2::bigint) first \
       CROSS JOIN LATERAL (SELECT seq FROM sm.event WHERE event.seq = first.seq FOR UPDATE SKIP LOCKED) event \
       WHERE first.at < $1::bigint), \
     gone AS (DELETE FROM sm.event WHERE seq = ANY (ARRAY(SELECT seq FROM old)) RETURNING 1) \
     SELECT count(*) FROM gone";
/// `stands` is where the task stands.
pub(super) const KEPT: &str = "SELECT count(DISTINCT event.no) \
     FROM (SELECT no FROM sm.event WHERE seq > 0 ORDER BY seq LIMIT $2::bigint) event \
     CROSS JOIN LATERAL (SELECT state, ended_at FROM sm.idle WHERE idle.no = event.no OFFSET 0) idle \
     WHERE idle.state >= 6 AND idle.ended_at < $1::bigint";

impl Db<'_> {
    pub(super) fn note_events(&mut self, events: &[EventNote]) -> Outcome<()> {
        let texts = |text: fn(&Ending) -> Option<&String>| -> Vec<Option<String>> {
            events.iter().map(|note| text(&note.ending).map(|text| escape(text).into_owned())).collect()
        };
        let note = ask!(
            NOTE,
            events.iter().map(|note| note.sensor.id.0).collect::<Vec<i64>>(),
            events.iter().map(|note| clamp(note.sensor.generation)).collect::<Vec<i64>>(),
            events.iter().map(|note| note.at.as_micros()).collect::<Vec<i64>>(),
            events.iter().map(|note| note.ending.reason.code()).collect::<Vec<i64>>(),
            events.iter().map(|note| note.ending.to.code()).collect::<Vec<i64>>(),
            texts(|ending| ending.value.as_ref()),
            texts(|ending| ending.message.as_ref()),
        );
        let [attempt, number] = self.numbering(events.len());
        self.all([note, attempt, number]).map(|_| ())
    }

    pub(super) fn events(&mut self, after: u64, limit: usize) -> Outcome<Vec<SensorEvent>> {
        let rows = self.one(ask!(EVENTS, clamp(after), clamp(limit)))?;
        let event = |row| records::event(row, &mut self.names);
        let mut found = rows.iter().map(event).collect::<Outcome<Vec<_>>>()?;
        found.sort_unstable_by_key(|event| event.seq);
        Ok(found)
    }

    pub(super) fn acknowledge_events(&mut self, seqs: &[u64]) -> Outcome<usize> {
        let seqs: Vec<i64> = seqs.iter().filter_map(|seq| i64::try_from(*seq).ok()).collect();
        self.number(ask!(ACKNOWLEDGE, seqs))
    }

    pub(super) fn forget_events(&mut self, before: Timestamp, limit: usize) -> Outcome<usize> {
        self.number(ask!(FORGET, before.as_micros(), clamp(limit)))
    }

    pub(super) fn kept_by_events(&mut self, before: Timestamp, limit: usize) -> Outcome<usize> {
        self.number(ask!(KEPT, before.as_micros(), clamp(limit)))
    }
}
