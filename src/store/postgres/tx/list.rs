//! Walks over tasks, and counts of tasks by state.

use tokio_postgres::Row;

use super::super::error::{Fault, Outcome};
use super::super::wire::{Param, Statement, ask};
use super::{Db, clamp, row};
use crate::lease::TaskId;
use crate::store::contract::{Place, TaskSums, TaskWalk, Walk, Walked};
use crate::store::read_counter;
use crate::store::sql::codes::{from_task_state, mask};
use crate::store::sql::statement::{one_line, statement};
use crate::task::{TaskQuery, TaskState};

/// Builds the two statements of a walk: one returns every task on it, the other one filters. Each begins with
/// `seen`. Its columns are a task's number and a place: `lane`, `a` to `d` and `t` to `v`.
macro_rules! walk {
    ($($seen:expr),+) => {{
        const SEEN: &str = one_line!(concat!($($seen),+), false, []);
        [statement!("list/all.sql", seen = SEEN), statement!("list/filtered.sql", seen = SEEN)]
    }};
}

/// The columns of places that a walk does not use.
macro_rules! unused {
    (lane) => {
        "NULL::uuid AS lane"
    };
    (texts) => {
        "NULL::text AS t, NULL::text AS u, NULL::text AS v"
    };
    (abcd) => {
        "NULL::bigint AS a, NULL::bigint AS b, NULL::bigint AS c, NULL::bigint AS d"
    };
    (bcd) => {
        "NULL::bigint AS b, NULL::bigint AS c, NULL::bigint AS d"
    };
}

/// The parameters of all walks:
///
/// * $1: the most tasks to find; $2: the most tasks to read.
/// * $3: the states, as bits.
/// * $4 to $13: the filters, namely namespace, workflow, run, queue, pool, limit key, holder, due since, due
///   before and ended since.
/// * $14 to $22: the place, namely the lane ($14), a to d ($15 to $18), the number ($19) and t to v ($20 to
///   $22).
pub(super) const NUMBERS: [&str; 2] = walk!(
    "SELECT no, ",
    unused!(lane),
    ", ",
    unused!(abcd),
    ", ",
    unused!(texts),
    "
  FROM sm.task WHERE no < $19::bigint ORDER BY no DESC LIMIT $2::bigint"
);

macro_rules! keys {
    ($conditions:literal, $order:literal) => {
        walk!(
            "SELECT no, ",
            unused!(lane),
            ", map_index AS a, ",
            unused!(bcd),
            ", workflow AS t, run AS u, task AS v
  FROM sm.task WHERE namespace = $4::text AND ",
            $conditions,
            "
  ORDER BY ",
            $order,
            " LIMIT $2::bigint"
        )
    };
}
pub(super) const KEYS_OF_NAMESPACE: [&str; 2] = keys!(
    "(workflow, run, task, map_index) > ($20::text, $21::text, $22::text, $15::bigint)",
    "workflow, run, task, map_index"
);
pub(super) const KEYS_OF_WORKFLOW: [&str; 2] = keys!(
    "workflow = $5::text AND (run, task, map_index) > ($21::text, $22::text, $15::bigint)",
    "run, task, map_index"
);
pub(super) const KEYS_OF_RUN: [&str; 2] = keys!(
    "workflow = $5::text AND run = $6::text AND (task, map_index) > ($22::text, $15::bigint)",
    "task, map_index"
);

pub(super) const DUE: [&str; 2] = walk!(
    "SELECT no, ", unused!(lane), ", due AS a, rank AS b, logical_date AS c, map_index AS d, ", unused!(texts), "
  FROM sm.idle
  WHERE due IS NOT NULL
    AND (due, rank, logical_date, map_index, no) > ($15::bigint, $16::bigint, $17::bigint, $18::bigint, $19::bigint)
    AND due < coalesce($12::bigint, 9223372036854775807)
  ORDER BY due, rank, logical_date, map_index, no LIMIT $2::bigint"
);

/// The lanes that match the filters, from the place's lane on. `is_first` marks the place's own lane, where the
/// walk continues after the place.
macro_rules! wanted_lanes {
    () => {
        "SELECT digest, digest = $14::text::uuid AS is_first FROM sm.lane_now
    WHERE tasks > 0 AND digest >= $14::text::uuid
      AND ($7::text IS NULL OR coalesce(queue, 'default') = $7::text)
      AND ($8::text IS NULL OR EXISTS (SELECT FROM sm._pools_of(pool, slots, limits) part WHERE part.pool = $8::text))
      AND ($9::text IS NULL OR EXISTS (SELECT FROM sm._carried(limits) carried WHERE carried.key = $9::text))
    ORDER BY digest"
    };
}

