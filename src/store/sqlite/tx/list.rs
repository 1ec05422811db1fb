//! Walks the tasks, and counts them by state. A continued walk is read in parts, because SQLite does not seek
//! to a rowid within a row value: first the rows that equal the place except for the number, then the rows
//! after it.

use std::collections::VecDeque;

use rusqlite::{Params, Row, params};

use super::super::error::{Fault, Outcome};
use super::row::ReadRow;
use super::{Db, clamp, row};
use crate::lease::TaskId;
use crate::store::contract::{Place, TaskSums, TaskWalk, Walk, Walked};
use crate::store::read_counter;
use crate::store::sql::codes::{Code, from_task_state};
use crate::task::list::Gathered;
use crate::task::{TaskQuery, TaskState};

/// A statement that reads no text stored after the names of a task.
macro_rules! tasks {
    ($($rest:literal),+) => {
        concat!(
            "SELECT no, state, due, lane, rank, logical_date, map_index, ended_at, holder, namespace, workflow, run, task \
             FROM sm_task ",
            $($rest),+
        )
    };
}

pub(super) const NUMBERS: &str = tasks!("WHERE no < ?1 ORDER BY no DESC");

pub(super) const KEYS_OF_NAMESPACE: &str = tasks!(
    "INDEXED BY sm_task_key WHERE namespace = ?1 AND (workflow, run, task, map_index) > (?2, ?3, ?4, ?5) \
     ORDER BY workflow, run, task, map_index"
);
pub(super) const KEYS_OF_WORKFLOW: &str = tasks!(
    "INDEXED BY sm_task_key WHERE namespace = ?1 AND workflow = ?2 AND (run, task, map_index) > (?3, ?4, ?5) \
     ORDER BY run, task, map_index"
);
pub(super) const KEYS_OF_RUN: &str = tasks!(
    "INDEXED BY sm_task_key WHERE namespace = ?1 AND workflow = ?2 AND run = ?3 AND (task, map_index) > (?4, ?5) \
     ORDER BY task, map_index"
);

pub(super) const DUE_EQUAL: &str = tasks!(
    "INDEXED BY sm_task_due WHERE due = ?1 AND rank = ?2 AND logical_date = ?3 AND map_index = ?4 AND no > ?5 \
     AND due < ?6 ORDER BY no"
);
pub(super) const DUE_BEHIND: &str = tasks!(
    "INDEXED BY sm_task_due WHERE due IS NOT NULL AND (due, rank, logical_date, map_index) > (?1, ?2, ?3, ?4) \
     AND due < ?6 ORDER BY due, rank, logical_date, map_index, no"
);

/// The tasks of a state whose index groups them by lane: those of a lane, and those of the lanes after it.
macro_rules! by_lane {
    ($index:literal, $state:literal) => {
        [
            tasks!(
                "INDEXED BY ",
                $index,
                " WHERE state = ",
                $state,
                " AND lane = ?1 AND no > ?2 ORDER BY no"
            ),
            tasks!("INDEXED BY ", $index, " WHERE state = ", $state, " AND lane > ?1 ORDER BY lane, no"),
        ]
    };
}
pub(super) const RETRIES: [&str; 2] = by_lane!("sm_task_retry", "3");
pub(super) const SENSING: [&str; 2] = by_lane!("sm_task_sensing", "4");
pub(super) const LATER: [&str; 2] = by_lane!("sm_task_later", "5");

pub(super) const READY_EQUAL: &str = tasks!(
    "INDEXED BY sm_task_ready WHERE state = 0 AND lane = ?1 AND rank = ?2 AND logical_date = ?3 AND map_index = ?4 \
     AND no > ?5 ORDER BY no"
);
pub(super) const READY_IN_LANE: &str = tasks!(
    "INDEXED BY sm_task_ready WHERE state = 0 AND lane = ?1 AND (rank, logical_date, map_index) > (?2, ?3, ?4) \
     ORDER BY rank, logical_date, map_index, no"
);
pub(super) const READY_BEHIND: &str = tasks!(
    "INDEXED BY sm_task_ready WHERE state = 0 AND lane > ?1 ORDER BY lane, rank, logical_date, map_index, no"
);

