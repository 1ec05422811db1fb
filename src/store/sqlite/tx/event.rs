//! Events: kept until they are acknowledged.

use rusqlite::{OptionalExtension, Row};

use super::super::error::Outcome;
use super::codes::Code;
use super::{Db, clamp};
use crate::sensor::SensorEvent;
use crate::store::contract::EventNote;
use crate::store::sql::records;
use crate::time::Timestamp;

const NOTE: &str = "INSERT INTO sm_event (seq, no, generation, at, reason, next, value, message) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
pub(super) const EVENTS: &str = "SELECT seq, event.no, generation, at, reason, next, event.value, event.message, \
     namespace, workflow, run, task, map_index \
     FROM sm_event event CROSS JOIN sm_task task ON task.no = event.no \
     WHERE seq > ?1 ORDER BY seq LIMIT ?2";
pub(super) const OLD: &str = "SELECT seq, at < ?1 FROM sm_event WHERE seq > 0 ORDER BY seq LIMIT ?2";
pub(super) const KEPT: &str = "SELECT event.no, task.state >= 6 AND ifnull(task.ended_at < ?1, 0) \
     FROM sm_event event CROSS JOIN sm_task task ON task.no = event.no WHERE seq > 0 ORDER BY seq LIMIT ?2";
pub(super) const ACKNOWLEDGE: &str = "DELETE FROM sm_event WHERE seq = ?1 RETURNING no";
pub(super) const COUNT: &str = "UPDATE sm_task SET events = events + ?2 WHERE no = ?1";

impl Db<'_> {
    pub(super) fn note_events(&mut self, events: &[EventNote]) -> Outcome<()> {
        if events.is_empty() {
            return Ok(());
        }
        let mut seq = self.counter("event")?;
        let (mut statement, mut count) = (self.prepare(NOTE)?, self.prepare(COUNT)?);
        for note in events {
            seq += 1;
            statement.execute((
                seq,
                note.sensor.id.0,
                clamp(note.sensor.generation),
                note.at.as_micros(),
                note.ending.reason.code(),
                note.ending.to.code(),
                &note.ending.value,
                &note.ending.message,
            ))?;
            count.execute((note.sensor.id.0, 1))?;
        }
        self.set_counter("event", seq)
    }

    pub(super) fn events(&mut self, after: u64, limit: usize) -> Outcome<Vec<SensorEvent>> {
        let mut statement = self.prepare(EVENTS)?;
        let mut rows = statement.query((clamp(after), clamp(limit)))?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(records::event(row, &mut self.names)?);
        }
        Ok(found)
    }

    pub(super) fn acknowledge_events(&mut self, seqs: &[u64]) -> Outcome<usize> {
        let (mut statement, mut count) = (self.prepare(ACKNOWLEDGE)?, self.prepare(COUNT)?);
        let mut acknowledged = 0;
        for seq in seqs.iter().filter_map(|seq| i64::try_from(*seq).ok()) {
            let id: Option<i64> = statement.query_row([seq], |row| row.get(0)).optional()?;
            if let Some(id) = id {
                count.execute((id, -1))?;
                acknowledged += 1;
            }
        }
        Ok(acknowledged)
    }

    pub(super) fn forget_events(&mut self, before: Timestamp, limit: usize) -> Outcome<usize> {
        let old = self.flagged(OLD, before, limit)?;
        let seqs: Vec<u64> = old.into_iter().filter_map(|seq| u64::try_from(seq).ok()).collect();
        self.acknowledge_events(&seqs)
    }

    pub(super) fn kept_by_events(&mut self, before: Timestamp, limit: usize) -> Outcome<usize> {
        let mut kept = self.flagged(KEPT, before, limit)?;
        kept.sort_unstable();
        kept.dedup();
        Ok(kept.len())
    }

    /// Returns the first column of the rows whose second column is true.
    fn flagged(&mut self, sql: &'static str, before: Timestamp, limit: usize) -> Outcome<Vec<i64>> {
        let mut statement = self.prepare(sql)?;
        let read = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, bool>(1)?));
        let rows = statement.query_map((before.as_micros(), clamp(limit)), read)?;
        let rows = rows.collect::<Result<Vec<(i64, bool)>, _>>()?;
        Ok(rows.into_iter().filter_map(|(number, is_so)| is_so.then_some(number)).collect())
    }
}