/// The tasks of a state in `idle`, by lane: one walk over all lanes, and one over the lanes that match the
/// filters. A single lane is written as a range of lanes. With a condition on the number alone, the server
/// would choose the primary key.
macro_rules! by_lane {
    ($state:literal) => {
        [
            walk!(
                "SELECT no, lane, ",
                unused!(abcd),
                ", ",
                unused!(texts),
                "
  FROM sm.idle WHERE state = ",
                $state,
                " AND (lane, no) > ($14::text::uuid, $19::bigint)
  ORDER BY lane, no LIMIT $2::bigint"
            ),
            walk!(
                "SELECT idle.no, lanes.digest AS lane, ",
                unused!(abcd),
                ", ",
                unused!(texts),
                "
  FROM (",
                wanted_lanes!(),
                ") lanes
  CROSS JOIN LATERAL (
    SELECT no FROM sm.idle WHERE state = ",
                $state,
                " AND (lane, no) > (lanes.digest, CASE WHEN lanes.is_first THEN $19::bigint ELSE 0 END)
      AND (lane, no) <= (lanes.digest, 9223372036854775807)
    ORDER BY lane, no LIMIT $2::bigint OFFSET 0) idle
  LIMIT $2::bigint"
            ),
        ]
    };
}
pub(super) const RETRIES: [[&str; 2]; 2] = by_lane!("3");
pub(super) const SENSING: [[&str; 2]; 2] = by_lane!("4");
pub(super) const LATER: [[&str; 2]; 2] = by_lane!("5");

pub(super) const READY: [[&str; 2]; 2] = [
    walk!(
        "SELECT no, lane, rank AS a, logical_date AS b, map_index AS c, NULL::bigint AS d, ", unused!(texts), "
  FROM sm.ready
  WHERE (lane, rank, logical_date, map_index, no) > ($14::text::uuid, $15::bigint, $16::bigint, $17::bigint, $19::bigint)
  ORDER BY lane, rank, logical_date, map_index, no LIMIT $2::bigint"
    ),
    walk!(
        "SELECT ready.no, lanes.digest AS lane, ready.rank AS a, ready.logical_date AS b, ready.map_index AS c,
    NULL::bigint AS d, ", unused!(texts), "
  FROM (", wanted_lanes!(), ") lanes
  CROSS JOIN LATERAL (
    SELECT rank, logical_date, map_index, no FROM sm.ready WHERE ready.lane = lanes.digest
      AND (rank, logical_date, map_index, no) > (
        CASE WHEN lanes.is_first THEN $15::bigint ELSE -9223372036854775808 END,
        CASE WHEN lanes.is_first THEN $16::bigint ELSE -9223372036854775808 END,
        CASE WHEN lanes.is_first THEN $17::bigint ELSE -9223372036854775808 END,
        CASE WHEN lanes.is_first THEN $19::bigint ELSE -9223372036854775808 END)
    ORDER BY rank, logical_date, map_index, no LIMIT $2::bigint OFFSET 0) ready
  LIMIT $2::bigint"
    ),
];

pub(super) const LEASES: [&str; 2] = walk!(
    "SELECT no, ",
    unused!(lane),
    ", ",
    unused!(abcd),
    ", holder AS t, NULL::text AS u, NULL::text AS v
  FROM sm.lease WHERE holder >= '' AND (holder, no) > ($20::text, $19::bigint) ORDER BY holder, no LIMIT $2::bigint"
);
/// One holder, written as a range of holders for the same reason as in `by_lane`.
pub(super) const LEASES_OF: [&str; 2] = walk!(
    "SELECT no, ",
    unused!(lane),
    ", ",
    unused!(abcd),
    ", holder AS t, NULL::text AS u, NULL::text AS v
  FROM sm.lease WHERE holder >= '' AND (holder, no) > ($10::text, $19::bigint)
    AND (holder, no) <= ($10::text, 9223372036854775807) ORDER BY holder, no LIMIT $2::bigint"
);

/// The tasks that ended in one state, if the query asks for that state. They are ordered here. Otherwise the
/// server would read and sort all of them.
macro_rules! ends_in {
    ($code:literal) => {
        concat!(
            "(SELECT no, ended_at FROM sm.idle WHERE state >= 6 AND state = ",
            $code,
            " AND ($3::bigint >> ",
            $code,
            ") & 1 = 1 AND (ended_at, no) < ($15::bigint, $19::bigint) \
            AND ended_at >= coalesce($13::bigint, -9223372036854775808) \
            ORDER BY ended_at DESC, no DESC LIMIT $2::bigint)"
        )
    };
}

/// The server merges the states, each in the order of its range of the index.
pub(super) const ENDS: [&str; 2] = walk!(
    "SELECT no, ",
    unused!(lane),
    ", ended_at AS a, ",
    unused!(bcd),
    ", ",
    unused!(texts),
    " FROM (",
    ends_in!(6),
    " UNION ALL ",
    ends_in!(7),
    " UNION ALL ",
    ends_in!(8),
    " UNION ALL ",
    ends_in!(9),
    ") ended ORDER BY ended_at DESC, no DESC LIMIT $2::bigint"
);

pub(super) const COUNT: &str = statement!("list/count.sql");

/// The lowest digest.
const FIRST_LANE: &str = "00000000-0000-0000-0000-000000000000";

/// The place where a statement begins.
struct From {
    lane: String,
    numbers: [i64; 5],
    texts: [String; 3],
}

impl From {
    /// Begins after these numbers and texts. `numbers` ends with a task's number.
    fn behind(numbers: [i64; 5], texts: [&str; 3]) -> Self {
        Self { lane: FIRST_LANE.into(), numbers, texts: texts.map(str::to_owned) }
    }

    fn in_lane(numbers: [i64; 5], [lane]: &[String; 1]) -> Outcome<Self> {
        let is_digest = lane.len() == FIRST_LANE.len()
            && lane.bytes().zip(FIRST_LANE.bytes()).all(|(byte, first)| match first {
                b'-' => byte == b'-',
                _ => byte.is_ascii_hexdigit(),
            });
        if !is_digest {
            let text = "a list of tasks cannot go on here: this place is of another kind of store";
            let error = crate::error::StoreError::new(crate::error::StoreErrorKind::Backend, text);
            return Err(Fault::Refused(error));
        }
        Ok(Self { lane: lane.clone(), ..Self::behind(numbers, [""; 3]) })
    }
}

const MIN: i64 = i64::MIN;
const MAX: i64 = i64::MAX;

impl Db<'_> {
    pub(super) fn walk_tasks(&mut self, walk: &TaskWalk<'_>) -> Outcome<Walked> {
        let (statements, from) = begin(walk)?;
        let [exact, filtered] = statements;
        let sql = if walk.query.is_exact(walk.walk) { exact } else { filtered };
        let rows = self.one(Statement { sql, params: params(walk, from) })?;
        read_counter::rows(rows.len());
        let mut found = Vec::with_capacity(rows.len());
        for row in &rows {
            if row::value(row, 1)? {
                found.push(TaskId(row::value(row, 0)?));
            }
        }
        // The last row shows whether the statement read as much as it may. It is returned for that purpose even
        // if it does not match.
        let is_over = match rows.last() {
            None => true,
            Some(last) => found.len() < walk.most && row::whole(last, 2)? < walk.most_read,
        };
        let last = rows.last().filter(|_| !is_over);
        Ok(Walked::new(found, last.map(|row| place(walk.walk, row)).transpose()?))
    }

    pub(super) fn count_tasks(&mut self, cap: usize) -> Outcome<TaskSums> {
        let mut sums = TaskSums::default();
        for row in &self.one(ask!(COUNT, clamp(cap.saturating_add(1))))? {
            let count = row::number(row, 1)?;
            match row::value::<i64>(row, 0)? {
                _ if count == 0 => {}
                -1 => sums.open = count,
                -2 => sums.ready = count,
                code => sums.counted.push((from_task_state(code)?, count)),
            }
        }
        Ok(sums)
    }
}

