//! Exports a host's metrics to Prometheus: `cargo run --example prometheus`.
//!
//! It runs a few tasks and sensors with an observer, serves `GET /metrics`, scrapes itself, and checks that the page
//! matches the run. With `--serve` it then continues to serve the page until it is stopped.

#[path = "../../tests/exposition/mod.rs"]
mod exposition;
mod registry;

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use registry::Registry;
use serde::{Deserialize, Serialize};
use stationmaster::backoff::RetryPolicy;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::ops::Finish;
use stationmaster::sensor::{PokeOutcome, Settings};
use stationmaster::service::kinds::Condition;
use stationmaster::service::{Admitter, ObservedStore, Observer, PokeRequest, Poker, Service, metrics};
use stationmaster::store::{MemoryStore, Store};
use stationmaster::{NewTask, TaskKey};

/// What two tasks wait for.
#[derive(Serialize, Deserialize)]
struct File {
    path: String,
}

impl Condition for File {
    // Prometheus accepts any text as a label, including this name of a kind.
    const KIND: &'static str = "a \"file\"\\\n";
    const EXAMPLE: &'static str = r#"{"path": "/data/in.csv"}"#;
}

fn main() -> Result<(), Box<dyn Error>> {
    let registry = Arc::new(Registry::default());
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let served = registry.clone();
    let server = std::thread::spawn(move || serve(&listener, &served));

    run(registry)?;

    let page = scrape(address)?;
    print!("{page}");
    let page = exposition::parse(&page)?;
    let value = |series: &str| page.value(series).ok_or(format!("no {series}"));
    assert_eq!(value("stationmaster_granted_total")?, 6.0);
    assert_eq!(value(r#"stationmaster_refused{reason="pool_full"}"#)?, 0.0);
    assert_eq!(value(r#"stationmaster_finished_total{became="success"}"#)?, 3.0);
    assert_eq!(value(r#"stationmaster_finished_total{became="retry"}"#)?, 1.0);
    assert_eq!(
        value(r#"stationmaster_pokes_saved_total{kind="a \"file\"\\\n"}"#)?,
        1.0,
        "two sensors shared a poke"
    );
    assert_eq!(value(r#"stationmaster_pokes_total{kind="a \"file\"\\\n",outcome="landed"}"#)?, 1.0);
    assert_eq!(value(r#"stationmaster_task_moves_total{to="success"}"#)?, 5.0);
    assert_eq!(value("stationmaster_wait_seconds_count")?, 6.0);
    assert_eq!(
        value(r#"stationmaster_queue_waiting_tasks{queue="default"}"#)?,
        1.0,
        "it is tried again later"
    );
    println!("# the page says what the run did; it is served at http://{address}/metrics");
    if std::env::args().any(|argument| argument == "--serve") {
        server.join().map_err(|_| "the server panicked")?;
    }
    Ok(())
}

/// Runs six tasks: three succeed, one fails and will be retried, two wait for the same target, which exists.
fn run(registry: Arc<Registry>) -> Result<(), stationmaster::Error> {
    let observer: Arc<dyn Observer> = registry;
    let store: Arc<dyn Store> = Arc::new(ObservedStore::new(MemoryStore::new(), observer.clone()));
    let retry = RetryPolicy::exponential(Duration::from_secs(30)).max_attempts(3).build()?;
    let key = |n| TaskKey::new("prod", "nightly", "2026-01-01", format!("task-{n}"));
    let tasks = (0..6).map(|n| Ok(NewTask::new(key(n)?).retry(retry.clone())));
    let tasks: Vec<NewTask> = tasks.collect::<Result<_, stationmaster::Error>>()?;
    let now = SystemClock.now();
    store.write(|tx| tx.enqueue(now, &tasks))?;

    let admitter = Admitter::new(store.clone(), "worker-1".try_into()?);
    let granted = admitter.observed_by(observer.clone()).tick(now)?.granted;
    let leases: Vec<_> = granted.iter().map(|task| task.lease_ref()).collect();
    store.write(|tx| tx.start(now, &leases))?;
    let ends: Vec<Finish> = leases[..4]
        .iter()
        .enumerate()
        .map(|(n, lease)| if n == 3 { Finish::failed(*lease, "no route") } else { Finish::success(*lease) })
        .collect();
    metrics::finished(&*observer, &store.write(|tx| tx.finish(now, &ends))?);

    let settings = Settings::new(Duration::from_secs(30), Duration::from_secs(3600))?;
    let file = File { path: "/data/in.csv".to_owned() };
    let sensors = [file.sensor(leases[4], settings)?, file.sensor(leases[5], settings)?];
    metrics::registered(&*observer, &store.write(|tx| tx.register(now, &sensors))?);
    let poker = Poker::new(store.clone(), "poker-1".try_into()?).wait_for_answers(Duration::MAX);
    let landed = |_: &PokeRequest| PokeOutcome::Landed(None);
    poker.kind(File::kind()?, landed).observed_by(observer.clone()).tick(now)?;
    // A long-running host calls this for each page that is fetched.
    store.read(|tx| metrics::capacity(tx, now, &*observer))
}

/// Serves the page to every request. That is enough for a scraper in the same network.
fn serve(listener: &TcpListener, registry: &Registry) {
    for stream in listener.incoming().flatten() {
        // A client that hangs up will scrape again.
        let _ = answer(stream, registry);
    }
}

fn answer(mut stream: TcpStream, registry: &Registry) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let request =
        BufReader::new(&stream).lines().take_while(|line| line.as_ref().is_ok_and(|l| !l.is_empty()));
    request.for_each(drop);
    let page = registry.render();
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nConnection: close";
    write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{page}", page.len())
}

fn scrape(address: SocketAddr) -> Result<String, Box<dyn Error>> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (_, page) = answer.split_once("\r\n\r\n").ok_or("no body")?;
    Ok(page.to_owned())
}
