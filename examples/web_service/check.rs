//! The final checks, on the host's own rows and on the store.

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;

use stationmaster::store::postgres::tokio_postgres;
use stationmaster::task::TaskQuery;
use stationmaster::{TaskRecord, TaskState};

use crate::domain::{A_SECOND, AT_ONCE, BURST, GPUS, PLACES};
use crate::glue::{App, Result};

/// What the trial observed from outside.
pub(crate) struct Seen {
    /// The numbers of the minutes during which it ran.
    pub(crate) minutes: RangeInclusive<i64>,
    pub(crate) films: i64,
    /// Which process was killed, and an instant at which it was still alive.
    pub(crate) killed: Vec<(String, i64)>,
    pub(crate) cancelled: Vec<i64>,
    /// When nothing may have been granted in queue `gpu`.
    pub(crate) paused: (i64, i64),
    /// How many processes stopped cleanly.
    pub(crate) stopped: usize,
}

/// Returns how many films are done: published, or cancelled.
pub(crate) async fn progress(app: &App) -> Result<i64> {
    let done = "SELECT count(*) FROM film WHERE cancelled
        OR id::text IN (SELECT run FROM effect WHERE workflow = 'film' AND step = 'publish')";
    Ok(app.client().await?.query_one(done, &[]).await?.get(0))
}

/// One attempt, from the host's rows.
struct Attempt {
    queue: String,
    customer: Option<String>,
    holder: String,
    granted: i64,
    began: i64,
    ended: i64,
}

/// Prints a table of the results. Returns true if all of them are right.
pub(crate) async fn check(app: &App, seen: &Seen) -> Result<bool> {
    let (tasks, effects, attempts) = (tasks(app).await?, effects(app).await?, attempts(app, seen).await?);
    let films: Vec<&TaskRecord> = tasks.iter().filter(|task| task.key.workflow.as_str() == "film").collect();
    let of = |task: &TaskRecord| effects.get(&names(task)).copied().unwrap_or(0);
    let in_state = |state| films.iter().filter(|task| task.state == state).count();
    let retried = films.iter().filter(|task| task.attempt > 1).count();
    let mut table = Table::default();

    table.row(
        "films uploaded",
        seen.films,
        films.iter().filter(|task| task.key.task.as_str() == "cut").count(),
    );
    table.row("their tasks that have not ended", 0, films.iter().filter(|task| !task.state.is_end()).count());
    table.row(
        "their tasks that failed or were skipped",
        0,
        in_state(TaskState::Failed) + in_state(TaskState::Skipped),
    );
    let is_wrong = |task: &&TaskRecord| of(task) != usize::from(task.state == TaskState::Success);
    table.row(
        "tasks with more or fewer effects than one for a success",
        0,
        tasks.iter().filter(is_wrong).count(),
    );
    let known: usize = tasks.iter().map(of).sum();
    table.row("effects of no task", 0, effects.values().sum::<usize>() - known);
    let is_published = |id: &i64| effects.contains_key(&("film".into(), id.to_string(), "publish".into()));
    let wanted: Vec<i64> = (1..=seen.films).filter(|id| !seen.cancelled.contains(id)).collect();
    table.row("films published", wanted.len(), wanted.iter().filter(|id| is_published(id)).count());
    let kept = seen.cancelled.iter().filter(|id| !is_published(id)).count();
    table.at_least("cancelled films that were not published", 1, kept);
    table.at_least("tasks that were tried again", 1, retried);

    let bill = |minute: i64| effects.get(&("bill".into(), minute.to_string(), "bill".into()));
    let billed = seen.minutes.clone().filter(|minute| bill(*minute) == Some(&1));
    table.row("minutes billed", seen.minutes.clone().count(), billed.count());

    let on_gpus = || attempts.iter().filter(|attempt| attempt.queue == "gpu");
    table.at_most("renderings at once", GPUS as usize, most_at_once(on_gpus().map(|a| ((), a))));
    let by_customer = on_gpus().map(|a| (a.customer.clone(), a));
    table.at_most("renderings of a customer at once", AT_ONCE as usize, most_at_once(by_customer));
    let by_holder = attempts.iter().map(|a| (a.holder.clone(), a));
    table.at_most("attempts of a worker at once", PLACES, most_at_once(by_holder));
    table.row("starts above the rate of their customer", 0, above_rate(on_gpus()));
    let (from, to) = seen.paused;
    // A tick reads the clock when it begins, but may wait for the resume before it grants.
    let in_pause = |attempt: &&Attempt| from <= attempt.granted && attempt.began < to;
    table.row("renderings that began while they were paused", 0, on_gpus().filter(in_pause).count());

    let (audit, pools) = app.jobs.read(|tx| Ok((tx.audit()?, tx.all_pools()?))).await?;
    table.row("differences that the audit finds", 0, audit.len());
    table.row("slots in use", 0, pools.iter().map(|pool| pool.used).sum::<i64>());
    table.row("processes that stopped well", 5, seen.stopped);
    Ok(table.print())
}

/// Workflow, run and task.
type Names = (String, String, String);

