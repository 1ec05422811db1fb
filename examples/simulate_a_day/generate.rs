//! The default workload: a company of 200 workflows, generated from the seed.

use std::time::Duration;

use stationmaster::backoff::RetryPolicy;
use stationmaster::id::PoolName;
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::task::LeaseLoss;
use stationmaster::{Result, Timestamp};

use crate::cron::Cron;
use crate::spread::{Dice, Spread};
use crate::trouble::Trouble;
use crate::workload::{Crash, Limit, Starts, Target, Task, WaitFor, Workers, Workflow, Workload};

/// A Monday.
const BEGIN_MICROS: i64 = 1_767_571_200_000_000;
const WORKFLOWS: u64 = 200;
const TENANTS: u64 = 8;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Most take about `p50`, some three times as long, few ten times.
fn usual(p50: u64) -> Spread {
    let at = |percent: u64| Some(Duration::from_millis(p50 * percent * 10));
    Spread { min: at(30), p50: secs(p50), p90: at(200), p99: at(500), max: at(1_000) }
}

pub(crate) fn workload(seed: u64) -> Result<Workload, Trouble> {
    let dice = Dice(seed);
    // Soon after the hour, when there is work.
    let crash = |n: u64, from_hour: u64| Crash {
        worker: 1 + dice.below(8, "crashed worker", "", n) as usize,
        at_s: secs(from_hour * 3_600 + 30 + dice.below(60, "crash", "", n)),
        back_after_s: secs(120 + dice.below(600, "back", "", n)),
    };
    let pool = |name, slots| PoolSpec::new(name, Slots::Limited(slots));
    let target = |name: &str, every: u64, median: u64| Target {
        name: name.to_owned(),
        every_s: secs(every),
        lands_after_s: Spread {
            min: Some(secs(median / 4)),
            p50: secs(median),
            p90: Some(secs(median * 2)),
            p99: Some(secs(median * 3)),
            max: Some(secs(median * 8)),
        },
    };
    Ok(Workload {
        description: format!("{WORKFLOWS} workflows made from seed {seed}"),
        begin: Timestamp::from_micros(BEGIN_MICROS),
        workers: Workers { count: 8, places: 32, lease_s: secs(120) },
        crashes: vec![crash(0, 2), crash(1, 13)],
        pools: vec![pool("warehouse", 12)?, pool("spark", 40)?, pool("api", 6)?, pool("ml", 8)?],
        limits: (0..TENANTS).map(|n| Limit { name: format!("tenant-{n}"), max: 8 }).collect(),
        targets: vec![
            target("orders", 3_600, 420),
            target("events", 900, 120),
            target("rates", 86_400, 4 * 3_600),
            target("partners", 86_400, 6 * 3_600),
        ],
        workflows: (0..WORKFLOWS).map(|n| workflow(dice, n)).collect::<Result<_>>()?,
    })
}

fn workflow(dice: Dice, n: u64) -> Result<Workflow> {
    let pick = |below: u64, what: &str| dice.below(below, what, "workflow", n);
    let minute = pick(60, "minute");
    // Many begin on the hour, as is common.
    let on_the_hour = if pick(3, "on the hour") > 0 { 0 } else { minute };
    let (what, starts, target) = match pick(10, "rhythm") {
        0 => {
            let first_s = secs(pick(900, "first"));
            ("quarterly", Starts::Every { period_s: secs(900), first_s }, "events")
        }
        1..=4 => ("hourly", cron(format!("{on_the_hour} * * * *"))?, "orders"),
        5 => ("office", cron(format!("{on_the_hour} 8-18 * * 1-5"))?, "orders"),
        6..=7 => ("nightly", cron(format!("{on_the_hour} {} * * *", 1 + pick(5, "hour")))?, "rates"),
        _ => ("daily", cron(format!("{minute} {} * * *", pick(24, "hour")))?, "partners"),
    };
    let limits = vec![format!("tenant-{}", pick(TENANTS, "tenant"))];
    let is_daily = target == "rates" || target == "partners";
    let size = if is_daily { 4 } else { 1 };
    let priority = if is_daily { 5 } else { 0 };
    let retry = RetryPolicy::exponential(secs(30)).max_delay(secs(900)).max_attempts(4).build()?;
    let task = |name: &str, after: &[&str], pool: &str, p50: u64| -> Result<Task> {
        Ok(Task {
            name: name.to_owned(),
            after: after.iter().map(ToString::to_string).collect(),
            takes_s: Some(usual(p50)),
            fails: if dice.below(10, "flaky", name, n) == 0 { 0.2 } else { 0.02 },
            wait_for: None,
            pool: PoolName::new(pool)?,
            pool_slots: 1,
            priority,
            limits: limits.clone(),
            retry: retry.clone(),
            lease_loss: LeaseLoss::Requeue { at_most: 3 },
        })
    };

    let mut tasks = Vec::new();
    let mut first = Vec::new();
    if pick(10, "waits") < 6 {
        first.push("arrives");
        let (interval_s, timeout_s) =
            if is_daily { (secs(300), secs(12 * 3_600)) } else { (secs(60), secs(3_000)) };
        tasks.push(Task {
            takes_s: None,
            fails: 0.0,
            wait_for: Some(WaitFor {
                target: target.to_owned(),
                interval_s,
                timeout_s,
                soft_fail: pick(2, "soft") == 0,
            }),
            ..task("arrives", &[], PoolName::DEFAULT, 1)?
        });
    }
    tasks.push(task("extract", &first, "api", 8 * size)?);
    tasks.push(task("load", &["extract"], "warehouse", (15 + pick(15, "load")) * size)?);
    if pick(10, "cruncher") < 5 {
        let pool_slots = [1, 2, 4][pick(3, "width") as usize];
        tasks.push(Task {
            pool_slots,
            ..task("crunch", &["load"], "spark", (60 + pick(90, "crunch")) * size)?
        });
        tasks.push(task("publish", &["crunch"], "warehouse", 10)?);
    }
    if is_daily && pick(10, "learner") < 4 {
        tasks.push(task("train", &["load"], "ml", 900)?);
    }
    let last = tasks.last().map_or(String::new(), |task| task.name.clone());
    tasks.push(task("notify", &[&last], PoolName::DEFAULT, 3)?);
    let max_active_tasks = (pick(10, "limited") == 0).then_some(2);
    Ok(Workflow { name: format!("{what}-{n:03}"), starts, max_active_tasks, tasks })
}

fn cron(text: String) -> Result<Starts> {
    Ok(Starts::Cron(Cron::try_from(text).map_err(stationmaster::Error::abort)?))
}