/// Returns the statements of a walk, and where they begin.
fn begin(walk: &TaskWalk<'_>) -> Outcome<([&'static str; 2], From)> {
    let query = walk.query;
    let lanes = usize::from(query.asks_for_lanes());
    Ok(match walk.walk {
        Walk::Numbers => {
            let no = place_of::<1, 0>(walk)?.map_or(MAX, |([no], _)| no);
            (NUMBERS, From::behind([0, 0, 0, 0, no], [""; 3]))
        }
        Walk::Keys => {
            let statement = match (&query.workflow, &query.run) {
                (Some(_), Some(_)) => KEYS_OF_RUN,
                (Some(_), None) => KEYS_OF_WORKFLOW,
                (None, _) => KEYS_OF_NAMESPACE,
            };
            let from = match place_of::<1, 3>(walk)? {
                Some(([index], names)) => {
                    From::behind([index, 0, 0, 0, 0], names.each_ref().map(String::as_str))
                }
                None => From::behind([MIN, 0, 0, 0, 0], [""; 3]),
            };
            (statement, from)
        }
        Walk::Due => {
            let since = query.due_since.map_or(MIN, |due| due.as_micros());
            let numbers = place_of::<5, 0>(walk)?.map_or([since, MIN, MIN, MIN, MIN], |(numbers, _)| numbers);
            (DUE, From::behind(numbers, [""; 3]))
        }
        Walk::Later(TaskState::UpForRetry) => (RETRIES[lanes], in_lanes(walk)?),
        Walk::Later(_) => (LATER[lanes], in_lanes(walk)?),
        Walk::Sensing => (SENSING[lanes], in_lanes(walk)?),
        Walk::Ready => {
            let from = match place_of::<4, 1>(walk)? {
                Some(([rank, date, index, no], lane)) => From::in_lane([rank, date, index, 0, no], lane)?,
                None => From::behind([MIN; 5], [""; 3]),
            };
            (READY[lanes], from)
        }
        Walk::Leases => {
            let (no, holder) = match place_of::<1, 1>(walk)? {
                Some(([no], [holder])) => (no, holder.as_str()),
                None => (MIN, ""),
            };
            let statement = if query.holder.is_some() { LEASES_OF } else { LEASES };
            (statement, From::behind([0, 0, 0, 0, no], [holder, "", ""]))
        }
        Walk::Ends => {
            let [at, no] = place_of::<2, 0>(walk)?.map_or([MAX; 2], |(numbers, _)| numbers);
            (ENDS, From::behind([at, 0, 0, 0, no], [""; 3]))
        }
    })
}

