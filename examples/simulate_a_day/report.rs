//! The report of a day: as text for people, as JSON for programs.

use std::collections::BTreeMap;

use serde::Serialize;
use stationmaster::id::PoolName;
use stationmaster::pool::Slots;

use crate::day::{Counts, Outcome};
use crate::plan::Plan;
use crate::verify::CHECKS;

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) seed: u64,
    pub(crate) hours: u32,
    pub(crate) workflows: usize,
    /// The hash of the trace, in hexadecimal digits.
    pub(crate) trace: String,
    pub(crate) counts: Counts,
    pub(crate) pools: Vec<PoolReport>,
    pub(crate) plan: Option<Plan>,
    pub(crate) violations: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct PoolReport {
    pub(crate) name: PoolName,
    pub(crate) slots: Slots,
    pub(crate) tasks: usize,
    pub(crate) attempts: usize,
    pub(crate) peak: i64,
    pub(crate) mean: f64,
    pub(crate) wait_p50_s: f64,
    pub(crate) wait_p99_s: f64,
    pub(crate) wait_max_s: f64,
    /// By the reason that ticks reported.
    pub(crate) deferred: BTreeMap<&'static str, DeferredReport>,
}

#[derive(Debug, Serialize)]
pub(crate) struct DeferredReport {
    /// The most tasks at once.
    pub(crate) most: u64,
    /// The sum of the time that they waited for this reason.
    pub(crate) task_hours: f64,
}

pub(crate) fn in_seconds(micros: i64) -> f64 {
    micros as f64 / 1e6
}

pub(crate) fn pools(day: &Outcome) -> Vec<PoolReport> {
    let report = |(name, account): (&PoolName, &crate::ledger::Account)| PoolReport {
        name: name.clone(),
        slots: account.slots,
        tasks: account.tasks,
        attempts: account.waits.len(),
        peak: account.peak,
        mean: account.mean(&day.ledger),
        wait_p50_s: in_seconds(account.percentile(50.0)),
        wait_p99_s: in_seconds(account.percentile(99.0)),
        wait_max_s: in_seconds(account.percentile(100.0)),
        deferred: account
            .deferred
            .iter()
            .map(|(reason, deferred)| {
                let task_hours = deferred.task_micros as f64 / 3.6e9;
                (*reason, DeferredReport { most: deferred.most, task_hours })
            })
            .filter(|(_, deferred)| deferred.task_hours > 0.0)
            .collect(),
    };
    day.ledger.accounts.iter().map(report).collect()
}

impl Report {
    pub(crate) fn print(&self) {
        let Counts { runs, tasks, attempts, retries, failed_tasks, crashes, lost_leases, .. } = self.counts;
        let Counts { sensors, landed, pokes, pokes_saved, .. } = self.counts;
        println!("{} hours of {} workflows, seed {}", self.hours, self.workflows, self.seed);
        println!(
            "  {runs} runs, {tasks} tasks, {attempts} attempts, {retries} retries, {failed_tasks} tasks failed"
        );
        println!("  {crashes} crashes of workers, {lost_leases} leases lost with them");
        println!(
            "  {sensors} waits as a sensor, {landed} landed, {pokes} pokes, {pokes_saved} more saved by sharing"
        );

        let width = self.pools.iter().map(|pool| pool.name.as_str().len()).max().unwrap_or(0).max(4);
        println!("\npool use and seconds of waiting for slots");
        println!(
            "  {:width$} {:>9} {:>7} {:>9} {:>6} {:>7} {:>9} {:>9} {:>9}",
            "pool", "slots", "tasks", "attempts", "peak", "mean", "p50", "p99", "max"
        );
        for pool in &self.pools {
            println!(
                "  {:width$} {:>9} {:>7} {:>9} {:>6} {:>7.2} {:>9.1} {:>9.1} {:>9.1}",
                pool.name.as_str(),
                pool.slots.to_string(),
                pool.tasks,
                pool.attempts,
                pool.peak,
                pool.mean,
                pool.wait_p50_s,
                pool.wait_p99_s,
                pool.wait_max_s
            );
        }
        println!("\nwhy tasks waited: hours added up over tasks, and the most tasks at once");
        for pool in &self.pools {
            for (reason, deferred) in &pool.deferred {
                let DeferredReport { most, task_hours } = deferred;
                println!("  {:width$} {reason:16} {task_hours:>9.2} h {most:>7} tasks", pool.name.as_str());
            }
        }
        if let Some(plan) = &self.plan {
            print_plan(plan, width);
        }
        if self.violations.is_empty() {
            println!("\nchecked");
            CHECKS.iter().for_each(|check| println!("  {check}"));
        }
        println!("\ntrace {}", self.trace);
    }
}

fn print_plan(plan: &Plan, width: usize) {
    let goal = plan.goal;
    println!(
        "\nsmallest sizes with which {} % of the attempts wait at most {} s, all pools together ({} days simulated)",
        goal.percentile, goal.wait_s, plan.days
    );
    println!(
        "  {:width$} {:>9} {:>9} {:>12} {:>12} {:>14}",
        "pool", "slots", "size", "waits now", "then", "with one less"
    );
    for pool in &plan.pools {
        let size = pool.size.map_or("none".to_owned(), |size| size.to_string());
        let less = match (pool.size, pool.wait_with_one_less_s) {
            (Some(_), Some(wait)) => format!("{wait:.1}"),
            (Some(_), None) => "never fits".to_owned(),
            (None, _) => String::new(),
        };
        println!(
            "  {:width$} {:>9} {size:>9} {:>12.1} {:>12.1} {less:>14}",
            pool.name.as_str(),
            pool.slots.to_string(),
            pool.wait_now_s,
            pool.wait_then_s
        );
    }
    if plan.pools.iter().any(|pool| pool.size.is_none()) {
        println!(
            "  none: limits, or workers without a free place, keep its tasks waiting, however many slots it has"
        );
    }
    if !plan.settled {
        println!("  not settled: the sizes go in circles; check them one by one");
    }
    println!("  to see that day: {}", plan.options());
}
