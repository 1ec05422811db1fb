//! The repair of counters, under the tick lock.
//!
//! A transaction changes rows and appends the deltas for counters atomically. So a counter's error, including its
//! deltas, is the same in every snapshot until counters are written. Only ticks and folds write them, and they hold
//! the lock. So what an audit under the lock finds missing can be added while other transactions continue.

use std::collections::BTreeMap;

use tokio_postgres::Row;

use super::super::super::error::Outcome;
use super::super::super::wire::ask;
use super::super::{Db, row, tick};
use super::marks::{MARKS, MISFILED, of_marks};
use super::{COUNTERS, counter};
use crate::store::Discrepancy;
use crate::store::contract::repaired;
use crate::store::sql::statement::statement;

const REPAIR: &str = statement!("repair.sql");

/// What the counters lack.
#[derive(Debug, Default)]
struct Missing {
    pools: BTreeMap<String, i64>,
    /// Leases, and lanes that name the key.
    limits: BTreeMap<String, [i64; 2]>,
    /// By pool and share: slots, and lanes.
    shares: BTreeMap<(String, String), [i64; 2]>,
    /// By pool, slots, limits and queue: ready tasks, and tasks.
    lanes: BTreeMap<(String, i64, String, String), [i64; 2]>,
}

impl Missing {
    fn add(&mut self, row: &Row) -> Outcome<()> {
        let (name, counted, held): (String, i64, i64) =
            (row::value(row, 1)?, row::value(row, 5)?, row::value(row, 6)?);
        let more = held.saturating_sub(counted);
        match row::value::<i64>(row, 0)? {
            0 => drop(self.pools.insert(name, more)),
            kind @ (2 | 4) => self.limits.entry(name).or_default()[usize::from(kind == 4)] = more,
            kind @ (5 | 6) => {
                let queue: Option<String> = row::value(row, 4)?;
                let lane = (name, row::value(row, 2)?, row::value(row, 3)?, queue.unwrap_or_default());
                self.lanes.entry(lane).or_default()[usize::from(kind == 6)] = more;
            }
            kind @ (7 | 8) => {
                let share = (name, row::value(row, 3)?);
                self.shares.entry(share).or_default()[usize::from(kind == 8)] = more;
            }
            // The counter is lower than its rows, although it is right with its deltas. So the deltas are wrong.
            _ => {}
        }
        Ok(())
    }
}

impl Db<'_> {
    pub(in super::super) fn repair_counters(&mut self) -> Outcome<Vec<Discrepancy>> {
        let [before, marks, misfiled] = self.at_tick(true, [ask!(COUNTERS), ask!(MARKS), ask!(MISFILED)])?;
        let wrong = of_marks(&marks, &misfiled)?;
        if before.is_empty() && wrong.is_empty() {
            return Ok(Vec::new());
        }
        let mut missing = Missing::default();
        before.iter().try_for_each(|row| missing.add(row))?;
        let (pools, slots): (Vec<String>, Vec<i64>) = missing.pools.into_iter().unzip();
        let (keys, limits): (Vec<String>, Vec<[i64; 2]>) = missing.limits.into_iter().unzip();
        let (needs, lanes): (Vec<_>, Vec<[i64; 2]>) = missing.lanes.into_iter().unzip();
        let (pairs, shares): (Vec<_>, Vec<[i64; 2]>) = missing.shares.into_iter().unzip();
        let part = |of: &[[i64; 2]], at: usize| of.iter().map(|both| both[at]).collect::<Vec<i64>>();
        let repair = ask!(
            REPAIR,
            pools,
            slots,
            keys,
            part(&limits, 0),
            part(&limits, 1),
            needs.iter().map(|lane| lane.0.clone()).collect::<Vec<String>>(),
            needs.iter().map(|lane| lane.1).collect::<Vec<i64>>(),
            needs.iter().map(|lane| lane.2.clone()).collect::<Vec<String>>(),
            needs.iter().map(|lane| lane.3.clone()).collect::<Vec<String>>(),
            part(&lanes, 0),
            part(&lanes, 1),
            pairs.iter().map(|pair| pair.0.clone()).collect::<Vec<String>>(),
            pairs.iter().map(|pair| pair.1.clone()).collect::<Vec<String>>(),
            part(&shares, 0),
            part(&shares, 1),
        );
        let [_, _, after, marks, misfiled] =
            self.all([repair, ask!(tick::filed::REFILE), ask!(COUNTERS), ask!(MARKS), ask!(MISFILED)])?;
        let found = |rows: &[Row]| rows.iter().map(counter).collect::<Outcome<Vec<_>>>();
        let (mut before, mut after) = (found(&before)?, found(&after)?);
        super::sort(&mut before);
        before.extend(wrong);
        after.extend(of_marks(&marks, &misfiled)?);
        Ok(repaired(before, &after))
    }
}
