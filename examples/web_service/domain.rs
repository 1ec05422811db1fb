//! The domain: films, the work on them, and the rows that record it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use stationmaster::admission::IfExists;
use stationmaster::admission::limits::{LimitSpec, Rate};
use stationmaster::backoff::RetryPolicy;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::ops::{Fenced, Outcome};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::sensor::{OnLanded, PokeOutcome, Settings};
use stationmaster::service::kinds::Condition;
use stationmaster::service::{Attempt, Poker, Worker};
use stationmaster::store::postgres::{self, tokio_postgres};
use stationmaster::{NewTask, TaskKey, TaskState, Timestamp};
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::time::{interval, sleep};
use tokio_postgres::{GenericClient, Transaction};

use crate::glue::{App, Result};

/// The host's own tables. The leases alone prevent an effect from happening twice; nothing in these tables does.
pub(crate) const TABLES: &str = "
    CREATE TABLE film (
        id BIGINT PRIMARY KEY, customer TEXT NOT NULL, region TEXT NOT NULL, cancelled BOOLEAN NOT NULL DEFAULT false);
    CREATE TABLE region (name TEXT PRIMARY KEY);
    CREATE TABLE effect (workflow TEXT NOT NULL, run TEXT NOT NULL, step TEXT NOT NULL);
    CREATE TABLE attempt (
        task BIGINT NOT NULL, epoch BIGINT NOT NULL, queue TEXT NOT NULL, customer TEXT, holder TEXT NOT NULL,
        granted BIGINT NOT NULL, began BIGINT NOT NULL, ended BIGINT)";

pub(crate) const LEASE: Duration = Duration::from_secs(4);
/// How long ended tasks are kept: much longer than a key may be enqueued again, here the bill of a minute.
pub(crate) const KEEP: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Places of each worker.
pub(crate) const PLACES: usize = 3;
/// GPUs of all workers together.
pub(crate) const GPUS: u32 = 4;
/// Renderings of one customer: concurrent ones, starts per second, and the burst.
pub(crate) const AT_ONCE: u32 = 2;
pub(crate) const A_SECOND: u32 = 2;
pub(crate) const BURST: u32 = 4;

/// A film, and the payload of its tasks.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Film {
    pub(crate) id: i64,
    pub(crate) customer: String,
    pub(crate) region: String,
}

impl Film {
    pub(crate) fn task(&self, step: &str) -> stationmaster::Result<NewTask> {
        let key = TaskKey::new("studio", "film", self.id.to_string(), step)?;
        let retry = RetryPolicy::fixed(Duration::from_millis(500)).max_attempts(20).build()?;
        let task = NewTask::new(key).retry(retry).payload(serde_json::json!(self).to_string());
        Ok(match step {
            "render" => task
                .queue("gpu".try_into()?)
                .pool("gpus".try_into()?)
                .limit(format!("customer/{}", self.customer).try_into()?),
            _ => task.queue("cpu".try_into()?),
        })
    }

    /// Returns the name that serializes transactions that decide about this film.
    pub(crate) fn turn(&self) -> [String; 1] {
        [format!("film {}", self.id)]
    }

    async fn of(attempt: &Attempt) -> Result<Self> {
        Ok(serde_json::from_str(&attempt.task().payload)?)
    }
}

/// Creates what does not exist yet. Each process does that when it starts, and keeps what an operator has changed
/// since.
pub(crate) fn define(app: &App) -> Result<()> {
    let gpus = PoolSpec::new("gpus", Slots::Limited(GPUS))?;
    let rate = Rate::new(A_SECOND, Duration::from_secs(1))?.burst(BURST)?;
    let customers = LimitSpec::new("customer/".try_into()?, AT_ONCE)?.rate(rate).family();
    app.store.write(|tx| {
        tx.define([&gpus], IfExists::Leave)?;
        tx.define([&customers], IfExists::Leave)
    })?;
    Ok(())
}

/// Enqueues the bill of each minute. Any number of processes may do that, because its key exists only once.
pub(crate) async fn schedule(app: Arc<App>) {
    let mut seconds = interval(Duration::from_secs(1));
    loop {
        seconds.tick().await;
        let now = app.store.clock().now();
        let minute = minute(now);
        let enqueued = app.jobs.write(move |tx| {
            let bill = NewTask::new(TaskKey::new("studio", "bill", minute.to_string(), "bill")?);
            tx.enqueue(now, &[bill.queue("cpu".try_into()?)])
        });
        let enqueued = enqueued.await;
        enqueued.map_or_else(|error| eprintln!("the bill of minute {minute}: {error}"), drop);
    }
}

/// Returns the number of the minute that contains an instant.
pub(crate) fn minute(now: Timestamp) -> i64 {
    now.as_micros().div_euclid(60_000_000)
}

pub(crate) fn handlers(worker: Worker, app: Arc<App>, runtime: &Handle) -> Worker {
    worker.handler_async(runtime, move |attempt| work(app.clone(), attempt))
}

/// Runs one attempt, and notes its instants for the trial.
async fn work(app: Arc<App>, attempt: Attempt) -> Result<Outcome> {
    began(&app, &attempt).await?;
    let outcome = match attempt.task().key.task.as_str() {
        "publish" => publish(&app, &attempt).await,
        "bill" => end(&app, &attempt, None).await,
        _ => make(&app, &attempt).await,
    };
    if !matches!(outcome, Ok(Outcome::Success { .. })) {
        ended(&*app.client().await?, &attempt).await?;
    }
    outcome
}

