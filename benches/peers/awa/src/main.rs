//! awa: what each command does is in ../../README.md.

#[path = "../../shared/program.rs"]
mod program;

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use awa::{
    Client, InsertOpts, InsertParams, JobArgs, JobResult, QueueConfig, QueueStorage, QueueStorageConfig,
    insert_with, migrations,
};
use program::{DONE, number};
use serde::{Deserialize, Serialize};
use sqlx::postgres::{PgPool, PgPoolOptions};

#[derive(Debug, Serialize, Deserialize, JobArgs)]
struct Nothing {
    n: u64,
}

fn options() -> InsertOpts {
    InsertOpts { queue: "work".into(), ..Default::default() }
}

async fn connect(connections: u32) -> PgPool {
    let options = PgPoolOptions::new().max_connections(connections).min_connections(connections);
    options.connect(&program::url()).await.expect("a connection")
}

fn client(pool: &PgPool, places: u32) -> Client {
    Client::builder(pool.clone())
        .queue("work", QueueConfig { max_workers: places, ..Default::default() })
        .register::<Nothing, _, _>(|_, _| async {
            DONE.fetch_add(1, Relaxed);
            Ok(JobResult::Completed)
        })
        .build()
        .expect("a client")
}

#[tokio::main]
async fn main() {
    let arguments = program::arguments();
    match arguments[0].as_str() {
        // Its queue storage becomes the active one when a client first starts.
        "setup" => {
            let pool = connect(4).await;
            migrations::run(&pool).await.expect("migrated");
            client(&pool, 1).start().await.expect("started");
            tokio::time::sleep(Duration::from_secs(3)).await;
            std::process::exit(0);
        }
        // By COPY, as its documentation advises who produces many.
        "fill" => {
            let (count, pool) = (number(&arguments, 1), connect(2).await);
            let store = QueueStorage::new(QueueStorageConfig::default()).expect("a storage");
            let job = |n: usize| {
                let (kind, args) = (Nothing::kind().into(), serde_json::json!({ "n": n }));
                InsertParams { kind, args, opts: options() }
            };
            let began = Instant::now();
            for from in (0..count).step_by(1_000) {
                let jobs: Vec<_> = (from..count.min(from + 1_000)).map(job).collect();
                store.enqueue_params_copy(&pool, &jobs).await.expect("enqueued");
            }
            program::print_rate(count, began);
        }
        "enqueue" => {
            let (connections, count) = (number(&arguments, 1), number(&arguments, 2));
            let mut pools = Vec::new();
            for _ in 0..connections {
                let pool = connect(1).await;
                insert_with(&pool, &Nothing { n: 0 }, options()).await.expect("enqueued");
                pools.push(pool);
            }
            let began = Instant::now();
            let send = |(at, pool): (usize, PgPool)| {
                tokio::spawn(async move {
                    for n in (at..count).step_by(connections) {
                        insert_with(&pool, &Nothing { n: n as u64 }, options()).await.expect("enqueued");
                    }
                })
            };
            for sent in pools.into_iter().enumerate().map(send).collect::<Vec<_>>() {
                sent.await.expect("sent");
            }
            program::print_rate(count, began);
        }
        // 512 places were its fastest of 50, 256 and 512.
        "work" => {
            let pool = connect(16).await;
            let client = client(&pool, 512);
            tokio::task::block_in_place(program::gate);
            client.start().await.expect("started");
            std::future::pending::<()>().await;
        }
        other => panic!("no command {other}"),
    }
}
