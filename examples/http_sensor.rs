//! Submit, then poll: a task starts a long job on another system over HTTP and waits for it as a sensor.
//!
//! The task holds slots only while it submits. The HTTP client is the host's choice, because the crate has none: here
//! it is `ureq`. The other system is a small server on this machine. Its job is done when it was asked for the fourth
//! time.
//!
//!     cargo run --example http_sensor

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::sensor::{PokeOutcome, Settings};
use stationmaster::service::kinds::Condition;
use stationmaster::service::{Admitter, PokeRequest, Poker, Service};
use stationmaster::store::{MemoryStore, Store};
use stationmaster::{NewTask, TaskKey, TaskState};

/// What the sensor waits for: that this job is done.
#[derive(Serialize, Deserialize)]
struct JobDone {
    url: String,
}

impl Condition for JobDone {
    const KIND: &'static str = "job_done";
    const EXAMPLE: &'static str = r#"{"url": "http://cluster/jobs/7"}"#;
}

fn job_done(http: &ureq::Agent, request: &PokeRequest) -> PokeOutcome {
    let job = match JobDone::read(&request.context) {
        Ok(job) => job,
        Err(wrong) => return wrong,
    };
    let (status, body) = match http.get(&job.url).call() {
        Ok(mut answer) => (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap_or_default()),
        Err(error) => return PokeOutcome::Unreachable(error.to_string()),
    };
    match status {
        200 => PokeOutcome::Landed(Some(body)),
        202 => PokeOutcome::NotYet,
        500.. => PokeOutcome::Unreachable(format!("status {status}: {body}")),
        _ => PokeOutcome::Failed(format!("status {status}: {body}")),
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let jobs = Jobs::default();
    let server = serve(Arc::clone(&jobs))?;
    let config = ureq::Agent::config_builder().http_status_as_error(false);
    let http: ureq::Agent = config.timeout_global(Some(Duration::from_secs(5))).build().into();

    // Two tasks are admitted. The first one submits the job. Both wait for it, and give their slots back.
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let [train, watch] = ["train", "watch"].map(|task| TaskKey::new("prod", "models", "2026-01-01", task));
    let (train, watch) = (train?, watch?);
    let (tasks, now) = ([NewTask::new(train.clone()), NewTask::new(watch)], SystemClock.now());
    store.write(|tx| tx.enqueue(now, &tasks))?;
    let granted = Admitter::new(store.clone(), "host".try_into()?).tick(now)?.granted;
    let leases: Vec<_> = granted.iter().map(|task| task.lease_ref()).collect();
    store.write(|tx| tx.start(now, &leases))?;

    // The id depends only on the task and its attempt. A task that dies after it submitted, and runs again under the
    // same attempt, submits the same job. The server responds as it did the first time.
    let id = format!("{}.{}.{}.{}", train.workflow, train.run, train.task, granted[0].attempt);
    let job = JobDone { url: format!("{server}/jobs/{id}") };
    for _ in 0..2 {
        http.put(&job.url).send("train the model")?;
    }
    let settings = Settings::new(Duration::from_millis(100), Duration::from_secs(60))?;
    let sensors = [job.sensor(leases[0], settings)?, job.sensor(leases[1], settings)?];
    store.write(|tx| tx.register(now, &sensors))?;

    let mut poker = Poker::new(store.clone(), "poker".try_into()?)
        .min_interval(Duration::from_millis(100))
        .kind(JobDone::kind()?, move |request: &PokeRequest| job_done(&http, request));
    let (began, mut ended) = (Instant::now(), 0);
    while ended < 2 {
        if began.elapsed() > Duration::from_secs(120) {
            return Err("the sensors did not end in two minutes".into());
        }
        let tick = poker.tick(SystemClock.now())?;
        ended += tick.landed + tick.failed + tick.timed_out + tick.gave_up;
        thread::sleep(Duration::from_millis(10));
    }

    let task = store.read(|tx| tx.tasks(std::slice::from_ref(&train)))?.remove(0).ok_or("no task")?;
    println!("{}: {}, {}", task.key, task.state, task.value.as_deref().unwrap_or("no value"));
    assert_eq!((task.state, task.value.as_deref()), (TaskState::Success, Some("accuracy 0.97")));
    let jobs = jobs.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(jobs.values().copied().collect::<Vec<usize>>(), [4], "one job; two sensors share each poll");
    Ok(())
}

/// How often each job was asked for.
type Jobs = Arc<Mutex<HashMap<String, usize>>>;

/// Serves in the background, and returns its address. If a connection fails, the client has to deal with it.
fn serve(jobs: Jobs) -> std::io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = format!("http://{}", listener.local_addr()?);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if let Err(error) = answer(stream, &jobs) {
                eprintln!("the server: {error}");
            }
        }
    });
    Ok(address)
}

fn answer(mut stream: TcpStream, jobs: &Jobs) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut request, mut line, mut length) = (String::new(), String::new(), 0);
    reader.read_line(&mut request)?;
    while reader.read_line(&mut line)? > 2 {
        if let Some(("content-length", value)) = line.to_ascii_lowercase().trim().split_once(": ") {
            length = value.parse().unwrap_or(0);
        }
        line.clear();
    }
    reader.take(length).read_to_end(&mut Vec::new())?;
    let mut words = request.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut jobs = jobs.lock().unwrap_or_else(PoisonError::into_inner);
    let (status, body) = match (method, jobs.get_mut(path)) {
        ("PUT", Some(_)) => ("200 OK", ""),
        ("PUT", None) => {
            jobs.insert(path.to_owned(), 0);
            ("201 Created", "")
        }
        ("GET", Some(asked)) => {
            *asked += 1;
            if *asked < 4 { ("202 Accepted", "") } else { ("200 OK", "accuracy 0.97") }
        }
        _ => ("404 Not Found", "no such job"),
    };
    let length = body.len();
    write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
}