/// Cuts or renders a film.
async fn make(app: &App, attempt: &Attempt) -> Result<Outcome> {
    let film = Film::of(attempt).await?;
    if film.id % 11 == 0 && attempt.task().attempt == 1 {
        return Err("the decoder crashed".into());
    }
    let length = Duration::from_millis(20 + film.id.unsigned_abs() * 37 % 200);
    tokio::select! {
        () = sleep(length) => end(app, attempt, Some(film)).await, // your work goes here
        () = attempt.until_cancelled() => Ok(Outcome::GivenBack),
    }
}

/// What a film waits for before it is published. All films of a region share one poke.
#[derive(Serialize, Deserialize)]
struct RegionOpen {
    region: String,
}

impl Condition for RegionOpen {
    const KIND: &'static str = "region_open";
    const EXAMPLE: &'static str = r#"{"region": "eu"}"#;
}

/// Publishes a film when its region is open. Until then it waits without a worker.
async fn publish(app: &App, attempt: &Attempt) -> Result<Outcome> {
    if attempt.landed().is_some() {
        return end(app, attempt, None).await;
    }
    let region = RegionOpen { region: Film::of(attempt).await?.region };
    let settings = Settings::new(Duration::from_millis(500), Duration::from_secs(600))?;
    let sensor = [region.sensor(attempt.lease(), settings.on_landed(OnLanded::Resume))?];
    let now = app.store.clock().now();
    app.jobs.write(move |tx| tx.register(now, &sensor)?.fenced()).await?;
    attempt.ended_elsewhere();
    ended(&*app.client().await?, attempt).await?;
    Ok(().into())
}

pub(crate) fn kinds(poker: Poker, app: &Arc<App>, runtime: &Handle) -> Result<Poker> {
    let app = app.clone();
    let poker = poker.min_interval(Duration::from_millis(500));
    Ok(poker.kind_async(RegionOpen::kind()?, runtime, move |request| {
        let app = app.clone();
        async move {
            let region = match RegionOpen::read(&request.context) {
                Ok(open) => open.region,
                Err(wrong) => return wrong,
            };
            match is_open(&app, &region).await {
                Ok(true) => PokeOutcome::Landed(Some("open".into())),
                Ok(false) => PokeOutcome::NotYet,
                Err(error) => PokeOutcome::Unreachable(error.to_string()),
            }
        }
    }))
}

async fn is_open(app: &App, region: &str) -> Result<bool> {
    let client = app.client().await?;
    Ok(client.query_opt("SELECT 1 FROM region WHERE name = $1", &[&region]).await?.is_some())
}

/// Ends an attempt together with its effect. If the transaction meets a deadlock, or loses its connection, it is
/// repeated.
async fn end(app: &App, attempt: &Attempt, made: Option<Film>) -> Result<Outcome> {
    attempt.end_by(|| effect(app, attempt, made.clone())).await?;
    Ok(().into())
}

/// The second of a film's first two steps enqueues its publication.
async fn effect(app: &App, attempt: &Attempt, made: Option<Film>) -> stationmaster::Result<()> {
    let mut client = app.client().await?;
    let transaction = client.transaction().await?;
    let key = &attempt.task().key;
    let (workflow, run, step) = (key.workflow.as_str(), key.run.as_str(), key.task.as_str());
    transaction.execute("INSERT INTO effect VALUES ($1, $2, $3)", &[&workflow, &run, &step]).await?;
    ended(&transaction, attempt).await?;
    let made = match made {
        // A concurrent cancellation has to wait.
        Some(film) => (!is_cancelled(&transaction, film.id).await?).then_some(film),
        None => None,
    };
    let (now, attempt) = (app.store.clock().now(), attempt.clone());
    postgres::tx(&transaction, &app.schema, move |tx| {
        let Some(film) = made else { return attempt.end_in(tx, ()) };
        // Otherwise neither of two concurrent ends would see the other.
        attempt.in_turn(&film.turn()).end_in(tx, ())?;
        let steps = [film.task("cut")?.key, film.task("render")?.key];
        let is_made = |task: &stationmaster::TaskRecord| task.state == TaskState::Success;
        if tx.tasks(&steps)?.iter().flatten().all(is_made) {
            tx.enqueue(now, &[film.task("publish")?])?;
        }
        Ok(())
    })
    .await?;
    Ok(transaction.commit().await?)
}

async fn is_cancelled(transaction: &Transaction<'_>, id: i64) -> stationmaster::Result<bool> {
    let row = transaction.query_one("SELECT cancelled FROM film WHERE id = $1 FOR SHARE", &[&id]).await?;
    Ok(row.get(0))
}

/// Notes for the trial that an attempt began. All processes share one system clock, because they are on one
/// machine.
async fn began(app: &App, attempt: &Attempt) -> Result<()> {
    let task = attempt.task();
    let customer = task.lane.limits.first().map(|key| key.as_str().to_owned());
    let holder = task.lease.as_ref().map_or("", |lease| lease.holder.as_str());
    let granted = task.queued_at.map(Timestamp::as_micros);
    let row = "INSERT INTO attempt VALUES ($1, $2, $3, $4, $5, $6, $7)";
    let (id, now) = (task.id.0, SystemClock.now().as_micros());
    let queue = task.lane.queue.as_str();
    app.client().await?.execute(row, &[&id, &task.epoch, &queue, &customer, &holder, &granted, &now]).await?;
    Ok(())
}

async fn ended(client: &impl GenericClient, attempt: &Attempt) -> stationmaster::Result<()> {
    let (id, epoch) = (attempt.task().id.0, attempt.task().epoch);
    let now = SystemClock.now().as_micros();
    let row = "UPDATE attempt SET ended = $3 WHERE task = $1 AND epoch = $2";
    client.execute(row, &[&id, &epoch, &now]).await?;
    Ok(())
}
