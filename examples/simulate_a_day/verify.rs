//! What must hold at the end of every day, whatever was simulated. Each sentence is checked against the store.

use stationmaster::TaskRecord;
use stationmaster::run::ActiveQuery;

use crate::day::Outcome;
use crate::trouble::Trouble;

/// How many tasks are read at once.
const PAGE: usize = 10_000;

/// The checks. The simulation and its ledger check the first six all day long.
pub(crate) const CHECKS: [&str; 12] = [
    "no pool was above its slots when tasks were admitted",
    "a pool's counter was the sum of what its tasks held",
    "a worker that lives loses no lease",
    "a landing is seen within the sensor's interval",
    "a task that fits is told of, and admitted in the same instant",
    "no service asks for tick after tick in vain",
    "the audit of the store finds nothing",
    "no slot is used, and nothing counts against a limit, at the end",
    "every run has ended, in the host's books and in the index of runs",
    "the leases lost are the tasks that crashed workers had",
    "every task has ended, after no more attempts than its policy allows",
    "what tasks waited is what ticks had reasons for, to the microsecond",
];

/// Returns the checks that do not hold.
pub(crate) fn violations(day: &Outcome) -> Result<Vec<String>, Trouble> {
    let mut found = day.ledger.violations.clone();
    let mut expect = |holds: bool, what: String| {
        if !holds {
            found.push(what);
        }
    };
    let window = ActiveQuery::new(day.now, day.now + std::time::Duration::from_secs(1));
    let (audit, pools, limits, open, consumers) = day.store.read(|tx| {
        let open = tx.active_runs(&window)?.into_iter().filter(|run| run.stop.is_none()).count();
        Ok((tx.audit()?, tx.all_pools()?, tx.all_limits()?, open, tx.consumers()?))
    })?;
    expect(audit.is_empty(), format!("the audit finds {audit:?}"));
    for pool in pools {
        expect(pool.used == 0, format!("{} slots of pool {} are used at the end", pool.used, pool.spec.name));
    }
    for limit in limits {
        expect(limit.used == 0, format!("{} tasks count against limit {} at the end", limit.used, limit.key));
    }
    expect(open == 0, format!("the index of runs has {open} that did not end"));
    expect(consumers.iter().all(|one| one.lost == 0), format!("the feed lost events: {consumers:?}"));
    expect(day.open_runs == 0, format!("{} runs did not end", day.open_runs));
    let (lost, orphans, abandoned) = (day.counts.lost_leases, day.orphans, day.abandoned);
    expect(
        lost == abandoned && orphans == 0,
        format!("crashed workers had {abandoned} tasks, {lost} leases were lost, {orphans} are still held"),
    );
    let mut attempts = 0;
    for page in day.keys.chunks(PAGE) {
        let tasks: Vec<Option<TaskRecord>> = day.store.read(|tx| tx.tasks(page))?;
        for (key, task) in page.iter().zip(tasks) {
            let Some(task) = task else {
                expect(false, format!("task {key} is gone"));
                continue;
            };
            attempts += task.attempt as usize;
            expect(task.state.is_end(), format!("task {key} is {} at the end", task.state));
            let most = task.retry.max_attempts().unwrap_or(u32::MAX);
            let counted = task.attempt - task.forgiven;
            expect(counted <= most, format!("task {key} was tried {counted} times, of {most} at most"));
        }
    }
    expect(
        attempts == day.counts.attempts,
        format!("tasks count {attempts} attempts, {} were admitted", day.counts.attempts),
    );
    for (pool, account) in &day.ledger.accounts {
        let waited: i128 = account.waits.iter().map(|wait| i128::from(*wait)).sum();
        let deferred: i128 = account.deferred.values().map(|deferred| deferred.task_micros).sum();
        expect(
            waited == deferred,
            format!("tasks of pool {pool} waited {waited} microseconds, ticks had reasons for {deferred}"),
        );
    }
    Ok(found)
}