fn in_lanes(walk: &TaskWalk<'_>) -> Outcome<From> {
    match place_of::<1, 1>(walk)? {
        Some(([no], lane)) => From::in_lane([0, 0, 0, 0, no], lane),
        None => Ok(From::behind([0, 0, 0, 0, MIN], [""; 3])),
    }
}

fn place_of<'a, const N: usize, const T: usize>(
    walk: &TaskWalk<'a>,
) -> Outcome<Option<([i64; N], &'a [String; T])>> {
    walk.place().map_err(Fault::Refused)
}

fn params(walk: &TaskWalk<'_>, from: From) -> Vec<Param> {
    let TaskQuery { namespace, workflow, run, queue, pool, limit_key, holder, .. } = walk.query;
    let TaskQuery { due_since, due_before, ended_since, .. } = walk.query;
    let text = |name: Option<&str>| Param::from(name.map(str::to_owned));
    let states = walk.query.possible().fold(0, |bits, state| bits | mask(state));
    let [a, b, c, d, no] = from.numbers;
    let [t, u, v] = from.texts;
    let mut params = vec![clamp(walk.most).into(), clamp(walk.most_read).into(), states.into()];
    params.extend([
        text(namespace.as_ref().map(AsRef::as_ref)),
        text(workflow.as_ref().map(AsRef::as_ref)),
        text(run.as_ref().map(AsRef::as_ref)),
        text(queue.as_ref().map(AsRef::as_ref)),
        text(pool.as_ref().map(AsRef::as_ref)),
        text(limit_key.as_ref().map(AsRef::as_ref)),
        text(holder.as_ref().map(AsRef::as_ref)),
    ]);
    params.extend([due_since, due_before, ended_since].map(|at| Param::from(at.map(|at| at.as_micros()))));
    params.push(from.lane.into());
    params.extend([a, b, c, d, no].map(Param::from));
    params.extend([t, u, v].map(Param::from));
    params
}

/// Returns the place after a row's task. The row contains its number, whether it is wanted, its position, and the
/// columns of `seen`.
fn place(walk: Walk, row: &Row) -> Outcome<Place> {
    let lane = || row::value::<Option<String>>(row, 3).map(Option::unwrap_or_default);
    let number = |at| row::value::<Option<i64>>(row, at).map(Option::unwrap_or_default);
    let text = |at| row::value::<Option<String>>(row, at).map(Option::unwrap_or_default);
    let (no, a, b, c, d) = (number(0)?, number(4)?, number(5)?, number(6)?, number(7)?);
    Ok(match walk {
        Walk::Numbers => Place::new([no], []),
        Walk::Keys => Place::new([a], [text(8)?, text(9)?, text(10)?]),
        Walk::Due => Place::new([a, b, c, d, no], []),
        Walk::Later(_) | Walk::Sensing => Place::new([no], [lane()?]),
        Walk::Ready => Place::new([a, b, c, no], [lane()?]),
        Walk::Leases => Place::new([no], [text(8)?]),
        Walk::Ends => Place::new([a, no], []),
    })
}
