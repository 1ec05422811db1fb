//! apalis with its SQLite storage: what each command does is in ../../README.md.

#[path = "../../shared/program.rs"]
mod program;

use std::str::FromStr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use apalis::prelude::*;
use apalis_sqlite::{Config, SqliteStorage};
use program::{DONE, number};
use serde::{Deserialize, Serialize};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

#[derive(Serialize, Deserialize, Clone, Debug)]
struct Nothing {
    n: u64,
}

async fn handle(_: Nothing) -> Result<(), BoxDynError> {
    DONE.fetch_add(1, Relaxed);
    Ok(())
}

#[tokio::main]
async fn main() {
    let arguments = program::arguments();
    let (what, count) = (arguments[1].as_str(), number(&arguments, 2) as u64);
    let options = SqliteConnectOptions::from_str(&program::url())
        .expect("a path")
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full);
    let connections = if what == "each" { 4 } else { 1 };
    // What makes the tables also turns flushes off, on the connection that it is given.
    let making = SqlitePoolOptions::new().max_connections(1).connect_with(options.clone()).await;
    let making = making.expect("a file");
    SqliteStorage::setup(&making).await.expect("tables");
    making.close().await;
    let pool = SqlitePoolOptions::new().max_connections(connections).connect_with(options).await;
    let pool = pool.expect("a file");
    let config = Config::default().queue("nothing").batch_size(10);
    let mut storage = SqliteStorage::<Nothing>::new(&pool).with_config(config);
    let mut began = Instant::now();
    if what == "enqueue" {
        for n in 0..count {
            storage.push(Nothing { n }).await.expect("enqueued");
        }
    } else {
        for from in (0..count).step_by(1_000) {
            let tasks = (from..count.min(from + 1_000)).map(|n| Nothing { n }).collect();
            storage.push_bulk(tasks).await.expect("enqueued");
        }
    }
    if what == "each" {
        began = Instant::now();
        let worker = WorkerBuilder::new("worker").backend(storage).concurrency(1).build(handle);
        let all_ran = async {
            while DONE.load(Relaxed) < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            ended = worker.run() => ended.expect("the worker ran"),
            () = all_ran => {}
        }
    }
    program::print_rate(count as usize, began);
    std::process::exit(0);
}