fn names(task: &TaskRecord) -> Names {
    let key = &task.key;
    (key.workflow.to_string(), key.run.to_string(), key.task.to_string())
}

async fn tasks(app: &App) -> Result<Vec<TaskRecord>> {
    let mut query = TaskQuery::all().namespace("studio".try_into()?).limit(500);
    let mut tasks = Vec::new();
    loop {
        let page = query.clone();
        let page = app.jobs.read(move |tx| tx.list_tasks(&page)).await?;
        tasks.extend(page.tasks);
        let Some(next) = page.next else { return Ok(tasks) };
        query = query.after(next);
    }
}

/// Returns how often each effect happened.
async fn effects(app: &App) -> Result<HashMap<Names, usize>> {
    let mut effects = HashMap::new();
    for row in app.client().await?.query("SELECT workflow, run, step FROM effect", &[]).await? {
        *effects.entry((row.get(0), row.get(1), row.get(2))).or_default() += 1;
    }
    Ok(effects)
}

/// Reads the attempts. An attempt that a kill interrupted had its lease at least until the kill. If its task was granted
/// again before the kill, it lost its lease at an unknown instant instead, and counts as if it ended at once.
async fn attempts(app: &App, seen: &Seen) -> Result<Vec<Attempt>> {
    let rows = "SELECT queue, customer, holder, granted, began, ended,
      lead(granted) OVER (PARTITION BY task ORDER BY epoch) FROM attempt";
    let attempt = |row: &tokio_postgres::Row| {
        let (holder, began): (String, i64) = (row.get(2), row.get(4));
        let next = row.get::<_, Option<i64>>(6).unwrap_or(i64::MAX);
        let had_it = |(name, at): &&(String, i64)| *name == holder && (began..next).contains(at);
        let killed = seen.killed.iter().filter(had_it).map(|(_, at)| *at);
        let ended: Option<i64> = row.get::<_, Option<i64>>(5).or_else(|| killed.min());
        let ended = ended.unwrap_or(began);
        Attempt { queue: row.get(0), customer: row.get(1), holder, granted: row.get(3), began, ended }
    };
    Ok(app.client().await?.query(rows, &[]).await?.iter().map(attempt).collect())
}

/// Returns the most attempts of one group that were in progress at the same instant.
fn most_at_once<'a, G: Ord>(attempts: impl Iterator<Item = (G, &'a Attempt)>) -> usize {
    let mut groups: BTreeMap<G, Vec<(i64, i64)>> = BTreeMap::new();
    for (group, attempt) in attempts {
        groups.entry(group).or_default().extend([(attempt.began, 1), (attempt.ended, -1)]);
    }
    let most = |mut steps: Vec<(i64, i64)>| {
        steps.sort_unstable(); // at one instant, ends come first
        let sums = steps.iter().scan(0, |sum, (_, step)| {
            *sum += step;
            Some(*sum)
        });
        sums.max().unwrap_or(0)
    };
    groups.into_values().map(most).max().unwrap_or(0).try_into().unwrap_or(0)
}

/// Returns how many starts came earlier than the rate allows: a window of length t may contain at most a burst, and
/// what the rate adds in t. The processes read the database's clock with an error of up to half a round trip, which is
/// long while they all start. Half the time of one start is allowed for that.
fn above_rate<'a>(attempts: impl Iterator<Item = &'a Attempt>) -> usize {
    let mut customers: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for attempt in attempts {
        customers.entry(attempt.customer.as_deref().unwrap_or_default()).or_default().push(attempt.granted);
    }
    let above = |mut granted: Vec<i64>| {
        granted.sort_unstable();
        let is_above = |last: &usize| {
            (0..*last).any(|first| {
                let window = granted[*last] - granted[first] + 250_000;
                let allowed = i64::from(BURST) + i64::from(A_SECOND) * window / 1_000_000;
                (last - first + 1) as i64 > allowed
            })
        };
        (0..granted.len()).filter(is_above).count()
    };
    customers.into_values().map(above).sum()
}

/// The results, each with the required value.
#[derive(Default)]
struct Table(Vec<(&'static str, String, String, bool)>);

impl Table {
    fn row<W, F>(&mut self, what: &'static str, wanted: W, found: F)
    where
        W: TryInto<i64>,
        F: TryInto<i64>,
    {
        let (wanted, found) = (wanted.try_into().unwrap_or(-1), found.try_into().unwrap_or(-1));
        self.0.push((what, wanted.to_string(), found.to_string(), wanted == found));
    }

    fn at_most(&mut self, what: &'static str, wanted: usize, found: usize) {
        self.0.push((what, format!("at most {wanted}"), found.to_string(), found <= wanted));
    }

    fn at_least(&mut self, what: &'static str, wanted: usize, found: usize) {
        self.0.push((what, format!("at least {wanted}"), found.to_string(), found >= wanted));
    }

    fn print(&self) -> bool {
        println!("{:<58}{:>12}{:>8}", "", "must be", "is");
        for (what, wanted, found, holds) in &self.0 {
            println!("{what:<58}{wanted:>12}{found:>8}  {}", if *holds { "ok" } else { "WRONG" });
        }
        self.0.iter().all(|(.., holds)| *holds)
    }
}
