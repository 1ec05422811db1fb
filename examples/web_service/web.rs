//! The routes.

use std::future::Future;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use stationmaster::TaskState;
use stationmaster::admission::Subject;
use stationmaster::clock::Clock;
use stationmaster::ops::Cancellation;
use stationmaster::store::postgres::{self, tokio_postgres};
use stationmaster::task::TaskQuery;
use tokio::net::TcpListener;

use crate::domain::Film;
use crate::glue::App;

/// Any error, in the form that the client sees.
pub(crate) struct Failed(Box<dyn std::error::Error + Send + Sync>);

impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, self.0.to_string()).into_response()
    }
}

type Answer<T> = Result<T, Failed>;

/// Serves until `stopped`, and then completes the requests that have begun.
pub(crate) async fn serve(
    app: Arc<App>,
    port: u16,
    stopped: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let routes = Router::new()
        .route("/films", post(upload))
        .route("/films/{id}", get(status).delete(cancel))
        .route("/regions/{name}", post(open))
        .route("/queues/{name}/{verb}", post(steer))
        .route("/ops", get(ops))
        .with_state(app);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    axum::serve(listener, routes).with_graceful_shutdown(stopped).await
}

/// Stores a film and its first two tasks. A client that got no response sends it again.
async fn upload(State(app): State<Arc<App>>, Json(film): Json<Film>) -> Answer<StatusCode> {
    let tasks = [film.task("cut")?, film.task("render")?];
    let mut client = app.client().await?;
    let transaction = client.transaction().await?;
    let row = "INSERT INTO film VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
    transaction.execute(row, &[&film.id, &film.customer, &film.region]).await?;
    let now = app.store.clock().now();
    postgres::tx(&transaction, &app.schema, move |tx| tx.enqueue(now, &tasks)).await?;
    transaction.commit().await?;
    Ok(StatusCode::CREATED)
}

/// Cancels the work on a film, unless it was published.
async fn cancel(State(app): State<Arc<App>>, Path(id): Path<i64>) -> Answer<(StatusCode, Json<Value>)> {
    let mut client = app.client().await?;
    let transaction = client.transaction().await?;
    let row = "UPDATE film SET cancelled = true WHERE id = $1 RETURNING customer, region";
    let Some(row) = transaction.query_opt(row, &[&id]).await? else {
        return Ok((StatusCode::NOT_FOUND, Json(Value::Null)));
    };
    let film = Film { id, customer: row.get(0), region: row.get(1) };
    let keys = ["cut", "render", "publish"].map(|step| film.task(step).map(|task| task.key));
    let keys = keys.into_iter().collect::<Result<Vec<_>, _>>()?;
    let now = app.store.clock().now();
    let cancelled = postgres::tx(&transaction, &app.schema, move |tx| {
        tx.serialize(&film.turn())?;
        tx.cancel(now, Duration::from_secs(3), &keys, "the customer's wish")
    })
    .await?;
    if cancelled.last() == Some(&Cancellation::AlreadyEnded(TaskState::Success)) {
        return Ok((StatusCode::CONFLICT, Json(json!("it was published")))); // rolls back
    }
    transaction.commit().await?;
    Ok((StatusCode::OK, Json(json!(cancelled))))
}

/// Shows a film and its state: the host's row and the store's view in one statement.
async fn status(State(app): State<Arc<App>>, Path(id): Path<i64>) -> Answer<Json<Value>> {
    let client = app.client().await?;
    let rows = format!(
        "SELECT task.task, task.state, task.message FROM film JOIN \"{}\".status AS task
         ON (task.namespace, task.workflow, task.run, task.map_key) = ('studio', 'film', film.id::text, -1)
            AND task.task IN ('cut', 'render', 'publish')
         WHERE film.id = $1",
        app.schema.as_str()
    );
    let rows = client.query(&rows, &[&id]).await?;
    let row_json = |row: &tokio_postgres::Row| {
        let (task, state, why) =
            (row.get::<_, &str>(0), row.get::<_, &str>(1), row.get::<_, Option<&str>>(2));
        json!({ "task": task, "state": state, "message": why })
    };
    Ok(Json(rows.iter().map(row_json).collect()))
}

/// Opens a region: films that are made for it may be published.
async fn open(State(app): State<Arc<App>>, Path(name): Path<String>) -> Answer<StatusCode> {
    let row = "INSERT INTO region VALUES ($1) ON CONFLICT DO NOTHING";
    app.client().await?.execute(row, &[&name]).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Pauses or resumes a queue. Running tasks continue.
async fn steer(
    State(app): State<Arc<App>>,
    Path((name, verb)): Path<(String, String)>,
) -> Answer<StatusCode> {
    let queue = [Subject::Queue(name.try_into()?)];
    match verb.as_str() {
        "pause" => app.jobs.write(move |tx| tx.pause(&queue)).await?,
        "resume" => app.jobs.write(move |tx| tx.resume(&queue)).await?,
        _ => return Ok(StatusCode::NOT_FOUND),
    };
    Ok(StatusCode::NO_CONTENT)
}

/// Shows an operator how many tasks are in which state, what runs where, and why the next tasks wait.
async fn ops(State(app): State<Arc<App>>) -> Answer<Json<Value>> {
    let now = app.store.clock().now();
    let page = app.jobs.read(move |tx| {
        let queues = tx.queues()?;
        let subjects: Vec<Subject> = queues.iter().map(|queue| Subject::Queue(queue.name.clone())).collect();
        let drains = tx.drain(&subjects)?;
        let drains: serde_json::Map<_, _> =
            queues.iter().zip(drains).map(|(queue, drain)| (queue.name.to_string(), json!(drain))).collect();
        let waiting = tx.list_tasks(&TaskQuery::waiting().limit(5))?.tasks;
        let keys: Vec<_> = waiting.into_iter().map(|task| task.key).collect();
        let why = tx.explain(now, &keys)?;
        let waits =
            keys.iter().zip(why).map(|(key, why)| json!({ "task": key.to_string(), "why": why.to_string() }));
        let running = tx.list_tasks(&TaskQuery::leased().limit(20))?.tasks;
        let runs = running.iter().map(|task| {
            let holder = task.lease.as_ref().map(|lease| lease.holder.as_str());
            json!({ "task": task.key.to_string(), "attempt": task.attempt, "holder": holder })
        });
        let (waits, runs): (Vec<_>, Vec<_>) = (waits.collect(), runs.collect());
        Ok(json!({
            "tasks": tx.count_tasks(10_000)?, "pools": tx.all_pools()?, "queues": queues, "drains": drains,
            "running": runs, "waiting": waits,
        }))
    });
    Ok(Json(page.await?))
}
