//! The audit of marks: whether what each one names refuses as counted, and whether lanes are filed by their first tasks.

use std::collections::{BTreeSet, HashMap};

use tokio_postgres::Row;

use super::super::super::error::Outcome;
use super::super::rules::{Beside, owed};
use super::super::{pool, row};
use crate::admission::limits::{Families, LimitRecord, LimitSpec, RateUse};
use crate::admission::{Cause, Subject};
use crate::id::{LimitKey, PoolName};
use crate::pool::{PoolRecord, PoolSpec, Slots};
use crate::store::Discrepancy;
use crate::store::marks::{ClassKey, Counted, Sleeps, check};
use crate::store::sql::statement::statement;
use crate::time::Timestamp;

pub(in super::super) const MISFILED: &str = statement!("misfiled.sql");
pub(in super::super) const MARKS: &str = statement!("marks.sql");
/// Whether the other two may find anything.
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

/// Describes what [`MISFILED`] returned.
fn misfiled(row: &Row) -> Outcome<Discrepancy> {
    let what: &str = row::value(row, 0)?;
    Ok(Discrepancy::Mark { mark: format!("the first task of {what}") })
}

/// Describes what is wrong with a mark that [`MARKS`] returned, if anything is.
fn wrong(row: &Row) -> Outcome<Option<Discrepancy>> {
    let class: ClassKey = (row::name(row, QUEUE)?, serde_json::from_str(row::value(row, ABOUT)?)?);
    let facts = Facts::read(row)?;
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

/// What one mark is checked against.
struct Facts {
    pools: HashMap<PoolName, PoolRecord>,
    limit: Option<LimitRecord>,
    rate: Option<RateUse>,
    families: Vec<LimitSpec>,
    paused: BTreeSet<Subject>,
    clock: Option<Timestamp>,
}

impl Facts {
    fn read(row: &Row) -> Outcome<Self> {
        let names: Vec<String> = row::value::<Option<_>>(row, POOLS)?.unwrap_or_default();
        let slots: Vec<Option<i64>> = row::value::<Option<_>>(row, POOLS + 1)?.unwrap_or_default();
        let used: Vec<i64> = row::value::<Option<_>>(row, POOLS + 2)?.unwrap_or_default();
        let mut pools = HashMap::new();
        for ((name, slots), used) in names.into_iter().zip(slots).zip(used) {
            let limited = |slots: i64| Slots::Limited(u32::try_from(slots).unwrap_or(u32::MAX));
            let slots = slots.map_or(Slots::Unlimited, limited);
            let name = PoolName::try_from(name)?;
            let spec = PoolSpec {
                name: name.clone(),
                slots,
                description: String::new(),
                sensing_keeps_slots: false,
            };
            pools.insert(name, PoolRecord::new(spec, used));
        }
        let key: Option<LimitKey> = row::maybe_name(row, 0)?;
        let Beside { families, paused, clock } = Beside::read(row, BESIDE)?;
        Ok(Self {
            pools,
            limit: key.as_ref().map(|_| pool::limit(row)).transpose()?,
            rate: key.map(|key| owed(key, row, OWED)).transpose()?.flatten(),
            families,
            paused: paused.into_iter().collect(),
            clock,
        })
    }
}

impl Counted for Facts {
    fn pool(&self, name: &PoolName) -> Option<&PoolRecord> {
        self.pools.get(name)
    }

    fn is_paused(&self, subject: &Subject) -> bool {
        self.paused.contains(subject)
    }

    fn rule(&self, key: &LimitKey) -> LimitRecord {
        let unknown = || LimitRecord::new(key.clone(), None, 0);
        let mut limit = self.limit.clone().filter(|limit| limit.key == *key).unwrap_or_else(unknown);
        Families::new(&self.families).apply(&mut limit);
        limit
    }

    fn rate(&self, key: &LimitKey) -> Option<&RateUse> {
        self.rate.as_ref().filter(|rate| rate.key == *key)
    }

    fn clock(&self) -> Option<Timestamp> {
        self.clock
    }
}
