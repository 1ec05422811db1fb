//! Audits marks: whether the names in each one refuse as counted, and whether lanes are filed by their first tasks.

use std::collections::HashMap;

use tokio_postgres::Row;

use super::super::super::error::Outcome;
use super::super::rules::{Beside, owed};
use super::super::{pool, row};

use crate::admission::Cause;
use crate::id::{LimitKey, PoolName};
use crate::pool::{PoolRecord, PoolSpec, Slots};
use crate::store::Discrepancy;
use crate::store::marks::{ClassKey, Facts, Sleeps, check};
use crate::store::sql::statement::statement;
use crate::time::Timestamp;

pub(in super::super) const MISFILED: &str = statement!("misfiled.sql");
pub(in super::super) const MARKS: &str = statement!("marks.sql");
/// Whether the other two statements can find anything.
pub(super) const IS_FILED: &str = "SELECT coalesce((SELECT many FROM sm.tick ORDER BY no DESC LIMIT 1), false) \
    OR EXISTS (SELECT FROM sm.lane_order) OR EXISTS (SELECT FROM sm.ready_lane)";

const OWED: usize = 8;
const QUEUE: usize = 12;
const ABOUT: usize = 13;
const POOL: usize = 14;
const CAUSE: usize = 15;
const NEXT: usize = 16;
const POOLS: usize = 17;
const BESIDE: usize = 20;

/// Describes what is wrong with the marks and the order of lanes that [`MARKS`] and [`MISFILED`] returned.
pub(super) fn of_marks(marks: &[Row], wrongly: &[Row]) -> Outcome<Vec<Discrepancy>> {
    let mut found = wrongly.iter().map(misfiled).collect::<Outcome<Vec<_>>>()?;
    for row in marks {
        found.extend(wrong(row)?);
    }
    Ok(found)
}

/// Describes a lane that [`MISFILED`] returned.
fn misfiled(row: &Row) -> Outcome<Discrepancy> {
    let what: &str = row::value(row, 0)?;
    Ok(Discrepancy::Mark { mark: format!("the first task of {what}") })
}

/// Describes what is wrong with a mark that [`MARKS`] returned, if anything.
fn wrong(row: &Row) -> Outcome<Option<Discrepancy>> {
    let class: ClassKey = (row::name(row, QUEUE)?, serde_json::from_str(row::value(row, ABOUT)?)?);
    let facts = facts(row)?;
    let next: Option<i64> = row::value(row, NEXT)?;
    Ok(match row::value::<Option<&str>>(row, CAUSE)? {
        None => {
            let full: Option<PoolName> = row::maybe_name(row, POOL)?;
            check(&facts, &class, &full.as_ref().map_or(Sleeps::Closed, Sleeps::Full))
        }
        Some(cause) => {
            let cause: Cause = serde_json::from_str(cause)?;
            check(&facts, &class, &Sleeps::Asleep(&cause, next.map(Timestamp::from_micros)))
        }
    })
}

/// Reads the facts that one mark is checked against.
fn facts(row: &Row) -> Outcome<Facts> {
    let names: Vec<String> = row::value::<Option<_>>(row, POOLS)?.unwrap_or_default();
    let slots: Vec<Option<i64>> = row::value::<Option<_>>(row, POOLS + 1)?.unwrap_or_default();
    let used: Vec<i64> = row::value::<Option<_>>(row, POOLS + 2)?.unwrap_or_default();
    let mut pools = HashMap::new();
    for ((name, slots), used) in names.into_iter().zip(slots).zip(used) {
        let limited = |slots: i64| Slots::Limited(u32::try_from(slots).unwrap_or(u32::MAX));
        let slots = slots.map_or(Slots::Unlimited, limited);
        let name = PoolName::try_from(name)?;
        let spec =
            PoolSpec { name: name.clone(), slots, description: String::new(), sensing_keeps_slots: false };
        pools.insert(name, PoolRecord::new(spec, used));
    }
    let key: Option<LimitKey> = row::maybe_name(row, 0)?;
    let Beside { families, paused, clock } = Beside::read(row, BESIDE)?;
    let limit = key.as_ref().map(|_| pool::limit(row)).transpose()?;
    let rate = key.map(|key| owed(key, row, OWED)).transpose()?.flatten();
    Ok(Facts {
        pools,
        limits: limit.into_iter().map(|limit| (limit.key.clone(), limit)).collect(),
        rates: rate.into_iter().map(|rate| (rate.key.clone(), rate)).collect(),
        families,
        paused: paused.into_iter().collect(),
        clock,
    })
}