pub(super) const LEASES_OF: &str =
    tasks!("INDEXED BY sm_task_holder WHERE holder = ?1 AND no > ?2 ORDER BY no");
pub(super) const LEASES_BEHIND: &str =
    tasks!("INDEXED BY sm_task_holder WHERE holder > ?1 ORDER BY holder, no");

/// Tasks that ended in one state, latest first: those that ended at an instant, and those that ended before it.
macro_rules! ends {
    ($index:literal, $which:literal) => {
        [
            tasks!(
                "INDEXED BY ",
                $index,
                " WHERE ",
                $which,
                " AND ended_at = ?1 AND no < ?2 AND ended_at >= ?3 \
                ORDER BY no DESC LIMIT ?4"
            ),
            tasks!(
                "INDEXED BY ",
                $index,
                " WHERE ",
                $which,
                " AND ended_at < ?1 AND ended_at >= ?3 \
                ORDER BY ended_at DESC, no DESC LIMIT ?4"
            ),
        ]
    };
}
pub(super) const ENDS: [&str; 2] = ends!("sm_task_ended", "state >= 6 AND state = ?5");

pub(super) const LANES: &str = "SELECT no FROM sm_lane WHERE no >= ?1 AND tasks > 0 ORDER BY no";

const SUMS: &str = "SELECT ifnull(sum(tasks), 0), ifnull(sum(ready), 0) + \
     (SELECT count(*) FROM sm_task INDEXED BY sm_task_keeping WHERE state = 5 AND due IS NULL) FROM sm_lane WHERE tasks > 0";
pub(super) const COUNT_LEASES: &str = "SELECT state, count(*) FROM sm_task INDEXED BY sm_task_lease \
     WHERE expires_at IS NOT NULL AND state IN (1, 2) GROUP BY state";
pub(super) const COUNT_SENSING: &str =
    "SELECT 4, count(*) FROM sm_task INDEXED BY sm_task_sensing WHERE state = 4";
pub(super) const COUNT_RETRIES: &str = "SELECT 3, count(*) FROM \
     (SELECT 1 FROM sm_task INDEXED BY sm_task_retry WHERE state = 3 LIMIT ?1) asked";
pub(super) const COUNT_ENDS: &str = "SELECT ?2, count(*) FROM (SELECT 1 FROM sm_task INDEXED BY sm_task_ended \
     WHERE state >= 6 AND state = ?2 LIMIT ?1) asked";

/// The columns of a task that are read.
#[derive(Debug)]
struct Seen {
    id: TaskId,
    state: TaskState,
    lane: i64,
    order: [i64; 4],
    due: Option<i64>,
    ended_at: Option<i64>,
    holder: Option<String>,
    /// Namespace, workflow, run and task.
    key: [String; 4],
}

impl Seen {
    fn read(row: &Row<'_>) -> Outcome<Self> {
        read_counter::rows(1);
        let text = |at| row.text(at).map(str::to_owned);
        Ok(Self {
            id: TaskId(row.integer(0)?),
            state: from_task_state(row.integer(1)?)?,
            due: row.maybe_integer(2)?,
            lane: row.integer(3)?,
            order: [row.integer(4)?, row.integer(5)?, row.integer(6)?, row.integer(0)?],
            ended_at: row.maybe_integer(7)?,
            holder: row.maybe_text(8)?.map(str::to_owned),
            key: [text(9)?, text(10)?, text(11)?, text(12)?],
        })
    }

