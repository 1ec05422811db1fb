//! The audit compares every counter with the rows that it counts, and every task with the rows that record
//! its state. One statement compares the counters, so that the result is right at every isolation level. It
//! reads the tasks that have not ended. All tasks are read a page at a time, so no statement takes long,
//! however many ended.

pub(super) mod marks;
mod repair;

use super::super::error::{Fault, Outcome};
use super::super::wire::ask;
use super::{Db, first, row};
use crate::lease::TaskId;
use crate::store::Discrepancy;
use crate::store::sql::codes::from_task_state;
use crate::store::sql::statement::statement;
use tokio_postgres::Row;

/// How many tasks one statement reads.
const PAGE: i64 = 5_000;

const COUNTERS: &str = statement!("counters.sql");
const PASSED_OVER: &str = statement!("passed_over.sql");
pub(super) const STRAYS: &str = statement!("strays.sql");
pub(super) const TASK_PAGE: &str = statement!("task_page.sql");
pub(super) const BROKEN: &str = statement!("broken.sql");

/// Describes a counter that [`COUNTERS`] returned.
fn counter(row: &Row) -> Outcome<Discrepancy> {
    let (counted, held) = (row::value(row, 5)?, row::value(row, 6)?);
    Ok(match row::value::<i64>(row, 0)? {
        0 | 1 => Discrepancy::Pool { pool: row::name(row, 1)?, counted, held },
        2 | 3 => Discrepancy::Limit { key: row::name(row, 1)?, counted, held },
        4 => Discrepancy::LimitLanes { key: row::name(row, 1)?, counted, held },
        5 => Discrepancy::Lane { lane: row::lane_key(row, 1)?, counted, held },
        6 => Discrepancy::LaneTasks { lane: row::lane_key(row, 1)?, counted, held },
        7 => Discrepancy::Share { pool: row::name(row, 1)?, share: row::name(row, 3)?, counted, held },
        8 => Discrepancy::ShareLanes { pool: row::name(row, 1)?, share: row::name(row, 3)?, counted, held },
        other => return Err(Fault::Damaged(format!("{other} is no kind of a counter"))),
    })
}

fn task(no: i64, problem: impl Into<String>) -> Discrepancy {
    Discrepancy::Task { task: TaskId(no), problem: problem.into() }
}

/// Describes a task that [`BROKEN`] returned.
fn broken(row: &Row) -> Outcome<Discrepancy> {
    let no = row::value(row, 0)?;
    let state = match row::value::<i64>(row, 1)? {
        1 => from_task_state(row::value(row, 2)?)?,
        0 => return Ok(task(no, "it is neither ready nor leased nor idle")),
        times => return Ok(task(no, format!("it stands in {times} places: ready, leased or idle"))),
    };
    let held: i64 = row::value(row, 3)?;
    Ok(task(
        no,
        match row::value(row, 4)? {
            true => format!(
                "it is {state}, and its row is of another lane, place or number of slots, or outlasts a cancel"
            ),
            false if held > 0 && !state.is_leased() => format!("it is {state} and holds {held} slots"),
            false => format!("it is {state}, and its due instant says otherwise"),
        },
    ))
}

/// Describes a task that [`PASSED_OVER`] returned.
fn passed_over(row: &Row) -> Outcome<Discrepancy> {
    let problem = match row::value::<i64>(row, 1)? {
        0 => "it is ready before the bound of its lane, where no tick looks",
        1 => "it is due before the bound of ticks, where none looks",
        _ => "it is ready, and there is no such task",
    };
    Ok(task(row::value(row, 0)?, problem))
}

/// Sorts counters by kind, and then by name.
fn sort(found: &mut [Discrepancy]) {
    found.sort_by_key(|found| match found {
        Discrepancy::Pool { pool, .. } => (0, pool.to_string()),
        Discrepancy::Limit { key, .. } => (1, key.to_string()),
        Discrepancy::LimitLanes { key, .. } => (2, key.to_string()),
        Discrepancy::Share { pool, share, .. } => (3, format!("{pool} {share}")),
        Discrepancy::ShareLanes { pool, share, .. } => (4, format!("{pool} {share}")),
        Discrepancy::Lane { lane, .. } => (5, lane.pool.to_string()),
        Discrepancy::LaneTasks { lane, .. } => (6, lane.pool.to_string()),
        Discrepancy::Mark { .. } | Discrepancy::Task { .. } => (7, String::new()),
    });
}

impl Db<'_> {
    pub(super) fn audit(&mut self) -> Outcome<Vec<Discrepancy>> {
        let [counters, passed, filed, last] =
            self.all([ask!(COUNTERS), ask!(PASSED_OVER), ask!(marks::IS_FILED), ask!(TASK_PAGE, 0, PAGE)])?;
        let mut found = counters.iter().map(counter).collect::<Outcome<Vec<_>>>()?;
        sort(&mut found);
        if row::value(first(&filed)?, 0)? {
            let [marks, misfiled] = self.all([ask!(marks::MARKS), ask!(marks::MISFILED)])?;
            found.extend(marks::of_marks(&marks, &misfiled)?);
        }
        for row in &passed {
            found.push(passed_over(row)?);
        }
        let (mut after, mut last): (i64, Option<i64>) = (0, row::value(first(&last)?, 0)?);
        loop {
            let to = last.unwrap_or(i64::MAX);
            let [wrong, strays, next] =
                self.all([ask!(BROKEN, after, to), ask!(STRAYS, after, to), ask!(TASK_PAGE, to, PAGE)])?;
            for row in &wrong {
                found.push(broken(row)?);
            }
            for row in &strays {
                found.push(task(row::value(row, 0)?, "it is leased or idle, and there is no such task"));
            }
            if last.is_none() {
                break;
            }
            (after, last) = (to, row::value(first(&next)?, 0)?);
        }
        Ok(found)
    }
}
