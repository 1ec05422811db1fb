//! Which holders serve which queues, and the tasks in queues.

use std::collections::BTreeMap;

use super::super::error::Outcome;
use super::pool::SENSING_SLOTS;
use super::{Db, row};
use crate::admission::{QueueRecord, Serving};
use crate::id::QueueName;
use crate::store::sql::records;
use crate::time::{Timestamp, duration_micros};

const PUT_SERVING: &str = "INSERT INTO sm_serving (holder, queues, announced_at, lease, until) VALUES (?1, ?2, ?3, ?4, ?5) \
     ON CONFLICT (holder, queues) DO UPDATE \
     SET announced_at = excluded.announced_at, lease = excluded.lease, until = excluded.until";
pub(super) const FORGET_SERVING: &str = "DELETE FROM sm_serving WHERE (holder, queues) IN ( \
     SELECT holder, queues FROM sm_serving WHERE until <= ?1 AND (holder, queues) <> (?2, ?3) \
     ORDER BY until, holder, queues LIMIT 64)";
const SERVING: &str = "SELECT holder, queues, announced_at, lease FROM sm_serving";
const TASKS: &str = "SELECT queue, sum(ready), sum(tasks) FROM sm_lane WHERE tasks > 0 GROUP BY queue";
pub(super) const LEASES: &str = "SELECT lane, count(*) FROM sm_task INDEXED BY sm_task_lease \
     WHERE expires_at IS NOT NULL AND state IN (1, 2) GROUP BY lane";

impl Db<'_> {
    pub(super) fn put_serving(&mut self, serving: &Serving, forget: Timestamp) -> Outcome<()> {
        let holder = serving.holder.as_str();
        let queues = serde_json::to_string(&serving.queues)?;
        let (announced_at, lease) = (serving.announced_at.as_micros(), duration_micros(serving.lease));
        let until = serving.until().as_micros();
        self.prepare(PUT_SERVING)?.execute((holder, &queues, announced_at, lease, until))?;
        self.prepare(FORGET_SERVING)?.execute((forget.as_micros(), holder, queues))?;
        Ok(())
    }

    pub(super) fn serving(&mut self) -> Outcome<Vec<Serving>> {
        let serving: Outcome<_> =
            self.prepare(SERVING)?.query_and_then([], |row| records::serving(row))?.collect();
        serving.map(records::in_order)
    }

    pub(super) fn queues(&mut self) -> Outcome<Vec<QueueRecord>> {
        let mut queues: BTreeMap<QueueName, QueueRecord> = BTreeMap::new();
        let mut statement = self.prepare(TASKS)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let name: QueueName = row::name(row, 0)?;
            let queue = QueueRecord::new(name.clone(), row::number(row, 1)?, row::number(row, 2)?, 0, 0);
            queues.insert(name, queue);
        }
        for lane in self.keeping_lanes()? {
            if let Some(queue) = queues.get_mut(&lane.key.queue) {
                queue.ready += lane.ready;
            }
        }
        for (sql, is_sensing) in [(LEASES, false), (SENSING_SLOTS, true)] {
            let mut statement = self.prepare(sql)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let (name, tasks) = (self.lane(row.get(0)?)?.queue.clone(), row::number(row, 1)?);
                let Some(queue) = queues.get_mut(&name) else { continue };
                queue.waiting = queue.waiting.saturating_sub(tasks);
                *(if is_sensing { &mut queue.sensing } else { &mut queue.leased }) += tasks;
            }
        }
        Ok(queues.into_values().collect())
    }
}