    fn place(self, walk: Walk) -> Place {
        let [rank, date, index, no] = self.order;
        let [_, workflow, run, task] = self.key;
        match walk {
            Walk::Numbers => Place::new([no], []),
            Walk::Keys => Place::new([index], [workflow, run, task]),
            Walk::Due => Place::new([self.due.unwrap_or(i64::MIN), rank, date, index, no], []),
            Walk::Ready => Place::new([self.lane, rank, date, index, no], []),
            Walk::Later(_) | Walk::Sensing => Place::new([self.lane, no], []),
            Walk::Leases => Place::new([no], [self.holder.unwrap_or_default()]),
            Walk::Ends => Place::new([self.ended_at.unwrap_or(i64::MIN), no], []),
        }
    }
}

/// What a step has found so far, and where it is full.
struct Step<'a> {
    walk: &'a TaskWalk<'a>,
    gathered: Gathered,
    end: Option<Place>,
}

impl Step<'_> {
    fn is_full(&self) -> bool {
        self.end.is_some()
    }
}

impl Db<'_> {
    pub(super) fn walk_tasks(&mut self, walk: &TaskWalk<'_>) -> Outcome<Walked> {
        let mut step = Step { walk, gathered: Gathered::default(), end: None };
        match walk.walk {
            Walk::Numbers => {
                let no = walk.place::<1, 0>().map_err(Fault::Refused)?.map_or(i64::MAX, |([no], _)| no);
                self.read_on(&mut step, NUMBERS, [no])?;
            }
            Walk::Keys => self.walk_keys(&mut step)?,
            Walk::Due => {
                let since = walk.query.due_since.map_or(i64::MIN, |due| due.as_micros());
                let [due, rank, date, index, no] = walk
                    .place::<5, 0>()
                    .map_err(Fault::Refused)?
                    .map_or([since, i64::MIN, i64::MIN, i64::MIN, i64::MIN], |(place, _)| place);
                let before = walk.query.due_before.map_or(i64::MAX, |due| due.as_micros());
                let place = (due, rank, date, index, no, before);
                self.read_on(&mut step, DUE_EQUAL, place)?;
                self.read_on(&mut step, DUE_BEHIND, place)?;
            }
            Walk::Later(TaskState::UpForRetry) => self.walk_lanes(&mut step, RETRIES)?,
            Walk::Later(_) => self.walk_lanes(&mut step, LATER)?,
            Walk::Sensing => self.walk_lanes(&mut step, SENSING)?,
            Walk::Ready => self.walk_ready(&mut step)?,
            Walk::Leases => {
                let (no, after) = match walk.place::<1, 1>().map_err(Fault::Refused)? {
                    Some(([no], [holder])) => (no, holder.as_str()),
                    None => (i64::MIN, ""),
                };
                match &walk.query.holder {
                    Some(holder) => self.read_on(&mut step, LEASES_OF, (holder.as_str(), no))?,
                    None => {
                        self.read_on(&mut step, LEASES_OF, (after, no))?;
                        self.read_on(&mut step, LEASES_BEHIND, [after])?;
                    }
                }
            }
            Walk::Ends => self.walk_ends(&mut step)?,
        }
        Ok(Walked::new(step.gathered.found, step.end))
    }

    /// Continues with the tasks of a statement, unless the step is full.
    fn read_on(&mut self, step: &mut Step<'_>, sql: &'static str, params: impl Params) -> Outcome<()> {
        if step.is_full() {
            return Ok(());
        }
        let mut statement = self.prepare(sql)?;
        let mut rows = statement.query(params)?;
        while !step.is_full()
            && let Some(row) = rows.next()?
        {
            self.see(step, Seen::read(row)?)?;
        }
        Ok(())
    }

    fn see(&mut self, step: &mut Step<'_>, seen: Seen) -> Outcome<()> {
        let query = step.walk.query;
        let is_wanted = query.is_exact(step.walk.walk) || self.wants(query, &seen)?;
        if step.gathered.is_full_with(step.walk, seen.id, is_wanted) {
            step.end = Some(seen.place(step.walk.walk));
        }
        Ok(())
    }

    /// Does what [`TaskQuery::wants`] does.
    fn wants(&mut self, query: &TaskQuery, seen: &Seen) -> Outcome<bool> {
        let [namespace, workflow, run, _] = &seen.key;
        let is = |asked: Option<&str>, has: &str| asked.is_none_or(|asked| asked == has);
        let holder = seen.holder.as_deref();
        Ok(query.possible().any(|state| state == seen.state)
            && is(query.namespace.as_ref().map(AsRef::as_ref), namespace)
            && is(query.workflow.as_ref().map(AsRef::as_ref), workflow)
            && is(query.run.as_ref().map(AsRef::as_ref), run)
            && query.holder.as_ref().is_none_or(|asked| holder == Some(asked.as_str()))
            && query.due_since.is_none_or(|since| seen.due.is_some_and(|due| due >= since.as_micros()))
            && query.due_before.is_none_or(|before| seen.due.is_some_and(|due| due < before.as_micros()))
            && query.ended_since.is_none_or(|since| seen.ended_at.is_some_and(|at| at >= since.as_micros()))
            && (!query.asks_for_lanes() || query.wants_lane(&*self.lane(seen.lane)?)))
    }

    fn walk_keys(&mut self, step: &mut Step<'_>) -> Outcome<()> {
        let query = step.walk.query;
        let ([index], [workflow, run, task]) = match step.walk.place::<1, 3>().map_err(Fault::Refused)? {
            Some((index, names)) => (index, names.each_ref().map(String::as_str)),
            None => ([i64::MIN], [""; 3]),
        };
        let namespace = query.namespace.as_ref().map_or("", |name| name.as_str());
        match (&query.workflow, &query.run) {
            (Some(of), Some(run)) => {
                self.read_on(step, KEYS_OF_RUN, (namespace, of.as_str(), run.as_str(), task, index))
            }
            (Some(of), None) => {
                self.read_on(step, KEYS_OF_WORKFLOW, (namespace, of.as_str(), run, task, index))
            }
            (None, _) => self.read_on(step, KEYS_OF_NAMESPACE, (namespace, workflow, run, task, index)),
        }
    }

    /// Walks the tasks of one state, lane by lane.
    fn walk_lanes(&mut self, step: &mut Step<'_>, [in_lane, behind]: [&'static str; 2]) -> Outcome<()> {
        let [lane, no] =
            step.walk.place::<2, 0>().map_err(Fault::Refused)?.map_or([i64::MIN; 2], |(place, _)| place);
        if !step.walk.query.asks_for_lanes() {
            self.read_on(step, in_lane, (lane, no))?;
            return self.read_on(step, behind, [lane]);
        }
        for wanted in self.wanted_lanes(step.walk.query, lane)? {
            let no = if wanted == lane { no } else { i64::MIN };
            self.read_on(step, in_lane, (wanted, no))?;
        }
        Ok(())
    }

    fn walk_ready(&mut self, step: &mut Step<'_>) -> Outcome<()> {
        let place = step.walk.place::<5, 0>().map_err(Fault::Refused)?.map(|(place, _)| place);
        let [lane, rank, date, index, no] = place.unwrap_or([i64::MIN; 5]);
        if !step.walk.query.asks_for_lanes() {
            self.read_on(step, READY_EQUAL, (lane, rank, date, index, no))?;
            self.read_on(step, READY_IN_LANE, (lane, rank, date, index))?;
            return self.read_on(step, READY_BEHIND, [lane]);
        }
        for wanted in self.wanted_lanes(step.walk.query, lane)? {
            if wanted == lane {
                self.read_on(step, READY_EQUAL, (lane, rank, date, index, no))?;
                self.read_on(step, READY_IN_LANE, (lane, rank, date, index))?;
            } else {
                self.read_on(step, READY_IN_LANE, (wanted, i64::MIN, i64::MIN, i64::MIN))?;
            }
        }
        Ok(())
    }

    /// Returns the lanes that the query wants, from this one on.
    fn wanted_lanes(&mut self, query: &TaskQuery, from: i64) -> Outcome<Vec<i64>> {
        let mut statement = self.prepare(LANES)?;
        let mut rows = statement.query([from])?;
        let mut wanted = Vec::new();
        while let Some(row) = rows.next()? {
            let no = row.get(0)?;
            if query.wants_lane(&*self.lane(no)?) {
                wanted.push(no);
            }
        }
        Ok(wanted)
    }

    /// Merges the ends of several states. Reads a page of each state at a time: an equal share of the walk's
    /// limit.
    fn walk_ends(&mut self, step: &mut Step<'_>) -> Outcome<()> {
        let walk = step.walk;
        let place = walk.place::<2, 0>().map_err(Fault::Refused)?.map_or([i64::MAX; 2], |(place, _)| place);
        let since = walk.query.ended_since.map_or(i64::MIN, |at| at.as_micros());
        let stream =
            |state: TaskState| Ends { code: state.code(), place, read: VecDeque::new(), is_over: false };
        let states = walk.query.possible().filter(|state| state.is_end());
        let mut streams: Vec<Ends> = states.map(stream).collect();
        let share = walk.most.div_ceil(streams.len().max(1));
        while !step.is_full() {
            for stream in &mut streams {
                if stream.read.is_empty() && !stream.is_over {
                    self.fill(stream, since, share)?;
                }
            }
            let latest = |stream: &Ends| stream.read.front().map(|seen| (seen.ended_at, seen.id));
            let Some(seen) = streams
                .iter_mut()
                .max_by_key(|stream| latest(stream))
                .and_then(|stream| stream.read.pop_front())
            else {
                break;
            };
            self.see(step, seen)?;
        }
        Ok(())
    }

    fn fill(&self, stream: &mut Ends, since: i64, share: usize) -> Outcome<()> {
        for (sql, is_last) in ENDS.into_iter().zip([false, true]) {
            let most = share - stream.read.len();
            if most == 0 {
                break;
            }
            let mut statement = self.prepare(sql)?;
            let [at, no] = stream.place;
            let mut rows = statement.query(params![at, no, since, clamp(most), stream.code])?;
            while let Some(row) = rows.next()? {
                stream.read.push_back(Seen::read(row)?);
            }
            stream.is_over = is_last && stream.read.len() < share;
        }
        if let Some(last) = stream.read.back() {
            stream.place = [last.ended_at.unwrap_or(i64::MIN), last.id.0];
        }
        Ok(())
    }

    pub(super) fn count_tasks(&mut self, cap: usize) -> Outcome<TaskSums> {
        let beyond = clamp(cap.saturating_add(1));
        let mut sums = TaskSums::default();
        [sums.open, sums.ready] = self.two(SUMS, [])?;
        self.count_into(&mut sums, COUNT_LEASES, [])?;
        self.count_into(&mut sums, COUNT_SENSING, [])?;
        self.count_into(&mut sums, COUNT_RETRIES, [beyond])?;
        for state in TaskState::ALL.into_iter().filter(|state| state.is_end()) {
            self.count_into(&mut sums, COUNT_ENDS, (beyond, state.code()))?;
        }
        Ok(sums)
    }

    fn two(&self, sql: &'static str, params: impl Params) -> Outcome<[u64; 2]> {
        let mut statement = self.prepare(sql)?;
        let mut rows = statement.query(params)?;
        let Some(row) = rows.next()? else { return Ok([0; 2]) };
        Ok([row::number(row, 0)?, row::number(row, 1)?])
    }

    fn count_into(&self, sums: &mut TaskSums, sql: &'static str, params: impl Params) -> Outcome<()> {
        let mut statement = self.prepare(sql)?;
        let mut rows = statement.query(params)?;
        while let Some(row) = rows.next()? {
            sums.counted.push((from_task_state(row.integer(0)?)?, row::number(row, 1)?));
        }
        Ok(())
    }
}

/// Tasks that ended in one state.
struct Ends {
    /// The state.
    code: i64,
    /// The place after which to continue.
    place: [i64; 2],
    read: VecDeque<Seen>,
    is_over: bool,
}
