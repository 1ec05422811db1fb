//! graphile_worker: what each command does is in ../../README.md.

#[path = "../../shared/program.rs"]
mod program;

use std::time::{Duration, Instant};

use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler, Worker, WorkerContext,
    WorkerOptions, WorkerUtils,
};
use program::{DONE, FIRST_SAMPLE, begun, number};
use serde::{Deserialize, Serialize};
use sqlx::postgres::{PgPool, PgPoolOptions};
use std::sync::atomic::Ordering::Relaxed;
use tokio::runtime::Handle;
use tokio::task::block_in_place;

const SCHEMA: &str = "graphile_worker";

#[derive(Serialize, Deserialize)]
struct Nothing {
    n: u64,
}

impl TaskHandler for Nothing {
    const IDENTIFIER: &'static str = "nothing";

    async fn run(self, _: WorkerContext) -> impl IntoTaskHandlerResult {
        if self.n >= FIRST_SAMPLE {
            begun(self.n);
        }
        DONE.fetch_add(1, Relaxed);
        Ok::<(), String>(())
    }
}

async fn connect(connections: u32) -> PgPool {
    let options = PgPoolOptions::new().max_connections(connections).min_connections(connections);
    options.connect(&program::url()).await.expect("a connection")
}

async fn sender() -> WorkerUtils {
    WorkerUtils::new(connect(1).await, SCHEMA)
}

/// `batch`: its fastest form. `single`: each end is a commit of its own. `each`: one place, one task fetched at
/// a time. `direct`: no tasks fetched ahead; a notification makes it look.
async fn worker(shape: &str) -> Worker {
    let (places, ahead) = match shape {
        "batch" => (24, 500),
        "single" => (24, 100),
        "each" => (1, 1),
        "direct" => (4, 0),
        other => panic!("no shape {other}"),
    };
    let mut options = WorkerOptions::default().schema(SCHEMA).concurrency(places).define_job::<Nothing>();
    options = options.pg_pool(connect(places as u32 + 1).await);
    if ahead > 0 {
        options = options.local_queue(LocalQueueConfig::default().with_size(ahead));
    }
    if shape == "batch" {
        options = options.complete_job_batch_delay(Duration::from_millis(2));
    }
    options.init().await.expect("a worker")
}

async fn add(sender: &WorkerUtils, n: u64) {
    sender.add_job(Nothing { n }, JobSpec::default()).await.expect("enqueued");
}

#[tokio::main]
async fn main() {
    let arguments = program::arguments();
    match arguments[0].as_str() {
        "setup" => drop(worker("direct").await),
        "fill" => {
            let (count, sender) = (number(&arguments, 1) as u64, sender().await);
            let job = |n| {
                let (identifier, payload) = ("nothing".into(), serde_json::json!({ "n": n }));
                RawJobSpec { identifier, payload, spec: JobSpec::default() }
            };
            let began = Instant::now();
            for from in (0..count).step_by(1_000) {
                let jobs: Vec<_> = (from..count.min(from + 1_000)).map(job).collect();
                sender.add_raw_jobs(&jobs).await.expect("enqueued");
            }
            program::print_rate(count as usize, began);
        }
        "enqueue" => {
            let (connections, count) = (number(&arguments, 1), number(&arguments, 2));
            let mut senders = Vec::new();
            for _ in 0..connections {
                let sender = sender().await;
                add(&sender, 0).await;
                senders.push(sender);
            }
            let began = Instant::now();
            let send = |(at, sender): (usize, WorkerUtils)| {
                tokio::spawn(async move {
                    for n in (at..count).step_by(connections) {
                        add(&sender, n as u64).await;
                    }
                })
            };
            for sent in senders.into_iter().enumerate().map(send).collect::<Vec<_>>() {
                sent.await.expect("sent");
            }
            program::print_rate(count, began);
        }
        "work" => {
            let worker = worker(&arguments[1]).await;
            block_in_place(program::gate);
            worker.run().await.expect("the worker ran");
        }
        "latency" => {
            let (worker, sender) = (worker("direct").await, sender().await);
            tokio::spawn(async move { worker.run().await.expect("the worker ran") });
            tokio::time::sleep(Duration::from_secs(1)).await;
            let handle = Handle::current();
            let enqueue = |n| handle.block_on(add(&sender, n));
            block_in_place(|| program::measure_latency(number(&arguments, 1), enqueue));
            std::process::exit(0);
        }
        other => panic!("no command {other}"),
    }
}
